"""Every revision that has ever been on the main branch is upgraded: one database of each is kept and tried.

`databases/` has those of the revisions there are; `scripts/schema.py` adds the next. `databases/early/` has those from
before the revisions were settled, written by the server of that time.
"""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from scripts import schema
from sqlalchemy import NullPool, create_engine
from tests.storage.samples import entry, event, record
from tests.storage.test_upgrade import tables
from tests.support.postgres import PostgresServer

from antwort.config import Config, StorageConfig
from antwort.errors import ConfigError
from antwort.storage import Store, open_store
from antwort.storage.maintenance import current, upgrade
from antwort.storage.schema.migrate import run_revisions
from antwort.storage.schema.revisions import EARLY, MIGRATIONS, Migrations, head, needs_upgrade
from antwort.storage.sqlite.connection import create_file
from antwort.storage.urls import sqlite_path

DATABASES = sorted(schema.DATABASES.glob("*.sql"))
EARLY_DATABASES = sorted((schema.DATABASES / "early").glob("*.sqlite.sql"))
ON_POSTGRES = [dump for dump in EARLY_DATABASES if dump.with_name(dump.name.replace("sqlite", "postgresql")).exists()]
TENANT = "default"
NOW = 1_800_000_000
_COLUMNS = """
    SELECT table_name, column_name, ordinal_position, data_type, is_nullable, column_default, is_identity
    FROM information_schema.columns WHERE table_schema = 'public' ORDER BY table_name, ordinal_position
"""
_INDEXES = "SELECT indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY indexname"
_CONSTRAINTS = """
    SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE connamespace = 'public'::regnamespace
    ORDER BY conrelid::regclass::text, conname
"""


def rows(path: Path) -> dict[str, list[dict[str, Any]]]:
    """Return what a SQLite database holds, by table."""
    with closing(sqlite3.connect(path)) as database:
        database.row_factory = sqlite3.Row
        names = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: [dict(row) for row in database.execute(f'SELECT * FROM "{name}"')] for name in names}


def load(path: Path, dump: Path) -> None:
    """Make the SQLite database of a dump."""
    create_file(path)
    with closing(sqlite3.connect(path)) as database:
        database.executescript(dump.read_text())


def load_postgres(url: str, dump: Path, contents: dict[str, list[dict[str, Any]]]) -> None:
    """Make the tables of a dump as they were on PostgreSQL, with the rows of the SQLite database."""
    early = dump.with_name(dump.name.replace(".sqlite.", ".postgresql."))
    with psycopg.connect(url, autocommit=True) as connection:
        if early != dump:
            connection.execute(early.read_bytes())
        else:
            engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(url), poolclass=NullPool)
            with engine.begin() as transaction:
                run_revisions(transaction, MIGRATIONS.folder, dump.stem)
            connection.execute("DELETE FROM alembic_version")
        connection.execute("SET session_replication_role = replica")  # rows come in any order
        for table, contained in contents.items():
            for row in contained:
                insert(connection, table, row)
            if contained and "number" in contained[0]:
                counter = "SELECT setval(pg_get_serial_sequence({0}, 'number'), max(number)) FROM {1}"
                connection.execute(sql.SQL(counter).format(sql.Literal(table), sql.Identifier(table)))


def insert(connection: psycopg.Connection[Any], table: str, row: dict[str, Any]) -> None:
    flags = {"background", "parked", "visible"}
    values = [bool(value) if name in flags else value for name, value in row.items()]
    statement = sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(
        sql.Identifier(table),
        sql.SQL(", ").join(map(sql.Identifier, row)),
        sql.SQL(", ").join(sql.Placeholder() for _ in row),
    )
    connection.execute(statement, values)


def shape(server: PostgresServer, url: str) -> list[list[tuple[object, ...]]]:
    """Return what tables, indexes and constraints there are in a PostgreSQL database."""
    return [server.execute(query, url) for query in (_COLUMNS, _INDEXES, _CONSTRAINTS)]


@pytest.mark.parametrize("dump", [*DATABASES, *EARLY_DATABASES], ids=lambda dump: dump.name.split(".")[0])
async def test_a_sqlite_database_of_every_landed_revision_is_upgraded(tmp_path: Path, dump: Path) -> None:
    path = tmp_path / "antwort.db"
    load(path, dump)
    before = rows(path)
    url = f"sqlite:///{path}"
    store = await asyncio.to_thread(open_store, Config(storage=StorageConfig(url=url)))
    assert current(url) == head()
    upgrade(f"sqlite:///{tmp_path / 'fresh.db'}")
    assert tables(path) == tables(tmp_path / "fresh.db")
    await read_and_go_on(store, before)
    await store.close()
    with closing(sqlite3.connect(sqlite_path(url))) as database:
        assert database.execute("PRAGMA foreign_key_check").fetchall() == []


