"""Pages of lists."""

import contextlib
from collections.abc import Iterator, Sequence

from antwort.errors import BadRequestError, NotFoundError
from antwort.types import JSON

__all__ = ["listed", "unknown_cursor"]


def listed(data: Sequence[JSON], has_more: bool) -> JSON:
    """Return a page as clients of OpenAI read it."""
    return {
        "object": "list",
        "data": data,
        "first_id": data[0]["id"] if data else None,
        "last_id": data[-1]["id"] if data else None,
        "has_more": has_more,
    }


@contextlib.contextmanager
def unknown_cursor() -> Iterator[None]:
    """Turn what a store says of a cursor it does not know into an error of the request: the list itself is there."""
    try:
        yield
    except NotFoundError as error:
        raise BadRequestError(error.message, param=error.param or "after", code="invalid_value") from None
