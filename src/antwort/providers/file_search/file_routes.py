"""`/v1/vector_stores/{id}/files` and `/file_batches`: OpenAI's API for what is in a vector store."""

import secrets
from typing import Annotated, Literal

from antwort.provider import (
    BadRequestError,
    ConflictError,
    Context,
    Field,
    Kept,
    NotFoundError,
    Records,
    ServiceUnavailableError,
    route,
)
from antwort.providers.file_search.errors import as_api_errors
from antwort.providers.file_search.file_wire import (
    CreateBatch,
    DeletedVectorStoreFile,
    FileBatch,
    FileContent,
    FileText,
    UpdateFile,
    VectorStoreFile,
    VectorStoreFileList,
    counted,
)
from antwort.providers.file_search.ingestion.attached_files import BATCH, AttachedFiles, no_files
from antwort.providers.file_search.ingestion.store_files import FileStatus, StatusCounts, StoreFile
from antwort.providers.file_search.routes import READ, WRITE, find_open_store, find_store
from antwort.providers.file_search.store_record import VectorStoreRecord
from antwort.providers.file_search.vector_stores import VectorStores
from antwort.providers.file_search.wire import AttachFile

_ALL = "/v1/vector_stores/{vector_store_id}/files"
_FILE = f"{_ALL}/{{file_id}}"
_BATCHES = "/v1/vector_stores/{vector_store_id}/file_batches"
_ONE_BATCH = f"{_BATCHES}/{{batch_id}}"

Limit = Annotated[int, Field(ge=1, le=100, description="How many at most.")]
Cursor = Annotated[str | None, Field(description="The id of a file in the list.")]
Order = Annotated[Literal["asc", "desc"], Field(description="By the time of attaching.")]
Status = Annotated[FileStatus | None, Field(description="Only files that are so far.")]


