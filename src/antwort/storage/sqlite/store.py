"""The store on SQLite: one thread that writes with group commit, a few that read, no SQL toolkit in between."""

import asyncio
import copy
import logging
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self, TypeAlias, TypeVar

from typing_extensions import override

from antwort.config.defaults import STORAGE
from antwort.errors import ConflictError
from antwort.storage.base import StoreFullError, StoreUnavailableError
from antwort.storage.schema.revisions import MIGRATIONS, Migrations
from antwort.storage.sql.database import (
    Change,
    Database,
    DatabaseJob,
    Insert,
    ReadRunner,
    Threads,
    Transaction,
    change_all,
    hand_back,
    insert_all,
    reads,
)
from antwort.storage.sql.store import Store, read_a_little
from antwort.storage.sqlite.connection import (
    SqliteDatabase,
    Synchronous,
    config_errors,
    create_file,
    found_disk_full,
    open_reader,
    open_writer,
    primary_code,
)
from antwort.storage.sqlite.maintenance import prepare
from antwort.storage.sqlite.reserve import DiskReserve
from antwort.storage.sqlite.room import empty_log, give_back, sparing

# --- threads: one that writes, with group commit, and some that read -------------------------------------------------


logger = logging.getLogger(__name__)

T = TypeVar("T")

LARGEST_GROUP = 256
"""Jobs that share a commit at most."""

_FULL = "the disk is full"
_FULL_FOR = 6.0
"""Seconds for which the disk counts as full after a write without room: whoever waits tries again within them."""
_UNAVAILABLE = {
    sqlite3.SQLITE_BUSY: "another process holds it",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened",
    sqlite3.SQLITE_CORRUPT: "it is damaged",
    sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_IOERR: "the disk does not answer",
    sqlite3.SQLITE_LOCKED: "another process holds it",
    sqlite3.SQLITE_NOMEM: "there is no memory left",
    sqlite3.SQLITE_NOTADB: "it is damaged",
    sqlite3.SQLITE_PERM: "access is denied",
    sqlite3.SQLITE_PROTOCOL: "another process holds it",
    sqlite3.SQLITE_READONLY: "it is read-only",
}


class _SqliteThreads(Threads[SqliteDatabase, list[DatabaseJob[Any]]]):
    """Threads that own connections to SQLite. What is queued is a group of jobs, so that a thread takes all of it."""

    def run(
        self,
        transaction: Transaction[T],
        _key: str = "",
        /,
        *,
        repeatable: bool = True,  # noqa: ARG002
        frees: bool = False,
    ) -> asyncio.Future[T]:
        """Queue a transaction; the future has its result, once that is safe. All are done in the order they came in."""
        self._check_open()
        job = DatabaseJob(transaction, frees=frees)
        self._enter(job)
        return job.future

    def _enter(self, job: DatabaseJob[Any]) -> None:
        self._queue.put([job])

    @override
    def _end(self, connection: SqliteDatabase) -> None:
        connection.close()


class SqliteReaders(_SqliteThreads):
    """Threads that read, each on its own connection."""

    def __init__(self, databases: Sequence[SqliteDatabase]) -> None:
        super().__init__("antwort-database-reader", databases)

    @override
    def _turn(self, connection: SqliteDatabase) -> bool:
        jobs = self._queue.get()
        if jobs is None:
            return False
        for job in jobs:
            try:
                job.value = job.transaction(connection)
            except Exception as error:  # noqa: BLE001 - handed to the caller
                job.error = _report(error)
        hand_back(jobs)
        return True


