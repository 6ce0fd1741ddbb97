"""The official behaviour of HTTP/1.1 on a real socket: a table of what is sent, and what comes back byte for byte."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any, Self
from urllib.parse import urlsplit

import pytest
from pydantic import SecretStr
from starlette.responses import StreamingResponse

from antwort import Antwort
from antwort.config import ApiKeyConfig, AuthConfig, Config
from antwort.observability.logs import CLEAN_FIELDS
from antwort.provider import Provider, Request, Response, route
from antwort.testing import running


class Shapes(Provider):
    """Answers of every shape."""

    @route("POST", "/v1/echo")
    async def echo(self, request: Request) -> Response:
        """Say the body again."""
        return Response(await request.body(), media_type="text/plain")

    @route("GET", "/v1/pieces")
    async def pieces(self) -> Response:
        """Answer in pieces, some of which are empty."""

        async def pieces() -> AsyncIterator[bytes]:
            for piece in (b"one", b"", b"two"):
                yield piece
                await asyncio.sleep(0)

        return StreamingResponse(pieces())

    @route("GET", "/v1/last")
    async def last(self) -> Response:
        """Close the connection after the answer."""
        return Response(b"bye", headers={"Connection": "close"})

    @route("GET", "/v1/odd")
    async def odd(self, request: Request) -> Response:
        """Answer with a header that the query names."""
        name, _, value = request.query_params["header"].partition("=")
        response = Response(b"odd")
        response.raw_headers.append((name.encode("latin-1"), value.encode("latin-1")))
        return response

    @route("GET", "/v1/short")
    async def short(self) -> Response:
        """Announce more than there is."""
        response = Response(b"short")
        response.headers["content-length"] = "100"
        return response

    @route("GET", "/v1/long")
    async def long(self) -> Response:
        """Announce less than there is."""
        response = Response(b"long")
        response.headers["content-length"] = "1"
        return response

    @route("GET", "/v1/status/{status}")
    async def with_status(self, status: int) -> Response:
        """Answer with a status, and with a body."""
        return Response(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil", status)

    @route("GET", "/v1/never")
    async def never(self) -> None:
        """Wait for as long as the client does."""
        await asyncio.Event().wait()

    @route("DELETE", "/v1/thing")
    async def nothing(self) -> None:
        """Have nothing to say."""


@pytest.fixture(scope="module")
def address() -> Iterator[tuple[str, int]]:
    app = Antwort(Config(), providers=[Shapes()])
    with running(app) as server:
        parts = urlsplit(server.url)
        yield str(parts.hostname), int(parts.port or 0)


class Wire:
    """A client that writes bytes, and reads answers as they stand."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, timeout=30)
        self._file = self.socket.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self.socket.close()

    def write(self, line: str, *headers: str, body: bytes = b"") -> None:
        self.socket.sendall("\r\n".join([line, "Host: localhost", *headers, "", ""]).encode() + body)

    def read(self, *, head_only: bool = False) -> tuple[int, dict[str, str], bytes]:
        """Read an answer; ConnectionError if there is none, or not the whole of it."""
        line = self._file.readline()
        if not line:
            raise ConnectionError("closed")
        headers: dict[str, str] = {}
        while (header := self._file.readline()) != b"\r\n":
            name, _, value = header.decode("latin-1").partition(":")
            assert name.lower() not in headers, f"{name} twice"
            headers[name.lower()] = value.strip()
        status = int(line.split()[1])
        return status, headers, b"" if head_only or status < 200 else self._body(headers)

    def _body(self, headers: dict[str, str]) -> bytes:
        if "transfer-encoding" in headers:
            pieces = []
            while size := int(self._file.readline(), 16):
                pieces.append(self._file.read(size + 2)[:-2])
            assert self._file.readline() == b"\r\n"
            return b"".join(pieces)
        if "content-length" not in headers:
            return self._file.read()
        body = self._file.read(int(headers["content-length"]))
        if len(body) < int(headers["content-length"]):
            raise ConnectionError("closed in the middle")
        return body

    def is_closed(self) -> bool:
        return self._file.read(1) == b""


ECHO = "POST /v1/echo HTTP/1.1"


@pytest.mark.parametrize(
    ("headers", "body", "echoed"),
    [
        (["Content-Length: 3"], b"abc", b"abc"),
        (["Content-Length: 0"], b"", b""),
        (["Transfer-Encoding: chunked"], b"2\r\nab\r\n1\r\nc\r\n0\r\n\r\n", b"abc"),
        (["Transfer-Encoding: chunked"], b"2;a=b\r\nab\r\n0\r\nTrailer: t\r\n\r\n", b"ab"),
        (["Transfer-Encoding: chunked"], b"0\r\n\r\n", b""),
        (["Transfer-Encoding: Chunked "], b"2\r\nab\r\n0\r\n\r\n", b"ab"),
    ],
)
def test_a_body_is_read_however_it_is_framed(
    address: tuple[str, int], headers: list[str], body: bytes, echoed: bytes
) -> None:
    with Wire(address) as wire:
        for _ in range(2):  # and the connection is kept
            wire.write(ECHO, *headers, body=body)
            status, answered, text = wire.read()
            assert (status, text) == (200, echoed)
            assert answered["content-length"] == str(len(echoed))
            assert "connection" not in answered


