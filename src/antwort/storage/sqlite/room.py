"""Giving room of a database back to a disk that is full."""

import logging
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from antwort.storage.sqlite.connection import found_disk_full

logger = logging.getLogger(__name__)

_STEP = 256
"""Pages that are given back in one transaction: so few that they stay in memory, and are not written before they go."""
_STEPS = 128
"""Transactions that others wait for: with pages of 4 KiB, they give 128 MiB back."""


def give_back(database: sqlite3.Connection) -> bool:
    """Make the file as small as it can be in a moment, and empty the log; return False if more room helps with it.

    A database that was made before files could shrink keeps its size until it is vacuumed; new rows go into the pages
    that are free.
    """
    missed = False
    try:
        steps = _STEPS if database.execute("PRAGMA auto_vacuum").fetchone()[0] else 0
        while steps and database.execute("PRAGMA freelist_count").fetchone()[0]:
            database.executescript(f"PRAGMA incremental_vacuum({_STEP})")  # `execute` would give one page back
            steps -= 1
    except sqlite3.Error as error:
        logger.warning("the file of the database stays as large as it is: %s", error)
        missed = found_disk_full(error)
    return empty_log(database) and not missed


def empty_log(database: sqlite3.Connection) -> bool:
    """Write what the log holds into the file, as far as nobody reads it, and cut it off; return False without room."""
    try:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    except sqlite3.Error as error:
        logger.warning("the log of the database stays as large as it is: %s", error)
        return not found_disk_full(error)
    return True


@contextmanager
def sparing(database: sqlite3.Connection) -> Iterator[None]:
    """Let deletions write little meanwhile.

    Some builds of SQLite overwrite what is deleted, so they write as much. And the log must not go into the file before
    that is made smaller: pages at its end, which are deleted, would be written first.
    """
    pragmas = ("secure_delete", "wal_autocheckpoint")
    before = {name: database.execute(f"PRAGMA {name}").fetchone()[0] for name in pragmas}
    for name in pragmas:
        database.execute(f"PRAGMA {name} = 0").fetchone()
    try:
        yield
    finally:
        for name, value in before.items():
            database.execute(f"PRAGMA {name} = {value}").fetchone()
