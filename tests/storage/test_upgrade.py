"""From any revision to the newest, and no further."""

import asyncio
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from textwrap import dedent

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from scripts import schema
from sqlalchemy import NullPool, create_engine
from tests.storage.samples import TENANT, entry, event, record

from antwort.config import Config, StorageConfig
from antwort.errors import ConfigError
from antwort.storage import ConversationRecord, Kept, SqliteStore, Store, open_store
from antwort.storage.maintenance import current, upgrade
from antwort.storage.postgres import PostgresStore
from antwort.storage.schema.migrate import alembic_config, migrate
from antwort.storage.schema.revisions import MIGRATIONS, Migrations, head, needs_upgrade
from antwort.storage.schema.tables import metadata
from antwort.storage.sqlite import maintenance as sqlite
from antwort.storage.sqlite.connection import connect, create_file
from antwort.storage.sqlite.maintenance import prepare
from antwort.storage.urls import sqlite_path


@pytest.fixture
def url(path: Path) -> str:
    return f"sqlite:///{path}"


def tables(path: Path) -> dict[str, object]:
    """Return what tables and indexes there are: their columns, keys and statements, however they came to be."""
    with closing(sqlite3.connect(path)) as database:
        found = database.execute("SELECT type, name, sql FROM sqlite_master").fetchall()
        parts = {name: " ".join((sql or "").split()) for kind, name, sql in found if kind != "table"}
        names = [name for kind, name, _ in found if kind == "table"]
        columns = {name: database.execute(f"PRAGMA table_xinfo({name})").fetchall() for name in names}
        keys = {name: database.execute(f"PRAGMA foreign_key_list({name})").fetchall() for name in names}
    return {**parts, **{name: (columns[name], keys[name]) for name in names}}


def test_the_revisions_are_those_of_the_scripts() -> None:
    scripts = ScriptDirectory.from_config(alembic_config(MIGRATIONS.folder))
    assert scripts.get_heads() == [head()]
    assert tuple(script.revision for script in scripts.walk_revisions())[::-1] == MIGRATIONS.revisions


def test_what_follows_from_the_tables_was_written_anew() -> None:
    assert (MIGRATIONS.folder / "schema.sql").read_text() == schema.sqlite_script()


def test_the_next_revision_leads_from_the_newest_to_the_tables(tmp_path: Path, path: Path, url: str) -> None:
    with pytest.raises(SystemExit, match="already"):
        schema.next_revision("nothing")
    shutil.copytree(MIGRATIONS.folder, tmp_path / "none", ignore=shutil.ignore_patterns("__pycache__", "r0*"))
    none = Migrations(tmp_path / "none")
    assert none.revisions == ()
    revision, script = schema.next_revision("all of it", none)
    (none.folder / "versions" / "r0001_all.py").write_text(script)
    assert Migrations(none.folder).revisions == (revision,) == ("0001",)
    create_file(path)
    migrate(connect(path), none.folder)
    upgrade(f"sqlite:///{tmp_path / 'created.db'}")
    assert current(url) == "0001"
    assert tables(path) == tables(tmp_path / "created.db")


def test_a_new_database_has_the_tables_that_the_migrations_lead_to(tmp_path: Path) -> None:
    created, migrated, declared = (tmp_path / name for name in ("created.db", "migrated.db", "declared.db"))
    upgrade(f"sqlite:///{created}")
    create_file(migrated)
    migrate(connect(migrated), MIGRATIONS.folder)
    engine = create_engine(f"sqlite:///{declared}", poolclass=NullPool)
    metadata.create_all(engine)
    assert tables(created) == tables(migrated)
    assert current(f"sqlite:///{created}") == current(f"sqlite:///{migrated}") == head()
    version = {name: sql for name, sql in tables(migrated).items() if "alembic_version" in name}
    assert tables(declared) | version == tables(migrated)


@pytest.mark.parametrize("there", [(), ("stored_files",)], ids=["without files", "with files"])
def test_a_database_of_the_first_revision_is_upgraded_whatever_it_has(
    tmp_path: Path, path: Path, url: str, there: tuple[str, ...]
) -> None:
    shutil.copytree(MIGRATIONS.folder, tmp_path / "first", ignore=shutil.ignore_patterns("__pycache__", "r000[2-9]*"))
    create_file(path)
    migrate(connect(path), tmp_path / "first")
    metadata.create_all(create_engine(url, poolclass=NullPool), [metadata.tables[name] for name in there])
    assert current(url) == "0001"
    prepare(path)
    upgrade(f"sqlite:///{tmp_path / 'created.db'}")
    assert current(url) == head()
    assert tables(path) == tables(tmp_path / "created.db")


def test_the_declared_tables_are_those_that_alembic_sees(path: Path, url: str) -> None:
    upgrade(url)
    engine = create_engine(f"sqlite:///{path}", poolclass=NullPool)
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []


def test_a_database_that_is_not_there_has_no_revision_and_is_not_made(path: Path, url: str) -> None:
    assert current(url) is None
    assert not path.parent.exists()


def test_an_empty_file_becomes_a_database(path: Path, url: str) -> None:
    path.parent.mkdir()
    path.touch()
    assert current(url) is None
    prepare(path)
    assert current(url) == head()


