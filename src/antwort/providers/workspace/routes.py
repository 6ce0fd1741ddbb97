"""`/v1/workspaces`: the files of agents, for clients: to give them some, and to fetch what they have made."""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Annotated

from antwort.provider import (
    BadRequestError,
    BaseModel,
    ConflictError,
    Context,
    Example,
    Field,
    FileProblemError,
    FoundFile,
    MissingFileError,
    NotFoundError,
    PayloadTooLargeError,
    Request,
    Response,
    file_response,
    route,
    store_file,
)
from antwort.providers.workspace.folders import Folders, WorkspaceObject
from antwort.providers.workspace.settings import WorkspaceSettings

_ALL, _ONE, _FILES = "/v1/workspaces", "/v1/workspaces/{workspace_id}", "/v1/workspaces/{workspace_id}/files"
READ, WRITE = "workspace:read", "workspace:write"


class WorkspaceFile(BaseModel):
    """A file of a workspace."""

    object: str = "workspace.file"
    path: str = Field(description="Relative to the workspace; bytes that are no UTF-8 are shown as in `\\xff`.")
    bytes: int
    modified_at: int = Field(description="Seconds since 1970.")


class DeletedWorkspace(BaseModel):
    """What is left of a workspace."""

    id: str
    object: str = "workspace.deleted"
    deleted: bool = True


class DeletedWorkspaceFile(BaseModel):
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


class WorkspaceFileList(BaseModel):
    """A page of files; their ids are their paths."""

    object: str = "list"
    data: list[WorkspaceFile]
    first_id: str | None
    last_id: str | None
    has_more: bool


_EXAMPLE = WorkspaceObject(id="conv_0199c2", last_active_at=1_790_000_000, bytes=8192, files=2)
_FILE = WorkspaceFile(path="results/table.csv", bytes=1520, modified_at=1_790_000_000)
_IN_PATH = {"workspace_id": _EXAMPLE.id}
_AT = {**_IN_PATH, "path": _FILE.path}

FilePath = Annotated[str, Field(min_length=1, max_length=4096, description="The file, relative to the workspace.")]
Limit = Annotated[int, Field(ge=1, le=1000, description="How many at most.")]
After = Annotated[str | None, Field(description="The last id of the page before.")]


