"""The files of vector stores, as clients attach and detach them."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

import msgspec

from antwort.extensions import VectorDatabase
from antwort.provider import (
    Context,
    DocumentParser,
    FileRecord,
    Files,
    FunctionError,
    NotFoundError,
    ServiceUnavailableError,
)
from antwort.providers.file_search.chunks import chunk_id
from antwort.providers.file_search.ingestion.queue import IngestionQueue
from antwort.providers.file_search.ingestion.store_files import (
    CANCELLED,
    FAILED,
    FILE,
    JOB,
    PLACES,
    Chunking,
    FileProgress,
    Indexed,
    StatusCounts,
    StoreFile,
    StoreFiles,
    StoreFileValue,
    not_attached,
    record_id,
    with_language,
)
from antwort.providers.file_search.store_record import VectorStoreRecord, is_away
from antwort.providers.file_search.vector_stores import VectorStores

logger = logging.getLogger(__name__)

BATCH = "vector_store_batch"
_BEGINNING = 64 * 1024
"""Bytes of a file that tell what it is."""
_MOST_TEXT = 128 * 1024**2
"""Bytes of a text: more than one has that can be made searchable."""
_FETCHED = 200
"""Chunks that are fetched at once."""


class AttachedFiles:
    """Attaches files to vector stores and detaches them; what is to be read of them is put into the queue.

    A removal is noted before it begins and forgotten after it is done. Writing and removing the chunks of one file
    exclude each other: whoever does either has it `locked`.
    """

    def __init__(
        self,
        files: Files,
        store_files: StoreFiles,
        queue: IngestionQueue,
        stores: VectorStores,
        backend: VectorDatabase,
    ) -> None:
        self.files = files
        self.store_files = store_files
        self.queue = queue
        self._stores = stores
        self._backend = backend
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """Those that somebody has, or waits for."""
        self._has_removals = True
        """Something may be left of files that are detached; a crash before the start may have left some."""
        self.on_work: list[Callable[[], None]] = []
        """Called when there is something to do."""
        self.progress: Callable[[str, str], FileProgress | None] = lambda _store, _file: None
        """Tells how far a file of a store is; None of one that no worker of this process has."""

    def tell_work(self) -> None:
        """Say that there is something to do."""
        for told in self.on_work:
            told()

    async def check(self, ctx: Context, file_ids: Sequence[str]) -> None:
        """Raise NotFoundError for the first of some files that is not there, or an error if they may not be read.

        RateLimitError if there is no room for all of them among those that wait to be made searchable.
        """
        ctx.require("files:read", param="file_id", purpose="to read a file")  # whoever searches the store reads them
        for file_id in file_ids:
            await self._named(ctx.tenant, file_id)
        await self.queue.check_room(ctx.tenant, len(file_ids))

    async def attach_named(
        self, store: VectorStoreRecord, file_id: str, attributes: Mapping[str, Any], chunking: Chunking
    ) -> StoreFile:
        """Attach a file by its id, as `attach` does; NotFoundError if it is not there."""
        return await self.attach(store, await self._named(store.tenant, file_id), attributes, chunking)

    async def _named(self, tenant: str, file_id: str) -> FileRecord:
        try:
            return await self.files.get(tenant, file_id)
        except NotFoundError:
            raise NotFoundError(f"No such File object: {file_id[:100]}.", param="file_id") from None

    async def attach(
        self, store: VectorStoreRecord, file: FileRecord, attributes: Mapping[str, Any], chunking: Chunking
    ) -> StoreFile:
        """Attach a file to a store; one that is attached already is read again.

        ConflictError, with nothing attached, if the file is just being detached.
        """
        value = StoreFileValue(file.id, file.filename, file.sha256, dict(attributes), chunking)
        async with self.locked(store.id, file.id):
            await self.queue.check_stays(store.tenant, store.id, file.id)
            before = await self.store_files.get(store.tenant, store.id, file.id)
            if before is not None and (indexed := before.value.indexed) is not None:
                is_begun = before.status == "in_progress" and not before.value.is_indexed_so
                value = msgspec.structs.replace(value, indexed=indexed, is_mixed=is_begun or before.value.is_mixed)
            await self.store_files.put(store.tenant, store.id, value)
            await self.queue.add(store.tenant, store.id, file.id)
            await self.store_files.forget(store.tenant, store.id, file.id, (FAILED, CANCELLED))
        self.tell_work()
        return await self.get(store, file.id)

    async def set_attributes(self, store: VectorStoreRecord, file_id: str, attributes: Mapping[str, Any]) -> StoreFile:
        """Replace the attributes of a file. It stays as it is, and what is searchable of it is found by the new ones.

        One that is being read is read anew.
        """
        while True:
            async with self.locked(store.id, file_id):
                file = await self.get(store, file_id)
                await self.queue.check_stays(store.tenant, store.id, file_id)
                if file.status == "in_progress":
                    break
                if (indexed := file.value.indexed) is not None:
                    await self._stores.set_attributes(store, file_id, with_language(attributes, indexed.language))
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

    async def counts(self, store: VectorStoreRecord) -> StatusCounts:
        """Count the files of a store by how far they are."""
        return await self.store_files.counts(store.tenant, store.id)

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
            async with self.locked(store.id, file_id):
                await self._stores.erase(store, file_id)  # first: it is only asked for again while there is a job
                await self._stores.mark(store, file_id, unfinished=False)
                file = await self.store_files.get(store.tenant, store.id, file_id)
                if file is not None and file.value.indexed is not None:  # it was searchable before
                    await self.store_files.change(file, msgspec.structs.replace(file.value, indexed=None))
                    await self.note_counts(store, file.value.indexed, None)
                await self.store_files.note(store.tenant, CANCELLED, store.id, file_id, {})
                await self.queue.end(store.tenant, store.id, file_id)

    async def forget_file(self, file: FileRecord) -> None:
        """Remove a file that was deleted from all stores of its tenant."""
        async for store in self._stores.of(file.tenant):
            with contextlib.suppress(NotFoundError):
                await self.detach(store, file.id)

    async def forget_store(self, tenant: str, store_id: str) -> None:
        """Forget the files of a store that is deleted."""
        await self.store_files.forget_store(tenant, store_id, BATCH)

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

    # --- texts -------------------------------------------------------------------------------------------------------

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
                text = found[id_].text if id_ in found else ""
                if number < len(places):  # in front may be what is repeated, or the header of a table
                    start, last = max(places[number].start, end), places[number].end
                    text = text[start - last :] if start < last else ""
                    end = max(end, last)
                parts.append(text)
        return "".join(parts).rstrip("\n")

    async def _own_text(self, store: VectorStoreRecord, file: StoreFile) -> str | None:
        """Return what is in a file that is a text; None if it is something else, out of which a text was read."""

        async def beginning(length: int) -> str | None:
            pieces = await self.files.read(store.tenant, file.value.file_id, length=length)
            data = b"".join([piece async for piece in pieces])
            return await asyncio.to_thread(DocumentParser.own_text, data, file.value.filename)

        return None if await beginning(_BEGINNING) is None else await beginning(_MOST_TEXT)

    # --- for whoever writes and removes chunks -----------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def locked(self, store_id: str, file_id: str) -> AsyncIterator[None]:
        """Let nobody else write or remove the chunks of a file meanwhile."""
        async with self._locks.setdefault(record_id(store_id, file_id), asyncio.Lock()):
            yield

    async def note_counts(self, store: VectorStoreRecord, before: Indexed | None, after: Indexed | None) -> None:
        """Note in the store's record what has become of a file."""
        old, new = ((0, 0, 0) if one is None else (1, one.chunks, one.usage_bytes) for one in (before, after))
        files, chunks, size = (then - now for then, now in zip(new, old, strict=True))
        if files or chunks or size:
            await self._stores.counts.add(store, files=files, chunks=chunks, size=size)

    async def _remove_marked(self, store: VectorStoreRecord, file_id: str) -> None:
        try:
            await self.remove(store, file_id, partial(self.queue.is_deleting, store.tenant, store.id, file_id))
        except BaseException:
            self._has_removals = True
            raise

    async def remove(self, store: VectorStoreRecord, file_id: str, is_due: Callable[[], Awaitable[bool]]) -> None:
        """Remove what is left of a file, as long as that is due: it may have been done, and the file attached anew."""
        async with self.locked(store.id, file_id):
            if not await is_due():
                return
            file = await self.store_files.get(store.tenant, store.id, file_id)
            await self.store_files.forget(store.tenant, store.id, file_id, (FILE, FAILED, CANCELLED, PLACES))
            if file is not None:
                await self.note_counts(store, file.value.indexed, None)
            await self._stores.erase(store, file_id)
            await self._stores.mark(store, file_id, unfinished=False)
            if await is_due():
                await self.queue.end(store.tenant, store.id, file_id)


def no_files() -> ServiceUnavailableError:
    """Return the error for a server without files."""
    return ServiceUnavailableError("This server keeps no files.")
