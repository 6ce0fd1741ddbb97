"""Connections on a real socket: what is too much, too many or too slow is refused, and the others are served."""

import asyncio
import itertools
import json
import os
import re
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any
from unittest.mock import Mock
from urllib.parse import urlsplit

import httpx
import pytest
from pydantic import ByteSize
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from antwort import Antwort
from antwort.config import Config, ConnectionsConfig, ServerConfig
from antwort.provider import Provider, Request, Response, route
from antwort.server.http.client_connections import CommonState, Connections
from antwort.server.http.protocol import HttpProtocol
from antwort.testing import RunningApp, running

PATIENCE = 60.0
MUCH = 4 * 1024**2
"""Bytes that are far more than any limit here."""
GIVING_UP = 4 * MUCH
"""Bytes after which a client gives up: on a busy machine the kernel takes some megabytes for a server."""


class Probe(Provider):
    """Routes that show what the app gets of a request."""

    def __init__(self) -> None:
        super().__init__()
        self.given_up = threading.Event()

    @route("POST", "/v1/probe")
    async def read(self, request: Request) -> dict[str, Any]:
        """Read the body, then look at the headers."""
        body = await request.body()
        return {"bytes": len(body), "headers": sorted(request.headers)}

    @route("GET", "/v1/number/{number}")
    async def number(self, number: int) -> dict[str, int]:
        """Say a number again."""
        return {"number": number}

    @route("GET", "/v1/flood")
    async def flood(self) -> Response:
        """Send bytes for ever."""

        async def endless() -> AsyncIterator[bytes]:
            try:
                while True:
                    yield b"x" * 65536
                    await asyncio.sleep(0)
            finally:
                self.given_up.set()

        return StreamingResponse(endless())

    @route("GET", "/v1/pieces")
    async def pieces(self) -> Response:
        """Send a few pieces, one of them empty."""

        async def few() -> AsyncIterator[bytes]:
            for piece in (b"one ", b"", b"two ", b"three"):
                yield piece

        return StreamingResponse(few())


def serve(**limits: Any) -> Antwort:
    server = ServerConfig(connections=ConnectionsConfig(**limits), max_body_bytes=ByteSize(MUCH))
    return Antwort(Config(server=server), providers=[Probe()])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningApp]:
    server = ServerConfig(max_body_bytes=ByteSize(MUCH))
    config = Config(data_dir=tmp_path_factory.mktemp("data"), server=server)
    with running(Antwort(config, providers=[Probe()])) as site:
        yield site


def thread_of(site: RunningApp) -> int:
    """Return the thread that a server runs in."""

    async def ident() -> int:
        return threading.get_ident()

    return asyncio.run_coroutine_threadsafe(ident(), site.loop).result(PATIENCE)


def told(caplog: pytest.LogCaptureFixture, thread: int) -> list[str]:
    """Return what was logged in a thread: the server of all tests may write a line about earlier ones at any time."""
    return [record.getMessage() for record in caplog.records if record.thread == thread]


def connect(site: RunningApp) -> socket.socket:
    url = urlsplit(site.url)
    assert url.hostname is not None
    assert url.port is not None
    return socket.create_connection((url.hostname, url.port), timeout=PATIENCE)


def everything(sock: socket.socket) -> bytes:
    """Read until the server closes the connection."""
    pieces = []
    try:
        while piece := sock.recv(65536):
            pieces.append(piece)
    except ConnectionResetError:
        pass
    return b"".join(pieces)


def flooded(site: RunningApp, start: bytes, pieces: Iterable[bytes]) -> bytes:
    """Send something endless until the server has had enough; return what it said. Fail if it takes too much."""
    with connect(site) as sock:
        sock.sendall(start)
        sent = 0
        sock.settimeout(0)
        for piece in pieces:
            sock.settimeout(PATIENCE)
            try:
                sock.sendall(piece)
            except (ConnectionResetError, BrokenPipeError):
                break
            sent += len(piece)
            if sent > GIVING_UP:
                break
            sock.settimeout(0)
            try:
                if sock.recv(1, socket.MSG_PEEK) is not None:
                    break
            except BlockingIOError:
                continue
        assert sent <= GIVING_UP, "the server has taken it all"
        sock.settimeout(PATIENCE)
        return everything(sock)


