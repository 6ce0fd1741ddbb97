"""What the client does with answers: sizes, times, compression, redirects, certificates, failures."""

import asyncio
import contextlib
import gc
import gzip
import socket
import ssl
import zlib
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import pytest
import pytest_asyncio
from tests.support.certificates import certificates
from tests.support.site import Asked, Reply, Site

from antwort.config.engine import OutboundConfig
from antwort.context.http_client import OutboundTimeoutError, TooLargeError, UnreachableError
from antwort.http1.client import Http1Connection
from antwort.outbound import Outbound

HERE = OutboundConfig(allow=["127.0.0.0/8"])


@pytest_asyncio.fixture
async def client() -> AsyncIterator[Outbound]:
    client = Outbound(HERE)
    yield client
    await client.close()


async def test_an_answer_has_status_headers_type_and_body(client: Outbound) -> None:
    with Site({"/a": Reply("café", 203, {"X-Thing": "1"}, "Text/HTML; Charset=utf-8")}) as site:
        answer = await client.fetch(f"{site.url}/a?b=c#d", headers={"Accept": "text/html"})
    assert (answer.status, answer.url, answer.text()) == (203, f"{site.url}/a?b=c", "café")
    assert (answer.content_type, answer.charset, answer.headers["x-thing"]) == ("text/html", "utf-8", "1")
    [asked] = site.asked
    assert asked.headers["accept"] == "text/html"
    assert asked.headers["user-agent"].startswith("antwort/")
    assert asked.query == {"b": "c"}


@pytest.mark.parametrize(
    ("body", "kind", "text"),
    [
        (b"caf\xe9", "text/plain; charset=latin-1", "café"),
        (b"caf\xc3\xa9", "text/plain", "café"),
        (b"caf\xe9", "text/plain", "caf�"),
        (b"plain", "text/plain; charset=nonsense", "plain"),
        (b"plain", "text/plain; charset=hex", "plain"),
        (b"a-plain", "text/plain; charset=Punycode", "a-plain"),
    ],
)
async def test_text_is_decoded_whatever_the_answer_says(client: Outbound, body: bytes, kind: str, text: str) -> None:
    with Site({"/": Reply(body, type=kind)}) as site:
        assert (await client.fetch(site.url)).text() == text


async def test_redirects_are_followed_five_times(client: Outbound) -> None:
    def step(asked: Asked) -> Reply:
        number = int(asked.path.removeprefix("/"))
        return Reply(status=302, headers={"location": f"/{number - 1}"}) if number else Reply("there")

    with Site({"*": step}) as site:
        answer = await client.fetch(f"{site.url}/5")
        with pytest.raises(UnreachableError, match="redirects more than 5 times"):
            await client.fetch(f"{site.url}/6")
    assert (answer.text(), answer.url) == ("there", f"{site.url}/0")


async def test_a_redirect_without_a_place_is_an_answer(client: Outbound) -> None:
    with Site({"/": Reply("choose", 302)}) as site:
        assert (await client.fetch(site.url)).status == 302


@pytest.mark.parametrize(
    ("encoding", "packed"),
    [
        ("gzip", gzip.compress(b"hello" * 1000)),
        ("x-gzip", gzip.compress(b"hello" * 1000)),
        ("deflate", zlib.compress(b"hello" * 1000)),
        ("deflate", zlib.compress(b"hello" * 1000, wbits=-15)),
        ("identity", b"hello" * 1000),
    ],
    ids=["gzip", "x-gzip", "zlib", "bare", "identity"],
)
async def test_a_compressed_answer_is_unpacked(client: Outbound, encoding: str, packed: bytes) -> None:
    with Site({"/": Reply(packed, headers={"content-encoding": encoding})}) as site:
        assert (await client.fetch(site.url)).body == b"hello" * 1000


@pytest.mark.parametrize(
    "reply",
    [
        lambda: Reply(b"x" * 100_001),
        lambda: Reply(b"10000\r\n%b\r\n" % (b"x" * 65536) * 2 + b"0\r\n\r\n", headers={"transfer-encoding": "chunked"}),
        lambda: Reply(gzip.compress(b"\0" * 50_000_000), headers={"content-encoding": "gzip"}),
        lambda: Reply(zlib.compress(b"\0" * 50_000_000), headers={"content-encoding": "deflate"}),
    ],
    ids=["declared", "chunked", "gzip bomb", "deflate bomb"],
)
async def test_an_answer_that_is_too_large_is_refused(client: Outbound, reply: Callable[[], Reply]) -> None:
    with Site({"/": reply()}) as site:
        for way in (client.fetch(site.url, max_bytes=100_000), client.call("GET", site.url, max_bytes=100_000)):
            with pytest.raises(TooLargeError, match="larger than the 100,000 bytes"):
                await way


