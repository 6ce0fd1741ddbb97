"""HTTP/1.1 on a socket: uvicorn's protocol, with a limit for whatever a client can send, and for how long."""

import asyncio
import contextvars
import functools
import logging
import urllib.parse
from collections import deque
from typing import TYPE_CHECKING, Any

import httptools
import msgspec
from typing_extensions import override
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from antwort.errors import (
    APIError,
    BadRequestError,
    HeadersTooLargeError,
    MethodNotAllowedError,
    PathTooLongError,
    RequestTimeoutError,
    ServiceUnavailableError,
)
from antwort.lazy_imports import imported_on_use
from antwort.server.client_connections import Connections
from antwort.server.exchange import STATUS_LINES, Exchange
from antwort.server.flow_control import LeanFlowControl

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
_NO_PIPELINE: deque[Any] = deque(maxlen=0)
"""In the place of uvicorn's, which nobody uses: an empty one takes 0.7 KiB, for each connection."""
PARTING = 2.0
"""Seconds in which the client of a connection that ends can take note of the answer, while it is still sending."""


class _RefusedError(Exception):
    """Stops the parser; the error is for the client."""

    def __init__(self, error: APIError) -> None:
        super().__init__(error.message)
        self.error = error


def websocket_protocol(*args: Any, **options: Any) -> asyncio.Protocol:
    """Return the protocol of a connection that becomes a WebSocket."""
    return websocket.WebSocketProtocol(*args, **options)


