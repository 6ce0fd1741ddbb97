"""One request on a connection and its answer: between the bytes of HTTP/1.1 and the messages of ASGI."""

import asyncio
import logging
import re
from collections.abc import Callable, Sequence
from http import HTTPStatus

import msgspec
from msgspec import Struct
from starlette.types import ASGIApp, Message, Scope

from antwort.web.requests import EXCHANGE, WHOLE_BODY

# --- how fast a connection is read from and written to ---------------------------------------------------------------


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


# --- one request and its answer --------------------------------------------------------------------------------------


logger = logging.getLogger(__name__)

_PHRASES = {status.value: status.phrase.encode() for status in HTTPStatus}
STATUS_LINES = {status: b"HTTP/1.1 %d %s" % (status, _PHRASES.get(status, b"")) for status in range(100, 600)}
_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_PLAIN = bytes(0x20 if (code < 0x20 and code != 0x09) or code == 0x7F else code for code in range(256))
"""A table of bytes that changes those which are nowhere in a head but between its lines."""
_LENGTH, _ENCODING, _CONNECTION = b"content-length: ", b"transfer-encoding: ", b"connection: "
_FRAMING = frozenset({_LENGTH, _ENCODING, _CONNECTION})
_BODILESS = frozenset({204, 304})
_REMEMBERED = 1024
"""Names of headers that are looked at once; they are few, and those of strangers are not among them."""
_DISCONNECT: Message = {"type": "http.disconnect"}
BODY_FOLLOWS = "antwort.body_follows"
"""A key of `http.response.start`: the first piece of the body comes at once, so that the head can be sent with it."""


class UnsentAnswerError(RuntimeError):
    """An answer is wrong, and nothing of it was sent: another one can be given."""


class _LineStarts(dict[bytes, bytes]):
    """How the line of a header begins, by its name; UnsentAnswerError for what is no name of a header."""

    def __missing__(self, name: bytes) -> bytes:
        if not _NAME.fullmatch(name):
            raise UnsentAnswerError("An answer has a header whose name is none.")
        start = name.lower() + b": "
        if len(self) < _REMEMBERED:
            self[name] = start
        return start


_line_starts = _LineStarts()


