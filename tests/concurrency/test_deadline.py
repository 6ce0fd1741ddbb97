"""Deadlines, and whose cancellation a cancellation is."""

import asyncio

import pytest

from antwort.concurrency.deadline import Deadline


async def test_what_is_done_in_time_is_left_alone() -> None:
    with Deadline(60) as deadline:
        await asyncio.sleep(0)
    assert not deadline.expired
    with Deadline(None) as deadline:
        await asyncio.sleep(0)
    assert not deadline.expired


async def test_what_takes_too_long_is_a_timeout_and_the_task_goes_on() -> None:
    deadline = Deadline(0)
    with pytest.raises(TimeoutError), deadline:
        await asyncio.Event().wait()
    assert deadline.expired
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await asyncio.sleep(0)


async def test_an_error_inside_stays_what_it_is() -> None:
    with pytest.raises(KeyError), Deadline(60):
        raise KeyError("inside")
    deadline = Deadline(60)
    with pytest.raises(TimeoutError), deadline:
        raise TimeoutError("inside")
    assert not deadline.expired


async def test_of_two_deadlines_the_one_that_passed_is_told() -> None:
    outer, inner = Deadline(60), Deadline(0)
    with outer:
        with pytest.raises(TimeoutError), inner:
            await asyncio.Event().wait()
        await asyncio.sleep(0)
    assert (outer.expired, inner.expired) == (False, True)
    outer, inner = Deadline(0), Deadline(60)
    with pytest.raises(TimeoutError), outer, inner:
        await asyncio.Event().wait()
    assert (outer.expired, inner.expired) == (True, False)


async def test_somebody_elses_cancellation_stays_one() -> None:
    async def work() -> None:
        with Deadline(60):
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_cancellation_in_the_moment_of_the_deadline_wins() -> None:
    async def work() -> None:
        with Deadline(0):
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    asyncio.get_running_loop().call_later(0, task.cancel)
    with pytest.raises(asyncio.CancelledError):
        await task


def test_without_a_task_there_is_nothing_to_cancel() -> None:
    async def nothing() -> None:
        """Do nothing."""

    async def outside() -> bool:
        loop = asyncio.get_running_loop()
        failed = loop.create_future()

        def begin() -> None:
            try:
                with Deadline(1):
                    pass
            except RuntimeError:
                failed.set_result(True)

        loop.call_soon(begin)
        await nothing()
        return bool(await failed)

    assert asyncio.run(outside())
