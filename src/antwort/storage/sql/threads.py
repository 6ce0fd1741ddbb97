"""Threads that own the connections of a database. Callers hand them jobs and wait for futures.

A job whose caller has given up (its task was cancelled) is done all the same, so that writes keep their order.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from antwort.errors import ServiceUnavailableError
from antwort.storage.sql.database import Transaction

logger = logging.getLogger(__name__)

_CLOSE_TIMEOUT = 5.0
"""Seconds that a database has to do what is queued when it is closed."""

T = TypeVar("T")
C = TypeVar("C")
Q = TypeVar("Q")


class DatabaseJob(Generic[T]):
    """A transaction, and the future of whoever waits for it."""

    __slots__ = ("error", "frees", "future", "transaction", "value")

    def __init__(self, transaction: Transaction[T], *, frees: bool = False) -> None:
        self.transaction = transaction
        self.frees = frees
        self.future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.value: Any = None
        self.error: Exception | None = None


class Threads(Generic[C, Q]):
    """Daemon threads, one for each connection, that work on one queue. None in the queue ends one of them."""

    def __init__(self, name: str, connections: Sequence[C]) -> None:
        self._queue: SimpleQueue[Q | None] = SimpleQueue()
        self._closed = False
        self._threads = [
            threading.Thread(target=self._main, args=(connection,), name=name, daemon=True)
            for connection in connections
        ]
        for thread in self._threads:
            thread.start()

    def _check_open(self) -> None:
        if self._closed:
            raise ServiceUnavailableError("The database is closed: the server is stopping.")

    async def close(self) -> None:
        """Do what is queued, then end the threads and close the connections.

        A database that does not answer is waited for only so long: what is queued then is nobody's any more, for
        whoever waits for a write was cancelled, and told so, before.
        """
        if not self._closed:
            self._closed = True
            for _ in self._threads:
                self._queue.put(None)
        await asyncio.to_thread(self._join)

    def _join(self) -> None:
        end = time.monotonic() + _CLOSE_TIMEOUT
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
        if any(thread.is_alive() for thread in self._threads):
            logger.warning("the database does not answer; its connections are left behind")

    def _main(self, connection: C) -> None:
        try:
            while self._turn(connection):
                pass  # a turn is a call of its own, so that nothing is kept alive while the thread waits
        finally:
            self._end(connection)

    def _turn(self, connection: C) -> bool:
        """Wait for something to do and do it; return False at the end."""
        raise NotImplementedError

    def _end(self, connection: C) -> None:
        """Close a connection."""
        raise NotImplementedError


def hand_back(jobs: Sequence[DatabaseJob[Any]]) -> None:
    """Wake those who wait, each event loop once."""
    waiting: dict[asyncio.AbstractEventLoop, list[DatabaseJob[Any]]] = {}
    for job in jobs:
        waiting.setdefault(job.future.get_loop(), []).append(job)
    for loop, group in waiting.items():
        with suppress(RuntimeError):  # the loop is closed, so nobody waits any more
            loop.call_soon_threadsafe(_resolve, group)


def _resolve(jobs: Sequence[DatabaseJob[Any]]) -> None:
    for job in jobs:
        if job.future.done():  # its caller has given up
            continue
        if job.error is None:
            job.future.set_result(job.value)
        else:
            job.future.set_exception(job.error)
