"""Pages of lists that are ordered by when things were made, between two of them."""

from typing import Any, NamedTuple

from msgspec import Struct

from antwort.errors import NotFoundError
from antwort.storage.base import Page
from antwort.storage.sql.database import Database, Row

Position = tuple[int, int | str]
"""Where something stands in a list: when it was made, and what tells it from others of that second."""


class Listed(NamedTuple):
    """What a list is of."""

    noun: str
    position: str
    """The statement that finds the position of one by its id and its tenant."""
    first: Position
    """A position before all others."""
    last: Position
    """A position behind all others."""


class ListWindow(Struct, frozen=True):
    """The part of a list that a page is of."""

    bounds: Row
    upwards: bool
    backwards: bool
    """It is read from its end."""

    def page(self, listed: list[Any], *, has_more: bool) -> Page:
        """Return the page, in the order of the list."""
        return Page(listed[::-1] if self.backwards else listed, has_more)


def list_window(
    database: Database, listed: Listed, tenant: str, *, after: str | None, before: str | None, order: str
) -> ListWindow:
    """Return what lies between two ids of a tenant's list; a NotFoundError names the one that is unknown.

    With `before` alone it is the part right before it.
    """
    ascending = order == "asc"
    start = None if after is None else _position(database, listed, tenant, after, "after")
    end = None if before is None else _position(database, listed, tenant, before, "before")
    low, high = (start, end) if ascending else (end, start)
    backwards = start is None and end is not None
    bounds = (tenant, *(low or listed.first), *(high or listed.last))
    return ListWindow(bounds, ascending != backwards, backwards)


def _position(database: Database, listed: Listed, tenant: str, name: str, param: str) -> Position:
    position: Position | None = database.execute(listed.position, (name, tenant)).fetchone()
    if position is None:
        raise NotFoundError(
            f"There is no {listed.noun} '{name}' to list from; if it was deleted, list again without '{param}'.",
            param=param,
        )
    return position
