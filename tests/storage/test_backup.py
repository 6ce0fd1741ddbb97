"""Backups: of one moment, whole, and brought back only where nothing is."""

import contextlib
import fcntl
import os
import shutil
import sqlite3
import stat
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from tests.support.postgres import PostgresServer

from antwort.config import Config
from antwort.errors import ConfigError
from antwort.storage import in_place
from antwort.storage.backup import restore_backup, write_backup
from antwort.storage.claims import claimed
from antwort.storage.in_place import LOCK
from antwort.storage.maintenance import upgrade
from antwort.storage.schema.revisions import head
from antwort.storage.schema.tables import metadata
from antwort.storage.urls import database_url

CONVERSATION = "INSERT INTO conversations (tenant, id, created_at, used_at, metadata) VALUES ('acme', {}, 1, 1, '{{}}')"


def ignore(_what: str, _done: int) -> None:
    """Take no note of what is told."""


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """A configuration whose database is there."""
    config = Config(data_dir=tmp_path / "data")
    upgrade(database_url(config))
    return config


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "backup.tar.gz"


def elsewhere(tmp_path: Path) -> Config:
    return Config(data_dir=tmp_path / "restored")


def refusal(action: Callable[[], object]) -> str:
    with pytest.raises(ConfigError) as refused:
        action()
    return str(refused.value)


def tree(folder: Path) -> dict[str, tuple[int, int, bytes | None]]:
    """Return what is in a folder, with rights, times and content."""
    found = {}
    for path in folder.rglob("*"):
        about = path.stat()
        content = path.read_bytes() if path.is_file() else None
        found[str(path.relative_to(folder))] = (stat.S_IMODE(about.st_mode), int(about.st_mtime), content)
    return found


def test_the_data_folder_comes_back_as_it_was(config: Config, file: Path, tmp_path: Path) -> None:
    kept = config.data_dir / "providers" / "some"
    (kept / "deep" / "empty").mkdir(parents=True)
    (config.data_dir / "keys.json").write_text("{}")
    (kept / "program").write_text("#!/bin/sh")
    (kept / "program").chmod(0o750)
    os.utime(kept / "program", (1, 1_700_000_000))
    (kept / "deep").chmod(0o1700)
    os.utime(kept / "deep", (1, 1_600_000_000))
    (config.data_dir / "server.url").write_text("http://127.0.0.1:1")
    made = write_backup(config, file, ignore)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert (made.size, made.parts, made.revision) == (file.stat().st_size, 3, head())
    assert (made.left_out, made.changed, made.elsewhere) == ([], [], [])
    target = elsewhere(tmp_path)
    done = restore_backup(target, file, ignore)
    assert (done.parts, done.content, done.revision) == (made.parts, made.content, head())
    before, after = tree(config.data_dir / "providers"), tree(target.data_dir / "providers")
    assert after == before
    assert sorted(path.name for path in target.data_dir.iterdir()) == ["antwort.db", "keys.json", "providers"]
    assert stat.S_IMODE((target.data_dir / "antwort.db").stat().st_mode) == 0o600
    assert stat.S_IMODE(target.data_dir.stat().st_mode) == 0o700
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backup.tar.gz", "data", "restored"]


def test_links_and_pipes_are_left_out_and_told(config: Config, file: Path, tmp_path: Path) -> None:
    inner = config.data_dir / "providers" / "some"
    inner.mkdir(parents=True)
    (inner / "link").symlink_to("/etc/passwd")
    os.mkfifo(inner / "pipe")
    made = write_backup(config, file, ignore)
    assert made.left_out == [str(inner / "link"), str(inner / "pipe")]
    restore_backup(elsewhere(tmp_path), file, ignore)
    assert list((tmp_path / "restored" / "providers" / "some").iterdir()) == []


