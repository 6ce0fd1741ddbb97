"""Connections to PostgreSQL, kept and used again, and its errors as ours."""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

import psycopg

from antwort.provider import ConfigError, FunctionError
from antwort.providers.file_search.errors import NoCollection, VectorStoreUnavailable, WrongDimensions
from antwort.providers.file_search.vectors.pgvector.statements import Vector, VectorDumper

logger = logging.getLogger(__name__)

Connection = psycopg.AsyncConnection[tuple[Any, ...]]
T = TypeVar("T")

_EXPECTED = re.compile(r"expected (\d+) dimensions, not (\d+)")
_DIFFERENT = re.compile(r"different \w+ dimensions (\d+) and (\d+)")


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


class Pool:
    """Runs work in a transaction on one of a few connections."""

    def __init__(self, url: str, size: int, timeout: float) -> None:
        self._url = url
        self._timeout = timeout
        self._idle: list[Connection] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._places = asyncio.Semaphore(size)
        self._server = _server(url)

    async def run(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Do work in a transaction, all of it or nothing.

        A connection that was idle may have died meanwhile: then the work is done again on a new one, so it must be such
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
        except (psycopg.Error, UnicodeError) as error:  # the second for a host that no resolver takes
            raise self._meant(error) from None

    async def _run(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        async with self._places:
            while self._idle:
                connection = self._idle.pop()
                try:
                    return await self._use(connection, work)
                except psycopg.OperationalError:
                    if not connection.closed:
                        raise
            return await self._use(await self._connect(), work)

    async def close(self) -> None:
        """Give up the connections, when the work on them has ended."""
        await asyncio.gather(*self._tasks, return_exceptions=True)
        while self._idle:
            await self._idle.pop().close()

    async def _connect(self) -> Connection:
        connection: Connection = await psycopg.AsyncConnection.connect(
            self._url, autocommit=True, connect_timeout=max(2, int(self._timeout)), application_name="antwort"
        )
        connection.adapters.register_dumper(Vector, VectorDumper)
        milliseconds = str(int(self._timeout * 1000))
        try:
            await connection.execute("SELECT set_config('statement_timeout', %s, false)", [milliseconds])
        except BaseException:
            await connection.close()
            raise
        return connection

    async def _use(self, connection: Connection, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Do work; keep the connection unless it is broken or somebody stopped the work in the middle."""
        try:
            async with connection.transaction():
                result = await work(connection)
        except (psycopg.Error, FunctionError):
            if not connection.closed and not connection.broken:
                self._idle.append(connection)
            raise
        except BaseException:
            with suppress(psycopg.Error):
                await connection.close()
            raise
        self._idle.append(connection)
        return result

    def _meant(self, error: psycopg.Error | UnicodeError) -> FunctionError:
        message = str(error)
        if isinstance(error, psycopg.errors.UndefinedTable | psycopg.errors.InvalidSchemaName):
            return NoCollection("There is no such vector store.")
        if found := _EXPECTED.search(message) or _DIFFERENT.search(message):
            return WrongDimensions(int(found[1]), int(found[2]))
        logger.warning("vector database at %s: %s", self._server, message.splitlines()[0] if message else type(error))
        if isinstance(error, psycopg.errors.QueryCanceled):
            return self._unavailable("did not answer in time.")
        if isinstance(error, psycopg.OperationalError | UnicodeError):
            return self._unavailable("cannot be reached.")
        return self._unavailable("failed; the log says why.")

    def _unavailable(self, what: str) -> VectorStoreUnavailable:
        return VectorStoreUnavailable.at(self._server, "The vector database", what)
