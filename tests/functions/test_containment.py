"""A call is a task of its own: nothing that a handler does reaches its caller, the loop, or other calls."""

import asyncio
import itertools
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
import uvloop
from typing_extensions import override

from antwort import FunctionError, FunctionRegistry, Progress
from antwort.provider import Provider, function

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


async def failing() -> None:
    raise ValueError("a child has failed")


async def stubborn() -> None:
    """Ignore every cancellation."""
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            continue


def hanging(registry: FunctionRegistry, name: str) -> float | None:
    return registry.metrics.registry.get_sample_value(
        "antwort_builtin_tool_hanging_calls", {"provider": "custom", "tool_name": name}
    )


async def test_a_task_group_with_a_failing_child_is_the_handlers_affair() -> None:
    registry = FunctionRegistry(timeout=20)

    @registry.register
    async def handled() -> str:
        """Handle the failure."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(failing())
        except* ValueError:
            pass
        return "handled"

    @registry.register
    async def unhandled() -> None:
        """Do not."""
        async with asyncio.TaskGroup() as group:
            group.create_task(failing())

    task = asyncio.current_task()
    assert task is not None
    assert (await registry.execute("handled", {})).output == "handled"
    result = await registry.execute("unhandled", {})
    assert (result.status, result.output) == ("error", "unhandled failed: ValueError: a child has failed")
    assert task.cancelling() == 0


async def test_a_handler_that_cancels_itself_cancels_nobody_else() -> None:
    registry = FunctionRegistry(timeout=20)

    @registry.register
    async def gone() -> None:
        """Cancel the current task."""
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.Event().wait()

    result = await registry.execute("gone", {})
    assert (result.status, result.output) == ("error", "gone was cancelled before it finished.")
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_call_runs_in_a_task_that_names_function_and_provider() -> None:
    registry = FunctionRegistry()

    @registry.register
    async def whoami() -> str:
        """Tell the name of the task."""
        task = asyncio.current_task()
        return "" if task is None else task.get_name()

    assert (await registry.execute("whoami", {})).output == "call whoami (custom)"


@pytest.mark.parametrize("loop", LOOPS)
def test_an_exit_in_a_task_that_a_function_has_started_ends_nothing_but_that_task(
    loop: str, caplog: pytest.LogCaptureFixture
) -> None:
    registry = FunctionRegistry(timeout=20)

    async def leave() -> None:
        sys.exit(3)

    async def interrupted() -> None:
        raise KeyboardInterrupt

    @registry.register
    async def in_a_group(interrupt: bool) -> None:
        """Wait for it."""
        async with asyncio.TaskGroup() as group:
            group.create_task(interrupted() if interrupt else leave())

    @registry.register
    async def by_the_way() -> str:
        """Do not wait for it, and cancel another before it can begin."""
        asyncio.create_task(leave(), name="one").add_done_callback(lambda task: task.exception())
        asyncio.create_task(leave(), name="two").cancel()
        await asyncio.sleep(0)
        return "done"

    async def main() -> None:
        async with registry:
            for interrupt, kind in ((False, "SystemExit"), (True, "KeyboardInterrupt")):
                result = await registry.execute("in_a_group", {"interrupt": interrupt})
                assert result.status == "error"
                assert f"{kind} in a task started by call in_a_group (custom)" in result.output
            assert (await registry.execute("by_the_way", {})).output == "done"
            for _ in range(3):
                await asyncio.sleep(0)
        assert asyncio.get_running_loop().get_task_factory() is None

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(main())


async def test_a_task_factory_that_was_there_before_goes_on_making_the_tasks() -> None:
    loop = asyncio.get_running_loop()
    made: list[str] = []

    def factory(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> asyncio.Task[Any]:
        made.append(type(coro).__name__)
        return asyncio.Task(coro, loop=loop, **options)

    loop.set_task_factory(factory)
    try:
        async with FunctionRegistry() as one, FunctionRegistry() as other:
            one.register(failing, description="Fail.")
            await one.execute("failing", {})
            assert "coroutine" in made
            await other.close()
            await one.close()
        assert loop.get_task_factory() is factory
    finally:
        loop.set_task_factory(None)


async def test_a_handler_that_ignores_its_cancellation_is_left_behind_and_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    registry = FunctionRegistry(timeout=20, grace=0.01)
    registry.register(stubborn, timeout=0.01, concurrency=1)
    assert (await registry.execute("stubborn", {})).status == "timeout"
    assert "function stubborn of provider custom hangs" in caplog.text
    assert hanging(registry, "stubborn") == 1
    # Its slot is taken as long as it goes on.
    assert (await registry.execute("stubborn", {})).output == "stubborn did not finish within 0.01 s."
    assert hanging(registry, "stubborn") == 1
    await registry.close()
    assert "call stubborn (custom) does not end; it is left behind" in caplog.text


def test_a_handler_that_ignores_its_cancellation_does_not_keep_the_loop_from_closing() -> None:
    async def main() -> None:
        async with FunctionRegistry(grace=0.01) as registry:
            registry.register(stubborn, timeout=0.01)
            assert (await registry.execute("stubborn", {})).status == "timeout"

    asyncio.run(main())


async def test_a_caller_that_leaves_does_not_wait_for_a_handler_that_goes_on() -> None:
    registry = FunctionRegistry(timeout=20, grace=0.01)
    started = asyncio.Event()

    @registry.register
    async def busy() -> None:
        """Tell that it has begun, and go on for ever."""
        started.set()
        await stubborn()

    call = asyncio.create_task(registry.execute("busy", {}))
    await started.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    hang = hanging(registry, "busy")
    await registry.close()
    assert hang == 0, "its time is not over yet: its caller has left early"


async def test_a_handler_that_holds_the_loop_beyond_its_time_has_timed_out(caplog: pytest.LogCaptureFixture) -> None:
    registry = FunctionRegistry(timeout=0.01)

    @registry.register
    async def busy() -> str:
        """Compute without letting anybody else run."""
        end = time.monotonic() + 0.05
        while time.monotonic() < end:
            pass
        return "done"

    assert (await registry.execute("busy", {})).status == "timeout"
    assert "call busy (custom) took" in caplog.text


async def test_functions_that_hang_take_no_threads_from_others_and_are_refused_once_too_many_do(
    caplog: pytest.LogCaptureFixture,
) -> None:
    registry = FunctionRegistry(threads=4, timeout=0.05, max_hanging=6)
    release = threading.Event()

    class Other(Provider):
        @function(timeout=20)
        def work(self) -> str:
            """Need a thread of another provider."""
            return "fine"

    registry.register(Other())

    @registry.register
    def hang() -> None:
        """Hang."""
        release.wait()

    @registry.register(timeout=20)
    def neighbour() -> str:
        """Need a thread of the same provider."""
        return "fine"

    try:
        for _ in range(2):
            results = await asyncio.gather(*(registry.execute("hang", {}) for _ in range(4)))
            assert {result.status for result in results} == {"timeout"}
        assert hanging(registry, "hang") == 8
        refused = await registry.execute("hang", {})
        assert refused.status == "unavailable"
        assert refused.output == "hang is not available at the moment: too many calls of it hang. Go on without it."
        assert (await registry.execute("neighbour", {})).output == "fine"
        assert (await registry.execute("work", {})).output == "fine"
        assert "function hang of provider custom hangs" in caplog.text
        assert "8 of its calls hang" in caplog.text
    finally:
        release.set()
    async with asyncio.timeout(60):
        while (again := await registry.execute("hang", {})).status in {"unavailable", "timeout"}:
            await asyncio.to_thread(release.wait)
    assert again.status == "success"


async def test_threads_of_one_provider_are_not_those_of_another() -> None:
    registry = FunctionRegistry(threads=1, timeout=20)
    release, started = threading.Event(), threading.Event()

    class Other(Provider):
        @function
        def work(self) -> str:
            """Need a thread of another provider."""
            return "fine"

    registry.register(Other())

    @registry.register
    def busy() -> None:
        """Take the only thread of its provider, within its time."""
        started.set()
        release.wait()

    call = asyncio.create_task(registry.execute("busy", {}))
    try:
        await asyncio.to_thread(started.wait)
        assert (await registry.execute("work", {})).output == "fine"
    finally:
        release.set()
        await call


# --- what a handler returns ----------------------------------------------------------------------------------------


class Nested:
    """Something with a text that takes a thread to write."""

    def __init__(self, threads: list[str]) -> None:
        self._threads = threads

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        self._threads.append(threading.current_thread().name)
        if len(self._threads) > 3:
            raise StopIteration
        return "x"


async def test_an_endless_iterator_is_read_off_the_loop_and_not_for_ever() -> None:
    registry = FunctionRegistry(timeout=20, max_output=1000)

    @registry.register
    async def count(inside: bool) -> Any:
        """Count for ever."""
        return {"numbers": itertools.count(), "last": "here"} if inside else itertools.count()

    outside = (await registry.execute("count", {"inside": False})).output
    assert outside.startswith("[0,1,2,3")
    assert outside.endswith(',"[… the rest was not read …]"]')
    assert len(outside) < 1100
    inside = (await registry.execute("count", {"inside": True})).output
    assert inside.startswith('{"numbers":[0,1,2')
    assert inside.endswith('"[… the rest was not read …]"],"last":"here"}')


async def test_what_may_take_long_to_write_is_written_on_a_thread() -> None:
    registry = FunctionRegistry(timeout=20)
    threads: list[str] = []

    @registry.register
    async def lazy() -> Any:
        """Return something that is made while it is written."""
        return Nested(threads)

    assert (await registry.execute("lazy", {})).output == '["x","x","x"]'
    assert set(threads) == {"antwort-worker"}


async def test_the_time_limit_holds_while_a_result_is_written() -> None:
    registry = FunctionRegistry(timeout=0.05)
    stopped, go_on = threading.Event(), threading.Event()

    def endless() -> Iterator[str]:
        try:
            while True:
                go_on.wait(0.001)
                yield ""
        finally:
            stopped.set()

    @registry.register
    async def slow() -> Any:
        """Return something that never comes to its end."""
        return endless()

    assert (await registry.execute("slow", {})).status == "timeout"
    await asyncio.to_thread(stopped.wait)


async def test_a_large_result_keeps_head_and_tail_and_tells_its_length() -> None:
    registry = FunctionRegistry(timeout=60, max_output=1000)
    values = [{"n": n, "text": "é" * 10, "more": [n, None, 1.5]} for n in range(20_000)]

    @registry.register
    async def much() -> Any:
        """Return much."""
        return values

    result = await registry.execute("much", {})
    assert result.output.startswith('[{"n":0,"text":"éééééééééé","more":[0,null,1.5]},{"n":1,')
    assert result.output.endswith('"more":[19999,null,1.5]}]')
    assert "characters left out …]" in result.output
    assert result.value is values


async def test_a_generator_that_never_waits_lets_others_run_and_is_stopped_in_time() -> None:
    registry = FunctionRegistry(timeout=0.1)
    turns = 0

    @registry.register
    async def chatty() -> AsyncIterator[Progress]:
        """Tell progress for ever."""
        while True:
            yield Progress("on it")

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    neighbour = asyncio.create_task(other())
    result = await registry.execute("chatty", {})
    neighbour.cancel()
    assert result.status == "timeout"
    assert turns > 1


async def test_an_error_whose_text_cannot_be_had_is_still_an_error_result() -> None:
    class SilentError(FunctionError):
        @override
        def __str__(self) -> str:
            raise ValueError

    registry = FunctionRegistry()

    @registry.register
    async def f() -> None:
        """Fail."""
        raise SilentError

    with_text = await registry.execute("f", {})
    assert (with_text.status, with_text.output) == ("error", "f failed: SilentError")
