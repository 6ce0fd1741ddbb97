"""Work that is done once for all who wait for it."""

import asyncio
import gc

import pytest

from antwort.concurrency.single_flight import SingleFlight


class Work:
    """Work that a test lets end."""

    def __init__(self) -> None:
        self.begun = 0
        self.cancelled = 0
        self.ending: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def __call__(self) -> str:
        self.begun += 1
        try:
            return await asyncio.shield(self.ending)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise


async def asked(flight: SingleFlight[str], count: int) -> list[asyncio.Task[str]]:
    """Let some ask, and wait until all of them do."""
    tasks = [asyncio.create_task(flight.outcome()) for _ in range(count)]
    await asyncio.sleep(0)
    return tasks


async def test_work_is_done_once_for_all_who_ask_meanwhile() -> None:
    work = Work()
    flight = SingleFlight(work)
    tasks = await asked(flight, 5)
    assert flight.is_under_way
    work.ending.set_result("done")
    assert await asyncio.gather(*tasks) == ["done"] * 5
    assert work.begun == 1
    assert not flight.is_under_way


async def test_its_failure_is_that_of_each() -> None:
    work = Work()
    tasks = await asked(SingleFlight(work), 3)
    work.ending.set_exception(ValueError("broken"))
    assert [str(one) for one in await asyncio.gather(*tasks, return_exceptions=True)] == ["broken"] * 3


async def test_whoever_leaves_does_not_end_it_for_the_others() -> None:
    work = Work()
    flight = SingleFlight(work)
    first, second = await asked(flight, 2)
    first.cancel()
    await asyncio.wait([first])
    assert first.cancelled()
    work.ending.set_result("done")
    assert await second == "done"
    assert (work.begun, work.cancelled) == (1, 0)


async def test_who_asks_after_its_end_lets_it_be_done_again() -> None:
    work = Work()
    work.ending.set_result("done")
    flight = SingleFlight(work)
    assert [await flight.outcome(), await flight.outcome()] == ["done", "done"]
    assert work.begun == 2


async def test_work_can_be_begun_without_waiting_for_it() -> None:
    work = Work()
    flight = SingleFlight(work)
    begun = flight.begin()
    assert flight.begin() is begun
    work.ending.set_result("done")
    assert await flight.outcome() == "done"
    assert work.begun == 1


async def test_closing_gives_up_work_that_is_under_way() -> None:
    work = Work()
    flight = SingleFlight(work)
    (task,) = await asked(flight, 1)
    await asyncio.sleep(0)
    await flight.close()
    await flight.close()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert work.cancelled == 1
    assert not flight.is_under_way


async def test_a_failure_that_nobody_waits_for_any_more_is_not_reported_as_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    work = Work()
    flight = SingleFlight(work)
    begun = flight.begin()
    work.ending.set_exception(ValueError("broken"))
    await asyncio.wait([begun])
    del begun
    gc.collect()
    assert not caplog.records
