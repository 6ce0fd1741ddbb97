"""The one path every call takes."""

import asyncio
import contextlib
import json
import logging
import threading
import time
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic import Field
from typing_extensions import override

from antwort import Agent, Context, FunctionError, FunctionRegistry, FunctionSpec, Progress, ToolResult
from antwort.errors import DefinitionError
from antwort.functions import Limits
from antwort.functions.entry import FunctionAudit
from antwort.observability import AuditLog, Metrics, Redactor, bind_log_context
from antwort.observability.otel import OtelTracer


@pytest.fixture
def registry() -> FunctionRegistry:
    return FunctionRegistry(timeout=20)


async def test_sync_async_and_generator_handlers_run(registry: FunctionRegistry) -> None:
    @registry.register
    def on_a_thread() -> str:
        """Run on a thread."""
        return threading.current_thread().name

    @registry.register
    async def on_the_loop() -> str:
        """Run on the loop."""
        return threading.current_thread().name

    @registry.register
    async def in_pieces() -> AsyncIterator[str]:
        """Stream."""
        yield "a"
        yield "b"

    assert (await registry.execute("on_a_thread", {})).output == "antwort-worker"
    assert (await registry.execute("on_the_loop", {})).output == threading.current_thread().name
    assert (await registry.execute("in_pieces", {})).output == "ab"


async def test_a_generator_streams_progress_and_its_values_are_the_result(registry: FunctionRegistry) -> None:
    @registry.register
    async def steps() -> AsyncIterator[Progress | dict[str, int]]:
        """Work in steps."""
        yield Progress("first", 0.5)
        yield {"n": 1}
        yield Progress("second", 1.0)

    @registry.register
    async def silent() -> AsyncIterator[Progress]:
        """Only tell progress."""
        yield Progress("on it")

    @registry.register
    async def several() -> AsyncIterator[int]:
        """Yield several values."""
        yield 1
        yield 2

    seen: list[Progress] = []
    ctx = Context("t", emit=seen.append)
    assert (await registry.execute("steps", {}, ctx)).value == {"n": 1}
    assert seen == [Progress("first", 0.5), Progress("second", 1.0)]
    assert (await registry.execute("silent", {}, ctx)).output == "(no output)"
    assert (await registry.execute("several", {}, ctx)).output == "[1,2]"


async def test_a_plain_function_that_returns_an_awaitable_is_awaited(registry: FunctionRegistry) -> None:
    async def later() -> str:
        return "later"

    def handler(params: dict[str, Any]) -> Awaitable[str]:
        return later()

    registry.register(FunctionSpec("f", "Do.", {}, handler))
    assert (await registry.execute("f", {})).output == "later"


async def test_values_become_text(registry: FunctionRegistry) -> None:
    values: dict[str, Any] = {
        "text": "x",
        "number": 1.5,
        "list": [1, None],
        "nan": float("nan"),
        "set": {1},
        "path": Path("a"),
    }

    @registry.register
    async def give(name: str) -> Any:
        """Give a value."""
        return values[name]

    outputs = {name: (await registry.execute("give", {"name": name})).output for name in values}
    assert outputs == {"text": "x", "number": "1.5", "list": "[1,null]", "nan": '"NaN"', "set": "[1]", "path": '"a"'}


async def test_a_function_that_returns_none_has_no_output_and_that_is_no_error(registry: FunctionRegistry) -> None:
    @registry.register
    async def nothing() -> None:
        """Return nothing."""

    assert await registry.execute("nothing", {}) == ToolResult("(no output)")


async def test_a_value_that_cannot_be_written_is_an_error_result(registry: FunctionRegistry) -> None:
    loop: list[Any] = []
    loop.append(loop)

    @registry.register
    async def give(circular: bool) -> Any:
        """Give something odd."""
        return loop if circular else object()

    for circular in (True, False):
        result = await registry.execute("give", {"circular": circular})
        assert result.is_error
        assert "cannot be written as JSON" in result.output


async def test_a_tool_result_is_passed_on(registry: FunctionRegistry) -> None:
    @registry.register
    async def partly() -> ToolResult:
        """Return a ready result."""
        return ToolResult.error("half of it is missing")

    assert (await registry.execute("partly", {})).output == "half of it is missing"


