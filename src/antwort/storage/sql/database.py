"""What statements are executed on: a connection, as far as SQLite's and PostgreSQL's are used alike, on a thread.

Statements are written for SQLite. Two comments in them mean something where several connections write at once: `LOCK`
keeps others from changing the rows a statement reads until the transaction ends, `SNAPSHOT` makes all statements of a
transaction see one state.
"""

import asyncio
import functools
import logging
import re
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from itertools import chain
from queue import SimpleQueue
from typing import Any, Concatenate, Generic, NamedTuple, ParamSpec, Protocol, TypeVar

from antwort.concurrency.undisturbed import undisturbed
from antwort.errors import ServiceUnavailableError

logger = logging.getLogger(__name__)

T = TypeVar("T")
Row = tuple[Any, ...]
Insert = tuple[str, Sequence[Row]]
"""A statement that inserts one row, and the rows that are inserted like that."""

LOCK = "/* lock */"
SNAPSHOT = "/* snapshot */"

_BEGIN = f"BEGIN {SNAPSHOT}"
FEW, MANY = 8, 32
"""Rows that one statement inserts: up to the first number, or just the second, so that there are few texts."""
_VALUES = re.compile(r"VALUES (\([?, ]+\))")


class Cursor(Protocol):
    """What a statement came to."""

    @property
    def rowcount(self) -> int:
        """How many rows were changed."""

    def fetchone(self) -> Any:
        """Return the next row, None if there is none."""

    def fetchall(self) -> list[Any]:
        """Return the rows that are left."""


class Database(Protocol):
    """A connection."""

    def execute(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ..., /) -> Cursor:
        """Execute a statement."""

    def insert(self, sql: str, rows: Sequence[Row], /) -> object:
        """Insert rows, each as the statement does one, in as few statements as it takes."""

    def hold(self, name: str, /) -> None:
        """Keep others out who hold the same name, until the transaction ends."""


Transaction = Callable[[Database], T]
"""Statements that are executed together, on a connection."""


class ReadRunner(Protocol):
    """Owns connections that read."""

    def run(self, transaction: Transaction[T], /) -> Awaitable[T]:
        """Return what a transaction returns."""

    async def close(self) -> None:
        """Do what waits, then close the connections."""


class Change(NamedTuple):
    """An update of one row, and inserts that are done if there was such a row."""

    statement: str
    values: Row
    inserts: Sequence[Insert]
    refused: Exception
    """What is raised if there was none."""


class WriteRunner(Protocol):
    """Owns connections that write."""

    def run(
        self, transaction: Transaction[T], key: str, /, *, repeatable: bool = True, frees: bool = False
    ) -> Awaitable[T]:
        """Return what a transaction returns, once it is stored.

        Those with the same key are done in the order in which they came. One is repeatable if it may be done again when
        nobody knows whether it was stored: then it changes nothing, or is a conflict. One that frees room is done on a
        full disk, too, as far as that is possible.
        """

    def insert(self, inserts: Sequence[Insert], key: str, /) -> Awaitable[None]:
        """Do a transaction that only inserts, and can be repeated: if it is small, in one statement if there is a way.

        None of its statements may depend on what another one has inserted, but for foreign keys.
        """

    def change(self, change: Change, key: str, /) -> Awaitable[None]:
        """Do a change, which can be repeated: if it is small, in one statement if there is a way."""

    async def close(self) -> None:
        """Do what waits, then close the connections."""


def change_all(database: Database, change: Change) -> None:
    """Do a change, one statement after the other."""
    if database.execute(change.statement, change.values).rowcount == 0:
        raise change.refused
    insert_all(database, change.inserts)


def insert_all(database: Database, inserts: Sequence[Insert]) -> None:
    """Do one insert after the other."""
    for statement, rows in inserts:
        database.insert(statement, rows)


def insert_together(database: Database, statement: str, rows: Sequence[Row]) -> None:
    """Insert rows, several with one statement."""
    start = 0
    while start < len(rows):
        left = len(rows) - start
        count = MANY if left >= MANY else min(left, FEW)
        database.execute(for_rows(statement, count), tuple(chain(*rows[start : start + count])))
        start += count


@lru_cache
def for_rows(statement: str, count: int) -> str:
    """Return a statement that inserts so many rows in place of one."""
    return _VALUES.sub(lambda found: f"VALUES {', '.join([found[1]] * count)}", statement)


@contextmanager
def snapshot(database: Database) -> Iterator[None]:
    """Let several statements read from one state."""
    database.execute(_BEGIN)
    try:
        yield
    finally:
        database.execute("COMMIT")


# --- threads that own connections ------------------------------------------------------------------------------------
# Callers hand them jobs and wait for futures. A job whose caller has given up, since its task was cancelled, is done
# all the same, so that writes keep their order.


C = TypeVar("C")
Q = TypeVar("Q")
_CLOSE_TIMEOUT = 5.0
"""Seconds that a database has to do what is queued when it is closed."""


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


# --- from a method with statements to one that can be awaited --------------------------------------------------------
# A method marked with `reads`, `writes` or `deletes` takes the connection as its first argument, `database`. Its
# callers leave that out and await it.


P = ParamSpec("P")
S = TypeVar("S", bound="Transactions")


class Transactions:
    """Whoever has methods that are transactions.

    Values are encoded, or copied, before such a method is called, not in it, so that a caller may change them
    meanwhile.
    """

    def __init__(self, writer: WriteRunner, reader: ReadRunner) -> None:
        self._writer = writer
        self._reader = reader


def reads(method: Callable[Concatenate[S, Database, P], T]) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """Make a method that only reads a transaction."""

    @functools.wraps(method)
    async def transaction(self: S, /, *args: P.args, **options: P.kwargs) -> T:
        return await self._reader.run(lambda database: method(self, database, *args, **options))

    return transaction


def writes(
    method: Callable[Concatenate[S, Database, str, str, P], T], *, repeatable: bool = True, frees: bool = False
) -> Callable[Concatenate[S, str, str, P], Coroutine[Any, Any, T]]:
    """Make a method that writes a transaction. Its first arguments are the tenant and the id of what it writes.

    What is written under one id is written in the order of the calls. The method may be called again when nobody knows
    whether its transaction was stored: then it changes nothing, or is a conflict. Whoever is cancelled meanwhile waits
    for its end, undisturbed, and is cancelled then, also if it failed.
    """

    @functools.wraps(method)
    async def transaction(self: S, tenant: str, name: str, /, *args: P.args, **options: P.kwargs) -> T:
        return await undisturbed(
            self._writer.run(
                lambda database: method(self, database, tenant, name, *args, **options),
                name,
                repeatable=repeatable,
                frees=frees,
            )
        )

    return transaction


def writes_once(
    method: Callable[Concatenate[S, Database, str, str, P], T],
) -> Callable[Concatenate[S, str, str, P], Coroutine[Any, Any, T]]:
    """Do as `writes`, but for a method that must not be called again when nobody knows whether it was stored."""
    return writes(method, repeatable=False)


def deletes(
    method: Callable[Concatenate[S, Database, str, str, P], T],
) -> Callable[Concatenate[S, str, str, P], Coroutine[Any, Any, T]]:
    """Do as `writes`, for a method that deletes: it works on a full disk, too."""
    return writes(method, frees=True)
