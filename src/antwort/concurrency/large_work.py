"""Work that takes long because there is much of it: in turns on the event loop, or on a thread, so that it goes on."""

import asyncio
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from antwort.concurrency.slots import Queue, Slots

SLICE = 0.005
"""Seconds that a loop may go on before somebody else gets to run."""
_CROWDED = 0.005
"""Seconds that a pass of the event loop takes when there is enough on it."""
_TOGETHER = 8
"""How many go on in one pass."""
_LONGEST = 0.25
"""Seconds after which one goes on all the same."""


class Turns:
    """Tells a loop on the event loop when it has had its turn."""

    __slots__ = ("_ends",)

    def __init__(self) -> None:
        self._ends = time.monotonic() + SLICE

    async def give(self) -> None:
        """Let others run, if it is their turn; call it once for each thing that comes."""
        if time.monotonic() > self._ends:
            await asyncio.sleep(0)
            self._ends = time.monotonic() + SLICE


class Pace:
    """Lets a few go on at a time, in turns between tenants, and none while a pass of the event loop takes long.

    A request waits for several passes, and each is as long as all that is ready takes together. Where things wait for
    something else, as for a model, passes are short, and nobody is held up here; where they only compute, no more of
    them are under way than others bear. To limit their number instead would let a model server idle.
    """

    def __init__(self, queue: Queue | None = None) -> None:
        self._slots = Slots(_TOGETHER, queue)

    async def turn(self, tenant: str) -> None:
        """Wait for the turn to go on."""
        async with self._slots.taken_by(tenant):
            before = time.monotonic()
            end = before + _LONGEST
            while True:
                await asyncio.sleep(0)
                now = time.monotonic()
                if now - before < _CROWDED or now >= end:
                    return
                before = now


T = TypeVar("T")
MANY = 250
"""Items and parts of them from which on a list is large: each costs some ten microseconds at every step."""
MUCH = 500_000
"""Characters from which on a text is large."""
MANY_VALUES = 100_000
"""Values from which on it takes longer to free them than others should wait."""
_STEP = 10_000
_LOOKS, _PAUSE = 10, 0.005
"""How often, and after how many seconds, to look again: a thread that has written it may not have left it yet."""


class LargeWork:
    """Does one thing at a time on a thread. More threads would be no quicker, and keep the loop waiting for its turn.

    What is done must not change what others look at meanwhile. The thread begins with the first work, is kept, because
    to begin one takes the loop's time, and ends with this object.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="antwort-large-work")

    def close(self) -> None:
        """Let the thread end, after what it does."""
        self._thread.shutdown(wait=False)

    async def run(self, function: Callable[..., T], *args: Any) -> T:
        """Return what a function returns; raise what it raises."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, partial(function, *args))

    async def run_if(self, large: bool, function: Callable[..., T], *args: Any) -> T:
        """Do it on a thread if there is much of it, else at once."""
        return await self.run(function, *args) if large else function(*args)


def is_large(items: Sequence[Mapping[str, Any]]) -> bool:
    """Tell whether to go through items takes long: they, or their parts, are many, or they have much text."""
    count, size = len(items), 0
    if count >= MANY:
        return True
    for item in items:
        if "arguments" in item and isinstance(arguments := item["arguments"], str):
            size += len(arguments)
        output, content = item.get("output"), item.get("content")
        if output and content:  # no item has both: how large this one is need not be known
            return True
        value = output or content
        if isinstance(value, str):
            size += len(value)
        elif isinstance(value, list):
            count += len(value)
            if count >= MANY:
                return True
            for part in value:
                if isinstance(part, dict):
                    for text in part.values():
                        if isinstance(text, str):
                            size += len(text)
    return size >= MUCH


# --- freeing: to free millions of values at once holds everybody up ---------------------------------------------------


def is_many(value: Any) -> bool:
    """Tell whether something has so many parts that it takes long to free them."""
    return type(value) in {list, dict} and len(value) >= MANY_VALUES


async def let_go(held: list[Any]) -> None:
    """Free what is in a list, which is empty then. Whatever somebody else has, too, is left alone.

    Nobody may have a name for it any more: whether somebody else has it is told by the count of its references.
    """
    turns = Turns()
    while held:
        value = held.pop()
        looks = _LOOKS
        while sys.getrefcount(value) > 2 and looks:  # this name, and the argument
            looks -= 1
            await asyncio.sleep(_PAUSE)
        while value and looks:
            if type(value) is list:
                del value[-_STEP:]
            else:
                for _ in range(min(_STEP, len(value))):
                    value.popitem()
            await turns.give()
