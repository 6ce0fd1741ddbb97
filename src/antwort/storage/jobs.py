"""Threads that own the connections of a SQLite database. Callers hand them jobs and wait for futures.

A job whose caller has given up (its task was cancelled) is done all the same, so that writes keep their order.
"""

import asyncio
import copy
import logging
import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from typing_extensions import override

from antwort.errors import ConflictError, ServiceUnavailableError
from antwort.storage.connections import primary_code

__all__ = ["Call", "Readers", "Writer"]

logger = logging.getLogger(__name__)

T = TypeVar("T")
Call = Callable[[sqlite3.Connection], T]

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


class Job(Generic[T]):
    """A call with a connection, and the future of whoever waits for it."""

    __slots__ = ("call", "error", "future", "value")

    def __init__(self, call: Call[T]) -> None:
        self.call = call
        self.future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.value: Any = None
        self.error: Exception | None = None


class _Threads:
    """Daemon threads, one for each connection, that work on one queue. None in the queue ends one of them."""

    def __init__(self, name: str, databases: Sequence[sqlite3.Connection]) -> None:
        self._queue: SimpleQueue[Job[Any] | None] = SimpleQueue()
        self._closed = False
        self._threads = [
            threading.Thread(target=self._main, args=(database,), name=name, daemon=True) for database in databases
        ]
        for thread in self._threads:
            thread.start()

    def run(self, call: Call[T]) -> asyncio.Future[T]:
        """Queue a call; the future has its result, once that is safe."""
        if self._closed:
            raise ServiceUnavailableError("The database is closed: the server is stopping.")
        job = Job(call)
        self._queue.put(job)
        return job.future

    async def close(self) -> None:
        """Do what is queued, then end the threads and close the connections."""
        if not self._closed:
            self._closed = True
            for _ in self._threads:
                self._queue.put(None)
        await asyncio.to_thread(self._join)

    def _join(self) -> None:
        for thread in self._threads:
            thread.join()

    def _main(self, database: sqlite3.Connection) -> None:
        try:
            while self._turn(database):
                pass  # a turn is a call of its own, so that nothing is kept alive while the thread waits
        finally:
            database.close()

    def _turn(self, database: sqlite3.Connection) -> bool:
        """Wait for something to do and do it; return False at the end."""
        raise NotImplementedError


class Readers(_Threads):
    """Threads that read, each on its own connection."""

    def __init__(self, databases: Sequence[sqlite3.Connection]) -> None:
        super().__init__("antwort-database-reader", databases)

    @override
    def _turn(self, database: sqlite3.Connection) -> bool:
        job = self._queue.get()
        if job is None:
            return False
        try:
            job.value = job.call(database)
        except Exception as error:  # noqa: BLE001 - handed to the caller
            job.error = _translated(error)
        _hand_back([job])
        return True


class Writer(_Threads):
    """The one thread that writes.

    What is queued while a commit runs shares the next one. A job that fails is undone alone.
    """

    def __init__(self, database: sqlite3.Connection) -> None:
        super().__init__("antwort-database-writer", [database])

    @override
    def _turn(self, database: sqlite3.Connection) -> bool:
        jobs: list[Job[Any]] = []
        job = self._queue.get()
        while job is not None:
            jobs.append(job)
            if self._queue.empty() or len(jobs) == LARGEST_GROUP:
                break
            job = self._queue.get()
        if jobs:
            _commit(database, jobs)
            _hand_back(jobs)
        return job is not None


def _commit(database: sqlite3.Connection, jobs: Sequence[Job[Any]]) -> None:
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
        failure = _translated(error)
        for job in jobs:
            job.error = failure if len(jobs) == 1 else copy.copy(failure)
    if broken:
        for job in jobs:
            job.error = None
            _commit(database, [job])


class _BrokenError(Exception):
    """SQLite has undone the whole transaction because of one job, as it does when the disk is full."""


def _do(database: sqlite3.Connection, job: Job[Any]) -> None:
    job.value = job.call(database)


def _do_apart(database: sqlite3.Connection, job: Job[Any]) -> None:
    database.execute("SAVEPOINT job")
    try:
        job.value = job.call(database)
    except Exception as error:
        if not database.in_transaction:
            raise _BrokenError from error
        database.execute("ROLLBACK TO job")
        job.error = _translated(error)
    database.execute("RELEASE job")


def _translated(error: Exception) -> Exception:
    """Return what the caller shall see of an error; log what concerns the operator."""
    if isinstance(error, sqlite3.IntegrityError):
        return ConflictError("This is stored already.")
    reason = _UNAVAILABLE.get(primary_code(error) or 0) if isinstance(error, sqlite3.Error) else None
    if reason is None:
        return error
    logger.error("the database cannot be used: %s (%s)", reason, error)
    return ServiceUnavailableError(f"The database cannot be used now: {reason}.")


def _hand_back(jobs: Sequence[Job[Any]]) -> None:
    """Wake those who wait, each event loop once."""
    waiting: dict[asyncio.AbstractEventLoop, list[Job[Any]]] = {}
    for job in jobs:
        waiting.setdefault(job.future.get_loop(), []).append(job)
    for loop, group in waiting.items():
        with suppress(RuntimeError):  # the loop is closed, so nobody waits any more
            loop.call_soon_threadsafe(_resolve, group)


def _resolve(jobs: Sequence[Job[Any]]) -> None:
    for job in jobs:
        if job.future.done():  # its caller has given up
            continue
        if job.error is None:
            job.future.set_result(job.value)
        else:
            job.future.set_exception(job.error)
