"""What a provider keeps, as long as its tenant has room."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from typing_extensions import override

from antwort.storage.base import Kept, Page, Records

__all__ = ["LimitedRecords"]


class LimitedRecords(Records):
    """Records whose tenants are asked for room before something new is kept; all else is passed on."""

    def __init__(self, records: Records, check_room: Callable[[str], Awaitable[None]]) -> None:
        self._records = records
        self._check_room = check_room

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
        await self._check_room(tenant)
        return await self._records.create(tenant, kind, id, value, parent=parent, created_at=created_at)

    @override
    async def get(self, tenant: str, kind: str, id: str) -> Kept | None:
        return await self._records.get(tenant, kind, id)

    @override
    async def update(self, kept: Kept) -> bool:
        return await self._records.update(kept)

    @override
    async def delete(self, tenant: str, kind: str, id: str) -> bool:
        return await self._records.delete(tenant, kind, id)

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
        return await self._records.list(
            tenant, kind, parent=parent, limit=limit, after=after, before=before, order=order
        )

    @override
    async def count(self, tenant: str, kind: str, *, parent: str | None = None) -> int:
        return await self._records.count(tenant, kind, parent=parent)

    @override
    async def scan(self, kind: str, *, after: int = 0, limit: int = 500) -> Sequence[tuple[int, Kept]]:
        return await self._records.scan(kind, after=after, limit=limit)
