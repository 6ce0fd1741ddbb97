"""Where on this machine the things are that a configuration names."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from pydantic import BaseModel, SecretStr


def named_places(value: Any, name: str = "") -> Iterator[tuple[str, Path]]:
    """Yield every file and folder that a model or raw settings name, with the dotted key: paths, and those in URLs."""
    if isinstance(value, Path):
        yield name, value
    elif isinstance(value, SecretStr):
        yield from named_places(value.get_secret_value(), name)
    elif isinstance(value, str):
        yield from ((name, place) for place in _in_url(value))
    elif isinstance(value, BaseModel):
        for field in type(value).model_fields:
            yield from named_places(getattr(value, field), _below(name, field))
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from named_places(part, _below(name, str(key)))
    elif isinstance(value, Sequence) and not isinstance(value, bytes):
        for part in value:
            yield from named_places(part, name)


def _below(name: str, part: str) -> str:
    return f"{name}.{part}" if name else part


def _in_url(text: str) -> Iterator[Path]:
    """Yield the file of a SQLite database, and the folder of the socket of a PostgreSQL one."""
    if text.startswith("sqlite:///"):
        yield Path(text.removeprefix("sqlite:///"))
    elif "://" in text:
        try:
            url = urlsplit(text)
            hosts = [unquote(url.hostname or ""), *parse_qs(url.query).get("host", [])]
        except ValueError:  # no URL, as others have said or will say
            return
        yield from (Path(host) for host in hosts if host.startswith("/"))
