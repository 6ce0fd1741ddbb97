"""The answer to one request over HTTP: JSON, or server-sent events if something is to be told before it is there."""

import asyncio

import msgspec
from starlette.types import Send

from antwort.server.http.sse import GRACE, HEADERS, frame
from antwort.types import JSON

_MOST_WAITING = 1000
"""Notifications that wait for a client which does not read; further ones are left out."""


class AnswerStream:
    """Writes notifications and the answer; it is a stream from the first notification, or sign of life, on."""

    def __init__(self, send: Send, *, takes_events: bool) -> None:
        self._send = send
        self._takes_events = takes_events
        self._now = asyncio.get_running_loop().time
        self._last = self._now()
        self._waiting: list[bytes] = []
        self._writing = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._started = False
        self._ended = False

    def tell(self, message: JSON) -> None:
        """Take a notification; who takes no events is told nothing."""
        if self._ended or not self._takes_events or len(self._waiting) >= _MOST_WAITING:
            return
        self._waiting.append(frame("message", msgspec.json.encode(message)))
        task = asyncio.get_running_loop().create_task(self._flush())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def is_due(self, silence: float) -> bool:
        """Tell whether a sign of life is due; while something waits for a client that does not read, none is."""
        if self._ended or not self._takes_events or self._writing.locked():
            return False
        return self._now() - self._last >= (silence if self._started else GRACE)

    async def beat(self) -> None:
        """Give a sign of life."""
        await self._write(b": keep-alive\n\n")

    async def end(self, answer: JSON, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        """Write the answer; its status and headers count if nothing was told before."""
        self._ended = True
        body = msgspec.json.encode(answer)
        if self._started or self._waiting:
            async with self._writing:
                await self._start()
                last = b"".join([*self._waiting, frame("message", body)])
                await self._send({"type": "http.response.body", "body": last, "more_body": False})
            return
        head = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), *headers]
        await self._send({"type": "http.response.start", "status": status, "headers": head})
        await self._send({"type": "http.response.body", "body": body})

    async def _start(self) -> None:
        if not self._started:
            self._started = True
            await self._send({"type": "http.response.start", "status": 200, "headers": list(HEADERS)})

    async def _flush(self) -> None:
        await self._write(b"")

    async def _write(self, body: bytes) -> None:
        async with self._writing:
            if self._ended:
                return
            waiting, self._waiting = b"".join([*self._waiting, body]), []
            if not waiting:
                return
            self._last = self._now()
            await self._start()
            await self._send({"type": "http.response.body", "body": waiting, "more_body": True})
