"""Slots: how many are in use, who waits, and for how long."""

import asyncio

import pytest

from antwort.concurrency.slots import Slots


async def test_slots_are_handed_out_in_the_order_of_asking() -> None:
    slots = Slots(1)
    await slots.acquire()
    got: list[int] = []

    async def take(number: int) -> None:
        await slots.acquire(60)
        got.append(number)
        slots.release()

    tasks = [asyncio.create_task(take(number)) for number in range(3)]
    await asyncio.sleep(0)
    assert (slots.taken, slots.waiting) == (1, 3)
    slots.release()
    await asyncio.gather(*tasks)
    assert got == [0, 1, 2]
    assert (slots.taken, slots.waiting) == (0, 0)


async def test_who_waits_for_too_long_is_told_and_takes_nothing() -> None:
    slots = Slots(1)
    await slots.acquire()
    with pytest.raises(TimeoutError):
        await slots.acquire(0)
    assert (slots.taken, slots.waiting) == (1, 0)
    slots.release()
    await slots.acquire(0)
    assert (slots.taken, slots.waiting) == (1, 0)
