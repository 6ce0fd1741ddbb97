"""Tools of the operator's servers that are functions like those of any provider: no request has to name the server."""

import asyncio
import logging
import math
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from antwort.provider import (
    ConfigError,
    Context,
    ForeignArguments,
    FunctionSpec,
    Limits,
    ToolResult,
    one_line,
)
from antwort.providers.mcp.answering import answering_tool
from antwort.providers.mcp.errors import McpError
from antwort.providers.mcp.listing import ListedTool
from antwort.providers.mcp.settings import McpServerSettings

logger = logging.getLogger(__name__)

MakeCall = Callable[[Context, str, ListedTool, Mapping[str, Any]], Awaitable[ToolResult]]
"""Calls a tool of the server with a label."""
ListTools = Callable[[str], Awaitable[tuple[list[ListedTool], float]]]
"""Asks the server with a label for its tools, and for how many seconds they stay the same."""
_UNNAMEABLE = re.compile(r"[^a-zA-Z0-9_-]")
_LONGEST_NAME = 64
_AT_START = 5.0
"""Seconds that a start waits for the lists: what comes later is offered then."""
_USUAL = 60.0
"""Seconds after which a server is asked anew that does not say for how long its list stays the same."""
_LEAST, _MOST = 5.0, 300.0
"""Seconds between two such questions."""
_CONCURRENCY = 1000


class _OfferedServer:
    """One server, and what it has."""

    def __init__(self, label: str, settings: McpServerSettings) -> None:
        self.label = label
        self.settings = settings
        self.tools: list[ListedTool] = []
        self.specs: list[FunctionSpec] = []
        self.problem: str | None = None
        """Why it has not said what it has, when it was asked last."""
        self.asked = asyncio.Event()
        self.changed = asyncio.Event()


