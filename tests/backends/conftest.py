"""What the tests of backends share: a sink that takes notes, and a model server that does as it is told."""

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

import pytest

from antwort.backends import CircuitBreaker, GuardedBackend, ModelBackend, ModelRequest, Retries
from antwort.backends.base import WholeTurn
from antwort.backends.chat.backend import ChatBackend
from antwort.backends.responses.backend import ResponsesBackend
from antwort.config import BackendConfig
from antwort.types import JSON
from antwort.wire.responses import Usage


class Notes:
    """A sink that keeps what it was fed, in order."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.flushed: list[int] = []
        self.progress = asyncio.Event()

    def whole_turn(self, turn: WholeTurn) -> None:
        turn.feed(self)

    def text(self, delta: str, logprobs: list[JSON] | None = None) -> None:
        self.calls.append(("text", delta) if logprobs is None else ("text", delta, logprobs))

    def text_burst(self, deltas: Sequence[str]) -> None:
        for delta in deltas:
            self.text(delta)

    def reasoning(self, delta: str) -> None:
        self.calls.append(("reasoning", delta))

    def summary(self, delta: str) -> None:
        self.calls.append(("summary", delta))

    def opaque(self, content: str) -> None:
        self.calls.append(("opaque", content))

    def refusal(self, delta: str) -> None:
        self.calls.append(("refusal", delta))

    def tool_call(
        self, index: int, *, call_id: str | None = None, name: str | None = None, arguments: str = ""
    ) -> None:
        self.calls.append(("call", index, call_id, name, arguments))

    def usage(self, usage: Usage) -> None:
        self.calls.append(("usage", usage.input_tokens, usage.output_tokens, usage.total_tokens))

    def finish(self, reason: str) -> None:
        self.calls.append(("finish", reason))

    async def flush(self) -> None:
        self.flushed.append(len(self.calls))
        self.progress.set()

    def said(self, kind: str = "text") -> str:
        return "".join(call[1] for call in self.calls if call[0] == kind)


class Exchange:
    """One request, and the connection to answer it on."""

    def __init__(self, head: bytes, body: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines = head.decode().split("\r\n")
        self.method, self.path, _ = lines[0].split(" ")
        self.headers = {key.lower(): value for key, _, value in (line.partition(": ") for line in lines[1:] if line)}
        self.body = body
        self.reader = reader
        self.writer = writer

    def json(self) -> Any:
        return json.loads(self.body)

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def begin_stream(self, kind: str = "text/event-stream") -> None:
        await self.send(f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\n\r\n".encode())

    async def chunk(self, data: bytes) -> None:
        await self.send(b"%x\r\n%s\r\n" % (len(data), data))

    async def gone(self) -> None:
        """Wait until the client closes the connection."""
        while await self.reader.read(1024):
            pass


Script = Callable[[Exchange], Awaitable[None]]


class ModelServer:
    """Answers each request with the next script; the last one is used again."""

    def __init__(self) -> None:
        self.scripts: deque[Script] = deque()
        self.exchanges: list[Exchange] = []
        self.connections = 0
        self.url = ""
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                size = next((int(v) for k, v in _fields(head) if k == "content-length"), 0)
                exchange = Exchange(head, await reader.readexactly(size), reader, writer)
                self.exchanges.append(exchange)
                script = self.scripts.popleft() if len(self.scripts) > 1 else self.scripts[0]
                await script(exchange)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def stop(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)


def _fields(head: bytes) -> list[tuple[str, str]]:
    lines = head.decode().split("\r\n")[1:]
    return [(key.lower(), value) for key, _, value in (line.partition(": ") for line in lines if line)]


def reply(
    value: Any, status: int = 200, headers: Mapping[str, str] | None = None, kind: str = "application/json"
) -> Script:
    """Answer with a body as a whole."""
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    fields = {"content-type": kind, "content-length": str(len(body)), **(headers or {})}

    async def script(exchange: Exchange) -> None:
        head = "".join(f"{key}: {value}\r\n" for key, value in fields.items())
        await exchange.send(f"HTTP/1.1 {status} OK\r\n{head}\r\n".encode() + body)

    return script


def stream(*pieces: bytes, end: bool = True) -> Script:
    """Answer with a stream, one chunk for each piece; without an end it breaks off."""

    async def script(exchange: Exchange) -> None:
        await exchange.begin_stream()
        for piece in pieces:
            await exchange.chunk(piece)
        if end:
            await exchange.send(b"0\r\n\r\n")
        else:
            exchange.writer.close()

    return script


def silence(asked: asyncio.Event) -> Script:
    """Tell that a request has come, and answer nothing."""

    async def wait(_: Exchange) -> None:
        asked.set()
        await asyncio.Event().wait()

    return wait


def event(value: Any) -> bytes:
    """Write one event."""
    return b"data: " + (value if isinstance(value, bytes) else json.dumps(value).encode()) + b"\n\n"


def delta(finish_reason: str | None = None, **fields: Any) -> bytes:
    """Write one chunk as an event."""
    return event({"choices": [{"index": 0, "delta": fields, "finish_reason": finish_reason}]})


DONE = event(b"[DONE]")
HELLO = (delta(role="assistant", content=""), delta(content="Hel"), delta(content="lo"), delta("stop"), DONE)
ANSWER = {
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4},
}


def a_request(**changes: Any) -> ModelRequest:
    fields: JSON = {"model": "m", "items": [{"role": "user", "content": "Hi"}], **changes}
    return ModelRequest(**fields)


@pytest.fixture
def notes() -> Notes:
    return Notes()


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    model = ModelServer()
    listener = await asyncio.start_server(model.serve, "127.0.0.1", 0)
    model.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/v1"
    async with listener:
        yield model
        await model.stop()


Connect = Callable[..., ChatBackend]


@pytest.fixture
async def connect(server: ModelServer) -> AsyncIterator[Connect]:
    """Build backends that ask the server, and close them."""
    opened: list[ChatBackend] = []

    def build(**settings: Any) -> ChatBackend:
        backend = ChatBackend("local", BackendConfig(**{"url": server.url, **settings}))
        opened.append(backend)
        return backend

    yield build
    for backend in opened:
        await backend.close()


def retrying(backend: ModelBackend, retries: Retries) -> GuardedBackend:
    """Have a backend tried again; its breaker stays closed."""

    async def is_there() -> bool:
        return True

    return GuardedBackend(backend, CircuitBreaker(backend.name, is_there), retries)


async def wait_until_examined(breaker: CircuitBreaker) -> None:
    """Wait until it is known that the server is there, however long that takes."""
    if (task := breaker._task) is not None:
        await asyncio.wait([task])


ConnectResponses = Callable[..., ResponsesBackend]


@pytest.fixture
async def connect_responses(server: ModelServer) -> AsyncIterator[ConnectResponses]:
    """Build backends that speak the Responses API to the server, and close them."""
    opened: list[ResponsesBackend] = []

    def build(**settings: Any) -> ResponsesBackend:
        backend = ResponsesBackend("local", BackendConfig(**{"url": server.url, "api": "responses", **settings}))
        opened.append(backend)
        return backend

    yield build
    for backend in opened:
        await backend.close()
