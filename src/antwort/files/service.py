"""The files of all tenants: rows in the database, bytes in blobs.

The row comes first and goes last. So a crash leaves either nothing or a row that names what is left, which a sweep
removes: a file whose writer is gone, or one that is not deleted to the end.
"""

import asyncio
import contextlib
import hashlib
import logging
import time
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable

import msgspec
from msgspec import Struct
from typing_extensions import override

from antwort.config.defaults import TENANTS
from antwort.errors import BadRequestError, ConflictError, NotFoundError, PayloadTooLargeError, RateLimitError
from antwort.files.base import Blobs, FileDetails, FileListener, Files
from antwort.storage.base import FileRecord, Page
from antwort.storage.sql.files import SqlFiles
from antwort.wire.ids import new_id

logger = logging.getLogger(__name__)

LONGEST_NAME = 255
"""Characters of a name."""
ABANDONED = 86_400
"""Seconds after which a file that is not complete is one whose writer is gone."""
_SLICE = 100
"""Files that are looked at in one go."""
_GROUP = 1 << 20
"""Bytes that are hashed and written at once: a step to another thread for each piece of a request would cost more."""


class FileLimits(Struct, frozen=True):
    """How much may be kept."""

    file: int = TENANTS.max_file_bytes
    """Bytes of one file."""
    tenant: int | None = None
    """Bytes of all files of a tenant."""


