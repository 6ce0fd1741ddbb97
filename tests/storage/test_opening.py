"""From a configuration to an open store, and what can be in the way."""

import asyncio
import os
import sqlite3
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.storage.samples import TENANT, record

from antwort.config import Config, StorageConfig
from antwort.errors import ConfigError, ServiceUnavailableError
from antwort.storage import SqliteStore, Store, open_store
from antwort.storage.opening import open_temporary

NOBODY = 65534


def opened(config: Config) -> None:
    """Open the store, use it and close it."""

    async def use(store: Store) -> None:
        await store.create(record())
        assert await store.get(TENANT, "resp_1") == record()
        await store.close()

    asyncio.run(use(open_store(config)))


@pytest.fixture
def closed_folder() -> Iterator[Path]:
    """A folder that nobody may write to, and a process that is nobody special."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o555)
        user = os.geteuid()
        if user == 0:
            os.seteuid(NOBODY)
        try:
            yield folder
        finally:
            os.seteuid(user)


def test_without_a_url_the_database_is_in_the_data_folder(tmp_path: Path) -> None:
    opened(Config(data_dir=tmp_path / "new" / "data"))
    assert (tmp_path / "new" / "data" / "antwort.db").exists()


def test_a_url_names_an_absolute_or_a_relative_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    opened(Config(storage=StorageConfig(url=f"sqlite:///{tmp_path}/absolute.db")))
    opened(Config(storage=StorageConfig(url="sqlite:///below/relative.db")))
    assert (tmp_path / "absolute.db").exists()
    assert (tmp_path / "below" / "relative.db").exists()


def test_a_tilde_is_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    opened(Config(storage=StorageConfig(url="sqlite:///~/mine.db")))
    assert (tmp_path / "mine.db").exists()


def test_a_path_may_hold_any_sign(tmp_path: Path) -> None:
    folder = tmp_path / "50% of #1? ü"
    opened(Config(data_dir=folder))
    assert (folder / "antwort.db").exists()


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("mysql://ada:secret@db/antwort", "or postgresql://host/database, and not begin with 'mysql:'"),
        ("postgresql+asyncpg://ada:secret@db/antwort", "and not begin with 'postgresql\\+asyncpg:'"),
        ("postgresql://ada:1@secret@db/antwort", "with '%40' for '@'"),
        ("postgresql://ada:secret/1@db/antwort", "with '%40' for '@'"),
        ("postgresql://ada:5432/secret@db/antwort", "with '%40' for '@'"),
        ("postgresql://ada:1%secret@db/antwort", "with '%40' for '@'"),
        ("postgres://ada:1[secret@localhost:1/antwort", "cannot be reached"),
        ("postgresql://ada:secret@localhost:1/antwort", "cannot be reached"),
        ("postgresql://ada@localhost:1/antwort?password=secret", "cannot be reached"),
        ("sqlite://secret", "must look like sqlite:///path"),
        ("sqlite:///", "must name a file"),
        ("sqlite:///:memory:", "must name a file"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused_without_its_password(url: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told) as caught:
        open_store(Config(storage=StorageConfig(url=url)))
    assert "secret" not in str(caught.value)


def test_a_folder_that_cannot_be_written_is_named_with_the_cure(closed_folder: Path) -> None:
    for place in (closed_folder, closed_folder / "below"):
        with pytest.raises(ConfigError) as caught:
            open_store(Config(data_dir=place))
        assert caught.value.where == str(place / "antwort.db")
        assert "Permission denied" in caught.value.message
        assert "'data_dir'" in caught.value.message


def test_a_data_folder_that_is_a_file_is_named_with_the_cure(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="'data_dir'") as caught:
        open_store(Config(data_dir=tmp_path / "file"))
    assert caught.value.where == str(tmp_path / "file" / "antwort.db")


def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"These are the notes of somebody else.\n" * 100)
    before = path.read_bytes()
    with pytest.raises(
        ConfigError, match=r"damaged, or is none .* Restore it from a backup, or move it away"
    ) as caught:
        open_store(Config(data_dir=path.parent))
    assert caught.value.where == str(path)
    assert path.read_bytes() == before


def test_a_damaged_database_is_refused_with_the_cure(path: Path) -> None:
    opened(Config(data_dir=path.parent))
    damaged = bytearray(path.read_bytes())
    damaged[100:4096] = b"\xff" * 3996
    path.write_bytes(damaged)
    with pytest.raises(ConfigError, match="Restore it from a backup"):
        open_store(Config(data_dir=path.parent))


def test_the_database_of_another_program_is_refused_and_left_as_it_is(path: Path) -> None:
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE responses (id TEXT)")
    before = path.read_bytes()
    with pytest.raises(ConfigError, match="belongs to another program"):
        open_store(Config(data_dir=path.parent))
    assert path.read_bytes() == before


async def test_a_store_that_nobody_wants_any_more_is_closed_however_often_one_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, go_on = threading.Event(), threading.Event()
    made: list[SqliteStore] = []

    def slowly(path: Path) -> SqliteStore:
        reached.set()
        assert go_on.wait(60)
        made.append(real(path))
        return made[0]

    real = SqliteStore.open
    monkeypatch.setattr(SqliteStore, "open", slowly)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    task = asyncio.ensure_future(open_temporary().__aenter__())
    assert await asyncio.to_thread(reached.wait, 60)
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(os.listdir, tmp_path) == []
    with pytest.raises(ServiceUnavailableError, match="is closed"):
        await made[0].create(record())
