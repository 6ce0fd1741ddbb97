"""Functions that only compute are called where the call is executed, and still cannot harm anybody."""

import asyncio
import contextvars
import itertools
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Iterator
from pathlib import Path
from typing import Any

import pytest

from antwort import Context, FunctionError, FunctionRegistry, FunctionSpec, ToolResult
from antwort.errors import DefinitionError
from antwort.functions import Limits
from antwort.observability import AuditLog
from antwort.providers.basics import Basics

WHO: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")


@pytest.fixture
def registry() -> FunctionRegistry:
    return FunctionRegistry(timeout=20, concurrency=1)


async def test_it_runs_on_the_event_loop_in_the_task_of_its_caller(registry: FunctionRegistry) -> None:
    seen: list[object] = []

    @registry.register(inline=True)
    def where(ctx: Context) -> str:
        """Tell where it runs."""
        seen.extend((threading.current_thread(), asyncio.current_task()))
        return ctx.tenant

    assert await registry.execute("where", {}, Context("acme")) == ToolResult("acme", value="acme")
    assert seen == [threading.current_thread(), asyncio.current_task()]


async def test_it_sees_the_context_variables_of_its_caller_and_cannot_change_them(registry: FunctionRegistry) -> None:
    @registry.register(inline=True)
    def change() -> str:
        """Change who it is."""
        before = WHO.get()
        WHO.set("somebody else")
        return before

    WHO.set("me")
    assert (await registry.execute("change", {})).output == "me"
    assert WHO.get() == "me"


@pytest.mark.parametrize(
    "error",
    [ValueError("x"), SystemExit(3), KeyboardInterrupt(), GeneratorExit(), StopIteration(), asyncio.CancelledError()],
    ids=lambda error: type(error).__name__,
)
async def test_whatever_it_raises_is_its_failure(registry: FunctionRegistry, error: BaseException) -> None:
    @registry.register(inline=True)
    def fail() -> None:
        """Fail."""
        raise error

    result = await registry.execute("fail", {})
    assert (result.is_error, result.status) == (True, "error")
    assert result.output.startswith("fail ")


async def test_whatever_its_result_raises_is_its_failure(registry: FunctionRegistry) -> None:
    def cancel(_: object) -> type:
        raise asyncio.CancelledError

    @registry.register(inline=True)
    def trap() -> Any:
        """Set a trap."""
        return type("Trap", (), {"__class__": property(cancel)})()  # which `isinstance` asks for

    assert (await registry.execute("trap", {})).output == "trap was cancelled before it finished."


async def test_what_it_tells_the_model_arrives_as_it_is(registry: FunctionRegistry) -> None:
    @registry.register(inline=True)
    def refuse(text: str) -> ToolResult:
        """Refuse, or give a result of its own."""
        if not text:
            raise FunctionError("Give me a text.")
        return ToolResult.error(text)

    assert await registry.execute("refuse", {"text": ""}) == ToolResult.error("Give me a text.")
    assert await registry.execute("refuse", {"text": "No."}) == ToolResult.error("No.")
    assert (await registry.execute("refuse", {})).status == "invalid_arguments"


async def test_it_can_ask_somebody(registry: FunctionRegistry) -> None:
    @registry.register(inline=True, effect="suspend")
    def ask(ctx: Context) -> None:
        """Ask."""
        ctx.suspend({"question": "Really?"})

    result = await registry.execute("ask", {})
    assert result.status == "suspended"
    assert result.suspension is not None
    assert result.suspension.body == {"question": "Really?"}


