"""The provider: opens the servers that a request names, and calls their tools."""

import hashlib
import math
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable, Mapping
from time import monotonic
from typing import Any

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
    Histogram,
    OpenedFunction,
    OpenedTool,
    Provider,
    ToolResult,
    function,
)
from antwort.providers.mcp.connection import McpConnection
from antwort.providers.mcp.errors import McpError, McpHttpError
from antwort.providers.mcp.listing import ListedTool, known_tools, list_item, listed_tools
from antwort.providers.mcp.messages import header_value
from antwort.providers.mcp.results import failed, read_result
from antwort.providers.mcp.server_tool import McpCallTool, McpTool, ServerTool
from antwort.providers.mcp.settings import McpSettings

_KEPT = 256
"""Servers, each for one tenant with one set of credentials, of which it is known what they speak."""
_LONGEST_FRESH = 300.0
"""Seconds for which a list counts that its server says stays the same."""


class _Server:
    """A server for one tenant with one set of credentials."""

    def __init__(self, connection: McpConnection) -> None:
        self.connection = connection
        self.tools: list[ListedTool] = []
        self.fresh_until = -math.inf


class Mcp(Provider[McpSettings]):
    """Let models call the tools of MCP servers that requests name."""

    lists = Counter("lists_total", "Lists of tools that servers were asked for, by how it ended.", ["status"])
    duration = Histogram("call_seconds", "Seconds that a server took for a call.", buckets=(0.01, 0.1, 1, 10, 60))

    @override
    async def lifespan(self) -> AsyncIterator[None]:
        self._servers: OrderedDict[bytes, _Server] = OrderedDict()
        yield
        for server in self._servers.values():
            await server.connection.close()
        self._servers.clear()

    @override
    async def open_tool(
        self, name: str, tool: Mapping[str, Any], items: Iterable[Mapping[str, Any]], ctx: Context
    ) -> OpenedTool:
        asked = ServerTool.read(tool)
        known = known_tools(asked.label, items, asked.named)
        if known is not None:
            return OpenedTool(self._functions(asked, known))
        try:
            tools = await self._tools(asked, ctx)
        except BlockedError as error:
            raise BadRequestError(str(error), param="server_url", code="invalid_value") from None
        except McpError as error:
            self.lists.labels("error").inc()
            if isinstance(error, McpHttpError) and error.http_status == 401:
                raise _refused(asked.label) from None
            return OpenedTool(items=[list_item(asked.label, [], error)])
        self.lists.labels("success").inc()
        shown = [one for one in tools if asked.allows(one.name, read_only=one.reads_only)]
        return OpenedTool(self._functions(asked, shown), [list_item(asked.label, shown)])

    @function(offer="on_request", hosted=McpTool(), timeout=math.inf, concurrency=1000)
    async def mcp(self, ctx: Context, arguments: str) -> ToolResult:
        """Call a tool of an MCP server that the request names."""
        options = ctx.options
        if "server_url" not in options:
            raise FunctionError("It is only there by the tools of MCP servers that a request names.")
        given, headers = _arguments(arguments), dict[str, str]()
        for argument, header in options["in_headers"].items():
            if (value := given.get(argument)) is not None and isinstance(value, str | int | float):
                text = str(value).lower() if isinstance(value, bool) else str(value)
                headers[f"mcp-param-{header.lower()}"] = header_value(text)
        connection = self._server(options["server_url"], options["headers"], ctx).connection
        started = monotonic()
        try:
            result = await connection.call_tool(options["tool"], given, headers, self.settings.timeout)
            return await read_result(result, sees_images=ctx.sees_images)
        except McpError as error:
            return failed(error)
        finally:
            self.duration.observe(monotonic() - started)

    def _server(self, url: str, headers: Mapping[str, str], ctx: Context) -> _Server:
        """Return a server as it is known for a tenant with some credentials."""
        key = hashlib.blake2b(msgspec.json.encode([ctx.tenant, url, sorted(headers.items())])).digest()
        server = self._servers.get(key)
        if server is None:
            http, most = self.services.http, self.settings.max_bytes
            server = self._servers[key] = _Server(McpConnection(http, url, headers, guarded=True, max_bytes=most))
            while len(self._servers) > _KEPT:
                self._servers.popitem(last=False)
        self._servers.move_to_end(key)
        return server

    async def _tools(self, asked: ServerTool, ctx: Context) -> list[ListedTool]:
        server = self._server(asked.url, asked.headers, ctx)
        if monotonic() >= server.fresh_until:
            most, seconds = self.settings.max_tools, self.settings.list_timeout
            server.tools, fresh = await listed_tools(server.connection, most=most, seconds=seconds)
            server.fresh_until = monotonic() + min(fresh, _LONGEST_FRESH)
        return server.tools

    def _functions(self, asked: ServerTool, tools: Iterable[ListedTool]) -> list[OpenedFunction]:
        functions = []
        for tool in tools:
            name, reads = tool.name, tool.reads_only
            if not asked.allows(name, read_only=reads):
                continue
            options: JSON = {"type": "mcp", "server_url": asked.url, "headers": dict(asked.headers), "tool": name}
            options["in_headers"] = dict(tool.header_names)
            functions.append(
                OpenedFunction(
                    name,
                    asked.label,
                    tool.description or f"The tool {name} of {asked.label}.",
                    tool.schema,
                    McpCallTool(asked.label, name),
                    options,
                    asked.approval_of(name, read_only=reads, otherwise=self.settings.require_approval),
                    tool.is_repeatable,
                )
            )
        return functions


def _arguments(text: str) -> JSON:
    try:
        value = msgspec.json.decode(text or "{}")
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise FunctionError("The arguments are no JSON object.")
    return value


def _refused(label: str) -> AuthenticationError:
    error = AuthenticationError(f"The MCP server '{label}' refuses the credentials that it was given (401).")
    error.param, error.code = "authorization", "mcp_authorization_failed"
    return error
