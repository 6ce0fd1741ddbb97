"""The one path every call takes: admit, validate, wait for a slot, run in time, guard, cap, record."""

import asyncio
import contextlib
import inspect
import logging
import time
from collections.abc import AsyncGenerator, Mapping
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
from antwort.functions.threads import Job, WorkerThreads
from antwort.http_client import HttpClient
from antwort.observability import AuditLog, NoTracer, Redactor, Tracer

__all__ = ["Entry", "Execution", "described", "permits"]

logger = logging.getLogger(__name__)

_SHOWN_CRASH = 500
_COLLECTED = 8
"""How many times the output limit a generator may yield before it is stopped."""


@dataclass(slots=True, eq=False)
class Entry:
    """A function as the registry holds it."""

    spec: FunctionSpec
    provider: FunctionProvider
    slots: Slots | None
    recorder: Recorder
    enabled: bool = True
    """False while the function was taken out of service by itself."""
    provider_enabled: bool = True
    ready: bool = True
    """False while the provider has a lifespan that was not entered yet."""
    shadowed_by: str | None = None
    """The provider whose function of the same name was registered first; a shadowed function is never offered."""

    @property
    def offered(self) -> bool:
        """Tell whether models may see and call it."""
        return self.in_service and self.shadowed_by is None

    @property
    def in_service(self) -> bool:
        """Tell whether neither the function nor its provider is disabled."""
        return self.enabled and self.provider_enabled


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
        http: HttpClient | None,
    ) -> None:
        self._metrics = metrics
        self._audit = audit
        self._tracer = tracer or NoTracer()
        self._redactor = redactor
        self._timeout = timeout
        self._max_output = max_output
        self._concurrency = concurrency
        self._threads = WorkerThreads(threads)
        self._http = http

    def entry(self, spec: FunctionSpec, provider: FunctionProvider) -> Entry:
        """Prepare a function for execution."""
        limit = spec.limits.concurrency or self._concurrency
        slots = Slots(limit) if limit is not None else None
        return Entry(spec, provider, slots, self._metrics.recorder(provider.name, spec.name))

    async def run(self, entry: Entry, raw: str | bytes | Mapping[str, Any], ctx: Context) -> ToolResult:
        """Execute a call. Every failure is a result; only the caller's own cancellation passes through."""
        started = time.perf_counter()
        ctx = ctx.reaching(self._http)
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
        task = asyncio.current_task()
        cancelling = task.cancelling() if task is not None else 0
        try:
            self._admit(entry, ctx)
            arguments = entry.spec.arguments.validate(raw)
            result = await self._timed(entry, arguments, ctx)
        except FunctionError as error:
            result = ToolResult.error(str(error), error.status)
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError | KeyboardInterrupt) and _leaving(task, cancelling):
                raise  # the caller is going away: that is not the function's failure
            result = self._crashed(entry, error)
        if _leaving(task, cancelling):
            raise asyncio.CancelledError  # a handler has swallowed it; the caller must still get it
        return self._capped(entry, result)

    def _admit(self, entry: Entry, ctx: Context) -> None:
        name = entry.spec.name
        if not permits(entry.spec, ctx.agent):
            raise FunctionDeniedError(f"{name} is not available to this agent (scope '{entry.spec.scope}').")
        if not entry.ready:
            raise FunctionUnavailableError(
                f"{name} is not available: its provider '{entry.provider.name}' is not started (`async with registry`)."
            )
        if not entry.in_service or not entry.provider.can_execute(name):
            raise _unavailable(entry)

    async def _timed(self, entry: Entry, arguments: dict[str, Any], ctx: Context) -> ToolResult:
        limits = (entry.spec.effective_timeout(self._timeout), ctx.remaining())
        limit = min((seconds for seconds in limits if seconds is not None), default=None)
        clock = asyncio.timeout(limit)
        try:
            async with clock:
                result = await self._invoke(entry, arguments, ctx)
        except Exception:
            if not clock.expired():
                raise  # a failure, or a time-out, of the handler's own making
        else:
            if not clock.expired():  # a handler may swallow its cancellation and return late
                return result
        raise FunctionTimeoutError(f"{entry.spec.name} did not finish within {limit:g} seconds.")

    async def _invoke(self, entry: Entry, arguments: dict[str, Any], ctx: Context) -> ToolResult:
        slots = entry.slots
        if slots is None:
            return await self._call(entry, arguments, ctx)
        await slots.acquire()
        job: Job | None = None
        try:
            if not entry.in_service:  # disabled while the call was waiting
                raise _unavailable(entry)
            if entry.spec.kind is HandlerKind.SYNC:
                job = await self._submit(entry, arguments, ctx)
                return await _outcome(job)
            return await self._call(entry, arguments, ctx)
        finally:
            if job is None or job.done:
                slots.release()
            else:
                # A thread cannot be stopped: whoever timed out leaves, the slot stays taken until the thread ends.
                job.on_end = slots.release

    async def _call(self, entry: Entry, arguments: dict[str, Any], ctx: Context) -> ToolResult:
        spec = entry.spec
        if spec.handler is None:
            return await _execute(entry.provider, ctx, ToolCall(spec.name, arguments, ctx.call_id))
        if spec.kind is HandlerKind.ASYNC:
            return ToolResult.of(await spec.call(ctx, arguments))
        if spec.kind is HandlerKind.STREAM:
            limit = self._limit(entry) * _COLLECTED
            return ToolResult.of(await _drain(spec.call(ctx, arguments), ctx, limit))
        return await _outcome(await self._submit(entry, arguments, ctx))

    async def _submit(self, entry: Entry, arguments: dict[str, Any], ctx: Context) -> Job:
        def call() -> Any:
            if not entry.in_service:  # disabled while the call was waiting for a thread
                raise _unavailable(entry)
            value = entry.spec.call(ctx, arguments)
            # Written here, so that a large value, or a lazy one, does not hold up the event loop.
            return value if inspect.isawaitable(value) else ToolResult.of(value)

        return await self._threads.submit(call)

    def _limit(self, entry: Entry) -> int:
        return entry.spec.limits.max_output or self._max_output

    def _capped(self, entry: Entry, result: ToolResult) -> ToolResult:
        limit = self._limit(entry)
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
    try:
        text = " ".join(str(error).split())
    except Exception:  # noqa: BLE001 - a stranger's __str__ may fail as well
        text = ""
    kind = type(error).__name__
    return redactor.text(f"{kind}: {text}" if text else kind)[:_SHOWN_CRASH]


