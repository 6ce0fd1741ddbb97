"""The configured place as a command opens it: what is there is found, what is not is created when something is kept."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from typing_extensions import override

from antwort.config import Config
from antwort.storage.base import Records
from antwort.storage.opening import Place, StorePlace, configured, temporary
from antwort.storage.passing import PassingRecords
from antwort.storage.sql.store import Store
from antwort.storage.upgrade import current
from antwort.storage.urls import database_url


@contextlib.asynccontextmanager
async def on_demand(config: Config) -> AsyncIterator[Place]:
    """Open the configured place; a database that is not there comes about with the first record that is kept.

    What is there and cannot be used is a ConfigError at once.
    """
    async with contextlib.AsyncExitStack() as closing:
        database = _Database(config, closing)
        await database.find()
        try:
            yield Place(lambda owner: _Records(database, owner), config.data_dir / "providers")
        finally:
            await database.settle()


class _Database:
    """The configured database, once it is there; until then an empty one, thrown away, answers what is asked."""

    def __init__(self, config: Config, closing: contextlib.AsyncExitStack) -> None:
        self._config = config
        self._closing = closing
        self._lock = asyncio.Lock()
        self._kept: Store | None = None
        self._empty: Store | None = None
        self._opening: set[asyncio.Task[Store]] = set()

    async def find(self) -> Store | None:
        """Open the configured database if it is there."""
        if self._kept is None and await asyncio.to_thread(current, database_url(self._config)) is not None:
            self._kept = await self._entered(configured(self._config))
        return self._kept

    async def store(self, *, create: bool) -> Store:
        """Return the configured database, which is created if it is to be; if there is none, an empty one."""
        if self._kept is not None:
            return self._kept
        # A task of its own: whoever is cut off while a database is being opened leaves it to be closed.
        task = asyncio.create_task(self._opened(create=create))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)
        return await asyncio.shield(task)

    async def settle(self) -> None:
        """Wait for what is being opened."""
        await asyncio.gather(*self._opening, return_exceptions=True)

    async def _opened(self, *, create: bool) -> Store:
        async with self._lock:
            if create and self._kept is None:
                self._kept = await self._entered(configured(self._config))
            if (found := await self.find()) is not None:
                return found
            if self._empty is None:
                self._empty = await self._entered(temporary())
            return self._empty

    async def _entered(self, place: contextlib.AbstractAsyncContextManager[StorePlace]) -> Store:
        return (await self._closing.enter_async_context(place)).store


class _Records(PassingRecords):
    """The records of one owner, wherever the database is by now."""

    def __init__(self, database: _Database, owner: str) -> None:
        self._database = database
        self._owner = owner

    @override
    async def _behind(self, *, new_of: str | None = None) -> Records:
        return (await self._database.store(create=new_of is not None)).records(self._owner)
