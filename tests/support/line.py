"""A line to a server of this machine that can be cut: at its other end the server is gone then, though it lives on."""

import asyncio
import socket
import threading
from collections.abc import Coroutine
from typing import Any

__all__ = ["Line"]

HOST = "127.0.0.1"
PIECE = 1 << 16


class Line:
    """Passes bytes on, both ways, to a port. While it is cut, connections are refused; those there were have ended."""

    def __init__(self, port: int) -> None:
        self._far = port
        self._kept = _bound(0)  # nobody else gets our port while nobody listens at it
        self.port: int = self._kept.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._listening: asyncio.Server | None = None
        self._passing: set[asyncio.Task[None]] = set()
        self.mend()

    @property
    def url(self) -> str:
        """Where the server answers, for who is at the end of the line."""
        return f"http://{HOST}:{self.port}"

    def cut(self) -> None:
        """End all connections, and take no more."""
        self._do(self._cut())

    def mend(self) -> None:
        """Take connections again."""
        self._do(self._mend())

    def remove(self) -> None:
        """Cut it for good."""
        self.cut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._kept.close()

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    async def _cut(self) -> None:
        if self._listening is not None:
            self._listening.close()
            self._listening = None
        passing = list(self._passing)
        for task in passing:
            task.cancel()
        await asyncio.gather(*passing, return_exceptions=True)

    async def _mend(self) -> None:
        self._listening = await asyncio.start_server(self._connected, sock=_bound(self.port))

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._passing.add(task)
        try:
            await self._pass_on(reader, writer)
            writer.close()
        except (ConnectionError, asyncio.CancelledError):
            writer.transport.abort()
        finally:
            self._passing.discard(task)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(HOST, self._far)
        ways = [asyncio.create_task(_pump(reader, far_writer)), asyncio.create_task(_pump(far_reader, writer))]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            far_writer.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(PIECE):
        writer.write(piece)
        await writer.drain()


def _bound(port: int) -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    made.bind((HOST, port))
    return made
