"""Where the server listens for workers: a port on loopback; its number and secret are in a file of the data folder."""

import asyncio
import contextlib
import errno
import hmac
import logging
import secrets
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from antwort.provider import APIError, FunctionError
from antwort.providers.file_search.ingestion import messages
from antwort.providers.file_search.ingestion.jobs import IngestionJobs, Work
from antwort.providers.file_search.ingestion.messages import ServerAddress, ServerAnswer, connect, receive, send
from antwort.providers.file_search.ingestion.queue import LostError

logger = logging.getLogger(__name__)

_REQUEST = msgspec.msgpack.Decoder(messages.Request)
_FIRST_BYTES = 4096
"""Of the first message: nobody knows yet who sends it."""


class WorkerListener:
    """Lets workers in, and answers what they ask for. A worker that leaves gives back what it has."""

    def __init__(self, jobs: IngestionJobs, file: Path) -> None:
        self._jobs = jobs
        self._file = file
        self._secret = secrets.token_urlsafe(32)
        self._server: asyncio.Server | None = None
        self._address: ServerAddress | None = None
        self._warned = False
        self._connections: set[asyncio.Task[None]] = set()
        self._counts: Counter[int] = Counter()
        """How many connections each worker has: as many files as it reads at once."""

    @property
    def workers(self) -> int:
        """How many workers are connected."""
        return len(self._counts)

    async def open(self) -> None:
        """Listen, and write down where; nothing happens if another process of the server does, or this one already.

        On a full disk it is not written: nobody comes until this is called again and there is room.
        """
        if self._address is not None or await _is_answered(self._file):
            return
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        address = ServerAddress(self._server.sockets[0].getsockname()[1], self._secret)
        try:
            await asyncio.to_thread(address.write, self._file)
        except OSError as error:
            if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
                raise
            if not self._warned:  # once, not with every attempt
                self._warned = True
                logger.warning("file search: no files are made searchable until there is room: %s", error.strerror)
            return
        self._address, self._warned = address, False

    async def close(self) -> None:
        """Listen no more, and send the workers away."""
        if self._server is not None:
            self._server.close()
        if self._address is not None:
            await asyncio.to_thread(self._address.remove, self._file)
        for connection in self._connections:
            connection.cancel()
        if self._connections:
            await asyncio.wait(self._connections)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.current_task()
        if connection is None:
            return
        self._connections.add(connection)
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, TimeoutError, ValueError):
                async with asyncio.timeout(messages.FIRST_SECONDS):
                    hello = _REQUEST.decode(await receive(reader, _FIRST_BYTES))
                if not isinstance(hello, messages.Hello) or not hmac.compare_digest(hello.secret, self._secret):
                    await send(writer, ServerAnswer(error="That is not the secret of this server."))
                    return
                await send(writer, ServerAnswer())
                self._count(hello.pid, 1)
                try:
                    await _WorkerConnection(self._jobs).serve(reader, writer)
                finally:
                    self._count(hello.pid, -1)
        except asyncio.CancelledError:
            pass  # the server stops
        finally:
            self._connections.discard(connection)
            writer.close()

    def _count(self, worker: int, change: int) -> None:
        self._counts[worker] += change
        if not self._counts[worker]:
            del self._counts[worker]
        self._jobs.queue.slots.resize(self._counts.total())


async def _is_answered(file: Path) -> bool:
    """Tell whether somebody listens where a file says."""
    try:
        _, writer = await connect(await asyncio.to_thread(ServerAddress.read, file))
    except (OSError, ValueError, asyncio.IncompleteReadError):
        return False
    writer.close()
    return True


class _WorkerConnection:
    """One worker, as long as it is connected."""

    def __init__(self, jobs: IngestionJobs) -> None:
        self._jobs = jobs
        self._work: Work | None = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer what the worker asks, one thing after the other."""
        try:
            while True:
                request = _REQUEST.decode(await receive(reader))
                await send(writer, await self._answered(request))
        finally:
            if (work := self._give_up_work()) is not None:
                await asyncio.shield(self._jobs.drop(work))

    def _give_up_work(self) -> Work | None:
        """Have no work any more; return what it was."""
        work, self._work = self._work, None
        if work is not None:
            self._jobs.give_back(work)
        return work

    async def _answered(self, request: messages.Request) -> ServerAnswer:
        try:
            return ServerAnswer(await self._answer(request))
        except LostError:
            self._give_up_work()
            return ServerAnswer(lost=True)
        except (FunctionError, APIError) as error:
            return ServerAnswer(error=str(error))
        except Exception:
            logger.exception("file search: what a worker asked for could not be done")
            return ServerAnswer(error="The server could not do it; its log says why.")

    async def _answer(self, request: messages.Request) -> Any:
        jobs = self._jobs
        if isinstance(request, messages.Claim):
            self._give_up_work()
            self._work = await jobs.claim(request.wait)
            return None if self._work is None else self._work.job
        if self._work is None:
            raise LostError
        work = self._work
        match request:
            case messages.Read(offset):
                return await jobs.read(work, offset)
            case messages.Cut(pages, checks, language):
                return await jobs.cut(work, pages, checks, language)
            case messages.Write(chunks, tokens):
                await jobs.write(work, chunks, tokens)
            case messages.Renew():
                await jobs.queue.renew(work.lent)
            case messages.Complete(places, headings, warnings):
                await jobs.complete(work, places, headings, warnings)
                self._give_up_work()
            case messages.Fail(code, message):
                await jobs.fail(work, code, message)
                self._give_up_work()
            case messages.Release(message, seconds):
                await jobs.release(work, message, seconds)
                self._give_up_work()
        return None
