"""The way of a file through a worker: read, cut, embedded, written."""

import asyncio
import contextlib
import logging
import math
import zlib
from array import array
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence

from msgspec import Struct

from antwort.extensions import EmbeddingClient
from antwort.provider import Document, DocumentChunk, DocumentParser, Queues, Slots, UnreadableError, chunked
from antwort.providers.file_search.ingestion import messages
from antwort.providers.file_search.ingestion.messages import Job, NewChunk, ServerConnection

logger = logging.getLogger(__name__)

_BATCH = 4
"""Chunks that are embedded at once, and written at first, so that there is soon something to be seen."""
_WRITTEN = 16
"""Vectors that are written at once then: the server does nothing else while it reads them, and a database waits for the
disk each time, as long as it takes to embed a chunk or two."""
_TURN = 4000
"""Characters that are embedded at once, or one chunk, if others may wait for it: a second or two of one processor."""
_AT_ONCE = 2
"""Batches that an embedding service is asked for at once: one is computed while another is on its way."""
_PARSERS = 2
"""Files that are read at once: each may take a gibibyte of memory."""
_RECOGNISERS = 1
"""Files whose pictures are read at once: that takes seconds for a page, so others do not wait behind it."""
_LARGEST = 512 << 20


class IngestionLimits(Struct, frozen=True):
    """What one file may take, and how many are worked on at once."""

    files: int = 3
    chunks: int = 25_000
    seconds: float = 7200.0


class FilePipeline:
    """Makes files searchable, several at a time.

    What they share, tenants take turns at: reading, which goes on in processes apart, and embedding, a few chunks at a
    time. So a large file, or one that takes long to read, does not hold up others.
    """

    def __init__(self, embedding: EmbeddingClient, parser: DocumentParser, limits: IngestionLimits) -> None:
        self._embedding = embedding
        self._parser = parser
        self._limits = limits
        self._queues = Queues(several=False)
        self._parsing = Slots(_PARSERS, self._queues.named("parsers", bounded=False))
        self._recognising = Slots(_RECOGNISERS, self._queues.named("recognisers", bounded=False))
        self._at_once = int(getattr(embedding, "at_once", _AT_ONCE))
        self._embedding_slots = Slots(self._at_once, self._queues.named("embedding", bounded=False))

    async def run(self, server: ServerConnection, job: Job) -> None:
        """Make a file searchable; UnreadableError if that cannot be done."""
        self._queues.several = self._queues.several or job.several_tenants
        document = await self._read(server, job)
        chunks = await self._cut(document, job)
        written = await server.ask(_cut(chunks, await asyncio.to_thread(lambda: document.language)))
        async with contextlib.aclosing(self._made(document, chunks[written:], job)) as batches:
            async for made in _joined(batches):
                await server.ask(made)
        await server.ask(_complete(chunks, document.warnings))
        for warning in document.warnings:
            logger.warning("'%s': %s", job.filename, warning)
        logger.info("'%s' is searchable; chunks: %d", job.filename, len(chunks))

    async def _made(
        self, document: Document, chunks: Sequence[DocumentChunk], job: Job
    ) -> AsyncGenerator[messages.Write, None]:
        """Give batches of chunks with their vectors, in order; the next are embedded while one is written."""
        under_way: deque[asyncio.Task[messages.Write]] = deque()
        try:
            for batch in _batches(chunks, _TURN if self._queues.several else math.inf):
                under_way.append(asyncio.ensure_future(self._in_turn(document, batch, job)))
                if len(under_way) > self._at_once:
                    yield await under_way.popleft()
            while under_way:
                yield await under_way.popleft()
        finally:
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)

    async def _in_turn(self, document: Document, chunks: Sequence[DocumentChunk], job: Job) -> messages.Write:
        async with self._embedding_slots.taken_by(job.tenant):
            made = await self._embedded(document, chunks, job)
        return messages.Write(made, sum(chunk.tokens for chunk in chunks))

    async def _read(self, server: ServerConnection, job: Job) -> Document:
        """Return what a file says."""
        found: Document | UnreadableError
        async with self._parsing.taken_by(job.tenant):
            content = await _content(server)
            try:
                found = await self._parser.parse(content, job.filename)
            except UnreadableError as error:
                if not error.has_pictures:
                    raise
                found = error
        if isinstance(found, Document) and not found.has_pictures:
            return found
        async with self._recognising.taken_by(job.tenant):
            return await self._parser.recognise(content, job.filename, found)

    async def _cut(self, document: Document, job: Job) -> list[DocumentChunk]:
        """Return the chunks of a document."""
        chunks = await asyncio.to_thread(chunked, document, size=job.size, overlap=job.overlap)
        if len(chunks) > (most := self._limits.chunks):
            raise UnreadableError(
                f"It has {len(chunks):,} chunks, and a file may have {most:,} (`max_chunks` of file search). Part it "
                "into several files, or have it cut into larger chunks."
            )
        return chunks

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


async def _joined(batches: AsyncIterator[messages.Write]) -> AsyncIterator[messages.Write]:
    """Give batches in larger ones, the first as they are."""
    most, chunks, tokens = _BATCH, list[NewChunk](), 0
    async for batch in batches:
        chunks += batch.chunks
        tokens += batch.tokens
        if sum(len(chunk.vectors) for chunk in chunks) >= most:
            yield messages.Write(chunks, tokens)
            most, chunks, tokens = min(2 * most, _WRITTEN), [], 0
    if chunks:
        yield messages.Write(chunks, tokens)


async def _content(server: ServerConnection) -> bytes:
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


def _cut(chunks: Sequence[DocumentChunk], language: str) -> messages.Cut:
    checks = [zlib.crc32(chunk.text.encode()) for chunk in chunks]
    return messages.Cut(max((chunk.last_page or 0 for chunk in chunks), default=0), checks, language)


def _complete(chunks: Sequence[DocumentChunk], warnings: list[str]) -> messages.Complete:
    numbers: dict[str, int] = {}
    places = []
    for chunk in chunks:
        heading = numbers.setdefault(chunk.context(""), len(numbers))
        places.append((chunk.start, chunk.end, chunk.page or 0, chunk.last_page or 0, heading))
    return messages.Complete(places, list(numbers), warnings)
