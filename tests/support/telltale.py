"""A model server that fails in every way there is, and says in all of them what it was asked."""

import asyncio
import contextlib
import json
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

__all__ = ["KINDS", "TelltaleServer", "telltale"]

STATUSES = (302, 400, 401, 403, 404, 408, 409, 413, 418, 422, 429, 500, 501, 502, 503, 504, 529)
KINDS = (
    *(f"status-{status}" for status in STATUSES),
    *(f"text-{status}" for status in STATUSES),
    "garbage",
    "page",
    "error-object",
    "too-long",
    "empty",
    "not-http",
    "hang-up",
    "cut",
    "silent",
    "silent-stream",
    "stream-garbage",
    "stream-error",
    "stream-overloaded",
    "stream-late-error",
    "stream-cut",
    "stream-empty",
    "call-without-name",
    "answer",
)
"""The models it has, by what happens to a request for them."""


class TelltaleServer:
    """What it was asked last is in everything it says, also in what has nothing to do with that request."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[str] = []
        """Method and path of each request."""
        self.away = False
        """Whether everything is answered with 503, the list of models too."""
        self._last = ""
        self._tasks: set[asyncio.Task[Any]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request on each connection."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            fields = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if line)
            body = await reader.readexactly(int(fields.get("content-length", 0)))
            method, path, _ = head.split(" ", 2)
            self.asked.append(f"{method} {path}")
            self._last = body.decode() or self._last
            await self._answer(writer, json.loads(body)["model"] if body else "")
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def stop(self) -> None:
        """End what hangs."""
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _answer(self, writer: asyncio.StreamWriter, kind: str) -> None:
        name, _, number = kind.rpartition("-")
        if self.away:
            writer.write(_whole(503, self._error()))
        elif name in {"status", "text"}:
            body = self._error() if name == "status" else f"Failed at {self._last}".encode()
            writer.write(_whole(int(number), body, "application/json" if name == "status" else "text/plain"))
        elif kind.startswith("stream-"):
            await self._stream(writer, kind)
        elif kind.startswith("silent"):
            if kind == "silent-stream":
                writer.write(_head(200, "text/event-stream", {"x-asked": "yes"}))
            await writer.drain()
            await asyncio.Event().wait()
        else:
            writer.write(self._odd(kind))

    def _odd(self, kind: str) -> bytes:
        call = {"choices": [{"message": {"tool_calls": [{"index": 0, "function": {"arguments": self._last}}]}}]}
        answer = json.dumps({"choices": [{"message": {"content": "Hello."}, "finish_reason": "stop"}]}).encode()
        odd = {
            "garbage": _whole(200, f"Failed at {self._last}".encode()),
            "page": _whole(200, f"<html><title>{self._last}</title></html>".encode(), "text/html"),
            "error-object": _whole(200, self._error()),
            "too-long": _whole(400, self._error("maximum context length exceeded")),
            "empty": _whole(200, b"{}"),
            "not-http": f"What? {self._last}\r\n\r\n".encode(),
            "cut": _whole(200, answer)[:-3],
            "call-without-name": _whole(200, json.dumps(call).encode()),
            "answer": _whole(200, answer),
        }
        # The list of models, too, is not there; but whoever says so is.
        return b"" if kind == "hang-up" else odd.get(kind, _whole(404, self._error()))

    async def _stream(self, writer: asyncio.StreamWriter, kind: str) -> None:
        writer.write(_head(200, "text/event-stream", {"connection": "close", "transfer-encoding": "chunked"}))
        piece = {"choices": [{"delta": {"content": "Hel"}}]}
        if kind in {"stream-late-error", "stream-cut"}:
            writer.write(_chunk(json.dumps(piece).encode()))
        if kind == "stream-garbage":
            writer.write(_chunk(f"Failed at {self._last}".encode()))
        elif kind != "stream-cut":
            writer.write(_chunk(self._error(code="overloaded" if kind == "stream-overloaded" else "500")))
        if kind != "stream-cut":
            writer.write(b"0\r\n\r\n")

    def _error(self, message: str = "Failed", code: str | None = None) -> bytes:
        return json.dumps({"error": {"message": f"{message} at {self._last}", "code": code}}).encode()


def _head(status: int, kind: str, fields: dict[str, str]) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in {"content-type": kind, **fields}.items())
    return f"HTTP/1.1 {status} OK\r\n{lines}\r\n".encode()


def _whole(status: int, body: bytes, kind: str = "application/json") -> bytes:
    fields = {"content-length": str(len(body)), "connection": "close"}
    if status in {429, 503}:
        fields["retry-after"] = "60"
    return _head(status, kind, fields) + body


def _chunk(data: bytes) -> bytes:
    event = b"data: " + data + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(event), event)


@contextlib.contextmanager
def telltale() -> Iterator[TelltaleServer]:
    """Run one on a free port, in a thread of its own."""
    server = TelltaleServer()
    started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def main() -> None:
        leave = asyncio.Event()
        listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
        server.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/v1"
        started.set_result((asyncio.get_running_loop(), leave))
        async with listener:
            await leave.wait()
            await server.stop()

    thread = threading.Thread(target=lambda: asyncio.run(main()), name="telltale")
    thread.start()
    loop, leave = started.result(30)
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(leave.set)
        thread.join()
