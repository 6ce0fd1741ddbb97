"""Environment variables that look like settings and are none: which ones were meant."""

import re
from collections.abc import Iterator

from pydantic import BaseModel

from antwort.config.model import Config
from antwort.config.settings import alternatives, is_model

_FLAGS = {"backend": ("backends", "default", "url"), "model": ("engine", "default_model")}
"""What the flags of the commands are called, where settings have other names."""
_MOST = 3
"""Settings that are named, at most: a word that fits more of them was meant for something else."""
_OF_KUBERNETES = re.compile(r"service_(host|port(_\w+)?)|port_\d+_(tcp|udp)(_\w+)?")
"""What Kubernetes puts into the pods beside a service called antwort."""


def intended_variables(name: str, value: str) -> list[str]:
    """Return the variables that may have been meant by `ANTWORT_<name>`; none if it is somebody else's.

    It is one that lacks the section, as PORT, or has `_` in the place of `__`, as SERVER_PORT.
    """
    wanted = name.lower()
    if _OF_KUBERNETES.fullmatch(wanted) or value.startswith(("tcp://", "udp://")):
        return []
    paths = [path for path in _paths(Config) if wanted == "_".join(path)]
    paths = paths or [path for path in _paths(Config) if wanted == path[-1]]
    if not paths and wanted in _FLAGS:
        paths = [_FLAGS[wanted]]
    names = ["ANTWORT_" + "__".join(path).upper() for path in paths]
    return names if len(names) <= _MOST else []


def _paths(model: type[BaseModel], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the settings of the sections; what stands below names that the operator chooses is left out."""
    for name, field in model.model_fields.items():
        path = (*above, name)
        inner = [kind for kind in alternatives(field.annotation) if is_model(kind)]
        if not inner:
            yield path
        for kind in inner:
            yield from _paths(kind, path)
