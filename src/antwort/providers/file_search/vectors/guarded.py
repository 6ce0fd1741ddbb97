"""What stands before a vector database: one that does not answer costs one time-out, not one for every request."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from typing_extensions import override

from antwort.extensions import Attributes, Chunk, Count, Hit, Query, VectorDatabase, VectorPlace, VectorStoreUnavailable
from antwort.provider import ConfigError, SingleFlight

T = TypeVar("T")

_PROBE = 1.0
"""Seconds within which a database that was away has to give a sign of life."""
_DEAR = 10
"""How many times longer than the last look at it took nobody looks again: one that refuses is asked each time."""


class Guarded(VectorDatabase):
    """A backend behind a breaker.

    Once it was away, whoever comes next looks for a sign of life first, one for all, and not long for it; without one,
    the request is refused with the error of before.
    """

    def __init__(self, inner: VectorDatabase, *, now: Callable[[], float] = time.monotonic) -> None:
        self.name = inner.name
        self._inner = inner
        self._now = now
        self._failure: VectorStoreUnavailable | None = None
        """Why it is away."""
        self._next_look = 0.0
        self._look = SingleFlight(self._examine)

    @property
    @override
    def place(self) -> str:
        return self._inner.place

    async def _through(self, work: Callable[[], Awaitable[T]]) -> T:
        if self._failure is not None:
            await self._check()
        try:
            return await work()
        except VectorStoreUnavailable as error:
            if error.away:
                self._failure, self._next_look = error, self._now()
            raise

    async def _check(self) -> None:
        """Raise the failure of before, unless there is a sign of life."""
        if self._now() >= self._next_look:
            await self._look.outcome()
        failure = self._failure
        if failure is not None:
            refused = VectorStoreUnavailable(str(failure), for_operator=failure.for_operator)
            refused.away = True
            raise refused

    async def _examine(self) -> None:
        began = self._now()
        try:
            async with asyncio.timeout(_PROBE):
                await self._inner.health()
        except TimeoutError:
            pass
        except VectorStoreUnavailable as error:
            self._failure = self._failure if error.away else None
        except ConfigError:  # it answers, and will say to whoever asks what is wrong
            self._failure = None
        else:
            self._failure = None
        self._next_look = self._now() + _DEAR * (self._now() - began)

    @override
    async def create_collection(self, name: str, dimensions: int) -> None:
        await self._through(lambda: self._inner.create_collection(name, dimensions))

    @override
    async def delete_collection(self, name: str) -> None:
        await self._through(lambda: self._inner.delete_collection(name))

    @override
    async def collections(self) -> list[str]:
        return await self._through(self._inner.collections)

    @override
    async def dimensions(self, name: str) -> int | None:
        return await self._through(lambda: self._inner.dimensions(name))

    @override
    async def upsert(self, name: str, chunks: Sequence[Chunk]) -> None:
        await self._through(lambda: self._inner.upsert(name, chunks))

    @override
    async def delete(self, name: str, *, tenant: str, file_id: str | None = None, vector_store_id: str = "") -> None:
        await self._through(
            lambda: self._inner.delete(name, tenant=tenant, file_id=file_id, vector_store_id=vector_store_id)
        )

    @override
    async def remove(self, name: str, ids: Sequence[str], *, tenant: str, vector_store_id: str = "") -> None:
        await self._through(lambda: self._inner.remove(name, ids, tenant=tenant, vector_store_id=vector_store_id))

    @override
    async def set_attributes(
        self, name: str, attributes: Attributes, *, tenant: str, file_id: str, vector_store_id: str = ""
    ) -> None:
        await self._through(
            lambda: self._inner.set_attributes(
                name, attributes, tenant=tenant, file_id=file_id, vector_store_id=vector_store_id
            )
        )

    @override
    async def fetch(self, name: str, ids: Sequence[str], *, tenant: str, vector_store_id: str = "") -> dict[str, Hit]:
        return await self._through(lambda: self._inner.fetch(name, ids, tenant=tenant, vector_store_id=vector_store_id))

    @override
    async def search(self, name: str, query: Query) -> list[Hit]:
        return await self._through(lambda: self._inner.search(name, query))

    @override
    async def count(self, name: str, *, tenant: str, vector_store_id: str = "") -> Count:
        return await self._through(lambda: self._inner.count(name, tenant=tenant, vector_store_id=vector_store_id))

    @override
    async def counts(self, places: Sequence[VectorPlace]) -> list[Count] | None:
        return await self._through(lambda: self._inner.counts(places))

    @override
    async def health(self) -> None:
        await self._inner.health()

    @override
    async def close(self) -> None:
        await self._look.close()
        await self._inner.close()
