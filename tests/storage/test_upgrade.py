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
from sqlalchemy import NullPool, create_engine
from tests.storage.samples import TENANT, entry, record

from antwort.errors import ConfigError
from antwort.storage import SqliteStore
from antwort.storage.connections import connect, create_file
from antwort.storage.revisions import alembic_config, migrate
from antwort.storage.schema import metadata
from antwort.storage.upgrade import MIGRATIONS, Migrations, current, head, needs_upgrade, prepare, upgrade


@pytest.fixture
def url(path: Path) -> str:
    return f"sqlite:///{path}"


@pytest.fixture
def later(tmp_path: Path) -> Migrations:
    """The migrations of a version to come, which has one revision more."""
    folder = tmp_path / "50% migrations"
    shutil.copytree(MIGRATIONS.folder, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "versions" / "r9999_notes.py").write_text(
        dedent(
            f"""
            import sqlalchemy as sa
            from alembic import op

            revision = "9999"
            down_revision = "{head()}"

            def upgrade():
                op.create_table("notes", sa.Column("text", sa.Text))
                op.add_column("responses", sa.Column("colour", sa.Text, server_default="blue"))
            """
        )
    )
    return Migrations(folder, (*MIGRATIONS.revisions, "9999"))


def tables(path: Path) -> dict[str, str]:
    """Return the statements that would make the tables and indexes of a database again."""
    with closing(sqlite3.connect(path)) as database:
        found = database.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    return {name: " ".join(sql.split()) for name, sql in found}


def test_the_revisions_are_those_of_the_scripts() -> None:
    scripts = ScriptDirectory.from_config(alembic_config(MIGRATIONS.folder))
    assert scripts.get_heads() == [head()]
    assert tuple(script.revision for script in scripts.walk_revisions())[::-1] == MIGRATIONS.revisions


def test_a_new_database_has_the_tables_that_the_migrations_lead_to(tmp_path: Path) -> None:
    created, migrated, declared = (tmp_path / name for name in ("created.db", "migrated.db", "declared.db"))
    upgrade(f"sqlite:///{created}")
    create_file(migrated)
    migrate(connect(migrated), MIGRATIONS.folder)
    engine = create_engine(f"sqlite:///{declared}", poolclass=NullPool)
    metadata.create_all(engine)
    assert tables(created) == tables(migrated)
    assert current(f"sqlite:///{created}") == current(f"sqlite:///{migrated}") == head()
    version = {name: sql for name, sql in tables(migrated).items() if name == "alembic_version"}
    assert tables(declared) | version == tables(migrated)


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
    prepare(url)
    assert current(url) == head()


def test_an_upgrade_of_what_is_up_to_date_changes_nothing(path: Path, url: str) -> None:
    upgrade(url)
    before = path.read_bytes()
    upgrade(url)
    prepare(url)
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


def test_a_migration_that_fails_leaves_the_database_as_it_was(path: Path, url: str, later: Migrations) -> None:
    upgrade(url)
    before = tables(path)
    script = later.folder / "versions" / "r9999_notes.py"
    script.write_text(script.read_text() + '    op.execute("INSERT INTO nowhere VALUES (1)")\n')
    with pytest.raises(sqlite3.OperationalError, match="nowhere"):
        prepare(url, migrations=later)
    assert (tables(path), current(url)) == (before, head())


def test_two_that_upgrade_at_once_do_it_once(path: Path, url: str, later: Migrations) -> None:
    upgrade(url)
    program = dedent(
        """
        import sys
        from pathlib import Path
        import antwort.storage.revisions
        from antwort.storage.upgrade import Migrations, upgrade

        sys.stdin.read()
        upgrade(sys.argv[1], migrations=Migrations(Path(sys.argv[2]), tuple(sys.argv[3:])))
        """
    )
    arguments = [sys.executable, "-c", program, url, str(later.folder), *later.revisions]
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
    for attempt in (prepare, upgrade):
        with pytest.raises(ConfigError, match=r"revision '9999', .* Install the newer version") as caught:
            attempt(url)
        assert caught.value.where == str(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("revision", [None, "0001"])
def test_a_database_that_others_may_share_is_not_upgraded_without_being_asked(
    revision: str | None, later: Migrations
) -> None:
    with pytest.raises(ConfigError, match="Run 'antwort db upgrade'"):
        needs_upgrade(revision, embedded=False, where="the server", migrations=later)
    assert needs_upgrade("9999", embedded=False, where="the server", migrations=later) is False
