"""Where an app keeps things: in the configured database and folder, or in a place that is gone afterwards."""

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

from antwort.config import Config
from antwort.storage import SqliteStore, Store, database_url, open_store
from antwort.storage.upgrade import current

__all__ = ["Place", "configured", "existing", "temporary"]


@dataclass(frozen=True, slots=True)
class Place:
    """A database, and the folder beside it that has a folder for each provider."""

    store: Store
    folder: Path


@contextlib.asynccontextmanager
async def configured(config: Config) -> AsyncIterator[Place]:
    """Open the configured place; what is not there is created. What cannot be used is a ConfigError."""
    async with _opened(lambda: open_store(config), config.data_dir / "providers") as place:
        yield place


@contextlib.asynccontextmanager
async def temporary() -> AsyncIterator[Place]:
    """Open a place that is thrown away."""
    with tempfile.TemporaryDirectory(prefix="antwort-") as name:
        folder = Path(name)
        async with _opened(lambda: SqliteStore.open(folder / "antwort.db"), folder) as place:
            yield place


@contextlib.asynccontextmanager
async def existing(config: Config) -> AsyncIterator[Place]:
    """Open the configured place if there is one already, else a temporary one: nothing comes about by looking."""
    there = await asyncio.to_thread(current, database_url(config)) is not None
    async with configured(config) if there else temporary() as place:
        yield place


@contextlib.asynccontextmanager
async def _opened(opening: Callable[[], Store], folder: Path) -> AsyncIterator[Place]:
    store = await asyncio.to_thread(opening)  # it takes some milliseconds, in which others go on
    try:
        yield Place(store, folder)
    finally:
        await store.close()
