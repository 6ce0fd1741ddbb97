"""`/v1/variables`: what agents keep, for clients: to give them large inputs, and to fetch what they have made."""

from typing import Annotated, Literal

from msgspec import Struct, to_builtins
from pydantic import PositiveInt

from antwort.provider import (
    BadRequestError,
    Context,
    Duration,
    Example,
    Field,
    NotFoundError,
    PayloadTooLargeError,
    Place,
    Provider,
    RateLimitError,
    Request,
    Response,
    ServiceUnavailableError,
    Settings,
    ValueKind,
    Values,
    Variable,
    VariableScope,
    asked_range,
    content_response,
    route,
)


class VariablesSettings(Settings):
    """How much of a variable a model reads at once."""

    max_read: PositiveInt = Field(
        default=4000, ge=500, description="Bytes of a value that a call returns unless it asks for another number."
    )
    max_limit: PositiveInt = Field(default=20_000, ge=500, description="Most bytes that a call can ask for.")
    max_summarized: PositiveInt = Field(
        default=50_000, ge=1000, description="Bytes that a model reads for a summary; of a larger value, samples."
    )
    expires_in: Duration | None = Field(
        default=None, description="Time after which variables of a tenant expire that say nothing else."
    )


class VariableObject(Struct, kw_only=True):
    """One version of a variable, without its value."""

    id: str
    object: Literal["variable"] = "variable"
    key: str
    scope: VariableScope
    scope_id: str
    version: int
    kind: ValueKind
    bytes: int
    run_id: str | None
    conversation_id: str | None
    created_at: int
    expires_at: int | None

    @classmethod
    def of(cls, variable: Variable) -> "VariableObject":
        """Show a version."""
        return cls(
            id=variable.id,
            key=variable.key,
            scope=variable.scope,
            scope_id=variable.scope_id,
            version=variable.version,
            kind=variable.kind,
            bytes=variable.size,
            run_id=variable.run_id,
            conversation_id=variable.conversation_id,
            created_at=variable.created_at,
            expires_at=variable.expires_at,
        )


class VariableList(Struct, kw_only=True):
    """A page of variables."""

    object: Literal["list"] = "list"
    data: list[VariableObject]
    first_id: str | None
    last_id: str | None
    has_more: bool


class DeletedVariable(Struct, kw_only=True):
    """A version that is gone."""

    id: str
    object: Literal["variable.deleted"] = "variable.deleted"
    deleted: bool = True


EXAMPLE = VariableObject(
    id="var_06605e4930c1c9c171839f13668e83fe7ffbfa4fd4cef749",
    key="poem",
    scope="tenant",
    scope_id="",
    version=1,
    kind="text",
    bytes=14,
    run_id=None,
    conversation_id=None,
    created_at=1_794_000_000,
    expires_at=None,
)


_ONE = "/v1/variables/{variable_id}"
_READ, _WRITE = "variables:read", "variables:write"
_OWNERS = ("conv_", "resp_")
"""What the ids of conversations, and of runs and agents, begin with."""
_MEDIA_TYPES: dict[ValueKind, str] = {
    "text": "text/plain; charset=utf-8",
    "json": "application/json",
    "bytes": "application/octet-stream",
}

_PATH = {"variable_id": EXAMPLE.id}
_SHOWN = Example(to_builtins(EXAMPLE), parameters=_PATH)
_DELETED = Example(to_builtins(DeletedVariable(id=EXAMPLE.id)), parameters=_PATH)
_LIST = Example(
    to_builtins(VariableList(data=[EXAMPLE], first_id=EXAMPLE.id, last_id=EXAMPLE.id, has_more=False)),
    parameters={"scope": "tenant"},
)

Key = Annotated[str, Field(min_length=1, max_length=256, description="The key.")]
Filter = Annotated[str | None, Field(description="Only those with this value.")]


