"""The one path every call takes: admit, validate, wait for a slot, run in time, guard, cap, record."""

import asyncio
import contextlib
import functools
import inspect
import logging
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from antwort.context import Agent, Context, Progress
from antwort.errors import FunctionDeniedError, FunctionError, FunctionTimeoutError, FunctionUnavailableError
from antwort.functions.metrics import FunctionMetrics, Recorder
from antwort.functions.provider import FunctionProvider
from antwort.functions.result import ToolCall, ToolResult, capped
from antwort.functions.signature import HandlerKind
from antwort.functions.slots import Slots
from antwort.functions.spec import FunctionSpec, Scope
from antwort.functions.threads import WorkerThreads
from antwort.observability import AuditLog, NoTracer, Redactor, Tracer

__all__ = ["Entry", "Execution", "described", "permits"]

logger = logging.getLogger(__name__)

_SHOWN_CRASH = 500


@dataclass(slots=True, eq=False)
class Entry:
    """A function as the registry holds it."""

    spec: FunctionSpec
    provider: FunctionProvider
    slots: Slots | None
    recorder: Recorder
    enabled: bool = True
    ready: bool = True
    """False while the provider has a lifespan that was not entered yet."""
    shadowed_by: str | None = None
    """The provider whose function of the same name was registered first; a shadowed function is never offered."""

    @property
    def offered(self) -> bool:
        """Tell whether models may see and call it."""
        return self.enabled and self.shadowed_by is None


def permits(spec: FunctionSpec, agent: Agent) -> bool:
    """Tell whether a function's scope admits an agent."""
    if spec.scope is Scope.USER and not agent.is_root:
        return False
    if spec.scope is Scope.AGENT and not agent.can_spawn:
        return False
    return spec.agents is None or agent.name in spec.agents


