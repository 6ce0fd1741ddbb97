"""Work that is done to its end, whoever is cancelled meanwhile."""

import asyncio

import pytest

from antwort.concurrency.undisturbed import failure_of, in_any_case, undisturbed


async def test_what_comes_of_the_work_is_returned() -> None:
    assert await undisturbed(asyncio.sleep(0, "done")) == "done"


async def test_what_the_work_raises_is_raised() -> None:
    async def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await undisturbed(fail())


@pytest.mark.parametrize("error", [None, ValueError()])
async def test_whoever_is_cancelled_waits_for_the_end_however_often(error: Exception | None) -> None:
    go_on = asyncio.Event()
    ends: list[str] = []

    async def work() -> None:
        await go_on.wait()
        ends.append("over")
        if error is not None:
            raise error

    waiting = asyncio.create_task(undisturbed(work()))
    for _ in range(3):
        await asyncio.sleep(0)
        waiting.cancel()
    await asyncio.sleep(0)
    assert not waiting.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError) as raised:
        await waiting
    assert (ends, failure_of(raised.value)) == (["over"], error)


async def test_what_is_left_to_do_replaces_no_other_failure(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise ValueError("no room")

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await in_any_case(fail(), "it stays behind")
            raise

    working = asyncio.create_task(work())
    await asyncio.sleep(0)
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    assert [record.getMessage() for record in caplog.records] == ["it stays behind: no room"]


async def test_whoever_is_cancelled_while_something_is_left_to_do_is_cancelled_then() -> None:
    go_on = asyncio.Event()

    async def work() -> None:
        try:
            raise ValueError("no")
        except ValueError:
            await in_any_case(go_on.wait(), "it stays behind")
            raise

    working = asyncio.create_task(work())
    await asyncio.sleep(0)
    working.cancel()
    await asyncio.sleep(0)
    assert not working.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await working


@pytest.mark.parametrize("also_cancelled", [False, True])
async def test_work_that_is_cancelled_itself_has_failed(also_cancelled: bool) -> None:
    work = asyncio.get_running_loop().create_future()
    waiting = asyncio.create_task(undisturbed(work))
    await asyncio.sleep(0)
    if also_cancelled:
        waiting.cancel()
        await asyncio.sleep(0)
    work.cancel()
    with pytest.raises(asyncio.CancelledError) as raised:
        await waiting
    assert isinstance(failure_of(raised.value), asyncio.CancelledError)