def test_folders_may_be_as_deep_as_code_makes_them(config: Config, file: Path, tmp_path: Path) -> None:
    deep = config.data_dir / "providers"
    deep.mkdir()
    here = os.open(deep, os.O_RDONLY)
    for _ in range(2500):  # a path of this length cannot be named
        os.mkdir("d", dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    made = write_backup(config, file, ignore)
    assert len(made.left_out) == 1
    restore_backup(elsewhere(tmp_path), file, ignore)
    subprocess.run(["rm", "-rf", deep], check=True)  # Python goes as deep only with difficulty


@pytest.mark.parametrize("place", ["backup.tar.gz", "data/backup.tar.gz", "nowhere/backup.tar.gz", "link"])
def test_a_backup_goes_to_a_new_file_outside_the_data_folder(config: Config, tmp_path: Path, place: str) -> None:
    (tmp_path / "backup.tar.gz").write_text("an older one")
    (tmp_path / "link").symlink_to(tmp_path / "not-there")
    told = refusal(lambda: write_backup(config, tmp_path / place, ignore))
    assert told.startswith(str(tmp_path / place.split("/", maxsplit=1)[0]))
    assert (tmp_path / "backup.tar.gz").read_text() == "an older one"
    assert sorted(path.name for path in config.data_dir.iterdir()) == ["antwort.db"]


def test_where_there_is_no_database_there_is_no_backup(tmp_path: Path, file: Path) -> None:
    assert "There is no database yet" in refusal(lambda: write_backup(elsewhere(tmp_path), file, ignore))
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_database_is_told_and_not_kept(config: Config, file: Path) -> None:
    database = config.data_dir / "antwort.db"
    with closing(sqlite3.connect(database)) as opened, opened:
        opened.executemany(CONVERSATION.format("?"), [(f"conv_{number}",) for number in range(1000)])
    content = bytearray(database.read_bytes())
    for page in range(4096 * 20, len(content), 4096):
        content[page : page + 100] = b"\xff" * 100
    database.write_bytes(content)
    assert "is damaged" in refusal(lambda: write_backup(config, file, ignore))
    assert not file.exists()


@contextlib.contextmanager
def writing(database: Path) -> Iterator[None]:
    """Have two tables written to, one after the other, as fast as that goes."""
    stop = threading.Event()

    def write() -> None:
        with closing(sqlite3.connect(database, isolation_level=None)) as opened:
            opened.execute("PRAGMA journal_mode = WAL")
            number = 0
            while not stop.is_set():
                opened.execute("BEGIN IMMEDIATE")
                opened.execute(CONVERSATION.format(f"'a{number}'"))
                opened.execute(CONVERSATION.format(f"'b{number}'"))
                opened.execute("COMMIT")
                number += 1

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_a_database_that_is_written_to_is_copied_as_it_was_at_one_moment(
    config: Config, file: Path, tmp_path: Path
) -> None:
    with writing(config.data_dir / "antwort.db"):
        for number in range(3):
            write_backup(config, file.with_name(str(number)), ignore)
    for number in range(3):
        target = Config(data_dir=tmp_path / f"restored-{number}")
        restore_backup(target, file.with_name(str(number)), ignore)
        with closing(sqlite3.connect(target.data_dir / "antwort.db")) as opened:
            (names,) = opened.execute("SELECT group_concat(id) FROM conversations").fetchone()
        found = set((names or "").split(",")) - {""}
        assert {name[1:] for name in found if name[0] == "a"} == {name[1:] for name in found if name[0] == "b"}


def test_what_is_changed_in_place_is_copied_while_it_stands_still(config: Config, file: Path, tmp_path: Path) -> None:
    folder = config.data_dir / "providers" / "some" / "inner"
    folder.mkdir(parents=True)
    (folder / LOCK).touch()
    (folder / "sub").mkdir()
    for name in ("one", "sub/two"):
        (folder / name).write_text("0")
    stop = threading.Event()

    def change() -> None:
        number = 0
        while not stop.is_set():
            with (folder / LOCK).open() as lock:
                fcntl.flock(lock, fcntl.LOCK_SH)
                number += 1
                for name in ("one", "sub/two"):
                    (folder / name).write_text(str(number))

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for number in range(5):
            write_backup(config, file.with_name(str(number)), ignore)
    finally:
        stop.set()
        thread.join()
    for number in range(5):
        target = Config(data_dir=tmp_path / f"restored-{number}")
        restore_backup(target, file.with_name(str(number)), ignore)
        copied = target.data_dir / "providers" / "some" / "inner"
        assert (copied / "one").read_text() == (copied / "sub" / "two").read_text() != ""


def test_who_never_pauses_is_told(config: Config, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_place, "_PATIENCE", 0.05)
    folder = config.data_dir / "providers" / "some"
    folder.mkdir(parents=True)
    with (folder / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        assert "without a pause" in refusal(lambda: write_backup(config, file, ignore))
    write_backup(config, file, ignore)


def test_a_lock_of_strangers_holds_nobody_up(config: Config, file: Path) -> None:
    deep = config.data_dir / "providers" / "workspaces" / "tenant" / "folder"
    deep.mkdir(parents=True)
    os.mkfifo(config.data_dir / "providers" / LOCK)
    os.mkfifo(config.data_dir / "providers" / "workspaces" / LOCK)
    with (deep / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        write_backup(config, file, ignore)


def test_what_is_elsewhere_is_told(config: Config, file: Path, tmp_path: Path) -> None:
    outside = config.model_copy(
        update={
            "storage": config.storage.model_validate({"s3": {"bucket": "our-files"}}),
            "encryption": config.encryption.model_validate({"key": "k" * 40}),
        }
    )
    told = [
        "the content of clients' files is in the bucket 'our-files', and stays there",
        "'encryption.key' is in the configuration; what it encrypted cannot be read without it",
    ]
    assert write_backup(outside, file, ignore).elsewhere == told
    assert restore_backup(elsewhere(tmp_path), file, ignore).elsewhere == told
    chosen = config.storage.model_copy(update={"files": "package:Store"})
    other = write_backup(config.model_copy(update={"storage": chosen}), tmp_path / "other", ignore)
    assert other.elsewhere == ["what 'storage.files' keeps of clients' files outside of the data folder stays there"]


def test_a_database_and_keys_that_are_elsewhere_come_back_there(tmp_path: Path, file: Path) -> None:
    def placed(folder: Path) -> Config:
        return Config.model_validate(
            {
                "data_dir": folder / "data",
                "storage": {"url": f"sqlite:///{folder / 'databases' / 'kept.db'}"},
                "auth": {"keys_file": folder / "secrets" / "keys.json"},
            }
        )

    before, after = placed(tmp_path / "before"), placed(tmp_path / "after")
    upgrade(database_url(before))
    (tmp_path / "before" / "secrets").mkdir()
    (tmp_path / "before" / "secrets" / "keys.json").write_text("the keys")
    write_backup(before, file, ignore)
    restore_backup(after, file, ignore)
    inside = [path.relative_to(tmp_path / "after") for path in (tmp_path / "after").rglob("*") if path.is_file()]
    assert sorted(map(str, inside)) == ["databases/kept.db", "secrets/keys.json"]
    assert (tmp_path / "after" / "secrets" / "keys.json").read_text() == "the keys"
    shutil.rmtree(tmp_path / "after" / "databases")
    assert "keys.json: This is there already" in refusal(lambda: restore_backup(after, file, ignore))


# --- bringing one back ------------------------------------------------------------------------------------------------


@pytest.fixture
def made(config: Config, file: Path) -> Path:
    """A backup of a database with nothing in it."""
    write_backup(config, file, ignore)
    return file


@pytest.mark.parametrize("inside", ["antwort.db", "notes.txt", "blobs", ".hidden"])
def test_nothing_is_overwritten(made: Path, tmp_path: Path, inside: str) -> None:
    target = elsewhere(tmp_path)
    target.data_dir.mkdir()
    (target.data_dir / inside).write_text("something")
    assert f"not empty ('{inside}' is in it)" in refusal(lambda: restore_backup(target, made, ignore))
    assert [path.name for path in target.data_dir.iterdir()] == [inside]


def test_a_new_disk_is_empty(made: Path, tmp_path: Path) -> None:
    target = elsewhere(tmp_path)
    (target.data_dir / "lost+found").mkdir(parents=True)
    restore_backup(target, made, ignore)
    assert sorted(path.name for path in target.data_dir.iterdir()) == ["antwort.db", "lost+found"]


def test_a_place_that_a_server_has_is_not_restored_to(made: Path, tmp_path: Path) -> None:
    target = Config.model_validate(
        {"data_dir": tmp_path / "restored", "storage": {"url": f"sqlite:///{tmp_path}/a.db"}}
    )
    with claimed([tmp_path / "a.db"]):
        assert "another server uses it" in refusal(lambda: restore_backup(target, made, ignore))
    assert not target.data_dir.exists()


def test_an_archive_of_newer_tables_is_refused_before_anything_is_written(
    config: Config, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("antwort.storage.backup.is_known", lambda _: False)
    told = refusal(lambda: restore_backup(elsewhere(tmp_path), made, ignore))
    assert f"with the revision '{head()}' of the tables" in told
    assert "Install the version that made it" in told
    assert "knows those up to" in refusal(lambda: restore_backup(config, made, ignore, dry_run=True))
    assert "Make the backup with the version that wrote it" in refusal(
        lambda: write_backup(config, tmp_path / "other", ignore)
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backup.tar.gz", "data"]


def test_older_tables_come_back_and_can_be_upgraded(config: Config, file: Path, tmp_path: Path) -> None:
    databases = Path(__file__).parent / "databases"
    oldest = min(databases.glob("*.sql*"))
    database = config.data_dir / "antwort.db"
    database.unlink()
    with closing(sqlite3.connect(database)) as opened:
        opened.executescript(oldest.read_text(encoding="utf-8"))
    made = write_backup(config, file, ignore)
    target = elsewhere(tmp_path)
    done = restore_backup(target, file, ignore)
    assert done.revision == made.revision != done.needed == head()
    upgrade(database_url(target))


@pytest.mark.parametrize("keep", [0.3, 0.9])
def test_of_an_archive_that_is_cut_off_nothing_is_left(made: Path, tmp_path: Path, keep: float) -> None:
    content = made.read_bytes()
    made.write_bytes(content[: int(len(content) * keep)])
    target = elsewhere(tmp_path)
    assert "cut off" in refusal(lambda: restore_backup(target, made, ignore))
    assert not target.data_dir.exists()
    target.data_dir.mkdir()
    assert "cut off" in refusal(lambda: restore_backup(target, made, ignore))
    assert list(target.data_dir.iterdir()) == []
    assert "cut off" in refusal(lambda: restore_backup(target, made, ignore, dry_run=True))


def test_a_dry_run_restores_nothing(config: Config, made: Path, tmp_path: Path) -> None:
    assert restore_backup(elsewhere(tmp_path), made, ignore, dry_run=True).parts == 1
    assert restore_backup(config, made, ignore, dry_run=True).parts == 1
    assert not (tmp_path / "restored").exists()


# --- PostgreSQL -------------------------------------------------------------------------------------------------------


def on_postgres(folder: Path, url: str) -> Config:
    return Config.model_validate({"data_dir": folder, "storage": {"url": url}})


@pytest.fixture
def other_url(postgres_server: PostgresServer) -> Iterator[str]:
    """A second empty database."""
    url = postgres_server.create()
    yield url
    postgres_server.drop(url)


@pytest.mark.usefixtures("postgres_programs")
def test_a_postgresql_database_comes_back_with_all_tables_and_those_of_extensions(
    postgres_url: str, other_url: str, file: Path, tmp_path: Path
) -> None:
    before, after = on_postgres(tmp_path / "before", postgres_url), on_postgres(tmp_path / "after", other_url)
    upgrade(postgres_url)
    with psycopg.connect(postgres_url, autocommit=True) as database:
        database.execute(CONVERSATION.format("'conv_1'").encode())
        database.execute("CREATE TABLE of_another_program (x int); CREATE SCHEMA antwort_vectors")
        database.execute("CREATE EXTENSION vector; CREATE TABLE antwort_vectors.one (id int, embedding vector(3))")
        database.execute("INSERT INTO antwort_vectors.one VALUES (1, '[1,2,3]')")
    (tmp_path / "before" / "blobs").mkdir(parents=True)
    (tmp_path / "before" / "blobs" / "file").write_text("content")
    made = write_backup(before, file, ignore)
    assert made.parts == 2
    done = restore_backup(after, file, ignore)
    assert (done.revision, done.needed, done.parts) == (head(), head(), 2)
    assert (tmp_path / "after" / "blobs" / "file").read_text() == "content"
    with psycopg.connect(other_url, autocommit=True) as database:
        tables = {name for (name,) in database.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")}
        assert tables == {*metadata.tables, "alembic_version"}
        assert database.execute("SELECT id FROM conversations").fetchall() == [("conv_1",)]
        assert database.execute("SELECT id, embedding::text FROM antwort_vectors.one").fetchall() == [(1, "[1,2,3]")]
        numbered = [name for name, table in metadata.tables.items() if "number" in table.c and table.c.number.identity]
        for name in numbered:
            query = f"SELECT pg_get_serial_sequence('{name}', 'number') IS NOT NULL"
            assert database.execute(query.encode()).fetchone() == (True,)
        database.execute(CONVERSATION.format("'conv_2'").encode())
    shutil.rmtree(tmp_path / "after")
    assert "has tables of antwort already" in refusal(lambda: restore_backup(after, file, ignore))
    assert not (tmp_path / "after").exists()


@pytest.mark.usefixtures("postgres_programs")
def test_a_database_of_one_kind_does_not_become_one_of_the_other(
    postgres_url: str, made: Path, file: Path, tmp_path: Path
) -> None:
    told = refusal(lambda: restore_backup(on_postgres(tmp_path / "new", postgres_url), made, ignore))
    assert told.endswith("There is a SQLite database in the archive, and 'storage.url' names a PostgreSQL database.")
    upgrade(postgres_url)
    write_backup(on_postgres(tmp_path / "some", postgres_url), tmp_path / "other", ignore)
    told = refusal(lambda: restore_backup(elsewhere(tmp_path), tmp_path / "other", ignore))
    assert told.endswith("There is a PostgreSQL database in the archive, and 'storage.url' names a SQLite database.")


def test_without_the_programs_of_postgresql_it_is_told_where_they_come_from(
    postgres_url: str, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upgrade(postgres_url)
    monkeypatch.setenv("PATH", str(tmp_path))
    told = refusal(lambda: write_backup(on_postgres(tmp_path / "some", postgres_url), file, ignore))
    assert told.startswith("'pg_dump' is not installed")
    assert "postgresql-client" in told


def test_what_a_program_of_postgresql_complains_of_is_told_without_the_password(
    postgres_url: str, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = postgres_url.replace("antwort@", "antwort:secret@")
    upgrade(url)
    program = tmp_path / "pg_dump"
    program.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo "pg_dump (PostgreSQL) 9.9" && exit\n'
        f'echo "$@" > {tmp_path}/arguments; [ "$PGPASSWORD" = secret ] || exit 0\n'
        'echo "pg_dump: error: aborting because of server version mismatch" >&2; exit 1\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    told = refusal(lambda: write_backup(on_postgres(tmp_path / "some", url), file, ignore))
    assert f"server version mismatch ({program}, 9.9)" in told
    assert "secret" not in told + (tmp_path / "arguments").read_text()


@pytest.mark.usefixtures("postgres_programs")
def test_a_load_that_fails_leaves_nothing(
    postgres_url: str, other_url: str, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upgrade(postgres_url)
    before, after = on_postgres(tmp_path / "before", postgres_url), on_postgres(tmp_path / "after", other_url)
    write_backup(before, file, ignore)
    with psycopg.connect(other_url, autocommit=True) as database:
        database.execute("CREATE TABLE questions (x int)")  # of another program
    assert "already exists" in refusal(lambda: restore_backup(after, file, ignore))
    assert not (tmp_path / "after").exists()
    with psycopg.connect(other_url, autocommit=True) as database:
        assert database.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall() == [
            ("questions",)
        ]
