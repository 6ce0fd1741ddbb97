"""The store on PostgreSQL: the same statements as on SQLite, on a few threads with a connection each."""

import asyncio
from collections.abc import Sequence
from itertools import chain
from typing import Self, TypeVar

from antwort.config.defaults import STORAGE
from antwort.storage.postgres.connection import PostgresAddress, TimeLimits, config_errors, connect
from antwort.storage.postgres.dialect import joined
from antwort.storage.postgres.maintenance import prepare
from antwort.storage.postgres.session import Outage, PostgresSession
from antwort.storage.postgres.threads import PostgresThreads
from antwort.storage.schema.revisions import MIGRATIONS, Migrations
from antwort.storage.sql.database import FEW, Database, Insert, Row, Transaction, insert_all
from antwort.storage.sql.store import Store

T = TypeVar("T")
LIMITS = TimeLimits()


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


def _execute(database: Database, statement: str, values: Row) -> None:
    database.execute(statement, values)


class PostgresStore(Store):
    """Keeps everything in a PostgreSQL database, which may serve several stores.

    What a call has stored when it returns is as safe as the server keeps it. While the server is away calls wait for
    it, up to `reconnect` seconds, then fail with a StoreUnavailableError.
    """

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
        return cls(_Writer(threads), _Reader(threads))