class Execution:
    """Runs functions. One per registry: it holds the worker threads and the defaults of the limits."""

    def __init__(
        self,
        *,
        metrics: FunctionMetrics,
        audit: AuditLog | None,
        tracer: Tracer | None,
        redactor: Redactor,
        timeout: float | None,
        max_output: int,
        concurrency: int | None,
        threads: int,
    ) -> None:
        self._metrics = metrics
        self._audit = audit
        self._tracer = tracer or NoTracer()
        self._redactor = redactor
        self._timeout = timeout
        self._max_output = max_output
        self._concurrency = concurrency
        self._threads = WorkerThreads(threads)

    def entry(self, spec: FunctionSpec, provider: FunctionProvider) -> Entry:
        """Prepare a function for execution."""
        limit = spec.limits.concurrency or self._concurrency
        slots = Slots(limit) if limit is not None else None
        return Entry(spec, provider, slots, self._metrics.recorder(provider.name, spec.name))

    async def run(self, entry: Entry, raw: str | bytes | Mapping[str, Any], ctx: Context) -> ToolResult:
        """Execute a call. Every failure is a result; only the caller's own cancellation passes through."""
        started = time.perf_counter()
        name = entry.spec.name
        attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name}
        with self._tracer.span(f"execute_tool {name}", attributes) as span:
            try:
                result = await self._guarded(entry, raw, ctx)
            except BaseException:
                self._record(entry, ctx, "cancelled", started)
                span.fail("cancelled")
                raise
            if result.is_error:
                span.fail(result.status)
        self._record(entry, ctx, result.status, started)
        return result

    def close(self) -> None:
        """Let the worker threads end."""
        self._threads.close()

    def _record(self, entry: Entry, ctx: Context, status: str, started: float) -> None:
        seconds = time.perf_counter() - started
        entry.recorder.record(status, seconds)
        if self._audit is not None:
            self._audit.record(
                "function.executed",
                tenant=ctx.tenant,
                subject=ctx.subject,
                request_id=ctx.request_id,
                provider=entry.provider.name,
                function=entry.spec.name,
                agent=ctx.agent.name,
                call_id=ctx.call_id,
                status=status,
                seconds=round(seconds, 6),
            )

    async def _guarded(self, entry: Entry, raw: str | bytes | Mapping[str, Any], ctx: Context) -> ToolResult:
        try:
            self._admit(entry, ctx)
            arguments = entry.spec.arguments.validate(raw)
            result = await self._timed(entry, arguments, ctx)
            return self._capped(entry, result)
        except FunctionError as error:
            return ToolResult.error(str(error), error.status)
        except BaseException as error:
            task = asyncio.current_task()
            if not isinstance(error, Exception) and task is not None and task.cancelling():
                raise  # the caller is going away: that is not the function's failure
            return self._crashed(entry, error)

    def _admit(self, entry: Entry, ctx: Context) -> None:
        name = entry.spec.name
        if not permits(entry.spec, ctx.agent):
            raise FunctionDeniedError(f"{name} is not available to this agent (scope '{entry.spec.scope}').")
        if not entry.ready:
            raise FunctionUnavailableError(
                f"{name} is not available: its provider '{entry.provider.name}' is not started (`async with registry`)."
            )
        if not entry.enabled or not entry.provider.can_execute(name):
            raise FunctionUnavailableError(f"{name} is not available at the moment; go on without it.")

    async def _timed(self, entry: Entry, arguments: dict[str, Any], ctx: Context) -> ToolResult:
        limits = (entry.spec.effective_timeout(self._timeout), ctx.remaining())
        limit = min((seconds for seconds in limits if seconds is not None), default=None)
        clock = asyncio.timeout(limit)
        try:
            async with clock:
                result = await self._invoke(entry, arguments, ctx)
            if not clock.expired():  # a handler may swallow its cancellation and return late
                return result
        except TimeoutError:
            if not clock.expired():
                raise  # a time-out of the handler's own making
        raise FunctionTimeoutError(f"{entry.spec.name} did not finish within {limit:g} seconds.")

    async def _invoke(self, entry: Entry, arguments: dict[str, Any], ctx: Context) -> ToolResult:
        spec = entry.spec
        release: Callable[[], None] = _nothing
        if entry.slots is not None:
            await entry.slots.acquire()
            release = entry.slots.release
        if spec.kind is HandlerKind.SYNC:
            # A thread cannot be stopped: whoever timed out leaves, and the slot stays taken until the thread ends.
            value = await self._threads.run(functools.partial(spec.call, ctx, arguments), release)
            return ToolResult.of(await value if inspect.isawaitable(value) else value)
        try:
            if spec.handler is None:
                return await _execute(entry.provider, ctx, ToolCall(spec.name, arguments, ctx.call_id))
            if spec.kind is HandlerKind.STREAM:
                return ToolResult.of(await _drain(spec.call(ctx, arguments), ctx))
            return ToolResult.of(await spec.call(ctx, arguments))
        finally:
            release()

    def _capped(self, entry: Entry, result: ToolResult) -> ToolResult:
        limit = entry.spec.limits.max_output or self._max_output
        if len(result.output) <= limit:
            return result
        return replace(result, output=capped(result.output, limit))

    def _crashed(self, entry: Entry, error: BaseException) -> ToolResult:
        name = entry.spec.name
        logger.error("function %s of provider %s failed", name, entry.provider.name, exc_info=error)
        if isinstance(error, asyncio.CancelledError):
            return ToolResult.error(f"{name} was cancelled before it finished.")
        return ToolResult.error(f"{name} failed: {described(error, self._redactor)}")


def described(error: BaseException, redactor: Redactor) -> str:
    """Name an exception nobody expected, in one line and without secrets."""
    text = " ".join(f"{type(error).__name__}: {error}".rstrip(": ").split())
    return redactor.text(text)[:_SHOWN_CRASH]


def _nothing() -> None:
    """Release no slot."""


async def _execute(provider: FunctionProvider, ctx: Context, call: ToolCall) -> ToolResult:
    """Let a provider execute a call itself, and hold it to the protocol."""
    result: object = provider.execute(ctx, call)
    if inspect.isawaitable(result):
        result = await result
    if isinstance(result, ToolResult):
        return result
    if result is None:
        raise FunctionError(f"{call.name} returned nothing.")
    return ToolResult.of(result)


async def _drain(generator: AsyncGenerator[Any, None], ctx: Context) -> Any:
    """Collect what an async generator yields: progress is emitted, text is joined, other values make a list."""
    pieces: list[Any] = []
    async with contextlib.aclosing(generator):
        async for piece in generator:
            if isinstance(piece, Progress):
                ctx.emit(piece)
            else:
                pieces.append(piece)
    if len(pieces) == 1:
        return pieces[0]
    if all(isinstance(piece, str) for piece in pieces):
        return "".join(pieces) or None
    return pieces
