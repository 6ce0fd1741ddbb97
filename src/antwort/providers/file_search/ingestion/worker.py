"""A worker: fetches files from the server, reads, cuts and embeds them, and hands their chunks back."""

import asyncio
import contextlib
import logging
import math
from array import array
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from antwort.provider import Document, DocumentChunk, DocumentParser, Queues, Slots, UnreadableError, chunked
from antwort.providers.file_search.embedding.base import EmbeddingClient
from antwort.providers.file_search.errors import EmbeddingUnavailable
from antwort.providers.file_search.ingestion import messages
from antwort.providers.file_search.ingestion.messages import Answer, Door, Job, NewChunk, connect, receive, send

logger = logging.getLogger(__name__)

_BATCH = 4
"""Chunks that are embedded and written at once: the server does nothing else while it reads their vectors."""
_TURN = 4000
"""Characters that are embedded at once, or one chunk, if others may wait for it: a second or two of one processor."""
_PARSERS = 2
"""Files that are read at once: each may take a gibibyte of memory."""
_RENEW = 1.0
"""Seconds after which the server is told that the work goes on, and asked whether it still wants it."""
_AGAIN = 1.0
"""Seconds between attempts to reach the server."""
_LATER = 10.0
"""Seconds after which a job is tried again that could not be done for a reason that may pass."""
_WAIT = 10.0
_LARGEST = 512 << 20


class LostJobError(Exception):
    """The job is somebody else's now, or nobody's."""


class ServerError(Exception):
    """The server could not do what it was asked."""


class IngestionLimits(Struct, frozen=True):
    """What one file may take, and how many are worked on at once."""

    files: int = 3
    chunks: int = 10_000
    seconds: float = 7200.0


class IngestionWorker:
    """Works for the server whose door is described in a file, as long as it is told to.

    It has several hands, each with a file of its own. What they share, tenants take turns at: reading, which goes on in
    processes apart, and embedding, a few chunks at a time. So a large file, or one that takes long to read, does not
    hold up others. With `idle`, it ends when there was nothing to do, or no server, for so many seconds.
    """

    def __init__(
        self,
        door: Path,
        embedding: EmbeddingClient,
        parser: DocumentParser,
        limits: IngestionLimits | None = None,
        *,
        idle: float | None = None,
    ) -> None:
        self._door = door
        self._embedding = embedding
        self._parser = parser
        self._limits = limits or IngestionLimits()
        self._idle = idle
        self._queues = Queues(several=False)
        self._parsing = Slots(_PARSERS, self._queues.named("parsers", bounded=False))
        self._embedded_at_once = Slots(1, self._queues.named("embedding", bounded=False))
        self._busy = 0
        self._last = 0.0
        """When there was something to do last, or a server that had nothing."""
        self._away = logging.INFO

    async def run(self) -> None:
        """Work; a server that is away is waited for."""
        self._last = asyncio.get_running_loop().time()
        await asyncio.gather(*(self._work(number) for number in range(self._limits.files)))

    @property
    def _is_wanted(self) -> bool:
        idle = self._idle
        return idle is None or self._busy > 0 or asyncio.get_running_loop().time() - self._last < idle

    async def _work(self, number: int) -> None:
        """Do one job after the other."""
        while self._is_wanted:
            try:
                async with _connected(self._door) as server:
                    logger.log(logging.DEBUG if number else logging.INFO, "waiting for files")
                    self._away = logging.INFO
                    self._last = asyncio.get_running_loop().time()
                    while self._is_wanted:
                        job = await server.claim(_WAIT if self._idle is None else min(_WAIT, self._idle))
                        if job is not None:
                            await self._do(server, job)
            except (OSError, asyncio.IncompleteReadError, ValueError, ServerError, LostJobError) as error:
                logger.log(self._away, "the server is not there, or has no work to give; waiting for it: %s", error)
                self._away = logging.DEBUG  # told once
                await asyncio.sleep(_AGAIN)

    async def _do(self, server: "_Server", job: Job) -> None:
        self._queues.several = self._queues.several or job.several_tenants
        self._busy += 1
        try:
            await self._handle(server, job)
        finally:
            self._busy -= 1
            self._last = asyncio.get_running_loop().time()

    async def _handle(self, server: "_Server", job: Job) -> None:
        """Do a job, and say how it ended; it is given up as soon as it is not wanted any more."""
        try:
            await _while_wanted(server, self._index(server, job), self._limits.seconds)
        except UnreadableError as error:
            logger.info("'%s' cannot be read: %s", job.filename, error)
            await server.ask(messages.Fail(error.problem, str(error)))
        except (EmbeddingUnavailable, ServerError) as error:
            await server.ask(messages.Release(str(error), _LATER))
        except LostJobError:
            logger.info("'%s' is not wanted any more", job.filename)
        except (OSError, asyncio.IncompleteReadError):
            raise
        except Exception:
            logger.exception("'%s' could not be made searchable", job.filename)
            await server.ask(messages.Release("Ingestion failed; the worker's log says why.", _LATER))

    async def _index(self, server: "_Server", job: Job) -> None:
        async with self._parsing.taken_by(job.tenant):
            document = await self._parser.parse(await _content(server), job.filename)
        chunks = await asyncio.to_thread(chunked, document, size=job.size, overlap=job.overlap)
        if len(chunks) > (most := self._limits.chunks):
            raise UnreadableError(
                f"It has {len(chunks):,} chunks, and a file may have {most:,} (`max_chunks` of file search). Part it "
                "into several files, or have it cut into larger chunks."
            )
        for batch in _batches(chunks, _TURN if self._queues.several else math.inf):
            async with self._embedded_at_once.taken_by(job.tenant):
                made = await self._embedded(document, batch, job)
            await server.ask(messages.Write(made))
        await server.ask(_complete(chunks))
        logger.info("'%s' is searchable; chunks: %d", job.filename, len(chunks))

    async def _embedded(self, document: Document, chunks: Sequence[DocumentChunk], job: Job) -> list[NewChunk]:
        """Return chunks with their vectors; what is embedded says what they stand below."""
        title = document.title or job.filename
        found = await self._embedding.embed_whole([chunk.in_context(title) for chunk in chunks])
        for vector in (vector for vectors in found for vector in vectors):
            if len(vector) != job.dimensions:
                raise UnreadableError(
                    f"The vector store has vectors of {job.dimensions} dimensions, and the embedding model makes "
                    f"{len(vector)}; create a new one."
                )
        return [
            NewChunk(chunk.index, chunk.text, [array("f", vector).tobytes() for vector in vectors])
            for chunk, vectors in zip(chunks, found, strict=True)
        ]