class Exchange(msgspec.Struct, eq=False):
    """Runs the app for one request. The protocol fills in the body as it comes; the answer goes to the transport.

    The head of an answer of known length, and of one whose start says that its body follows, waits for the body: both
    are sent at once. HTTP/1.0 knows no chunks: an answer of unknown length to such a request ends with its connection.
    """

    scope: Scope
    transport: asyncio.Transport
    flow: FlowControl
    default_lines: Sequence[bytes]
    """Headers that every answer has."""
    on_end: Callable[[], None]
    """Called when the answer is complete. The connection is then closed, if it is not kept and the body has come."""
    is_head: bool = False
    is_old: bool = False
    """Whether it is a request of HTTP/1.0."""
    keep_alive: bool = True
    expects_continue: bool = False
    on_leave: Callable[[], None] | None = None
    """Called when the client leaves."""
    disconnected: bool = False
    body: bytes | bytearray | None = b""
    """What has come of the body and waits to be read; None when the app has the end of it."""
    more_body: bool = True
    response_started: bool = False
    response_complete: bool = False
    _task: asyncio.Task[None] | None = None
    _waiters: Waiters | None = None
    _head: bytes = b""
    """What is held back until the body comes."""
    _chunked: bool = False
    _left: int | None = None
    """Bytes that the body is still to have; None if nobody said."""

    # --- what the protocol calls -------------------------------------------------------------------------------------

    def start(self, app: ASGIApp, tasks: set[asyncio.Task[None]], loop: asyncio.AbstractEventLoop) -> None:
        """Have the app answer, in a task of the loop that is one of `tasks` as long as it takes."""
        self._task = task = loop.create_task(self._run(app, tasks))
        tasks.add(task)

    async def _run(self, app: ASGIApp, tasks: set[asyncio.Task[None]]) -> None:
        """Have the app answer. Whatever it does, the client is not left waiting."""
        scope, self.scope = self.scope, {}  # it has us in it, and would keep us
        scope[EXCHANGE] = self
        try:
            await app(scope, self.receive, self.send)
        except asyncio.CancelledError:
            # Only the end of the server cancels it. The log needs no traceback for that.
            logger.warning("%s %s was cut off: the server is stopping", scope["method"], scope["path"])
            self.leave()
            self.transport.close()
        except BaseException:
            logger.exception("%s %s has no whole answer", scope["method"], scope["path"])
            await self._give_up()
        else:
            if not self.response_complete and not self.disconnected:
                logger.error("%s %s has no whole answer", scope["method"], scope["path"])
                await self._give_up()
        finally:
            if self._task is not None:
                tasks.discard(self._task)
                self._task = None

    def leave(self) -> None:
        """Let the app know that the client is gone, and take no answer from it any more."""
        self.disconnected = True
        if self._waiters is not None:
            self._waiters.wake()
        if self.on_leave is not None:
            self.on_leave()

    def take(self, data: bytes) -> int:
        """Take a piece of the body; return how many bytes wait to be read."""
        if not self.body:
            self.body = data  # most bodies come in one piece, and need not be copied
        elif isinstance(self.body, bytearray):
            self.body += data
        else:
            self.body = bytearray(self.body) + data
        if self._waiters is not None:
            self._waiters.wake()
        return len(self.body)

    def end_body(self) -> None:
        """Take note that the body has come."""
        self.more_body = False
        if self._waiters is not None:
            self._waiters.wake()

    # --- what the app calls ------------------------------------------------------------------------------------------

    async def receive(self) -> Message:
        """Return the next piece of the body, or wait for it; after the last, wait for the client to leave."""
        if self.expects_continue and not self.disconnected and not self.transport.is_closing():
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.expects_continue = False
        if self.flow.read_paused and not self.disconnected and not self.response_complete:
            self.flow.resume_reading()
        while not (self.body or self.disconnected or self.response_complete or self._is_at_end()):
            await self._something()
        if self.disconnected or self.response_complete:
            return dict(_DISCONNECT)
        body, self.body = self.body or b"", b"" if self.more_body else None
        return {"type": "http.request", "body": bytes(body), "more_body": self.more_body}

    async def _something(self) -> None:
        """Wait until something has come, or nothing will."""
        self._waiters = self._waiters or Waiters()
        await self._waiters.join()

    def _is_at_end(self) -> bool:
        """Tell whether the body has come to its end, and the app does not know."""
        return self.body is not None and not self.more_body

    async def send(self, message: Message) -> None:
        """Send a part of the answer; wait while the client does not read."""
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        kind = message["type"]
        if not self.response_started:
            if kind != "http.response.start":
                raise RuntimeError(f"An answer begins with 'http.response.start', not with '{kind}'.")
            self._begin(message)
        elif self.response_complete:
            raise RuntimeError(f"The answer is complete; '{kind}' comes too late.")
        elif kind != "http.response.body":
            raise RuntimeError(f"An answer goes on with 'http.response.body', not with '{kind}'.")
        else:
            self._go_on(message.get("body", b""), more=message.get("more_body", False))

    def go_on_now(self, body: bytes) -> bool:
        """Send a piece of the body of an answer that has begun and does not end with it, unless there is more to it.

        Tell whether it was sent: if not, it is for `send`, which may have to wait, or to write something else before.
        """
        if not self._chunked or self._head or self.flow.write_paused or self.disconnected or self.response_complete:
            return False
        self.transport.write(b"%x\r\n%b\r\n" % (len(body), body))
        return True

    # --- how an answer is written ------------------------------------------------------------------------------------

    def _begin(self, message: Message) -> None:
        status: int = message["status"]
        if status < 200:
            raise UnsentAnswerError(f"{status} is no status of an answer.")
        lines = [STATUS_LINES[status], *self.default_lines]
        for name, value in message.get("headers", ()):
            start = _line_starts[name]
            if start not in _FRAMING or self._frames(start, value):
                lines.append(start + value)
        body: bytes | None = message.get(WHOLE_BODY)
        if body is not None:
            lines.append(b"content-length: %d" % len(body))
        elif self._is_chunked(status):
            lines.append(b"transfer-encoding: chunked")
        if self.expects_continue:  # its body was not asked for, and may come or not
            self.keep_alive = self.expects_continue = False
        if not self.keep_alive:
            lines.append(b"connection: close")
        text = b"".join(lines)
        if text.translate(_PLAIN) != text:
            raise UnsentAnswerError("An answer has a header whose value is none.")
        lines += (b"", b"")
        head = b"\r\n".join(lines)
        self.response_started = True
        if body is not None:
            self.transport.write(head if self.is_head else head + body)
            self._end()
        elif self._left is None and not message.get(BODY_FOLLOWS, False):
            self.transport.write(head)
        else:
            self._head = head

    def _is_chunked(self, status: int) -> bool:
        """Tell whether the end of an answer is marked by chunks, since nothing else tells it."""
        if status in _BODILESS:
            self._left = 0
        self._chunked = self._left is None and not self.is_old and not self.is_head
        return self._chunked

    def _frames(self, start: bytes, value: bytes) -> bool:
        """Take note of a header that says where the answer ends; tell whether to write it: we write the others."""
        if start == _LENGTH:
            if not value.isdigit():
                raise UnsentAnswerError("An answer has a Content-Length that is none.")
            self._left = int(value)
            return True
        if start == _CONNECTION and b"close" in map(bytes.strip, value.lower().split(b",")):
            self.keep_alive = False
        return False

    def _go_on(self, body: bytes, *, more: bool) -> None:
        if self._left is not None and not self.is_head and (more or len(body) != self._left):
            self._count(len(body), more=more)
        data = self._head
        if data:
            self._head = b""
        if self._chunked:
            end = b"" if more else b"0\r\n\r\n"
            data = b"".join((data, b"%x\r\n" % len(body), body, b"\r\n", end)) if body else data + end
        elif not self.is_head:
            data = data + body if data else body
        if data:
            self.transport.write(data)
        if not more:
            self._end()

    def _end(self) -> None:
        self.response_complete = True
        if self._waiters is not None:
            self._waiters.wake()
        if not self.keep_alive and not self.more_body:
            self.transport.close()
        self.on_end()

    def _count(self, size: int, *, more: bool) -> None:
        """Hold the body against the length that was announced."""
        left = (self._left or 0) - size
        if left < 0:
            raise self._wrong("The body of an answer is longer than its Content-Length, or than its status allows.")
        if more:
            self._left = left
        elif left:
            raise self._wrong("The body of an answer is shorter than its Content-Length.")

    def _wrong(self, message: str) -> RuntimeError:
        """Return the error for an answer that turns out wrong; what was held back of it is forgotten."""
        if not self._head:
            return RuntimeError(message)
        self._forget()
        return UnsentAnswerError(message)

    def _forget(self) -> None:
        self.response_started, self._head, self._left, self._chunked = False, b"", None, False

    async def _give_up(self) -> None:
        """Answer in place of the app, if nothing was sent; else all that is left is to end the connection."""
        if self.response_started and not self._head:
            self.transport.close()
            return
        self._forget()
        self.keep_alive = False
        text = b"Internal Server Error"
        headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"%d" % len(text))]
        await self.send({"type": "http.response.start", "status": 500, "headers": headers})
        await self.send({"type": "http.response.body", "body": text})
