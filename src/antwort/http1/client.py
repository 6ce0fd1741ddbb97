"""A small HTTP/1.1 client, made for what the hot path does: a POST to a server that is near, over a kept connection.

It does not do what is not needed there: redirects, cookies, asking for compression. Whatever a server sends is counted
as it comes: what does not end, be it interim answers, heads, trailers or what frames the content, ends the connection.
"""

import asyncio
import contextvars
import socket
import ssl
import zlib
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import TypeAlias, cast

import httptools
from typing_extensions import override

from antwort.concurrency.slots import Slots
from antwort.http1.proxies import Proxy
from antwort.http1.shared_bytes import MemoryFiles, SharedBytes

Parts: TypeAlias = Sequence[bytes | memoryview]
"""Bytes in parts that follow each other: what is sent often need not be copied each time."""

MAX_IDLE = 50.0
"""Seconds a connection is kept; servers close theirs after a minute or more."""
HIGH_WATER = 256 * 1024
"""Bytes that wait to be read before the server is made to pause."""
MANY_PIECES = 4096
"""Pieces that wait to be read before the same: each takes more memory than its bytes."""
SLICE = 512 * 1024
"""Bytes of a request that are sent before others get their turn."""
MAX_HEAD = 64 * 1024
"""Bytes of an answer's head, and between two pieces of its content."""
AT_ONCE = 32 * 1024
"""Bytes that are handed over in one piece; with more, others have their turn before."""
MAX_INTERIM = 32
"""Interim answers (1xx) before the real one."""
MAX_PIECE = 256 * 1024
"""Bytes that are unpacked at a time."""
KEEP_ALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}
"""Seconds of silence until the other side is asked whether it is there, seconds between two tries, and their number."""


class ClosedError(OSError):
    """The server closed the connection before its answer ended."""


class ConnectTimeoutError(TimeoutError):
    """No connection came about in time."""


class BusyError(Exception):
    """All connections were in use for too long."""


class ProtocolError(ValueError):
    """What came back is not HTTP."""


class TooLongError(ValueError):
    """A head, or what stands between two pieces of the content, does not end."""


class Unpacker:
    """Undoes the compression of a server that compresses unasked, a piece at a time: a little may become very much.

    What is left of it for the next piece is its `rest`. What breaks off is `cut`, until more comes.
    """

    __slots__ = ("_inflate", "cut", "rest")

    def __init__(self) -> None:
        self._inflate: zlib._Decompress | None = None
        self.cut = False
        self.rest = b""

    @classmethod
    def of(cls, headers: Mapping[str, str]) -> "Unpacker | None":
        """Return one for an answer that is compressed."""
        packed = headers.get("content-encoding", "identity").strip().lower() in {"gzip", "deflate", "x-gzip"}
        return cls() if packed else None

    def piece(self, data: bytes) -> bytes:
        """Return the next piece of what follows; a ValueError if it is not what it says."""
        inflate = self._inflate or _inflating(data)
        try:
            plain = inflate.decompress(data, MAX_PIECE)
        except zlib.error as error:
            raise ValueError(str(error)) from None
        self.cut = not inflate.eof
        self._inflate = inflate if self.cut else None  # some pack each piece by itself
        self.rest = inflate.unused_data or inflate.unconsumed_tail
        return plain


def _inflating(begin: bytes) -> "zlib._Decompress":
    # `deflate` should have a zlib header; some servers send it bare.
    is_bare = begin[:1] not in {b"\x1f", b"\x78"}
    return zlib.decompressobj(-zlib.MAX_WBITS if is_bare else zlib.MAX_WBITS | 32)


