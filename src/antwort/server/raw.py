"""Endpoints in plain ASGI, for the paths that must be fast."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from msgspec import Struct
from starlette.types import Receive, Scope, Send

__all__ = ["RawRoute"]


@dataclass(frozen=True, slots=True)
class RawRoute:
    """A method, a path, and an ASGI app that answers there."""

    method: str
    path: str
    app: Callable[[Scope, Receive, Send], Awaitable[None]]
    summary: str
    body: type[Struct] | None = None
    """What it reads, for the API description."""
    returns: type[Struct] | None = None