def parsed(answer: bytes) -> tuple[int, dict[str, str], Any]:
    head, _, body = answer.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    return int(status.split()[1]), headers, json.loads(body)


def assert_refused(answer: bytes, status: int, code: str) -> None:
    got, headers, body = parsed(answer)
    assert (got, body["error"]["code"]) == (status, code)
    assert headers["connection"] == "close"
    assert headers["content-type"] == "application/json"
    assert body["error"]["type"] == "invalid_request_error"


POST = b"POST /v1/probe HTTP/1.1\r\nhost: x\r\ncontent-type: text/plain\r\n"


# --- sizes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "piece", "status", "code"),
    [
        (b"GET /healthz HTTP/1.1\r\n", b"a:b\r\n" * 1000, 431, "headers_too_large"),
        (b"GET /healthz HTTP/1.1\r\nx-long: ", b"v" * 5000, 431, "headers_too_large"),
        (b"GET /healthz HTTP/1.1\r\nx-long", b"n" * 5000, 431, "headers_too_large"),
        (b"GET /", b"path" * 1000, 414, "path_too_long"),
        (b"GET /?", b"a=1&" * 1000, 414, "path_too_long"),
        (b"GET /v1/responses HTTP/1.1\r\nupgrade: websocket\r\n", b"a: b\r\n" * 1000, 431, "headers_too_large"),
    ],
    ids=["lines", "value", "name", "path", "query", "websocket"],
)
def test_a_head_without_end_is_refused(site: RunningApp, start: bytes, piece: bytes, status: int, code: str) -> None:
    assert_refused(flooded(site, start, itertools.repeat(piece)), status, code)


@pytest.mark.parametrize(
    ("start", "piece", "status"),
    [
        (b"POST /v1/messages HTTP/1.1\r\n", b"a:b\r\n" * 1000, 431),
        (b"GET /v1/messages/batches?", b"a=1&" * 1000, 414),
        (b"POST /v1/messages HTTP/1.1\r\nhost: x\r\ntransfer-encoding: gzip\r\n\r\n", b"", 501),
        (b"POST /v1/messages HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nx", b"", 400),
    ],
    ids=["headers", "path", "coding", "chunk"],
)
def test_on_the_paths_of_messages_refusals_are_in_their_envelope(
    site: RunningApp, start: bytes, piece: bytes, status: int
) -> None:
    got, headers, body = parsed(flooded(site, start, itertools.repeat(piece, 50)))
    assert (got, headers["connection"], body["type"]) == (status, "close", "error")
    assert body["error"].keys() == {"type", "message"}


def test_on_the_paths_of_messages_half_a_body_is_told_in_their_envelope_that_it_is_late() -> None:
    with running(serve(body_timeout=0.1)) as site, connect(site) as sock:
        sock.sendall(b"POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\nhalf")
        got, _, body = parsed(everything(sock))
        assert (got, body["error"]["type"]) == (408, "invalid_request_error")


@pytest.mark.parametrize(
    "headers",
    [
        b"".join(b"x-%d: 1\r\n" % number for number in range(101)),
        b"x-large: %s\r\n" % (b"v" * 16 * 1024),
        b"".join(b"x-%d: %s\r\n" % (number, b"v" * 1000) for number in range(70)),
    ],
    ids=["too many", "one too large", "too large together"],
)
def test_a_whole_head_beyond_a_limit_is_refused(site: RunningApp, headers: bytes) -> None:
    with connect(site) as sock:
        sock.sendall(b"GET /healthz HTTP/1.1\r\n" + headers + b"\r\n")
        assert_refused(everything(sock), 431, "headers_too_large")


