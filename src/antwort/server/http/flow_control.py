"""How fast a connection is read from and written to."""

import asyncio

from antwort.concurrency.waiters import Waiters

HIGH_WATER_LIMIT = 64 * 1024
"""Bytes of a body that wait to be read; with more, its client is not read from."""


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
