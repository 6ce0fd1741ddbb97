"""Turns on one event loop: a loop over what strangers give lets others run, and what is many goes on at a pace."""

import asyncio
import time

from antwort.concurrency.queues import Queue
from antwort.concurrency.slots import Slots

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
