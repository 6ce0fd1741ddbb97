"""How fast a connection is read from and written to."""

import asyncio

from msgspec import Struct

HIGH_WATER_LIMIT = 64 * 1024
"""Bytes of a body that wait to be read; with more, its client is not read from."""


class Waiters(Struct, eq=False):
    """Tasks that wait for the same thing. Whoever waits looks again afterwards whether it is there.

    An `asyncio.Event` would add 0.9 KiB to each open connection.
    """

    _futures: tuple[asyncio.Future[None], ...] = ()

    def join(self) -> asyncio.Future[None]:
        """Return what is done with the next `wake`; no coroutine, as one would cost as much again."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._futures = (*(other for other in self._futures if not other.done()), future)
        return future

    def wake(self) -> None:
        """Let all go on who wait now."""
        if not self._futures:
            return
        futures, self._futures = self._futures, ()
        for future in futures:
            if not future.done():
                future.set_result(None)


class FlowControl:
    """Holds up a client that sends faster than it is read, and whoever sends faster than a client reads."""

    __slots__ = ("_transport", "_waiters", "read_paused", "write_paused")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.read_paused = False
        self.write_paused = False
        self._waiters = Waiters()

    def pause_reading(self) -> None:
        """Let the client wait with what it sends."""
        if not self.read_paused:
            self.read_paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Take again what the client sends."""
        if self.read_paused:
            self.read_paused = False
            self._transport.resume_reading()

    async def drain(self) -> None:
        """Wait until the client has read enough of what was sent."""
        while self.write_paused:
            await self._waiters.join()

    def pause_writing(self) -> None:
        """Let those wait who send to the client."""
        self.write_paused = True

    def resume_writing(self) -> None:
        """Let those go on who send to the client."""
        self.write_paused = False
        self._waiters.wake()