@pytest.mark.parametrize(
    "codings",
    [["gzip, chunked"], ["gzip", "chunked"], ["identity", "chunked"], ["chunked;q=1"], ["gzip"], [",chunked"]],
    ids="; ".join,
)
def test_a_transfer_coding_that_nobody_undoes_is_refused(address: tuple[str, int], codings: list[str]) -> None:
    with Wire(address) as wire:
        wire.write(ECHO, *(f"Transfer-Encoding: {coding}" for coding in codings), body=b"2\r\nab\r\n0\r\n\r\n")
        status, headers, body = wire.read()
        assert (status, headers["connection"]) == (501, "close")
        assert json.loads(body)["error"]["code"] == "unknown_transfer_coding"
        assert wire.is_closed()


def test_a_body_may_come_byte_by_byte(address: tuple[str, int]) -> None:
    with Wire(address) as wire:
        wire.write(ECHO, "Content-Length: 5")
        for byte in b"hello":
            wire.socket.sendall(bytes([byte]))
        assert wire.read()[2] == b"hello"


@pytest.mark.parametrize("blank", ["", " ", " \t "])  # around a value, they are not part of it
def test_who_asks_whether_to_go_on_is_told_so(address: tuple[str, int], blank: str) -> None:
    with Wire(address) as wire:
        wire.write(ECHO, "Content-Length: 2", f"Expect:{blank}100-continue{blank}")
        assert wire.read()[0] == 100
        wire.socket.sendall(b"ok")
        assert wire.read()[::2] == (200, b"ok")


def test_who_is_refused_is_not_asked_for_the_body(address: tuple[str, int]) -> None:
    with Wire(address) as wire:
        wire.write(ECHO, "Content-Length: 99999999999", "Expect: 100-continue")
        assert wire.read()[0] == 413


def test_pipelined_requests_are_answered_in_order(address: tuple[str, int]) -> None:
    with Wire(address) as wire:
        for number in range(5):
            wire.write(ECHO, "Content-Length: 1", body=b"%d" % number)
        assert [wire.read()[2] for _ in range(5)] == [b"0", b"1", b"2", b"3", b"4"]


def test_an_answer_of_unknown_length_comes_in_chunks(address: tuple[str, int]) -> None:
    with Wire(address) as wire:
        for _ in range(2):
            wire.write("GET /v1/pieces HTTP/1.1")
            status, headers, body = wire.read()
            assert (status, headers["transfer-encoding"], body) == (200, "chunked", b"onetwo")
            assert "content-length" not in headers


def test_http_1_0_has_no_chunks_and_its_connections_end(address: tuple[str, int]) -> None:
    for path, body in {"/v1/pieces": b"onetwo", "/v1/last": b"bye"}.items():
        with Wire(address) as wire:
            wire.write(f"GET {path} HTTP/1.0")
            status, headers, answered = wire.read()
            assert (status, answered, headers["connection"]) == (200, body, "close")
            assert "transfer-encoding" not in headers
            assert wire.is_closed()


@pytest.mark.parametrize("path", ["/v1/pieces", "/healthz"])
def test_head_has_no_body(address: tuple[str, int], path: str) -> None:
    with Wire(address) as wire:
        wire.write(f"HEAD {path} HTTP/1.1")
        assert wire.read(head_only=True)[0] == 200
        wire.write("GET /healthz HTTP/1.1")
        assert wire.read()[0] == 200


def test_no_content_has_no_body(address: tuple[str, int]) -> None:
    with Wire(address) as wire:
        wire.write("DELETE /v1/thing HTTP/1.1")
        status, headers, _ = wire.read(head_only=True)
        assert status == 204
        assert "transfer-encoding" not in headers
        wire.write("GET /healthz HTTP/1.1")
        assert wire.read()[0] == 200


@pytest.mark.parametrize(
    ("path", "headers"), [("/v1/last", ()), ("/healthz", ("Connection: close",)), ("/healthz", ("Connection: Close",))]
)
def test_a_connection_is_closed_if_either_side_wants_it(
    address: tuple[str, int], path: str, headers: tuple[str, ...]
) -> None:
    with Wire(address) as wire:
        wire.write(f"GET {path} HTTP/1.1", *headers)
        assert wire.read()[1]["connection"] == "close"
        assert wire.is_closed()