class HttpProtocol(HttpToolsProtocol):
    """One connection. Refusals before there is a request for the app are written here, in the OpenAI envelope.

    What is counted, and when: the parser gets a slice at a time, and between two of them a head that is not complete
    may not have grown beyond its limits. A head that came in one small slice, as nearly all do, costs nothing more.
    """

    # The rest, uvicorn's, are few enough that Python keeps their names once for all connections.
    __slots__ = (
        "_between",
        "_body",
        "_body_since",
        "_connections",
        "_context",
        "_deaf",
        "_in_body",
        "_in_head",
        "_inside",
        "_last",
        "_least",
        "_limits",
        "_max_body",
        "_pipelined",
        "_running",
        "_span",
        "_unsent",
        "_unsent_since",
        "address",
    )

    def __init__(self, *args: Any, connections: Connections, max_body: int, **options: Any) -> None:
        super().__init__(*args, **options)
        limits = connections.limits
        self._connections = connections
        self._limits = limits
        self._max_body = max_body
        self._least = min(limits.max_header_bytes, limits.max_head_bytes)
        self._deaf = False
        """Whether whatever else comes is thrown away."""
        self._last: Exchange | None = None
        """The exchange that began last, whose body may be coming."""
        self._running: Exchange | None = None
        self._pipelined: list[Exchange] = []
        """Those that wait for the answers before theirs."""
        self.pipeline = _NO_PIPELINE
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
        super().connection_made(transport)
        self.flow = LeanFlowControl(transport)
        self._context = contextvars.copy_context()
        self.address = self.client[0] if self.client else ""
        if not self._connections.admit(self):
            self._deaf = True
            message = "The server has as many connections as it takes. Try again."
            self._write(ServiceUnavailableError(message, headers={"retry-after": "1"}))
            transport.close()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.forget(self)
        self._deaf = True
        super().connection_lost(exc)
        for waiting in self._pipelined:
            waiting.disconnected = True
        if self._running is not None and not self._running.response_complete:
            self._running.leave()

    @override
    def shutdown(self) -> None:
        last = self._last
        if last is None or last.response_complete:
            self.transport.close()
        else:
            last.keep_alive = False

    @override
    def handle_websocket_upgrade(self) -> None:
        self._connections.forget(self)  # from here on its own protocol looks after it
        super().handle_websocket_upgrade()
        taken = self.transport.get_protocol()
        if isinstance(taken, websocket.WebSocketProtocol) and taken.conn.handshake_exc is not None:
            # The library for WebSockets has limits of its own, and leaves a connection beyond them open.
            self._write(BadRequestError("The handshake of the WebSocket is not valid.", code="invalid_handshake"))
            self.transport.close()

    @override
    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        if self.flow.read_paused:
            self.flow.resume_reading()
        if self._pipelined:
            # Not in the context of the request that is over here, which names its tenant and its trace.
            self._context.run(self._start, self._pipelined.pop(0))
        elif self._in_body:  # what is left of the body is of no use, but its client may read nothing before it is sent
            self._connections.let_go(self, self._limits.body_timeout)
        else:
            self._connections.note_rest(self)

    def _start(self, exchange: Exchange) -> None:
        self._running = exchange
        exchange.start(self.app, self.tasks)

    # --- what comes in -----------------------------------------------------------------------------------------------

    @override
    def data_received(self, data: bytes) -> None:
        if len(data) <= SLICE:
            self._feed(data)
            return
        for start in range(0, len(data), SLICE):
            self._feed(data[start : start + SLICE])

    def _feed(self, data: bytes) -> None:
        if self._deaf:
            return
        size = len(data)
        in_head, in_body, last, body = self._in_head, self._in_body, self._last, self._body
        self._span = self._span + size if in_head else size
        try:
            self.parser.feed_data(data)
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
        self._check_headers(self.headers)

    def _check_open_body(self, between: int) -> None:
        """Look at what stands between the chunks of a body, and behind them: sizes, extensions, trailers."""
        self._between += between
        if len(self.headers) > self._limits.max_headers:
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

    @override
    def on_message_begin(self) -> None:
        self.url = b""
        self.headers = []
        self.expect_100_continue = False
        self._in_head = True
        self._inside = 0

    @override
    def on_url(self, url: bytes) -> None:
        self.url += url
        if len(self.url) > self._limits.max_request_line:
            most = self._limits.max_request_line
            raise _RefusedError(
                PathTooLongError(
                    f"The path with its query is longer than {most:,} bytes (server.connections.max_request_line)."
                )
            )

    @override
    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name == b"expect":
            self.expect_100_continue = value.lower() == b"100-continue"
        self.headers.append((name, value))

    @override
    def on_headers_complete(self) -> None:
        headers = self.headers
        if self._span > self._least or len(headers) > self._limits.max_headers:
            self._check_headers(headers)
        parser = self.parser
        method, version = parser.get_method().decode("ascii"), parser.get_http_version()
        self._in_head = False
        if parser.should_upgrade():  # goes on in `_upgrade`
            offer: Any = {"method": method, "headers": headers}  # all that is read of it
            self.scope = offer
            return
        self.headers = []  # trailers do not belong to the headers: clients could add to what was checked
        path, raw_path, query = _located(self.url)
        is_old = version == "1.0"
        exchange = Exchange(
            {
                "type": "http",
                "asgi": {"version": self.asgi_version, "spec_version": "2.3"},
                "http_version": version,
                "server": self.server,
                "client": self.client,
                "scheme": self.scheme,
                "root_path": self.root_path,
                "state": self.app_state.copy(),
                "method": method,
                "path": path,
                "raw_path": raw_path,
                "query_string": query,
                "headers": headers,
            },
            self.transport,
            self.flow,
            self.server_state.default_headers,
            self.on_response_complete,
            is_head=method == "HEAD",
            is_old=is_old,
            keep_alive=not is_old and parser.should_keep_alive(),
            expects_continue=not is_old and self.expect_100_continue,
        )
        before = self._running
        is_next = before is None or before.response_complete
        if not is_next and len(self._pipelined) >= PIPELINED:
            raise _RefusedError(
                BadRequestError("Too many requests at once on one connection.", code="too_many_pipelined")
            )
        self._last = exchange
        self._in_body = True
        self._between = self._body = 0
        self._body_since = self._connections.clock()
        if is_next:
            self._connections.note_request(self)
            self._start(exchange)
        else:
            self.flow.pause_reading()
            self._pipelined.append(exchange)

    @override
    def on_body(self, body: bytes) -> None:
        exchange = self._last
        self._body += len(body)
        if exchange is None or exchange.response_complete or exchange.disconnected:
            if self._body > 2 * self._max_body + DISCARDED:
                self._deaf = True
                self.transport.abort()
        elif exchange.take(body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()

    @override
    def on_message_complete(self) -> None:
        exchange = self._last
        if self._in_head or not self._in_body or exchange is None:  # an upgrade
            return
        self._in_body = False
        if exchange.response_complete:
            if not self.transport.is_closing():
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
            self._connections.let_go(self, PARTING)
            self.transport.close()

    def find_stall(self, now: float, elapsed: float) -> str | None:
        """End a connection whose client neither sends nor reads, and tell which; `elapsed` since the last look."""
        limits = self._limits
        if self._in_body:
            if self.flow.read_paused:  # it is not the client who is slow
                self._body_since += elapsed
            elif now - self._body_since > limits.body_timeout + self._body / limits.body_rate:
                self._refuse(RequestTimeoutError("The body has come too slowly (server.connections.body_timeout)."))
                return "whose bodies came too slowly (server.connections.body_timeout)"
        if not self.flow.write_paused and not self.transport.is_closing():
            self._unsent = 0
            return None
        unsent = self.transport.get_write_buffer_size()
        if unsent != self._unsent:
            self._unsent, self._unsent_since = unsent, now
        elif now - self._unsent_since > limits.write_timeout:
            self.transport.abort()
            return "that read nothing of their answers (server.connections.write_timeout)"
        return None

    def _upgrade(self, rest: bytes) -> None:
        """Go on with a request that offers another protocol; `rest` is what came after its head."""
        if self.parser.get_method() == b"CONNECT":  # to the parser an offer by itself, whatever its headers say
            self._refuse(MethodNotAllowedError("CONNECT is not possible here: this server is no proxy."))
        elif not self._should_upgrade():
            self._decline_upgrade(rest)
        elif self._running is None or self._running.response_complete:
            self.handle_websocket_upgrade()
        else:
            self._stop_listening()

    def _decline_upgrade(self, rest: bytes) -> None:
        """Read a request again without its offer, such as `Upgrade: h2c`: with it, the parser leaves out the body."""
        lines = [b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())]
        for name, value in self.headers:
            if name == b"connection":
                tokens = [token for token in value.split(b",") if token.strip().lower() not in OFFERS]
                lines += [b"connection: " + b",".join(tokens)] if tokens else []
            elif name not in OFFERS:
                lines.append(name + b": " + value)
        self.parser = httptools.HttpRequestParser(self)
        self._feed(b"\r\n".join([*lines, b"", b""]))
        if rest:
            self._feed(rest)

    def _refuse(self, error: APIError) -> None:
        """Answer in place of the app, if no other answer is under way, and take nothing more from the client."""
        self._connections.notice(f"refused %d requests with {error.status} ({error.code})", self)
        last, running = self._last, self._running
        if not self._in_body:
            if running is not None and not running.response_complete:
                self._stop_listening()
                return
        elif last is not running:
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
        self._deaf = True
        self._write(error)
        # A client that is still sending would lose the answer if the connection were closed at once.
        self.transport.write_eof()
        self._connections.let_go(self, PARTING)
        self.flow.resume_reading()

    def _stop_listening(self) -> None:
        """Let the last of the requests that were taken be the last of all."""
        self._deaf = True
        last = self._pipelined[-1] if self._pipelined else self._running
        if last is not None:
            last.keep_alive = False

    def _write(self, error: APIError) -> None:
        body = msgspec.json.encode(error.envelope())
        headers = [*self.server_state.default_headers, *((n.encode(), v.encode()) for n, v in error.headers.items())]
        self.transport.write(
            b"".join(
                (
                    STATUS_LINES[error.status],
                    *(b"\r\n%s: %s" % header for header in headers),
                    b"\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
                    % len(body),
                    body,
                )
            )
        )

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


@functools.lru_cache(maxsize=256)  # most requests are to a few URLs
def _located(url: bytes) -> tuple[str, bytes, bytes]:
    """Return the path that a URL has, as it is meant and as it is written, and its query."""
    parsed = httptools.parse_url(url)
    path = parsed.path.decode("ascii")
    return urllib.parse.unquote(path) if "%" in path else path, parsed.path, parsed.query or b""


def _no_http() -> APIError:
    return BadRequestError("This is not a valid HTTP request.", code="invalid_http")
