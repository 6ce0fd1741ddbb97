"""Maintenance of a SQLite database: its revision, and the space of what was deleted.

One that is up to date, and a new one, are dealt with in a few milliseconds. Only a database that has to be migrated
makes Alembic be imported.
"""

import errno
import importlib
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from antwort.errors import ConfigError
from antwort.storage.schema.revisions import MIGRATIONS, Migrations, head, needs_upgrade
from antwort.storage.sqlite.connection import config_errors, connect, create_file, found_disk_full, primary_code


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


COPY = "antwort.db"
"""The name of a copy."""
_PAGES = 4096
"""Pages that are copied between two words about it."""


@contextmanager
def snapshot(path: Path) -> Iterator["SqliteSnapshot"]:
    """Keep a database as it is at this moment, to be copied; others go on writing, which makes its log grow."""
    with config_errors(path):
        opened = connect(path)
    with closing(opened) as database:
        with config_errors(path):
            database.execute("BEGIN")  # as long as it lasts a copy has neither to begin anew nor to hurry
            revision = _revision(database, path)
        yield SqliteSnapshot(database, path, revision)


class SqliteSnapshot:
    """A database as it was at a moment."""

    kind = "sqlite"

    def __init__(self, database: sqlite3.Connection, path: Path, revision: str | None) -> None:
        self._database = database
        self._path = path
        self.revision = revision
        self.details: dict[str, object] = {}

    def write(self, folder: Path, tell: Callable[[int], None]) -> Path:
        """Write it into a folder as a file of its own, and see that the file is sound. This may take long."""
        copy = folder / COPY
        create_file(copy)
        size = int(self._database.execute("PRAGMA page_size").fetchone()[0])
        try:
            with closing(connect(copy)) as target:
                self._database.backup(target, pages=_PAGES, progress=lambda _, left, all_: tell((all_ - left) * size))
        except sqlite3.Error as error:
            if found_disk_full(error):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(copy)) from error
            raise
        check(copy, where=self._path)
        return copy


def check(path: Path, *, where: Path | None = None) -> None:
    """Read all of a database; ConfigError if it is damaged. It leaves one file, with nothing beside it."""
    with config_errors(where or path), closing(connect(path)) as database:
        found = str(database.execute("PRAGMA quick_check(1)").fetchone()[0])
        if found != "ok":
            raise ConfigError(
                f"The database is damaged ({found.splitlines()[0]}). Restore it from a backup.",
                where=str(where or path),
            )


def vacuum(path: Path) -> tuple[int, int]:
    """Write a database anew, as small as it can be, and return the bytes it takes, before and after.

    Whoever writes meanwhile waits.
    """
    with config_errors(path), closing(connect(path)) as database:
        before = _size(database)
        try:
            database.execute("PRAGMA auto_vacuum = INCREMENTAL")  # from now on the file can shrink on a full disk
            database.execute("VACUUM")
            # The new file is in the log still; what readers hold of it follows at a later checkpoint.
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except sqlite3.Error as error:
            if primary_code(error) == sqlite3.SQLITE_FULL:
                raise ConfigError(
                    f"There is not enough room to write the database anew: up to {before:,} bytes are needed, here and"
                    " in the folder for temporary files (SQLITE_TMPDIR).",
                    where=str(path),
                ) from error
            raise
        return before, _size(database)


def _size(database: sqlite3.Connection) -> int:
    (pages,), (size,) = (database.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "page_size"))
    return int(pages) * int(size)
