"""The threads of a SQLite database: one that writes, with group commit, and some that read."""

import asyncio
import copy
import logging
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, TypeVar

from typing_extensions import override

from antwort.errors import ConflictError
from antwort.storage.base import StoreUnavailableError
from antwort.storage.sql.database import Transaction
from antwort.storage.sql.threads import DatabaseJob, Threads, hand_back
from antwort.storage.sqlite.connection import primary_code

logger = logging.getLogger(__name__)

T = TypeVar("T")

LARGEST_GROUP = 256
"""Jobs that share a commit at most."""

_UNAVAILABLE = {
    sqlite3.SQLITE_BUSY: "another process holds it",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened",
    sqlite3.SQLITE_CORRUPT: "it is damaged",
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_IOERR: "the disk does not answer",
    sqlite3.SQLITE_LOCKED: "another process holds it",
    sqlite3.SQLITE_NOMEM: "there is no memory left",
    sqlite3.SQLITE_NOTADB: "it is damaged",
    sqlite3.SQLITE_PERM: "access is denied",
    sqlite3.SQLITE_PROTOCOL: "another process holds it",
    sqlite3.SQLITE_READONLY: "it is read-only",
}


class _SqliteThreads(Threads[sqlite3.Connection, DatabaseJob[Any]]):
    """Threads that own connections to SQLite."""

    def run(self, transaction: Transaction[T], _key: str = "", /, *, repeatable: bool = True) -> asyncio.Future[T]:  # noqa: ARG002
        """Queue a transaction; the future has its result, once that is safe. All are done in the order they came in."""
        self._check_open()
        job = DatabaseJob(transaction)
        self._queue.put(job)
        return job.future

    @override
    def _end(self, connection: sqlite3.Connection) -> None:
        connection.close()


class SqliteReaders(_SqliteThreads):
    """Threads that read, each on its own connection."""

    def __init__(self, databases: Sequence[sqlite3.Connection]) -> None:
        super().__init__("antwort-database-reader", databases)

    @override
    def _turn(self, connection: sqlite3.Connection) -> bool:
        job = self._queue.get()
        if job is None:
            return False
        try:
            job.value = job.transaction(connection)
        except Exception as error:  # noqa: BLE001 - handed to the caller
            job.error = _report(error)
        hand_back([job])
        return True


class SqliteWriter(_SqliteThreads):
    """The one thread that writes.

    What is queued while a commit runs shares the next one. A job that fails is undone alone.
    """

    def __init__(self, database: sqlite3.Connection) -> None:
        super().__init__("antwort-database-writer", [database])

    @override
    def _turn(self, connection: sqlite3.Connection) -> bool:
        jobs: list[DatabaseJob[Any]] = []
        job = self._queue.get()
        while job is not None:
            jobs.append(job)
            if self._queue.empty() or len(jobs) == LARGEST_GROUP:
                break
            job = self._queue.get()
        if jobs:
            _commit(connection, jobs)
            hand_back(jobs)
        return job is not None


def _commit(database: sqlite3.Connection, jobs: Sequence[DatabaseJob[Any]]) -> None:
    """Do jobs in one transaction and give each its value or its error."""
    attempt = _do if len(jobs) == 1 else _do_apart
    broken = False
    try:
        database.execute("BEGIN IMMEDIATE")
        for job in jobs:
            attempt(database, job)
        database.execute("COMMIT")
    except _BrokenError:
        broken = True
    except Exception as error:  # noqa: BLE001 - handed to the callers
        with suppress(sqlite3.Error):  # the transaction is gone in any case; the first error tells why
            database.execute("ROLLBACK")
        failure = _report(error)
        for job in jobs:
            job.error = failure if len(jobs) == 1 else copy.copy(failure)
    if broken:
        for job in jobs:
            job.error = None
            _commit(database, [job])


class _BrokenError(Exception):
    """SQLite has undone the whole transaction because of one job, as it does when the disk is full."""


def _do(database: sqlite3.Connection, job: DatabaseJob[Any]) -> None:
    job.value = job.transaction(database)


def _do_apart(database: sqlite3.Connection, job: DatabaseJob[Any]) -> None:
    database.execute("SAVEPOINT job")
    try:
        job.value = job.transaction(database)
    except Exception as error:
        if not database.in_transaction:
            raise _BrokenError from error
        database.execute("ROLLBACK TO job")
        job.error = _report(error)
    database.execute("RELEASE job")


def _report(error: Exception) -> Exception:
    """Log what concerns the operator of an error, and return what the caller shall see."""
    if isinstance(error, sqlite3.IntegrityError):
        return ConflictError("This is stored already.")
    reason = _UNAVAILABLE.get(primary_code(error) or 0) if isinstance(error, sqlite3.Error) else None
    if reason is None:
        return error
    logger.error("the database cannot be used: %s (%s)", reason, error)
    return StoreUnavailableError(f"The database cannot be used now: {reason}.")
