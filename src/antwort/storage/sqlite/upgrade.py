"""The revision of a SQLite database.

One that is up to date, and a new one, are dealt with in a few milliseconds. Only a database that has to be migrated
makes Alembic be imported.
"""

import importlib
import sqlite3
from contextlib import closing
from pathlib import Path

from antwort.errors import ConfigError
from antwort.storage.schema.revisions import MIGRATIONS, Migrations, head, needs_upgrade
from antwort.storage.sqlite.connection import config_errors, connect, create_file


def current(path: Path) -> str | None:
    """Return the revision of a database; None if it is new."""
    with config_errors(path):
        if not path.exists():
            return None
        with closing(connect(path)) as database:
            return _revision(database, path)


def prepare(path: Path, *, migrations: Migrations = MIGRATIONS) -> None:
    """Make a database fit for use at start; raise ConfigError if that cannot be."""
    if needs_upgrade(current(path), embedded=True, where=str(path), migrations=migrations):
        upgrade(path, migrations=migrations)


def upgrade(path: Path, *, migrations: Migrations = MIGRATIONS) -> None:
    """Create a database, or bring an older one to the newest revision."""
    with config_errors(path):
        create_file(path)
        with closing(connect(path)) as database:
            revision = _create(database, path, migrations)
            if needs_upgrade(revision, embedded=True, where=str(path), migrations=migrations):
                importlib.import_module("antwort.storage.schema.migrate").migrate(database, migrations.folder)


def _create(database: sqlite3.Connection, path: Path, migrations: Migrations) -> str:
    """Create the tables in an empty database and return the revision there is then."""
    script = (migrations.folder / "schema.sql").read_text(encoding="utf-8")
    if database.execute("PRAGMA page_count").fetchone() == (0,):
        database.execute("PRAGMA auto_vacuum = INCREMENTAL")  # a file can shrink only if it was made so
    database.execute("BEGIN IMMEDIATE")  # whoever creates them at the same time waits, and finds them
    try:
        revision = _revision(database, path)
        if revision is None:
            for statement in script.split(";\n"):
                database.execute(statement)
            revision = head(migrations)
            database.execute("INSERT INTO alembic_version (version_num) VALUES (?)", (revision,))
        database.execute("COMMIT")
    finally:
        if database.in_transaction:
            database.execute("ROLLBACK")
    return revision


def _revision(database: sqlite3.Connection, path: Path) -> str | None:
    tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not tables:
        return None
    if "alembic_version" in tables:
        row = database.execute("SELECT version_num FROM alembic_version").fetchone()
        if row is not None:
            return str(row[0])
    raise ConfigError(
        "The database belongs to another program: it has tables, but no revision of antwort. Use another file.",
        where=str(path),
    )
