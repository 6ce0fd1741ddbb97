"""What clients of the protocol can ask, however their messages come: the functions of the server, listed and called."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

import msgspec

from antwort.context import Context, Progress
from antwort.context.context import RESPONSES_WRITE
from antwort.engine.calls.direct_call import DirectCall, is_for_clients
from antwort.engine.engine import Engine
from antwort.errors import APIError
from antwort.functions import ToolResult
from antwort.functions.output import encodable
from antwort.functions.registration import Registration
from antwort.runs.limits import TenantLimits
from antwort.server.mcp.messages import (
    CANCELLED,
    GREETED,
    IDENTITY,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    META,
    METHOD_NOT_FOUND,
    STATELESS,
    RpcError,
    RpcMessage,
    cannot_ask,
    notification,
)
from antwort.server.mcp.resources import AgentPrompts, ReadableResources
from antwort.server.mcp.respond_tool import RESPOND, RespondTool
from antwort.server.mcp.tools import DescribedTools, result_of
from antwort.server.mcp.waiting_calls import WaitingCall, approval_of, can_ask
from antwort.types import JSON

T = TypeVar("T")
Tell = Callable[[JSON], None]
"""Sends a notification to whoever has asked."""
_FRESH = 60_000
"""Milliseconds for which clients may keep a list: another may have been put into service, or taken out, by then."""
_CAPABILITIES: JSON = {"tools": {}, "resources": {}, "prompts": {}}
_INSTRUCTIONS = "The functions of an antwort server. Their results are what its own agents read of them."
_PAUSE = 0.1
"""Seconds between two notifications of a call; what is told more often is left out, but not that it is done."""
_A_LITTLE = 1e-6
"""What a call gets further by if it only says what it does: each notification has to be further than the last."""
_ERRORS_AS_RESULTS = "2025-11-25"
"""The version from which on wrong arguments are a result, which a model can read."""


class RpcCaller(msgspec.Struct, frozen=True):
    """Who asks, and what he speaks."""

    ctx: Context
    version: str
    session: str | None = None
    """What tells his requests from others of the same credentials; None if nothing does."""

    @property
    def is_stateless(self) -> bool:
        """Tell whether he says with each request what he is."""
        return self.version == STATELESS

    def can_ask(self, message: RpcMessage) -> bool:
        """Tell whether he can ask his user something, as a request says."""
        return self.is_stateless and can_ask(message)


class _UnderWay:
    """A call under way, which its client can cancel."""

    def __init__(self) -> None:
        self.task = asyncio.current_task()
        self.is_cancelled = False

    def cancel(self) -> None:
        """Cancel it."""
        if self.task is not None and not self.is_cancelled:
            self.is_cancelled = True
            self.task.cancel()


class McpMethods:
    """Answers requests. Nothing is kept of a client but the calls that are under way."""

    def __init__(
        self, engine: Engine, limits: TenantLimits, registrations: Callable[[], Iterable[Registration]]
    ) -> None:
        self._engine = engine
        self._resources = ReadableResources(registrations)
        self._prompts = AgentPrompts(lambda: engine.planner.described_agents, RESPOND)
        self._limits = limits
        self._tools = DescribedTools()
        self._respond = RespondTool(engine, limits)
        self._under_way: dict[tuple[str, str, str, str | int], _UnderWay] = {}
        self._methods: dict[str, Callable[[RpcMessage, RpcCaller, Tell], Awaitable[JSON]]] = {
            "tools/list": self._list_tools,
            "tools/call": self._call_tool,
            "resources/list": self._list_resources,
            "resources/templates/list": self._list_templates,
            "resources/read": self._read_resource,
            "prompts/list": self._list_prompts,
            "prompts/get": self._get_prompt,
        }

    async def answer(self, message: RpcMessage, caller: RpcCaller, tell: Tell) -> JSON:
        """Return the result of a request; RpcError if there is none."""
        if message.method in self._methods:
            try:
                result = await self._methods[message.method](message, caller, tell)
            except APIError as error:
                raise RpcError(INTERNAL_ERROR, error.message, status=error.status) from error
        elif message.method == "server/discover":
            result = {"supportedVersions": [STATELESS, *GREETED], "ttlMs": _FRESH, "cacheScope": "public"}
            result |= {"capabilities": _CAPABILITIES, "instructions": _INSTRUCTIONS}
        elif message.method == "initialize" and not caller.is_stateless:
            result = _greeting(message)
        elif message.method == "ping" and not caller.is_stateless:
            result = {}
        else:
            raise RpcError(METHOD_NOT_FOUND, f"There is no method '{message.method[:100]}' here.")
        if caller.is_stateless or message.method == "server/discover":
            result = {"resultType": "complete", "_meta": {f"{META}serverInfo": IDENTITY}, **result}
        return result

    def take(self, message: RpcMessage, caller: RpcCaller) -> None:
        """Take a notification; those that are of no use are left out."""
        number = message.params.get("requestId")
        if message.method == "notifications/cancelled" and isinstance(number, str | int):
            key = _key(caller, number)
            if key is not None and (call := self._under_way.get(key)) is not None:
                call.cancel()

    async def _list_tools(self, message: RpcMessage, caller: RpcCaller, _tell: Tell) -> JSON:
        functions = self._engine.planner.functions(caller.ctx)
        page = await self._tools.page(functions, message.params.get("cursor"))
        if "nextCursor" not in page and (respond := self._respond.described(caller.ctx, functions)) is not None:
            page["tools"].append(respond)
        return _kept(page, caller)

    async def _list_resources(self, message: RpcMessage, caller: RpcCaller, _tell: Tell) -> JSON:
        return _kept(await self._resources.page(caller.ctx, message.params.get("cursor")), caller, 0)

    async def _list_templates(self, _message: RpcMessage, caller: RpcCaller, _tell: Tell) -> JSON:
        return _kept(self._resources.templates(caller.ctx), caller)

    async def _read_resource(self, message: RpcMessage, caller: RpcCaller, _tell: Tell) -> JSON:
        uri, stateless = message.params.get("uri"), caller.is_stateless
        return _kept(await self._resources.read(caller.ctx, uri, is_stateless=stateless), caller, 0)

    async def _list_prompts(self, _message: RpcMessage, caller: RpcCaller, _tell: Tell) -> JSON:
        return _kept(self._prompts.page() if self._is_respond(caller.ctx) else {"prompts": []}, caller)

    async def _get_prompt(self, message: RpcMessage, caller: RpcCaller, _tell: Tell) -> JSON:
        name = message.params.get("name") if self._is_respond(caller.ctx) else None
        return self._prompts.get(name, message.params.get("arguments"))

    async def _call_tool(self, message: RpcMessage, caller: RpcCaller, tell: Tell) -> JSON:
        name, arguments = _named_call(message)
        if name == RESPOND and self._is_respond(caller.ctx):
            return await self._cancellable(self._respond.run(arguments, caller.ctx), message, caller)
        return await self._call_function(name, arguments, message, caller, tell)

    async def _call_function(
        self, name: str, arguments: JSON, message: RpcMessage, caller: RpcCaller, tell: Tell
    ) -> JSON:
        sealer = self._engine.sealer
        notes = _ProgressNotes(message.progress_token, tell)
        call = self._engine.call(name, caller.ctx, notes.emit)
        spec = None if call is None else call.target.spec
        if call is None or spec is None or not is_for_clients(spec):
            raise RpcError(INVALID_PARAMS, f"Unknown tool: {name[:100]}")
        waiting = WaitingCall.unsealed(message, caller.ctx, sealer) if caller.is_stateless else None
        answer = None if waiting is None else waiting.answered(message, caller.ctx)
        if waiting is not None and answer is None:
            return waiting.request(caller.ctx, sealer)
        if answer is not None and not answer.approved:
            result = answer.result()
        else:
            work = self._run(call, arguments, caller, is_approved=answer is not None, can_ask=caller.can_ask(message))
            with self._limits.making(caller.ctx.tenant):
                result = await self._cancellable(work, message, caller)
            notes.close()
        if result.suspension is not None:
            return WaitingCall.of(message, caller.ctx, result.suspension).request(caller.ctx, sealer)
        if result.status == "invalid_arguments" and caller.version < _ERRORS_AS_RESULTS:
            raise RpcError(INVALID_PARAMS, result.output)
        return result_of(spec, result, self._tools.of(spec))

    def _is_respond(self, ctx: Context) -> bool:
        """Tell whether the name of the tool that makes responses is its own."""
        return ctx.grants(RESPONSES_WRITE) and RESPOND not in self._engine.planner.functions(ctx)

    async def _run(
        self, call: DirectCall, arguments: JSON, caller: RpcCaller, *, is_approved: bool, can_ask: bool
    ) -> ToolResult:
        name = call.target.name
        waits = call.needs_approval or (call.target.spec is not None and call.target.spec.suspends)
        if waits and caller.is_stateless and not can_ask:
            raise cannot_ask(name)
        if not call.needs_approval or is_approved:
            return await call.run(arguments, can_wait=can_ask)
        if can_ask:
            return approval_of(name, arguments)
        return ToolResult.error(f"{name} needs an approval, and this client cannot ask for one.", "denied")

    async def _cancellable(self, work: Awaitable[T], message: RpcMessage, caller: RpcCaller) -> T:
        """Await work that the client may cancel; RpcError if it does."""
        key = None if message.number is None else _key(caller, message.number)
        if key is None:
            return await work
        under_way = _UnderWay()
        self._under_way[key] = under_way
        try:
            return await work
        except asyncio.CancelledError:
            if not under_way.is_cancelled or under_way.task is None:
                raise
            under_way.task.uncancel()
            raise RpcError(CANCELLED, "The request was cancelled.") from None
        finally:
            if self._under_way.get(key) is under_way:
                del self._under_way[key]


class _ProgressNotes:
    """Tells a client how far a call is, from whichever thread that is said, until the call is over."""

    def __init__(self, token: str | int | None, tell: Tell) -> None:
        self._token = token
        self._tell = tell
        self._loop = asyncio.get_running_loop()
        self._reached = -_A_LITTLE
        self._last = -_PAUSE
        self._is_told = False
        """Whether it is told, or will be, that the call is done: there is nothing to tell then."""
        self._over = token is None

    def emit(self, progress: Progress) -> None:
        """Take a sign of life."""
        now, is_last = self._loop.time(), progress.fraction == 1
        if not self._over and not self._is_told and (is_last or now - self._last >= _PAUSE):
            self._last, self._is_told = now, is_last
            self._loop.call_soon_threadsafe(self._note, progress)

    def close(self) -> None:
        """Tell nothing more."""
        self._over = True

    def _note(self, progress: Progress) -> None:
        reached = self._reached + _A_LITTLE if progress.fraction is None else progress.fraction
        if self._over or not self._reached < reached <= 1:
            return
        self._reached = reached
        message = encodable(str(progress.message))
        told = {"progressToken": self._token, "progress": reached, "total": 1, "message": message}
        self._tell(notification("notifications/progress", told))


def _named_call(message: RpcMessage) -> tuple[str, JSON]:
    """Return the name and the arguments of a call; RpcError if it has none that can be."""
    name, arguments = message.params.get("name"), message.params.get("arguments")
    if not isinstance(name, str):
        raise RpcError(INVALID_PARAMS, "'name' is the name of a tool.")
    if arguments is not None and not isinstance(arguments, dict):
        raise RpcError(INVALID_PARAMS, "'arguments' is an object.")
    return name, arguments or {}


def _kept(result: JSON, caller: RpcCaller, milliseconds: int = _FRESH) -> JSON:
    """Return a result with how long its reader may keep it, if he knows of that."""
    return {**result, "ttlMs": milliseconds, "cacheScope": "private"} if caller.is_stateless else result


def _greeting(message: RpcMessage) -> JSON:
    """Return the answer to a client that introduces itself: in its version if that is spoken here, else the newest."""
    asked = message.params.get("protocolVersion")
    if not isinstance(asked, str):
        raise RpcError(INVALID_PARAMS, "'protocolVersion' is the version that the client speaks.")
    version = asked if asked in GREETED else GREETED[0]
    greeting: JSON = {"protocolVersion": version, "capabilities": _CAPABILITIES, "serverInfo": IDENTITY}
    return {**greeting, "instructions": _INSTRUCTIONS}


def _key(caller: RpcCaller, number: str | int) -> tuple[str, str, str, str | int] | None:
    """Return what tells a request from all others that are under way; None if nothing does."""
    session = caller.session
    return None if session is None else (caller.ctx.tenant, caller.ctx.subject, session, number)