class StoreFileRoutes:
    """The management routes of the files of vector stores."""

    stores: VectorStores
    records: Records
    attached: AttachedFiles | None = None
    """None where the server keeps no files. All three are given by the provider when it starts."""

    @route("POST", _ALL, scope=WRITE, errors=[ConflictError, ServiceUnavailableError])
    async def create_vector_store_file(self, ctx: Context, vector_store_id: str, body: AttachFile) -> VectorStoreFile:
        """Attach a file to a vector store. It is searchable when its status is `completed`."""
        store = await find_open_store(self.stores, ctx, vector_store_id)
        await self._files.check(ctx, [body.file_id])
        return self._shown(await self._attach(store, body))

    @route("GET", _ALL, scope=READ, errors=[ServiceUnavailableError])
    async def list_vector_store_files(
        self,
        ctx: Context,
        vector_store_id: str,
        *,
        limit: Limit = 20,
        after: Cursor = None,
        before: Cursor = None,
        order: Order = "desc",
        filter: Status = None,  # noqa: A002 - what it is called in the API
    ) -> VectorStoreFileList:
        """List the files of a vector store, the newest first."""
        store = await find_store(self.stores, ctx, vector_store_id)
        try:
            found, more = await self._files.store_files.page(
                ctx.tenant, store.id, status=filter, limit=limit, after=after, before=before, order=order
            )
        except NotFoundError:
            raise _unknown_cursor(after, before) from None
        return VectorStoreFileList.of([self._shown(file) for file in found], more=more)

    @route("GET", _FILE, scope=READ, errors=[ServiceUnavailableError])
    async def retrieve_vector_store_file(self, ctx: Context, vector_store_id: str, file_id: str) -> VectorStoreFile:
        """Return a file of a vector store, with how far it is."""
        return self._shown(await self._files.get(await find_store(self.stores, ctx, vector_store_id), file_id))

    @route("POST", _FILE, scope=WRITE, errors=[ConflictError, ServiceUnavailableError])
    async def update_vector_store_file(
        self, ctx: Context, vector_store_id: str, file_id: str, body: UpdateFile
    ) -> VectorStoreFile:
        """Replace the attributes of a file. Its status stays what it was, and filters see them at once."""
        store = await find_open_store(self.stores, ctx, vector_store_id)
        with as_api_errors():
            return self._shown(await self._files.set_attributes(store, file_id, body.attributes or {}))

    @route("GET", f"{_FILE}/content", scope=READ, errors=[ServiceUnavailableError])
    async def retrieve_vector_store_file_content(self, ctx: Context, vector_store_id: str, file_id: str) -> FileContent:
        """Return what a file says: its own text, or what was read out of it."""
        store = await find_open_store(self.stores, ctx, vector_store_id)
        file = await self._files.get(store, file_id)
        with as_api_errors():
            text = await self._files.content(store, file)
        return FileContent(
            file_id=file_id,
            filename=file.value.filename,
            attributes=file.value.attributes,
            data=[FileText(text=text)] if text else [],
        )

    @route("DELETE", _FILE, scope=WRITE, errors=[ServiceUnavailableError])
    async def delete_vector_store_file(
        self, ctx: Context, vector_store_id: str, file_id: str
    ) -> DeletedVectorStoreFile:
        """Remove a file from a vector store. The file itself stays."""
        store = await find_store(self.stores, ctx, vector_store_id)
        with as_api_errors(" The file is marked as removed; its chunks go when that is possible."):
            await self._files.detach(store, file_id)
        return DeletedVectorStoreFile(id=file_id)

    @route("POST", _BATCHES, scope=WRITE, errors=[ConflictError, ServiceUnavailableError])
    async def create_vector_store_file_batch(self, ctx: Context, vector_store_id: str, body: CreateBatch) -> FileBatch:
        """Attach several files to a vector store. If the answer is an error, none was attached."""
        store = await find_open_store(self.stores, ctx, vector_store_id)
        wanted = body.wanted()
        await self._files.check(ctx, [file.file_id for file in wanted])
        value = {"file_ids": [file.file_id for file in wanted], "cancelled": False}
        batch = await self.records.create(ctx.tenant, BATCH, f"vsfb_{secrets.token_hex(16)}", value, parent=store.id)
        for file in wanted:
            await self._attach(store, file)
        return await self._batch_object(batch)

    @route("GET", _ONE_BATCH, scope=READ, errors=[ServiceUnavailableError])
    async def retrieve_vector_store_file_batch(self, ctx: Context, vector_store_id: str, batch_id: str) -> FileBatch:
        """Return a batch, with how far its files are."""
        return await self._batch_object(await self._batch(ctx, vector_store_id, batch_id))

    @route("POST", f"{_ONE_BATCH}/cancel", scope=WRITE, errors=[ServiceUnavailableError])
    async def cancel_vector_store_file_batch(self, ctx: Context, vector_store_id: str, batch_id: str) -> FileBatch:
        """Give up those files of a batch that are not completed yet."""
        batch = await self._batch(ctx, vector_store_id, batch_id)
        store = await find_store(self.stores, ctx, vector_store_id)
        with as_api_errors():
            await self._files.cancel(store, batch.value["file_ids"])
        batch.value["cancelled"] = True
        await self.records.update(batch)
        return await self._batch_object(batch)

    @route("GET", f"{_ONE_BATCH}/files", scope=READ, errors=[ServiceUnavailableError])
    async def list_vector_store_file_batch_files(
        self,
        ctx: Context,
        vector_store_id: str,
        batch_id: str,
        *,
        limit: Limit = 20,
        after: Cursor = None,
        before: Cursor = None,
        order: Order = "desc",
        filter: Status = None,  # noqa: A002
    ) -> VectorStoreFileList:
        """List the files of a batch, the last first."""
        batch = await self._batch(ctx, vector_store_id, batch_id)
        attached: list[str] = batch.value["file_ids"]
        file_ids = attached[::-1] if order == "desc" else attached
        try:
            start = 0 if after is None else file_ids.index(after) + 1
            end = len(file_ids) if before is None else file_ids.index(before)
        except ValueError:
            raise _unknown_cursor(after, before) from None
        found: list[StoreFile] = []
        backwards = after is None and before is not None
        for file_id in reversed(file_ids[start:end]) if backwards else file_ids[start:end]:
            file = await self._files.store_files.get(ctx.tenant, vector_store_id, file_id)
            if file is not None and filter in {None, file.status}:
                found.append(file)
            if len(found) > limit:
                break
        shown = [self._shown(file) for file in found[:limit]]
        return VectorStoreFileList.of(shown[::-1] if backwards else shown, more=len(found) > limit)

    @property
    def _files(self) -> AttachedFiles:
        if self.attached is None:
            raise no_files()
        return self.attached

    def _shown(self, file: StoreFile) -> VectorStoreFile:
        return VectorStoreFile.of(file, self._files.progress(file.store_id, file.value.file_id))

    async def _attach(self, store: VectorStoreRecord, body: AttachFile) -> StoreFile:
        return await self._files.attach_named(store, body.file_id, body.attributes or {}, body.sizes())

    async def _batch(self, ctx: Context, store_id: str, batch_id: str) -> Kept:
        store = await find_store(self.stores, ctx, store_id)
        batch = await self.records.get(ctx.tenant, BATCH, batch_id)
        if batch is None or batch.parent != store.id:
            raise NotFoundError(f"No file batch found with id '{batch_id[:100]}'.", param="batch_id")
        return batch

    async def _batch_object(self, batch: Kept) -> FileBatch:
        notes = await self._files.store_files.notes(batch.tenant, batch.parent)
        counts = StatusCounts()
        for file_id in batch.value["file_ids"]:
            status = notes.get(file_id, "completed")
            setattr(counts, status, getattr(counts, status) + 1)
        done: FileStatus = "cancelled" if batch.value["cancelled"] else "completed"
        return FileBatch(
            id=batch.id,
            created_at=batch.created_at,
            vector_store_id=batch.parent,
            status="in_progress" if counts.in_progress else done,
            file_counts=counted(counts),
        )


def _unknown_cursor(after: str | None, before: str | None) -> BadRequestError:
    name = "after" if after is not None else "before"
    shown = (after or before or "")[:100]
    return BadRequestError(f"There is no file '{shown}' to list from.", param=name, code="invalid_value")
