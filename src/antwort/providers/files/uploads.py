"""Uploads: files that come in parts, and are put together at the end.

An upload is a record; its parts are kept with the files, as parts of it, and expire with it.
"""

import hashlib
import secrets
import time
from collections.abc import AsyncIterator, Sequence

from antwort.provider import (
    JSON,
    BadRequestError,
    ConflictError,
    FileRecord,
    Files,
    Kept,
    NotFoundError,
    PayloadTooLargeError,
    Records,
)
from antwort.providers.files.wire import (
    CompleteUpload,
    CreateUpload,
    FileObject,
    UploadObject,
    UploadPart,
    UploadStatus,
)

_KIND = "upload"
_LASTS = 3600
"""Seconds until an upload expires."""
_REMEMBERED = 86_400
"""Seconds for which an upload is known after that."""
_LARGEST_PART = 64 * 1024**2
_MOST_PARTS = 2000
_FORGOTTEN = 20
"""Old uploads that a new one removes at most: more than it adds, so that they do not pile up."""


class Uploads:
    """The uploads of all tenants."""

    def __init__(self, records: Records, files: Files) -> None:
        self._records = records
        self._files = files

    async def create(self, tenant: str, wish: CreateUpload) -> UploadObject:
        """Begin an upload."""
        if wish.bytes > self._files.largest:
            raise PayloadTooLargeError(
                f"A file may have {self._files.largest:,} bytes (limits.per_tenant.max_file_bytes).", param="bytes"
            )
        await self._forget_old(tenant)
        now = int(time.time())
        value: JSON = {
            "filename": wish.filename,
            "purpose": wish.purpose,
            "bytes": wish.bytes,
            "mime_type": wish.mime_type,
            "lifetime": None if wish.expires_after is None else wish.expires_after.seconds,
            "expires_at": now + _LASTS,
            "status": "pending",
        }
        name = f"upload_{secrets.token_hex(24)}"
        return _upload_object(await self._records.create(tenant, _KIND, name, value, created_at=now))

    async def add_part(self, tenant: str, upload_id: str, chunks: AsyncIterator[bytes]) -> UploadPart:
        """Keep a part."""
        upload = await self._pending(tenant, upload_id)
        parts = await self._parts(upload)
        if len(parts) >= _MOST_PARTS:
            raise BadRequestError(f"An upload has {_MOST_PARTS:,} parts at most; send larger ones.", param="data")
        room = upload.value["bytes"] - sum(part.bytes for part in parts)
        part = await self._files.create(
            tenant,
            upload.value["filename"],
            upload.value["purpose"],
            _bounded(chunks, room),
            expires_at=upload.value["expires_at"],
            part_of=upload.id,
        )
        return UploadPart(id=_part_id(part), created_at=part.created_at, upload_id=upload.id)

    async def complete(self, tenant: str, upload_id: str, wish: CompleteUpload) -> UploadObject:
        """Put the parts together: a new file."""
        upload = await self._pending(tenant, upload_id)
        parts = _chosen(await self._parts(upload), wish.part_ids)
        if (size := sum(part.bytes for part in parts)) != upload.value["bytes"]:
            raise BadRequestError(
                f"The parts have {size:,} bytes; the upload was to have {upload.value['bytes']:,}.", param="part_ids"
            )
        lifetime = upload.value["lifetime"]
        file = await self._files.create(
            tenant,
            upload.value["filename"],
            upload.value["purpose"],
            _checked(self._joined(parts), wish.md5),
            expires_at=None if lifetime is None else int(time.time()) + lifetime,
            instead_of=upload.id,
        )
        try:
            await self._end(upload, "completed")
        except ConflictError:
            await self._files.delete(tenant, file.id)
            raise
        return _upload_object(upload, file)

    async def cancel(self, tenant: str, upload_id: str) -> UploadObject:
        """Give an upload up."""
        upload = await self._pending(tenant, upload_id)
        await self._end(upload, "cancelled")
        return _upload_object(upload)

    async def _pending(self, tenant: str, upload_id: str) -> Kept:
        upload = await self._records.get(tenant, _KIND, upload_id)
        if upload is None:
            raise NotFoundError(f"There is no upload with the id '{upload_id[:80]}'.", param="upload_id")
        if (status := _status(upload)) != "pending":
            raise BadRequestError(f"The upload is {status}.", param="upload_id", code="upload_not_pending")
        return upload

    async def _parts(self, upload: Kept) -> Sequence[FileRecord]:
        page = await self._files.list(upload.tenant, part_of=upload.id, limit=_MOST_PARTS + 100, order="asc")
        found: Sequence[FileRecord] = page.data
        return found

    async def _joined(self, parts: Sequence[FileRecord]) -> AsyncIterator[bytes]:
        for part in parts:
            async for piece in await self._files.read(part.tenant, part.id, part_of=part.part_of):
                yield piece

    async def _end(self, upload: Kept, status: str) -> None:
        """Say how an upload ended, and delete its parts; those of one that has just come expire by themselves."""
        upload.value["status"] = status
        if not await self._records.update(upload):
            raise ConflictError("The upload was completed or cancelled at the same time.", code="upload_not_pending")
        for part in await self._parts(upload):
            await self._files.delete(upload.tenant, part.id, part_of=upload.id)

    async def _forget_old(self, tenant: str) -> None:
        page = await self._records.list(tenant, _KIND, order="asc", limit=_FORGOTTEN)
        for upload in page.data:
            if upload.value["expires_at"] + _REMEMBERED < time.time():
                await self._records.delete(tenant, _KIND, upload.id)


