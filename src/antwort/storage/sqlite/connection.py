"""Opening a SQLite database: the file, its settings, and what can be wrong with it, told to the operator."""

import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from antwort.config.defaults import STORAGE
from antwort.errors import ConfigError
from antwort.storage.sql.database import FEW, Row, insert_together
from antwort.storage.sqlite.reserve import is_full

Synchronous = Literal["normal", "full"]

CHECKPOINT_PAGES = 4000
"""Pages of the write-ahead log that are gathered before they go into the file: pages written often go there once."""
WAL_LIMIT = 64 * 1024**2
"""Bytes to which the write-ahead log shrinks again after a burst."""


def primary_code(error: sqlite3.Error) -> int | None:
    """Return SQLite's result code without the details in its upper bits; None for an error of the driver itself."""
    code = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


def found_disk_full(error: BaseException | None) -> bool:
    """Tell whether something failed because there is no room on the disk."""
    if isinstance(error, sqlite3.Error):
        # Where the log is shared, the memory for its index is part of the disk, too.
        code = getattr(error, "sqlite_errorcode", None)
        return primary_code(error) == sqlite3.SQLITE_FULL or code == sqlite3.SQLITE_IOERR_SHMSIZE
    return is_full(error)


@contextmanager
def config_errors(path: Path) -> Iterator[None]:
    """Turn whatever prevents a database from being opened into a ConfigError with the cure."""
    try:
        yield
    except sqlite3.Error as error:
        code = primary_code(error)
        if code in {None, sqlite3.SQLITE_ERROR}:  # a statement is wrong, not the database
            raise
        raise ConfigError(_full(error, path) or _cure(code, str(error)), where=str(path)) from error
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ConfigError(_full(error, path) or _cure(None, reason), where=str(path)) from error


def _full(error: sqlite3.Error | OSError, path: Path) -> str | None:
    """Return the cure if the disk is full, however the error calls that."""
    vague = isinstance(error, sqlite3.Error) and primary_code(error) in {sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN}
    if not found_disk_full(error) and not (vague and _has_no_room(path.parent)):
        return None
    return (
        f"The disk is full, and nothing is left of the room that was reserved on it ({error}). Make room on it: remove "
        "or move what is not of antwort, or enlarge it. Then start again, and delete what is not needed."
    )


def _has_no_room(folder: Path) -> bool:
    try:
        return os.statvfs(folder).f_bavail == 0
    except OSError:
        return False


def _cure(code: int | None, reason: str) -> str:
    if code in {sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT}:
        return (
            f"The database is damaged, or is none ({reason}). "
            "Restore it from a backup, or move it away to start with an empty one."
        )
    if code in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
        return f"The database is in use ({reason}). Stop the process that holds it."
    return (
        f"The database cannot be opened ({reason}). "
        "Let the server's user write to the file and its folder, or set 'data_dir' or 'storage.url'."
    )


def create_file(path: Path) -> None:
    """Create an empty database that only its owner can read, if there is none."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return
    try:
        if os.geteuid() == 0:
            # What root creates belongs to the owner of the folder, or a server run as that user could not write it.
            owner = path.parent.stat()
            with suppress(PermissionError):  # a root without that right, as in many containers, runs the server as well
                os.fchown(descriptor, owner.st_uid, owner.st_gid)
    finally:
        os.close(descriptor)


class SqliteDatabase(sqlite3.Connection):
    """A connection that inserts rows in the way that costs least."""

    def insert(self, sql: str, rows: Sequence[Row], /) -> None:
        """Insert rows: many with one statement, which SQLite needs a savepoint for; a few one by one."""
        if len(rows) >= FEW:
            insert_together(self, sql, rows)
        elif rows:
            self.executemany(sql, rows)

    def hold(self, _name: str, /) -> None:
        """Do nothing: nobody else writes meanwhile."""


def connect(path: Path, busy_timeout: float = STORAGE.busy_timeout) -> SqliteDatabase:
    """Open a database that exists. Transactions begin and end where the caller says so."""
    # A connection is used by one thread at a time, but not always by the one that opened it.
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=rw",
        uri=True,
        timeout=busy_timeout,
        isolation_level=None,
        check_same_thread=False,
        factory=SqliteDatabase,
    )


def open_writer(path: Path, synchronous: Synchronous, busy_timeout: float = STORAGE.busy_timeout) -> SqliteDatabase:
    """Open the connection that writes."""
    with _closed_on_error(connect(path, busy_timeout)) as database:
        if _turn_log_on(database) != "wal":
            raise ConfigError(
                "SQLite cannot keep a write-ahead log here. Put the database on a local disk.", where=str(path)
            )
        database.execute(f"PRAGMA synchronous = {'FULL' if synchronous == 'full' else 'NORMAL'}")
        database.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        database.execute(f"PRAGMA journal_size_limit = {WAL_LIMIT}")
        database.execute("PRAGMA foreign_keys = ON")
        return database


def open_reader(path: Path, busy_timeout: float = STORAGE.busy_timeout) -> SqliteDatabase:
    """Open a connection that only reads."""
    with _closed_on_error(connect(path, busy_timeout)) as database:
        database.execute("PRAGMA temp_store = MEMORY")
        database.execute("PRAGMA query_only = ON")
        return database


def _turn_log_on(database: sqlite3.Connection) -> str:
    """Turn the write-ahead log on and return the kind of log there is then."""
    deadline = time.monotonic() + STORAGE.busy_timeout
    while True:
        try:
            return str(database.execute("PRAGMA journal_mode = WAL").fetchone()[0])
        except sqlite3.OperationalError as error:
            # For this statement alone SQLite does not wait for others that open the database at the same time.
            if primary_code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
        time.sleep(0.01)


@contextmanager
def _closed_on_error(database: SqliteDatabase) -> Iterator[SqliteDatabase]:
    try:
        yield database
    except BaseException:
        database.close()
        raise
