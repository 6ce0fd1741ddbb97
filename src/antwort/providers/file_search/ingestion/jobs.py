"""The jobs of ingestion: what the server lends to workers, and what it does with what they make of it."""

import contextlib
import logging
import time
import zlib
from array import array
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from antwort.extensions import Chunk, VectorDatabase
from antwort.provider import FunctionError, NotFoundError
from antwort.providers.file_search.chunks import chunk_id, windows_of
from antwort.providers.file_search.ingestion.attached_files import AttachedFiles
from antwort.providers.file_search.ingestion.messages import PIECE, Job, NewChunk
from antwort.providers.file_search.ingestion.queue import MOST_ATTEMPTS, LentJob, LostError
from antwort.providers.file_search.ingestion.store_files import (
    FAILED,
    FILE,
    PLACES,
    FileProgress,
    Indexed,
    StoreFile,
    with_language,
)
from antwort.providers.file_search.store_record import VectorStoreRecord, is_away
from antwort.providers.file_search.vector_stores import VectorStores

logger = logging.getLogger(__name__)

_FETCHED = 200
"""Chunks that are looked for at once."""
_UNSURE = 8
"""The last chunks that are there: their windows may be missing."""
_ELSEWHERE = 300.0
"""Seconds for which a job is left to a server that can do it."""
_AWAY = 10.0
"""Seconds after which something that failed while the vector database was away is tried again."""


class Work:
    """A job that a worker has, with what the server needs for it."""

    def __init__(
        self, lent: LentJob, store: VectorStoreRecord, file: StoreFile, *, several_tenants: bool = False
    ) -> None:
        self.lent = lent
        self.store = store
        self.file = file
        self.started = time.monotonic()
        self.several_tenants = several_tenants
        self.pages = 0
        self.chunks: int | None = None
        """How many there will be, as soon as the file is read."""
        self.language = ""
        self.written = 0
        self.is_marked = False
        """Its store knows that a part of it is written."""
        self.usage_bytes = 0
        value = file.value
        self.is_clean = value.is_indexed_so and not value.is_mixed
        """What is in the store is what will be written, so that it need not be removed before."""
        self.met_outage = False
        """The vector database was away: that is no fault of the file, and no attempt at it."""

    @property
    def attributes(self) -> dict[str, Any]:
        """What the chunks of the file have."""
        return with_language(self.file.value.attributes, self.language)

    @property
    def job(self) -> Job:
        """The job, as it is sent to the worker."""
        value, chunking = self.file.value, self.file.value.chunking
        return Job(
            self.store.tenant,
            self.store.id,
            value.file_id,
            value.filename,
            chunking.size,
            chunking.overlap,
            self.store.dimensions,
            self.several_tenants,
        )


