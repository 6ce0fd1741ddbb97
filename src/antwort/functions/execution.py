"""The one path every call takes: admit, validate, run in a task of its own and in time, write, guard, record."""

import asyncio
import contextlib
import inspect
import logging
import math
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Protocol, TypeVar

from msgspec.structs import replace

from antwort.callables import HandlerKind
from antwort.concurrency.contained_tasks import ContainedTask, TimeLimit, call_contained, end_tasks
from antwort.concurrency.large_work import Turns
from antwort.concurrency.slots import Queues, Slots
from antwort.concurrency.threads import WorkerThreads
from antwort.config.defaults import FunctionDefaults
from antwort.context import Context, Progress
from antwort.context.agents import SubAgents
from antwort.context.calls import SuspendedError
from antwort.context.http_client import HttpClient
from antwort.context.variables import VariableView
from antwort.errors import FunctionDeniedError, FunctionError, FunctionTimeoutError, FunctionUnavailableError
from antwort.functions.arguments import LONGEST, may_refer, resolve, spilled
from antwort.functions.calls import ToolCall
from antwort.functions.entry import FunctionAudit, HangingCalls, Recorder, RegisteredFunction, permits
from antwort.functions.metrics import FunctionMetrics
from antwort.functions.output import Stop, as_text, capped, described, encodable, short_text
from antwort.functions.provider import FunctionProvider
from antwort.functions.results import LARGEST_IMAGES, MAY_HAVE_IMAGES, ToolResult, has_images
from antwort.functions.spec import FunctionSpec
from antwort.observability import AuditLog, NoTracer, Redactor, Tracer

T = TypeVar("T")

logger = logging.getLogger(__name__)


# To look up a member of an enum takes some hundred nanoseconds in Python 3.11.
_SYNC, _STREAM = HandlerKind.SYNC, HandlerKind.STREAM


class Hanging(Protocol):
    """Somebody some of whose calls may go on although nobody waits for them."""

    @property
    def hanging(self) -> HangingCalls:
        """Those calls."""


_COLLECTED = 8
"""How many times the output limit a generator may yield before it is stopped."""


