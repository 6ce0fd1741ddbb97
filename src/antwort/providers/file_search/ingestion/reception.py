"""Where workers come to: a port on loopback, whose number and secret are in a file of the data folder."""

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
from antwort.providers.file_search.ingestion.desk import IngestionDesk, Work
from antwort.providers.file_search.ingestion.messages import Answer, Door, connect, receive, send
from antwort.providers.file_search.ingestion.queue import LostError

logger = logging.getLogger(__name__)

_REQUEST = msgspec.msgpack.Decoder(messages.Request)
_FIRST_BYTES = 4096
"""Of the first message: nobody knows yet who sends it."""


class Reception:
    """Lets workers in, and hands what they ask for to the desk. A worker that leaves gives back what it has."""

    def __init__(self, desk: IngestionDesk, file: Path) -> None:
        self._desk = desk
        self._file = file
        self._secret = secrets.token_urlsafe(32)
        self._server: asyncio.Server | None = None
        self._door: Door | None = None
        self._told = False
        self._visits: set[asyncio.Task[None]] = set()
        self._hands: Counter[int] = Counter()
        """How many connections each worker has: as many files as it reads at once."""

    @property
    def inside(self) -> int:
        """How many workers are connected."""
        return len(self._hands)

    async def open(self) -> None:
        """Listen, and write down where; nothing happens if another process of the server does, or this one already.

        On a full disk it is not written: nobody comes until this is called again and there is room.
        """
        if self._door is not None or await _is_answered(self._file):
            return
        if self._server is None:
            self._server = await asyncio.start_server(self._enter, "127.0.0.1", 0)
        door = Door(self._server.sockets[0].getsockname()[1], self._secret)
        try:
            await asyncio.to_thread(door.write, self._file)
        except OSError as error:
            if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
                raise
            if not self._told:  # once, not with every attempt
                self._told = True
                logger.warning("file search: no files are made searchable until there is room: %s", error.strerror)
            return
        self._door, self._told = door, False

    async def close(self) -> None:
        """Listen no more, and send the workers away."""
        if self._server is not None:
            self._server.close()
        if self._door is not None:
            await asyncio.to_thread(self._door.remove, self._file)
        for visit in self._visits:
            visit.cancel()
        if self._visits:
            await asyncio.wait(self._visits)

    async def _enter(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        visit = asyncio.current_task()
        if visit is None:
            return
        self._visits.add(visit)
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, TimeoutError, ValueError):
                async with asyncio.timeout(messages.FIRST_SECONDS):
                    hello = _REQUEST.decode(await receive(reader, _FIRST_BYTES))
                if not isinstance(hello, messages.Hello) or not hmac.compare_digest(hello.secret, self._secret):
                    await send(writer, Answer(error="That is not the secret of this server."))
                    return
                await send(writer, Answer())
                self._count(hello.pid, 1)
                try:
                    await _Visit(self._desk).serve(reader, writer)
                finally:
                    self._count(hello.pid, -1)
        except asyncio.CancelledError:
            pass  # the server stops
        finally:
            self._visits.discard(visit)
            writer.close()

    def _count(self, worker: int, change: int) -> None:
        self._hands[worker] += change
        if not self._hands[worker]:
            del self._hands[worker]
        self._desk.queue.slots.resize(self._hands.total())


async def _is_answered(file: Path) -> bool:
    """Tell whether somebody listens where a file says."""
    try:
        _, writer = await connect(await asyncio.to_thread(Door.read, file))
    except (OSError, ValueError, asyncio.IncompleteReadError):
        return False
    writer.close()
    return True


class _Visit:
    """One worker, as long as it is connected."""

    def __init__(self, desk: IngestionDesk) -> None:
        self._desk = desk
        self._work: Work | None = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer what the worker asks, one thing after the other."""
        try:
            while True:
                request = _REQUEST.decode(await receive(reader))
                await send(writer, await self._answered(request))
        finally:
            if (work := self._put_down()) is not None:
                await asyncio.shield(self._desk.drop(work))

    def _put_down(self) -> Work | None:
        """Have no work any more; return what it was."""
        work, self._work = self._work, None
        if work is not None:
            self._desk.queue.give_back(work.lent)
        return work

    async def _answered(self, request: messages.Request) -> Answer:
        try:
            return Answer(await self._answer(request))
        except LostError:
            self._put_down()
            return Answer(lost=True)
        except (FunctionError, APIError) as error:
            return Answer(error=str(error))
        except Exception:
            logger.exception("file search: what a worker asked for could not be done")
            return Answer(error="The server could not do it; its log says why.")

    async def _answer(self, request: messages.Request) -> Any:
        desk = self._desk
        if isinstance(request, messages.Claim):
            self._put_down()
            self._work = await desk.claim(request.wait)
            return None if self._work is None else self._work.job
        if self._work is None:
            raise LostError
        work = self._work
        match request:
            case messages.Read(offset):
                return await desk.read(work, offset)
            case messages.Write(chunks):
                await desk.write(work, chunks)
            case messages.Renew():
                await desk.queue.renew(work.lent)
            case messages.Complete(places, headings):
                await desk.complete(work, places, headings)
                self._put_down()
            case messages.Fail(code, message):
                await desk.fail(work, code, message)
                self._put_down()
            case messages.Release(message, seconds):
                await desk.release(work, message, seconds)
                self._put_down()
        return None
