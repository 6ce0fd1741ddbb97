"""What is asked of a database, noted on the way to it."""

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, TypeVar

from antwort.storage.sql.database import Cursor, Database, ReadRunner, Row, Transaction
from antwort.storage.sql.store import Store

__all__ = ["Questions"]

T = TypeVar("T")


class Questions:
    """The side of a store that reads, with a note of each call and of each statement in it."""

    def __init__(self, reader: ReadRunner) -> None:
        self._reader = reader
        self.calls = 0
        self.statements: list[str] = []

    @classmethod
    def of(cls, store: object) -> "Questions":
        """Listen to a store from now on."""
        assert isinstance(store, Store)
        noted = cls(store._reader)
        store._reader = noted
        return noted

    def run(self, transaction: Transaction[T], /) -> Awaitable[T]:
        """Pass a call on."""
        self.calls += 1
        return self._reader.run(lambda database: transaction(_Noted(database, self.statements)))

    async def close(self) -> None:
        """Close the real one."""
        await self._reader.close()


class _Noted:
    def __init__(self, database: Database, statements: list[str]) -> None:
        self._database = database
        self._statements = statements

    def execute(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = (), /) -> Cursor:
        self._statements.append(sql)
        return self._database.execute(sql, parameters)

    def hold(self, name: str, /) -> None:
        self._database.hold(name)

    def insert(self, sql: str, rows: Sequence[Row], /) -> object:
        self._statements.append(sql)
        return self._database.insert(sql, rows)
