"""Giving the space of what was deleted back, in SQLite: to the file system."""

import sqlite3
from contextlib import closing
from pathlib import Path

from antwort.errors import ConfigError
from antwort.storage.sqlite.connection import config_errors, connect, primary_code


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