@pytest.mark.parametrize("dump", [*DATABASES, *ON_POSTGRES], ids=lambda dump: dump.name.split(".")[0])
async def test_a_postgresql_database_of_every_landed_revision_is_upgraded(
    tmp_path: Path, dump: Path, postgres_server: PostgresServer, postgres_url: str
) -> None:
    load(tmp_path / "antwort.db", dump)
    before = rows(tmp_path / "antwort.db")
    await asyncio.to_thread(load_postgres, postgres_url, dump, before)
    config = Config(storage=StorageConfig(url=postgres_url))
    if current(postgres_url) != head():
        with pytest.raises(ConfigError, match=rf"older than {head()}.* Run 'antwort db upgrade'"):
            await asyncio.to_thread(open_store, config)
    await asyncio.to_thread(upgrade, postgres_url)
    assert current(postgres_url) == head()
    fresh = postgres_server.create()
    upgrade(fresh)
    assert shape(postgres_server, postgres_url) == shape(postgres_server, fresh)
    postgres_server.drop(fresh)
    store = await asyncio.to_thread(open_store, config)
    await read_and_go_on(store, before)
    await store.close()


async def read_and_go_on(store: Store, before: dict[str, list[dict[str, Any]]]) -> None:
    """Read all that a database held, and write more of each kind."""
    for row in before["responses"]:
        kept = await store.get(TENANT, row["id"])
        assert kept is not None
        assert (kept.status, kept.model, kept.parked) == ("completed", "demo", False)
        journal = await store.journal(TENANT, row["id"])
        assert journal is not None
        assert [said.item["id"] for said in journal] == items(before["entries"], "response_id", row["id"])
        told = [each["sequence"] for each in before["events"] if each["response_id"] == row["id"]]
        events = await store.events(TENANT, row["id"])
        assert [each.sequence for each in events or []] == sorted(told)
    for row in before.get("conversations", []):
        conversation = await store.conversations.get(TENANT, row["id"])
        assert conversation is not None
        assert conversation.metadata == {"topic": "tea"}
        history = await store.conversations.history(TENANT, row["id"])
        assert [said.item["id"] for said in history or []] == items(
            before["conversation_items"], "conversation_id", row["id"]
        )
    for row in before.get("variable_versions", []):
        variable = await store.values.get(TENANT, row["id"], NOW)
        assert variable is not None
        assert variable.key == "poem"
        assert b"".join(await store.values.read(variable, 0, 0)) == b"Roses are red."
    for row in before.get("stored_files", []):
        file = await store.files.get(TENANT, row["id"], "", NOW)
        assert file is not None
        assert (file.filename, file.bytes) == ("tea.txt", len(b"Tea is hot."))
    await store.create(record("resp_new", tenant=TENANT), [entry("msg_new")])
    await store.add_events(TENANT, "resp_new", 0, [event(0)])
    assert len((await store.list_responses(TENANT, limit=10)).data) == len(before["responses"]) + 1
    for number in range(2):
        await store.records("library").create(TENANT, "book", f"b{number}", {}, created_at=7)


def items(rows: list[dict[str, Any]], owner: str, name: str) -> list[str]:
    return [row["item_id"] for row in rows if row[owner] == name]


def test_every_revision_has_its_database_and_stays_as_it_landed() -> None:
    assert [dump.stem for dump in DATABASES] == list(MIGRATIONS.revisions)
    for dump in DATABASES:
        first = dump.read_text().partition("\n")[0] + "\n"
        assert first == schema.database_head(dump.stem), f"r{dump.stem} has changed: write another revision instead"


def test_the_next_revision_takes_no_name_that_a_database_can_have_already(later: Migrations) -> None:
    assert not {*MIGRATIONS.revisions} & {*EARLY}
    assert MIGRATIONS.next == f"{max(5, int(head())) + 1:04}"
    assert {dump.name[:4] for dump in EARLY_DATABASES} == {"0001", *EARLY}


def test_a_database_is_kept_of_a_revision_that_has_none(tmp_path: Path, later: Migrations) -> None:
    schema.keep_databases(tmp_path, later)
    assert sorted(path.stem for path in tmp_path.glob("*.sql")) == [*MIGRATIONS.revisions, "9999"]
    load(tmp_path / "antwort.db", tmp_path / "9999.sql")
    assert current(f"sqlite:///{tmp_path / 'antwort.db'}") == "9999"
    assert "notes" in tables(tmp_path / "antwort.db")
    before = (tmp_path / "9999.sql").read_text()
    assert before.startswith(schema.database_head("9999", later))
    schema.keep_databases(tmp_path, later)
    assert (tmp_path / "9999.sql").read_text() == before


@pytest.mark.parametrize("revision", ["9999", "1234"])
def test_a_revision_that_is_newer_is_said_to_be(revision: str) -> None:
    with pytest.raises(ConfigError, match=rf"'{revision}', newer than {head()}.* Install the newer version"):
        needs_upgrade(revision, embedded=True, where="here")


@pytest.mark.parametrize("revision", ["0000", "1234567", "af31c0", ""])
def test_a_revision_that_never_was_is_not_said_to_be_newer(revision: str) -> None:
    with pytest.raises(ConfigError, match=rf"'{revision}', which no version of antwort .* has written") as caught:
        needs_upgrade(revision, embedded=True, where="here")
    assert "newer" not in str(caught.value)


def test_early_revisions_are_older(later: Migrations) -> None:
    for revision in EARLY:
        assert needs_upgrade(revision, embedded=True, where="here")
        with pytest.raises(ConfigError, match=rf"revision {revision}, older than 9999"):
            needs_upgrade(revision, embedded=False, where="the server", migrations=later)
