"""Where a value came from, in the words of the operator who wrote it, and every value with its origin."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct
from pydantic import BaseModel, SecretStr
from typing_extensions import override

from antwort.config.secrets import MASK, is_header_map, is_secret_collection, is_secret_name, mask_urls
from antwort.config.settings import Extension


class Origin(Struct, frozen=True):
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


class VisibleValue(Struct, frozen=True):
    """One value that is in force. It is ready for JSON and holds no secret."""

    key: str
    value: Any
    origin: Origin


def visible_values(config: BaseModel, origins: Mapping[str, Origin]) -> list[VisibleValue]:
    """Return every leaf of the configuration, in the order of its sections."""
    return list(_leaves("", config, origins, secret=False))


def _leaves(key: str, value: Any, origins: Mapping[str, Origin], *, secret: bool) -> Iterator[VisibleValue]:
    if isinstance(value, BaseModel):
        # The types of a model say what is secret; `limits.per_key` is not.
        for name, inner in value:
            yield from _leaves(join(key, name), inner, origins, secret=is_header_map(name, inner))
    elif isinstance(value, Extension):
        yield from _leaves(key, value.shown(), origins, secret=secret)
    elif isinstance(value, dict) and value:
        for name, inner in value.items():
            hidden = secret or _is_secret(name, inner)
            yield from _leaves(join(key, name), inner, origins, secret=hidden)
    elif isinstance(value, list) and any(isinstance(item, BaseModel | dict | list) for item in value):
        for index, item in enumerate(value):
            yield from _leaves(join(key, index), item, origins, secret=secret)
    else:
        origin = origins.get(key) or (origins.get(f"{key}_file") if isinstance(value, SecretStr) else None)
        yield VisibleValue(key, _visible(key, value, origins, secret=secret), origin or DEFAULT)


def _is_secret(name: str, value: Any) -> bool:
    if isinstance(value, BaseModel):
        return False
    if is_header_map(name, value):
        return True
    return is_secret_collection(name) if isinstance(value, dict | list) else is_secret_name(name)


def _visible(key: str, value: Any, origins: Mapping[str, Origin], *, secret: bool) -> Any:
    if isinstance(value, list):
        return [_visible(join(key, index), item, origins, secret=secret) for index, item in enumerate(value)]
    if value is None or value == {}:
        return value
    origin = origins.get(key, DEFAULT)
    if secret or isinstance(value, SecretStr) or any(is_secret_name(name) for name in origin.variables):
        return MASK
    if isinstance(value, str | Path):
        return mask_urls(str(value))
    return value
