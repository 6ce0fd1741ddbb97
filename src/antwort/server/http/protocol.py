"""HTTP/1.1 on a socket, with a limit for whatever a client can send, and for how long."""

import asyncio
import contextvars
import functools
import logging
import urllib.parse
from typing import TYPE_CHECKING

import httptools
from typing_extensions import override

from antwort.errors import (
    APIError,
    BadRequestError,
    HeadersTooLargeError,
    MethodNotAllowedError,
    PathTooLongError,
    RequestTimeoutError,
    ServiceUnavailableError,
    UnknownCodingError,
)
from antwort.lazy_imports import imported_on_use
from antwort.server.http.client_connections import NO_ROOM, CommonState
from antwort.server.http.exchange import HIGH_WATER_LIMIT, STATUS_LINES, Exchange, FlowControl
from antwort.web.answers import error_response
from antwort.web.requests import HEADERS


def new_parser(protocol: asyncio.Protocol) -> httptools.HttpRequestParser:
    """Return a parser that calls the `on_…` methods of a protocol."""
    parser = httptools.HttpRequestParser(protocol)
    # A client may go on sending after its last request: that one is answered all the same.
    parser.set_dangerous_leniencies(lenient_data_after_close=True)
    return parser


@functools.lru_cache(maxsize=256)  # most requests are to a few URLs
def located(url: bytes) -> tuple[str, bytes, bytes]:
    """Return the path that a URL has, as it is meant and as it is written, and its query."""
    parsed = httptools.parse_url(url)
    path = parsed.path.decode("ascii")
    return urllib.parse.unquote(path) if "%" in path else path, parsed.path, parsed.query or b""


def written_head(method: bytes, url: bytes, version: str, headers: list[tuple[bytes, bytes]]) -> bytes:
    """Return the head of a request as clients write it."""
    first = b"%s %s HTTP/%s" % (method, url, version.encode())
    return b"\r\n".join([first, *(b"%s: %s" % header for header in headers), b"", b""])


def codings_of(headers: list[tuple[bytes, bytes]]) -> list[bytes]:
    """Return the transfer codings of a body in order; lines of one name are one list, as RFC 9110 has it."""
    return _tokens(headers, b"transfer-encoding")


def wants_websocket(headers: list[tuple[bytes, bytes]]) -> bool:
    """Tell whether the protocol that a client offers is that of WebSockets."""
    return b"upgrade" in _tokens(headers, b"connection") and _tokens(headers, b"upgrade") == [b"websocket"]


def _tokens(headers: list[tuple[bytes, bytes]], name: bytes) -> list[bytes]:
    """Return the elements of a header that is a list, in small letters; empty ones, which count for nothing, too."""
    values = b",".join(value for key, value in headers if key == name)
    return [token.strip(b" \t") for token in values.lower().split(b",")]


def ends_of(transport: asyncio.Transport) -> tuple[tuple[str, int] | None, tuple[str, int] | None]:
    """Return the address of the server and that of the client; None if the client is gone already."""
    sock = transport.get_extra_info("socket")
    try:
        return sock.getsockname()[:2], sock.getpeername()[:2]
    except OSError:
        return None, None


if TYPE_CHECKING:
    from antwort.server.sockets import protocol as websocket
else:  # it brings a library, for the first client that wants a WebSocket
    websocket = imported_on_use("antwort.server.sockets.protocol")

logger = logging.getLogger(__name__)
SLICE = 32 * 1024
"""Bytes that the parser gets at once: what it finds in them is counted afterwards."""
PIPELINED = 16
"""Requests of a connection that wait for the answers before theirs."""
BETWEEN_CHUNKS = 4
"""How many times larger than what stands between its chunks a body must be, once that is as much as a head may be."""
DISCARDED = 1024**2
"""Bytes of a refused body that are taken beyond twice the largest one: most clients read when they have sent it all."""
OFFERS = (b"upgrade", b"http2-settings")
"""Headers, and tokens of `Connection`, by which a client offers another protocol."""
_ASGI = {"version": "3.0", "spec_version": "2.3"}
CLOSE_TIMEOUT = 2.0
"""Seconds in which the client of a connection that ends can take note of the answer, while it is still sending."""


