"""What statements are executed on: a connection, as far as SQLite's and PostgreSQL's have the same face.

Statements are written for SQLite. Two comments in them mean something where several connections write at once: `LOCK`
keeps others from changing the rows a statement reads until the transaction ends, `SNAPSHOT` makes all statements of a
transaction see one state.
"""

import functools
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import chain
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from antwort.concurrency.undisturbed import undisturbed

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


Transaction = Callable[[Database], T]
"""Statements that are executed together, on a connection."""


class ReadRunner(Protocol):
    """Owns connections that read."""

    def run(self, transaction: Transaction[T], /) -> Awaitable[T]:
        """Return what a transaction returns."""

    async def close(self) -> None:
        """Do what waits, then close the connections."""


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

    async def close(self) -> None:
        """Do what waits, then close the connections."""


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


# --- from a method with statements to one that can be awaited --------------------------------------------------------
# A method marked with `reads`, `writes` or `deletes` takes the connection as its first argument, `database`. Its
# callers leave that out and await it.


P = ParamSpec("P")
S = TypeVar("S", bound="Transactions")


class Transactions:
    """Whoever has methods that are transactions.

    Values are encoded before such a method is called, not in it, so that a caller may change them meanwhile.
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