class Execution:
    """Runs functions. One per registry: it holds the worker threads and the defaults of the limits."""

    def __init__(
        self,
        *,
        metrics: FunctionMetrics,
        audit: AuditLog | None,
        tracer: Tracer | None,
        redactor: Redactor,
        defaults: FunctionDefaults,
        http: HttpClient | None,
        queues: Queues,
    ) -> None:
        self._metrics = metrics
        self._audit = audit
        self._tracer = tracer or NoTracer()
        self._redactor = redactor
        self._defaults = defaults
        self._threads: dict[str, WorkerThreads] = {}
        self._left: set[asyncio.Task[None]] = set()
        self._http = http
        self._queues = queues
        self.bind_variables: Callable[[Context], VariableView] | None = None
        self.bind_agents: Callable[[Context], SubAgents] | None = None
        """What gives calls variables and sub-agents, in an app that runs."""

    def threads(self, provider: str) -> WorkerThreads:
        """Return the worker threads of a provider, which its functions and routes share."""
        found = self._threads.get(provider)
        if found is None:
            queue = self._queues.named(f"threads of {provider}")
            found = self._threads[provider] = WorkerThreads(self._defaults.threads, queue)
        return found

    def entry(self, spec: FunctionSpec, provider: FunctionProvider) -> RegisteredFunction:
        """Prepare a function for execution."""
        limit = None if spec.inline else spec.limits.concurrency or self._defaults.concurrency
        timeout = spec.effective_timeout(self._defaults.timeout)
        max_output = spec.limits.max_output or self._defaults.max_output
        name, owner = spec.name, provider.name
        return RegisteredFunction(
            spec,
            provider,
            Slots(limit, self._queues.named(f"function {name}")) if limit is not None else None,
            self.threads(owner),
            HangingCalls(name, owner, self._metrics.hanging),
            Recorder(self._metrics.executions, self._metrics.durations, owner, name),
            None if self._audit is None else FunctionAudit(self._audit, owner, name),
            None if timeout is None else TimeLimit(timeout),
            max_output,
            min(max_output, self._defaults.spill or max_output),
            f"call {name} ({owner})",
            (f"execute_tool {name}", {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name}),
        )

    def run(
        self, entry: RegisteredFunction, raw: str | bytes | Mapping[str, Any], ctx: Context
    ) -> Coroutine[Any, Any, ToolResult]:
        """Execute a call. Every failure is a result; only the caller's own cancellation passes through."""
        return self._run_traced(entry, raw, ctx) if self._tracer.enabled else self._run(entry, raw, ctx)

    async def _run_traced(
        self, entry: RegisteredFunction, raw: str | bytes | Mapping[str, Any], ctx: Context
    ) -> ToolResult:
        with self._tracer.span(*entry.span) as span:
            for key, name in (("gen_ai.tool.call.id", ctx.call_id), ("gen_ai.agent.id", ctx.agent_id)):
                if name is not None:
                    span.set(key, name)
            try:
                result = await self._run(entry, raw, ctx)
            except asyncio.CancelledError:
                span.fail("cancelled")
                raise
            if result.is_error:
                span.fail(result.status)
            return result

    async def resolved(self, arguments: str, ctx: Context) -> Mapping[str, Any] | None:
        """Return arguments with values in the place of references; None if nothing would be put in their places."""
        ctx = self.reaching(ctx)
        if not may_refer(arguments) or not ctx.keeps_values:
            return None
        with contextlib.suppress(FunctionError):  # the function is not executed either
            return await resolve(arguments, ctx, self._defaults.max_referenced)
        return None

    async def _run(self, entry: RegisteredFunction, raw: str | bytes | Mapping[str, Any], ctx: Context) -> ToolResult:
        started = time.perf_counter()
        ctx, spec = ctx.reaching(self._http, self.bind_variables, self.bind_agents), entry.spec
        try:
            self._admit(entry, ctx)
            if may_refer(raw) and ctx.keeps_values:
                raw = await resolve(raw, ctx, self._defaults.max_referenced, spec.references)
            arguments = spec.arguments.validate(raw)
            if spec.inline:
                value, short = self._compute(entry, arguments, ctx)
                result = await self._call(self._write, entry, value, ctx) if short is None else short
            else:
                result = await self._call(self._invoke, entry, arguments, ctx)
        except FunctionError as error:
            result = self._refused(entry, error)
        except asyncio.CancelledError:  # the caller's own: those of handlers stay with them
            self._record(entry, ctx, "cancelled", started)
            raise
        except BaseException as error:  # noqa: BLE001 - of can_execute, or of a validator
            result = self._log_crash(entry, error)
        self._record(entry, ctx, result.status, started)
        return result

    async def close(self) -> None:
        """Let the worker threads end, and the calls that go on although nobody waits for them, if need be by force."""
        for name in await end_tasks(self._left, self._defaults.grace):
            logger.warning("%s does not end; it is left behind", name)
        self._left.clear()
        for threads in self._threads.values():
            threads.close()

    def _record(self, entry: RegisteredFunction, ctx: Context, status: str, started: float) -> None:
        seconds = time.perf_counter() - started
        entry.recorder.record(status, seconds)
        if entry.audit is not None:
            entry.audit.record(ctx, status, seconds)

    def _admit(self, entry: RegisteredFunction, ctx: Context) -> None:
        spec = entry.spec
        name = spec.name
        if not permits(spec, ctx.agent):
            named = spec.agents is None or ctx.agent.name in spec.agents
            why = f"scope '{spec.scope}'" if named else "it is for agents of other names"
            raise FunctionDeniedError(f"{name} is not available to this agent ({why}).")
        if not entry.ready:
            raise FunctionUnavailableError(
                f"{name} is not available: its provider '{entry.provider.name}' is not started (`async with registry`)."
            )
        if not entry.in_service or not entry.provider.can_execute(name):
            raise _unavailable(entry)
        if entry.hanging.count >= self._defaults.max_hanging:
            raise FunctionUnavailableError(
                f"{name} is not available at the moment: too many calls of it hang. Go on without it."
            )

    def _compute(
        self, entry: RegisteredFunction, arguments: dict[str, Any], ctx: Context
    ) -> tuple[Any, ToolResult | None]:
        """Call an inline function, here and now, and return its value, with the result of it if that is short.

        Whatever it raises is its failure, a cancellation included.
        """
        started = time.monotonic()
        short: ToolResult | None
        try:
            value = call_contained(entry.task_name, entry.spec.call, ctx, arguments)
            short = self._short_result(entry, value, ctx)
        except BaseException as error:  # noqa: BLE001
            value = short = self._failed(entry, error)
        ended = time.monotonic()
        limit, deadline = entry.time_limit, ctx.deadline
        if (limit is not None and ended - started > limit.seconds) or (deadline is not None and ended > deadline):
            raise _too_slow(entry, deadline, started, ended)
        return value, short

    async def _call(
        self,
        work: Callable[[RegisteredFunction, Any, Context, float | None], Awaitable[ToolResult]],
        entry: RegisteredFunction,
        given: Any,
        ctx: Context,
    ) -> ToolResult:
        """Do the work of a call in a task of its own, in time; whatever it raises is the function's failure.

        Neither the time limit nor the caller's leave depends on the handler: if it does not end when it is cancelled,
        nobody waits for it. It keeps its slot until it does.
        """
        limit, seconds = _time_limit(entry, ctx)
        now = asyncio.get_running_loop().time()
        deadline = None if seconds is None else now + seconds
        call = ContainedTask(work, entry.task_name, entry, given, ctx, deadline, started=now)
        task = call.task
        try:
            await call.ending(limit)
            in_time = task.done()
            if not in_time:
                await call.stop(self._defaults.grace)
        except asyncio.CancelledError:
            await call.stop(self._defaults.grace)
            raise
        finally:
            if not task.done():
                self.leave(entry, task, deadline)
        if seconds is not None and (not in_time or call.seconds > seconds):
            raise _timed_out(entry, seconds, call.seconds if in_time else None)
        return call.result() if call.error is None else self._failed(entry, call.error)

    def reaching(self, ctx: Context) -> Context:
        """Return a context with all that calls reach through theirs."""
        return ctx.reaching(self._http, self.bind_variables, self.bind_agents)

    def leave(self, owner: Hanging, task: asyncio.Task[None], deadline: float | None) -> None:
        """Leave a task to itself that does not end although it was cancelled."""
        ended = owner.hanging.leave(_until(deadline) or 0.0)
        self._left.add(task)
        task.add_done_callback(lambda _: ended())
        task.add_done_callback(self._left.discard)

    async def _invoke(
        self, entry: RegisteredFunction, arguments: dict[str, Any], ctx: Context, deadline: float | None
    ) -> ToolResult:
        """Wait for a slot, call the handler, and write what it returns; all of it in the call's own task."""
        slot = None
        if entry.slots is not None:
            await entry.slots.acquire(ctx.tenant)
            slot = _Held(partial(entry.slots.release, ctx.tenant))
        try:
            if slot is not None and not entry.in_service:  # disabled while the call was waiting
                raise _unavailable(entry)
            if entry.spec.kind is _SYNC:
                work = partial(self._work, entry, arguments, ctx)
                value, text = await self._on_thread(entry, ctx, slot, deadline, work)
                return await self._write(entry, value, ctx, deadline, slot=slot, text=text)
            value = await self._begin(entry, arguments, ctx)
            result = self._short_result(entry, value, ctx)
            return await self._write(entry, value, ctx, deadline, slot=slot) if result is None else result
        finally:
            if slot is not None:
                slot.release()

    def _begin(self, entry: RegisteredFunction, arguments: dict[str, Any], ctx: Context) -> Awaitable[Any]:
        """Begin a call on the event loop."""
        spec = entry.spec
        if spec.handler is None:
            return _execute(entry.provider, ctx, ToolCall(spec.name, arguments, ctx.call_id))
        if spec.kind is _STREAM:
            return _drain(spec.call(ctx, arguments), ctx, entry.max_output * _COLLECTED)
        return spec.call(ctx, arguments)  # type: ignore[no-any-return] # it is a coroutine function

    def _work(
        self, entry: RegisteredFunction, arguments: dict[str, Any], ctx: Context, stop: Stop
    ) -> tuple[Any, str | None]:
        """Call a plain function, on a thread; return what it returns, written if it can be."""
        if not entry.in_service:  # disabled while the call was waiting for a thread
            raise _unavailable(entry)
        value = entry.spec.call(ctx, arguments)
        written = inspect.isawaitable(value) or isinstance(value, ToolResult) or has_images(value)
        return value, None if written else as_text(value, self._longest(entry, ctx), stop)

    async def _on_thread(
        self,
        entry: RegisteredFunction,
        ctx: Context,
        slot: "_Held | None",
        deadline: float | None,
        work: Callable[[Stop], T],
    ) -> T:
        """Run something on a thread of the provider.

        A thread cannot be stopped: whoever timed out leaves. The slot stays taken until the thread ends; its place
        among the threads is somebody else's once its time is over.
        """
        stop = Stop()
        job = await entry.threads.submit(lambda: work(stop), ctx.tenant)
        try:
            value, error = await job.result
        finally:
            if not job.done:
                stop.asked = True
                if slot is not None:
                    slot.hold()
                ended = entry.hanging.leave(_until(deadline), partial(entry.threads.give_up, job))
                job.on_end = partial(_end, ended, slot)
        if error is not None:
            raise error
        return value  # type: ignore[no-any-return] # what `work` returned

    def _short_result(self, entry: RegisteredFunction, value: Any, ctx: Context) -> ToolResult | None:
        """Return the result of a call if it is so short that it is written at once, and neither cut nor kept."""
        limit = min(entry.max_output, ctx.inline) if ctx.inline else entry.short_output
        if type(value) is str and len(value) <= limit and value.isascii():  # nearly always
            return ToolResult(value, value=value)
        if isinstance(value, ToolResult):
            return self._capped(entry, value) if len(value.output) <= limit else None
        if type(value) in MAY_HAVE_IMAGES and has_images(value):
            return None
        text = short_text(value, limit)
        return None if text is None or len(text) > limit else ToolResult(text, value=value)

    async def _write(
        self,
        entry: RegisteredFunction,
        value: Any,
        ctx: Context,
        deadline: float | None,
        *,
        slot: "_Held | None" = None,
        text: str | None = None,
    ) -> ToolResult:
        """Return the result of a call: what its function returned, written as text unless it is already."""
        if entry.spec.kind is _SYNC and inspect.isawaitable(value):
            value = await value
        spills = self._spills(entry, ctx)
        if has_images(value):
            value = ToolResult.of(value)
        if isinstance(value, ToolResult):
            return await self._fitted(entry, value, ctx) if spills else self._capped(entry, value)
        longest = self._longest(entry, ctx)
        if text is None:
            text = short_text(value, longest)
        if text is None:  # it may be large, or lazy: that must not hold up the event loop
            text = await self._on_thread(entry, ctx, slot, deadline, partial(as_text, value, longest))
        result = ToolResult(text, value=value)
        return await self._fitted(entry, result, ctx) if spills else result

    def _spills(self, entry: RegisteredFunction, ctx: Context) -> bool:
        """Tell whether a long result of a call is kept as a variable, rather than cut."""
        return ctx.follows_references and ctx.keeps_values and entry.spec.spill and self._defaults.spill is not None

    def _longest(self, entry: RegisteredFunction, ctx: Context) -> int:
        """Return how many characters of a result are written."""
        return LONGEST if self._spills(entry, ctx) else entry.max_output

    async def _fitted(self, entry: RegisteredFunction, result: ToolResult, ctx: Context) -> ToolResult:
        """Return a result that fits into the window: a long one is kept as a variable, and replaced by a reference."""
        kept = not result.is_error and result.suspension is None
        if not kept or len(result.output) <= (ctx.inline or self._defaults.spill or 0):
            return self._capped(entry, result)
        try:
            is_json = result.value is not None and not isinstance(result.value, str)
            return replace(result, output=await spilled(encodable(result.output), ctx, is_json=is_json))
        except FunctionError as error:  # there is no room for it
            logger.warning("a result of %s is cut, not kept: %s", entry.spec.name, error)
            return self._capped(entry, result)

    def _capped(self, entry: RegisteredFunction, result: ToolResult) -> ToolResult:
        output = encodable(capped(result.output, entry.max_output))
        if result.images and sum(len(image.data) for image in result.images) > LARGEST_IMAGES:
            note = f"[Its images are left out: they have more than {LARGEST_IMAGES:,} bytes.]"
            return replace(result, output=f"{output}\n{note}", images=())
        return result if output is result.output else replace(result, output=output)

    def _failed(self, entry: RegisteredFunction, error: BaseException) -> ToolResult:
        """Make a result of whatever a function has raised."""
        if isinstance(error, SuspendedError):
            return ToolResult(str(error), status=error.status, suspension=error.suspension)
        return self._refused(entry, error) if isinstance(error, FunctionError) else self._log_crash(entry, error)

    def _refused(self, entry: RegisteredFunction, error: FunctionError) -> ToolResult:
        """Make a result of what the model is to know."""
        try:
            refusal = ToolResult.error(str(error), error.status)
        except BaseException:  # noqa: BLE001 - a text that cannot be had tells nothing, whatever its author raises
            return self._log_crash(entry, error)
        return self._capped(entry, refusal)

    def _log_crash(self, entry: RegisteredFunction, error: BaseException) -> ToolResult:
        name = entry.spec.name
        try:
            logger.error("function %s of provider %s failed", name, entry.provider.name, exc_info=error)
        except Exception as trouble:  # noqa: BLE001 - groups in groups may be nested too deeply for a traceback
            kind = type(trouble).__name__
            logger.error("function %s failed; its traceback cannot be written: %s", name, kind)  # noqa: TRY400
        if isinstance(error, asyncio.CancelledError):
            return ToolResult.error(f"{name} was cancelled before it finished.")
        return self._capped(entry, ToolResult.error(f"{name} failed: {described(error, self._redactor)}"))


