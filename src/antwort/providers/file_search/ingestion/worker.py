"""A worker: fetches files from the server, reads, cuts and embeds them, and hands their chunks back."""

import asyncio
import contextlib
import logging
from array import array
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from antwort.provider import Document, DocumentChunk, DocumentParser, UnreadableError, chunked
from antwort.providers.file_search.embedding.base import EmbeddingClient
from antwort.providers.file_search.errors import EmbeddingUnavailable
from antwort.providers.file_search.ingestion import messages
from antwort.providers.file_search.ingestion.messages import Answer, Door, Job, NewChunk, connect, receive, send

logger = logging.getLogger(__name__)

T = TypeVar("T")

_BATCH = 4
"""Chunks that are embedded and written at once: the server does nothing else while it reads their vectors."""
_RENEW = 15.0
"""Seconds after which the server is told that the work goes on."""
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


class IngestionWorker:
    """Works for the server whose door is described in a file, as long as it is told to.

    With `idle`, it ends when there was nothing to do, or no server, for so many seconds.
    """

    def __init__(
        self, door: Path, embedding: EmbeddingClient, parser: DocumentParser, *, idle: float | None = None
    ) -> None:
        self._door = door
        self._embedding = embedding
        self._parser = parser
        self._idle = idle

    async def run(self) -> None:
        """Work; a server that is away is waited for."""
        loop = asyncio.get_running_loop()
        last = loop.time()
        away = logging.INFO
        while self._idle is None or loop.time() - last < self._idle:
            try:
                async with _connected(self._door) as server:
                    logger.info("waiting for files")
                    away = logging.INFO
                    last = loop.time()
                    while self._idle is None or loop.time() - last < self._idle:
                        job = await server.claim(_WAIT if self._idle is None else min(_WAIT, self._idle))
                        if job is not None:
                            await self._handle(server, job)
                            last = loop.time()
            except (OSError, asyncio.IncompleteReadError, ValueError, ServerError, LostJobError) as error:
                logger.log(away, "the server is not there, or has no work to give; waiting for it: %s", error)
                away = logging.DEBUG  # told once
                await asyncio.sleep(_AGAIN)

    async def _handle(self, server: "_Server", job: Job) -> None:
        """Do a job, and say how it ended."""
        renewing = asyncio.create_task(_renew(server))
        try:
            await self._index(server, job)
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
        finally:
            renewing.cancel()
            await asyncio.wait([renewing])

    async def _index(self, server: "_Server", job: Job) -> None:
        document = await self._parser.parse(await _content(server), job.filename)
        chunks = await asyncio.to_thread(chunked, document, size=job.size, overlap=job.overlap)
        for start in range(0, len(chunks), _BATCH):
            batch = chunks[start : start + _BATCH]
            await server.ask(messages.Write(await self._embedded(document, batch, job)))
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
        async with self._turn:
            await send(self._writer, request)
            answer = msgspec.msgpack.decode(await receive(self._reader), type=Answer)
        if answer.lost:
            raise LostJobError
        if answer.error is not None:
            raise ServerError(answer.error)
        return answer.value

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


async def _renew(server: _Server) -> None:
    while True:
        await asyncio.sleep(_RENEW)
        try:
            await server.ask(messages.Renew())
        except (LostJobError, ServerError, OSError, asyncio.IncompleteReadError):
            return  # whoever works on it will notice


async def _content(server: _Server) -> bytes:
    """Return the content of the job's file."""
    found = bytearray()
    while piece := await server.ask(messages.Read(len(found))):
        found += piece
        if len(found) > _LARGEST:
            raise UnreadableError(f"It is larger than {_LARGEST >> 20} MiB.")
    return bytes(found)


def _complete(chunks: Sequence[DocumentChunk]) -> messages.Complete:
    numbers: dict[str, int] = {}
    places = []
    for chunk in chunks:
        heading = numbers.setdefault(chunk.context(""), len(numbers))
        places.append((chunk.start, chunk.end, chunk.page or 0, chunk.last_page or 0, heading))
    return messages.Complete(places, list(numbers))
