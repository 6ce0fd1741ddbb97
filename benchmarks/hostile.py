"""A model server that does harm: the name of the model says which. Run as a program, it says where it listens."""

import asyncio
import contextlib
import gzip
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable

from antwort.types import JSON

PIECE = 65_536
SSE = b"content-type: text/event-stream\r\n"
OK = b"HTTP/1.1 200 OK\r\n"


def event(delta: JSON, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


def call(number: int, name: str, arguments: str) -> JSON:
    return {
        "index": number,
        "id": f"c{number}",
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


END = event({}, "stop") + b"data: [DONE]\n\n"


class Exchange:
    """One request, and the connection to answer it on."""

    def __init__(self, asked: JSON, writer: asyncio.StreamWriter) -> None:
        self.asked = asked
        self.streamed = bool(asked.get("stream"))
        self._writer = writer

    @property
    def answered(self) -> bool:
        """Whether there was a call already."""
        return any(message.get("role") == "tool" for message in self.asked.get("messages", ()))

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def say(self, message: JSON) -> None:
        """Answer with a message."""
        if self.streamed:
            await self.send(OK + SSE + b"connection: close\r\n\r\n" + event(message) + END)
        else:
            await self.whole({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})

    async def whole(self, value: JSON) -> None:
        body = json.dumps(value).encode()
        head = b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
        await self.send(OK + head + body)


async def hello(exchange: Exchange) -> None:
    await exchange.say({"role": "assistant", "content": "Hello"})


async def deltas(exchange: Exchange) -> None:
    """Send 20,000 deltas at once."""
    await exchange.send(OK + SSE + b"connection: close\r\n\r\n" + event({"content": "word "}) * 20_000 + END)


async def calls(exchange: Exchange) -> None:
    """Call 10,000 functions in one turn."""
    if exchange.answered:
        await hello(exchange)
        return
    many = [call(number, "quick", json.dumps({"number": number})) for number in range(10_000)]
    await exchange.say({"role": "assistant", "tool_calls": many})


async def lines(exchange: Exchange) -> None:
    """Send lines of data for ever, and no blank line among them."""
    await exchange.send(OK + SSE + b"connection: close\r\n\r\n")
    async for piece in endless(b"data: x\n"):
        await exchange.send(piece)


async def talk(exchange: Exchange) -> None:
    """Say words for ever."""
    await exchange.send(OK + SSE + b"connection: close\r\n\r\n")
    async for piece in endless(event({"content": "word " * 800})):
        await exchange.send(piece)


async def headers(exchange: Exchange) -> None:
    """Send headers for ever."""
    await exchange.send(OK)
    async for piece in endless(b"a: b\r\n"):
        await exchange.send(piece)


async def body(exchange: Exchange) -> None:
    """Send an answer for ever."""
    await exchange.send(OK + b'content-type: application/json\r\nconnection: close\r\n\r\n{"choices": "')
    async for piece in endless(b"x"):
        await exchange.send(piece)


async def bomb(exchange: Exchange) -> None:
    """Send 200 MB of zeros, compressed."""
    packed = gzip.compress(b"0" * 200_000_000, 1)
    head = b"content-type: application/json\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(packed)
    await exchange.send(OK + head + packed)


def calling(name: str, arguments: str = "{}") -> Callable[[Exchange], Awaitable[None]]:
    """Call one function, then say hello."""

    async def answer(exchange: Exchange) -> None:
        if exchange.answered:
            await hello(exchange)
        else:
            await exchange.say({"role": "assistant", "tool_calls": [call(0, name, arguments)]})

    return answer


async def endless(piece: bytes) -> AsyncIterator[bytes]:
    block = piece * (PIECE // len(piece))
    for _ in itertools.repeat(None):
        yield block


MODELS: dict[str, Callable[[Exchange], Awaitable[None]]] = {
    "hello": hello,
    "deltas": deltas,
    "calls": calls,
    "lines": lines,
    "talk": talk,
    "headers": headers,
    "body": body,
    "bomb": bomb,
    "count": calling("count_for_ever"),
    "list": calling("long_list"),
    "numbers": calling("many_numbers"),
    "crash": calling("crash"),
    "power": calling("calculate", '{"expression": "9**9**9**9"}'),
}


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        head = await reader.readuntil(b"\r\n\r\n")
        fields = (line.partition(b":") for line in head.lower().split(b"\r\n"))
        size = next((int(value) for name, _, value in fields if name == b"content-length"), 0)
        content = await reader.readexactly(size)
        if head.startswith(b"GET"):
            await Exchange({}, writer).whole({"object": "list", "data": [{"id": name} for name in MODELS]})
        else:
            asked = json.loads(content)
            await MODELS.get(asked.get("model"), hello)(Exchange(asked, writer))
    writer.close()


async def main() -> None:
    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 20)
    print(f"Listening on http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main())
