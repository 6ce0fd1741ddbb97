from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.postgres import PostgresServer

from antwort.config import Config, StorageConfig
from antwort.files import DiskBlobs, FileLimits, StoredFiles
from antwort.storage import Store, open_store


@pytest.fixture(scope="session")
def shared_database(postgres_server: PostgresServer, postgres_template: str) -> str:
    """A PostgreSQL database with the tables, for all tests."""
    return postgres_server.create(postgres_template)


@pytest.fixture(params=["sqlite", "postgresql"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """A store of each kind there is, without files."""
    url = f"sqlite:///{tmp_path / 'antwort.db'}"
    if request.param == "postgresql":
        url = request.getfixturevalue("shared_database")
        server: PostgresServer = request.getfixturevalue("postgres_server")
        server.execute("TRUNCATE stored_files", url)
    store = open_store(Config(storage=StorageConfig(url=url, pool_size=2)))
    yield store
    await store.close()


@pytest.fixture
def blobs(tmp_path: Path) -> Path:
    """The folder with the bytes."""
    return tmp_path / "kept" / "blobs"


@pytest.fixture
def open_files(store: Store, blobs: Path) -> Callable[..., StoredFiles]:
    """Make the service once more, as another process would."""

    def open_them(limits: FileLimits | None = None, **options: Any) -> StoredFiles:
        return StoredFiles(store.files, DiskBlobs(blobs), limits, **options)

    return open_them


@pytest.fixture
def files(open_files: Callable[..., StoredFiles]) -> StoredFiles:
    return open_files()