async def test_one_that_holds_the_loop_beyond_its_time_has_timed_out(caplog: pytest.LogCaptureFixture) -> None:
    registry = FunctionRegistry(timeout=0.01)

    @registry.register(inline=True)
    def busy(seconds: float) -> str:
        """Compute for a while."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            pass
        return "done"

    result = await registry.execute("busy", {"seconds": 0.05})
    assert (result.status, result.output) == ("timeout", "busy did not finish within 0.01 s.")
    assert "call busy (custom) took" in caplog.text
    assert "and held up everything else" in caplog.text
    hurried = Context("acme", deadline=time.monotonic())
    assert (await registry.execute("busy", {"seconds": 0.0}, hurried)).status == "timeout"


async def test_long_and_lazy_results_are_written_as_those_of_all_functions_are() -> None:
    registry = FunctionRegistry(timeout=20, max_output=100)
    threads: set[str] = set()

    def numbers() -> Iterator[int]:
        for number in itertools.count():
            threads.add(threading.current_thread().name)
            yield number

    @registry.register(inline=True)
    def give(what: str) -> Any:
        """Give much."""
        return {"text": "a" * 500 + "z" * 500, "numbers": numbers(), "made": ToolResult("é" * 1000)}[what]

    long = (await registry.execute("give", {"what": "text"})).output
    assert long == f"{'a' * 66}\n[… 900 of 1,000 characters left out …]\n{'z' * 34}"
    assert (await registry.execute("give", {"what": "numbers"})).output.endswith('the rest was not read …]"]')
    assert threads == {"antwort-worker"}
    assert "900 of 1,000" in (await registry.execute("give", {"what": "made"})).output


async def test_the_time_limit_holds_while_its_result_is_written() -> None:
    registry = FunctionRegistry(timeout=0.05)
    go_on = threading.Event()

    def endless() -> Iterator[str]:
        while True:
            go_on.wait(0.001)
            yield ""

    @registry.register(inline=True)
    def slow() -> Any:
        """Return something that never comes to its end."""
        return endless()

    assert (await registry.execute("slow", {})).status == "timeout"


async def test_something_to_be_awaited_is_awaited(registry: FunctionRegistry) -> None:
    async def later() -> str:
        await asyncio.sleep(0)
        return "later"

    @registry.register(inline=True)
    def hand_on() -> Awaitable[str]:
        """Leave it to another."""
        return later()

    assert (await registry.execute("hand_on", {})).output == "later"


async def test_what_it_starts_cannot_end_the_process_either() -> None:
    tasks: list[asyncio.Task[None]] = []

    async def leave() -> None:
        sys.exit(3)

    async with FunctionRegistry() as registry:

        @registry.register(inline=True)
        def start() -> None:
            """Start a task."""
            tasks.append(asyncio.get_running_loop().create_task(leave()))

        await registry.execute("start", {})
        (error,) = await asyncio.gather(*tasks, return_exceptions=True)
    assert "SystemExit in a task started by call start (custom)" in str(error)


async def test_it_is_admitted_counted_and_audited_as_all_functions_are(tmp_path: Path) -> None:
    registry = FunctionRegistry(audit=AuditLog(tmp_path / "audit.jsonl"))

    @registry.register(inline=True)
    def one() -> int:
        """Return one."""
        return 1

    assert (await registry.execute("one", {})).output == "1"
    registry.disable("one")
    assert (await registry.execute("one", {})).status == "unavailable"
    page = registry.metrics.render(None)[0].decode()
    for status in ("success", "unavailable"):
        line = f'antwort_builtin_tool_executions_total{{provider="custom",status="{status}",tool_name="one"}} 1.0'
        assert line in page
    assert (tmp_path / "audit.jsonl").read_text().count('"function":"one"') == 2


async def test_the_functions_of_basics_are_such() -> None:
    registry = FunctionRegistry()
    registry.register(Basics())
    assert {spec.name for spec in registry.list() if spec.inline} == {"calculate", "current_time"}
    assert (await registry.execute("calculate", {"expression": "6 * 7"})).output == "42"
    assert (await registry.execute("calculate", {"expression": "6 *"})).status == "error"
    assert (await registry.execute("current_time", {})).value["timezone"] == "UTC"


async def asynchronous() -> str:
    """Wait."""
    return ""


async def stream() -> AsyncIterator[str]:
    """Stream."""
    yield ""


def generator() -> Iterator[str]:
    """Yield."""
    yield ""


@pytest.mark.parametrize("handler", [asynchronous, stream, generator, None])
def test_what_is_no_plain_function_is_refused(handler: Any) -> None:
    with pytest.raises(DefinitionError, match=r"'f' cannot be inline: only a plain `def` .*; leave out `inline`"):
        FunctionSpec("f", "Do.", {}, handler, inline=True)


@pytest.mark.parametrize("limit", ["timeout", "concurrency"])
def test_limits_that_nobody_could_hold_are_refused(registry: FunctionRegistry, limit: str) -> None:
    def f() -> str:
        """Do."""
        return ""

    with pytest.raises(DefinitionError, match=f"nobody can stop an inline function.*; leave out `{limit}`, or"):
        FunctionSpec("f", "Do.", {}, f, limits=Limits(**{limit: 1}), inline=True)
    with pytest.raises(DefinitionError, match=f"leave out `{limit}`"):
        registry.register(f, inline=True, **{limit: 1})  # type: ignore[call-overload]
