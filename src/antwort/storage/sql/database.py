"""What statements are executed on: a connection, as far as SQLite's and PostgreSQL's have the same face.

Statements are written for SQLite. Two comments in them mean something where several connections write at once: `LOCK`
keeps others from changing the rows a statement reads until the transaction ends, `SNAPSHOT` makes all statements of a
transaction see one state.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
Row = tuple[Any, ...]

LOCK = "/* lock */"
SNAPSHOT = "/* snapshot */"

_BEGIN = f"BEGIN {SNAPSHOT}"


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

    def executemany(self, sql: str, parameters: Sequence[Row], /) -> object:
        """Execute a statement once for each row."""


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

    def run(self, transaction: Transaction[T], key: str, /, *, repeatable: bool = True) -> Awaitable[T]:
        """Return what a transaction returns, once it is stored.

        Those with the same key are done in the order in which they came. One is repeatable if it may be done again when
        nobody knows whether it was stored: then it changes nothing, or is a conflict.
        """

    async def close(self) -> None:
        """Do what waits, then close the connections."""


@contextmanager
def snapshot(database: Database) -> Iterator[None]:
    """Let several statements read from one state."""
    database.execute(_BEGIN)
    try:
        yield
    finally:
        database.execute("COMMIT")