class WorkspaceRoutes:
    """The management routes of workspaces."""

    folders: Folders
    """Given by the provider when it starts."""

    def __init__(self, settings: WorkspaceSettings) -> None:
        self.settings = settings

    @route(
        "GET",
        _ALL,
        scope=READ,
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
        there = await asyncio.to_thread(self.folders.all, ctx.tenant)
        found = [one for one in there if ctx.reaches(one.id, "read")]
        start = next((number for number, one in enumerate(found, 1) if one.id == after), 0)
        data = found[start : start + limit]
        return WorkspaceList(
            data=data,
            first_id=data[0].id if data else None,
            last_id=data[-1].id if data else None,
            has_more=len(found) > start + limit,
        )

    @route("GET", _ONE, scope=READ, examples=[Example(_EXAMPLE.model_dump(), parameters=_IN_PATH)])
    async def retrieve_workspace(self, ctx: Context, workspace_id: str) -> WorkspaceObject:
        """Return a workspace, with what its files take."""
        ctx.require_owner(workspace_id, "read", param="workspace_id")
        most = 2 * self.settings.max_files
        return await asyncio.to_thread(self.folders.describe, ctx.tenant, workspace_id, most)

    @route(
        "DELETE",
        _ONE,
        scope=WRITE,
        examples=[Example(DeletedWorkspace(id=_EXAMPLE.id).model_dump(), parameters=_IN_PATH)],
    )
    async def delete_workspace(self, ctx: Context, workspace_id: str) -> DeletedWorkspace:
        """Delete a workspace with all its files."""
        ctx.require_owner(workspace_id, "write", param="workspace_id")
        await asyncio.to_thread(self.folders.delete, ctx.tenant, workspace_id)
        return DeletedWorkspace(id=workspace_id)

    @route(
        "GET",
        _FILES,
        scope=READ,
        examples=[
            Example(
                WorkspaceFileList(data=[_FILE], first_id=_FILE.path, last_id=_FILE.path, has_more=False).model_dump(),
                parameters=_IN_PATH,
            )
        ],
    )
    async def list_workspace_files(
        self, ctx: Context, workspace_id: str, *, limit: Limit = 1000, after: After = None
    ) -> WorkspaceFileList:
        """List the files of a workspace by their paths."""
        ctx.require_owner(workspace_id, "read", param="workspace_id")
        folder = await asyncio.to_thread(self.folders.find, ctx.tenant, workspace_id)
        with _refusing():
            listed = await asyncio.to_thread(self.folders.files(folder).all)
        found = sorted(map(_file_object, listed), key=lambda file: file.path)
        rest = [file for file in found if after is None or file.path > after]
        data = rest[:limit]
        return WorkspaceFileList(
            data=data,
            first_id=data[0].path if data else None,
            last_id=data[-1].path if data else None,
            has_more=len(rest) > limit,
        )

    @route(
        "PUT",
        _FILES,
        scope=WRITE,
        streams_body=True,
        errors=[PayloadTooLargeError, ConflictError],
        examples=[Example(_FILE.model_dump(), parameters=_AT)],
    )
    async def upload_workspace_file(
        self, ctx: Context, request: Request, workspace_id: str, path: FilePath
    ) -> WorkspaceFile:
        """Store the body as a file; the workspace, and folders on the way, are made if they are not there."""
        ctx.require_owner(workspace_id, "write", param="workspace_id")
        with _refusing():
            async with self.folders.in_use(lambda: self.folders.use(ctx.tenant, workspace_id, for_client=True)) as used:
                files = self.folders.files(used.folder)
                size = await store_file(files, path, request.stream(), self.settings.limits())
            file = await asyncio.to_thread(files.about, path)
        return _file_object(file).model_copy(update={"bytes": size})

    @route(
        "GET",
        f"{_FILES}/content",
        scope=READ,
        media_type="application/octet-stream",
        returns={"type": "string", "format": "binary"},
        examples=[Example("name,amount", parameters=_AT)],
    )
    async def download_workspace_file(self, ctx: Context, workspace_id: str, path: FilePath) -> Response:
        """Return the content of a file."""
        ctx.require_owner(workspace_id, "read", param="workspace_id")
        folder = await asyncio.to_thread(self.folders.find, ctx.tenant, workspace_id)
        with _refusing():
            file = await asyncio.to_thread(self.folders.files(folder).open, path)
        return file_response(file, path)

    @route(
        "DELETE",
        _FILES,
        scope=WRITE,
        examples=[Example(DeletedWorkspaceFile(path=_FILE.path).model_dump(), parameters=_AT)],
    )
    async def delete_workspace_file(self, ctx: Context, workspace_id: str, path: FilePath) -> DeletedWorkspaceFile:
        """Delete a file."""
        ctx.require_owner(workspace_id, "write", param="workspace_id")
        folder = await asyncio.to_thread(self.folders.find, ctx.tenant, workspace_id)
        with _refusing():
            await asyncio.to_thread(self.folders.files(folder).delete, path)
        return DeletedWorkspaceFile(path=path)


def _file_object(file: FoundFile) -> WorkspaceFile:
    return WorkspaceFile(path=file.shown_path, bytes=file.size, modified_at=file.changed // 1_000_000_000)


@contextlib.contextmanager
def _refusing() -> Iterator[None]:
    """Refuse, for clients, what would be told to a model."""
    try:
        yield
    except FileProblemError as error:
        kind = NotFoundError if isinstance(error, MissingFileError) else BadRequestError
        raise kind(str(error), param="path") from error
