"""Opening what an app keeps: in the configured database and folder, in one that is gone afterwards, or on demand."""

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from msgspec import Struct
from typing_extensions import override

from antwort.concurrency.undisturbed import in_any_case
from antwort.config import Config, S3Config
from antwort.storage.base import Records
from antwort.storage.forwarding import ForwardingRecords
from antwort.storage.maintenance import current
from antwort.storage.sql.store import Store
from antwort.storage.sqlite import SqliteStore
from antwort.storage.urls import database_url, is_postgres, postgres_module, sqlite_path


def open_store(config: Config) -> Store:
    """Open the store that the configuration names; raise ConfigError if it cannot be used. This blocks."""
    url, settings = database_url(config), config.storage
    if is_postgres(url):
        opened: Store = postgres_module().PostgresStore.open(
            url, pool_size=settings.pool_size, reconnect=settings.reconnect
        )
        return opened
    return SqliteStore.open(
        sqlite_path(url),
        synchronous=settings.synchronous,
        busy_timeout=settings.busy_timeout,
        reserve=settings.disk_reserve,
    )


class ProviderStorage(Struct, frozen=True):
    """Where providers keep things: records by owner, and the folder that has a folder for each provider."""

    records: Callable[[str], Records]
    folder: Path


class Storage(ProviderStorage, frozen=True):
    """A database that has all there is, and the folders beside it."""

    store: Store
    blobs: Path
    """The folder for the bytes of files."""
    bucket: S3Config | None = None
    """What keeps them in place of that folder, if anything."""


@contextlib.asynccontextmanager
async def open_configured(config: Config) -> AsyncIterator[Storage]:
    """Open the configured storage; what is not there is created. What cannot be used is a ConfigError."""
    async with _open(lambda: open_store(config), config.data_dir, config.storage.s3) as storage:
        yield storage


@contextlib.asynccontextmanager
async def open_temporary() -> AsyncIterator[Storage]:
    """Open storage that is thrown away."""
    with tempfile.TemporaryDirectory(prefix="antwort-") as name:
        folder = Path(name)
        async with _open(lambda: SqliteStore.open(folder / "antwort.db"), folder) as storage:
            yield storage


@contextlib.asynccontextmanager
async def _open(opening: Callable[[], Store], folder: Path, bucket: S3Config | None = None) -> AsyncIterator[Storage]:
    store = await _opened(opening)
    try:
        yield Storage(store.records, folder / "providers", store, folder / "blobs", bucket)
    finally:
        await store.close()


async def _opened(opening: Callable[[], Store]) -> Store:
    """Open a store on a thread: it takes some milliseconds, in which others go on.

    The thread goes on, too, if nobody wants the store any more. It is waited for then: it might make a folder again
    that was removed meanwhile, and nobody would close what it opens.
    """
    task = asyncio.ensure_future(asyncio.to_thread(opening))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await in_any_case(_close(task), "a store that nobody wants any more was not closed")
        raise


async def _close(opening: "asyncio.Future[Store]") -> None:
    """Close a store that is being opened, and that nobody wants any more."""
    store: Store | None = None
    with contextlib.suppress(Exception):  # then there is nothing to close, and nobody left to tell
        store = await opening
    if store is not None:
        await store.close()


@contextlib.asynccontextmanager
async def open_on_demand(config: Config) -> AsyncIterator[ProviderStorage]:
    """Open the configured storage; a database that is not there comes about with the first record that is kept.

    What is there and cannot be used is a ConfigError at once.
    """
    async with contextlib.AsyncExitStack() as closing:
        database = _DatabaseOnDemand(config, closing)
        await database.find()
        try:
            yield ProviderStorage(lambda owner: _RecordsOnDemand(database, owner), config.data_dir / "providers")
        finally:
            await database.settle()


class _DatabaseOnDemand:
    """The configured database, once it is there; until then an empty one, thrown away, answers what is asked."""

    def __init__(self, config: Config, closing: contextlib.AsyncExitStack) -> None:
        self._config = config
        self._closing = closing
        self._lock = asyncio.Lock()
        self._configured: Store | None = None
        self._empty: Store | None = None
        self._opening: set[asyncio.Task[Store]] = set()

    async def find(self) -> Store | None:
        """Open the configured database if it is there."""
        if self._configured is None and await asyncio.to_thread(current, database_url(self._config)) is not None:
            self._configured = await self._enter(open_configured(self._config))
        return self._configured

    async def store(self, *, create: bool) -> Store:
        """Return the configured database, which is created if it is to be; if there is none, an empty one."""
        if self._configured is not None:
            return self._configured
        # A task of its own: whoever is cut off while a database is being opened leaves it to be closed.
        task = asyncio.create_task(self._open(create=create))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)
        return await asyncio.shield(task)

    async def settle(self) -> None:
        """Wait for what is being opened."""
        await asyncio.gather(*self._opening, return_exceptions=True)

    async def _open(self, *, create: bool) -> Store:
        async with self._lock:
            if create and self._configured is None:
                self._configured = await self._enter(open_configured(self._config))
            if (found := await self.find()) is not None:
                return found
            if self._empty is None:
                self._empty = await self._enter(open_temporary())
            return self._empty

    async def _enter(self, storage: contextlib.AbstractAsyncContextManager[Storage]) -> Store:
        return (await self._closing.enter_async_context(storage)).store


class _RecordsOnDemand(ForwardingRecords):
    """The records of one owner, wherever the database is by now."""

    def __init__(self, database: _DatabaseOnDemand, owner: str) -> None:
        self._database = database
        self._owner = owner

    @override
    async def _behind(self, *, new_of: str | None = None) -> Records:
        return (await self._database.store(create=new_of is not None)).records(self._owner)
