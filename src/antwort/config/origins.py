"""Where a value came from, in the words of the operator who wrote it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from typing_extensions import override

__all__ = ["DEFAULT", "Origin", "join", "move", "nearest"]


@dataclass(frozen=True, slots=True)
class Origin:
    """The place a value was read from. As text: `default`, `antwort.yaml:12`, `environment NAME`, `flag --port`."""

    kind: Literal["default", "file", "environment", "flag"]
    name: str = ""
    """The file, the variable or the flag."""
    line: int | None = None
    variables: tuple[str, ...] = ()
    """The environment variables whose content was put into a value of a file."""

    @override
    def __str__(self) -> str:
        if self.kind == "file":
            return self.name if self.line is None else f"{self.name}:{self.line}"
        return f"{self.kind} {self.name}".rstrip()


DEFAULT = Origin("default")


def join(*parts: object) -> str:
    """Return the dotted key of a path; empty parts are left out."""
    return ".".join(str(part) for part in parts if part != "")


def nearest(origins: Mapping[str, Origin], key: str) -> Origin:
    """Return the origin of a key: its own, else that of the first key below it, else that of the nearest above."""
    if key in origins:
        return origins[key]
    below = f"{key}."
    for known, origin in origins.items():
        if known.startswith(below):
            return origin
    while key:
        key = key.rpartition(".")[0]
        if key in origins:
            return origins[key]
    return DEFAULT


def move(origins: dict[str, Origin], old: str, new: str | None) -> None:
    """Give the origins of a key, and of all below it, to another key; with None, forget them."""
    below = f"{old}."
    for key in [key for key in origins if key == old or key.startswith(below)]:
        origin = origins.pop(key)
        if new is not None:
            origins[new + key[len(old) :]] = origin