class IngestionJobs:
    """Lends jobs to workers, and writes what they make of them.

    Ids of chunks follow from the store, the file, its content and how it is cut, so that what is written twice is there
    once. Whoever has written looks afterwards whether the job is still his.
    """

    def __init__(
        self,
        attached: AttachedFiles,
        stores: VectorStores,
        backend: VectorDatabase,
        *,
        on_end: Callable[[str, float], None],
        on_pages: Callable[[int], None],
        on_chunks: Callable[[int, int], None],
        dimensions: Callable[[], Awaitable[int]] | None = None,
    ) -> None:
        self.queue = attached.queue
        self._attached = attached
        self._store_files = attached.store_files
        self._stores = stores
        self._backend = backend
        self._on_end = on_end
        self._on_pages = on_pages
        self._on_chunks = on_chunks
        self._dimensions = dimensions
        self._under_way: dict[tuple[str, str], Work] = {}
        attached.progress = self._progress

    async def claim(self, wait: float) -> Work | None:
        """Lend a job. One whose file or store is gone is dropped; one that was tried too often has failed."""
        while (lent := await self.queue.claim(wait)) is not None:
            work = None
            try:
                work = await self._work_for(lent)
            finally:
                if work is None:
                    self.queue.give_back(lent)
            if work is not None:
                self._under_way[lent.store_id, lent.file_id] = work
                return work
        return None

    def give_back(self, work: Work) -> None:
        """Take note that a worker has a job no more."""
        self.queue.give_back(work.lent)
        key = work.lent.store_id, work.lent.file_id
        if self._under_way.get(key) is work:
            del self._under_way[key]

    def _progress(self, store_id: str, file_id: str) -> FileProgress | None:
        work = self._under_way.get((store_id, file_id))
        return None if work is None else FileProgress(work.pages, work.chunks, work.written)

    async def _work_for(self, lent: LentJob) -> Work | None:
        """Return what is to be done for a job; None if it was dropped, or has failed."""
        file = await self._store_files.get(lent.tenant, lent.store_id, lent.file_id)
        try:
            store = await self._stores.get(lent.tenant, lent.store_id)
        except NotFoundError:
            await self._store_files.forget_store(lent.tenant, lent.store_id)
            return None
        except FunctionError:  # its vectors are elsewhere: another server has to do it
            await self.queue.release(lent, _ELSEWHERE, is_attempt=False)
            return None
        if file is None:
            await self._attached.remove(store, lent.file_id, partial(self.queue.is_current, lent))
            return None
        if not await self._is_kept(lent):  # it was deleted in the moment in which it was attached
            await self._attached.detach(store, lent.file_id)
            return None
        work = Work(lent, store, file, several_tenants=self.queue.slots.queue.queues.several)
        given_up = f"It was given up after {MOST_ATTEMPTS} attempts." if lent.value.attempts > MOST_ATTEMPTS else ""
        reason = given_up or ("The vector store has expired." if self._stores.is_expired(store) else "")
        if not reason:
            work.store = await self._fitted(store)
            return work
        await self.fail(work, "server_error", reason)
        return None

    async def read(self, work: Work, offset: int) -> bytes:
        """Return the next part of the file of a job."""
        files, file_id = self._attached.files, work.file.value.file_id
        pieces = await files.read(work.store.tenant, file_id, offset=offset, length=PIECE)
        return b"".join([piece async for piece in pieces])

    async def cut(self, work: Work, pages: int, checks: Sequence[int], language: str = "") -> int:
        """Note what was read; return how many of the first chunks are written already, by an attempt that broke off."""
        work.pages, work.chunks, work.language = pages, len(checks), language
        self._on_pages(pages)
        indexed = work.file.value.indexed
        if indexed is not None and indexed.chunks > len(checks):  # it is read in another way than then
            work.is_clean = False
        if work.lent.value.attempts > 1 and not work.is_clean:
            async with self._current(work):
                work.written, work.usage_bytes = await self._written(work, checks)
            work.is_clean = work.written > 0  # whoever wrote them has removed what was there before
        return work.written

    async def _written(self, work: Work, checks: Sequence[int]) -> tuple[int, int]:
        """Count the first chunks that are there as they would be written now, and their bytes; none if others are."""
        value, store, sizes = work.file.value, work.store, list[int]()
        for first in range(0, len(checks) + 1, _FETCHED):  # behind the last there may be none
            numbers = range(first, min(first + _FETCHED, len(checks) + 1))
            ids = [chunk_id(store.id, value, number) for number in numbers]
            found = await self._backend.fetch(store.collection, ids, tenant=store.tenant, vector_store_id=store.id)
            for number, id_ in zip(numbers, ids, strict=True):
                if id_ not in found:
                    sure = sizes[:-_UNSURE]
                    return len(sure), sum(sure)
                text = found[id_].text.encode()
                if [zlib.crc32(text)] != checks[number : number + 1] or found[id_].attributes != work.attributes:
                    return 0, 0
                sizes.append(len(text))
        return 0, 0

    async def write(self, work: Work, chunks: Sequence[NewChunk], tokens: int = 0) -> None:
        """Write chunks of a job's file; LostError, with nothing left of them, if it is not the worker's any more."""
        made: list[Chunk] = []
        windows: dict[str, int] = {}
        for chunk in chunks:
            first, *more = (_vector(vector) for vector in chunk.vectors)
            point = _point(work, chunk, first)
            made += [point, *windows_of(point, more)]
            if more:
                windows[point.id] = len(more)
        async with self._current(work):
            await self._mark(work)
            await self._clean(work)
            await self._stores.write(work.store, made, windows)
        work.written += len(chunks)
        work.usage_bytes += sum(len(chunk.text.encode()) for chunk in chunks)
        self._on_chunks(len(chunks), tokens)

    async def complete(
        self, work: Work, places: Sequence[Sequence[int]], headings: Sequence[str], warnings: Sequence[str] = ()
    ) -> None:
        """Note that a file is searchable, where its chunks stand, and what of it was not read."""
        value, store = work.file.value, work.store
        indexed = Indexed(
            value.sha256, work.written, work.usage_bytes, value.chunking, work.pages, list(warnings), work.language
        )
        kept = {"places": places, "headings": headings}
        async with self._current(work):
            await self._clean(work)
            await self._store_files.note(store.tenant, PLACES, store.id, value.file_id, kept)
            await self._note_indexed(work, indexed)
            await self._stores.mark(store, value.file_id, unfinished=False)
        await self._end(work, "completed")

    async def fail(self, work: Work, code: str, message: str) -> None:
        """Note that a file cannot be made searchable, and why; nothing of it stays in the store.

        While the vector database is away, that is found out anew later.
        """
        value, store = work.file.value, work.store
        try:
            async with self._current(work):
                work.is_clean = False
                await self._clean(work)
                note = {"code": code, "message": message}
                await self._store_files.note(store.tenant, FAILED, store.id, value.file_id, note)
                await self._note_indexed(work, None)
                await self._stores.mark(store, value.file_id, unfinished=False)
        except FunctionError as error:
            if not work.met_outage:
                raise
            await self.release(work, str(error), _AWAY)
            return
        await self._end(work, "failed")

    async def release(self, work: Work, message: str, seconds: float) -> None:
        """Take a job back, to be tried again later; after too many attempts it has failed.

        Attempts that the vector database has made vain, by being away, do not count.
        """
        if not work.met_outage and work.lent.value.attempts >= MOST_ATTEMPTS:
            await self.fail(work, "server_error", message)
            return
        logger.warning("file search: '%s' is tried again later: %s", work.file.value.file_id, message)
        await self.queue.release(work.lent, seconds, is_attempt=not work.met_outage)

    async def drop(self, work: Work) -> None:
        """Take back the job of a worker that is gone."""
        with contextlib.suppress(LostError):
            await self.queue.release(work.lent)
        self._attached.tell_work()

    async def recover(self) -> None:
        """Make the jobs that files need and a crash has prevented, and lend again what nobody can have any more."""
        if self._backend.place:  # only this process can have lent them
            await self.queue.free_all()
        async for kept in self._store_files.scan(FILE):
            file_id = kept.id.partition(":")[2]
            try:
                store = await self._stores.get(kept.tenant, kept.parent)
            except NotFoundError:
                await self._store_files.forget_store(kept.tenant, kept.parent)
                continue
            except FunctionError:  # its vectors are elsewhere
                continue
            if kept.value["indexed"] is None:
                file = await self._store_files.get(kept.tenant, store.id, file_id)
                if file is not None and file.status == "in_progress" and not file.has_job:
                    await self.queue.add(kept.tenant, store.id, file_id)
        if await self.queue.depth():
            self._attached.tell_work()

    @contextlib.asynccontextmanager
    async def _current(self, work: Work) -> AsyncIterator[None]:
        """Do something for a job as long as it is lent; LostError, with nothing left, if it is not, before or after."""
        async with self._attached.locked(work.store.id, work.file.value.file_id):
            await self.queue.check(work.lent)
            try:
                yield
            except NotFoundError:  # the store has ended
                raise LostError from None
            except FunctionError as error:
                work.met_outage = is_away(error)
                raise
            if not await self.queue.is_current(work.lent):  # another process of the server has changed it meanwhile
                if await self._store_files.get(work.store.tenant, work.store.id, work.file.value.file_id) is None:
                    await self._stores.erase(work.store, work.file.value.file_id)
                raise LostError

    async def _fitted(self, store: VectorStoreRecord) -> VectorStoreRecord:
        """Return a store with vectors as long as those of the model, if it has none yet; else the worker says so."""
        with contextlib.suppress(FunctionError):
            if self._dimensions is not None:
                return await self._stores.fitted(store, await self._dimensions())
        return store

    async def _mark(self, work: Work) -> None:
        """Let nobody find a part of a file, once, before it is written."""
        if not work.is_marked:
            await self._stores.mark(work.store, work.file.value.file_id, unfinished=True)
            work.is_marked = True

    async def _clean(self, work: Work) -> None:
        """Remove what an earlier attempt has left, once."""
        if not work.is_clean:
            await self._stores.erase(work.store, work.file.value.file_id)
            work.is_clean = True

    async def _is_kept(self, lent: LentJob) -> bool:
        try:
            await self._attached.files.get(lent.tenant, lent.file_id)
        except NotFoundError:
            return False
        return True

    async def _note_indexed(self, work: Work, indexed: Indexed | None) -> None:
        """Note what was made of a file; LostError if it was attached anew meanwhile, perhaps with other attributes."""
        value = msgspec.structs.replace(work.file.value, indexed=indexed, is_mixed=False)
        if not await self._store_files.change(work.file, value):
            raise LostError
        await self._attached.note_counts(work.store, work.file.value.indexed, indexed)

    async def _end(self, work: Work, status: str) -> None:
        value, store = work.file.value, work.store
        async with self._attached.locked(store.id, value.file_id):
            if await self.queue.is_current(work.lent):  # or there is something new to do
                await self.queue.end(store.tenant, store.id, value.file_id)
        self._on_end(status, time.monotonic() - work.started)
        await self._stores.touch(store)


def _vector(numbers: bytes) -> list[float]:
    found = array("f")
    found.frombytes(numbers)
    return found.tolist()


def _point(work: Work, chunk: NewChunk, vector: list[float]) -> Chunk:
    value, store = work.file.value, work.store
    return Chunk(
        chunk_id(store.id, value, chunk.index),
        vector,
        chunk.text,
        value.file_id,
        value.filename,
        chunk.index,
        work.attributes,
        store.tenant,
        store.id,
    )