@pytest.mark.parametrize(
    ("encoding", "body"),
    [("gzip", b"\x1f\x8bnonsense"), ("br", b"\x0b\x02\x80"), ("gzip", gzip.compress(b"x" * 100)[:-12])],
    ids=["nonsense", "not asked for", "cut"],
)
async def test_an_answer_that_cannot_be_unpacked_is_none(client: Outbound, encoding: str, body: bytes) -> None:
    with Site({"/": Reply(body, headers={"content-encoding": encoding})}) as site, pytest.raises(UnreachableError):
        await client.fetch(site.url)


async def test_an_answer_has_to_come_in_time(client: Outbound) -> None:
    async def nothing(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):
            await gone.wait()

    gone = asyncio.Event()
    server = await asyncio.start_server(nothing, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    async with server:
        for way in (client.fetch(url, time_limit=0.05), client.call("GET", url, time_limit=0.05)):
            with pytest.raises(OutboundTimeoutError, match=r"did not answer within 0\.05 seconds") as caught:
                await way
            assert caught.value.status == "timeout"
        gone.set()


@pytest.mark.parametrize(
    "reply",
    [Reply(silent=True), Reply("short", headers={"content-length": "100", "connection": "close"})],
    ids=["silent", "cut"],
)
async def test_a_server_that_breaks_off_is_unreachable(client: Outbound, reply: Reply) -> None:
    with Site({"/": reply}) as site:
        for way in (client.fetch(site.url), client.call("GET", site.url)):
            with pytest.raises(UnreachableError, match="broke off"):
                await way


async def test_nobody_listening_is_unreachable_and_no_address_is_told() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]

        async def resolve(_host: str, _port: int) -> Sequence[str]:
            return ["127.0.0.1", "127.0.0.2"]

        client = Outbound(HERE, resolve=resolve)
        with pytest.raises(UnreachableError) as caught:
            await client.fetch(f"http://pages.example:{port}/")
        await client.close()
    assert str(caught.value) == "'pages.example' cannot be reached."


async def test_further_addresses_are_tried() -> None:
    with Site({"/": Reply("hello")}) as site:

        async def resolve(_host: str, _port: int) -> Sequence[str]:
            return ["127.0.0.9", "127.0.0.1"]  # nobody listens on the first

        client = Outbound(HERE, resolve=resolve)
        assert (await client.fetch(f"http://pages.example:{site.port}/")).text() == "hello"
        await client.close()


async def test_a_configured_url_is_called_with_parameters_and_its_connection_is_kept(client: Outbound) -> None:
    with Site({"/search": Reply('{"a": 1}', type="application/json")}) as site:
        for query in ("tea & milk", "grün"):
            answer = await client.call("GET", f"{site.url}/search", params={"q": query}, headers={"X-Key": "k"})
            assert answer.json() == {"a": 1}
    assert [asked.query["q"] for asked in site.asked] == ["tea & milk", "grün"]
    assert site.asked[0].headers["x-key"] == "k"
    assert site.connections == 1


async def test_connections_to_pages_are_not_kept(client: Outbound) -> None:
    with Site({"/": Reply("hello")}) as site:
        await client.fetch(site.url)
        await client.fetch(site.url)
    assert site.connections == 2


async def test_a_configured_url_is_called_wherever_it_is_and_not_left() -> None:
    client = Outbound()
    with Site({"/": Reply(status=302, headers={"location": "/elsewhere"})}) as site:
        assert (await client.call("GET", site.url)).status == 302
    await client.close()
    assert [asked.path for asked in site.asked] == ["/"]


async def test_cookies_are_not_kept(client: Outbound) -> None:
    with Site({"/": Reply("hello", headers={"set-cookie": "a=b"})}) as site:
        await client.call("GET", site.url)
        await client.call("GET", site.url)
    assert "cookie" not in site.asked[1].headers


async def test_json_that_is_none_is_a_value_error(client: Outbound) -> None:
    with Site({"/": Reply("[" * 100_000)}) as site:
        answer = await client.call("GET", site.url)
    with pytest.raises(ValueError, match="not JSON"):
        answer.json()