async def test_long_output_keeps_head_and_tail(registry: FunctionRegistry) -> None:
    @registry.register(max_output=100)
    async def long() -> str:
        """Return much."""
        return "a" * 500 + "z" * 500

    output = (await registry.execute("long", {})).output
    assert output.startswith("a" * 60)
    assert output.endswith("z" * 30)
    assert "[… 900 of 1,000 characters left out …]" in output
    assert len(output) < 160


# --- time ------------------------------------------------------------------------------------------------------


async def test_a_slow_coroutine_is_cancelled_in_time(registry: FunctionRegistry) -> None:
    cancelled = asyncio.Event()

    @registry.register(timeout=0.01)
    async def slow() -> None:
        """Wait for ever."""
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    result = await registry.execute("slow", {})
    assert (result.status, result.output) == ("timeout", "slow did not finish within 0.01 s.")
    assert cancelled.is_set()


async def test_a_handler_that_swallows_its_cancellation_still_timed_out(registry: FunctionRegistry) -> None:
    @registry.register(timeout=0.01)
    async def stubborn() -> str:
        """Ignore the bell."""
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return "too late"

    assert (await registry.execute("stubborn", {})).status == "timeout"


async def test_a_time_out_of_the_handlers_own_is_its_failure_not_ours(registry: FunctionRegistry) -> None:
    @registry.register
    async def impatient() -> None:
        """Give up at once."""
        raise TimeoutError("the server behind it is slow")

    result = await registry.execute("impatient", {})
    assert (result.status, result.output) == ("error", "impatient failed: TimeoutError: the server behind it is slow")


def soon_over() -> Context:
    return Context("t", deadline=time.monotonic() + 0.2)


async def test_a_blocked_thread_times_out_and_keeps_its_slot_until_it_ends(registry: FunctionRegistry) -> None:
    release, ended = threading.Event(), threading.Event()
    running = 0

    @registry.register(concurrency=1)
    def block() -> str:
        """Block a thread."""
        nonlocal running
        running += 1
        release.wait()
        running -= 1
        ended.set()
        return "done"

    assert (await registry.execute("block", {}, soon_over())).status == "timeout"
    assert running == 1
    assert (await registry.execute("block", {}, soon_over())).status == "timeout"
    assert running == 1, "the slot of the first call was given away while its thread was still running"
    release.set()
    await asyncio.to_thread(ended.wait)
    assert (await registry.execute("block", {})).output == "done"


async def test_a_stuck_thread_does_not_keep_its_place_from_others() -> None:
    registry = FunctionRegistry(threads=1, timeout=0.05)
    release = threading.Event()

    @registry.register
    def block() -> None:
        """Block the only thread."""
        release.wait()

    @registry.register(timeout=20)
    def other() -> str:
        """Need a thread too."""
        return "done"

    @registry.register(timeout=20)
    async def free() -> str:
        """Need no thread."""
        return "fine"

    try:
        assert (await registry.execute("block", {})).status == "timeout"
        assert (await registry.execute("other", {})).output == "done"
        assert (await registry.execute("free", {})).output == "fine"
    finally:
        release.set()


async def test_the_deadline_of_the_context_bounds_the_call(registry: FunctionRegistry) -> None:
    @registry.register
    async def slow() -> None:
        """Wait for ever."""
        await asyncio.Event().wait()

    assert (await registry.execute("slow", {}, Context("t", deadline=time.monotonic() + 0.01))).status == "timeout"


def test_a_function_that_suspends_has_no_timeout() -> None:
    spec = FunctionSpec("ask", "Ask.", {}, print, effect="suspend", limits=Limits(timeout=1))  # type: ignore[arg-type]
    assert spec.effective_timeout(5) is None
    assert FunctionSpec("f", "Do.", {}, print, limits=Limits(timeout=float("inf"))).effective_timeout(5) is None
    assert FunctionSpec("f", "Do.", {}, print).effective_timeout(5) == 5


# --- concurrency ------------------------------------------------------------------------------------------------


async def test_the_concurrency_limit_holds_and_waiting_calls_are_served_in_order(registry: FunctionRegistry) -> None:
    order: list[int] = []
    peak = now = 0

    @registry.register(concurrency=2)
    async def work(n: int) -> int:
        """Work."""
        nonlocal peak, now
        now += 1
        peak = max(peak, now)
        order.append(n)
        await asyncio.sleep(0)
        now -= 1
        return n

    results = await asyncio.gather(*(registry.execute("work", {"n": n}) for n in range(20)))
    assert [result.value for result in results] == list(range(20))
    assert (peak, order) == (2, list(range(20)))