def _leaving(task: asyncio.Task[Any] | None, before: int) -> bool:
    """Tell whether the caller's task was cancelled since."""
    return task is not None and task.cancelling() > before


def _unavailable(entry: Entry) -> FunctionUnavailableError:
    return FunctionUnavailableError(f"{entry.spec.name} is not available at the moment; go on without it.")


async def _outcome(job: Job) -> ToolResult:
    """Return what a thread returned or raised."""
    value, error = await job.result
    if error is not None:
        raise error
    return value if isinstance(value, ToolResult) else ToolResult.of(await value)


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


async def _drain(generator: AsyncGenerator[Any, None], ctx: Context, limit: int) -> Any:
    """Collect what an async generator yields: progress is emitted, text is joined, other values make a list.

    A generator that yields far more than the model will see is stopped.
    """
    pieces: list[Any] = []
    collected = 0
    async with contextlib.aclosing(generator):
        async for piece in generator:
            if isinstance(piece, Progress):
                ctx.emit(piece)
                continue
            pieces.append(piece)
            collected += len(piece) if isinstance(piece, str) else 1
            if collected > limit:
                break
    if len(pieces) == 1:
        return pieces[0]
    if all(isinstance(piece, str) for piece in pieces):
        return "".join(pieces) or None
    return pieces
