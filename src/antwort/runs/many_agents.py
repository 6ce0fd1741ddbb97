"""Many agents at a time: a few of them after the other, and how far they are."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from antwort.context import Context, Progress

T = TypeVar("T")
_REPORTS = 20
"""How often the progress of many agents is told."""


def reporter(ctx: Context, number: int) -> Callable[[], None]:
    """Return what is called with each agent that is done; it tells so a few times only."""
    done = 0
    step = max(1, number // _REPORTS)

    def report() -> None:
        nonlocal done
        done += 1
        if number > 1 and (done % step == 0 or done == number):
            ctx.emit(Progress(f"{done} of {number} agents are done", done / number))

    return report


async def in_turn(one: Callable[[int], Awaitable[T]], number: int, *, most: int) -> list[T]:
    """Do something with each index, at most so many at a time, and return what came of it in order."""
    results: dict[int, T] = {}
    indexes = iter(range(number))

    async def work() -> None:
        for index in indexes:
            results[index] = await one(index)

    workers = [asyncio.ensure_future(work()) for _ in range(min(number, most))]
    try:
        await asyncio.gather(*workers)
    except BaseException:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        raise
    return [results[index] for index in range(number)]
