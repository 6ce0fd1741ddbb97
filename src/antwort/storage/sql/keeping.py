"""The statements on what providers keep, each function one transaction.

Every statement names the owner and, but for `scan`, the tenant; only what is long deleted is removed for all at once.
What is deleted loses its value and keeps its place for a day: whoever deletes what a list shows, page by page, goes on
from there.
"""

from typing import Any

from antwort.errors import NotFoundError
from antwort.storage.base import Kept, Page
from antwort.storage.sql.database import Database, Row, snapshot
from antwort.storage.sql.rows import KEPT, kept_of

__all__ = ["count", "create", "delete", "forget_places", "get", "page", "scan", "try_write", "update"]

_PLACE_KEPT = 86_400
"""Seconds for which what is deleted keeps its place."""
_REMOVED = 100
"""Places that one deletion removes at most: more than it adds, so that they do not pile up."""

_ONE = "owner = ? AND kind = ? AND tenant = ? AND id = ?"
_INSERT = f"INSERT INTO records (owner, kind, {KEPT}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608
_FREE = f"DELETE FROM records WHERE {_ONE} AND deleted_at IS NOT NULL"  # noqa: S608
_GET = f"SELECT {KEPT} FROM records WHERE {_ONE} AND deleted_at IS NULL"  # noqa: S608
_UPDATE = f"""
    UPDATE records SET value = ?, version = version + 1
    WHERE {_ONE} AND version = ? AND deleted_at IS NULL"""  # noqa: S608
_DELETE = f"UPDATE records SET value = '{{}}', deleted_at = ? WHERE {_ONE} AND deleted_at IS NULL"  # noqa: S608
_REMOVE = """
    DELETE FROM records WHERE number IN
    (SELECT number FROM records WHERE deleted_at < ? ORDER BY deleted_at LIMIT ?)"""
_PLACE = f"SELECT number FROM records WHERE {_ONE}"  # noqa: S608 - of what is deleted, too
_OF = "owner = ? AND kind = ? AND tenant = ? AND deleted_at IS NULL"
_BELOW = f"{_OF} AND parent = ?"
_SCAN = f"""
    SELECT number, {KEPT} FROM records WHERE owner = ? AND kind = ? AND deleted_at IS NULL AND number > ?
    ORDER BY number LIMIT ?"""  # noqa: S608
# The version changes each time: a row that stays the same is not written.
_TRY_WRITE = f"""
    INSERT INTO records (owner, kind, {KEPT}) VALUES ('', 'try_write', 'try_write', '', ?, '{{}}', '', 1)
    ON CONFLICT (owner, kind, tenant, id) DO UPDATE SET created_at = excluded.created_at,
        version = records.version % 1000000 + 1"""  # noqa: S608
_FIRST, _LAST = 0, 2**63 - 1


def create(database: Database, row: Row) -> None:
    """Insert what is new; if something deleted has the id, it loses its place."""
    owner, kind, name, tenant, *_ = row
    database.execute(_FREE, (owner, kind, tenant, name))
    database.execute(_INSERT, row)


def get(database: Database, owner: str, kind: str, tenant: str, name: str) -> Kept | None:
    """Return what is kept, None if nothing is."""
    row = database.execute(_GET, (owner, kind, tenant, name)).fetchone()
    return None if row is None else kept_of(kind, row)


def update(database: Database, change: Row) -> bool:
    """Replace the value if the version is the one that is kept."""
    return database.execute(_UPDATE, change).rowcount > 0


def delete(database: Database, owner: str, kind: str, tenant: str, name: str, *, now: int) -> bool:
    """Delete what is kept, but for its place; and the places of what was deleted long ago, a few at a time."""
    deleted = database.execute(_DELETE, (now, owner, kind, tenant, name)).rowcount > 0
    forget_places(database, now)
    return deleted


def forget_places(database: Database, now: int) -> int:
    """Remove places of what was deleted long ago, a few; return how many."""
    return database.execute(_REMOVE, (now - _PLACE_KEPT, _REMOVED)).rowcount


def count(database: Database, owner: str, kind: str, tenant: str, parent: str | None) -> int:
    """Count what is kept, below a parent if one is given."""
    where, of = _where(owner, kind, tenant, parent)
    return int(database.execute(f"SELECT count(*) FROM records WHERE {where}", of).fetchone()[0])  # noqa: S608


def page(
    database: Database,
    owner: str,
    kind: str,
    tenant: str,
    *,
    parent: str | None,
    limit: int,
    after: str | None,
    before: str | None,
    ascending: bool,
) -> Page:
    """Return what is kept in order: right after `after`, or right before `before`, or the first."""
    where, of = _where(owner, kind, tenant, parent)
    with snapshot(database):
        start = None if after is None else _place(database, (owner, kind, tenant), after, "after")
        end = None if before is None else _place(database, (owner, kind, tenant), before, "before")
        low, high = (start, end) if ascending else (end, start)
        backwards = start is None and end is not None
        direction = "ASC" if ascending != backwards else "DESC"
        rows = database.execute(
            f"SELECT {KEPT} FROM records WHERE {where} AND number > ? AND number < ? "  # noqa: S608
            f"ORDER BY number {direction} LIMIT ?",
            (*of, _FIRST if low is None else low, _LAST if high is None else high, limit + 1),
        ).fetchall()
    found = [kept_of(kind, row) for row in rows[:limit]]
    if backwards:
        found.reverse()
    return Page(found, has_more=len(rows) > limit)


def scan(database: Database, owner: str, kind: str, after: int, limit: int) -> list[tuple[int, Kept]]:
    """Return what is kept of all tenants, oldest first, each with its place."""
    rows: list[Any] = database.execute(_SCAN, (owner, kind, after, limit)).fetchall()
    return [(number, kept_of(kind, rest)) for number, *rest in rows]


def _where(owner: str, kind: str, tenant: str, parent: str | None) -> tuple[str, tuple[str, ...]]:
    return (_OF, (owner, kind, tenant)) if parent is None else (_BELOW, (owner, kind, tenant, parent))


def _place(database: Database, of: Row, name: str, param: str) -> int:
    row = database.execute(_PLACE, (*of, name)).fetchone()
    if row is None:
        raise NotFoundError(
            f"There is no '{name}' to list from; if it was deleted, list again without '{param}'.", param=param
        )
    return int(row[0])


def try_write(database: Database, *, now: int) -> None:
    """Write a row that nobody reads, to see whether anything can be written."""
    database.execute(_TRY_WRITE, (now,))
