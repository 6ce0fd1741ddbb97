"""What providers keep.

Every statement names the owner and, but for `scan`, the tenant; only what is long deleted is removed for all at once.
What is deleted loses its value and keeps its position for a day: whoever deletes what a list shows, page by page, goes
on from there.
"""

import time
from collections.abc import Sequence

from typing_extensions import override

from antwort.errors import NotFoundError
from antwort.storage.base import Kept, Page, Records
from antwort.storage.sql.database import (
    Database,
    ReadRunner,
    Row,
    Transactions,
    WriteRunner,
    deletes,
    reads,
    snapshot,
    writes,
    writes_once,
)
from antwort.storage.sql.rows import KEPT, encoded, kept_of, kept_row
from antwort.types import JSON

_POSITION_KEPT = 86_400
"""Seconds for which what is deleted keeps its position in lists."""
_REMOVED = 100
"""Positions that one deletion removes at most: more than it adds, so that they do not pile up."""

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
_POSITION = f"SELECT number FROM records WHERE {_ONE}"  # noqa: S608 - of what is deleted, too
_OF = "owner = ? AND kind = ? AND tenant = ? AND deleted_at IS NULL"
_BELOW = f"{_OF} AND parent = ?"
_SCAN = f"""
    SELECT number, {KEPT} FROM records WHERE owner = ? AND kind = ? AND deleted_at IS NULL AND number > ?
    ORDER BY number LIMIT ?"""  # noqa: S608
_FIRST, _LAST = 0, 2**63 - 1


class SqlRecords(Transactions, Records):
    """The records of one owner."""

    def __init__(self, owner: str, writer: WriteRunner, reader: ReadRunner) -> None:
        super().__init__(writer, reader)
        self._owner = owner

    @override
    async def create(
        self, tenant: str, kind: str, id: str, value: JSON, *, parent: str = "", created_at: int | None = None
    ) -> Kept:
        made = int(time.time()) if created_at is None else created_at
        kept = Kept(id, tenant, made, value, parent, kind=kind)
        await self._create(tenant, id, kind, (self._owner, *kept_row(kept)))
        return kept

    @writes
    def _create(self, database: Database, tenant: str, name: str, kind: str, row: Row) -> None:
        database.execute(_FREE, (self._owner, kind, tenant, name))
        database.execute(_INSERT, row)

    @override
    @reads
    def get(self, database: Database, tenant: str, kind: str, id: str) -> Kept | None:
        if "\x00" in id:
            return None  # PostgreSQL cannot even be asked for it
        row = database.execute(_GET, (self._owner, kind, tenant, id)).fetchone()
        return None if row is None else kept_of(kind, row)

    @override
    async def update(self, kept: Kept) -> bool:
        changed = await self._update(kept.tenant, kept.id, kept.kind, value=encoded(kept.value), version=kept.version)
        if changed:
            kept.version += 1
        return changed

    @writes_once
    def _update(self, database: Database, tenant: str, name: str, kind: str, *, value: str, version: int) -> bool:
        return database.execute(_UPDATE, (value, self._owner, kind, tenant, name, version)).rowcount > 0

    @override
    async def delete(self, tenant: str, kind: str, id: str) -> bool:
        return await self._delete(tenant, id, kind, int(time.time()))

    @deletes
    def _delete(self, database: Database, tenant: str, name: str, kind: str, now: int) -> bool:
        deleted = database.execute(_DELETE, (now, self._owner, kind, tenant, name)).rowcount > 0
        forget_deleted(database, now)
        return deleted

    @override
    @reads
    def list(
        self,
        database: Database,
        tenant: str,
        kind: str,
        *,
        parent: str | None = None,
        limit: int = 20,
        after: str | None = None,
        before: str | None = None,
        order: str = "desc",
    ) -> Page:
        ascending = order == "asc"
        where, of = self._where(kind, tenant, parent)
        with snapshot(database):
            start = None if after is None else self._position(database, kind, tenant, after, "after")
            end = None if before is None else self._position(database, kind, tenant, before, "before")
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

    @override
    @reads
    def count(self, database: Database, tenant: str, kind: str, *, parent: str | None = None) -> int:
        where, of = self._where(kind, tenant, parent)
        return int(database.execute(f"SELECT count(*) FROM records WHERE {where}", of).fetchone()[0])  # noqa: S608

    @override
    @reads
    def scan(self, database: Database, kind: str, *, after: int = 0, limit: int = 500) -> Sequence[tuple[int, Kept]]:
        rows = database.execute(_SCAN, (self._owner, kind, after, limit)).fetchall()
        return [(number, kept_of(kind, rest)) for number, *rest in rows]

    def _where(self, kind: str, tenant: str, parent: str | None) -> tuple[str, tuple[str, ...]]:
        of = (self._owner, kind, tenant)
        return (_OF, of) if parent is None else (_BELOW, (*of, parent))

    def _position(self, database: Database, kind: str, tenant: str, name: str, param: str) -> int:
        row = database.execute(_POSITION, (self._owner, kind, tenant, name)).fetchone()
        if row is None:
            raise NotFoundError(
                f"There is no '{name}' to list from; if it was deleted, list again without '{param}'.", param=param
            )
        return int(row[0])


def forget_deleted(database: Database, now: int) -> int:
    """Remove the positions of what was deleted long ago, some of them; return how many."""
    return database.execute(_REMOVE, (now - _POSITION_KEPT, _REMOVED)).rowcount
