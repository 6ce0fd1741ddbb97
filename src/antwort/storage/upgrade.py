"""The revision of a database: which it has, which it should have, and how it gets there.

A SQLite database that is up to date, and a new one, are dealt with here in a few milliseconds. Only a database that has
to be migrated makes Alembic be imported.
"""

import importlib
import sqlite3
from contextlib import closing
from pathlib import Path

from antwort.errors import ConfigError
from antwort.storage.schema.revisions import MIGRATIONS, Migrations, head, needs_upgrade
from antwort.storage.sqlite.connection import config_errors, connect, create_file
from antwort.storage.urls import is_postgres, postgres_module, sqlite_path

__all__ = ["MIGRATIONS", "Migrations", "current", "head", "needs_upgrade", "place", "prepare", "upgrade"]


def place(url: str) -> str:
    """Return where a database is, for people to read: no password is in it."""
    return str(postgres_module().place(url)) if is_postgres(url) else str(sqlite_path(url))


def current(url: str) -> str | None:
    """Return the revision of a database; None if it is new."""
    if is_postgres(url):
        revision: str | None = postgres_module().current(url)
        return revision
    path = sqlite_path(url)
    with config_errors(path):
        if not path.exists():
            return None
        with closing(connect(path)) as database:
            return _revision(database, path)


def prepare(url: str, *, migrations: Migrations = MIGRATIONS) -> None:
    """Make a SQLite database fit for use at start; raise ConfigError if that cannot be."""
    if needs_upgrade(current(url), embedded=True, where=str(sqlite_path(url)), migrations=migrations):
        upgrade(url, migrations=migrations)


def upgrade(url: str, *, migrations: Migrations = MIGRATIONS) -> None:
    """Create a database, or bring an older one to the newest revision."""
    if is_postgres(url):
        postgres_module().upgrade(url, migrations=migrations)
        return
    path = sqlite_path(url)
    with config_errors(path):
        create_file(path)
        with closing(connect(path)) as database:
            revision = _created(database, path, migrations)
            if needs_upgrade(revision, embedded=True, where=str(path), migrations=migrations):
                importlib.import_module("antwort.storage.schema.migrate").migrate(database, migrations.folder)


def _created(database: sqlite3.Connection, path: Path, migrations: Migrations) -> str:
    """Create the tables in an empty database and return the revision there is then."""
    script = (migrations.folder / "schema.sql").read_text(encoding="utf-8")
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
