"""What a table of requests is made of."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

__all__ = ["Row", "refused", "rows", "taken"]

INVALID = "invalid_request_error"


@dataclass(frozen=True)
class Row:
    """A request, and what OpenAI answers."""

    method: str
    path: str
    """With names in braces for what there is: `{response}`, `{conversation}`, `{item}`, `{store}`, `{container}`."""
    body: Any
    status: int
    type: str | None = None
    param: str | None = None
    code: str | None = None


Change = tuple[Any, ...]


def rows(method: str, path: str, base: Any, lines: Iterable[Change]) -> list[Row]:
    """Make rows of lines that say what is changed in a body, the status, and of an error its parameter and code."""
    found = []
    for change, status, *error in lines:
        body = {**base, **change} if isinstance(base, dict) else change
        found.append(Row(method, path, body, status, *((INVALID, *error) if status >= 400 else ())))
    return found


def taken(*changes: Any) -> list[Change]:
    """Return lines of what is taken."""
    return [(change, 200) for change in changes]


def refused(param: str | None, code: str | None, *changes: Any, status: int = 400) -> list[Change]:
    """Return lines of what is refused for the same reason."""
    return [(change, status, param, code) for change in changes]
