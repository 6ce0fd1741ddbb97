"""Server-sent events: frames that come together leave together, in one piece unless they are very large."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, Protocol, TypeVar

from msgspec import Struct
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send
from typing_extensions import override

from antwort.concurrency.deadline import Stragglers
from antwort.errors import ServiceUnavailableError
from antwort.server.http.exchange import BODY_FOLLOWS, Exchange
from antwort.storage.base import StoredEvent
from antwort.web.requests import EXCHANGE

T = TypeVar("T")
DONE = b"data: [DONE]\n\n"
LIFE_SIGN = b": keep-alive\n\n"
HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
_START: Message = {"type": "http.response.start", "status": 200, BODY_FOLLOWS: True}
_REMEMBERED = 256
LARGE = 128 * 1024
"""Bytes that are written at once."""
_END = b"\n\n"
GRACE = 1.0
"""Seconds before a stream says that it lives, although nothing has come: until then an error can have a status."""


class _Heads(dict[str, tuple[bytes, bytes]]):
    """How a frame begins, and what stands between two of them, by the type of the event; these are few."""

    def __missing__(self, kind: str) -> tuple[bytes, bytes]:
        head = b"event: %s\ndata: " % kind.encode()
        found = head, _END + head
        if len(self) < _REMEMBERED:
            self[kind] = found
        return found


_heads = _Heads()


def frame(kind: str, data: bytes) -> bytes:
    """Return an event as a frame."""
    return b"".join((_heads[kind][0], data, _END))


class EventStream:
    """The sink of a foreground stream: collects frames and writes them with one `send` for each flush."""

    end_mark = DONE
    """What stands at the end."""
    life_sign = LIFE_SIGN
    """What is written when there is nothing to say."""

    def __init__(self, send: Send, exchange: Exchange | None = None) -> None:
        """Take what sends, and the exchange to which that leads, if it is known."""
        self._send = send
        self._exchange = exchange
        self._frames: list[bytes | memoryview] = []
        """What waits to be written; the first may be the rest of a frame."""
        self._slicing: asyncio.Lock | None = None
        """Whoever writes much, piece by piece, has it: nothing may come between."""
        self._now = asyncio.get_running_loop().time
        self.started = False
        self._is_over = False
        self._beating = False
        self.last = self._now()

    def put(self, kind: str, *events: bytes) -> None:
        """Take events of one type."""
        head, between = _heads[kind]
        self._frames += (head, between.join(events), _END)

    def flush(self) -> Coroutine[Any, Any, None]:
        """Write what was taken; wait while the client does not read."""
        frames = self._frames
        if not frames:
            return _nothing()
        if self._slicing is not None or sum(map(len, frames)) > LARGE:
            return self._write_sliced()
        self._frames = []
        return self._write(b"".join(frames))

    @property
    def flush_now(self) -> Callable[[], bool] | None:
        """What does the same if nothing has to be waited for, and tells whether it has; None if nobody knows that."""
        return None if self._exchange is None else self._flush_now

    def _flush_now(self) -> bool:
        frames, exchange = self._frames, self._exchange
        if not frames:
            return True
        if exchange is None or self._beating or self._slicing is not None:
            return False
        body = b"".join(frames)
        if len(body) > LARGE or not exchange.go_on_now(body):
            self._frames = [body]
            return False
        self._frames = []
        self.last = self._now()
        return True

    async def open(self) -> None:
        """Write the headers, before there is anything to say."""
        if not self.started:
            await self._write(b"")

    def is_due(self, silence: float) -> bool:
        """Tell whether a sign of life is due; while the last one waits for a client that does not read, none is."""
        silent = self._now() - self.last
        return silent >= (silence if self.started else GRACE) and not self._beating and not self._is_slicing

    async def beat(self) -> None:
        """Give a sign of life: what waits to be written, or else a comment."""
        if self._is_slicing or self._is_over:  # since it was due
            return
        self._beating = True
        try:
            await (self.flush() if self._frames or not self.started else self._write(self.life_sign))
        finally:
            self._beating = False

    async def end(self) -> None:
        """Write what is left and the end mark."""
        if self._is_large:
            await self._write_sliced()
        self._frames.append(self.end_mark)
        body = b"".join(self._frames)
        self._frames = []
        await self._write(body, more=False)

    async def break_off(self) -> None:
        """End without the end mark: there is more to come, but not here."""
        await self._write(b"", more=False)

    @property
    def _is_slicing(self) -> bool:
        return self._slicing is not None and self._slicing.locked()

    @property
    def _is_large(self) -> bool:
        """Whether what was taken is written piece by piece."""
        return sum(map(len, self._frames)) > LARGE or self._is_slicing

    async def _write_sliced(self) -> None:
        """Write what was taken piece by piece: it is not copied as a whole, and others have their turn in between.

        What whoever is cancelled has not written waits to be written next: it may be the rest of a frame.
        """
        self._slicing = self._slicing or asyncio.Lock()
        async with self._slicing:
            frames, self._frames = self._frames, []
            frames.reverse()
            piece = b""
            try:
                while frames:
                    piece = _next_piece(frames)
                    await self._write(piece)
                    piece = b""
                    await asyncio.sleep(0)
            finally:
                if piece or frames:
                    self._frames = [piece, *reversed(frames), *self._frames]

    async def _write(self, body: bytes, *, more: bool = True) -> None:
        self.last = self._now()
        self._is_over = not more
        if not self.started:
            self.started = True
            await self._send({**_START, "headers": list(HEADERS)})
        await self._send({"type": "http.response.body", "body": body, "more_body": more})


async def _nothing() -> None:
    """Write nothing."""


def _next_piece(frames: list[bytes | memoryview]) -> bytes:
    """Take as much as is written at once off the end of frames, of which the last is the next."""
    parts: list[bytes | memoryview] = []
    room = LARGE
    while frames and room:
        part = frames.pop()
        if len(part) > room:
            frames.append(memoryview(part)[room:])
            part = memoryview(part)[:room]
        parts.append(part)
        room -= len(part)
    return b"".join(parts)


class Watched(Protocol):
    """A stream that must not be silent for too long."""

    def is_due(self, silence: float) -> bool:
        """Tell whether a sign of life is due."""

    async def beat(self) -> None:
        """Give a sign of life."""


class Heartbeats:
    """One task that looks after all open streams, so that none needs a timer of its own."""

    def __init__(self, silence: float) -> None:
        self._silence = silence
        self._streams: set[Watched] = set()
        self._beats: set[asyncio.Task[None]] = set()
        self._task: asyncio.Task[None] | None = None

    def watching(self, stream: Watched) -> "_Watching":
        """Look after a stream while it is open."""
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())
        return _Watching(self._streams, stream)

    async def _run(self) -> None:
        while self._streams:
            await asyncio.sleep(min(GRACE, self._silence) / 2)
            for stream in self._streams:
                if stream.is_due(self._silence):
                    # Not awaited: one client that does not read must not keep the others waiting.
                    beat = asyncio.get_running_loop().create_task(stream.beat())
                    self._beats.add(beat)
                    beat.add_done_callback(self._beats.discard)


class _Watching:
    """Has a stream among others between enter and exit; open streams are many, and a generator would be larger."""

    __slots__ = ("_stream", "_streams")

    def __init__(self, streams: set[Watched], stream: Watched) -> None:
        self._streams = streams
        self._stream = stream

    def __enter__(self) -> None:
        self._streams.add(self._stream)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._streams.discard(self._stream)


async def while_connected(
    scope: Scope,
    receive: Receive,
    work: Awaitable[T],
    stragglers: Stragglers,
    *,
    on_leave: Callable[[], None] | None = None,
) -> T | None:
    """Return what some work comes to; None if the client leaves before: the work is cancelled then, after `on_leave`.

    Without an exchange that tells, nobody watches for the first moment: most work is done by then.
    """
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("Only the work of a task can be cancelled.")
    watch = _Watch(task, receive, on_leave)
    exchange: Exchange | None = scope.get(EXCHANGE)
    if exchange is None:
        stragglers.expect(watch)
    elif exchange.disconnected:
        watch.leave()
    else:
        exchange.on_leave = watch.leave
    try:
        return await work
    except asyncio.CancelledError:
        if not watch.client_is_gone:
            raise
        task.uncancel()
        return None
    finally:
        if exchange is None:
            stragglers.forget(watch)
            watch.end()
        else:
            exchange.on_leave = None


class ClientGoneError(Exception):
    """Nobody waits for the answer any more."""


async def unless_left(scope: Scope, receive: Receive, stragglers: Stragglers, work: Awaitable[T]) -> T:
    """Return what some work comes to; ClientGoneError if the client leaves before."""
    found = await while_connected(scope, receive, work, stragglers)
    if found is None:
        raise ClientGoneError
    return found


class _Watch(Struct, eq=False):
    """Cancels a task when a client leaves: the exchange tells, or, on other servers, `receive`."""

    _task: asyncio.Task[Any]
    _receive: Receive
    _on_leave: Callable[[], None] | None
    client_is_gone: bool = False
    _watcher: asyncio.Task[None] | None = None

    def be_late(self) -> None:
        """Begin to watch."""
        self._watcher = asyncio.get_running_loop().create_task(self._run())

    def end(self) -> None:
        """Watch no more."""
        if self._watcher is not None:
            self._watcher.cancel()

    async def _run(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.leave()

    def leave(self) -> None:
        """Take note that the client is gone."""
        self.client_is_gone = True
        if self._on_leave is not None:
            self._on_leave()
        self._task.cancel()


class Tail(Response):
    """The events of a background run, from the store, as long as they come."""

    def __init__(
        self, events: AsyncGenerator[StoredEvent, None], heartbeats: Heartbeats, stragglers: Stragglers
    ) -> None:
        super().__init__()
        self._events = events
        self._heartbeats = heartbeats
        self._stragglers = stragglers

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def work() -> None:
            stream = EventStream(send)
            with self._heartbeats.watching(stream):
                await stream.open()
                try:
                    async with contextlib.aclosing(self._events) as events:
                        async for event in events:
                            stream.put(event.type, event.data)
                            await stream.flush()
                except ServiceUnavailableError:  # the run goes on elsewhere, or later
                    await stream.break_off()
                else:
                    await stream.end()

        await while_connected(scope, receive, work(), self._stragglers)