class VariableRoutes:
    """The management routes of variables."""

    def __init__(self, provider: Provider[VariablesSettings]) -> None:
        self._provider = provider

    @property
    def values(self) -> Values:
        """The variables of all tenants."""
        values = self._provider.services.values
        if values is None:
            raise ServiceUnavailableError("There are no variables here: the app does not run.")
        return values

    @route("GET", "/v1/variables", scope=_READ, examples=[_LIST])
    async def list_variables(
        self,
        ctx: Context,
        *,
        scope: Annotated[VariableScope | None, Field(description="Only those of this scope.")] = None,
        run_id: Filter = None,
        conversation_id: Filter = None,
        key: Filter = None,
        all_versions: Annotated[bool, Field(description="Not only the newest version of each.")] = False,
        limit: Annotated[int, Field(ge=1, le=100, description="How many at most.")] = 20,
        after: Annotated[str | None, Field(description="The last id of the page before.")] = None,
        order: Annotated[Literal["asc", "desc"], Field(description="By time of creation.")] = "desc",
    ) -> VariableList:
        """List variables, the newest first.

        Those of conversations and responses are left out, or refused if they are asked for, unless the credentials have
        `conversations:read` and `responses:read`.
        """
        where = {"scope": scope, "run_id": run_id, "key": key}
        if conversation_id is not None:
            if scope not in {None, "conversation"}:
                raise BadRequestError("Variables of a conversation have the scope 'conversation'.", param="scope")
            where |= {"scope": "conversation", "scope_id": conversation_id}
            ctx.require_owner(conversation_id, "read", param="conversation_id")
        elif run_id is not None or scope not in {None, "tenant"}:
            for owners in _OWNERS:
                ctx.require_owner(owners, "read", param="scope" if run_id is None else "run_id")
        elif not all(ctx.reaches(owners, "read") for owners in _OWNERS):
            where["scope"] = "tenant"
        found = await self.values.list(
            ctx.tenant,
            where={name: value for name, value in where.items() if value is not None},
            all_versions=all_versions,
            after=after,
            limit=limit + 1,
            newest_first=order == "desc",
        )
        data = [VariableObject.of(one) for one in found[:limit]]
        return VariableList(
            data=data,
            first_id=data[0].id if data else None,
            last_id=data[-1].id if data else None,
            has_more=len(found) > limit,
        )

    @route(
        "PUT",
        "/v1/variables",
        scope=_WRITE,
        streams_body=True,
        errors=[NotFoundError, PayloadTooLargeError, RateLimitError],
        examples=[Example(to_builtins(EXAMPLE), parameters={"key": EXAMPLE.key})],
    )
    async def put_variable(
        self,
        ctx: Context,
        request: Request,
        key: Key,
        *,
        scope: Annotated[VariableScope, Field(description="Who will see it.")] = "tenant",
        scope_id: Annotated[str, Field(description="The conversation, run or agent; none for the tenant.")] = "",
        expires_in: Annotated[float | None, Field(gt=0, description="Seconds after which it expires.")] = None,
    ) -> VariableObject:
        """Store the body as a new version of a variable; its content type tells whether it is text, JSON or bytes."""
        if (scope == "tenant") != (not scope_id):
            raise BadRequestError(
                "'scope_id' names the conversation, run or agent; variables of the tenant have none.", param="scope_id"
            )
        ctx.require_owner(scope_id, "write", param="scope_id")
        if not await self.values.is_there(ctx.tenant, scope, scope_id):
            raise NotFoundError(f"There is no {scope} with the id '{scope_id[:80]}'.", param="scope_id")
        place = Place(
            ctx.tenant,
            scope,
            scope_id,
            run_id=scope_id if scope in {"agent", "run"} else None,
            conversation_id=scope_id if scope == "conversation" else None,
        )
        if expires_in is None and scope == "tenant":
            expires_in = self._provider.settings.expires_in
        kind = _kind(request.headers.get("content-type", ""))
        made = await self.values.write(place, key, request.stream(), kind=kind, expires_in=expires_in)
        return VariableObject.of(made)

    @route("GET", _ONE, scope=_READ, examples=[_SHOWN])
    async def retrieve_variable(self, ctx: Context, variable_id: str) -> VariableObject:
        """Return a version, without its value."""
        return VariableObject.of(await self._variable(ctx, variable_id, "read"))

    @route(
        "GET",
        f"{_ONE}/content",
        scope=_READ,
        media_type="application/octet-stream",
        returns={"type": "string", "format": "binary"},
        examples=[Example("Roses are red.", parameters=_PATH)],
    )
    async def retrieve_variable_content(self, ctx: Context, request: Request, variable_id: str) -> Response:
        """Return the value of a version, or the range of bytes that the header `Range` asks for."""
        variable = await self._variable(ctx, variable_id, "read")
        part = asked_range(request.headers.get("range"), variable.size)
        start, end = (0, variable.size) if part is None else (part.start, part.stop)
        chunks = self.values.read(variable, start, end)
        kind = _MEDIA_TYPES[variable.kind]
        return content_response(chunks, variable.key, size=variable.size, part=part, kind=kind)

    @route(
        "DELETE", _ONE, scope=_WRITE, examples=[Example(to_builtins(DeletedVariable(id=EXAMPLE.id)), parameters=_PATH)]
    )
    async def delete_variable(
        self,
        ctx: Context,
        variable_id: str,
        all_versions: Annotated[bool, Field(description="All versions of its key, too.")] = False,
    ) -> DeletedVariable:
        """Delete a version; references to it lead nowhere then."""
        await self._variable(ctx, variable_id, "write")
        if not await self.values.delete(ctx.tenant, variable_id, all_versions=all_versions):
            raise _unknown(variable_id)
        return DeletedVariable(id=variable_id)

    async def _variable(self, ctx: Context, variable_id: str, access: Literal["read", "write"]) -> Variable:
        """Return a version that the caller may read or write: one of a conversation or a response is a part of it."""
        variable = await self.values.get(ctx.tenant, variable_id)
        if variable is None:
            raise _unknown(variable_id)
        ctx.require_owner(variable.scope_id, access, param="variable_id")
        return variable


def _unknown(variable_id: str) -> NotFoundError:
    return NotFoundError(f"There is no variable with the id '{variable_id[:80]}'.", param="variable_id")


def _kind(content_type: str) -> ValueKind:
    kind = content_type.partition(";")[0].strip().lower()
    if kind == "application/json" or kind.endswith("+json"):
        return "json"
    return "text" if kind.startswith("text/") else "bytes"
