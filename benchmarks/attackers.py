"""Clients that do harm. Run as a program: the port, which attack, and for how many seconds."""

import asyncio
import contextlib
import json
import os
import resource
import sys
from collections.abc import Awaitable, Callable

KEY = "sk-of-the-attacker"
AUTHORIZED = f"authorization: Bearer {KEY}\r\ncontent-type: application/json\r\n"
MEMORY = 3 << 30
"""Bytes that an attacker may use."""


class Attacker:
    """Opens connections to a server until its time is over."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self._port)

    async def flood(self, head: bytes, piece: bytes, pause: float = 0) -> None:
        """Send something, and then the same piece again and again; begin anew when the server has had enough."""
        while True:
            with contextlib.suppress(ConnectionError):
                _, writer = await self.connect()
                writer.write(head)
                while not writer.is_closing():
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(pause)
            await asyncio.sleep(0.01)

    async def post(self, path: str, body: bytes, headers: str = AUTHORIZED) -> bytes:
        """Send a request and return how the answer begins; the rest is read and forgotten."""
        reader, writer = await self.connect()
        try:
            head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\n{headers}content-length: {len(body)}\r\n"
            writer.write(f"{head}connection: close\r\n\r\n".encode())
            writer.write(body)
            await writer.drain()
            begin = await reader.read(65_536)
            while await reader.read(65_536):
                pass
            return begin
        finally:
            writer.close()

    async def ask(self, model: str, **fields: object) -> None:
        """Ask for responses of a model, one after the other."""
        body = json.dumps({"model": model, "input": "Hello", "store": False, **fields}).encode()
        while True:
            with contextlib.suppress(ConnectionError):
                await self.post("/v1/responses", body)
            await asyncio.sleep(0.01)


async def endless_headers(attacker: Attacker) -> None:
    await attacker.flood(b"GET /healthz HTTP/1.1\r\nhost: x\r\n", b"a:b\r\n" * 4_000)


async def endless_header_value(attacker: Attacker) -> None:
    await attacker.flood(b"GET /healthz HTTP/1.1\r\nhost: x\r\na: ", b"x" * 16_384)


async def endless_request_line(attacker: Attacker) -> None:
    await attacker.flood(b"GET /", b"x" * 16_384)


async def half_open(attacker: Attacker) -> None:
    """Open connections that say nothing, or half of something."""
    held = []
    for number in range(1_500):
        with contextlib.suppress(OSError):
            _, writer = await attacker.connect()
            writer.write((b"", b"GET / HTTP/1.1\r\nhost:", b"POST /v1/responses HTTP/1.1\r\n")[number % 3])
            held.append(writer)
    await asyncio.Event().wait()


async def tiny_chunks(attacker: Attacker) -> None:
    """Send a body in chunks of one byte."""
    head = f"POST /v1/responses HTTP/1.1\r\nhost: x\r\n{AUTHORIZED}transfer-encoding: chunked\r\n\r\n".encode()
    await attacker.flood(head, b"1\r\n \r\n" * 2_000)


async def trailers(attacker: Attacker) -> None:
    head = f"POST /v1/responses HTTP/1.1\r\nhost: x\r\n{AUTHORIZED}transfer-encoding: chunked\r\n\r\n".encode()
    await attacker.flood(head + b"2\r\n{}\r\n0\r\n", b"a:b\r\n" * 4_000)


async def many_items(attacker: Attacker) -> None:
    await attacker.ask("hello", input=[{"role": "user", "content": f"Number {number}"} for number in range(10_000)])


async def large_bodies(attacker: Attacker) -> None:
    """Send 30 bodies of 31 MB at once."""
    item = json.dumps({"role": "user", "content": "x" * 31_000})
    body = b'{"model": "hello", "store": false, "input": [' + b",".join([item.encode()] * 998) + b"]}"

    async def one() -> None:
        while True:
            with contextlib.suppress(ConnectionError):
                await attacker.post("/v1/responses", body)
            await asyncio.sleep(0.1)

    await asyncio.gather(*(one() for _ in range(30)))


async def failed_logins(attacker: Attacker) -> None:
    async def one(number: int) -> None:
        while True:
            number += 1
            headers = f"authorization: Bearer sk-{number}\r\ncontent-type: application/json\r\n"
            with contextlib.suppress(ConnectionError):
                await attacker.post("/v1/responses", b"{}", headers)

    await asyncio.gather(*(one(number * 1_000_000) for number in range(8)))


def getting(path: str, *, leave: bool) -> Callable[[Attacker], Awaitable[None]]:
    """Return an attack that asks a route for very much, and reads it, or leaves when it begins."""

    async def attack(attacker: Attacker) -> None:
        while True:
            with contextlib.suppress(ConnectionError):
                reader, writer = await attacker.connect()
                writer.write(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n{AUTHORIZED}\r\n".encode())
                while await reader.read(65_536) and not leave:
                    pass
                writer.close()
            await asyncio.sleep(0.01)

    return attack


def asking(model: str, *, stream: bool = True, clients: int = 1) -> Callable[[Attacker], Awaitable[None]]:
    """Return an attack that has a hostile model answer."""

    async def attack(attacker: Attacker) -> None:
        await asyncio.gather(*(attacker.ask(model, stream=stream) for _ in range(clients)))

    return attack


ATTACKS: dict[str, Callable[[Attacker], Awaitable[None]]] = {
    "endless headers": endless_headers,
    "an endless header value": endless_header_value,
    "an endless request line": endless_request_line,
    "1,500 silent and half-open connections": half_open,
    "a body in chunks of one byte": tiny_chunks,
    "endless trailers": trailers,
    "failed logins": failed_logins,
    "10,000 input items": many_items,
    "30 bodies of 31 MB": large_bodies,
    "20,000 deltas at once": asking("deltas", clients=2),
    "10,000 calls in one turn": asking("calls"),
    "10,000 calls in one turn, not streamed": asking("calls", stream=False),
    "lines of data without end": asking("lines"),
    "an endless answer": asking("talk"),
    "endless headers of a model server": asking("headers"),
    "an endless answer, not streamed": asking("body", stream=False),
    "a gzip bomb": asking("bomb", stream=False),
    "a function that returns itertools.count()": asking("count"),
    "a function that returns 5 million elements": asking("list"),
    "a function that returns 5 million numbers": asking("numbers"),
    "a function that fails with 50 MB of words": asking("crash"),
    "a route that streams for ever": getting("/v1/flood/stream", leave=False),
    "a route that streams for ever to clients that leave": getting("/v1/flood/stream", leave=True),
    "a route that returns itertools.count()": getting("/v1/flood/numbers", leave=False),
    "9**9**9**9 for a calculator": asking("power"),
}


async def main(port: int, name: str, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await ATTACKS[name](Attacker(port))


if __name__ == "__main__":
    os.nice(10)  # what waits for an answer must not wait for us
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    asyncio.run(main(int(sys.argv[1]), sys.argv[2], float(sys.argv[3])))
