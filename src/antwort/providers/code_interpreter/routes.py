"""`/v1/containers`: what sessions work on, for clients: to give them files, and to fetch what they have made."""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeVar

from pydantic import ConfigDict, ValidationError

from antwort.provider import (
    BadRequestError,
    BaseModel,
    ConflictError,
    Context,
    Field,
    NotFoundError,
    PayloadTooLargeError,
    Request,
    Response,
    file_response,
    open_upload,
    route,
)
from antwort.providers.code_interpreter.containers import Container, Containers
from antwort.providers.code_interpreter.files import File
from antwort.providers.code_interpreter.given_files import GivenFiles
from antwort.providers.code_interpreter.sessions import Sessions
from antwort.providers.code_interpreter.settings import (
    CodeInterpreterSettings,
    MemoryLimit,
    check_memory,
    memory_bytes,
    memory_name,
)
from antwort.providers.code_interpreter.tool import check_wishes


class _ContainerBody(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class ContainerExpiry(_ContainerBody):
    """How long a container is kept."""

    anchor: Literal["last_active_at"] = "last_active_at"
    minutes: int = Field(ge=1, le=525_600, description="Minutes after its last use.")


class NoNetwork(_ContainerBody):
    """Nothing can be reached."""

    type: Literal["disabled"]


class DomainSecret(_ContainerBody):
    """A secret for a domain."""

    domain: str
    name: str
    value: str


class SomeNetwork(_ContainerBody):
    """Some domains can be reached."""

    type: Literal["allowlist"]
    allowed_domains: list[str]
    domain_secrets: list[DomainSecret] | None = None


class CreateContainer(_ContainerBody):
    """A container to be made."""

    name: str = Field(min_length=1, max_length=256)
    expires_after: ContainerExpiry | None = None
    memory_limit: MemoryLimit | None = Field(default=None, description="Not more than the operator allows.")
    file_ids: list[str] | None = Field(default=None, max_length=50, description="Files to begin with, by their ids.")
    network_policy: NoNetwork | SomeNetwork | None = Field(
        default=None, discriminator="type", description="Only `disabled` is served."
    )
    skills: list[dict[str, Any]] | None = Field(default=None, description="Not served.")


class NamedFile(BaseModel):
    """A file of the files API."""

    file_id: str


class NetworkPolicy(BaseModel):
    """What code can reach."""

    type: Literal["disabled"] = "disabled"


class ContainerObject(BaseModel):
    """A container."""

    id: str
    object: Literal["container"] = "container"
    name: str
    created_at: int
    last_active_at: int
    status: Literal["active"] = "active"
    expires_after: ContainerExpiry
    memory_limit: MemoryLimit | None = Field(description="The largest of these that it has; null if it has less.")
    memory_bytes: int = Field(description="The memory that it has.")
    network_policy: NetworkPolicy = NetworkPolicy()


class ContainerList(BaseModel):
    """A page of containers."""

    object: Literal["list"] = "list"
    data: list[ContainerObject]
    first_id: str | None
    last_id: str | None
    has_more: bool


class DeletedContainer(BaseModel):
    """What is left of a container."""

    id: str
    object: Literal["container.deleted"] = "container.deleted"
    deleted: bool = True


class ContainerFile(BaseModel):
    """A file of a container."""

    id: str
    object: Literal["container.file"] = "container.file"
    container_id: str
    path: str = Field(description="Where code sees it.")
    bytes: int
    created_at: int
    source: Literal["user", "assistant"] = Field(description="Who has written it.")


class ContainerFileList(BaseModel):
    """A page of files."""

    object: Literal["list"] = "list"
    data: list[ContainerFile]
    first_id: str | None
    last_id: str | None
    has_more: bool


class DeletedContainerFile(BaseModel):
    """What is left of a file."""

    id: str
    object: Literal["container.file.deleted"] = "container.file.deleted"
    deleted: bool = True


def container_object(container: Container, settings: CodeInterpreterSettings) -> ContainerObject:
    """Return a container as clients see it, with the memory that it has."""
    about = container.about
    memory = settings.limits(memory_bytes(about.memory_limit)).memory
    return ContainerObject(
        id=container.id,
        name=about.name,
        created_at=about.created_at,
        last_active_at=container.last_active_at,
        expires_after=ContainerExpiry(minutes=about.minutes or settings.keep_minutes),
        memory_limit=memory_name(memory),
        memory_bytes=memory,
    )


def file_object(container: Container, file: File) -> ContainerFile:
    """Return a file as clients see it."""
    return ContainerFile(
        id=file.id,
        container_id=container.id,
        path=file.full_path,
        bytes=file.found.size,
        created_at=file.found.changed // 1_000_000_000,
        source="user" if file.found.path in container.about.uploads else "assistant",
    )


_ALL, _ONE = "/v1/containers", "/v1/containers/{container_id}"
_FILES, _FILE = f"{_ONE}/files", f"{_ONE}/files/{{file_id}}"
READ, WRITE = "containers:read", "containers:write"
_JSON = "application/json"
_LONGEST_BODY = 4096
_UPLOAD = {
    "type": "object",
    "properties": {"file": {"type": "string", "format": "binary"}, "file_id": {"type": "string"}},
}

Limit = Annotated[int, Field(ge=1, le=100, description="How many at most.")]
After = Annotated[str | None, Field(description="The last id of the page before.")]
Order = Annotated[Literal["asc", "desc"], Field(description="By time of creation.")]


T = TypeVar("T", ContainerObject, ContainerFile)


class ContainerRoutes:
    """The management routes of containers."""

    containers: Containers
    sessions: Sessions
    given_files: GivenFiles
    """These three are given by the provider when it starts."""

    def __init__(self, settings: CodeInterpreterSettings) -> None:
        self.settings = settings

    @route("POST", _ALL, scope=WRITE, errors=[ConflictError])
    async def create_container(self, ctx: Context, body: CreateContainer) -> ContainerObject:
        """Create a container."""
        check_wishes(body.model_dump())
        check_memory(body.memory_limit, self.settings.max_memory, "memory_limit")
        minutes = self._checked_minutes(body.expires_after)
        wanted = [
            await self.given_files.known(ctx, file_id, "file_ids") for file_id in dict.fromkeys(body.file_ids or ())
        ]
        made = await asyncio.to_thread(
            lambda: self.containers.create(ctx.tenant, body.name, minutes=minutes, memory_limit=body.memory_limit)
        )
        try:
            for file in wanted:
                await self.given_files.put_known(made, file)
        except BaseException:
            await asyncio.to_thread(self.containers.discard, made.folder)
            raise
        return self._container_object(made)

    @route("GET", _ALL, scope=READ)
    async def list_containers(
        self,
        ctx: Context,
        *,
        limit: Limit = 20,
        after: After = None,
        order: Order = "desc",
        name: Annotated[str | None, Field(description="Only those of this name.")] = None,
    ) -> ContainerList:
        """List the containers, the newest first."""
        try:
            found = await asyncio.to_thread(
                lambda: self.containers.all(ctx.tenant, after=after, newest_first=order == "desc")
            )
        except NotFoundError as error:
            raise _unknown_cursor(error.message) from error
        shown = [self._container_object(one) for one in found if name is None or one.about.name == name]
        data, more = _page(shown, limit)
        return ContainerList(data=data, first_id=_first(data), last_id=_last(data), has_more=more)

    @route("GET", _ONE, scope=READ)
    async def retrieve_container(self, ctx: Context, container_id: str) -> ContainerObject:
        """Return a container."""
        return self._container_object(await self._find(ctx, container_id))

    @route("DELETE", _ONE, scope=WRITE)
    async def delete_container(self, ctx: Context, container_id: str) -> DeletedContainer:
        """Delete a container with its session and all its files."""
        container = await self._find(ctx, container_id)
        await asyncio.to_thread(
            self.containers.discard, container.folder
        )  # so code that still runs is told why it ends
        await self.sessions.close(container)
        await asyncio.to_thread(self.containers.empty_discarded)
        return DeletedContainer(id=container.id)

    @route("GET", _FILES, scope=READ)
    async def list_container_files(
        self, ctx: Context, container_id: str, *, limit: Limit = 20, after: After = None, order: Order = "desc"
    ) -> ContainerFileList:
        """List the files of a container, those written last first."""
        container = await self._find(ctx, container_id)
        found = await asyncio.to_thread(self.containers.files(container).all)
        found.sort(key=lambda file: (file.found.changed, file.path), reverse=order == "desc")
        data, more = _page([file_object(container, file) for file in found], limit, after)
        return ContainerFileList(data=data, first_id=_first(data), last_id=_last(data), has_more=more)

    @route(
        "POST",
        _FILES,
        scope=WRITE,
        streams_body=True,
        errors=[PayloadTooLargeError],
        body=_UPLOAD,
        takes="multipart/form-data",
    )
    async def create_container_file(self, ctx: Context, request: Request, container_id: str) -> ContainerFile:
        """Store a file that is uploaded as a form, in its field `file`, or one of the files API, named by `file_id`."""
        container = await asyncio.to_thread(self.containers.use, ctx.tenant, container_id)
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() == _JSON:
            named = await _named_file(request)
        else:
            upload = await open_upload(request, "file", instead="file_id")
            named = "" if upload.filename else upload.fields.get("file_id", "")
            if not named:
                return file_object(container, await self.given_files.put(container, upload.filename, upload.chunks))
        known = await self.given_files.known(ctx, named, "file_id")
        return file_object(container, await self.given_files.put_known(container, known))

    @route("GET", _FILE, scope=READ)
    async def retrieve_container_file(self, ctx: Context, container_id: str, file_id: str) -> ContainerFile:
        """Return what a file is."""
        container, file = await self._file(ctx, container_id, file_id)
        return file_object(container, file)

    @route(
        "GET",
        f"{_FILE}/content",
        scope=READ,
        media_type="application/octet-stream",
        returns={"type": "string", "format": "binary"},
    )
    async def retrieve_container_file_content(self, ctx: Context, container_id: str, file_id: str) -> Response:
        """Return the content of a file."""
        container, file = await self._file(ctx, container_id, file_id)
        opened = await asyncio.to_thread(self.containers.files(container).open, file)
        return file_response(opened, file.path)

    @route("DELETE", _FILE, scope=WRITE)
    async def delete_container_file(self, ctx: Context, container_id: str, file_id: str) -> DeletedContainerFile:
        """Delete a file."""
        container, file = await self._file(ctx, container_id, file_id)
        await asyncio.to_thread(self.containers.files(container).delete, file)
        return DeletedContainerFile(id=file.id)

    async def _find(self, ctx: Context, container_id: str) -> Container:
        return await asyncio.to_thread(self.containers.find, ctx.tenant, container_id)

    async def _file(self, ctx: Context, container_id: str, file_id: str) -> tuple[Container, File]:
        container = await self._find(ctx, container_id)
        return container, await asyncio.to_thread(self.containers.files(container).find, file_id)

    def _checked_minutes(self, asked: ContainerExpiry | None) -> int | None:
        """Return how long a container is to be kept; BadRequestError if that is longer than any is."""
        most = self.settings.keep_minutes
        if asked is not None and asked.minutes > most:
            raise BadRequestError(
                f"'expires_after.minutes' can be up to {most:,} here, and is {asked.minutes:,}.",
                param="expires_after.minutes",
            )
        return None if asked is None else asked.minutes

    def _container_object(self, container: Container) -> ContainerObject:
        return container_object(container, self.settings)


async def _named_file(request: Request) -> str:
    """Return the `file_id` of a JSON body."""
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > _LONGEST_BODY:
            raise PayloadTooLargeError("The body has no more than a file_id.")
    try:
        return NamedFile.model_validate_json(body).file_id
    except ValidationError:
        raise BadRequestError("The body must have the id of a file, as 'file_id'.", param="file_id") from None


def _page(found: Sequence[T], limit: int, after: str | None = None) -> tuple[list[T], bool]:
    """Return a page of a list, and whether there is more; BadRequestError if the cursor is unknown."""
    start = 0
    if after is not None:
        start = next((number for number, one in enumerate(found, 1) if one.id == after), 0)
        if not start:
            raise _unknown_cursor(f"There is nothing with the id '{after[:80]}'.")
    return list(found[start : start + limit]), len(found) > start + limit


def _unknown_cursor(why: str) -> BadRequestError:
    return BadRequestError(why, param="after", code="invalid_value")


def _first(data: Sequence[Any]) -> str | None:
    return data[0].id if data else None


def _last(data: Sequence[Any]) -> str | None:
    return data[-1].id if data else None
