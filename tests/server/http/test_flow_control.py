"""Those who wait until something happens."""

import asyncio

import pytest

from antwort.server.http.exchange import Waiters


async def test_all_who_wait_go_on_and_who_comes_later_waits_for_the_next_time() -> None:
    waiters = Waiters()
    first, second = waiters.join(), waiters.join()
    assert not first.done()
    waiters.wake()
    await asyncio.gather(first, second)
    later = waiters.join()
    assert not later.done()
    waiters.wake()
    await later


async def test_one_who_is_cancelled_neither_disturbs_the_others_nor_is_kept() -> None:
    waiters = Waiters()

    async def wait() -> None:
        await waiters.join()

    leaving, staying = asyncio.ensure_future(wait()), asyncio.ensure_future(wait())
    await asyncio.sleep(0)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    another = waiters.join()
    assert len(waiters._futures) == 2
    waiters.wake()
    await asyncio.gather(staying, another)


async def test_nobody_need_wait() -> None:
    Waiters().wake()
