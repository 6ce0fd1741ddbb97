"""The desk: what the server does for files of vector stores, and for the workers that read and embed them."""

import asyncio
import contextlib
import logging
import time
from array import array
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any
from uuid import UUID, uuid5
from weakref import WeakValueDictionary

import msgspec

from antwort.provider import DocumentParser, FileRecord, Files, FunctionError, NotFoundError
from antwort.providers.file_search.ingestion.messages import PIECE, Job, NewChunk
from antwort.providers.file_search.ingestion.queue import MOST_ATTEMPTS, IngestionQueue, LentJob, LostError
from antwort.providers.file_search.ingestion.store_files import (
    CANCELLED,
    FAILED,
    FILE,
    JOB,
    PLACES,
    Chunking,
    Indexed,
    StoreFile,
    StoreFiles,
    StoreFileValue,
    not_attached,
    record_id,
)
from antwort.providers.file_search.vector_stores import VectorStoreRecord, VectorStores, is_away
from antwort.providers.file_search.vectors.base import Chunk, VectorStoreBackend
from antwort.providers.file_search.windows import windows_of

logger = logging.getLogger(__name__)

_CHUNKS = UUID("0f1b7f64-5a43-5d0b-9c1e-2f3a6f0b7d58")
"""The namespace of the ids of chunks."""
_ELSEWHERE = 300.0
"""Seconds for which a job is left to a server that can do it."""
_AWAY = 10.0
"""Seconds after which something that failed while the vector database was away is tried again."""
_BEGINNING = 64 * 1024
"""Bytes of a file that tell what it is."""
_MOST_TEXT = 128 * 1024**2
"""Bytes of a text: more than one has that can be made searchable."""
_FETCHED = 200
"""Chunks that are fetched at once."""


class Work:
    """A job in the hands of a worker, with what the server needs for it."""

    def __init__(
        self, lent: LentJob, store: VectorStoreRecord, file: StoreFile, *, several_tenants: bool = False
    ) -> None:
        self.lent = lent
        self.store = store
        self.file = file
        self.started = time.monotonic()
        self.several_tenants = several_tenants
        self.written = 0
        self.usage_bytes = 0
        value = file.value
        self.is_clean = value.indexed is not None and _is_same(value, value.indexed)
        """What is in the store is what will be written, so that it need not be removed before."""
        self.met_outage = False
        """The vector database was away: that is no fault of the file, and no attempt at it."""

    @property
    def job(self) -> Job:
        """What the worker is told."""
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


