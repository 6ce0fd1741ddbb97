"""The provider: opens the servers that a request names, and calls their tools."""

import asyncio
import hashlib
import math
from collections import OrderedDict
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, Literal, NamedTuple
from urllib.parse import quote

import msgspec
from typing_extensions import override

from antwort.provider import (
    JSON,
    AuthenticationError,
    BadRequestError,
    BlockedError,
    Context,
    Counter,
    FunctionError,
    FunctionSpec,
    Histogram,
    OpenedFunction,
    OpenedTool,
    OutboundError,
    Provider,
    SandboxLimits,
    SecretStr,
    ToolResult,
    function,
    one_line,
)
from antwort.providers.mcp.changes import ChangeStreams
from antwort.providers.mcp.child import ChildServer
from antwort.providers.mcp.connection import McpConnection
from antwort.providers.mcp.errors import McpError
from antwort.providers.mcp.listing import KnownTools, ListedTool, differing, list_item, listed_tools
from antwort.providers.mcp.messages import header_value
from antwort.providers.mcp.oauth import ClientTokens
from antwort.providers.mcp.offered import OfferedServers, answering
from antwort.providers.mcp.peer import McpPeer, ToolRequest
from antwort.providers.mcp.program import Confinement, ServerProgram
from antwort.providers.mcp.results import failed, read_result
from antwort.providers.mcp.server_tool import McpCallTool, McpServerTool, ServerTool
from antwort.providers.mcp.settings import McpServerSettings, McpSettings
from antwort.providers.mcp.waiting import CallUser, HeldCalls

_NOBODY = ""
"""The tenant for whom the operator looks whether servers answer."""
_KEPT = 256
"""Servers, each for one tenant with one set of credentials, of which it is known what they speak."""
_LARGEST_KEPT = 256 * 1024
"""Bytes of a list that is kept, if its server says that it stays the same."""
_LONGEST_ABOUT = 500
"""Characters of what a request says of a server that the model reads with each of its tools."""
_NAMED = 10
"""Tools of a server that the operator is told of where one is missing."""


class ServerPlace(NamedTuple):
    """Where a server is, and what the operator says of it, if it is one of his."""

    url: str
    headers: Mapping[str, str]
    guarded: bool
    """Whether a client has named the URL."""
    allowed: Sequence[str] | None = None
    approval: Literal["always", "never"] | None = None
    program: str | None = None
    """The label of one that is a program."""
    tokens: str | None = None
    """The label of one that antwort gets tokens for."""
    own: str | None = None
    """The label of one of the operator's."""
    is_followed: bool = False
    """Whether it is listened to: with what the operator says, and nothing that somebody's request has brought."""

    def has(self, name: str) -> bool:
        """Tell whether the operator wants a tool to be there."""
        return self.allowed is None or name in self.allowed


class _KnownServer:
    """A server for one tenant with one set of credentials."""

    def __init__(self, connection: McpPeer, shared: bytes | None = None) -> None:
        self.connection = connection
        self.shared = shared
        """What it has in common with the same server of other tenants, if it is one of the operator's."""
        self.tools = b""
        """Its list as JSON: as objects a list of a hostile server takes twenty times as much."""
        self.fresh_until = -math.inf

    def forget(self) -> None:
        """Forget its list."""
        self.tools, self.fresh_until = b"", -math.inf