class SqliteWriter(_SqliteThreads):
    """The one thread that writes, in groups: most of what a small write costs is its commit, and waking the thread.

    What is to be written while the event loop comes round twice is queued together, and what is queued while a commit
    runs shares the next one. A job that fails is undone alone.

    When the disk is full, jobs that free room are done in that of the reserve, and what they free goes back.
    """

    def __init__(self, database: SqliteDatabase, reserve: DiskReserve | None = None) -> None:
        self._reserve = reserve
        self._short = False
        """A write has found the disk full, and nothing has been given back since."""
        self.full_until = 0.0
        """Until when, on the clock of `time.monotonic()`, the disk counts as full: a write had no room a moment ago."""
        self._gathered: list[DatabaseJob[Any]] = []
        self._gathering: asyncio.AbstractEventLoop | None = None
        """The loop that will queue what is gathered."""
        super().__init__("antwort-database-writer", [database])

    @override
    def _enter(self, job: DatabaseJob[Any]) -> None:
        loop = job.future.get_loop()
        if not self._gathered or loop is not self._gathering:  # a loop that was left keeps none from being queued
            self._gathering = loop
            # Responses that end together do so in this round of the loop, or in the next one.
            loop.call_soon(loop.call_soon, self._queue_gathered)
        self._gathered.append(job)

    def _queue_gathered(self) -> None:
        gathered, self._gathered = self._gathered, []
        self._queue.put(gathered)

    def insert(self, inserts: Sequence[Insert], key: str, /) -> asyncio.Future[None]:
        """Queue a transaction that only inserts."""
        return self.run(lambda database: insert_all(database, inserts), key)

    def change(self, change: Change, key: str, /) -> asyncio.Future[None]:
        """Queue a change."""
        return self.run(lambda database: change_all(database, change), key)

    @override
    async def close(self) -> None:
        self._queue_gathered()
        await super().close()

    @override
    def _turn(self, connection: SqliteDatabase) -> bool:
        jobs: list[DatabaseJob[Any]] = []
        group = self._queue.get()
        while group is not None:
            jobs += group
            if self._queue.empty() or len(jobs) >= LARGEST_GROUP:
                break
            group = self._queue.get()
        done = 0
        while done < len(jobs):
            count = _commit(connection, jobs[done : done + LARGEST_GROUP])
            self._look_after_room(connection, jobs[done : done + count])
            hand_back(jobs[done : done + count])  # the others may take long: each commit waits for who holds the file
            done += count
        return group is not None

    def _look_after_room(self, database: SqliteDatabase, jobs: Sequence[DatabaseJob[Any]]) -> None:
        """Do jobs again that met a full disk, with as much room as there can be, and give back what others free."""
        if _has_no_room(jobs):
            self._short = True
            empty_log(database)  # what the log holds has its place in the file for the most part
            _do_again(database, jobs)
            if _has_no_room(jobs):
                self.full_until = time.monotonic() + _FULL_FOR
        if not self._short or not any(job.frees for job in jobs):
            return
        freeing = [job for job in jobs if job.frees]
        with sparing(database):
            for _ in [0] if self._reserve is None else self._reserve.parts():
                _do_again(database, freeing)
                if give_back(database) and not _has_no_room(freeing):
                    break
        self._short = self._reserve is not None and not self._reserve.make()


def _has_no_room(jobs: Sequence[DatabaseJob[Any]]) -> bool:
    """Tell whether a job met a full disk."""
    return StoreFullError in {type(job.error) for job in jobs}


def _do_again(database: SqliteDatabase, jobs: Sequence[DatabaseJob[Any]]) -> None:
    """Do those again that met a full disk."""
    for job in jobs:
        if isinstance(job.error, StoreFullError):
            job.error = None
            _commit(database, [job])


def _commit(database: SqliteDatabase, jobs: Sequence[DatabaseJob[Any]]) -> int:
    """Do the first jobs in one transaction and give each its value or its error; return how many they are.

    If one fails they are those before it, which are done again without it; if that is the first, it alone.
    """
    try:
        database.execute("BEGIN IMMEDIATE")
        succeeded, failure = _do(database, jobs)
        if failure is None:
            database.execute("COMMIT")
            return succeeded
    except Exception as error:  # noqa: BLE001 - handed to the callers
        _roll_back(database)
        reported = _report(error)
        for job in jobs:
            job.error = reported if len(jobs) == 1 else copy.copy(reported)
        return len(jobs)
    _roll_back(database)
    if succeeded:
        return _commit(database, jobs[:succeeded])
    jobs[0].error = _report(failure)
    return 1


