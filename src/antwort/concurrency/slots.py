"""Bounded concurrency that does not depend on one event loop."""

import asyncio
from collections import deque

from antwort.concurrency.deadline import Deadline


class Slots:
    """A number of slots, handed out in the order of asking.

    Unlike `asyncio.Semaphore` it is not bound to the first loop that had to wait, so a registry can serve one
    `asyncio.run` after another.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._free = limit
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def taken(self) -> int:
        """How many are in use."""
        return self._limit - self._free

    @property
    def waiting(self) -> int:
        """How many wait for one."""
        return len(self._waiting)

    def take(self) -> bool:
        """Take a slot, if there is one that is free."""
        if self._free > 0:
            self._free -= 1
            return True
        return False

    async def acquire(self, seconds: float | None = None) -> None:
        """Take a slot, waiting for one if need be; TimeoutError if none was free in so many seconds."""
        if self.take():
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        with Deadline(seconds):
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self.release()  # the slot was handed over in the moment of leaving
                elif waiter in self._waiting:
                    self._waiting.remove(waiter)
                raise

    def release(self) -> None:
        """Give a slot back, from any thread; the first one waiting gets it."""
        while self._waiting:
            waiter = self._waiting.popleft()
            loop = waiter.get_loop()
            # A loop that was closed while somebody waited will never take the slot.
            if not waiter.done() and not loop.is_closed():
                loop.call_soon_threadsafe(self._grant, waiter)
                return
        self._free += 1

    def _grant(self, waiter: asyncio.Future[None]) -> None:
        if waiter.done():
            self.release()
        else:
            waiter.set_result(None)
