"""The provider: commands and files, in a folder for each conversation or run."""

import asyncio
import contextlib
import logging
import math
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from typing_extensions import override

from antwort.provider import (
    Context,
    Counter,
    Field,
    FolderInUse,
    FunctionError,
    FunctionUnavailableError,
    Image,
    NotFoundError,
    Provider,
    ToolResult,
    as_function_errors,
    function,
    sandbox_of,
    store_file,
)
from antwort.providers.workspace.folders import Folders
from antwort.providers.workspace.routes import READ, WRITE, WorkspaceRoutes
from antwort.providers.workspace.settings import WorkspaceSettings
from antwort.providers.workspace.shell import (
    DELETED,
    CommandOutput,
    FileTool,
    ShellTool,
    asked_memory,
    check_command,
    check_memory,
    earlier_workspace,
    earlier_workspaces,
    going_on,
    item_fields,
    named_workspace,
    report,
)
from antwort.providers.workspace.texts import Edit, difference, edited, read_lines, read_whole

logger = logging.getLogger(__name__)

_SCOPES: Mapping[Literal["read", "write"], str] = {"read": READ, "write": WRITE}
_ALONE = "default"
"""The workspace of calls that belong to no response."""

FilePath = Annotated[str, Field(min_length=1, description="Relative to the workspace.")]


_LARGEST_PICTURE = 10 * 1024**2
"""Bytes of a picture that a model looks at."""


