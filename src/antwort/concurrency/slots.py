"""Bounded concurrency that does not depend on one event loop."""

import asyncio
from collections import deque


class Slots:
    """A number of places, handed out in the order of asking.

    Unlike `asyncio.Semaphore` it is not bound to the first loop that had to wait, so a registry can serve one
    `asyncio.run` after another.
    """

    def __init__(self, limit: int) -> None:
        self._free = limit
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def acquire(self) -> None:
        """Take a place, waiting for one if need be."""
        if self._free > 0:
            self._free -= 1
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self.release()  # the place was handed over in the moment of leaving
            elif place in self._waiting:
                self._waiting.remove(place)
            raise

    def release(self) -> None:
        """Give a place back, from any thread; the first one waiting gets it."""
        while self._waiting:
            place = self._waiting.popleft()
            loop = place.get_loop()
            # A loop that was closed while somebody waited will never take the place.
            if not place.done() and not loop.is_closed():
                loop.call_soon_threadsafe(self._grant, place)
                return
        self._free += 1

    def _grant(self, place: asyncio.Future[None]) -> None:
        if place.done():
            self.release()
        else:
            place.set_result(None)