def test_a_large_head_within_the_limits_is_taken(site: RunningApp) -> None:
    headers = {f"x-{number}": "v" * 10_000 for number in range(6)} | {f"y-{number}": "1" for number in range(80)}
    assert httpx.get(f"{site.url}/healthz", headers=headers).status_code == 200
    assert httpx.get(f"{site.url}/healthz?" + "a" * 8000).status_code == 200


@pytest.mark.parametrize(
    ("start", "piece", "status", "code"),
    [
        (b"", b"1\r\nx\r\n" * 1000, 400, "chunks_too_small"),
        (b"1;", b"name=value;" * 1000, 400, "chunks_too_small"),
        (b"1\r\nx\r\n0\r\n", b"a: b\r\n" * 1000, 431, "headers_too_large"),
        (b"1\r\nx\r\n0\r\nx-long: ", b"v" * 5000, 400, "chunks_too_small"),
    ],
    ids=["one byte", "extensions", "trailers", "trailer"],
)
def test_a_body_that_is_hardly_any_body_is_refused(
    site: RunningApp, start: bytes, piece: bytes, status: int, code: str
) -> None:
    head = POST + b"transfer-encoding: chunked\r\n\r\n"
    assert_refused(flooded(site, head + start, itertools.repeat(piece)), status, code)


def test_small_chunks_are_taken_and_trailers_are_no_headers(site: RunningApp) -> None:
    with connect(site) as sock:
        sock.sendall(POST + b"connection: close\r\ntransfer-encoding: chunked\r\n\r\n")
        for _ in range(2000):
            sock.sendall(b"14\r\n" + b"x" * 20 + b"\r\n")
        sock.sendall(b"0\r\nx-late: 1\r\n\r\n")
        status, _, body = parsed(everything(sock))
    assert (status, body["bytes"]) == (200, 40_000)
    assert "x-late" not in body["headers"]


