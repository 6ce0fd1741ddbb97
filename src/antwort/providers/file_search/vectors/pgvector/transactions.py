"""Transactions on a pool of connections to PostgreSQL, and its errors as ours."""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Self, TypeVar

import psycopg
from psycopg_pool import AsyncConnectionPool
from typing_extensions import override

from antwort.extensions import NoCollection, VectorStoreUnavailable, WrongDimensions
from antwort.provider import ConfigError, FunctionError
from antwort.providers.file_search.vectors.pgvector.statements import Vector, VectorDumper

logger = logging.getLogger(__name__)

T = TypeVar("T")

_EXPECTED = re.compile(r"expected (\d+) dimensions, not (\d+)")
_DIFFERENT = re.compile(r"different \w+ dimensions (\d+) and (\d+)")
_GIVE_UP = 1.0
"""Seconds after which the pool stops trying to connect by itself; whoever comes next lets it try again."""


class VectorConnection(psycopg.AsyncConnection[tuple[Any, ...]]):
    """A connection that takes vectors. It is `fresh` until it has been used once."""

    fresh = True

    @classmethod
    @override
    async def connect(cls, conninfo: str = "", **options: Any) -> Self:
        """Connect, within the limits that the pool has for it."""
        limit, tell = options.pop("limit"), options.pop("tell")
        try:
            connection = await super().connect(conninfo, **options)
        except (psycopg.Error, OSError, UnicodeError) as error:  # the last for a host that no resolver takes
            tell(error)
            raise
        connection.adapters.register_dumper(Vector, VectorDumper)
        try:
            await connection.execute("SELECT set_config('statement_timeout', %s, false)", [limit])
        except BaseException as error:
            tell(error)
            await connection.close()
            raise
        return connection


class PooledTransactions:
    """Runs work in a transaction on one of a few connections."""

    def __init__(self, url: str, size: int, timeout: float) -> None:
        self._timeout = timeout
        self._server = _server(url)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._waiting: set[asyncio.Future[None]] = set()
        """Those who wait for a connection, each to be told if there is none."""
        self._opened = False
        self._pool = AsyncConnectionPool(
            url,
            connection_class=VectorConnection,
            kwargs={
                "autocommit": True,
                "connect_timeout": max(2, int(timeout)),
                "application_name": "antwort",
                "limit": str(int(timeout * 1000)),
                "tell": self._tell,
            },
            min_size=0,
            max_size=size,
            timeout=2 * timeout,
            reconnect_timeout=_GIVE_UP,
            open=False,
        )

    async def run(self, work: Callable[[VectorConnection], Awaitable[T]]) -> T:
        """Do work in a transaction, all of it or nothing.

        A connection that was idle may have died meanwhile: then the work is done again on another, so it must be such
        that twice is as good as once.
        """
        task = asyncio.create_task(self._run(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            done, _ = await asyncio.wait({task}, timeout=2 * self._timeout)
        except asyncio.CancelledError:
            task.cancel()
            raise
        if not done:
            # It ends when it can: to a server that stands still even the cancellation takes long.
            task.cancel()
            raise self._unavailable("did not answer in time.")
        try:
            return task.result()
        except (psycopg.Error, OSError, UnicodeError) as error:
            raise self._meant(error) from None

    async def _run(self, work: Callable[[VectorConnection], Awaitable[T]]) -> T:
        if not self._opened:
            self._opened = True
            await self._pool.open()
        while True:
            connection = await self._connection()
            is_fresh, connection.fresh = connection.fresh, False
            try:
                return await self._use(connection, work)
            except psycopg.OperationalError:
                if is_fresh or not connection.closed:
                    raise

    async def close(self) -> None:
        """Give up the connections, when the work on them has ended."""
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._pool.close()

    async def _connection(self) -> VectorConnection:
        """Wait for a connection; raise what is wrong if there is none to be had. The pool would just try again."""
        told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        getting = asyncio.create_task(self._pool.getconn())
        self._waiting.add(told)
        try:
            first: set[asyncio.Future[Any]] = {told, getting}
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
            if not getting.done():
                await told
            return await getting
        except BaseException:
            getting.cancel()
            await asyncio.wait({getting})
            if not getting.cancelled() and getting.exception() is None:
                await self._pool.putconn(getting.result())
            raise
        finally:
            self._waiting.discard(told)
            if not told.cancel():
                told.exception()  # seen, even if a connection came first

    def _tell(self, error: BaseException) -> None:
        """Tell those who wait why they get no connection."""
        for one in self._waiting:
            if not one.done():
                one.set_exception(error if isinstance(error, Exception) else psycopg.OperationalError(str(error)))

    async def _use(self, connection: VectorConnection, work: Callable[[VectorConnection], Awaitable[T]]) -> T:
        """Do work, and give the connection back: closed if somebody stopped the work in the middle."""
        try:
            async with connection.transaction():
                return await work(connection)
        except (psycopg.Error, FunctionError):
            raise
        except BaseException:
            with suppress(psycopg.Error):
                await connection.close()
            raise
        finally:
            await self._pool.putconn(connection)

    def _meant(self, error: psycopg.Error | OSError | UnicodeError) -> FunctionError:
        message = str(error)
        if isinstance(error, psycopg.errors.UndefinedTable | psycopg.errors.InvalidSchemaName):
            return NoCollection("There is no such vector store.")
        if found := _EXPECTED.search(message) or _DIFFERENT.search(message):
            return WrongDimensions(int(found[1]), int(found[2]))
        logger.warning("vector database at %s: %s", self._server, message.splitlines()[0] if message else type(error))
        if isinstance(error, psycopg.errors.QueryCanceled):
            return self._unavailable("did not answer in time.", away=True)
        if isinstance(error, psycopg.OperationalError | OSError | UnicodeError):
            return self._unavailable("cannot be reached.", away=True)
        return self._unavailable("failed; the log says why.")

    def _unavailable(self, what: str, *, away: bool = False) -> VectorStoreUnavailable:
        failure = VectorStoreUnavailable.at(self._server, "The vector database", what)
        failure.away = away
        return failure


def _server(url: str) -> str:
    """Return the host and the port that a URL names, to be shown; ConfigError if it cannot be read."""
    try:
        parts = psycopg.conninfo.conninfo_to_dict(url)
    except psycopg.Error:  # its message may have the password in it
        raise ConfigError("'pgvector.url' cannot be read; it must look like postgresql://user@host/database") from None
    host, port = str(parts.get("host") or "localhost"), parts.get("port")
    if host.startswith("/") or port is None:  # a folder with a socket, or the usual port
        return host
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