class StoredFiles(Files):
    """Keeps files; several processes may work on the same database and blobs."""

    def __init__(
        self,
        table: SqlFiles,
        blobs: Blobs,
        limits: FileLimits | None = None,
        *,
        check_room: Callable[[str], Awaitable[None]] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._table = table
        self._blobs = blobs
        self._limits = limits or FileLimits()
        self._check_room = check_room
        self._clock = clock
        self._listeners: list[FileListener] = []

    @property
    @override
    def largest(self) -> int:
        return self._limits.file

    @override
    async def create(
        self,
        tenant: str,
        filename: str,
        purpose: str,
        chunks: AsyncIterable[bytes],
        *,
        expires_at: int | None = None,
        part_of: str = "",
        instead_of: str = "",
        details: Callable[[], FileDetails] | None = None,
    ) -> FileRecord:
        content = _Content(chunks, await self._room(tenant, instead_of))
        begun = FileRecord(
            id=new_id("file").replace("_", "-", 1),
            tenant=tenant,
            filename=cleaned_name(filename),
            purpose=purpose,
            bytes=0,
            sha256="",
            created_at=self._now(),
            expires_at=expires_at,
            part_of=part_of,
            status="writing",
        )
        await self._table.begin(begun)
        try:
            await self._blobs.write(begun.id, content.read())
            known = FileDetails(purpose, expires_at) if details is None else details()
            made = msgspec.structs.replace(
                begun,
                bytes=content.size,
                sha256=content.sha256(),
                purpose=known.purpose,
                expires_at=known.expires_at,
                status="uploaded",
            )
            if not await self._table.finish(made):
                raise ConflictError("The file took too long to come, and was given up.")  # noqa: TRY301 - its bytes go
            await self._check_quota(made, instead_of)
        except BaseException:
            await asyncio.shield(self._give_up(begun))
            raise
        return made

    @override
    async def get(self, tenant: str, file_id: str, *, part_of: str = "") -> FileRecord:
        found = await self._table.get(tenant, file_id, part_of, self._now())
        if found is None:
            kind = "part of this upload" if part_of else "file"
            raise NotFoundError(f"There is no {kind} with the id '{file_id[:80]}'.", param="file_id")
        return found

    @override
    async def list(
        self,
        tenant: str,
        *,
        purpose: str | None = None,
        limit: int = 100,
        after: str | None = None,
        order: str = "desc",
        part_of: str = "",
    ) -> Page:
        if after is not None and not is_file_id(after):
            raise BadRequestError(f"'{after[:80]}' is no id of a file.", param="after", code="invalid_value")
        found = await self._table.list(
            tenant,
            part_of=part_of,
            purpose=purpose,
            after=after,
            limit=limit + 1,
            newest_first=order == "desc",
            now=self._now(),
        )
        return Page(found[:limit], has_more=len(found) > limit)

    @override
    async def read(
        self, tenant: str, file_id: str, *, offset: int = 0, length: int | None = None, part_of: str = ""
    ) -> AsyncIterator[bytes]:
        record = await self.get(tenant, file_id, part_of=part_of)
        start = min(max(offset, 0), record.bytes)
        left = record.bytes - start
        pieces = self._blobs.read(record.id, start, left if length is None else min(max(length, 0), left))
        return _going_on(await anext(pieces, b""), pieces)  # what cannot be read is told at once

    @override
    async def delete(self, tenant: str, file_id: str, *, part_of: str = "") -> None:
        record = await self.get(tenant, file_id, part_of=part_of)
        await self._table.mark(tenant, record.id)
        with contextlib.suppress(Exception):  # it is in the log, and tried again by a sweep
            await self._forget(record)

    @override
    def on_delete(self, listener: FileListener) -> None:
        self._listeners.append(listener)

    async def sweep(self) -> int:
        """Delete what has expired and complete what others have left undone; return how many files have gone."""
        now = self._now()
        await self._table.mark_left_over(now=now, abandoned=now - ABANDONED)
        last, forgotten = "", 0
        while found := await self._table.left_over(last, _SLICE):
            last = found[-1].id
            for record in found:
                with contextlib.suppress(Exception):  # it is in the log; the others must not wait for it
                    await self._forget(record)
                    forgotten += 1
        return forgotten

    async def close(self) -> None:
        """Let go of the bytes."""
        await self._blobs.close()

    async def _forget(self, record: FileRecord) -> None:
        """Tell those who listen, and delete the bytes, then the row."""
        try:
            for listener in self._listeners if not record.part_of else ():
                await listener(record)
            await self._blobs.delete(record.id)
            await self._table.remove(record.tenant, record.id)
        except Exception:
            logger.exception("the file '%s' is not deleted to the end; this is tried again", record.id)
            raise

    async def _give_up(self, begun: FileRecord) -> None:
        """Leave nothing of a file that did not come to its end; what cannot be done now is left for a sweep."""
        with contextlib.suppress(Exception):
            await self._table.mark(begun.tenant, begun.id)
            await self._blobs.delete(begun.id)
            await self._table.remove(begun.tenant, begun.id)

    async def _room(self, tenant: str, instead_of: str) -> "_Room":
        """Return how many bytes a new file of a tenant may have; RateLimitError if there is no room at all."""
        if self._check_room is not None:
            await self._check_room(tenant)
        quota = self._limits.tenant
        if quota is None:
            return _Room(self._limits.file)
        left = quota - await self._table.usage(tenant, instead_of)
        return _Room(self._limits.file, left, quota)

    async def _check_quota(self, made: FileRecord, instead_of: str) -> None:
        """Raise RateLimitError if files that came at the same time are too much together."""
        quota = self._limits.tenant
        if quota is not None and await self._table.usage(made.tenant, instead_of) > quota:
            raise _over_quota(quota)

    def _now(self) -> int:
        return int(self._clock())


class _Room(Struct, frozen=True):
    """How much room there is for a file."""

    file: int
    """Bytes that any file may have."""
    left: int | None = None
    """Bytes that the tenant may still keep, if there is a limit."""
    quota: int = 0
    """That limit."""

    def check(self, size: int) -> None:
        """Raise an error if a file of this size is too much."""
        if size > self.file:
            raise PayloadTooLargeError(
                f"The file is larger than {self.file:,} bytes (limits.per_tenant.max_file_bytes)."
            )
        if self.left is not None and size > self.left:
            raise _over_quota(self.quota)


class _Content:
    """What comes in, counted and hashed."""

    def __init__(self, chunks: AsyncIterable[bytes], room: _Room) -> None:
        self._chunks = chunks
        self._room = room
        self._hash = hashlib.sha256()
        self.size = 0

    async def read(self) -> AsyncIterator[bytes]:
        """Yield the content in large pieces; an error when it is more than there is room for."""
        async for group in _grouped(self._counted()):
            await asyncio.to_thread(self._hash.update, group)
            yield group

    async def _counted(self) -> AsyncIterator[bytes]:
        async for chunk in self._chunks:
            self.size += len(chunk)
            self._room.check(self.size)
            yield chunk

    def sha256(self) -> str:
        """Return the hash of what was read."""
        return self._hash.hexdigest()


def cleaned_name(name: str) -> str:
    """Return a name for a file without folders and without characters that cannot be shown or stored."""
    last = name.replace("\\", "/").rstrip("/").rpartition("/")[2]
    shown = "".join(character for character in last if character.isprintable()).strip()
    return shown[-LONGEST_NAME:] if shown.strip(".") else "file"


def is_file_id(text: str) -> bool:
    """Tell whether something looks like the id of a file."""
    return text.startswith("file-") and text.isascii() and text[5:].isalnum()


def _over_quota(quota: int) -> RateLimitError:
    return RateLimitError(
        f"The files of this tenant would take more than {quota:,} bytes (limits.per_tenant.max_files_bytes). "
        "Delete some of them.",
        retry_after=None,
        code="storage_quota_exceeded",
    )


async def _grouped(chunks: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """Put small chunks together."""
    group = bytearray()
    async for chunk in chunks:
        group += chunk
        if len(group) >= _GROUP:
            yield bytes(group)
            group.clear()
    if group:
        yield bytes(group)


async def _going_on(first: bytes, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    if first:
        yield first
    async for piece in pieces:
        yield piece
