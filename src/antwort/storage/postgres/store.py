"""The store on PostgreSQL: the same statements as on SQLite, on a few threads with a connection each."""

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from itertools import chain
from queue import Empty
from typing import Any, Self, TypeVar

import psycopg
from typing_extensions import override

from antwort.concurrency.peers import Letters
from antwort.config.defaults import STORAGE
from antwort.storage.postgres.connection import PostgresAddress, TimeLimits, config_errors, connect
from antwort.storage.postgres.letters import PostgresLetters
from antwort.storage.postgres.maintenance import prepare
from antwort.storage.postgres.session import Outage, PostgresSession, PostgresWork, changing, joined
from antwort.storage.schema.revisions import MIGRATIONS, Migrations
from antwort.storage.sql.database import (
    FEW,
    Change,
    Database,
    DatabaseJob,
    Insert,
    Row,
    Threads,
    Transaction,
    change_all,
    hand_back,
    insert_all,
    reads,
)
from antwort.storage.sql.store import Store

# --- threads, each with a connection of its own ----------------------------------------------------------------------


T = TypeVar("T")


class PostgresJob(DatabaseJob[T]):
    """A job with what the session has to know, and the key of its queue if it writes."""

    __slots__ = ("key", "work")

    def __init__(self, work: PostgresWork, key: str | None) -> None:
        super().__init__(work.transaction)
        self.work = work
        self.key = key


class PostgresThreads(Threads[PostgresSession, PostgresJob[Any]]):
    """Does transactions at the same time, but those that write with the same key one after the other, as they came.

    So the writes of one run keep their order, as they do on a database with a single writer.
    """

    def __init__(self, sessions: Sequence[PostgresSession], reconnect: float) -> None:
        self._reconnect = reconnect
        self._lock = threading.Lock()
        self._waiting: dict[str, deque[PostgresJob[Any]]] = {}
        """By key, the jobs behind the one that is queued or under way."""
        super().__init__("antwort-database", sessions)

    def read(self, transaction: Transaction[T]) -> asyncio.Future[T]:
        """Queue a transaction that only reads."""
        self._check_open()
        job: PostgresJob[T] = PostgresJob(PostgresWork(transaction, writes=False, deadline=self._deadline()), None)
        self._queue.put(job)
        return job.future

    def write(
        self, transaction: Transaction[T], key: str, *, repeatable: bool = True, is_statement: bool = False
    ) -> asyncio.Future[T]:
        """Queue a transaction that writes."""
        self._check_open()
        work = PostgresWork(
            transaction, writes=True, deadline=self._deadline(), repeatable=repeatable, is_statement=is_statement
        )
        job: PostgresJob[T] = PostgresJob(work, key)
        with self._lock:
            waiting = self._waiting.get(key)
            if waiting is None:
                self._waiting[key] = deque()
            else:
                waiting.append(job)
        if waiting is None:
            self._queue.put(job)
        return job.future

    def _deadline(self) -> float:
        return time.monotonic() + self._reconnect

    @override
    def _turn(self, connection: PostgresSession) -> bool:
        try:
            job = self._queue.get(timeout=connection.patience)
        except Empty:
            connection.close()
            return True
        if job is None:
            return False
        while job is not None:
            _do(connection, job)
            job = self._next(job.key)
        return True

    def _next(self, key: str | None) -> PostgresJob[Any] | None:
        """Return the next job with the same key: it is done right away, even if the pool is closed meanwhile."""
        if key is None:
            return None
        with self._lock:
            waiting = self._waiting[key]
            if waiting:
                return waiting.popleft()
            del self._waiting[key]
        return None

    @override
    def _end(self, connection: PostgresSession) -> None:
        connection.close()


def _do(session: PostgresSession, job: PostgresJob[Any]) -> None:
    try:
        job.value = session.do(job.work)
    except Exception as error:  # noqa: BLE001 - handed to the caller
        job.error = error
    hand_back([job])


# --- the store -------------------------------------------------------------------------------------------------------


LIMITS = TimeLimits()
_NOTIFY = "SELECT pg_notify(?, ?)"


class _Side:
    """The threads as one side of the store sees them; both sides share them."""

    def __init__(self, threads: PostgresThreads) -> None:
        self._threads = threads

    async def close(self) -> None:
        await self._threads.close()


class _Reader(_Side):
    def run(self, transaction: Transaction[T], /) -> asyncio.Future[T]:
        return self._threads.read(transaction)


class _Writer(_Side):
    def run(
        self,
        transaction: Transaction[T],
        key: str,
        /,
        *,
        repeatable: bool = True,
        frees: bool = False,  # noqa: ARG002 - the disk is the server's
    ) -> asyncio.Future[T]:
        return self._threads.write(transaction, key, repeatable=repeatable)

    def insert(self, inserts: Sequence[Insert], key: str, /) -> asyncio.Future[None]:
        """Insert few rows with one statement: BEGIN and COMMIT would cost as much as the rows."""
        counts = tuple((statement, len(rows)) for statement, rows in inserts if rows)
        if sum(count for _, count in counts) > FEW:
            return self._threads.write(lambda database: insert_all(database, inserts), key)
        statement = joined(counts)
        values = tuple(chain.from_iterable(row for _, rows in inserts for row in rows))
        return self._threads.write(lambda database: _execute(database, statement, values), key, is_statement=True)

    def change(self, change: Change, key: str, /) -> asyncio.Future[None]:
        """Change little with one statement."""
        counts = tuple((statement, len(rows)) for statement, rows in change.inserts if rows)
        if sum(count for _, count in counts) > FEW:
            return self._threads.write(lambda database: change_all(database, change), key)
        statement = changing(change.statement, counts)
        values = (*change.values, *chain.from_iterable(row for _, rows in change.inserts for row in rows))

        def changed(database: Database) -> None:
            try:
                database.execute(statement, values)
            except psycopg.errors.DivisionByZero:
                raise change.refused from None

        return self._threads.write(changed, key, is_statement=True)


def _execute(database: Database, statement: str, values: Row) -> None:
    database.execute(statement, values)


class PostgresStore(Store):
    """Keeps everything in a PostgreSQL database, which may serve several stores.

    What a call has stored when it returns is as safe as the server keeps it. While the server is away calls wait for
    it, up to `reconnect` seconds, then fail with a StoreUnavailableError.
    """

    is_shared = True
    _address: PostgresAddress

    @classmethod
    def open(
        cls,
        url: str,
        *,
        pool_size: int = STORAGE.pool_size,
        reconnect: float = STORAGE.reconnect,
        limits: TimeLimits = LIMITS,
        migrations: Migrations = MIGRATIONS,
    ) -> Self:
        """Open a database; raise ConfigError if it cannot be used. This blocks."""
        address, outage, limits = PostgresAddress.of(url), Outage(), limits.within(reconnect)
        with config_errors(address):
            prepare(url, migrations=migrations)
            first = connect(address, limits)
        sessions = [PostgresSession(address, limits, outage, first)]
        sessions += [PostgresSession(address, limits, outage) for _ in range(pool_size - 1)]
        threads = PostgresThreads(sessions, reconnect)
        store = cls(_Writer(threads), _Reader(threads))
        store._address = address
        return store

    @contextlib.asynccontextmanager
    @override
    async def letters(self) -> AsyncIterator[Letters | None]:
        letters = PostgresLetters(self._address, self._notify)
        letters.open()
        try:
            yield letters
        finally:
            await letters.close()

    @reads  # it writes to no table
    def _notify(self, database: Database, channel: str, text: str) -> None:
        database.execute(_NOTIFY, (channel, text)).fetchone()
