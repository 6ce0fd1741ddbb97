"""Every value with its origin, secrets masked: what `antwort config show` prints."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, SecretStr

from antwort.config.masking import MASK, is_header_map, is_secret_collection, is_secret_name, mask_urls
from antwort.config.origins import DEFAULT, Origin, join

__all__ = ["Entry", "entries"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One value that is in force. It is ready for JSON and holds no secret."""

    key: str
    value: Any
    origin: Origin


def entries(config: BaseModel, origins: Mapping[str, Origin]) -> list[Entry]:
    """Return every leaf of the configuration, in the order of its sections."""
    return list(_leaves("", config, origins, secret=False))


def _leaves(key: str, value: Any, origins: Mapping[str, Origin], *, secret: bool) -> Iterator[Entry]:
    if isinstance(value, BaseModel):
        # The types of a model say what is secret; `limits.per_key` is not.
        for name, inner in value:
            yield from _leaves(join(key, name), inner, origins, secret=is_header_map(name, inner))
    elif isinstance(value, dict) and value:
        for name, inner in value.items():
            hidden = secret or _is_secret(name, inner)
            yield from _leaves(join(key, name), inner, origins, secret=hidden)
    elif isinstance(value, list) and any(isinstance(item, BaseModel | dict | list) for item in value):
        for index, item in enumerate(value):
            yield from _leaves(join(key, index), item, origins, secret=secret)
    else:
        origin = origins.get(key) or (origins.get(f"{key}_file") if isinstance(value, SecretStr) else None)
        yield Entry(key, _shown(key, value, origins, secret=secret), origin or DEFAULT)


def _is_secret(name: str, value: Any) -> bool:
    if isinstance(value, BaseModel):
        return False
    if is_header_map(name, value):
        return True
    return is_secret_collection(name) if isinstance(value, dict | list) else is_secret_name(name)


def _shown(key: str, value: Any, origins: Mapping[str, Origin], *, secret: bool) -> Any:
    if isinstance(value, list):
        return [_shown(join(key, index), item, origins, secret=secret) for index, item in enumerate(value)]
    if value is None or value == {}:
        return value
    origin = origins.get(key, DEFAULT)
    if secret or isinstance(value, SecretStr) or any(is_secret_name(name) for name in origin.variables):
        return MASK
    if isinstance(value, str | Path):
        return mask_urls(str(value))
    return value
