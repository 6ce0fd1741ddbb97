from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from antwort.storage import ResponseStore, SqliteStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the SQLite database of a test is, or will be."""
    return tmp_path / "data" / "antwort.db"


@pytest.fixture(params=["sqlite"])
async def store(path: Path) -> AsyncIterator[ResponseStore]:
    """An empty store of each kind there is."""
    store = SqliteStore.open(path)
    yield store
    await store.close()
