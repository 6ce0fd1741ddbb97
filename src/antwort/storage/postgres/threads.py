"""The threads of a PostgreSQL database, each with a connection of its own."""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Sequence
from queue import Empty
from typing import Any, TypeVar

from typing_extensions import override

from antwort.storage.postgres.session import PostgresSession, PostgresWork
from antwort.storage.sql.database import Transaction
from antwort.storage.sql.threads import DatabaseJob, Threads, hand_back

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