async def test_a_call_that_gives_up_waiting_does_not_cost_a_slot(registry: FunctionRegistry) -> None:
    go_on = asyncio.Event()

    @registry.register(concurrency=1)
    async def work(wait: bool) -> str:
        """Work."""
        if wait:
            with contextlib.suppress(asyncio.CancelledError):
                await go_on.wait()
            await go_on.wait()
        return "done"

    first = asyncio.create_task(registry.execute("work", {"wait": True}, soon_over()))
    waiting = [asyncio.create_task(registry.execute("work", {"wait": False}, soon_over())) for _ in range(5)]
    assert {(await call).status for call in waiting} == {"timeout"}
    go_on.set()
    await first
    assert (await registry.execute("work", {"wait": False})).output == "done"


def test_one_registry_serves_one_event_loop_after_another() -> None:
    registry = FunctionRegistry()

    @registry.register(concurrency=1)
    def work() -> str:
        """Work on a thread."""
        return "done"

    async def crowd() -> list[str]:
        return [r.output for r in await asyncio.gather(*(registry.execute("work", {}) for _ in range(5)))]

    for _ in range(3):
        assert asyncio.run(crowd()) == ["done"] * 5


# --- crashes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("on_a_thread", [True, False])
@pytest.mark.parametrize(
    "error",
    [
        ValueError("x"),
        SystemExit(3),
        KeyboardInterrupt(),
        GeneratorExit(),
        MemoryError(),
        StopIteration(),
        asyncio.CancelledError(),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_whatever_a_handler_raises_is_an_error_result(
    registry: FunctionRegistry, on_a_thread: bool, error: BaseException
) -> None:
    def sync_handler(params: dict[str, Any]) -> None:
        raise error

    async def async_handler(params: dict[str, Any]) -> None:
        raise error

    registry.register(FunctionSpec("f", "Fail.", {}, sync_handler if on_a_thread else async_handler))
    result = await registry.execute("f", {})
    assert (result.is_error, result.status) == (True, "error")
    assert result.output.startswith("f ")


async def test_a_function_error_reaches_the_model_as_it_is_and_is_not_logged_as_a_crash(
    registry: FunctionRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    @registry.register
    async def picky() -> None:
        """Refuse."""
        raise FunctionError("There is no such city; ask the user.")

    assert (await registry.execute("picky", {})).output == "There is no such city; ask the user."
    assert not caplog.records


async def test_a_crash_is_logged_with_its_traceback_and_the_model_sees_no_secret(
    registry: FunctionRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    @registry.register
    async def leak() -> None:
        """Leak."""
        raise RuntimeError("GET http://user:hunter22@host/ failed\nAuthorization: Bearer abcdefghijklmnop")

    with caplog.at_level(logging.ERROR):
        output = (await registry.execute("leak", {})).output
    assert "hunter22" not in output
    assert "abcdefghijklmnop" not in output
    assert "\n" not in output
    assert caplog.records[0].exc_info is not None


async def test_the_callers_own_cancellation_passes_through_and_is_counted(registry: FunctionRegistry) -> None:
    started = asyncio.Event()

    @registry.register
    async def slow() -> None:
        """Wait for ever."""
        started.set()
        await asyncio.Event().wait()

    call = asyncio.create_task(registry.execute("slow", {}))
    await started.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    page = registry.metrics.render(None)[0].decode()
    assert 'antwort_builtin_tool_executions_total{provider="custom",status="cancelled",tool_name="slow"} 1.0' in page


async def test_a_crash_in_can_execute_is_an_error_result_too(registry: FunctionRegistry) -> None:
    @registry.register
    async def f() -> None:
        """Do nothing."""

    provider = registry.registrations()[0].provider
    provider.can_execute = lambda name: 1 / 0 > 0  # type: ignore[method-assign]
    assert (await registry.execute("f", {})).output == "f failed: ZeroDivisionError: division by zero"


# --- what is recorded -------------------------------------------------------------------------------------------


async def test_every_call_leaves_an_audit_event_without_its_arguments(tmp_path: Path) -> None:
    audit = AuditLog(tmp_path / "audit.jsonl")
    registry = FunctionRegistry(audit=audit)

    @registry.register
    async def f(secret: str) -> str:
        """Do something."""
        return secret

    ctx = Context("acme", "ada", request_id="req_1", call_id="call_1", agent=Agent("planner"))
    await registry.execute("f", {"secret": "hunter22"}, ctx)
    audit.close()
    line = (tmp_path / "audit.jsonl").read_text()
    assert "hunter22" not in line
    for expected in ("function.executed", "acme", "ada", "req_1", "call_1", "planner", '"success"'):
        assert expected in line


@pytest.mark.parametrize(
    "ctx", [Context("acme", "correct-horse", request_id="req_1", call_id="sk-0123456789"), Context("")]
)
def test_the_event_of_a_call_is_that_which_the_audit_log_makes_of_its_fields(tmp_path: Path, ctx: Context) -> None:
    audit = AuditLog(tmp_path / "audit.jsonl", redactor=Redactor(["correct-horse"]))
    with bind_log_context(tenant="bound"):
        FunctionAudit(audit, "basics", "correct-horse").record(ctx, "success", 0.0012344)
        audit.record(
            "function.executed",
            tenant=ctx.tenant,
            subject=ctx.subject,
            request_id=ctx.request_id,
            provider="basics",
            function="correct-horse",
            agent=ctx.agent.name,
            call_id=ctx.call_id,
            status="success",
            seconds=0.001234,
        )
    audit.close()
    made, general = (list(json.loads(line).items()) for line in (tmp_path / "audit.jsonl").read_text().splitlines())
    assert made[1:] == general[1:]  # but for the time
    assert "correct-horse" not in str(made)


async def test_every_call_is_a_span(registry: FunctionRegistry) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    registry = FunctionRegistry(metrics=Metrics("test"), tracer=OtelTracer(provider))

    @registry.register
    async def f(fail: bool) -> None:
        """Do or fail."""
        if fail:
            raise FunctionError("no")

    await registry.execute("f", {"fail": False})
    await registry.execute("f", {"fail": True})
    fine, failed = exporter.get_finished_spans()
    assert fine.name == "execute_tool f"
    assert fine.attributes is not None
    assert fine.attributes["gen_ai.tool.name"] == "f"
    assert (fine.status.is_ok, failed.status.is_ok) == (True, False)


def test_limits_must_be_positive() -> None:
    for name in ("timeout", "max_output", "concurrency"):
        with pytest.raises(DefinitionError, match=name):
            Limits(**{name: 0})


# --- what a review found: each of these went wrong once ------------------------------------------------------------


@pytest.mark.parametrize("on_a_thread", [True, False])
async def test_a_call_that_waits_for_a_slot_is_not_dispatched_once_its_function_is_disabled(
    registry: FunctionRegistry, on_a_thread: bool
) -> None:
    ran: list[int] = []
    started, go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def sync_handler(n: int) -> int:
        ran.append(n)
        loop.call_soon_threadsafe(started.set)
        go_on.wait()
        return n

    async def async_handler(n: int) -> int:
        ran.append(n)
        started.set()
        await asyncio.to_thread(go_on.wait)
        return n

    handler = sync_handler if on_a_thread else async_handler
    registry.register(handler, name="work", description="Work.", concurrency=1)
    first = asyncio.create_task(registry.execute("work", {"n": 1}))
    await started.wait()
    second = asyncio.create_task(registry.execute("work", {"n": 2}))
    await asyncio.sleep(0)
    registry.disable("work")
    go_on.set()
    assert (await first).output == "1"
    assert (await second).status == "unavailable"
    assert ran == [1]


async def test_a_default_factory_is_called_for_each_call(registry: FunctionRegistry) -> None:
    @registry.register
    async def remember(item: str, items: list[str] = Field(default_factory=list)) -> list[str]:  # noqa: B008
        """Remember items."""
        items.append(item)
        return items

    registry.register(
        FunctionSpec(
            "collect",
            "Collect.",
            {"item": {"type": "string"}, "items": {"type": "array", "default": []}},
            lambda params: params["items"].append(params["item"]) or params["items"],
        )
    )
    for name in ("remember", "collect"):
        assert (await registry.execute(name, {"item": "a"})).value == ["a"]
        assert (await registry.execute(name, {"item": "b"})).value == ["b"]
    assert registry.get("collect").parameters["properties"]["items"]["default"] == []


async def test_an_exception_that_cannot_be_written_is_still_an_error_result(registry: FunctionRegistry) -> None:
    class UnspeakableError(Exception):
        @override
        def __str__(self) -> str:
            raise ValueError

    @registry.register
    async def f() -> None:
        """Fail unspeakably."""
        raise UnspeakableError

    assert (await registry.execute("f", {})).output == "f failed: UnspeakableError"


@pytest.mark.parametrize("name", [None, [], 3, {}])
async def test_a_name_that_is_no_text_is_an_unknown_function(registry: FunctionRegistry, name: Any) -> None:
    assert (await registry.execute(name, {})).status == "unknown"


async def test_a_generator_returned_by_a_plain_function_is_drained_on_its_thread(registry: FunctionRegistry) -> None:
    threads: list[str] = []

    def numbers(params: dict[str, Any]) -> Any:
        def generate() -> Any:
            for n in range(3):
                threads.append(threading.current_thread().name)
                yield n

        return generate()

    registry.register(FunctionSpec("numbers", "Count.", {}, numbers))
    assert (await registry.execute("numbers", {})).output == "[0,1,2]"
    assert set(threads) == {"antwort-worker"}


def test_a_plain_generator_function_is_refused(registry: FunctionRegistry) -> None:
    def count() -> Any:
        """Count."""
        yield 1

    with pytest.raises(DefinitionError, match="plain generator; make it `async def`"):
        registry.register(count)


async def test_a_decorated_coroutine_holds_its_slot_until_it_is_done(registry: FunctionRegistry) -> None:
    now = peak = 0

    async def work() -> None:
        nonlocal now, peak
        now += 1
        peak = max(peak, now)
        await asyncio.sleep(0)
        now -= 1

    def decorated(params: dict[str, Any]) -> Awaitable[None]:
        return work()

    registry.register(FunctionSpec("work", "Work.", {}, decorated, limits=Limits(concurrency=1)))
    await asyncio.gather(*(registry.execute("work", {}) for _ in range(5)))
    assert peak == 1


async def test_a_handler_cannot_eat_its_callers_cancellation(registry: FunctionRegistry) -> None:
    started = asyncio.Event()

    @registry.register
    async def greedy() -> None:
        """Turn a cancellation into something else."""
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ValueError("not now") from None

    call = asyncio.create_task(registry.execute("greedy", {}))
    await started.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


async def test_a_handler_that_fails_because_its_time_is_up_has_timed_out(registry: FunctionRegistry) -> None:
    @registry.register(timeout=0.01)
    async def translate() -> None:
        """Turn the time-out into something else."""
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ValueError("connection lost") from None

    assert (await registry.execute("translate", {})).status == "timeout"


async def test_a_result_made_by_hand_cannot_lie_about_its_status(registry: FunctionRegistry) -> None:
    assert ToolResult("oh no", is_error=True).status == "error"
    assert ToolResult("fine", status="http_200").status == "success"
    assert ToolResult({"a": 1}).output == '{"a":1}'  # type: ignore[arg-type]


async def test_messages_of_any_size_are_capped(registry: FunctionRegistry) -> None:
    @registry.register
    async def verbose() -> None:
        """Complain at length."""
        raise FunctionError("x" * 10_000_000)

    assert len((await registry.execute("verbose", {})).output) < 101_000
    assert len((await registry.execute("verbose", {"k" * 1_000_000: 1})).output) < 1_000
    assert (await registry.execute("verbose", {"n": 10**6000})).status == "invalid_arguments"


async def test_an_endless_generator_is_stopped() -> None:
    registry = FunctionRegistry(max_output=1000)
    closed = False

    @registry.register
    async def endless() -> AsyncIterator[str]:
        """Never stop."""
        nonlocal closed
        try:
            while True:
                yield "x" * 100
        finally:
            closed = True

    result = await registry.execute("endless", {})
    assert result.status == "success"
    assert closed
    assert len(result.value) <= 8_100


async def test_text_that_cannot_be_encoded_is_replaced(registry: FunctionRegistry) -> None:
    @registry.register
    async def broken() -> str:
        """Return half a character."""
        return "half: \ud83d"

    (await registry.execute("broken", {})).output.encode()


async def test_the_rest_of_a_time_is_told_as_people_write_it(registry: FunctionRegistry) -> None:
    @registry.register(timeout=0.049998976)
    async def slow() -> None:
        """Wait for ever."""
        await asyncio.Event().wait()

    assert (await registry.execute("slow", {})).output == "slow did not finish within 0.05 s."


async def test_an_unknown_name_does_not_reveal_what_the_agent_may_not_call(registry: FunctionRegistry) -> None:
    @registry.register(scope="user")
    async def ask_somebody() -> None:
        """Ask."""

    sub_agent = Context("t", agent=Agent("worker", depth=1))
    assert "ask_somebody" not in (await registry.execute("ask_someone", {}, sub_agent)).output
