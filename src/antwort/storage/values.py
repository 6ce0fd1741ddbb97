"""Variables of all tenants, and what a call can reach of them."""

import time
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping, Sequence

from typing_extensions import override

from antwort.context import Context
from antwort.context.values import Place, Values
from antwort.context.variables import ValueKind, Variable, Variables, VariableScope
from antwort.storage.sql.values import SqlValues
from antwort.storage.streamed_values import StreamedValues, ValueLimits
from antwort.storage.variables import ReachableVariables

_GROUP = 100
"""Versions that one transaction deletes."""


class StoredValues(Values):
    """Keeps variables in the database. A value that a tenant has already is not stored again."""

    def __init__(
        self,
        tables: SqlValues,
        limits: ValueLimits | None = None,
        *,
        check_room: Callable[[str], Awaitable[None]] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._tables = tables
        self._streamed = StreamedValues(tables, limits, check_room=check_room, clock=clock)
        self._now = self._streamed.now

    def close(self) -> None:
        """Let the thread for large work end."""
        self._streamed.close()

    @override
    def of(self, ctx: Context) -> Variables:
        return ReachableVariables(ctx, self._streamed, self._tables, self.drop_run)

    @override
    async def get(self, tenant: str, variable_id: str) -> Variable | None:
        return await self._tables.get(tenant, variable_id, self._now())

    @override
    async def list(
        self,
        tenant: str,
        *,
        where: Mapping[str, str] = {},
        all_versions: bool = False,
        after: str | None = None,
        limit: int = 100,
        newest_first: bool = False,
    ) -> Sequence[Variable]:
        return await self._tables.list(
            tenant,
            where=where,
            all_versions=all_versions,
            after=after,
            limit=limit,
            newest_first=newest_first,
            now=self._now(),
        )

    @override
    async def is_there(self, tenant: str, scope: VariableScope, scope_id: str) -> bool:
        if scope == "tenant":
            return True
        if scope == "conversation" and await self._tables.is_conversation(tenant, scope_id):
            return True
        return await self._tables.is_stored(tenant, scope_id)  # a chain of responses is called like its first

    @override
    async def write(
        self,
        place: Place,
        key: str,
        chunks: AsyncIterable[bytes],
        *,
        kind: ValueKind = "bytes",
        expires_in: float | None = None,
    ) -> Variable:
        return await self._streamed.write(place, key, chunks, kind=kind, expires_in=expires_in)

    @override
    def read(self, variable: Variable, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        return self._streamed.read(variable, start, end)

    @override
    async def delete(self, tenant: str, variable_id: str, *, all_versions: bool = False) -> bool:
        return await self._tables.delete(tenant, variable_id, all_versions=all_versions, now=self._now())

    @override
    async def drop_run(self, tenant: str, run_id: str) -> int:
        dropped = 0
        while gone := await self._tables.drop_run(tenant, run_id, _GROUP):
            dropped += gone
        return dropped
