"""A task of its own for a call: how it is waited for, and for how long."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from antwort.concurrency.contained_tasks import ContainedTask, SpawnedTasks, TimeLimit

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


async def answer(value: str) -> str:
    return value


async def forever() -> None:
    await asyncio.Event().wait()


def wrapping(loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, Any], **options: Any) -> asyncio.Task[Any]:
    """Make a task as tools that observe tasks do: around the coroutine, in one of their own."""

    async def observed() -> Any:
        return await coro

    return asyncio.Task(observed(), loop=loop, **options)


@pytest.mark.parametrize("factory", [None, wrapping])
@pytest.mark.parametrize("contained", [False, True])
@pytest.mark.parametrize("loop", LOOPS)
def test_a_task_ends_with_its_value_whoever_makes_the_tasks(loop: str, contained: bool, factory: Any) -> None:
    async def main() -> None:
        running = asyncio.get_running_loop()
        running.set_task_factory(factory)
        if contained:
            SpawnedTasks.contain(running)
        for limit in (None, 60.0, TimeLimit(60)):
            task = ContainedTask(answer, "a task", "yes")
            assert await task.wait(limit)
            assert (task.result(), task.task.get_name()) == ("yes", "a task")
            assert await task.wait(limit)

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(main())


def handing_on(loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, Any], **options: Any) -> asyncio.Task[Any]:
    return asyncio.Task(coro, loop=loop, **options)


@pytest.mark.parametrize("factory", [None, handing_on])
async def test_whoever_waits_learns_that_a_task_was_cancelled_before_it_began(factory: Any) -> None:
    loop = asyncio.get_running_loop()
    loop.set_task_factory(factory)
    try:
        task = ContainedTask(answer, "a task", "never")
        task.task.cancel()
        assert await task.wait(None)
    finally:
        loop.set_task_factory(None)
    with pytest.raises(asyncio.CancelledError):
        task.result()


async def test_a_task_whose_time_is_over_can_be_waited_for_again() -> None:
    gate = asyncio.Event()
    for limit in (TimeLimit(0.001), 0.001):
        gate.clear()
        task = ContainedTask(gate.wait, "a task")
        assert not await task.wait(limit)
        gate.set()
        assert await task.wait(None)
        assert task.result() is True


async def test_tasks_with_the_same_time_share_a_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    timers: list[float] = []

    def counted(when: float, *args: Any, **options: Any) -> asyncio.TimerHandle:
        timers.append(when)
        return call_at(when, *args, **options)

    call_at = loop.call_at
    monkeypatch.setattr(loop, "call_at", counted)
    limit = TimeLimit(60)
    for _ in range(100):
        assert await ContainedTask(answer, "a task", "").wait(limit)
    assert len(timers) == 1


async def test_each_task_of_a_limit_has_its_own_time() -> None:
    limit = TimeLimit(0.02)
    over: list[str] = []
    tasks: dict[str, ContainedTask[None]] = {}

    async def watch(name: str) -> None:
        tasks[name] = ContainedTask(forever, name)
        if not await tasks[name].wait(limit):
            over.append(name)

    first = asyncio.ensure_future(watch("first"))
    await asyncio.sleep(0.01)
    others = [asyncio.ensure_future(watch(name)) for name in ("second", "cancelled", "third")]
    await asyncio.sleep(0)
    tasks["cancelled"].task.cancel()
    await asyncio.gather(first, *others)
    assert over == ["first", "second", "third"]
    for task in tasks.values():
        await task.stop(60)


def test_a_limit_serves_one_loop_after_the_other() -> None:
    limit = TimeLimit(0.001)

    async def main() -> None:
        task = ContainedTask(forever, "a task")
        assert not await task.wait(limit)
        await task.stop(60)
        ContainedTask(forever, "left behind").ending(limit)

    for _ in range(3):
        asyncio.run(main())
    assert len(limit._clocks) <= 2
