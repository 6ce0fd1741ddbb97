"""What a provider keeps, on any SQL database."""

import time
from collections.abc import Sequence
from typing import Any

from typing_extensions import override

from antwort.storage.base import Kept, Page, Records
from antwort.storage.sql import keeping
from antwort.storage.sql.database import Reader, Writer
from antwort.storage.sql.rows import encoded, kept_row

__all__ = ["SqlRecords"]


class SqlRecords(Records):
    """The records of one owner."""

    def __init__(self, owner: str, writer: Writer, reader: Reader) -> None:
        self._owner = owner
        self._writer = writer
        self._reader = reader

    @override
    async def create(
        self,
        tenant: str,
        kind: str,
        id: str,
        value: dict[str, Any],
        *,
        parent: str = "",
        created_at: int | None = None,
    ) -> Kept:
        made = int(time.time()) if created_at is None else created_at
        kept = Kept(id, tenant, made, value, parent, kind=kind)
        row = (self._owner, *kept_row(kept))
        await self._writer.run(lambda database: keeping.create(database, row), id)
        return kept

    @override
    async def get(self, tenant: str, kind: str, id: str) -> Kept | None:
        if "\x00" in id:
            return None  # PostgreSQL cannot even be asked for it
        return await self._reader.run(lambda database: keeping.get(database, self._owner, kind, tenant, id))

    @override
    async def update(self, kept: Kept) -> bool:
        change = (encoded(kept.value), self._owner, kept.kind, kept.tenant, kept.id, kept.version)
        changed = await self._writer.run(lambda database: keeping.update(database, change), kept.id, repeatable=False)
        if changed:
            kept.version += 1
        return changed

    @override
    async def delete(self, tenant: str, kind: str, id: str) -> bool:
        now = int(time.time())
        return await self._writer.run(
            lambda database: keeping.delete(database, self._owner, kind, tenant, id, now=now), id
        )

    @override
    async def list(
        self,
        tenant: str,
        kind: str,
        *,
        parent: str | None = None,
        limit: int = 20,
        after: str | None = None,
        before: str | None = None,
        order: str = "desc",
    ) -> Page:
        return await self._reader.run(
            lambda database: keeping.page(
                database,
                self._owner,
                kind,
                tenant,
                parent=parent,
                limit=limit,
                after=after,
                before=before,
                ascending=order == "asc",
            )
        )

    @override
    async def count(self, tenant: str, kind: str, *, parent: str | None = None) -> int:
        return await self._reader.run(lambda database: keeping.count(database, self._owner, kind, tenant, parent))

    @override
    async def scan(self, kind: str, *, after: int = 0, limit: int = 500) -> Sequence[tuple[int, Kept]]:
        return await self._reader.run(lambda database: keeping.scan(database, self._owner, kind, after, limit))
