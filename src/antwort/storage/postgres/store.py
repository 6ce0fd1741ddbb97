"""The store on PostgreSQL: the same statements as on SQLite, on a few threads with a connection each."""

import asyncio
from typing import Self, TypeVar

from antwort.storage.postgres.connection import Address, Limits, config_errors, connect
from antwort.storage.postgres.session import Outage, Session
from antwort.storage.postgres.threads import Pool
from antwort.storage.postgres.upgrade import prepare
from antwort.storage.schema.revisions import MIGRATIONS, Migrations
from antwort.storage.sql.database import Call
from antwort.storage.sql.store import SqlStore

__all__ = ["PostgresStore"]

T = TypeVar("T")
LIMITS = Limits()


class _Side:
    """The pool as one side of the store sees it; both sides share it."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def close(self) -> None:
        await self._pool.close()


class _Reader(_Side):
    def run(self, call: Call[T], /) -> asyncio.Future[T]:
        return self._pool.read(call)


class _Writer(_Side):
    def run(self, call: Call[T], key: str, /, *, repeatable: bool = True) -> asyncio.Future[T]:
        return self._pool.write(call, key, repeatable=repeatable)


class PostgresStore(SqlStore):
    """Keeps everything in a PostgreSQL database, which may serve several stores.

    What a call has stored when it returns is as safe as the server keeps it. While the server is away calls wait for
    it, up to `reconnect` seconds, then fail with a StoreUnavailableError.
    """

    @classmethod
    def open(
        cls,
        url: str,
        *,
        pool_size: int = 8,
        reconnect: float = 10.0,
        limits: Limits = LIMITS,
        migrations: Migrations = MIGRATIONS,
    ) -> Self:
        """Open a database; raise ConfigError if it cannot be used. This blocks."""
        address, outage = Address.of(url), Outage(patience=reconnect)
        with config_errors(address):
            prepare(url, migrations=migrations)
            first = connect(address, limits)
        sessions = [Session(address, limits, outage, first)]
        sessions += [Session(address, limits, outage) for _ in range(pool_size - 1)]
        pool = Pool(sessions, reconnect)
        return cls(_Writer(pool), _Reader(pool))