def _status(upload: Kept) -> UploadStatus:
    status: UploadStatus = upload.value["status"]
    return "expired" if status == "pending" and upload.value["expires_at"] <= time.time() else status


def _upload_object(upload: Kept, file: FileRecord | None = None) -> UploadObject:
    shown = {key: upload.value[key] for key in ("bytes", "expires_at", "filename", "purpose")}
    about = None if file is None else FileObject.of(file)
    return UploadObject(id=upload.id, created_at=upload.created_at, status=_status(upload), file=about, **shown)


def _part_id(part: FileRecord) -> str:
    return f"part_{part.id.removeprefix('file-')}"


def _chosen(parts: Sequence[FileRecord], part_ids: Sequence[str]) -> list[FileRecord]:
    """Return the parts in the order that is asked for; BadRequestError if one is not there, or there twice."""
    known = {_part_id(part): part for part in parts}
    for part_id in part_ids:
        if part_id not in known:
            raise BadRequestError(f"The upload has no part '{part_id[:80]}'.", param="part_ids", code="invalid_value")
    if len(set(part_ids)) < len(part_ids):
        raise BadRequestError("A part is named twice.", param="part_ids", code="invalid_value")
    return [known[part_id] for part_id in part_ids]


async def _bounded(chunks: AsyncIterator[bytes], room: int) -> AsyncIterator[bytes]:
    size = 0
    async for chunk in chunks:
        size += len(chunk)
        if size > _LARGEST_PART:
            raise PayloadTooLargeError(f"A part has {_LARGEST_PART:,} bytes at most.", param="data")
        if size > room:
            raise BadRequestError("The parts have more bytes than the upload was to have.", param="data")
        yield chunk
    if not size:
        raise BadRequestError("The part is empty.", param="data")


async def _checked(chunks: AsyncIterator[bytes], md5: str | None) -> AsyncIterator[bytes]:
    """Pass chunks on; BadRequestError at their end if they are not those with the sum."""
    digest = hashlib.md5(usedforsecurity=False)
    async for chunk in chunks:
        if md5 is not None:
            digest.update(chunk)
        yield chunk
    if md5 is not None and digest.hexdigest() != md5.lower():
        raise BadRequestError(f"The MD5 of the file is {digest.hexdigest()}.", param="md5", code="invalid_value")
