"""Giving the space of what was deleted back: to the file system, or to the database for new rows."""

import sqlite3
from contextlib import closing
from dataclasses import dataclass

from antwort.errors import ConfigError
from antwort.storage.sqlite.connection import config_errors, connect, primary_code
from antwort.storage.urls import is_postgres, postgres_module, sqlite_path

__all__ = ["Vacuumed", "vacuum"]


@dataclass(frozen=True, slots=True)
class Vacuumed:
    """What it came to, in bytes."""

    before: int
    after: int


def vacuum(url: str) -> Vacuumed:
    """Vacuum a database that is up to date; a ConfigError says what prevents it. This may take long.

    A SQLite file is written anew and becomes as small as it can be; whoever writes meanwhile waits. In PostgreSQL
    nobody waits, and the space is used again.
    """
    if is_postgres(url):
        return Vacuumed(*postgres_module().vacuum(url))
    path = sqlite_path(url)
    with config_errors(path), closing(connect(path)) as database:
        before = _size(database)
        try:
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
        return Vacuumed(before, _size(database))


def _size(database: sqlite3.Connection) -> int:
    (pages,), (size,) = (database.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "page_size"))
    return int(pages) * int(size)