def _unavailable(entry: RegisteredFunction) -> FunctionUnavailableError:
    if entry.off is not None:
        return FunctionUnavailableError(
            f"{entry.spec.name} is not available: the operator of this server has disabled it. Go on without it."
        )
    return FunctionUnavailableError(f"{entry.spec.name} is not available at the moment; go on without it.")


def _time_limit(entry: RegisteredFunction, ctx: Context) -> tuple[TimeLimit | float | None, float | None]:
    """Return how long a call may take: its function's time, or what its caller has left; and that in seconds."""
    limit, remaining = entry.time_limit, ctx.remaining()
    if remaining is not None and (limit is None or remaining < limit.seconds):
        return remaining, remaining
    return limit, None if limit is None else limit.seconds


def _too_slow(entry: RegisteredFunction, deadline: float | None, started: float, ended: float) -> FunctionTimeoutError:
    """Return the error of an inline call that took longer than its function's time, or than its caller had left."""
    remaining = math.inf if deadline is None else max(0.0, deadline - started)
    limit = math.inf if entry.time_limit is None else entry.time_limit.seconds
    return _timed_out(entry, min(limit, remaining), ended - started)


def _timed_out(entry: RegisteredFunction, seconds: float, taken: float | None) -> FunctionTimeoutError:
    """Return the error of a call that took too long; `taken` is how long, if it never let the clock strike."""
    if taken is not None:
        logger.warning("%s took %.1f seconds and held up everything else", entry.task_name, taken)
    return FunctionTimeoutError(f"{entry.spec.name} did not finish within {round(seconds, 3):g} s.")