def _do(database: SqliteDatabase, jobs: Sequence[DatabaseJob[Any]]) -> tuple[int, Exception | None]:
    """Do jobs until one fails; return how many succeeded, and why the next one did not."""
    for number, job in enumerate(jobs):
        try:
            job.value = job.transaction(database)
        except Exception as error:  # noqa: BLE001 - handed to the caller
            return number, error
    return len(jobs), None


def _roll_back(database: SqliteDatabase) -> None:
    with suppress(sqlite3.Error):  # SQLite has undone it by itself, as it does when the disk is full
        database.execute("ROLLBACK")


def _reason(error: sqlite3.Error) -> str | None:
    return _FULL if found_disk_full(error) else _UNAVAILABLE.get(primary_code(error) or 0)


def _report(error: Exception) -> Exception:
    """Log what concerns the operator of an error, and return what the caller shall see."""
    if isinstance(error, sqlite3.IntegrityError):
        return ConflictError("This is stored already.")
    reason = _reason(error) if isinstance(error, sqlite3.Error) else None
    if reason is None:
        return error
    logger.error("the database cannot be used: %s (%s)", reason, error)
    kind = StoreFullError if reason == _FULL else StoreUnavailableError
    return kind(f"The database cannot be used now: {reason}.")


# --- the store -------------------------------------------------------------------------------------------------------


READERS = 2
_LARGE_TRIAL = f'"{"-" * 64 * 1024}"'

_Connections: TypeAlias = tuple[SqliteDatabase, Sequence[SqliteDatabase]]
"""The one that writes, and those that read."""


class SqliteStore(Store):
    """Keeps everything in one SQLite file.

    What a call has stored when it returns survives the death of the process; with `synchronous="full"` also that of
    the machine.
    """

    def __init__(self, writer: SqliteWriter, reader: ReadRunner, path: Path) -> None:
        super().__init__(writer, reader)
        self._disk_writer = writer
        self._path = path.absolute()

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        synchronous: Synchronous = STORAGE.synchronous,
        busy_timeout: float = STORAGE.busy_timeout,
        reserve: int = 0,
        migrations: Migrations = MIGRATIONS,
    ) -> Self:
        """Open a database, new or old; raise ConfigError if it cannot be used. This blocks for some milliseconds.

        `reserve` is how many bytes of the disk are kept for deletions, if it is full. They help here, too.
        """

        def connections() -> _Connections:
            prepare(path, migrations=migrations)
            return _connections(path, synchronous, busy_timeout)

        room = DiskReserve(path, reserve)
        with config_errors(path):
            create_file(path)
            writer, readers = _opened(room, connections)
        room.make()
        # The readers are closed first: the last connection to close writes the log into the file, which they cannot.
        return cls(SqliteWriter(writer, room), SqliteReaders(readers), path)

    @override
    @reads
    def ping(self, database: Database) -> None:
        try:
            # Connections that are open do not notice that the file is gone: they go on, and all is lost when they end.
            self._path.stat()
        except OSError as error:
            raise StoreUnavailableError("The database cannot be used now: its file is gone.") from error
        read_a_little(database)

    @property
    @override
    def trial(self) -> str:
        # A little may have room in what the log has already, when nothing that is worth storing has any.
        return _LARGE_TRIAL if time.monotonic() < self._disk_writer.full_until else super().trial


def _opened(room: DiskReserve, connections: Callable[[], _Connections]) -> _Connections:
    """Open connections; on a full disk in as much of the reserve as it takes, and empty the log then."""
    parts, is_short = room.parts(), False
    while True:
        try:
            opened = connections()
        except Exception as error:
            if not found_disk_full(error.__cause__ or error):
                raise
            is_short = True
            if next(parts, None) is None:
                room.make()
                raise
            continue
        while is_short and not empty_log(opened[0]) and next(parts, None) is not None:
            pass
        return opened


def _connections(path: Path, synchronous: Synchronous, busy_timeout: float) -> _Connections:
    """Open the connection that writes, and those that read."""
    with ExitStack() as opened:
        writer = open_writer(path, synchronous, busy_timeout)
        opened.callback(writer.close)
        readers = []
        for _ in range(READERS):
            readers.append(open_reader(path, busy_timeout))
            opened.callback(readers[-1].close)
        opened.pop_all()
    return writer, readers
