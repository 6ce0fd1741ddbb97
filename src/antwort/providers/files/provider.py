"""The provider `files`: routes, and no functions."""

import time
from collections.abc import AsyncIterator
from typing import Annotated, Literal, get_args

from msgspec import structs, to_builtins
from typing_extensions import override

from antwort.provider import (
    BadRequestError,
    ConflictError,
    Context,
    Counter,
    Example,
    Field,
    FileDetails,
    Files,
    PayloadTooLargeError,
    Provider,
    RateLimitError,
    Request,
    Response,
    ServiceUnavailableError,
    Upload,
    asked_range,
    content_response,
    open_upload,
    route,
)
from antwort.providers.files.uploads import Uploads
from antwort.providers.files.wire import (
    BEGUN,
    FILE,
    FILE_FORM,
    PART_FORM,
    CompleteUpload,
    CreateUpload,
    DeletedFile,
    FileList,
    FileObject,
    Purpose,
    UploadObject,
    UploadPart,
    read_form,
)

_ALL, _ONE = "/v1/files", "/v1/files/{file_id}"
_UPLOADS, _UPLOAD = "/v1/uploads", "/v1/uploads/{upload_id}"
_READ, _WRITE = "files:read", "files:write"
_FORM = "multipart/form-data"
_OF_FILE, _OF_UPLOAD = {"file_id": FILE.id}, {"upload_id": BEGUN.id}
_LISTED = FileList(data=[FILE], first_id=FILE.id, last_id=FILE.id, has_more=False)
_PART = UploadPart(id="part_065a1c3fd6b2", created_at=BEGUN.created_at, upload_id=BEGUN.id)
_WISH = {"filename": FILE.filename, "purpose": FILE.purpose, "bytes": FILE.bytes, "mime_type": "application/pdf"}
_COMPLETED = structs.replace(BEGUN, status="completed", file=FILE)
_CANCELLED = structs.replace(BEGUN, status="cancelled")

Limit = Annotated[int, Field(ge=1, le=10_000, description="How many at most.")]
After = Annotated[str | None, Field(description="The last id of the page before.")]
Order = Annotated[Literal["asc", "desc"], Field(description="By time of creation.")]
OfPurpose = Annotated[str | None, Field(max_length=64, description="Only files with this purpose.")]


