from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.files.keepers import Folder, InBucket, Keeper

from antwort.config import Config, StorageConfig
from antwort.files import FileLimits, StoredFiles
from antwort.storage import Store, open_store


@pytest.fixture(params=["sqlite and disk", "postgresql and disk", "sqlite and s3"])
def kinds(request: pytest.FixtureRequest) -> list[str]:
    """What rows and bytes are kept in."""
    words: str = request.param
    return words.split(" and ")


@pytest.fixture
async def store(kinds: list[str], request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """A store of each kind there is, without files."""
    url = f"sqlite:///{tmp_path / 'antwort.db'}"
    if "postgresql" in kinds:
        url = request.getfixturevalue("ready_url")
    store = open_store(Config(storage=StorageConfig(url=url, pool_size=2)))
    yield store
    await store.close()


@pytest.fixture
def keeper(kinds: list[str], request: pytest.FixtureRequest, tmp_path: Path) -> Keeper:
    """What keeps the bytes."""
    folder = tmp_path / "kept" / "blobs"
    return InBucket(request.getfixturevalue("bucket"), folder) if "s3" in kinds else Folder(folder)


@pytest.fixture
def open_files(store: Store, keeper: Keeper) -> Callable[..., StoredFiles]:
    """Make the service once more, as another process would."""

    def open_them(limits: FileLimits | None = None, **options: Any) -> StoredFiles:
        return StoredFiles(store.files, keeper.open(), limits, **options)

    return open_them


@pytest.fixture
def files(open_files: Callable[..., StoredFiles]) -> StoredFiles:
    return open_files()