# --- certificates ----------------------------------------------------------------------------------------------------


async def test_a_pinned_connection_still_has_the_name_and_certificate_of_its_host(tmp_path: Path) -> None:
    async def resolve(_host: str, _port: int) -> Sequence[str]:
        return ["127.0.0.1"]

    server, trusting = certificates(tmp_path, "pages.example")
    names: list[str | None] = []
    server.sni_callback = lambda _socket, name, _context: names.append(name)
    with Site({"/": Reply("secure")}, tls=server) as site:
        client = Outbound(HERE, resolve=resolve, tls=trusting)
        answer = await client.fetch(f"https://pages.example:{site.port}/")
        with pytest.raises(UnreachableError, match=r"The certificate of 'other.example' is not valid"):
            await client.fetch(f"https://other.example:{site.port}/")
        await client.close()
        strict = Outbound(HERE, resolve=resolve)
        with pytest.raises(UnreachableError, match=r"The certificate of 'pages.example' is not valid"):
            await strict.fetch(f"https://pages.example:{site.port}/")
        await strict.close()
    assert answer.text() == "secure"
    assert names == ["pages.example", "other.example", "pages.example"]


async def test_a_host_that_speaks_no_tls_is_told_so(client: Outbound) -> None:
    with Site({"/": Reply("plain")}) as site, pytest.raises(UnreachableError, match="No secure connection"):
        await client.fetch(f"https://{site.place}/")


# --- connections to services -----------------------------------------------------------------------------------------


async def test_a_service_that_is_asked_twice_at_first_has_one_client_and_leaves_no_connection_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serving, trusting = certificates(tmp_path, "localhost")
    monkeypatch.setattr(ssl, "create_default_context", lambda: trusting)
    with Site({"/": Reply("hello")}, tls=serving) as site:
        client = Outbound()
        asked = (client.call("GET", f"https://localhost:{site.port}/") for _ in range(2))
        assert [answer.text() for answer in await asyncio.gather(*asked)] == ["hello"] * 2
        await client.close()
        for _ in range(3):  # connections are told that they are closed
            await asyncio.sleep(0)
        known = [one for one in gc.get_objects() if isinstance(one, Http1Connection) and one._client._port == site.port]
    assert [one for one in known if one.error is None] == []


@contextlib.asynccontextmanager
async def forgetful() -> AsyncIterator[tuple[str, list[bytes]]]:
    """Give a service that answers the first request of each connection, and leaves when it has read the second."""
    asked: list[bytes] = []
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if (task := asyncio.current_task()) is not None:
            tasks.add(task)
        with contextlib.suppress(asyncio.IncompleteReadError):
            asked.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
            asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", asked
        await asyncio.wait(tasks)


@pytest.mark.parametrize("method", ["POST", "PATCH"])
async def test_what_may_have_been_done_is_not_asked_for_a_second_time(method: str) -> None:
    async with forgetful() as (url, asked), asyncio.timeout(30):
        client = Outbound()
        assert (await client.call(method, url)).body == b"ok"
        with pytest.raises(UnreachableError, match="broke off"):
            await client.call(method, url)
        await client.close()
    assert len(asked) == 2


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
async def test_what_may_be_done_twice_is_asked_for_again_if_a_kept_connection_was_closed(method: str) -> None:
    async with forgetful() as (url, asked), asyncio.timeout(30):
        client = Outbound()
        assert [(await client.call(method, url)).body for _ in range(2)] == [b"ok"] * 2
        await client.close()
    assert len(asked) == 3


async def test_an_answer_without_an_end_takes_no_connection_that_requests_wait_for() -> None:
    is_begun = asyncio.Event()
    tasks: set[asyncio.Task[None]] = set()

    async def take(_piece: bytes) -> None:
        is_begun.set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if (task := asyncio.current_task()) is not None:
            tasks.add(task)
        path = (await reader.readuntil(b"\r\n\r\n")).split()[1]
        size = b"5" if path == b"/" else b"1000"
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %s\r\n\r\nhello" % size)
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    client = Outbound(OutboundConfig(max_connections=1))
    async with server:
        endless = asyncio.create_task(
            client.call("GET", f"{url}/endless", on_piece=take, standing=True, time_limit=120)
        )
        await is_begun.wait()
        assert (await client.call("GET", url)).body == b"hello"
        endless.cancel()
        await asyncio.wait([endless])
        await client.close()
        await asyncio.wait(tasks)
