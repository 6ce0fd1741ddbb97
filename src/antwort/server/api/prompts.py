"""`/v1/prompts`: texts with places for variables, in versions, that requests name instead of sending them."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Literal

from msgspec import Meta, Struct
from pydantic import BaseModel, ConfigDict, Field

from antwort.context import Context
from antwort.context.context import PROMPTS_READ, PROMPTS_WRITE
from antwort.errors import BadRequestError, ConflictError
from antwort.runs.limits import TenantLimits
from antwort.server.api.description import examples
from antwort.storage.prompts import Prompt, Prompts, PromptVersion, number_of
from antwort.web.parameters import After, Before, Limit, Order, unknown_cursor
from antwort.web.routes import Route
from antwort.wire.field_errors import missing_parameter

Name = Annotated[str, Field(min_length=1, max_length=256)]
Template = Annotated[
    str, Field(min_length=1, max_length=100_000, description="The text, with `{{name}}` in the places of variables.")
]
Variables = Annotated[
    list[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*$", max_length=64)]],
    Field(max_length=100, description="The names of variables; those in the text need not be named."),
]
Version = Annotated[int | Annotated[str, Field(max_length=16)], Field(description="The number of a version.")]


class _PromptBody(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)

    name: Annotated[Name | None, Field(description="What it is called.")] = None
    template: Template | None = None
    prompt: Annotated[Template | None, Field(description="Another name of `template`.")] = None
    variables: Variables | None = None

    @property
    def text(self) -> str | None:
        """Its text, under whichever name it came."""
        if self.template is not None and self.prompt is not None:
            raise BadRequestError("Give either 'template' or 'prompt': both are the text.", param="prompt")
        return self.prompt if self.template is None else self.template


class CreatePrompt(_PromptBody):
    """A request for a prompt."""


class UpdatePrompt(_PromptBody):
    """A request for a further version of a prompt; what is left out stays as it is."""

    version: Annotated[Version | None, Field(description="The latest version, which the new one follows.")] = None
    set_as_default: Annotated[bool, Field(description="Whether requests that name no version get the new one.")] = True


class DefaultVersion(BaseModel):
    """Which version requests get that name none."""

    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)

    version: Version


class PromptObject(Struct, kw_only=True):
    """A version of a prompt."""

    id: str
    prompt_id: Annotated[str, Meta(description="The same as `id`.")]
    object: Literal["prompt"] = "prompt"
    name: str | None
    template: Annotated[str, Meta(description="Its text, with `{{name}}` in the places of variables.")]
    prompt: Annotated[str, Meta(description="The same as `template`.")]
    variables: Sequence[str]
    version: int
    is_default: Annotated[bool, Meta(description="Whether requests get it that name no version.")]
    default_version: int
    latest_version: int
    created_at: Annotated[int, Meta(description="When the version was made; 0 of one of the configuration.")]
    configured: Annotated[bool, Meta(description="Whether it is one of the configuration, which no request changes.")]


class PromptList(Struct, kw_only=True):
    """A page of prompts, each with its default version; or all versions of one."""

    object: Literal["list"] = "list"
    data: Sequence[PromptObject]
    first_id: str | None
    last_id: str | None
    has_more: bool


class DeletedPrompt(Struct, kw_only=True):
    """That a prompt was deleted."""

    id: str
    object: Literal["prompt.deleted"] = "prompt.deleted"
    deleted: bool = True


class PromptEndpoints:
    """The endpoints of prompts."""

    def __init__(self, prompts: Prompts, limits: TenantLimits) -> None:
        self._prompts = prompts
        self._limits = limits

    def routes(self) -> list[Route]:
        """Return the routes."""
        every, one = "/v1/prompts", "/v1/prompts/{prompt_id}"
        read, write = partial(Route, scope=PROMPTS_READ), partial(Route, scope=PROMPTS_WRITE, errors=[ConflictError])
        return [
            Route("POST", every, self.create, scope=PROMPTS_WRITE, examples=examples.CREATE_PROMPT),
            read("GET", every, self.list, examples=examples.LIST_PROMPTS),
            read("GET", one, self.retrieve, examples=examples.RETRIEVE_PROMPT),
            read("GET", f"{one}/versions", self.versions, examples=examples.PROMPT_VERSIONS),
            write("PUT", one, self.update, examples=examples.UPDATE_PROMPT),
            write("PUT", f"{one}/set-default-version", self.set_default, examples=examples.DEFAULT_PROMPT),
            write("POST", f"{one}/default_version", self.set_default, examples=examples.DEFAULT_PROMPT),
            write("DELETE", one, self.delete, examples=examples.DELETE_PROMPT),
        ]

    async def create(self, ctx: Context, body: CreatePrompt) -> PromptObject:
        """Create a prompt."""
        if body.text is None:
            raise missing_parameter("template")
        await self._limits.check_room(ctx.tenant)
        prompt = await self._prompts.create(ctx.tenant, body.name, body.text, body.variables)
        return _shown(prompt, prompt.default)

    async def list(
        self, ctx: Context, *, limit: Limit = 20, after: After = None, before: Before = None, order: Order = "desc"
    ) -> PromptList:
        """List the prompts, each with its default version. Those of the configuration come first, on the first page."""
        with unknown_cursor():
            page = await self._prompts.page(ctx.tenant, limit=limit, after=after, before=before, order=order)
        is_first = after is None and before is None
        own = [_shown(prompt, prompt.default) for prompt in page.data]
        configured = [_shown(prompt, prompt.default) for prompt in self._prompts.configured] if is_first else []
        first, last = (own[0].id, own[-1].id) if own else (None, None)
        return PromptList(data=[*configured, *own], first_id=first, last_id=last, has_more=page.has_more)

    async def retrieve(self, ctx: Context, prompt_id: str, *, version: str | None = None) -> PromptObject:
        """Return a prompt: its default version, or another one.

        Args:
            version: The number of the version.
        """
        prompt = await self._prompts.get(ctx.tenant, prompt_id)
        return _shown(prompt, await self._prompts.version(ctx.tenant, prompt, version))

    async def versions(
        self, ctx: Context, prompt_id: str, *, limit: Limit = 20, before: int | None = None
    ) -> PromptList:
        """List the versions of a prompt, the newest first.

        Args:
            before: Only those with smaller numbers.
        """
        prompt = await self._prompts.get(ctx.tenant, prompt_id)
        newest = prompt.latest if before is None else min(before - 1, prompt.latest)
        numbers = range(newest, max(0, newest - limit), -1)
        data = [_shown(prompt, version) for version in await self._prompts.versions(ctx.tenant, prompt, numbers)]
        name = prompt.id if data else None
        return PromptList(data=data, first_id=name, last_id=name, has_more=bool(data) and data[-1].version > 1)

    async def update(self, ctx: Context, prompt_id: str, body: UpdatePrompt) -> PromptObject:
        """Add a version to a prompt. A 409 says that there is a later one than the one it was to follow."""
        if body.version is None:
            raise missing_parameter("version")
        expected = number_of(body.version)
        if expected is None:
            raise BadRequestError("The version is not a number.", param="version")
        await self._limits.check_room(ctx.tenant)
        prompt, version = await self._prompts.update(
            ctx.tenant,
            prompt_id,
            expected,
            name=body.name,
            template=body.text,
            variables=body.variables,
            default=body.set_as_default,
        )
        return _shown(prompt, version)

    async def set_default(self, ctx: Context, prompt_id: str, body: DefaultVersion) -> PromptObject:
        """Let another version be the one that requests get which name none."""
        prompt = await self._prompts.set_default(ctx.tenant, prompt_id, body.version)
        return _shown(prompt, prompt.default)

    async def delete(self, ctx: Context, prompt_id: str) -> DeletedPrompt:
        """Delete a prompt with all its versions; responses made with it stay."""
        await self._prompts.delete(ctx.tenant, prompt_id)
        return DeletedPrompt(id=prompt_id)


def _shown(prompt: Prompt, version: PromptVersion) -> PromptObject:
    return PromptObject(
        id=prompt.id,
        prompt_id=prompt.id,
        name=prompt.name,
        template=version.template,
        prompt=version.template,
        variables=version.variables,
        version=version.version,
        is_default=version.version == prompt.default.version,
        default_version=prompt.default.version,
        latest_version=prompt.latest,
        created_at=version.created_at,
        configured=prompt.configured,
    )