class Http1Connection(asyncio.Protocol):
    """One connection, used for one exchange after the other. The parser calls its `on_…` methods.

    Whoever has asked on it has the answer on it, reads that to the end or not, and ends it once by `abort`.
    """

    transport: asyncio.Transport
    """There from the moment it is connected, before which nobody gets it."""

    def __init__(self, client: "Http1Client") -> None:
        self._client = client
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpResponseParser(self)
        self.idle_since = 0.0
        """When it was last kept; 0 for one that is new."""
        self.tenant: str | None = None
        """For whom it is in use; None if it is not."""
        self._body: list[bytes] = []
        self._size = 0
        self._paused = False
        self._full = False
        self._unsent = False
        self.error: Exception | None = None
        """Why nothing more is to be expected on it, although it may not be closed yet."""
        self._handle: int | None = None
        """The system's own name for the connection, unless what is sent has to be encrypted."""
        self._waiter: asyncio.Future[None] | None = None
        self._taker: Callable[[bytes], bool] | None = None
        """Gets what comes at once, instead of whoever waits."""
        self._context: contextvars.Context | None = None
        """The context in which it is called."""
        self._room = 0
        """Bytes that it may still get."""
        self._silence = 0.0
        self._heard = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self.begin(None)
        self.complete = True  # nobody has asked yet

    def begin(self, silence: float | None) -> None:
        """Get ready for the next exchange; a connection that is kept has nothing else left of the last one."""
        self.status = 0
        """That of the answer, as soon as its head is there."""
        self.headers: dict[str, str] = {}
        self.complete = False
        self._reusable = False
        """Whether the answer has ended, and the connection is still good for another."""
        self._unpacker: Unpacker | None = None
        self._interim = 0
        self.received = 0
        """All bytes that came, with what frames the content."""
        self._with_content = 0
        """Those that had come with the last of the content."""
        if silence is not None:
            self.limit_silence(silence)

    # --- what asyncio calls ------------------------------------------------------------------------------------------

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is none by inheritance
        opened: socket.socket = transport.get_extra_info("socket")
        self._handle = opened.fileno() if transport.get_extra_info("sslcontext") is None else None

    @override
    def data_received(self, data: bytes) -> None:
        if self._timer is not None:
            self._heard = self._loop.time()
        self.received += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade, UnicodeDecodeError) as error:
            self._fail(self._excess() if self._has_long_head() else ProtocolError(str(error)))
            return
        if not self.complete and self.received - self._with_content > self._client.max_head:
            # The parser keeps what it has not understood to the end: a head, a trailer, whatever a chunk begins with.
            self._fail(self._excess())
            return
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            if self._context is None or self._taker is None:
                waiter.set_result(None)
            elif self._size or self.complete:
                self._hand_over(self._context, self._taker, waiter)
        elif (self._size > HIGH_WATER or len(self._body) > MANY_PIECES) and not self._paused:
            self._paused = True
            self.transport.pause_reading()

    @override
    def pause_writing(self) -> None:
        self._full = True

    @override
    def resume_writing(self) -> None:
        self._full = False
        self._heard = self._loop.time()  # who reads is alive
        self._wake()

    @override
    def eof_received(self) -> bool:
        return False

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._reusable = False
        self._client.forget(self)
        ended = exc is None and self.error is None
        if ended and self.status and not {"content-length", "transfer-encoding"} & self.headers.keys():
            self.complete = True  # an answer without a length ends with the connection
        self.error = self.error or ClosedError(str(exc or "closed"))
        del self._parser  # each has the other, and would keep it
        self._wake()

    # --- what the parser calls ---------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """End a connection on which an answer begins that nobody has asked for: the next would be the rest of it."""
        if self.complete:
            raise ProtocolError("an answer that nobody has asked for")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; what stands behind the content is none."""
        if not self.status:
            self.headers[name.lower().decode()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """Take note that the head is there."""
        if self.received - self._with_content > self._client.max_head and self._has_long_head():
            raise self._excess()
        status = self._parser.get_status_code()
        if status < 200:  # an interim answer; the real one follows
            self.headers.clear()
            self._interim += 1
            if self._interim > MAX_INTERIM:
                raise ProtocolError(f"more than {MAX_INTERIM} interim answers")
            return
        self.status = status
        if "content-encoding" in self.headers:
            self._unpacker = Unpacker.of(self.headers)

    def on_body(self, data: bytes) -> None:
        """Take a piece of the content."""
        self._with_content = self.received
        self._body.append(data)
        self._size += len(data)

    def on_message_complete(self) -> None:
        """Take note of the end of an answer, or of one before it."""
        if self.status:
            self.complete = True
            self._reusable = self._parser.should_keep_alive()

    # --- what the client calls ---------------------------------------------------------------------------------------

    def limit_silence(self, seconds: float) -> None:
        """Let the server be silent for so long; one timer looks after it, whatever comes."""
        self.rest()
        self._silence = seconds
        self._heard = self._loop.time()
        self._timer = self._loop.call_later(seconds, self._check_silence)

    def _check_silence(self) -> None:
        left = self._heard + self._silence - self._loop.time()
        if self._paused or left > 0:
            # While we do not read, silence is not the server's.
            wait = self._silence if self._paused else max(left, 0.01)
            self._timer = self._loop.call_later(wait, self._check_silence)
            return
        self._timer = None
        self._fail(TimeoutError("silent for too long"))

    async def send(self, request: Parts) -> None:
        """Send a request in parts, a large one in slices, as fast as the server reads: no step of it takes long.

        A server that answers before it has read all has heard enough.
        """
        if isinstance(request[-1], SharedBytes):
            request = self._send_shared(request[:-1], request[-1])
            if not request:
                return
        if sum(map(len, request)) <= SLICE:
            self.transport.writelines(request)
            return
        self._unsent = True  # whoever is cancelled meanwhile leaves half a request behind
        for part in request:
            view = memoryview(part)
            for start in range(0, len(view), SLICE):
                while self._full and not self.begun:
                    await self.news()
                if self.begun:
                    return
                if self.error is not None:  # uvloop's transport raises something else when it is closed
                    raise self.error
                self.transport.write(view[start : start + SLICE])
                await asyncio.sleep(0)
        self._unsent = False

    def _send_shared(self, first: Parts, shared: SharedBytes) -> Parts:
        """Let the system send at once what it can of a request whose end others have as well; return the rest.

        That goes past the transport, which has to be open and to have nothing to send itself.
        """
        transport, begin = self.transport, b"".join(first)
        size = len(begin)
        if self._handle is None or size > MAX_HEAD or transport.is_closing() or transport.get_write_buffer_size():
            return [begin, shared]
        taken = shared.send(self._handle, after=begin, most=SLICE, files=self._client.files)
        if taken == size + len(shared):
            return ()
        return [memoryview(begin)[taken:], memoryview(shared)[max(taken - size, 0) :]]

    @property
    def begun(self) -> bool:
        """Whether anything of the answer is there."""
        return self.received > 0

    @property
    def is_read(self) -> bool:
        """Whether the answer has ended, and all of it was read."""
        return self.complete and not self._body and (self._unpacker is None or not self._unpacker.rest)

    @property
    def is_cut(self) -> bool:
        """Whether what was read of a compressed answer is not whole."""
        return self._unpacker is not None and self._unpacker.cut

    def whole(self, most: int) -> bytes | None:
        """Return what was not read yet, if it has ended, is at most so many bytes, and need not be unpacked."""
        if self.complete and self._size <= most and self._unpacker is None:
            return self._taken()
        return None

    async def chunk(self) -> bytes:
        """Return what arrived since the last call, or wait for it; empty at the end."""
        unpacker, nothing = self._unpacker, 0
        while True:
            while not self._body and (unpacker is None or not unpacker.rest):
                if self.complete:
                    return b""
                await self.news()
            if unpacker is None:
                return self._taken()
            data = unpacker.rest or self._taken()  # no more is read from the server before that
            plain = self._unpacked(unpacker, data)
            await asyncio.sleep(0)  # there may be much more of it at once, be it of what becomes nothing
            if plain:
                return plain
            nothing += len(data) - len(unpacker.rest)
            if nothing > self._client.max_head:  # it stands between two pieces of the content, as much else can
                raise self._excess()

    async def hand_over(self, taker: Callable[[bytes], bool], room: int) -> int:
        """Give what arrives to a function, as it arrives, until it wants no more; return how many bytes that was.

        It is over, too, as soon as there is something for `chunk`: the end, a failure, what has to be unpacked, much at
        once, or more than `room`. The function is called by the event loop itself, in the context of whoever waits
        here: who reads many small pieces saves a turn of the loop and a change of tasks for each. What it raises is
        raised here.
        """
        if self._body or self.complete or self.error is not None or self._unpacker is not None:
            return 0
        waiter = self.news()
        self._taker, self._room, self._context = taker, room, contextvars.copy_context()
        try:
            await waiter
        finally:
            self._taker = self._waiter = self._context = None  # they have the stream
        return room - self._room

    def _hand_over(
        self, context: contextvars.Context, taker: Callable[[bytes], bool], waiter: "asyncio.Future[None]"
    ) -> None:
        size = self._size
        if not 0 < size <= AT_ONCE or size > self._room:
            waiter.set_result(None)
            return
        self._room -= size
        try:
            wants_more = context.run(taker, self._taken())
        except BaseException as error:  # noqa: BLE001 - it is raised where the stream is waited for
            waiter.set_exception(error)
        else:
            if not wants_more or self.complete:
                waiter.set_result(None)

    def _taken(self) -> bytes:
        data = b"".join(self._body)  # no copy of a single one
        self._body = []
        self._size = 0
        if self._paused:
            self._paused = False
            self._heard = self._loop.time()
            self.transport.resume_reading()
        return data

    def _unpacked(self, unpacker: Unpacker, data: bytes) -> bytes:
        try:
            return unpacker.piece(data)
        except ValueError as error:
            raise ProtocolError(str(error)) from None

    def rest(self) -> None:
        """Stop watching for silence."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def abort(self) -> None:
        """End the exchange: a connection whose answer was read to its end is kept, any other is closed."""
        if self._timer is not None:
            self.rest()
        unpacker = self._unpacker
        if self._reusable and not self._body and not self._unsent and (unpacker is None or not unpacker.rest):
            self._client.keep(self)
        else:
            self.transport.abort()
            if self.error is not None:
                self.error = ClosedError("ended")  # one that was raised has the frames that have us
        tenant = self.tenant
        if tenant is not None:
            self.tenant = None
            self._client.slots.give_back(tenant)

    def news(self) -> asyncio.Future[None]:
        """Return what is done when something has happened; no coroutine, as one would cost as much again."""
        if self.error is not None:
            raise self.error
        self._waiter = self._loop.create_future()
        return self._waiter

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _has_long_head(self) -> bool:
        """Tell whether there are more bytes of headers than there may be."""
        return sum(map(len, (*self.headers, *self.headers.values()))) > self._client.max_head

    def _excess(self) -> TooLongError:
        return TooLongError(f"more than {self._client.max_head:,} bytes")

    def _fail(self, error: Exception) -> None:
        self.error = self.error or error
        self._reusable = False
        self.transport.abort()
        self._wake()