class _RefusedError(Exception):
    """Stops the parser; the error is for the client."""

    def __init__(self, error: APIError) -> None:
        super().__init__(error.message)
        self.error = error


class HttpProtocol(asyncio.Protocol):
    """One connection. Refusals before there is a request for the app are written here, in the envelope of its path.

    What is counted, and when: the parser gets a slice at a time, and between two of them a head that is not complete
    may not have grown beyond its limits. A head that came in one small slice, as nearly all do, costs nothing more.
    """

    __slots__ = (
        "_between",
        "_body",
        "_body_since",
        "_client",
        "_connections",
        "_context",
        "_deaf",
        "_flow",
        "_headers",
        "_in_body",
        "_in_head",
        "_inside",
        "_is_refused",
        "_last",
        "_least",
        "_limits",
        "_loop",
        "_max_body",
        "_parser",
        "_pipelined",
        "_running",
        "_server",
        "_span",
        "_state",
        "_unsent",
        "_unsent_since",
        "_url",
        "address",
        "transport",
    )
    transport: asyncio.Transport
    _flow: FlowControl
    _context: contextvars.Context
    _loop: asyncio.AbstractEventLoop
    _server: tuple[str, int] | None
    _client: tuple[str, int] | None

    def __init__(self, state: CommonState, is_refused: bool = False) -> None:
        """Take whether the connection is one too many."""
        limits = state.settings.connections
        self._state = state
        self._is_refused = is_refused
        self._connections = state.watch
        self._limits = limits
        self._max_body = int(state.settings.max_body_bytes)
        self._least = min(limits.max_header_bytes, limits.max_head_bytes)
        self._parser = new_parser(self)
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._deaf = False
        """Whether whatever else comes is thrown away."""
        self._last: Exchange | None = None
        """The exchange that began last, whose body may be coming."""
        self._running: Exchange | None = None
        self._pipelined: list[Exchange] = []
        """Those that wait for the answers before theirs."""
        self._in_head = False
        self._in_body = False
        self._span = 0
        """Bytes of the slices in which the head stands; it is no larger."""
        self._inside = 0
        """Bytes of the slices that have nothing but the head."""
        self._between = 0
        """Bytes of what stands between the chunks of the body, and behind them."""
        self._body = 0
        self._body_since = 0.0
        self._unsent = 0
        self._unsent_since = 0.0
        self.address = ""

    # --- the life of a connection ------------------------------------------------------------------------------------

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._state.connections.add(self)
        self.transport = transport
        self._flow = FlowControl(transport)
        self._context = contextvars.copy_context()
        self._loop = asyncio.get_running_loop()  # to ask for it is a system call
        self._server, self._client = ends_of(transport)
        self.address = self._client[0] if self._client else ""
        if self._is_refused:
            message = "The server has as many connections as it takes (server.connections.max_open). Try again."
            again = {"retry-after": "1"}
            self._connections.notice(NO_ROOM, self)
            self._answer_last(ServiceUnavailableError(message, code="too_many_connections", headers=again))
        else:
            self._connections.admit(self)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._state.connections.discard(self)
        self._connections.note_gone(self)
        self._deaf = True
        self._flow.resume_writing()
        del self._parser  # each has the other, and would keep it
        for waiting in self._pipelined:
            waiting.disconnected = True
        if self._running is not None and not self._running.response_complete:
            self._running.leave()
        self._last = self._running = None  # they tell us when they end, and would keep us

    @override
    def pause_writing(self) -> None:
        self._flow.pause_writing()

    @override
    def resume_writing(self) -> None:
        self._flow.resume_writing()

    def shutdown(self) -> None:
        """End the connection, or let the request that came last be the last."""
        last = self._last
        if last is None or last.response_complete:
            self.transport.close()
        else:
            last.keep_alive = False

    def _become_websocket(self) -> None:
        """Leave the connection to another protocol, which is told the request anew."""
        self._deaf = True  # what came behind the handshake is for nobody: clients wait for the answer to it
        self._connections.forget(self)
        self._state.connections.discard(self)
        protocol = websocket.WebSocketProtocol(self._state)
        protocol.connection_made(self.transport)
        protocol.data_received(written_head(self._parser.get_method(), self._url, "1.1", self._headers))
        self.transport.set_protocol(protocol)
        if refusal := protocol.refusal():
            # The library for WebSockets has limits of its own, too, and leaves a connection beyond them open.
            self._write(refusal)
            self.transport.close()

    def _on_answered(self) -> None:
        """Go on after an answer: with the next request that waits, or with those that may come."""
        if self.transport.is_closing():
            return
        if self._flow.read_paused:
            self._flow.resume_reading()
        if self._pipelined:
            # Not in the context of the request that is over here, which names its tenant and its trace.
            self._context.run(self._start, self._pipelined.pop(0))
        elif self._in_body:  # what is left of the body is of no use, but its client may read nothing before it is sent
            if self._last is not None and not self._last.keep_alive:
                self.transport.write_eof()
            self._connections.let_go(self, self._limits.body_timeout)
        else:
            self._connections.note_rest(self)

    def _start(self, exchange: Exchange) -> None:
        self._running = exchange
        exchange.start(self._state.app, self._state.tasks, self._loop)

    # --- what comes in -----------------------------------------------------------------------------------------------

    @override
    def data_received(self, data: bytes) -> None:
        size = len(data)
        if size > SLICE:
            for start in range(0, size, SLICE):
                self.data_received(data[start : start + SLICE])
            return
        if self._deaf:
            return
        in_head, in_body, last, body = self._in_head, self._in_body, self._last, self._body
        self._span = self._span + size if in_head else size
        try:
            self._parser.feed_data(data)
            if self._in_head:
                self._check_open_head(size if in_head else 0)
            elif in_body and self._in_body and self._last is last:
                self._check_open_body(size - (self._body - body))
        except httptools.HttpParserUpgrade as offer:
            self._upgrade(data[offer.args[0] :])
        except httptools.HttpParserError as error:
            cause = error.__context__
            self._refuse(cause.error if isinstance(cause, _RefusedError) else _no_http())
        except _RefusedError as refusal:
            self._refuse(refusal.error)

    def _check_open_head(self, size: int) -> None:
        """Look at what there is of a head; size is that of a slice with nothing else in it."""
        self._connections.note_head(self)
        self._inside += size
        if self._inside > self._limits.max_head_bytes:
            raise _RefusedError(self._too_large())
        self._check_headers(self._headers)

    def _check_open_body(self, between: int) -> None:
        """Look at what stands between the chunks of a body, and behind them: sizes, extensions, trailers."""
        self._between += between
        if len(self._headers) > self._limits.max_headers:
            raise _RefusedError(self._too_many())
        if self._between > self._limits.max_head_bytes + self._body // BETWEEN_CHUNKS:
            message = "There is too much between the chunks of the body, and behind them. Send larger chunks."
            raise _RefusedError(BadRequestError(message, code="chunks_too_small"))

    def _check_headers(self, headers: list[tuple[bytes, bytes]]) -> None:
        limits = self._limits
        if len(headers) > limits.max_headers:
            raise _RefusedError(self._too_many())
        sizes = [len(name) + len(value) for name, value in headers]
        if sizes and (max(sizes) > limits.max_header_bytes or sum(sizes) > limits.max_head_bytes):
            raise _RefusedError(self._too_large())

    # The parser calls what begins with `on_`.

    def on_message_begin(self) -> None:
        """Take note that a request begins."""
        self._url = b""
        self._headers = []
        self._in_head = True
        self._inside = 0

    def on_url(self, url: bytes) -> None:
        """Take a piece of the URL."""
        self._url += url
        if len(self._url) > self._limits.max_request_line:
            most = self._limits.max_request_line
            raise _RefusedError(
                PathTooLongError(
                    f"The path with its query is longer than {most:,} bytes (server.connections.max_request_line)."
                )
            )

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header, or a trailer."""
        self._headers.append((name.lower(), value.rstrip(b" \t")))  # blanks around a value are not part of it

    def on_headers_complete(self) -> None:
        """Have the request answered, or let it wait for the answers before its own."""
        headers = self._headers
        if self._span > self._least or len(headers) > self._limits.max_headers:
            self._check_headers(headers)
        parser = self._parser
        method, version = parser.get_method().decode("ascii"), parser.get_http_version()
        self._in_head = False
        if parser.should_upgrade():  # goes on in `_upgrade`
            return
        self._headers = []  # trailers do not belong to the headers: clients could add to what was checked
        path, raw_path, query = located(self._url)
        named = dict(headers)
        if b"transfer-encoding" in named and codings_of(headers) != [b"chunked"]:
            raise _RefusedError(UnknownCodingError("The only transfer coding that is known here is `chunked`."))
        is_old = version == "1.0"
        exchange = Exchange(
            {
                "type": "http",
                "asgi": _ASGI,
                "http_version": version,
                "server": self._server,
                "client": self._client,
                "scheme": "http",
                "root_path": "",
                "method": method,
                "path": path,
                "raw_path": raw_path,
                "query_string": query,
                "headers": headers,
                HEADERS: named,
            },
            self.transport,
            self._flow,
            self._state.default_lines,
            self._on_answered,
            is_head=method == "HEAD",
            is_old=is_old,
            keep_alive=not is_old and parser.should_keep_alive(),
            expects_continue=not is_old and b"expect" in named and named[b"expect"].lower() == b"100-continue",
        )
        before = self._running
        if before is None or before.response_complete:
            self._connections.note_request(self)
            self._start(exchange)
        else:
            self._let_wait(exchange)
        self._last, self._in_body = exchange, True
        self._between = self._body = 0
        self._body_since = self._connections.clock()

    def _let_wait(self, exchange: Exchange) -> None:
        """Let a request wait for the answers before its own."""
        if len(self._pipelined) >= PIPELINED:
            raise _RefusedError(
                BadRequestError("Too many requests at once on one connection.", code="too_many_pipelined")
            )
        self._flow.pause_reading()
        self._pipelined.append(exchange)

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body, or throw it away if nobody wants it any more."""
        exchange = self._last
        self._body += len(body)
        if exchange is None or exchange.response_complete or exchange.disconnected:
            if self._body > 2 * self._max_body + DISCARDED:
                self._deaf = True
                self.transport.abort()
        elif exchange.take(body) > HIGH_WATER_LIMIT:
            self._flow.pause_reading()

    def on_message_complete(self) -> None:
        """Take note that the request has come."""
        exchange = self._last
        if self._in_head or not self._in_body or exchange is None:  # an upgrade
            return
        self._in_body = False
        if exchange.response_complete:
            if not exchange.keep_alive:
                self.transport.close()
            elif not self.transport.is_closing():
                self._connections.note_rest(self)
            return
        exchange.end_body()

    # --- refusals ----------------------------------------------------------------------------------------------------

    def too_late(self) -> None:
        """End a connection on which the head of a request has not come in time."""
        if self._in_head:
            seconds = self._limits.head_timeout
            self._refuse(
                RequestTimeoutError(
                    f"The headers have not come within {seconds:g} seconds (server.connections.head_timeout)."
                )
            )
        else:
            self._connections.let_go(self, CLOSE_TIMEOUT)
            self.transport.close()

    def find_stall(self, now: float, elapsed: float) -> str | None:
        """End a connection whose client neither sends nor reads, and tell which; `elapsed` since the last look."""
        limits = self._limits
        if self._in_body:
            if self._flow.read_paused:  # it is not the client who is slow
                self._body_since += elapsed
            elif now - self._body_since > limits.body_timeout + self._body / limits.body_rate:
                self._refuse(RequestTimeoutError("The body has come too slowly (server.connections.body_timeout)."))
                return "whose bodies came too slowly (server.connections.body_timeout)"
        if not self._flow.write_paused and not self.transport.is_closing():
            self._unsent = 0
            return None
        unsent = self.transport.get_write_buffer_size()
        if unsent != self._unsent:
            self._unsent, self._unsent_since = unsent, now
        elif unsent and now - self._unsent_since > limits.write_timeout:  # with nothing left, it is about to be closed
            self.transport.abort()
            return "that read nothing of their answers (server.connections.write_timeout)"
        return None

    def _upgrade(self, rest: bytes) -> None:
        """Go on with a request that offers another protocol; `rest` is what came after its head."""
        if self._parser.get_method() == b"CONNECT":  # to the parser an offer by itself, whatever its headers say
            self._refuse(MethodNotAllowedError("CONNECT is not possible here: this server is no proxy."))
        elif not wants_websocket(self._headers):
            self._decline_upgrade(rest)
        elif self._running is None or self._running.response_complete:
            self._become_websocket()
        else:
            self._stop_listening()

    def _decline_upgrade(self, rest: bytes) -> None:
        """Read a request again without its offer, such as `Upgrade: h2c`: with it, the parser leaves out the body."""
        headers: list[tuple[bytes, bytes]] = []
        for name, value in self._headers:
            if name == b"connection":
                tokens = [token for token in value.split(b",") if token.strip().lower() not in OFFERS]
                headers += [(name, b",".join(tokens))] if tokens else []
            elif name not in OFFERS:
                headers.append((name, value))
        head = written_head(self._parser.get_method(), self._url, self._parser.get_http_version(), headers)
        self._parser = new_parser(self)
        self.data_received(head)
        if rest:
            self.data_received(rest)

    def _refuse(self, error: APIError) -> None:
        """Answer in place of the app, if no other answer is under way, and take nothing more from the client."""
        self._connections.notice(f"refused %d requests with {error.status} ({error.code})", self)
        last, running = self._last, self._running
        if not self._in_body:
            if running is not None and not running.response_complete:
                self._stop_listening()
                return
        elif last is not running:
            self._in_body = False  # nobody waits for the rest of it: it cannot be late a second time
            self._pipelined.pop()
            self._stop_listening()
            return
        elif last is not None:
            begun = last.response_started
            last.leave()
            if begun:
                self._deaf = True
                self.transport.abort()
                return
        self._answer_last(error)

    def _answer_last(self, error: APIError) -> None:
        """Answer in place of the app, and take nothing more."""
        self._deaf = True
        self._write(error)
        # A client that is still sending would lose the answer if the connection were closed at once.
        self.transport.write_eof()
        self._connections.let_go(self, CLOSE_TIMEOUT)
        self._flow.resume_reading()

    def _stop_listening(self) -> None:
        """Let the last of the requests that were taken be the last of all."""
        self._deaf = True
        last = self._pipelined[-1] if self._pipelined else self._running
        if last is not None:
            last.keep_alive = False

    def _write(self, error: APIError) -> None:
        answer = error_response(error, self._url.decode("latin-1"))  # as much of it as there is
        lines = (
            STATUS_LINES[answer.status_code],
            *self._state.default_lines,
            *(b"%s: %s" % (name.encode(), value.encode()) for name, value in error.headers.items()),
            b"content-type: application/json",
            b"content-length: %d" % len(answer.body),
            b"connection: close",
        )
        self.transport.write(b"\r\n".join((*lines, b"", answer.body)))

    def _too_many(self) -> APIError:
        return HeadersTooLargeError(
            f"The request has more than {self._limits.max_headers} headers (server.connections.max_headers)."
        )

    def _too_large(self) -> APIError:
        limits = self._limits
        return HeadersTooLargeError(
            f"The headers are too large: one may have {limits.max_header_bytes:,} bytes"
            f" (server.connections.max_header_bytes), all together {limits.max_head_bytes:,}"
            " (server.connections.max_head_bytes)."
        )


def _no_http() -> APIError:
    return BadRequestError("This is not a valid HTTP request.", code="invalid_http")
