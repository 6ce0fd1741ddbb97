"""The way through a proxy: whole URLs for servers without TLS, a tunnel for those with it."""

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.support.certificates import certificates
from tests.support.site import Reply, Site

from antwort.errors import ConfigError
from antwort.http1.client import Http1Client, ProtocolError
from antwort.http1.proxies import Proxy, ProxyError

BASIC = f"Basic {base64.b64encode(b'me:s:t').decode()}"


class Tunnels:
    """A proxy that lets through to one place, or answers what it is told."""

    def __init__(self, to: int, answer: bytes | None) -> None:
        self._to = to
        self._answer = answer
        self.asked: list[bytes] = []
        self.served: list[asyncio.Event] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer a CONNECT."""
        self.served.append(asyncio.Event())
        served = self.served[-1]
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            self.asked.append(await reader.readuntil(b"\r\n\r\n"))
            if self._answer is not None:
                while True:
                    writer.write(self._answer)
                    await writer.drain()
            inner, outer = await asyncio.open_connection("127.0.0.1", self._to)
            writer.write(b"HTTP/1.1 200 Connection established\r\nvia: x\r\n\r\n")
            await asyncio.gather(_copy(reader, outer), _copy(inner, writer))
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        served.set()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


@contextlib.asynccontextmanager
async def tunnelling(to: int, answer: bytes | None = None) -> AsyncIterator[tuple[Tunnels, Proxy]]:
    tunnels = Tunnels(to, answer)
    server = await asyncio.start_server(tunnels.serve, "127.0.0.1", 0)
    async with server:
        yield tunnels, Proxy("127.0.0.1", server.sockets[0].getsockname()[1], tls=False, authorization=BASIC)
        for served in tunnels.served:
            await served.wait()


async def test_a_server_with_tls_is_reached_through_a_tunnel(tmp_path: Path) -> None:
    serving, trusting = certificates(tmp_path, "pages.example")
    request = b"GET / HTTP/1.1\r\nhost: pages.example\r\n\r\n"
    with Site({"/": Reply("secure")}, tls=serving) as site:
        async with tunnelling(site.port) as (tunnels, proxy):
            client = Http1Client("pages.example", 443, tls=True, limit=1, context=trusting, proxy=proxy)
            for _ in range(2):
                reply = await client.exchange(request, connect_timeout=30, silence=30)
                assert (reply.status, await reply.chunk()) == (200, b"secure")
                reply.abort()
            await client.close()
    [asked] = tunnels.asked
    assert asked.startswith(b"CONNECT pages.example:443 HTTP/1.1\r\nhost: pages.example:443\r\n")
    assert f"proxy-authorization: {BASIC}".encode() in asked
    assert [one.headers.get("proxy-authorization") for one in site.asked] == [None, None]


@pytest.mark.parametrize(
    "answer",
    [b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", b"x" * 1000, b"HTTP/1.1 100 Continue\r\n\r\n" * 100],
    ids=["refused", "endless", "interim"],
)
async def test_a_proxy_that_does_not_let_through_is_an_error(tmp_path: Path, answer: bytes) -> None:
    _, trusting = certificates(tmp_path, "pages.example")
    async with tunnelling(0, answer) as (_, proxy):
        client = Http1Client("pages.example", 443, tls=True, limit=1, context=trusting, proxy=proxy)
        with pytest.raises((ProxyError, ProtocolError)):
            await client.exchange(b"GET / HTTP/1.1\r\n\r\n", connect_timeout=30, silence=30)
        assert client.slots.taken == 0


def test_the_environment_names_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://me:s%3At@proxy.internal:3128")
    monkeypatch.setenv("https_proxy", "https://proxy.internal")
    monkeypatch.setenv("no_proxy", "near.example")
    plain = Proxy.for_url(urlsplit("http://far.example/"))
    assert plain == Proxy("proxy.internal", 3128, tls=False, authorization=BASIC)
    assert Proxy.for_url(urlsplit("https://far.example/")) == Proxy("proxy.internal", 443, tls=True, authorization=None)
    assert Proxy.for_url(urlsplit("http://near.example/")) is None


@pytest.mark.parametrize(
    "named", ["socks5://proxy.internal", "http://proxy:port", "http://proxy:99999", "http://[broken"]
)
def test_a_proxy_that_is_none_of_http_is_a_configuration_error(named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", named)
    monkeypatch.setenv("no_proxy", "")
    with pytest.raises(ConfigError, match="HTTP_PROXY must be the URL of an HTTP proxy"):
        Proxy.for_url(urlsplit("http://far.example/"))