def test_what_is_sent_after_a_refusal_is_not_taken_for_ever(site: RunningApp) -> None:
    head = POST + b"transfer-encoding: chunked\r\n\r\n"
    chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    with connect(site) as sock:
        sock.sendall(head)
        with pytest.raises(ConnectionError):
            for _ in range(100 * MUCH // 65536):
                sock.sendall(chunk)


def test_a_client_that_sends_first_and_reads_later_learns_that_its_body_is_too_large(site: RunningApp) -> None:
    response = httpx.post(f"{site.url}/v1/probe", content=b"x" * (MUCH + 1))
    assert (response.status_code, response.json()["error"]["code"]) == (413, "request_too_large")


@pytest.mark.parametrize(
    "length", [b"content-length: 400000\r\n", b"content-length: 400000\r\nexpect: 100-continue\r\n"]
)
@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
def test_who_wants_no_other_answer_on_a_connection_can_send_its_body_before_it_reads(
    site: RunningApp, length: bytes, version: bytes
) -> None:
    with connect(site) as sock:
        sock.sendall(b"POST /v1/nowhere HTTP/%s\r\nhost: x\r\nconnection: close\r\n%s\r\n" % (version, length))
        assert sock.recv(1, socket.MSG_PEEK)  # it was answered
        for _ in range(100):
            sock.sendall(b"x" * 4000)
        answer = b"".join(iter(partial(sock.recv, 65536), b""))
    assert parsed(answer)[0] == 404


def test_a_connection_that_is_about_to_be_closed_is_not_taken_for_one_whose_client_reads_nothing() -> None:
    async def closed_one() -> str | None:
        near, far = socket.socketpair()
        with far:
            state = CommonState(serve().asgi(), ServerConfig(), most=10)
            make = asyncio.get_running_loop().connect_accepted_socket
            transport, protocol = await make(lambda: HttpProtocol(state), near)
            transport.close()
            return protocol.find_stall(time.monotonic(), 1.0)

    assert asyncio.run(closed_one()) is None


def test_the_body_of_a_request_that_waits_is_given_up_once() -> None:
    """It stands behind one that takes longer. To give it up again would fail, and end the server with the sweep."""

    async def looked_at_twice() -> tuple[list[str | None], bytes]:
        answering = asyncio.Event()

        async def app(_scope: Scope, receive: Receive, send: Send) -> None:
            await receive()  # has the connection read from, although another request waits
            await answering.wait()
            await send({"type": "http.response.start", "status": 204})
            await send({"type": "http.response.body"})

        near, far = socket.socketpair()
        far.settimeout(PATIENCE)
        with far:
            state = CommonState(app, ServerConfig(), most=10)
            _, protocol = await asyncio.get_running_loop().connect_accepted_socket(lambda: HttpProtocol(state), near)
            far.sendall(POST + b"content-length: 0\r\n\r\n" + POST + b"content-length: 9\r\n\r\nhalf")
            found = None
            while found is None:
                await asyncio.sleep(0)
                found = protocol.find_stall(time.monotonic() + 1000, 0.0)
            again = protocol.find_stall(time.monotonic() + 1001, 1.0)
            answering.set()
            return [found, again], await asyncio.to_thread(everything, far)

    found, answers = asyncio.run(looked_at_twice())
    assert found == ["whose bodies came too slowly (server.connections.body_timeout)", None]
    assert answers.count(b"HTTP/1.1 ") == answers.count(b"HTTP/1.1 204") == 1


def test_a_connection_that_cannot_be_looked_at_is_closed_and_the_others_are_swept(
    caplog: pytest.LogCaptureFixture,
) -> None:
    looked_at = []

    class Odd:
        address = "203.0.113.1"

        def __init__(self) -> None:
            self.closed = Mock(asyncio.Transport)
            self.transport: asyncio.Transport = self.closed

        def too_late(self) -> None:
            raise NotImplementedError

        def find_stall(self, now: float, elapsed: float) -> str | None:
            looked_at.append((now, elapsed))
            raise IndexError("pop from empty list")

    connections = Connections(ConnectionsConfig(), [], most=10)
    several = [Odd(), Odd()]
    for connection in several:
        connections.note_request(connection)
    connections.sweep()
    connections.sweep()
    assert len(looked_at) == 2
    assert all(connection.closed.abort.called for connection in several)
    assert "a connection cannot be looked after" in caplog.text


# --- several requests on a connection --------------------------------------------------------------------------------


def ask(number: int) -> bytes:
    return b"GET /v1/number/%d HTTP/1.1\r\nhost: x\r\n\r\n" % number


def test_pipelined_requests_are_answered_in_order(site: RunningApp) -> None:
    with connect(site) as sock:
        sock.sendall(b"".join(ask(number) for number in range(8)) + POST + b"connection: close\r\n\r\n")
        answer = everything(sock)
    assert [b'{"number":%d}' % number in answer for number in range(8)] == [True] * 8
    assert answer.count(b"HTTP/1.1 200") == 9
    assert answer.index(b'{"number":6}') < answer.index(b'{"number":7}') < answer.index(b'"bytes":0')


def test_a_connection_queues_only_so_many_requests(site: RunningApp) -> None:
    with connect(site) as sock:
        sock.sendall(b"".join(ask(number) for number in range(1000)))
        answer = everything(sock)
    assert answer.count(b"HTTP/1.1 200") == 17
    assert b"connection: close" in answer


def test_an_answer_is_not_disturbed_by_what_the_client_sends_meanwhile(site: RunningApp) -> None:
    with connect(site) as sock:
        sock.sendall(ask(1) + ask(2) + b"\x00garbage\r\n\r\n")
        answer = everything(sock)
    assert answer.endswith(b'{"number":2}')
    assert answer.count(b"HTTP/1.1 ") == 2


def test_what_is_not_http_gets_the_envelope(site: RunningApp) -> None:
    with connect(site) as sock:
        sock.sendall(b"HELO mail.example\r\n\r\n")
        assert_refused(everything(sock), 400, "invalid_http")


def test_an_upgrade_to_something_else_is_an_ordinary_request(site: RunningApp) -> None:
    with connect(site) as sock:
        sock.sendall(b"GET /v1/number/3 HTTP/1.1\r\nhost: x\r\nconnection: upgrade, close\r\nupgrade: h2c\r\n\r\n")
        assert parsed(everything(sock))[2] == {"number": 3}


@pytest.mark.parametrize("size", [1, 50, 10_000])
def test_a_request_that_offers_another_protocol_keeps_its_body(site: RunningApp, size: int) -> None:
    offer = (
        b"host: x\r\nconnection: keep-alive, Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk\r\n"
    )
    json = b'{"input": "hi"}'
    sent = b"POST /v1/responses HTTP/1.1\r\ncontent-type: application/json\r\n" + offer
    sent += b"content-length: %d\r\n\r\n%s" % (len(json), json)
    sent += b"POST /v1/responses HTTP/1.1\r\ncontent-type: application/json\r\n" + offer
    sent += b"transfer-encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(json), json)
    sent += b"GET /v1/number/3 HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    with connect(site) as sock:
        for start in range(0, len(sent), size):
            sock.sendall(sent[start : start + size])
        answers = everything(sock)
    assert answers.count(b"HTTP/1.1 200 OK") == 3
    assert answers.count(b'"status":"completed"') >= 2
    assert answers.endswith(b'{"number":3}')


@pytest.mark.parametrize("header", [b"x-long: %s" % (b"v" * 9000), b"content-length: 5", b"transfer-encoding: chunked"])
def test_a_handshake_that_the_library_for_websockets_does_not_take_is_refused(site: RunningApp, header: bytes) -> None:
    lines = [
        b"GET /v1/responses HTTP/1.1",
        b"host: 127.0.0.1",
        b"connection: upgrade",
        b"upgrade: websocket",
        b"sec-websocket-version: 13",
        b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==",
        header,
    ]
    with connect(site) as sock:
        sock.sendall(b"\r\n".join(lines) + b"\r\n\r\n")
        assert_refused(everything(sock), 400, "invalid_handshake")


@pytest.mark.parametrize(
    ("header", "named"),
    [
        (b"sec-websocket-version: 8", b"Sec-WebSocket-Version header: 8."),
        (b"sec-websocket-version: 13\r\nsec-websocket-version: 8", b"Sec-WebSocket-Version header: multiple values."),
        (b"sec-websocket-version: \xff", b"Sec-WebSocket-Version header: "),
        (b"x-version: none", b"missing Sec-WebSocket-Version header."),
        (b"sec-websocket-version: 13\r\nsec-websocket-key: c2hvcnQ=", b"Sec-WebSocket-Key header"),
        (b"sec-websocket-version: 13\r\nsec-websocket-key: \xff\x80", b"is not valid."),
    ],
)
def test_a_handshake_that_is_none_is_refused_in_the_envelope_and_told_the_version(
    site: RunningApp, header: bytes, named: bytes
) -> None:
    key = b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ=="
    lines = [
        b"GET /v1/responses HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: upgrade\r\nupgrade: websocket",
        *([] if b"key" in header else [key]),
        header,
    ]
    with connect(site) as sock:
        sock.sendall(b"\r\n".join(lines) + b"\r\n\r\n")
        answer = everything(sock)
    assert_refused(answer, 400, "invalid_handshake")
    assert named in answer
    assert b"\r\nsec-websocket-version: 13\r\n" in answer


def test_handshakes_that_are_refused_take_no_room(caplog: pytest.LogCaptureFixture) -> None:
    handshake = b"GET /v1/responses HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
    handshake += b"sec-websocket-version: 13\r\n"
    keys = (b"\xff\x80", b"short", b"dGhlIHNhbXBsZSBub25jZQ==\r\ncontent-length: 5")
    with running(serve(max_open=4)) as site:
        for key in keys * 3:
            with connect(site) as sock:
                sock.sendall(handshake + b"sec-websocket-key: %s\r\n\r\n" % key)
                assert_refused(everything(sock), 400, "invalid_handshake")
        assert httpx.get(site.url + "/v1/number/3").json() == {"number": 3}
    assert not [record for record in caplog.records if record.exc_info]


def test_a_websocket_is_asked_for_in_any_of_several_lines(site: RunningApp) -> None:
    lines = [
        b"GET /v1/responses HTTP/1.1\r\nhost: 127.0.0.1",
        b"connection: Upgrade",
        b"connection: keep-alive",
        b"upgrade: WebSocket ",
        b"sec-websocket-version: 13",
        b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==",
    ]
    with connect(site) as sock:
        sock.sendall(b"\r\n".join(lines) + b"\r\n\r\n")
        assert sock.recv(65536).startswith(b"HTTP/1.1 101 ")


@pytest.mark.parametrize("offer", [b"connection: close\r\n", b"connection: close, upgrade\r\nupgrade: h2c\r\n"])
def test_what_comes_behind_the_last_request_is_no_refused_one(caplog: pytest.LogCaptureFixture, offer: bytes) -> None:
    with running(serve()) as site, connect(site) as sock:
        sock.sendall(b"GET /v1/number/3 HTTP/1.1\r\nhost: x\r\n%s\r\nand more\r\n\r\n" % offer)
        assert parsed(everything(sock))[2] == {"number": 3}
        thread = thread_of(site)
    assert told(caplog, thread) == []


def test_what_comes_behind_the_handshake_of_a_websocket_is_no_request(caplog: pytest.LogCaptureFixture) -> None:
    """It is more than the parser gets at once, and once was a second, broken request on a connection given away."""
    lines = [
        b"GET /v1/responses HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: upgrade\r\nupgrade: websocket",
        b"sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    ]
    with running(serve()) as site, connect(site) as sock:
        sock.sendall(b"\r\n".join(lines) + b"x" * 100_000)
        assert sock.recv(65536).startswith(b"HTTP/1.1 101 ")
        thread = thread_of(site)
    assert told(caplog, thread) == []


# --- time ------------------------------------------------------------------------------------------------------------


def test_a_connection_that_says_nothing_is_closed() -> None:
    with running(serve(head_timeout=0.1)) as site, connect(site) as sock:
        assert everything(sock) == b""


def test_half_a_head_is_told_that_it_is_late(caplog: pytest.LogCaptureFixture) -> None:
    with running(serve(head_timeout=0.5)) as site, connect(site) as sock:
        sock.sendall(b"GET /healthz HTTP/1.1\r\nx-half: ")
        assert_refused(everything(sock), 408, "request_timeout")
    assert "had not sent a request in time (server.connections.head_timeout); the last from 127.0.0.1" in caplog.text


def test_half_a_second_head_is_late_too() -> None:
    with running(serve(head_timeout=0.5)) as site, connect(site) as sock:
        sock.sendall(ask(1))
        answer = b""
        while not answer.endswith(b'{"number":1}'):
            answer += sock.recv(65536)
        sock.sendall(b"GET ")
        assert_refused(everything(sock), 408, "request_timeout")


def test_a_connection_between_two_requests_is_closed_after_a_while() -> None:
    with running(serve(idle_timeout=0.1)) as site, connect(site) as sock:
        sock.sendall(ask(1))
        assert everything(sock).endswith(b'{"number":1}')


def test_half_a_body_is_told_that_it_is_late(caplog: pytest.LogCaptureFixture) -> None:
    with running(serve(body_timeout=0.1)) as site, connect(site) as sock:
        sock.sendall(POST + b"content-length: 10\r\n\r\nhalf")
        assert_refused(everything(sock), 408, "request_timeout")
    assert "clients whose bodies came too slowly" in caplog.text


def test_a_body_that_drips_is_late_however_often_a_byte_comes() -> None:
    with running(serve(body_timeout=0.1)) as site, connect(site) as sock:
        sock.sendall(POST + b"content-length: 1000000\r\n\r\n")
        stop = threading.Event()

        def drip() -> None:
            while not stop.wait(0.01):
                try:
                    sock.sendall(b"x")
                except OSError:
                    return

        dripping = threading.Thread(target=drip)
        dripping.start()
        try:
            assert_refused(everything(sock), 408, "request_timeout")
        finally:
            stop.set()
            dripping.join()


def test_a_client_that_does_not_read_is_cut_off_and_its_work_ends() -> None:
    app = serve(write_timeout=0.1)
    with running(app) as site, connect(site) as sock:
        sock.sendall(b"GET /v1/flood HTTP/1.1\r\nhost: x\r\n\r\n")
        (probe,) = [r.provider for r in site.app.registry.registrations() if isinstance(r.provider, Probe)]
        assert probe.given_up.wait(PATIENCE)


def test_a_client_that_closes_its_side_has_left_and_its_work_ends() -> None:
    with running(serve()) as site, connect(site) as sock:
        sock.sendall(b"GET /v1/flood HTTP/1.1\r\nhost: x\r\n\r\n")
        assert sock.recv(10)  # else there may be no work yet, and none begins
        sock.shutdown(socket.SHUT_WR)
        everything(sock)  # what was written before is sent, and would keep the connection until somebody reads it
        (probe,) = [r.provider for r in site.app.registry.registrations() if isinstance(r.provider, Probe)]
        assert probe.given_up.wait(PATIENCE)


# --- how many --------------------------------------------------------------------------------------------------------


def closed(socks: list[socket.socket]) -> int:
    """Count the connections that the server has closed."""
    count = 0
    for sock in socks:
        sock.settimeout(0)
        try:
            count += not sock.recv(1)
        except ConnectionResetError:
            count += 1
        except BlockingIOError:
            continue
    return count


def test_an_address_may_have_only_so_many_idle_connections_and_the_oldest_go(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with running(serve(max_idle_per_address=5)) as site, ExitStack() as stack:
        busy = stack.enter_context(connect(site))
        busy.sendall(b"GET /v1/flood HTTP/1.1\r\nhost: x\r\n\r\n")
        assert busy.recv(10)
        idle = [stack.enter_context(connect(site)) for _ in range(20)]
        for sock in idle[:15]:
            assert everything(sock) == b""
        assert closed(idle[15:]) == 0
        assert busy.recv(10)
        assert httpx.get(f"{site.url}/healthz").status_code == 200
    told = re.findall(r"closed (\d+) idle connections of addresses with too many", caplog.text)
    assert sum(map(int, told)) == 15  # in one line, or in two if a second has passed between them


def test_when_all_connections_are_taken_an_idle_one_makes_room(caplog: pytest.LogCaptureFixture) -> None:
    with running(serve(max_open=4)) as site, ExitStack() as stack:
        idle = [stack.enter_context(connect(site)) for _ in range(4)]
        assert httpx.get(f"{site.url}/healthz").status_code == 200
        assert everything(idle[0]) == b""
        assert closed(idle[1:]) == 0
        busy = [stack.enter_context(connect(site)) for _ in range(4)]
        for sock in busy:
            sock.sendall(b"GET /v1/flood HTTP/1.1\r\nhost: x\r\n\r\n")
            assert sock.recv(10)
        with connect(site) as sock:
            status, headers, body = parsed(everything(sock))
        assert (status, headers["retry-after"], headers["connection"]) == (503, "1", "close")
        assert "as many connections as it takes (server.connections.max_open)" in body["error"]["message"]
        assert body["error"]["code"] == "too_many_connections"
    assert "idle connections to make room for others (server.connections.max_open)" in caplog.text
    assert "refused 1 connections: as many as may be open are in use" in caplog.text


class Idle:
    """A connection that does nothing, as the sweep sees it."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.late = 0
        self.transport = self
        self.near, self.far = socket.socketpair()

    def too_late(self) -> None:
        self.late += 1

    def find_stall(self, now: float, elapsed: float) -> str | None:
        return None

    def get_extra_info(self, name: str) -> socket.socket:
        """Return the socket: one to which nothing was sent."""
        assert name == "socket"
        return self.near

    def abort(self) -> None:
        self.late = -1


def test_the_log_has_one_line_for_many_connections(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    connections = Connections(ConnectionsConfig(), set(), most=10, clock=lambda: now[0])
    for moment in range(3):
        idle: list[Any] = [Idle(f"10.0.0.{number}") for number in range(100)]
        for connection in idle:
            connections.admit(connection)
        now[0] += 15
        connections.sweep()
        assert [connection.late for connection in idle] == [1] * 100
        for connection in idle:
            connections.forget(connection)
            connection.near.close()
            connection.far.close()
        now[0] -= 12 if moment == 0 else 0
    assert connections.idle == 0
    lines = [line for line in caplog.messages if "head_timeout" in line]
    assert [line.split()[1] for line in lines] == ["100", "200"]


def test_the_log_tells_that_no_file_handle_is_left(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: Any) -> int:
        raise OSError(24, "Too many open files")

    connections = Connections(ConnectionsConfig(), set(), most=10)
    monkeypatch.setattr(os, "open", fail)
    for _ in range(5):
        connections.sweep()
    (line,) = told(caplog, threading.get_ident())
    assert "no file handle can be opened, so connections have to wait: Too many open files" in line


# --- HTTP/1.0 --------------------------------------------------------------------------------------------------------


def spoken(site: RunningApp, request: bytes) -> tuple[bytes, bytes]:
    """Send a request, and return the head, in small letters, and the body of what comes until the connection ends."""
    with connect(site) as sock:
        sock.sendall(request)
        head, _, body = everything(sock).partition(b"\r\n\r\n")
    return head.lower(), body


@pytest.mark.parametrize("more", [b"", b"Connection: keep-alive\r\n"])
def test_a_stream_has_no_chunks_in_http_1_0_and_ends_with_its_connection(site: RunningApp, more: bytes) -> None:
    head, body = spoken(site, b"GET /v1/pieces HTTP/1.0\r\nHost: localhost\r\n" + more + b"\r\n")
    assert b" 200 " in head
    assert b"transfer-encoding" not in head
    assert b"connection: close" in head
    assert body == b"one two three"


def test_a_stream_has_chunks_in_http_1_1(site: RunningApp) -> None:
    head, body = spoken(site, b"GET /v1/pieces HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert b"transfer-encoding: chunked" in head
    assert body == b"4\r\none \r\n4\r\ntwo \r\n5\r\nthree\r\n0\r\n\r\n"


@pytest.mark.parametrize("more", [b"", b"Connection: keep-alive\r\n"])
@pytest.mark.parametrize("path", [b"/healthz", b"/v1/number/7", b"/nowhere"])
def test_an_answer_whose_length_is_known_has_it_in_http_1_0_too(site: RunningApp, path: bytes, more: bytes) -> None:
    head, body = spoken(site, b"GET " + path + b" HTTP/1.0\r\n" + more + b"\r\n")
    assert b"connection: close" in head  # also for who would keep it, such as `ab -k`
    assert b"content-length: %d\r\n" % len(body) in head + b"\r\n"
    assert b"transfer-encoding" not in head
    assert json.loads(body)