class Workspace(Provider[WorkspaceSettings]):
    """A folder to work in: commands in a sandbox, and files."""

    commands = Counter("commands_total", "Commands, by how they ended.", ["ending"])

    def __init__(self, settings: WorkspaceSettings | None = None) -> None:
        super().__init__(settings)
        self._management = WorkspaceRoutes(self.settings)
        self.parts = (self._management,)

    @override
    async def lifespan(self) -> AsyncIterator[None]:
        own = self.settings
        self._sandbox = sandbox_of(own.sandbox, self.services.sandbox)
        if own.sandbox == "unsafe":
            logger.warning("workspace: commands of models run on this host without a sandbox, as the server's own user")
        await self._sandbox.prepare()
        place = await asyncio.to_thread(lambda: self.services.folder)
        self.folders = Folders(place, self._sandbox, keep=own.keep, most=own.max_workspaces, limits=own.limits())
        self._management.folders = self.folders
        await self.folders.open()
        self._slots = self.slots(own.concurrency)
        self._writers = self.slots(own.concurrency, f"{self.name}_files")
        sweeping = asyncio.create_task(self.folders.sweep_regularly())
        try:
            yield
        finally:
            sweeping.cancel()
            await asyncio.wait([sweeping])
            await self.folders.close()

    @override
    async def prepare_tool(
        self, name: str, tool: Mapping[str, Any], items: Iterable[Mapping[str, Any]], ctx: Context
    ) -> Mapping[str, Any]:
        check_memory(tool, self.settings.max_memory)
        if (workspace_id := named_workspace(tool)) is not None:
            for access, scope in _SCOPES.items():
                ctx.require(scope, param="environment.container_id", purpose="to use a workspace by its id")
                ctx.require_owner(workspace_id, access, param="environment.container_id")
            try:
                await asyncio.to_thread(self.folders.find, ctx.tenant, workspace_id)
            except NotFoundError as error:
                raise NotFoundError(error.message, param="environment.container_id") from error
            return tool
        for earlier in earlier_workspaces(items) if self.settings.per == "conversation" else ():
            if not all(ctx.grants(scope) and ctx.reaches(earlier, access) for access, scope in _SCOPES.items()):
                continue  # a client may name any in what it sends back
            with contextlib.suppress(NotFoundError):
                await asyncio.to_thread(self.folders.find, ctx.tenant, earlier)
                return going_on(tool, earlier)
        return tool

    @function(timeout=math.inf, hosted=ShellTool(), in_order=True)
    async def shell(
        self,
        ctx: Context,
        command: Annotated[str, Field(min_length=1, description="For bash.")],
        timeout_ms: Annotated[int | None, Field(ge=1, description="Milliseconds it may take.")] = None,
    ) -> ToolResult:
        """Execute a shell command in the workspace. No network; processes end with the command, files stay."""
        check_command(command)
        limits = self.settings.limits(None if timeout_ms is None else timeout_ms / 1000, asked_memory(ctx))
        # Whoever waits has no folder yet: what each may write is claimed of the disk, for as many as are at work.
        async with self._slots.taken_by(ctx.tenant), self._folder(ctx) as used:
            done = await self._sandbox.run(
                ["bash", "-c", command], used.folder, limits=limits, network=self.settings.network
            )
            is_deleted, is_full = await asyncio.to_thread(_state, used)
        self.commands.labels(done.ending).inc()
        said = await CommandOutput.of(done)
        text = report(done, said, limits, is_deleted=is_deleted, is_full=is_full)
        return ToolResult(text, item=item_fields(used.folder.name, done, said))

    @function(attach=True, hosted=FileTool(), in_order=True)
    async def read_file(
        self,
        ctx: Context,
        path: FilePath,
        offset: Annotated[int, Field(ge=1, description="The first line.")] = 1,
        limit: Annotated[int | None, Field(ge=1, description="Lines to return.")] = None,
    ) -> str:
        """Read a file of the workspace, or some lines of it."""
        async with self._folder(ctx, written=False) as used:
            files = self.folders.files(used.folder)

            def read() -> str:
                with files.open(path) as file:
                    return read_lines(file, path, offset, limit, self.settings.max_read)

            return await asyncio.to_thread(read)

    @function(attach=True, hosted=FileTool(), in_order=True, offer="on_request")
    async def view_image(self, ctx: Context, path: FilePath) -> Image:
        """Look at a picture of the workspace: PNG, JPEG, GIF or WebP."""
        async with self._folder(ctx, written=False) as used:
            files = self.folders.files(used.folder)

            def read() -> bytes:
                with files.open(path) as file:
                    return file.read(_LARGEST_PICTURE + 1)

            data = await asyncio.to_thread(read)
        if len(data) > _LARGEST_PICTURE:
            raise FunctionError(f"{path} has more than {_LARGEST_PICTURE:,} bytes; make it smaller first.")
        return Image.of(data)

    @function(attach=True, hosted=FileTool(), in_order=True, spill=False)
    async def write_file(
        self, ctx: Context, path: FilePath, content: Annotated[str, Field(description="All of it.")]
    ) -> str:
        """Write a file of the workspace; folders on the way are made."""
        async with self._writers.taken_by(ctx.tenant), self._folder(ctx) as used:
            size = await self._write(used.folder, path, content)
        return f"Wrote {size:,} bytes to {path}."

    @function(hosted=FileTool(), in_order=True)
    async def edit_file(
        self,
        ctx: Context,
        path: FilePath,
        edits: Annotated[list[Edit], Field(min_length=1, description="Made in order, all or none.")],
    ) -> str:
        """Edit a file of the workspace: replace texts, each of which stands in it exactly once. Returns the diff."""
        async with self._writers.taken_by(ctx.tenant), self._folder(ctx) as used:
            files = self.folders.files(used.folder)

            def read() -> str:
                with files.open(path) as file:
                    return read_whole(file, path)

            before = await asyncio.to_thread(read)
            after = await asyncio.to_thread(edited, before, edits)
            await self._write(used.folder, path, after)
        return await asyncio.to_thread(difference, path, before, after) or "Nothing has changed."

    async def _write(self, folder: Path, path: str, text: str) -> int:
        async def chunks() -> AsyncIterator[bytes]:
            yield text.encode(errors="replace")

        with as_function_errors():
            return await store_file(self.folders.files(folder), path, chunks(), self.settings.limits())

    @contextlib.asynccontextmanager
    async def _folder(self, ctx: Context, *, written: bool = True) -> AsyncIterator[FolderInUse]:
        """Use the workspace of a call."""
        async with contextlib.AsyncExitStack() as stack:
            with as_function_errors():
                using = self.folders.in_use(lambda: self._asked(ctx), written=written)
                used = await stack.enter_async_context(using)
            try:
                yield used
            except FunctionUnavailableError as error:
                if await asyncio.to_thread(lambda: used.is_deleted):
                    raise FunctionError(DELETED) from error
                raise
            await asyncio.to_thread(self.folders.touch, used.folder)  # it was in use until now

    def _asked(self, ctx: Context) -> Path:
        """Return the folder of the workspace that a call is for, which is made if it is that of a conversation."""
        workspace_id = self._id(ctx)
        if (named := named_workspace(ctx.options)) is not None:
            workspace_id = self.folders.find(ctx.tenant, named).name
        elif (earlier := earlier_workspace(ctx.options)) is not None:
            with contextlib.suppress(NotFoundError):  # it has gone since the request came
                workspace_id = self.folders.find(ctx.tenant, earlier).name
        return self.folders.use(ctx.tenant, workspace_id)

    def _id(self, ctx: Context) -> str:
        own = ctx.run_id if self.settings.per == "run" else ctx.conversation_id
        return own or ctx.run_id or _ALONE


def _state(used: FolderInUse) -> tuple[bool, bool]:
    """Tell whether a folder is gone, and whether it is full."""
    is_deleted = used.is_deleted
    return is_deleted, not is_deleted and used.is_full