def _until(deadline: float | None) -> float | None:
    """Return the seconds until a time on the loop's clock."""
    return None if deadline is None else deadline - asyncio.get_running_loop().time()


class _Held:
    """A slot that is given back when everybody who holds it has let go."""

    __slots__ = ("_holders", "_release")

    def __init__(self, release: Callable[[], None]) -> None:
        self._release = release
        self._holders = 1

    def hold(self) -> None:
        self._holders += 1

    def release(self) -> None:
        self._holders -= 1
        if self._holders == 0:
            self._release()


def _end(ended: Callable[[], None], slot: _Held | None) -> None:
    ended()
    if slot is not None:
        slot.release()


async def _execute(provider: FunctionProvider, ctx: Context, call: ToolCall) -> Any:
    """Let a provider execute a call itself."""
    result: object = provider.execute(ctx, call)
    if inspect.isawaitable(result):
        result = await result
    if result is None:
        raise FunctionError(f"{call.name} returned nothing.")
    return result


async def _drain(generator: AsyncGenerator[Any, None], ctx: Context, limit: int) -> Any:
    """Collect what an async generator yields: progress is emitted, text is joined, other values make a list.

    A generator that yields far more than the model will see is stopped, and one that never waits for anything does not
    keep others waiting.
    """
    pieces: list[Any] = []
    collected = 0
    turns = Turns()
    async with contextlib.aclosing(generator):
        async for piece in generator:
            await turns.give()
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