class _Server:
    """The server, as a worker sees it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._turn = asyncio.Lock()

    async def ask(self, request: messages.Request) -> Any:
        """Return the answer to a request; LostJobError or ServerError if there is none."""
        # Whoever is cancelled leaves the answer to be read: the next one who asks must not take it for its own.
        exchange = asyncio.ensure_future(self._exchange(request))
        exchange.add_done_callback(lambda done: done.cancelled() or done.exception())
        answer = await asyncio.shield(exchange)
        if answer.lost:
            raise LostJobError
        if answer.error is not None:
            raise ServerError(answer.error)
        return answer.value

    async def _exchange(self, request: messages.Request) -> Answer:
        async with self._turn:
            await send(self._writer, request)
            return msgspec.msgpack.decode(await receive(self._reader), type=Answer)

    async def claim(self, wait: float) -> Job | None:
        """Return a job, None if there was none for a while."""
        found = await self.ask(messages.Claim(wait))
        return None if found is None else msgspec.convert(found, Job)


@contextlib.asynccontextmanager
async def _connected(door: Path) -> AsyncIterator[_Server]:
    reader, writer = await connect(await asyncio.to_thread(Door.read, door))
    try:
        yield _Server(reader, writer)
    finally:
        writer.close()


async def _while_wanted(server: _Server, work: Coroutine[Any, Any, None], seconds: float) -> None:
    """Do something as long as the server wants it, and no longer than it may take; else it is broken off."""
    working = asyncio.ensure_future(work)
    watching = asyncio.ensure_future(_watch(server))
    try:
        await asyncio.wait([working, watching], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if not working.done() and not watching.done():
            raise UnreadableError(
                f"It could not be made searchable within {seconds:g} seconds (`max_ingestion_time` of file search)."
            )
        await (working if working.done() else watching)
    finally:
        for task in (working, watching):
            task.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)


async def _watch(server: _Server) -> None:
    """Say again and again that the work goes on; what the server says to the contrary is raised."""
    while True:
        await asyncio.sleep(_RENEW)
        await server.ask(messages.Renew())


async def _content(server: _Server) -> bytes:
    """Return the content of the job's file."""
    found = bytearray()
    while piece := await server.ask(messages.Read(len(found))):
        found += piece
        if len(found) > _LARGEST:
            raise UnreadableError(f"It is larger than {_LARGEST >> 20} MiB.")
    return bytes(found)


def _batches(chunks: Sequence[DocumentChunk], most: float) -> Iterator[list[DocumentChunk]]:
    """Yield chunks in batches of so many characters at most, unless one alone has more."""
    batch: list[DocumentChunk] = []
    length = 0
    for chunk in chunks:
        if batch and (len(batch) == _BATCH or length + len(chunk.text) > most):
            yield batch
            batch, length = [], 0
        batch.append(chunk)
        length += len(chunk.text)
    if batch:
        yield batch


def _complete(chunks: Sequence[DocumentChunk]) -> messages.Complete:
    numbers: dict[str, int] = {}
    places = []
    for chunk in chunks:
        heading = numbers.setdefault(chunk.context(""), len(numbers))
        places.append((chunk.start, chunk.end, chunk.page or 0, chunk.last_page or 0, heading))
    return messages.Complete(places, list(numbers))
