"""Records that others keep: those in front of them may choose them anew for each call, or refuse what is new."""

from collections.abc import Awaitable, Callable, Sequence

from typing_extensions import override

from antwort.storage.base import Kept, Page, Records
from antwort.types import JSON


class ForwardingRecords(Records):
    """Whoever inherits says with `_behind` who answers a call."""

    async def _behind(self, *, new_of: str | None = None) -> Records:
        """Return those who answer; `new_of` is the tenant that something new is to be kept for."""
        raise NotImplementedError

    @override
    async def create(
        self,
        tenant: str,
        kind: str,
        id: str,
        value: JSON,
        *,
        parent: str = "",
        created_at: int | None = None,
    ) -> Kept:
        records = await self._behind(new_of=tenant)
        return await records.create(tenant, kind, id, value, parent=parent, created_at=created_at)

    @override
    async def get(self, tenant: str, kind: str, id: str) -> Kept | None:
        return await (await self._behind()).get(tenant, kind, id)

    @override
    async def update(self, kept: Kept) -> bool:
        return await (await self._behind()).update(kept)

    @override
    async def delete(self, tenant: str, kind: str, id: str) -> bool:
        return await (await self._behind()).delete(tenant, kind, id)

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
        records = await self._behind()
        return await records.list(tenant, kind, parent=parent, limit=limit, after=after, before=before, order=order)

    @override
    async def count(self, tenant: str, kind: str, *, parent: str | None = None) -> int:
        return await (await self._behind()).count(tenant, kind, parent=parent)

    @override
    async def scan(self, kind: str, *, after: int = 0, limit: int = 500) -> Sequence[tuple[int, Kept]]:
        return await (await self._behind()).scan(kind, after=after, limit=limit)


class LimitedRecords(ForwardingRecords):
    """Records whose tenants are asked for room before something new is kept; all else is passed on."""

    def __init__(self, records: Records, check_room: Callable[[str], Awaitable[None]]) -> None:
        self._records = records
        self._check_room = check_room

    @override
    async def _behind(self, *, new_of: str | None = None) -> Records:
        if new_of is not None:
            await self._check_room(new_of)
        return self._records
