"""Readers of streams: some read to the end, some stall, some vanish. Run as a program: port, how many, for how long.

At the end it prints one line of JSON: how many streams ended, stalled and vanished, and what went wrong with those that
should have ended.
"""

import asyncio
import contextlib
import json
import os
import random
import resource
import socket
import struct
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable

SLOW = "paced-60-1000"
"""A model that speaks for a minute, one word a second."""
MUCH = "burst-2000"
"""A model that says at once more than the buffers on the way hold, if the reader keeps his own small."""
SMALL_BUFFER = 4096
STALL = 5.0, 30.0
"""Seconds for which a reader reads nothing; the server gives him twice as much."""
STAY = 0.1, 20.0
"""Seconds after which a reader vanishes."""
END = b"data: [DONE]\n\n"


class Readers:
    """Readers of one server, and what has become of their streams."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._chance = random.Random(port)
        self.counts: Counter[str] = Counter(ended=0, stalled=0, vanished=0, errors=0)
        self.problem = ""

    async def run(self, count: int, seconds: float) -> None:
        """Read so many streams at a time: of ten six are read to their end, two stall, two are left."""
        kinds: list[Callable[[], Awaitable[None]]] = [*[self._read] * 6, *[self._stall] * 2, *[self._vanish] * 2]
        tasks = [asyncio.create_task(self._again(kinds[number % 10], number / count)) for number in range(count)]
        await asyncio.sleep(seconds)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _again(self, read: Callable[[], Awaitable[None]], delay: float) -> None:
        await asyncio.sleep(5 * delay)  # not all at once
        while True:
            try:
                await read()
            except OSError as error:
                self._blame(f"{read.__name__}: {error!r}")
                await asyncio.sleep(1)

    async def _read(self) -> None:
        async with self._stream(SLOW) as reader:
            self._check("a stream", await _rest(reader))

    async def _stall(self) -> None:
        async with self._stream(MUCH, small=True) as reader:
            await reader.read(1000)
            self.counts["stalled"] += 1
            await asyncio.sleep(self._chance.uniform(*STALL))
            if self._chance.random() < 0.5:
                self._check("a stream that had stalled", await _rest(reader))

    async def _vanish(self) -> None:
        async with self._stream(SLOW) as reader:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._chance.uniform(*STAY)):
                    await _rest(reader)
        self.counts["vanished"] += 1

    @contextlib.asynccontextmanager
    async def _stream(self, model: str, *, small: bool = False) -> AsyncIterator[asyncio.StreamReader]:
        """Open a stream; leave it with a word or without, as it happens."""
        connection = socket.socket()
        connection.setblocking(False)
        if small:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER)
        if self._chance.random() < 0.5:  # closing it resets the connection
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        try:
            await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", self._port))
            reader, writer = await asyncio.open_connection(sock=connection, limit=SMALL_BUFFER)
        except BaseException:
            connection.close()
            raise
        try:
            writer.write(_request(model))
            yield reader
        finally:
            writer.close()

    def _check(self, what: str, rest: bytes) -> None:
        if END in rest:
            self.counts["ended"] += 1
        else:
            self._blame(f"{what} ended with {rest[-200:]!r}")

    def _blame(self, problem: str) -> None:
        self.counts["errors"] += 1
        self.problem = self.problem or problem

    def report(self) -> str:
        return json.dumps({**self.counts, "problem": self.problem})


def _request(model: str) -> bytes:
    body = json.dumps({"model": model, "input": "Hello", "store": False, "stream": True})
    head = "POST /v1/responses HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nconnection: close\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n{body}".encode()


async def _rest(reader: asyncio.StreamReader) -> bytes:
    """Read to the end, and return the last of it."""
    last = b""
    while piece := await reader.read(65_536):
        last = (last + piece)[-500:]
    return last


async def main(port: int, count: int, seconds: float) -> None:
    readers = Readers(port)
    await readers.run(count, seconds)
    print(readers.report(), flush=True)


if __name__ == "__main__":
    os.nice(10)  # others on this core, who wait for an answer, must not wait for us
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