class Mcp(Provider[McpSettings]):
    """Let models call the tools of MCP servers that requests name."""

    lists = Counter("lists_total", "Lists of tools that servers were asked for, by how it ended.", ["status"])
    duration = Histogram("call_seconds", "Seconds that a server took for a call.", buckets=(0.01, 0.1, 1, 10, 60))

    @override
    async def lifespan(self) -> AsyncIterator[None]:
        self._servers: OrderedDict[bytes, _KnownServer] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()
        self._changes = ChangeStreams()
        self._held = HeldCalls()
        self._tokens = {
            label: ClientTokens(self.services.http, server.oauth)
            for label, server in self.settings.servers.items()
            if server.oauth is not None
        }
        self._programs = {
            label: _KnownServer(ChildServer(self._program(label, server.command, server)))
            for label, server in self.settings.servers.items()
            if server.command is not None
        }
        for label, known in self._programs.items():
            known.connection.on_list_changed = partial(self._note_change, known, label)
        offer = self.services.offer
        self._offered = OfferedServers(self.settings.servers, self._listed, self._call_offered, offer or _to_nobody)
        await self._offered.start()
        yield
        await self._offered.close()
        await self._changes.close()
        await self._held.close()
        for server in (*self._servers.values(), *self._programs.values()):
            self._close(server)
        self._servers.clear()
        if self._closing:
            await asyncio.wait(self._closing)

    @override
    async def open_tool(
        self, name: str, tool: Mapping[str, Any], items: Iterable[Mapping[str, Any]], ctx: Context
    ) -> OpenedTool:
        asked = ServerTool.read(tool)
        place = self._place(asked, ctx)
        known = KnownTools.read(asked.label, items)
        if known.tools is not None and known.asked_about is None and known.has(asked.named):
            return OpenedTool(self._functions(asked, place, known.tools), deferred=self._defers(asked))
        try:
            tools = await self._tools(place, ctx, anew=known.asked_about is not None)
        except BlockedError as error:
            raise BadRequestError(str(error), param="server_url", code="invalid_value") from None
        except McpError as error:
            self.lists.labels("error").inc()
            if error.http_status == 401:
                raise _refused(asked.label) from None
            return OpenedTool(items=[list_item(asked.label, [], error, renews=known.asked_about is not None)])
        self.lists.labels("success").inc()

        def wanted(given: Iterable[ListedTool] | None) -> list[ListedTool]:
            found = given or ()
            return [one for one in found if place.has(one.name) and asked.allows(one.name, read_only=one.reads_only)]

        shown = wanted(tools)
        if known.tools is not None and known.has(asked.named) and not differing(wanted(known.tools), shown):
            shown, listed = known.tools, []
        else:
            listed = [list_item(asked.label, shown, renews=known.asked_about is not None)]
        changed = differing(known.asked_about or (), shown)
        return OpenedTool(self._functions(asked, place, shown, changed), listed, self._defers(asked))

    def _defers(self, asked: ServerTool) -> bool | None:
        """Tell whether the operator wants models to find the tools of a server of his."""
        own = self.settings.servers.get(asked.own) if asked.url is None else None
        return True if own is not None and own.offer == "deferred" else None

    @function(offer="on_request", hosted=McpServerTool(), timeout=math.inf, concurrency=1000)
    async def mcp(self, ctx: Context, arguments: str) -> ToolResult:
        """Call a tool of an MCP server that the request names."""
        options = ctx.options
        if "server_url" not in options:
            raise FunctionError('The request names no MCP server: its tools need {"type": "mcp", "server_label": …}.')
        place = ServerPlace(
            options["server_url"],
            options["headers"],
            options["guarded"],
            program=options["program"],
            tokens=options["tokens"],
            own=options["own"],
        )
        request = _request(options["tool"], _arguments(arguments), options["in_headers"])
        user = CallUser(ctx, self.services.records, options["label"], repeatable=options["repeatable"])
        return await self._make(place, request, user, ctx)

    async def _call_offered(self, ctx: Context, label: str, tool: ListedTool, given: Mapping[str, Any]) -> ToolResult:
        """Call a tool of one of the operator's servers that no request has to name."""
        place = self._place(ServerTool.of_label(label), ctx)
        user = CallUser(ctx, self.services.records, label, repeatable=tool.is_repeatable)
        return await self._make(place, _request(tool.name, dict(given), tool.header_names), user, ctx)

    async def _make(self, place: ServerPlace, request: ToolRequest, user: CallUser, ctx: Context) -> ToolResult:
        """Make a call, and return what comes of it."""
        connection = self._server(place, ctx).connection
        started = monotonic()
        try:
            result = await read_result(await self._called(connection, request, user, ctx), sees_images=ctx.sees_images)
        except McpError as error:
            result = failed(error)
        finally:
            self.duration.observe(monotonic() - started)
        await user.end()
        return result

    async def _called(self, connection: McpPeer, request: ToolRequest, user: CallUser, ctx: Context) -> JSON:
        """Return what a server answers to a call."""
        seconds = self.settings.timeout
        if not await connection.asks_within():
            return await connection.call_tool(request, seconds, user)
        if not user.is_there:
            await user.begin()
            return await connection.call_held(request, seconds, None)
        return await self._held.outcome(partial(connection.call_held, request, seconds), user, ctx.tenant)

    @property
    @override
    def finds_functions(self) -> bool:
        return any(server.offer is not None for server in self.settings.servers.values())

    @property
    @override
    def service_health(self) -> Mapping[str, bool]:
        return {label: problem is None for label, problem in self._offered.problems.items()}

    @property
    @override
    def service_functions(self) -> Mapping[str, Sequence[str]]:
        return self._offered.functions

    @override
    def can_execute(self, name: str) -> bool:
        return True  # what its servers have is not known before it is asked for

    @override
    async def examine(self) -> Sequence[str]:
        problems = []
        for label, server in self.settings.servers.items():
            place = self._place(ServerTool.of_label(label), Context(_NOBODY))
            try:
                tools = await self._tools(place, Context(_NOBODY))
            except (McpError, OutboundError) as error:
                child = self._programs[label].connection if label in self._programs else None
                cause = child.cause if isinstance(child, ChildServer) else ""
                problems.append(f"servers.{label}: {error} {cause}".rstrip())
                continue
            names = [tool.name for tool in tools]
            if server.answers and answering(server, tools) is None:
                problems.append(f"servers.{label}.answers: which tool does? Name it first in 'allowed_tools'")
            known = ", ".join(names[:_NAMED]) + (", …" if len(names) > _NAMED else "")
            problems += [
                f"servers.{label}.allowed_tools: the server has no tool '{name}'; it has {known or 'none'}"
                for name in place.allowed or ()
                if name not in names
            ]
        return problems

    def _place(self, asked: ServerTool, ctx: Context) -> ServerPlace:
        """Return where a server is, and what the operator says of it."""
        if asked.url is not None:
            return ServerPlace(asked.url, asked.headers, guarded=True)
        own = self.settings.servers.get(asked.own)
        if own is None:
            raise _unknown(asked, self.settings.servers)
        headers = {**asked.headers, **{name: _filled(value, ctx) for name, value in own.headers.items()}}
        if own.authorization is not None and "authorization" not in asked.headers:
            headers["authorization"] = f"Bearer {own.authorization.get_secret_value()}"
        label = asked.own
        program = None if own.command is None else label
        tokens = None if own.oauth is None or "authorization" in headers else label
        allowed, approval, is_followed = own.allowed_tools, own.require_approval, not asked.headers
        return ServerPlace(own.url or "", headers, False, allowed, approval, program, tokens, label, is_followed)

    def _program(self, label: str, command: Sequence[str], server: McpServerSettings) -> ServerProgram:
        """Return how a server is started that is a program."""
        environment = {name: value.get_secret_value() for name, value in server.env.items()}
        confinement = None
        if (own := server.sandbox) is not None:
            limits, readable = SandboxLimits(memory=own.max_memory), [Path(path) for path in own.readable]
            confinement = Confinement(self.services.sandbox, readable, own.network, limits)
        return ServerProgram(label, command, environment, server.folder, self.settings.max_bytes, confinement)

    def _server(self, place: ServerPlace, ctx: Context) -> _KnownServer:
        """Return a server as it is known for a tenant with some credentials; a program is the same for all."""
        if place.program is not None:
            return self._programs[place.program]
        url, headers, guarded = place.url, place.headers, place.guarded
        named = [ctx.tenant, url, sorted(headers.items()), guarded, place.tokens]
        key = hashlib.blake2b(msgspec.json.encode(named)).digest()
        server = self._servers.get(key)
        if server is None:
            tokens = None if place.tokens is None else self._tokens[place.tokens]
            http, most = self.services.http, self.settings.max_bytes
            connection = McpConnection(
                http, url, headers, guarded=guarded, max_bytes=most, tenant=ctx.tenant, tokens=tokens
            )
            shared = None if place.own is None else hashlib.blake2b(msgspec.json.encode(named[1:])).digest()
            server = self._servers[key] = _KnownServer(connection, shared)
            connection.on_list_changed = partial(self._note_change, server, place.own)
            while len(self._servers) > _KEPT:
                self._close(self._servers.popitem(last=False)[1])
        self._servers.move_to_end(key)
        return server

    def _close(self, server: _KnownServer) -> None:
        """Have the session of a server end, if it has one."""
        self._changes.leave(server.connection)
        task = asyncio.get_running_loop().create_task(server.connection.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _tools(self, place: ServerPlace, ctx: Context, *, anew: bool = False) -> list[ListedTool]:
        server = self._server(place, ctx)
        if monotonic() < server.fresh_until and not anew:
            return msgspec.json.decode(server.tools, type=list[ListedTool])
        return (await self._list(server, place))[0]

    async def _list(self, server: _KnownServer, place: ServerPlace) -> tuple[list[ListedTool], float]:
        """Return what a server says of its tools, and for how many seconds; that is kept as long."""
        server.forget()
        most, seconds = self.settings.max_tools, self.settings.list_timeout
        tools, fresh = await listed_tools(server.connection, most=most, seconds=seconds)
        if fresh and len(kept := msgspec.json.encode(tools)) <= _LARGEST_KEPT:
            server.tools, server.fresh_until = kept, monotonic() + fresh
        if place.is_followed and server.shared is not None and isinstance(server.connection, McpConnection):
            self._changes.follow(server.shared, server.connection)
        return tools, fresh

    async def _listed(self, label: str) -> tuple[list[ListedTool], float]:
        """Return the tools of one of the operator's servers."""
        ctx = Context(_NOBODY)
        place = self._place(ServerTool.of_label(label), ctx)
        return await self._list(self._server(place, ctx), place)

    def _note_change(self, server: _KnownServer, label: str | None) -> None:
        """Forget what a server has: it says that it is something else now."""
        server.forget()
        for other in self._servers.values():
            if other.shared is not None and other.shared == server.shared:
                other.forget()
        if label is not None:
            self._offered.note_change(label)

    def _functions(
        self, asked: ServerTool, place: ServerPlace, tools: Iterable[ListedTool], changed: Collection[str] = ()
    ) -> list[OpenedFunction]:
        functions = []
        for tool in tools:
            name, reads = tool.name, tool.reads_only
            if not (place.has(name) and asked.allows(name, read_only=reads)):
                continue
            options: JSON = {"type": "mcp", "server_url": place.url, "headers": dict(place.headers), "tool": name}
            options |= {"guarded": place.guarded, "in_headers": dict(tool.header_names)}
            options |= {"label": asked.label, "repeatable": tool.is_repeatable, "program": place.program}
            options |= {"tokens": place.tokens, "own": place.own}
            otherwise = place.approval or self.settings.require_approval
            approval = asked.approval_of(name, read_only=reads, otherwise=otherwise)
            functions.append(
                OpenedFunction(
                    name,
                    asked.label,
                    _described(tool, asked),
                    tool.schema,
                    McpCallTool(asked.label, name),
                    options,
                    "always" if place.approval == "always" else approval,
                    tool.is_repeatable,
                    resumes=True,
                    changed=name in changed,
                )
            )
        return functions


def _request(tool: str, given: JSON, in_headers: Mapping[str, str]) -> ToolRequest:
    """Return a call with what of its arguments is in headers, too."""
    headers = dict[str, str]()
    for argument, header in in_headers.items():
        if (value := given.get(argument)) is not None and isinstance(value, str | int | float):
            text = str(value).lower() if isinstance(value, bool) else str(value)
            headers[f"mcp-param-{header.lower()}"] = header_value(text)
    return ToolRequest(tool, given, headers)


def _to_nobody(_specs: Sequence[FunctionSpec]) -> None:
    """Offer functions where no app runs."""


def _unknown(asked: ServerTool, servers: Iterable[str]) -> BadRequestError:
    """Return the error for a server that the operator does not have."""
    known = ", ".join(f"'{label}'" for label in servers)
    what = f"there is no server '{asked.own}' that is known here"
    if asked.connector is None:
        cure = f"; by its label alone there is {known}" if known else ""
        return BadRequestError(f"'server_url' is missing: {what}{cure}.", param="server_url", code="invalid_value")
    cure = f"; there is {known}" if known else ""
    message = f"'connector_id' names no server of the operator: {what}{cure}. Any other needs its 'server_url'."
    return BadRequestError(message, param="connector_id", code="invalid_value")


def _arguments(text: str) -> JSON:
    try:
        value = msgspec.json.decode(text or "{}")
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise FunctionError("The arguments are no JSON object.")
    return value


def _filled(value: SecretStr, ctx: Context) -> str:
    """Return a header with what it says of the caller: as a URL would have it, so that nobody can write more."""
    text = value.get_secret_value()
    for name, own in (("{tenant}", ctx.tenant), ("{subject}", ctx.subject)):
        # A header loses spaces at its ends: who has some in his name would be another then.
        text = text.replace(name, quote(own, safe="@:+ " if own == own.strip() else "@:+"))
    return text


def _described(tool: ListedTool, asked: ServerTool) -> str:
    """Return what a model is told of a tool, and of its server if the request says something of it."""
    description = tool.description or f"The tool {tool.name} of {asked.label}."
    about = one_line(asked.description or "")[:_LONGEST_ABOUT]
    return f"{description}\n\n{asked.label}: {about}" if about else description


def _refused(label: str) -> AuthenticationError:
    error = AuthenticationError(f"The MCP server '{label}' refuses the credentials that it was given (401).")
    error.param, error.code = "authorization", "mcp_authorization_failed"
    return error
