"""Bounded concurrency that does not depend on one event loop."""

import asyncio
from collections import deque


class Slots:
    """A number of slots, handed out in the order of asking.

    Unlike `asyncio.Semaphore` it is not bound to the first loop that had to wait, so a registry can serve one
    `asyncio.run` after another.
    """

    def __init__(self, limit: int) -> None:
        self._free = limit
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def acquire(self) -> None:
        """Take a slot, waiting for one if need be."""
        if self._free > 0:
            self._free -= 1
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
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
