"""Closing one thing after the other, whatever each of them does."""

import asyncio
import contextlib

import pytest

from antwort.concurrency.contained_tasks import end_tasks, left_behind
from antwort.concurrency.undisturbed import Closing

FOR_EVER = 3600.0


async def hang() -> None:
    await asyncio.Event().wait()


async def hang_on(released: asyncio.Event) -> None:
    """Swallow every cancellation."""
    while not released.is_set():
        with contextlib.suppress(asyncio.CancelledError):
            await released.wait()


async def fail() -> None:
    raise ValueError("no")


async def test_one_that_hangs_or_fails_keeps_none_of_the_others_from_being_closed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    closed: list[str] = []
    released = asyncio.Event()

    async def close(name: str) -> None:
        closed.append(name)

    closing = Closing(0.01)
    await closing.close("a", close("a"))
    await closing.close("b", hang())
    await closing.close("c", hang_on(released))
    await closing.close("d", fail())
    await closing.close("e", close("e"))
    closing.end(failed=True)  # what has failed before is what is to be raised
    with pytest.raises(ValueError, match="no"):
        closing.end()
    assert closed == ["a", "e"]
    assert [record.getMessage() for record in caplog.records] == [
        "b could not be closed in time",
        "c could not be closed in time, and is left behind",
        "d could not be closed",
    ]
    released.set()


async def test_whoever_is_cancelled_closes_the_rest_and_is_cancelled_then() -> None:
    closed: list[str] = []
    waiting = asyncio.Event()

    async def wait() -> None:
        waiting.set()
        try:
            await hang()
        finally:
            closed.append("cancelled")

    async def close() -> None:
        closed.append("closed")

    async def close_all() -> None:
        closing = Closing(FOR_EVER)
        await closing.close("a", wait(), own_limit=True)
        await closing.close("b", close())
        await closing.close("c", hang(), own_limit=True)
        closing.end()

    task = asyncio.create_task(close_all())
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert closed == ["cancelled", "closed"]


async def test_a_task_is_cancelled_once_more_if_another_failure_came_of_the_first_time() -> None:
    async def run() -> None:
        try:
            await hang()
        except asyncio.CancelledError:
            await hang()  # as one who takes it for an outage, and waits for its end

    task = asyncio.create_task(run())
    await asyncio.sleep(0)
    assert await end_tasks([task], 0.1) == []
    assert task.cancelled()


async def test_tasks_that_were_left_behind_are_known_until_they_end() -> None:
    released = asyncio.Event()
    task = asyncio.create_task(hang_on(released), name="stubborn")
    await asyncio.sleep(0)
    loop = asyncio.get_running_loop()
    assert await end_tasks([task], 0.01) == ["stubborn"]
    assert left_behind(loop) == ["stubborn"]
    assert task not in asyncio.all_tasks()
    released.set()
    await task
    assert left_behind(loop) == []