def test_an_offer_of_another_protocol_is_declined(address: tuple[str, int]) -> None:
    with Wire(address) as wire:
        wire.write(ECHO, "Content-Length: 2", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", body=b"hi")
        assert wire.read()[::2] == (200, b"hi")


def test_a_client_that_closes_its_side_gets_what_can_be_said_at_once(address: tuple[str, int]) -> None:
    with Wire(address) as wire:
        wire.write(ECHO, "Content-Length: 2", body=b"hi")
        wire.socket.shutdown(socket.SHUT_WR)
        assert wire.read()[::2] == (200, b"hi")


def test_a_client_that_closes_its_side_while_it_waits_has_left(address: tuple[str, int]) -> None:
    with Wire(address) as wire:
        wire.write("GET /v1/never HTTP/1.1")
        wire.socket.shutdown(socket.SHUT_WR)
        assert wire.is_closed()


def test_a_client_that_leaves_early_harms_nobody(address: tuple[str, int]) -> None:
    for sent in (b"", b"GET /v1/pi", b"POST /v1/echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nhalf"):
        with Wire(address) as wire:
            wire.socket.sendall(sent)
    with Wire(address) as wire:
        wire.write("GET /healthz HTTP/1.1")
        assert wire.read()[0] == 200


@pytest.mark.parametrize("header", ["x=a%0D%0Ab: c", "x=a%00b", "x y=1", "x%0D%0Ay=1", "=1", "x:=1", "x=%7F"], ids=str)
def test_a_header_that_is_none_is_not_sent(address: tuple[str, int], header: str) -> None:
    with Wire(address) as wire:
        wire.write(f"GET /v1/odd?header={header.replace(' ', '%20')} HTTP/1.1")
        assert_is_an_error_of_the_server(wire)


@pytest.mark.parametrize("path", ["/v1/short", "/v1/long", "/v1/odd?header=content-length=0_3"])
def test_an_answer_that_is_not_as_long_as_announced_is_an_error(address: tuple[str, int], path: str) -> None:
    with Wire(address) as wire:
        wire.write(f"GET {path} HTTP/1.1")
        assert_is_an_error_of_the_server(wire)


@pytest.mark.parametrize("status", [103, 204, 304])
def test_a_status_that_has_no_body_cannot_smuggle_one(address: tuple[str, int], status: int) -> None:
    with Wire(address) as wire:
        wire.write(f"GET /v1/status/{status} HTTP/1.1")
        assert_is_an_error_of_the_server(wire)


def assert_is_an_error_of_the_server(wire: Wire) -> None:
    """Read an error, whole with its headers, after which the connection goes on."""
    status, headers, body = wire.read()
    assert (status, json.loads(body)["error"]["type"]) == (500, "server_error")
    assert headers["x-request-id"]
    wire.write("GET /healthz HTTP/1.1")
    assert wire.read()[0] == 200


def test_what_the_client_got_is_what_is_counted(address: tuple[str, int]) -> None:
    with Wire(address) as wire:
        wire.write("GET /v1/short HTTP/1.1")
        wire.read()
        wire.write("GET /metrics HTTP/1.1")
        page = wire.read()[2].decode()
    counted = [line for line in page.splitlines() if "antwort_http_requests_total" in line and "/v1/short" in line]
    assert [line.partition("status=")[2][:5] for line in counted] == ['"500"']


def test_this_is_no_proxy(address: tuple[str, int], caplog: pytest.LogCaptureFixture) -> None:
    with Wire(address) as wire:
        wire.write("GET /v1/pieces HTTP/1.1")
        wire.socket.sendall(b"CONNECT example.org:80 HTTP/1.1\r\n\r\n")
        assert wire.read()[::2] == (200, b"onetwo")  # what came before is answered
    with Wire(address) as wire:
        wire.socket.sendall(b"CONNECT example.org:80 HTTP/1.1\r\n\r\n")
        status, headers, body = wire.read()
        assert (status, headers["connection"]) == (405, "close")
        assert "no proxy" in json.loads(body)["error"]["message"]
        assert wire.is_closed()
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_a_body_that_was_not_asked_for_is_not_waited_for(address: tuple[str, int]) -> None:
    with Wire(address) as wire:
        wire.write("POST /v1/nowhere HTTP/1.1", "Content-Length: 43", "Expect: 100-continue")
        status, headers, _ = wire.read()
        assert (status, headers["connection"]) == (404, "close")


def test_a_request_that_waited_has_nothing_of_the_one_before(caplog: pytest.LogCaptureFixture) -> None:
    keys = [ApiKeyConfig(id="one", key=SecretStr("k" * 40), tenant="alpha")]
    app = Antwort(Config(auth=AuthConfig(api_keys=keys)), providers=[Shapes()])
    with running(app) as server, caplog.at_level("INFO", "antwort.audit"):
        parts = urlsplit(server.url)
        with Wire((str(parts.hostname), int(parts.port or 0))) as wire:
            wire.write("GET /v1/pieces HTTP/1.1", f"Authorization: Bearer {'k' * 40}")
            wire.write("GET /v1/pieces HTTP/1.1")
            assert [wire.read()[0] for _ in range(2)] == [200, 401]
    refused = [record for record in caplog.records if record.getMessage() == "request.refused"]
    assert [getattr(record, CLEAN_FIELDS).get("tenant") for record in refused] == [None]


def test_a_json_answer_and_its_head_are_one_write(address: tuple[str, int]) -> None:
    with Wire(address) as wire:
        wire.write("GET /healthz HTTP/1.1")
        first: Any = wire.socket.recv(65536)
        assert b"\r\n\r\n{" in first
