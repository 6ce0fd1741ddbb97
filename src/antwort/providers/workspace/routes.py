"""`/v1/workspaces`: the files of agents, for clients: to give them some, and to fetch what they have made."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, BinaryIO

from starlette.responses import StreamingResponse

from antwort.provider import (
    BadRequestError,
    BaseModel,
    ConflictError,
    Context,
    Example,
    Field,
    NotFoundError,
    PayloadTooLargeError,
    Provider,
    Request,
    Response,
    disk_usage,
    route,
)
from antwort.providers.workspace.files import FileObject, FileProblemError, MissingFileError
from antwort.providers.workspace.folders import Folders, WorkspaceObject
from antwort.providers.workspace.settings import WorkspaceSettings

_ALL, _ONE, _FILES = "/v1/workspaces", "/v1/workspaces/{workspace_id}", "/v1/workspaces/{workspace_id}/files"
_READ, _WRITE = "workspace:read", "workspace:write"
_PIECE = 1 << 18
_COUNTED = 8 << 20
"""Bytes of an upload after which what is in the workspace is counted again."""


class DeletedWorkspace(BaseModel):
    """What is left of a workspace."""

    id: str
    object: str = "workspace.deleted"
    deleted: bool = True


class DeletedFile(BaseModel):
    """What is left of a file."""

    path: str
    object: str = "workspace.file.deleted"
    deleted: bool = True


class WorkspaceList(BaseModel):
    """A page of workspaces."""

    object: str = "list"
    data: list[WorkspaceObject]
    first_id: str | None
    last_id: str | None
    has_more: bool


class FileList(BaseModel):
    """A page of files; their ids are their paths."""

    object: str = "list"
    data: list[FileObject]
    first_id: str | None
    last_id: str | None
    has_more: bool


_EXAMPLE = WorkspaceObject(id="conv_0199c2", last_active_at=1_790_000_000, bytes=8192, files=2)
_FILE = FileObject(path="results/table.csv", bytes=1520, modified_at=1_790_000_000)
_IN_PATH = {"workspace_id": _EXAMPLE.id}
_AT = {**_IN_PATH, "path": _FILE.path}

FilePath = Annotated[str, Field(min_length=1, max_length=4096, description="The file, relative to the workspace.")]
Limit = Annotated[int, Field(ge=1, le=1000, description="How many at most.")]
After = Annotated[str | None, Field(description="The last id of the page before.")]


class WorkspaceRoutes(Provider[WorkspaceSettings]):
    """The management routes of workspaces."""

    folders: Folders

    @route(
        "GET",
        _ALL,
        scope=_READ,
        examples=[
            Example(
                WorkspaceList(
                    data=[_EXAMPLE.model_copy(update={"bytes": None, "files": None})],
                    first_id=_EXAMPLE.id,
                    last_id=_EXAMPLE.id,
                    has_more=False,
                ).model_dump()
            )
        ],
    )
    async def list_workspaces(self, ctx: Context, *, limit: Limit = 100, after: After = None) -> WorkspaceList:
        """List workspaces, those used last first."""
        found = await asyncio.to_thread(self.folders.all, ctx.tenant)
        start = next((number for number, one in enumerate(found, 1) if one.id == after), 0)
        data = found[start : start + limit]
        return WorkspaceList(
            data=data,
            first_id=data[0].id if data else None,
            last_id=data[-1].id if data else None,
            has_more=len(found) > start + limit,
        )

    @route("GET", _ONE, scope=_READ, examples=[Example(_EXAMPLE.model_dump(), parameters=_IN_PATH)])
    async def retrieve_workspace(self, ctx: Context, workspace_id: str) -> WorkspaceObject:
        """Return a workspace, with what its files take."""
        most = 2 * self.settings.max_files
        return await asyncio.to_thread(self.folders.describe, ctx.tenant, workspace_id, most)

    @route(
        "DELETE",
        _ONE,
        scope=_WRITE,
        examples=[Example(DeletedWorkspace(id=_EXAMPLE.id).model_dump(), parameters=_IN_PATH)],
    )
    async def delete_workspace(self, ctx: Context, workspace_id: str) -> DeletedWorkspace:
        """Delete a workspace with all its files."""
        await asyncio.to_thread(self.folders.delete, ctx.tenant, workspace_id)
        return DeletedWorkspace(id=workspace_id)

    @route(
        "GET",
        _FILES,
        scope=_READ,
        examples=[
            Example(
                FileList(data=[_FILE], first_id=_FILE.path, last_id=_FILE.path, has_more=False).model_dump(),
                parameters=_IN_PATH,
            )
        ],
    )
    async def list_workspace_files(
        self, ctx: Context, workspace_id: str, *, limit: Limit = 1000, after: After = None
    ) -> FileList:
        """List the files of a workspace by their paths."""
        folder = await asyncio.to_thread(self.folders.find, ctx.tenant, workspace_id)
        found = await asyncio.to_thread(self.folders.files(folder).all)
        rest = [file for file in found if after is None or file.path > after]
        data = rest[:limit]
        return FileList(
            data=data,
            first_id=data[0].path if data else None,
            last_id=data[-1].path if data else None,
            has_more=len(rest) > limit,
        )

    @route(
        "PUT",
        _FILES,
        scope=_WRITE,
        streams_body=True,
        errors=[PayloadTooLargeError, ConflictError],
        examples=[Example(_FILE.model_dump(), parameters=_AT)],
    )
    async def upload_workspace_file(
        self, ctx: Context, request: Request, workspace_id: str, path: FilePath
    ) -> FileObject:
        """Store the body as a file; the workspace, and folders on the way, are made if they are not there."""
        folder = await asyncio.to_thread(self.folders.use, ctx.tenant, workspace_id)
        try:
            size = await self.store(folder, path, request.stream())
            file = await asyncio.to_thread(self.folders.files(folder).about, path)
        except FileProblemError as error:
            raise _refusal(error) from error
        return file.model_copy(update={"bytes": size})

    @route(
        "GET",
        f"{_FILES}/content",
        scope=_READ,
        media_type="application/octet-stream",
        returns={"type": "string", "format": "binary"},
        examples=[Example("name,amount", parameters=_AT)],
    )
    async def download_workspace_file(self, ctx: Context, workspace_id: str, path: FilePath) -> Response:
        """Return the content of a file."""
        folder = await asyncio.to_thread(self.folders.find, ctx.tenant, workspace_id)
        try:
            file = await asyncio.to_thread(self.folders.files(folder).open, path)
        except FileProblemError as error:
            raise _refusal(error) from error
        headers = {"x-content-type-options": "nosniff", "content-disposition": "attachment"}
        return StreamingResponse(_content(file), headers=headers, media_type="application/octet-stream")

    @route(
        "DELETE",
        _FILES,
        scope=_WRITE,
        examples=[Example(DeletedFile(path=_FILE.path).model_dump(), parameters=_AT)],
    )
    async def delete_workspace_file(self, ctx: Context, workspace_id: str, path: FilePath) -> DeletedFile:
        """Delete a file."""
        folder = await asyncio.to_thread(self.folders.find, ctx.tenant, workspace_id)
        try:
            await asyncio.to_thread(self.folders.files(folder).delete, path)
        except FileProblemError as error:
            raise _refusal(error) from error
        return DeletedFile(path=path)

    async def store(self, folder: Path, path: str, chunks: AsyncIterator[bytes]) -> int:
        """Write a file as its content comes, within the limits; PayloadTooLargeError if it does not fit."""
        own = self.settings
        room = min(own.max_file_bytes, await self._room(folder, more=1))
        file = await asyncio.to_thread(self.folders.files(folder).create, path)
        size = counted = 0
        try:
            async for chunk in chunks:
                size += len(chunk)
                if size > room:
                    raise self._no_room(room)  # noqa: TRY301 - what was written has to go, whatever happened
                await asyncio.to_thread(file.write, chunk)
                if size - counted >= _COUNTED:
                    counted = size
                    await self._room(folder)
            await self._room(folder)  # others may have written at the same time
            await asyncio.to_thread(file.keep)
        except BaseException:
            file.drop()
            raise
        return size

    async def _room(self, folder: Path, more: int = 0) -> int:
        """Return how many bytes fit into a workspace; PayloadTooLargeError if it is too full for `more` files."""
        own = self.settings
        used = await asyncio.to_thread(disk_usage, folder, own.max_files)
        if used.files + more > own.max_files:
            raise PayloadTooLargeError(f"The workspace has {own.max_files:,} files, which is the limit; delete some.")
        if used.size > own.max_bytes:
            raise self._no_room(0)
        return own.max_bytes - used.size

    def _no_room(self, room: int) -> PayloadTooLargeError:
        own = self.settings
        return PayloadTooLargeError(
            f"There is room for {room:,} more bytes in the workspace; a file may have {own.max_file_bytes:,}, "
            f"all of them {own.max_bytes:,}."
        )


async def _content(file: BinaryIO) -> AsyncIterator[bytes]:
    with file:
        while piece := await asyncio.to_thread(file.read, _PIECE):
            yield piece


def _refusal(error: FileProblemError) -> NotFoundError | BadRequestError:
    kind = NotFoundError if isinstance(error, MissingFileError) else BadRequestError
    return kind(str(error), param="path")
