"""The pace at which many things go on, on an event loop that others need, too."""

import asyncio
import time

from antwort.concurrency.large_work import Pace

PATIENCE = 60.0


async def test_tenants_take_turns_however_many_one_of_them_has() -> None:
    pace = Pace()
    went: list[str] = []

    async def go(tenant: str) -> None:
        await pace.turn(tenant)
        went.append(tenant)

    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(*(go("a") for _ in range(200)), *(go("b") for _ in range(3)))
    assert len(went) == 203
    assert max(index for index, tenant in enumerate(went) if tenant == "b") <= 16


async def test_on_a_crowded_loop_somebody_else_has_many_passes_for_each_that_goes_on() -> None:
    pace = Pace()
    passes, went = 0, 0
    loop = asyncio.get_running_loop()
    busy = True

    def crowd() -> None:
        nonlocal passes
        passes += 1
        time.sleep(0.006)  # work that does not wait for anything
        if busy:
            loop.call_soon(crowd)

    async def go() -> None:
        nonlocal went
        await pace.turn("a")
        went += 1

    began = time.monotonic()
    crowd()
    waiting = [asyncio.create_task(go()) for _ in range(50)]
    while passes < 60:  # noqa: ASYNC110 - the loop itself is what is waited for
        await asyncio.sleep(0)
    most = 8 * (1 + (time.monotonic() - began) // 0.25)  # eight at a time, each held up for a quarter of a second
    assert went <= most, "without a pace all would have gone on in the first pass"
    busy = False
    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(*waiting)