class Http1Client:
    """Connections to one server. They are opened when needed, and kept.

    `server_hostname` is the name that a certificate is to have, if the host is an address that was looked up before.
    With a proxy, requests to a server without TLS name the whole URL.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        tls: bool,
        limit: int,
        patience: float | None = None,
        max_head: int = MAX_HEAD,
        context: ssl.SSLContext | None = None,
        server_hostname: str | None = None,
        slots: Slots | None = None,
        proxy: Proxy | None = None,
    ) -> None:
        self.max_head = max_head
        self._patience = patience
        self._host = host
        self._port = port
        self._tls = tls
        self._context = context
        self._server_hostname = server_hostname or host
        self._proxy = proxy
        self.slots = Slots(limit) if slots is None else slots
        self.files = MemoryFiles()
        self.idle: list[Http1Connection] = []
        """Connections that are kept for the next exchange; those used last are at the end, and taken first."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._shrinking: asyncio.TimerHandle | None = None

    async def exchange(
        self,
        request: bytes | Parts,
        connect_timeout: float,
        silence: float | None,
        tenant: str = "",
        *,
        repeatable: bool = True,
    ) -> Http1Connection:
        """Send a request, head and body, and return the answer as soon as its head is there.

        A kept connection that the server closed in the very moment is replaced: nothing was answered on it. The server
        may have read the request all the same, so one that is not `repeatable` is not sent a second time. If all
        connections are in use for longer than the patience, that is a BusyError.
        """
        if not self.slots.take(tenant):
            await wait_for_slot(self.slots, self._patience, tenant)
        connection: Http1Connection | None = None
        try:
            while True:
                connection = self._idle_connection() or await self._connect(connect_timeout)
                connection.tenant = tenant
                connection.begin(silence)
                try:
                    if isinstance(request, bytes) and len(request) <= SLICE:
                        connection.transport.write(request)
                    else:
                        await connection.send((request,) if isinstance(request, bytes) else request)
                    while not connection.status:
                        await connection.news()
                except ClosedError:
                    if not connection.idle_since or connection.begun or not repeatable:
                        raise
                    connection.rest()
                    continue
                return connection
        except BaseException:
            if connection is not None:
                connection.abort()
            else:
                self.slots.release(tenant)
            raise

    def keep(self, connection: Http1Connection) -> None:
        """Keep a connection for the next exchange, for a while; none whose exchange ends after all were closed."""
        if self._loop is None:
            connection.transport.abort()
            return
        connection.idle_since = monotonic()
        self.idle.append(connection)
        if self._shrinking is None:
            self._shrinking = self._loop.call_later(MAX_IDLE, self._shrink, self._loop)

    def _shrink(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close connections that nobody has needed for long."""
        oldest = monotonic() - MAX_IDLE
        while self.idle and self.idle[0].idle_since <= oldest:
            self.idle.pop(0).transport.abort()
        left = self.idle[0].idle_since - oldest if self.idle else 0.0
        self._shrinking = loop.call_later(left, self._shrink, loop) if self.idle else None

    def _idle_connection(self) -> Http1Connection | None:
        """Return an idle connection that has not rested so long that the server may be about to close it."""
        idle = self.idle
        oldest = monotonic() - MAX_IDLE
        while idle:
            connection = idle.pop()
            if connection.idle_since >= oldest and connection.error is None:
                return connection
            connection.transport.abort()
        return None

    async def _connect(self, seconds: float) -> Http1Connection:
        self._loop = asyncio.get_running_loop()
        clock = asyncio.timeout(seconds)
        try:
            async with clock:
                connection = await self._open()
        except TimeoutError:
            if clock.expired():
                raise ConnectTimeoutError from None
            raise
        try:
            _keep_alive(connection)
        except OSError:  # some systems say so if the server is gone already
            connection.transport.abort()
            raise
        return connection

    async def _open(self) -> Http1Connection:
        if self._tls and self._context is None:  # all authorities are read for it, which takes long
            self._context = await asyncio.to_thread(ssl.create_default_context)
        context = self._context if self._tls else None
        if self._proxy is not None:
            return await self._proxy.open(lambda: Http1Connection(self), self._host, self._port, context)
        name = self._server_hostname if self._tls else None
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: Http1Connection(self), self._host, self._port, ssl=context, server_hostname=name
        )
        return connection

    def forget(self, connection: Http1Connection) -> None:
        """Drop a connection that was closed."""
        if connection in self.idle:
            self.idle.remove(connection)

    async def close(self) -> None:
        """Close the idle connections; the others are closed with their exchanges.

        There is nothing left to be said on them, so nobody waits for a server to take its leave, as TLS would.
        """
        if self._shrinking is not None:
            self._shrinking.cancel()
        self._loop = self._shrinking = None
        if self.idle:
            for connection in self.idle:
                connection.transport.abort()
            self.idle.clear()
            await asyncio.sleep(0)  # with the next turn of the loop they are closed


async def wait_for_slot(slots: Slots, patience: float | None, tenant: str) -> None:
    """Take the slot of a connection when one is free; BusyError if none was for longer than the patience."""
    try:
        await slots.acquire(tenant, patience)
    except TimeoutError:
        raise BusyError from None


def _keep_alive(connection: Http1Connection) -> None:
    """Have the system notice a server that is gone without a word: an answer may be waited for as long as it takes."""
    opened: socket.socket = connection.transport.get_extra_info("socket")
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in KEEP_ALIVE.items():
        if hasattr(socket, option):  # not every system has them all
            opened.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