class IngestionDesk:
    """Attaches and detaches files, lends their jobs, and writes what workers make of them.

    Ids of chunks follow from the store, the file, its content and how it is cut, so that what is written twice is there
    once. A removal is noted before it begins and forgotten after it is done. Writing and removing the chunks of one
    file exclude each other, and whoever has written looks afterwards whether the job is still his.
    """

    def __init__(
        self,
        files: Files,
        store_files: StoreFiles,
        queue: IngestionQueue,
        stores: VectorStores,
        backend: VectorStoreBackend,
        *,
        on_end: Callable[[str, float], None],
        on_chunks: Callable[[int], None],
        dimensions: Callable[[], Awaitable[int]] | None = None,
    ) -> None:
        self.files = files
        self.store_files = store_files
        self.queue = queue
        self._stores = stores
        self._backend = backend
        self._on_end = on_end
        self._on_chunks = on_chunks
        self._dimensions = dimensions
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """Those that somebody has, or waits for."""
        self._has_removals = True
        """Something may be left of files that are detached; a crash before the start may have left some."""
        self.on_work: Callable[[], None] = lambda: None
        """Called when there is something to do."""

    # --- for clients -------------------------------------------------------------------------------------------------

    async def attach(
        self, store: VectorStoreRecord, file: FileRecord, attributes: Mapping[str, Any], chunking: Chunking
    ) -> StoreFile:
        """Attach a file to a store; one that is attached already is read again.

        ConflictError, with nothing attached, if the file is just being detached.
        """
        value = StoreFileValue(file.id, file.filename, file.sha256, dict(attributes), chunking)
        async with self._locked(store.id, file.id):
            await self.queue.check_stays(store.tenant, store.id, file.id)
            before = await self.store_files.get(store.tenant, store.id, file.id)
            if before is not None and before.value.indexed is not None:
                value = msgspec.structs.replace(value, indexed=before.value.indexed)
            await self.store_files.put(store.tenant, store.id, value)
            await self.queue.add(store.tenant, store.id, file.id)
            await self.store_files.forget(store.tenant, store.id, file.id, (FAILED, CANCELLED))
        self.on_work()
        return await self.get(store, file.id)

    async def set_attributes(self, store: VectorStoreRecord, file_id: str, attributes: Mapping[str, Any]) -> StoreFile:
        """Replace the attributes of a file. It stays as it is, and what is searchable of it is found by the new ones.

        One that is being read is read anew.
        """
        while True:
            async with self._locked(store.id, file_id):
                file = await self.get(store, file_id)
                await self.queue.check_stays(store.tenant, store.id, file_id)
                if file.status == "in_progress":
                    break
                if file.value.indexed is not None:
                    await self._stores.set_attributes(store, file_id, attributes)
                changed = msgspec.structs.replace(file.value, attributes=dict(attributes))
                if await self.store_files.change(file, changed):
                    return await self.get(store, file_id)
        await self.queue.check_room(store.tenant)
        record = await self.files.get(store.tenant, file_id)
        return await self.attach(store, record, attributes, file.value.chunking)

    async def get(self, store: VectorStoreRecord, file_id: str) -> StoreFile:
        """Return a file of a store; NotFoundError if it is not attached."""
        found = await self.store_files.get(store.tenant, store.id, file_id)
        if found is None:
            raise not_attached(file_id, store.id)
        return found

    async def detach(self, store: VectorStoreRecord, file_id: str) -> None:
        """Remove a file and its chunks from a store. If the chunks cannot be removed now, they are later.

        One whose chunks are still to be removed can be detached again.
        """
        if not await self.queue.is_deleting(store.tenant, store.id, file_id):
            await self.get(store, file_id)
            await self.queue.mark_deletion(store.tenant, store.id, file_id)
        try:
            await self._remove_marked(store, file_id)
        except FunctionError as error:
            if not is_away(error):
                raise
            logger.warning("file search: chunks of '%s' are removed later: %s", file_id, error)

    async def cancel(self, store: VectorStoreRecord, file_ids: Sequence[str]) -> None:
        """Give up those of some files that are not completed yet."""
        pending = await self.store_files.notes(store.tenant, store.id)
        for file_id in file_ids:
            if pending.get(file_id) != "in_progress":
                continue
            async with self._locked(store.id, file_id):
                await self._stores.erase(store, file_id)  # first: it is only asked for again while there is a job
                file = await self.store_files.get(store.tenant, store.id, file_id)
                if file is not None and file.value.indexed is not None:  # it was searchable before
                    await self.store_files.change(file, msgspec.structs.replace(file.value, indexed=None))
                    await self._count(store, file.value.indexed, None)
                await self.store_files.note(store.tenant, CANCELLED, store.id, file_id, {})
                await self.queue.end(store.tenant, store.id, file_id)

    async def forget_file(self, file: FileRecord) -> None:
        """Remove a file that was deleted from all stores of its tenant."""
        async for store in self._stores.of(file.tenant):
            with contextlib.suppress(NotFoundError):
                await self.detach(store, file.id)

    async def content(self, store: VectorStoreRecord, file: StoreFile) -> str:
        """Return the text of a file: as it is, if it is a text, else put together from its chunks.

        Those have line ends at the end of each block that nobody wrote; the last of them are left out.
        """
        indexed, places = file.value.indexed, await self.store_files.places(store.tenant, store.id, file.value.file_id)
        if indexed is None:
            return ""
        if (own := await self._own_text(store, file)) is not None:
            return own
        parts: list[str] = []
        end = 0
        for first in range(0, indexed.chunks, _FETCHED):
            numbers = range(first, min(first + _FETCHED, indexed.chunks))
            ids = {number: chunk_id(store.id, file.value, number) for number in numbers}
            found = await self._backend.fetch(
                store.collection, list(ids.values()), tenant=store.tenant, vector_store_id=store.id
            )
            for number, id_ in ids.items():
                start, last = (places[number].start, places[number].end) if number < len(places) else (end, end)
                text = found[id_].text if id_ in found else ""
                parts.append(text[max(0, end - start) :])
                end = max(end, last)
        return "".join(parts).rstrip("\n")

    async def _own_text(self, store: VectorStoreRecord, file: StoreFile) -> str | None:
        """Return what is in a file that is a text; None if it is something else, out of which a text was read."""

        async def beginning(length: int) -> str | None:
            pieces = await self.files.read(store.tenant, file.value.file_id, length=length)
            data = b"".join([piece async for piece in pieces])
            return await asyncio.to_thread(DocumentParser.own_text, data, file.value.filename)

        return None if await beginning(_BEGINNING) is None else await beginning(_MOST_TEXT)

    # --- for workers -------------------------------------------------------------------------------------------------

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
                return work
        return None

    async def _work_for(self, lent: LentJob) -> Work | None:
        """Return what is to be done for a job; None if it was dropped, or has failed."""
        file = await self.store_files.get(lent.tenant, lent.store_id, lent.file_id)
        try:
            store = await self._stores.get(lent.tenant, lent.store_id)
        except NotFoundError:
            await self.store_files.forget_store(lent.tenant, lent.store_id)
            return None
        except FunctionError:  # its vectors are elsewhere: another server has to do it
            await self.queue.release(lent, _ELSEWHERE, is_attempt=False)
            return None
        if file is None:
            await self._remove(store, lent.file_id, partial(self.queue.is_current, lent))
            return None
        if not await self._is_kept(lent):  # it was deleted in the moment in which it was attached
            await self.detach(store, lent.file_id)
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
        pieces = await self.files.read(work.store.tenant, work.file.value.file_id, offset=offset, length=PIECE)
        return b"".join([piece async for piece in pieces])

    async def write(self, work: Work, chunks: Sequence[NewChunk]) -> None:
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
            await self._clean(work)
            await self._stores.write(work.store, made, windows)
        work.written += len(chunks)
        work.usage_bytes += sum(len(chunk.text.encode()) for chunk in chunks)
        self._on_chunks(len(chunks))

    async def complete(self, work: Work, places: Sequence[Sequence[int]], headings: Sequence[str]) -> None:
        """Note that a file is searchable, and where its chunks stand."""
        value, store = work.file.value, work.store
        indexed = Indexed(value.sha256, work.written, work.usage_bytes, value.chunking)
        kept = {"places": places, "headings": headings}
        async with self._current(work):
            await self._clean(work)
            await self.store_files.note(store.tenant, PLACES, store.id, value.file_id, kept)
            await self._note_indexed(work, indexed)
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
                await self.store_files.note(store.tenant, FAILED, store.id, value.file_id, note)
                await self._note_indexed(work, None)
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
        self.on_work()

    # --- after a start -----------------------------------------------------------------------------------------------

    async def recover(self) -> None:
        """Make the jobs that files need and a crash has prevented, and lend again what nobody can have any more."""
        if self._backend.place:  # only this process can have lent them
            await self.queue.free_all()
        async for kept in self.store_files.scan(FILE):
            file_id = kept.id.partition(":")[2]
            try:
                store = await self._stores.get(kept.tenant, kept.parent)
            except NotFoundError:
                await self.store_files.forget_store(kept.tenant, kept.parent)
                continue
            except FunctionError:  # its vectors are elsewhere
                continue
            if kept.value["indexed"] is None:
                file = await self.store_files.get(kept.tenant, store.id, file_id)
                if file is not None and file.status == "in_progress" and not file.has_job:
                    await self.queue.add(kept.tenant, store.id, file_id)
        if await self.queue.depth():
            self.on_work()

    async def complete_removals(self) -> None:
        """Remove what a crash, or a vector database that was away, has left of files that are detached."""
        due, self._has_removals = self._has_removals, False
        if not due:
            return
        async for kept in self.store_files.scan(JOB):
            if kept.value["state"] != "deleting":
                continue
            try:
                store = await self._stores.get(kept.tenant, kept.parent)
                await self._remove_marked(store, kept.id.partition(":")[2])
            except NotFoundError:  # it went with its store
                await self.store_files.forget_store(kept.tenant, kept.parent)
            except FunctionError as error:
                logger.warning(
                    "file search: what was removed from vector store %s is still in it: %s", kept.parent, error
                )

    # --- parts -------------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _locked(self, store_id: str, file_id: str) -> AsyncIterator[None]:
        async with self._locks.setdefault(record_id(store_id, file_id), asyncio.Lock()):
            yield

    @contextlib.asynccontextmanager
    async def _current(self, work: Work) -> AsyncIterator[None]:
        """Do something for a job as long as it is lent; LostError, with nothing left, if it is not, before or after."""
        async with self._locked(work.store.id, work.file.value.file_id):
            await self.queue.check(work.lent)
            try:
                yield
            except NotFoundError:  # the store has ended
                raise LostError from None
            except FunctionError as error:
                work.met_outage = is_away(error)
                raise
            if not await self.queue.is_current(work.lent):  # another process of the server has changed it meanwhile
                if await self.store_files.get(work.store.tenant, work.store.id, work.file.value.file_id) is None:
                    await self._stores.erase(work.store, work.file.value.file_id)
                raise LostError

    async def _fitted(self, store: VectorStoreRecord) -> VectorStoreRecord:
        """Return a store with vectors as long as those of the model, if it has none yet; else the worker says so."""
        with contextlib.suppress(FunctionError):
            if self._dimensions is not None:
                return await self._stores.fitted(store, await self._dimensions())
        return store

    async def _clean(self, work: Work) -> None:
        """Remove what an earlier attempt has left, once."""
        if not work.is_clean:
            await self._stores.erase(work.store, work.file.value.file_id)
            work.is_clean = True

    async def _is_kept(self, lent: LentJob) -> bool:
        try:
            await self.files.get(lent.tenant, lent.file_id)
        except NotFoundError:
            return False
        return True

    async def _note_indexed(self, work: Work, indexed: Indexed | None) -> None:
        """Note what was made of a file; LostError if it was attached anew meanwhile, perhaps with other attributes."""
        value = msgspec.structs.replace(work.file.value, indexed=indexed)
        if not await self.store_files.change(work.file, value):
            raise LostError
        await self._count(work.store, work.file.value.indexed, indexed)

    async def _count(self, store: VectorStoreRecord, before: Indexed | None, after: Indexed | None) -> None:
        """Note in the store's record what has become of a file."""
        old, new = ((0, 0, 0) if one is None else (1, one.chunks, one.usage_bytes) for one in (before, after))
        files, chunks, size = (then - now for then, now in zip(new, old, strict=True))
        if files or chunks or size:
            await self._stores.add(store, files=files, chunks=chunks, size=size)

    async def _end(self, work: Work, status: str) -> None:
        value, store = work.file.value, work.store
        async with self._locked(store.id, value.file_id):
            if await self.queue.is_current(work.lent):  # or there is something new to do
                await self.queue.end(store.tenant, store.id, value.file_id)
        self._on_end(status, time.monotonic() - work.started)
        await self._stores.touch(store)

    async def _remove_marked(self, store: VectorStoreRecord, file_id: str) -> None:
        try:
            await self._remove(store, file_id, partial(self.queue.is_deleting, store.tenant, store.id, file_id))
        except BaseException:
            self._has_removals = True
            raise

    async def _remove(self, store: VectorStoreRecord, file_id: str, is_due: Callable[[], Awaitable[bool]]) -> None:
        """Remove what is left of a file, as long as that is due: it may have been done, and the file attached anew."""
        async with self._locked(store.id, file_id):
            if not await is_due():
                return
            file = await self.store_files.get(store.tenant, store.id, file_id)
            await self.store_files.forget(store.tenant, store.id, file_id, (FILE, FAILED, CANCELLED, PLACES))
            if file is not None:
                await self._count(store, file.value.indexed, None)
            await self._stores.erase(store, file_id)
            if await is_due():
                await self.queue.end(store.tenant, store.id, file_id)


def chunk_id(store_id: str, value: StoreFileValue, number: int) -> str:
    """Return the id of a chunk: the same whenever the same content is cut in the same way."""
    chunking = value.chunking
    parts = (store_id, value.file_id, value.sha256, str(chunking.size), str(chunking.overlap), str(number))
    return str(uuid5(_CHUNKS, "/".join(parts)))


def _is_same(value: StoreFileValue, indexed: Indexed) -> bool:
    return indexed.sha256 == value.sha256 and indexed.chunking == value.chunking


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
        value.attributes,
        store.tenant,
        store.id,
    )
