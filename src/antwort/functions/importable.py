"""Whether a `use:` of the configuration leads somewhere, told without running any code of others."""

import importlib.util
import re
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path

from antwort.errors import did_you_mean

__all__ = ["doubt_about"]

_WORD = re.compile(r"[^\W\d]\w*")


def doubt_about(use: str) -> str | None:
    """Return why 'module:Class' cannot be imported, as far as that can be seen from outside; None if it may well be.

    A module that makes its names as it runs is given the benefit of the doubt.
    """
    module, _, attribute = use.partition(":")
    spec: ModuleSpec | None = None
    path: Sequence[str] | None = None
    parts = module.split(".")
    for count in range(1, len(parts) + 1):
        name = ".".join(parts[:count])
        spec = _spec(name, path)
        if spec is None:
            return f"use: there is no module '{name}'; is it installed, and on PYTHONPATH?"
        path = spec.submodule_search_locations
        if path is None and count < len(parts):
            return f"use: '{name}' is a module, not a package, so there is no '{module}'"
    source = _source(spec)
    if source is None or "import *" in source or "__getattr__" in source or "globals()" in source:
        return None
    words = set(_WORD.findall(source))
    first = attribute.partition(".")[0]
    return None if first in words else f"use: module '{module}' has no '{first}'{did_you_mean(first, words)}"


def _spec(name: str, path: Sequence[str] | None) -> ModuleSpec | None:
    """Find a module; its packages, whose folders are given, are not imported as `importlib.util.find_spec` would."""
    if path is None:
        try:
            return importlib.util.find_spec(name)
        except ValueError:  # it is running, and nobody knows where from: `__main__`
            return ModuleSpec(name, None)
    return next((spec for finder in sys.meta_path if (spec := finder.find_spec(name, path)) is not None), None)


def _source(spec: ModuleSpec | None) -> str | None:
    file = Path(spec.origin) if spec is not None and spec.has_location and spec.origin else None
    if file is None or file.suffix != ".py":
        return None
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