class FilesApi(Provider):
    """Files of clients: uploaded whole or in parts, listed, fetched and deleted."""

    name = "files"
    created = Counter("created_total", "Files that were created, by purpose.", ["purpose"])
    received = Counter("received_bytes_total", "Bytes of files and parts that were kept.")
    deleted = Counter("deleted_total", "Files that clients have deleted.")

    @override
    async def lifespan(self) -> AsyncIterator[None]:
        for purpose in get_args(Purpose):
            self.created.labels(purpose)  # so that each shows from the beginning
        yield

    @property
    def _files(self) -> Files:
        files = self.services.files
        if files is None:
            raise ServiceUnavailableError("There are no files here: no app runs.")
        return files

    @property
    def _uploads(self) -> Uploads:
        return Uploads(self.services.records, self._files)

    @route(
        "POST",
        _ALL,
        scope=_WRITE,
        streams_body=True,
        errors=[PayloadTooLargeError, RateLimitError],
        body=FILE_FORM,
        takes=_FORM,
        examples=[Example(to_builtins(FILE), body={"file": "%PDF-1.7", "purpose": FILE.purpose})],
    )
    async def create_file(self, ctx: Context, request: Request) -> FileObject:
        """Keep a file that comes as a form, in its field `file`, with a `purpose`."""
        upload = await open_upload(request, "file")
        made = await self._files.create(
            ctx.tenant, upload.filename, "", upload.chunks, details=lambda: _details(upload)
        )
        self._count(made.purpose, made.bytes)
        return FileObject.of(made)

    @route("GET", _ALL, scope=_READ, examples=[Example(to_builtins(_LISTED))])
    async def list_files(
        self,
        ctx: Context,
        *,
        purpose: OfPurpose = None,
        limit: Limit = 10_000,
        after: After = None,
        order: Order = "desc",
    ) -> FileList:
        """List the files, the newest first."""
        if purpose is not None and "\x00" in purpose:
            raise BadRequestError("There is no such purpose.", param="purpose", code="invalid_value")
        page = await self._files.list(ctx.tenant, purpose=purpose, limit=limit, after=after, order=order)
        data = [FileObject.of(file) for file in page.data]
        return FileList(
            data=data,
            first_id=data[0].id if data else None,
            last_id=data[-1].id if data else None,
            has_more=page.has_more,
        )

    @route("GET", _ONE, scope=_READ, examples=[Example(to_builtins(FILE), parameters=_OF_FILE)])
    async def retrieve_file(self, ctx: Context, file_id: str) -> FileObject:
        """Return what is known of a file."""
        return FileObject.of(await self._files.get(ctx.tenant, file_id))

    @route("DELETE", _ONE, scope=_WRITE, examples=[Example(to_builtins(DeletedFile(id=FILE.id)), parameters=_OF_FILE)])
    async def delete_file(self, ctx: Context, file_id: str) -> DeletedFile:
        """Delete a file, everywhere it is used."""
        await self._files.delete(ctx.tenant, file_id)
        self.deleted.inc()
        return DeletedFile(id=file_id)

    @route(
        "GET",
        f"{_ONE}/content",
        scope=_READ,
        media_type="application/octet-stream",
        returns={"type": "string", "format": "binary"},
        examples=[Example("%PDF-1.7", parameters=_OF_FILE)],
    )
    async def retrieve_file_content(self, ctx: Context, request: Request, file_id: str) -> Response:
        """Return the content of a file, or with a `Range` header some of it."""
        file = await self._files.get(ctx.tenant, file_id)
        part = asked_range(request.headers.get("range"), file.bytes)
        offset, length = (0, file.bytes) if part is None else (part.start, len(part))
        content = await self._files.read(ctx.tenant, file_id, offset=offset, length=length)
        return content_response(content, file.filename, size=file.bytes, part=part)

    @route(
        "POST",
        _UPLOADS,
        scope=_WRITE,
        errors=[PayloadTooLargeError],
        examples=[Example(to_builtins(BEGUN), body=_WISH)],
    )
    async def create_upload(self, ctx: Context, body: CreateUpload) -> UploadObject:
        """Begin a file that comes in parts; it expires in an hour unless it is completed."""
        return await self._uploads.create(ctx.tenant, body)

    @route(
        "POST",
        f"{_UPLOAD}/parts",
        scope=_WRITE,
        streams_body=True,
        errors=[PayloadTooLargeError, RateLimitError],
        body=PART_FORM,
        takes=_FORM,
        examples=[Example(to_builtins(_PART), body={"data": "%PDF-1.7"}, parameters=_OF_UPLOAD)],
    )
    async def create_upload_part(self, ctx: Context, request: Request, upload_id: str) -> UploadPart:
        """Keep a part of up to 64 MiB, which comes as a form, in its field `data`. Several may come at once."""
        upload = await open_upload(request, "data")
        return await self._uploads.add_part(ctx.tenant, upload_id, upload.chunks)

    @route(
        "POST",
        f"{_UPLOAD}/complete",
        scope=_WRITE,
        errors=[ConflictError, RateLimitError],
        examples=[Example(to_builtins(_COMPLETED), body={"part_ids": [_PART.id]}, parameters=_OF_UPLOAD)],
    )
    async def complete_upload(self, ctx: Context, upload_id: str, body: CompleteUpload) -> UploadObject:
        """Make a file of the parts, in the order given."""
        completed = await self._uploads.complete(ctx.tenant, upload_id, body)
        self._count(completed.purpose, completed.bytes)
        return completed

    @route(
        "POST",
        f"{_UPLOAD}/cancel",
        scope=_WRITE,
        errors=[ConflictError],
        examples=[Example(to_builtins(_CANCELLED), parameters=_OF_UPLOAD)],
    )
    async def cancel_upload(self, ctx: Context, upload_id: str) -> UploadObject:
        """Give an upload up, and forget its parts."""
        return await self._uploads.cancel(ctx.tenant, upload_id)

    def _count(self, purpose: str, size: int) -> None:
        self.created.labels(purpose).inc()
        self.received.inc(size)


def _details(upload: Upload) -> FileDetails:
    form = read_form(upload.fields)
    lifetime = None if form.expires_after is None else form.expires_after.seconds
    return FileDetails(form.purpose, None if lifetime is None else int(time.time()) + lifetime)
