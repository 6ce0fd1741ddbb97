"""Endpoints in plain ASGI, for the paths that must be fast."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.types import Receive, Scope, Send

from antwort.errors import APIError
from antwort.functions import Example

__all__ = ["RawRoute"]


@dataclass(frozen=True, slots=True)
class RawRoute:
    """A method, a path without parameters, and an ASGI app that answers there."""

    method: str
    path: str
    app: Callable[[Scope, Receive, Send], Awaitable[None]]
    summary: str
    scope: str | None = None
    """As in Route."""
    # The rest is for the API description only, as in Route.
    body: Any = field(default=None, compare=False)
    returns: Any = field(default=None, compare=False)
    streams: bool = False
    upstream: bool = False
    errors: Sequence[type[APIError]] = ()
    examples: Sequence[Example] = field(default=(), compare=False)
