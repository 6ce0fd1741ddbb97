"""Pages of lists: what clients ask for, and what they get."""

import contextlib
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from antwort.errors import BadRequestError, NotFoundError
from antwort.wire.field_errors import unsupported_value
from antwort.wire.options import INCLUDES, is_include

Limit = Annotated[int, Field(ge=1, le=100, description="How many to return.")]
After = Annotated[
    str | None, Field(description="The last id of the page before; the page begins with what follows it.")
]
Before = Annotated[str | None, Field(description="The first id of the page after; the page ends before it.")]
Order = Annotated[Literal["asc", "desc"], Field(description="The order: oldest first, or newest first.")]


def _checked_includes(values: list[str] | None) -> list[str] | None:
    for value in values or ():
        if not is_include(value):
            raise unsupported_value("include", value, sorted(INCLUDES))
    return values


Include = Annotated[
    list[str] | None, Field(description="Further data to include in the items."), AfterValidator(_checked_includes)
]
Obfuscation = Annotated[bool | None, Field(description="Taken and ignored.")]
Stream = Annotated[bool, Field(description="Whether to answer with the events instead of the response.")]
StartingAfter = Annotated[
    int | None,
    Field(ge=0, le=2**31 - 1, description="With `stream`: a sequence number; only the events after it are sent."),
]


@contextlib.contextmanager
def unknown_cursor() -> Iterator[None]:
    """Turn what a store says of a cursor it does not know into an error of the request: the list itself is there."""
    try:
        yield
    except NotFoundError as error:
        raise BadRequestError(error.message, param=error.param or "after", code="invalid_value") from None