def test_an_upgrade_of_what_is_up_to_date_changes_nothing(path: Path, url: str) -> None:
    upgrade(url)
    before = path.read_bytes()
    upgrade(url)
    prepare(path)
    assert path.read_bytes() == before


async def test_an_older_embedded_database_is_upgraded_at_start_and_keeps_what_it_has(
    path: Path, url: str, later: Migrations
) -> None:
    store = SqliteStore.open(path)
    await store.create(record(), [entry("msg_1")])
    await store.close()
    store = await asyncio.to_thread(SqliteStore.open, path, migrations=later)
    assert current(url) == "9999"
    assert "notes" in tables(path)
    assert await store.get(TENANT, "resp_1") == record()
    assert await store.journal(TENANT, "resp_1") == [entry("msg_1")]
    await store.close()


@pytest.mark.parametrize("fixture", ["url", "postgres_url"], ids=["sqlite", "postgresql"])
async def test_what_is_stored_survives_an_upgrade_and_goes_on(
    request: pytest.FixtureRequest, fixture: str, later: Migrations
) -> None:
    database_url: str = request.getfixturevalue(fixture)
    config = Config(storage=StorageConfig(url=database_url))
    store = await asyncio.to_thread(open_store, config)
    await store.conversations.create(ConversationRecord("conv_1", TENANT, 1), [entry("msg_0")])
    await store.create(record(conversation_id="conv_1"), [entry("msg_1")])
    await store.add_events(TENANT, "resp_1", 0, [event(0)])
    for number in range(3):
        await store.records("library").create(TENANT, "book", f"b{number}", {}, created_at=7)
    await store.close()
    assert current(database_url) == head()
    upgrade(database_url, migrations=later)
    assert current(database_url) == "9999"
    store = await asyncio.to_thread(opened, database_url, later)
    assert await store.get(TENANT, "resp_1") == record(conversation_id="conv_1")
    assert await store.journal(TENANT, "resp_1") == [entry("msg_1")]
    assert await store.events(TENANT, "resp_1") == [event(0)]
    await store.update(record(conversation_id="conv_1", status="completed"), said=[entry("msg_2")])
    assert await store.conversations.history(TENANT, "conv_1") == [entry("msg_0"), entry("msg_2")]
    records = store.records("library")
    assert await records.get(TENANT, "book", "b1") == Kept("b1", TENANT, 7, {}, kind="book")
    assert await records.delete(TENANT, "book", "b1")
    assert [kept.id for kept in (await records.list(TENANT, "book", after="b1")).data] == ["b0"]
    assert await records.count(TENANT, "book") == 2
    await store.close()


def opened(url: str, migrations: Migrations) -> Store:
    """Open a database with other migrations than ours."""
    if url.startswith("sqlite"):
        return SqliteStore.open(sqlite_path(url), migrations=migrations)
    return PostgresStore.open(url, migrations=migrations)


def test_a_migration_that_fails_leaves_the_database_as_it_was(path: Path, url: str, later: Migrations) -> None:
    upgrade(url)
    before = tables(path)
    script = later.folder / "versions" / "r9999_notes.py"
    script.write_text(script.read_text() + '    op.execute("INSERT INTO nowhere VALUES (1)")\n')
    with pytest.raises(sqlite3.OperationalError, match="nowhere"):
        prepare(path, migrations=later)
    assert (tables(path), current(url)) == (before, head())


def test_two_that_upgrade_at_once_do_it_once(path: Path, url: str, later: Migrations) -> None:
    upgrade(url)
    program = dedent(
        """
        import sys
        from pathlib import Path
        import antwort.storage.schema.migrate
        from antwort.storage.schema.revisions import Migrations
        from antwort.storage.maintenance import upgrade

        sys.stdin.read()
        upgrade(sys.argv[1], migrations=Migrations(Path(sys.argv[2])))
        """
    )
    arguments = [sys.executable, "-c", program, url, str(later.folder)]
    processes = [
        subprocess.Popen(arguments, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.close()
        process.stdin = None
    assert [(process.communicate(timeout=120)[1], process.returncode) for process in processes] == [("", 0)] * 2
    assert current(url) == "9999"


def test_a_newer_database_is_refused_and_left_as_it_is(path: Path, url: str, later: Migrations) -> None:
    upgrade(url, migrations=MIGRATIONS)
    upgrade(url, migrations=later)
    before = path.read_bytes()
    for attempt in (prepare, sqlite.upgrade):
        with pytest.raises(ConfigError, match=r"revision '9999', .* Install the newer version") as caught:
            attempt(path)
        assert caught.value.where == str(path)
    assert path.read_bytes() == before


def test_a_database_that_others_may_share_is_not_upgraded_without_being_asked(later: Migrations) -> None:
    with pytest.raises(ConfigError, match="Run 'antwort db upgrade'"):
        needs_upgrade("0001", embedded=False, where="the server", migrations=later)
    assert needs_upgrade("9999", embedded=False, where="the server", migrations=later) is False
    assert needs_upgrade(None, embedded=False, where="the server", migrations=later) is True
