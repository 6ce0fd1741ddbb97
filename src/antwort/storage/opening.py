"""Where an app keeps things: in the configured database and folder, or in a place that is gone afterwards."""

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

from antwort.config import Config
from antwort.storage.base import Records
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
    return SqliteStore.open(sqlite_path(url), synchronous=settings.synchronous, busy_timeout=settings.busy_timeout)


@dataclass(frozen=True, slots=True)
class Place:
    """Where providers keep things: records by owner, and the folder that has a folder for each provider."""

    records: Callable[[str], Records]
    folder: Path


@dataclass(frozen=True, slots=True)
class StorePlace(Place):
    """A database that has all there is, and the folder beside it."""

    store: Store


@contextlib.asynccontextmanager
async def configured(config: Config) -> AsyncIterator[StorePlace]:
    """Open the configured place; what is not there is created. What cannot be used is a ConfigError."""
    async with _opened(lambda: open_store(config), config.data_dir / "providers") as place:
        yield place


@contextlib.asynccontextmanager
async def temporary() -> AsyncIterator[StorePlace]:
    """Open a place that is thrown away."""
    with tempfile.TemporaryDirectory(prefix="antwort-") as name:
        folder = Path(name)
        async with _opened(lambda: SqliteStore.open(folder / "antwort.db"), folder) as place:
            yield place


@contextlib.asynccontextmanager
async def _opened(opening: Callable[[], Store], folder: Path) -> AsyncIterator[StorePlace]:
    store = await asyncio.to_thread(opening)  # it takes some milliseconds, in which others go on
    try:
        yield StorePlace(store.records, folder, store)
    finally:
        await store.close()
