"""Files of vector stores: what is known about each, and how far it is.

A file has a record from the moment it is attached until it is detached. Beside it there is a job as long as there is
something to do, and a note if it failed or was cancelled; what has neither is completed. The record comes first and the
job second: a crash in between leaves a record that was never indexed, for which a job is made at the next start.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, Literal

import msgspec
from msgspec import Struct
from typing_extensions import override

from antwort.provider import ConflictError, Kept, NotFoundError, Records
from antwort.providers.file_search.store_record import scanned

FILE = "vector_store_file"
JOB = "vector_store_job"
FAILED = "vector_store_file_failed"
CANCELLED = "vector_store_file_cancelled"
PLACES = "vector_store_file_places"
"""Where in a file its chunks stand."""
_PAGE = 500

FileStatus = Literal["in_progress", "completed", "cancelled", "failed"]
_NOTES: Mapping[str, FileStatus] = {JOB: "in_progress", FAILED: "failed", CANCELLED: "cancelled"}
"""What a record beside that of the file says about it; the first that is there counts."""
KIND_OF: Mapping[str, str] = {status: kind for kind, status in _NOTES.items()}


class Chunking(Struct, frozen=True):
    """How a file is cut: tokens of a chunk, and how many of them may repeat the end of the one before."""

    size: int
    overlap: int


AUTO = Chunking(size=200, overlap=0)
"""The strategy `auto`: a chunk is as much as the embedded model makes one vector of, and that says one thing."""


class Indexed(Struct, frozen=True):
    """What was made of a file."""

    sha256: str
    chunks: int
    usage_bytes: int
    chunking: Chunking
    pages: int = 0
    warnings: list[str] = []
    """What of the file was not read."""
    language: str = ""
    """What it is written in, as ISO 639-1 writes it; empty if that is not known."""


def with_language(attributes: Mapping[str, Any], language: str) -> dict[str, Any]:
    """Return the attributes that chunks have: those of the file, and its language if none of them says that."""
    return {"language": language, **attributes} if language else dict(attributes)


class ChunkPosition(Struct, frozen=True, gc=False):
    """Where in its file a chunk stands."""

    start: int
    end: int
    page: int
    """The first page or slide, from 1; 0 if there are none."""
    last_page: int
    heading: str
    """The headings that it begins below."""

    @override
    def __str__(self) -> str:
        pages = f"pages {self.page}-{self.last_page}" if self.last_page > self.page else f"page {self.page}"
        return ", ".join(filter(None, (self.heading, pages if self.page else "")))


class StoreFileValue(Struct, frozen=True):
    """What is kept about a file of a store."""

    file_id: str
    filename: str
    sha256: str
    attributes: dict[str, Any]
    chunking: Chunking
    indexed: Indexed | None = None
    is_mixed: bool = False
    """An attempt with other sizes, or another content, may have begun since it was indexed, and was given up."""

    @property
    def is_indexed_so(self) -> bool:
        """Whether what was made of it last is of this content and these sizes."""
        done = self.indexed
        return done is not None and (done.sha256, done.chunking) == (self.sha256, self.chunking)


class StoreFile(Struct, frozen=True):
    """A file of a store, and how far it is."""

    kept: Kept
    value: StoreFileValue
    status: FileStatus
    problem: Mapping[str, str] | None = None
    """The code and the message of why it failed."""
    has_job: bool = False

    @property
    def store_id(self) -> str:
        """The store it is in."""
        return self.kept.parent


class FileProgress(Struct, frozen=True):
    """How far a file is that a worker has."""

    pages: int
    """Pages, or slides, that were read; 0 if there are none."""
    chunks: int | None
    """How many there will be; None until the file is read."""
    written: int
    """Chunks that are embedded and written."""


class StatusCounts(Struct):
    """How many files are how far."""

    in_progress: int = 0
    completed: int = 0
    cancelled: int = 0
    failed: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return self.in_progress + self.completed + self.cancelled + self.failed


def record_id(store_id: str, file_id: str) -> str:
    """Return the id of all records about a file in a store."""
    return f"{store_id}:{file_id}"


class StoreFiles:
    """The files of the vector stores of all tenants; every question is one tenant's."""

    def __init__(self, records: Records) -> None:
        self._records = records

    async def get(self, tenant: str, store_id: str, file_id: str) -> StoreFile | None:
        """Return a file of a store; None if it is not attached."""
        kept = await self._records.get(tenant, FILE, record_id(store_id, file_id))
        return None if kept is None else await self._with_status(kept)

    async def put(self, tenant: str, store_id: str, value: StoreFileValue) -> Kept:
        """Attach a file; what is kept about one that is attached already is replaced. There has to be a job next."""
        name, made = record_id(store_id, value.file_id), msgspec.to_builtins(value)
        while True:
            kept = await self._records.get(tenant, FILE, name)
            try:
                if kept is None:
                    return await self._records.create(tenant, FILE, name, made, parent=store_id)
                kept.value = made
                if await self._records.update(kept):
                    return kept
            except ConflictError:  # somebody else was faster
                continue

    async def change(self, file: StoreFile, value: StoreFileValue) -> bool:
        """Replace what is kept about a file; False if somebody else has done so since it was read."""
        return await self._records.update(msgspec.structs.replace(file.kept, value=msgspec.to_builtins(value)))

    async def page(
        self,
        tenant: str,
        store_id: str,
        *,
        status: FileStatus | None = None,
        limit: int = 20,
        after: str | None = None,
        before: str | None = None,
        order: str = "desc",
    ) -> tuple[list[StoreFile], bool]:
        """Return a part of a store's files, and whether there are more; NotFoundError if a cursor is unknown."""
        kind = FILE if status is None else KIND_OF.get(status, FILE)
        cursors = {
            name: None if file_id is None else record_id(store_id, file_id)
            for name, file_id in (("after", after), ("before", before))
        }
        found: list[StoreFile] = []
        while True:
            page = await self._records.list(
                tenant, kind, parent=store_id, limit=limit - len(found), order=order, **cursors
            )
            files = await self._files(tenant, page.data) if kind != FILE else page.data
            shown = [file for file in await _all(map(self._with_status, files)) if status in {None, file.status}]
            if cursors["after"] is not None or cursors["before"] is None:
                found += shown
                cursors["after"] = page.data[-1].id if page.data else None
            else:
                found = shown + found
                cursors["before"] = page.data[0].id if page.data else None
            if len(found) >= limit or not page.has_more or not page.data:
                return found, page.has_more

    async def counts(self, tenant: str, store_id: str) -> StatusCounts:
        """Count the files of a store by how far they are."""
        total, *others = await _all(
            self._records.count(tenant, kind, parent=store_id) for kind in (FILE, JOB, FAILED, CANCELLED)
        )
        in_progress, failed, cancelled = others
        in_progress = min(in_progress, total)  # what is being detached has a job and no record any more
        return StatusCounts(in_progress, max(0, total - sum(others)), cancelled, failed)

    async def notes(self, tenant: str, store_id: str) -> dict[str, FileStatus]:
        """Return which files of a store are not completed, by id."""
        found: dict[str, FileStatus] = {}
        for kind in (CANCELLED, FAILED, JOB):  # the last counts
            async for kept in self._below(tenant, kind, store_id):
                found[kept.id.partition(":")[2]] = _NOTES[kind]
        return found

    async def places(self, tenant: str, store_id: str, file_id: str) -> list[ChunkPosition]:
        """Return where the chunks of a file stand, in their order; nothing if nobody noted that."""
        kept = await self._records.get(tenant, PLACES, record_id(store_id, file_id))
        if kept is None:
            return []
        headings: list[str] = kept.value["headings"]
        places: list[tuple[int, int, int, int, int]] = kept.value["places"]
        return [ChunkPosition(start, end, page, last, headings[which]) for start, end, page, last, which in places]

    async def note(self, tenant: str, kind: str, store_id: str, file_id: str, value: dict[str, Any]) -> None:
        """Keep something beside the record of a file; what was kept before is replaced."""
        name = record_id(store_id, file_id)
        while True:
            kept = await self._records.get(tenant, kind, name)
            try:
                if kept is None:
                    await self._records.create(tenant, kind, name, value, parent=store_id)
                    return
                kept.value = value
                if await self._records.update(kept):
                    return
            except ConflictError:
                continue

    async def forget(self, tenant: str, store_id: str, file_id: str, kinds: Iterable[str]) -> None:
        """Delete records about a file."""
        for kind in kinds:
            await self._records.delete(tenant, kind, record_id(store_id, file_id))

    async def forget_store(self, tenant: str, store_id: str, *more: str) -> None:
        """Delete all records about the files of a store, and those of further kinds; jobs first, so that work ends."""
        for kind in (JOB, FILE, FAILED, CANCELLED, PLACES, *more):
            async for kept in self._below(tenant, kind, store_id):
                await self._records.delete(tenant, kind, kept.id)

    def scan(self, kind: str) -> AsyncIterator[Kept]:
        """Give the records of one kind of all tenants, oldest first."""
        return scanned(self._records, kind)

    async def _below(self, tenant: str, kind: str, store_id: str) -> AsyncIterator[Kept]:
        after: str | None = None
        while True:
            page = await self._records.list(tenant, kind, parent=store_id, limit=_PAGE, after=after, order="asc")
            for kept in page.data:
                after = kept.id
                yield kept
            if not page.has_more:
                return

    async def _files(self, tenant: str, notes: Iterable[Kept]) -> list[Kept]:
        found = await _all(self._records.get(tenant, FILE, note.id) for note in notes)
        return [kept for kept in found if kept is not None]

    async def _with_status(self, kept: Kept) -> StoreFile:
        value = msgspec.convert(kept.value, StoreFileValue)
        notes = await _all(self._records.get(kept.tenant, kind, kept.id) for kind in _NOTES)
        there = next((note for note in notes if note is not None), None)
        if there is None:
            return StoreFile(kept, value, "completed" if value.indexed is not None else "in_progress")
        return StoreFile(
            kept, value, _NOTES[there.kind], there.value if there.kind == FAILED else None, has_job=there.kind == JOB
        )


async def _all(works: Iterable[Any]) -> list[Any]:
    return list(await asyncio.gather(*works))


def not_attached(file_id: str, store_id: str) -> NotFoundError:
    """Return the error for a file that is not in a store."""
    return NotFoundError(f"No file found with id '{file_id[:100]}' in vector store '{store_id}'.", param="file_id")