class OfferedServers:
    """Keeps offering what servers have, as it changes; one that is away keeps the functions that it had."""

    def __init__(
        self,
        servers: Mapping[str, McpServerSettings],
        list_tools: ListTools,
        make_call: MakeCall,
        offer: Callable[[Sequence[FunctionSpec]], None],
    ) -> None:
        self._servers = {label: _OfferedServer(label, one) for label, one in servers.items() if one.offer is not None}
        self._list_tools = list_tools
        self._make_call = make_call
        self._offer = offer
        self._tasks: list[asyncio.Task[None]] = []
        self._told: set[tuple[str, str]] = set()

    async def start(self) -> None:
        """Ask all servers at once, and go on doing so."""
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._follow(server)) for server in self._servers.values()]
        waiting = [loop.create_task(server.asked.wait()) for server in self._servers.values()]
        if waiting:
            _, late = await asyncio.wait(waiting, timeout=_AT_START)
            for task in late:
                task.cancel()

    async def close(self) -> None:
        """Ask no more."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def note_change(self, label: str) -> None:
        """Ask a server again at once: it says that it has something else now."""
        if label in self._servers:
            self._servers[label].changed.set()

    @property
    def problems(self) -> Mapping[str, str | None]:
        """Why each server cannot be used, by its label; None for one that can."""
        return {server.label: server.problem for server in self._servers.values() if server.asked.is_set()}

    @property
    def functions(self) -> Mapping[str, Sequence[str]]:
        """The functions of each server, by its label; of a name that several have, the first has it."""
        owners = {spec.name: server.label for server in reversed(self._servers.values()) for spec in server.specs}
        return {label: [name for name, owner in owners.items() if owner == label] for label in self._servers}

    async def _follow(self, server: _OfferedServer) -> None:
        while True:
            server.changed.clear()
            seconds = await self._look(server)
            server.asked.set()
            try:
                async with asyncio.timeout(min(max(seconds, _LEAST), _MOST)):
                    await server.changed.wait()
                await asyncio.sleep(_LEAST if server.problem else 0)
            except TimeoutError:
                pass

    async def _look(self, server: _OfferedServer) -> float:
        """Ask a server, and offer what it has; return the seconds after which it is to be asked again."""
        try:
            tools, fresh = await self._list_tools(server.label)
        except McpError as error:
            if server.problem is None:
                logger.warning("MCP server %s cannot say which tools it has: %s", server.label, error)
            server.problem = str(error)
            return _USUAL
        except Exception as error:
            logger.exception("MCP server %s cannot be asked for its tools", server.label)
            server.problem = f"It cannot be asked: {type(error).__name__}."
            return _USUAL
        if server.problem is not None:
            logger.info("MCP server %s says again which tools it has", server.label)
        server.problem = None
        if tools != server.tools:
            server.tools, server.specs = tools, await asyncio.to_thread(self._specs, server, tools)
            self._tell_shared_names()
            self._offer([spec for one in self._servers.values() for spec in one.specs])
        return fresh or _USUAL

    def _tell_shared_names(self) -> None:
        """Log which functions have the name of one of another server, which has it then."""
        owners = dict[str, str]()
        for server in self._servers.values():
            for spec in server.specs:
                owner = owners.setdefault(spec.name, server.label)
                if owner != server.label and (server.label, spec.name) not in self._told:
                    self._told.add((server.label, spec.name))
                    logger.warning(
                        "MCP server %s: the tool '%s' is left out, since %s has one; give one of them a `prefix`",
                        server.label,
                        spec.name,
                        owner,
                    )

    def _specs(self, server: _OfferedServer, tools: Sequence[ListedTool]) -> list[FunctionSpec]:
        """Return the functions that tools are; of those that cannot be any, the log tells."""
        own, specs = server.settings, dict[str, FunctionSpec]()
        allowed = own.allowed_tools
        wanted = [tool for tool in tools if allowed is None or tool.name in allowed]
        found = answering(own, wanted)
        for tool in wanted:
            name = _UNNAMEABLE.sub("_", f"{own.prefix}{tool.name}")[:_LONGEST_NAME]
            if name in specs:
                logger.warning(
                    "MCP server %s: the tool %s is left out: another is '%s', too", server.label, tool.name, name
                )
                continue
            try:
                specs[name] = self._spec(server, tool, name, answers=tool is found)
            except ConfigError as error:
                cause = one_line(str(error))[:300]
                logger.warning("MCP server %s: the tool %s is left out: %s", server.label, tool.name, cause)
        return [*specs.values()]

    def _spec(self, server: _OfferedServer, tool: ListedTool, name: str, *, answers: bool) -> FunctionSpec:
        own = server.settings
        spec = FunctionSpec(
            name,
            tool.description.strip() or f"The tool {tool.name} of {server.label}.",
            tool.schema,
            handler=_OfferedTool(server.label, tool, self._make_call).call,
            limits=Limits(timeout=math.inf, concurrency=_CONCURRENCY),  # its server has a time limit of its own
            attach=tool.is_repeatable,
            resumes=True,
            hosted=answering_tool(own.answers, own.arguments, tool, server.label) if answers else None,
            approval=own.require_approval,
            offer=own.offer or "on_request",
        )
        return replace(spec, arguments=ForeignArguments(spec.parameters)) if tool.refers else spec


class _OfferedTool:
    """Makes the calls of one tool."""

    def __init__(self, label: str, tool: ListedTool, make_call: MakeCall) -> None:
        self._label = label
        self._tool = tool
        self._make_call = make_call

    # The name of the first parameter may be that of an argument of the tool: it is given by position.
    async def call(self, given: Mapping[str, Any], /, ctx: Context) -> ToolResult:
        return await self._make_call(ctx, self._label, self._tool, given)


def answering(own: McpServerSettings, tools: Sequence[ListedTool]) -> ListedTool | None:
    """Return the tool that answers a hosted one: the first that is allowed by name, or the only one."""
    if not own.answers:
        return None
    by_name = {tool.name: tool for tool in tools}
    if own.allowed_tools:
        return by_name.get(own.allowed_tools[0])
    return tools[0] if len(tools) == 1 else None
