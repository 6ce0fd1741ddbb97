"""Requests to URLs that strangers name: public addresses only, as for pages, and over connections that are kept."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
from tests.outbound.hostile import HOSTILE
from tests.support.site import Reply, Site

from antwort.config.engine import OutboundConfig
from antwort.context.http_client import BlockedError, TooLargeError, UnreachableError
from antwort.outbound import Outbound


@pytest.fixture
async def client() -> AsyncIterator[Outbound]:
    client = Outbound(OutboundConfig(allow=["127.0.0.1"]))
    yield client
    await client.close()


@pytest.mark.parametrize("url", HOSTILE)
async def test_a_hostile_url_is_refused(url: str) -> None:
    client = Outbound()
    try:
        with pytest.raises(BlockedError) as caught:
            await client.call("POST", url, body=b"{}", guarded=True)
    finally:
        await client.close()
    assert caught.value.status == "denied"


async def test_its_connection_is_kept(client: Outbound) -> None:
    with Site({"/": Reply("here")}) as site:
        answers = [await client.call("POST", site.url, body=b"{}", guarded=True) for _ in range(3)]
        assert [answer.body for answer in answers] == [b"here"] * 3
        assert (site.connections, len(site.asked)) == (1, 3)


async def test_a_redirect_is_not_followed(client: Outbound) -> None:
    with Site({"/": Reply(status=307, headers={"location": "http://127.0.0.2/"})}) as site:
        answer = await client.call("POST", site.url, body=b"{}", guarded=True)
        assert (answer.status, len(site.asked)) == (307, 1)


async def test_what_was_checked_is_what_is_asked() -> None:
    """The address of a name may change: until it is checked again, the one that was checked is asked."""
    answers = [["127.0.0.1"], ["169.254.169.254"]]

    async def resolve(_host: str, _port: int) -> Sequence[str]:
        return answers.pop(0)

    with Site({"/": Reply("the checked one")}) as site:
        client = Outbound(OutboundConfig(allow=["127.0.0.1"]), resolve=resolve)
        try:
            for _ in range(2):
                answer = await client.call("POST", f"http://rebind.example:{site.port}/", body=b"", guarded=True)
                assert answer.body == b"the checked one"
        finally:
            await client.close()
        assert {one.headers["host"] for one in site.asked} == {f"rebind.example:{site.port}"}


async def test_a_server_that_is_gone_is_looked_up_anew() -> None:
    asked: list[str] = []

    async def resolve(host: str, _port: int) -> Sequence[str]:
        asked.append(host)
        return ["127.0.0.1"]

    with Site({"/": Reply("here")}) as site:
        url = f"http://moved.example:{site.port}/"
    client = Outbound(OutboundConfig(allow=["127.0.0.1"]), resolve=resolve)
    try:
        for _ in range(2):
            with pytest.raises(UnreachableError):
                await client.call("POST", url, body=b"", guarded=True)
    finally:
        await client.close()
    assert asked == ["moved.example"] * 2


async def test_an_answer_has_its_limit(client: Outbound) -> None:
    with Site({"/": Reply("x" * 10_000)}) as site, pytest.raises(TooLargeError):
        await client.call("POST", site.url, body=b"", guarded=True, max_bytes=1000)


async def test_tenants_take_turns_at_the_connections_to_one_server() -> None:
    asked: list[str] = []
    free, gone = asyncio.Event(), asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            asked.append(line.split()[1].decode())
            while (await reader.readline()).strip():
                pass
            await free.wait()
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        writer.close()
        await writer.wait_closed()
        gone.set()

    async def resolve(_host: str, _port: int) -> Sequence[str]:
        return ["127.0.0.1"]

    # There is one connection to each server.
    client = Outbound(OutboundConfig(allow=["127.0.0.1"], max_connections=4), resolve=resolve)
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        wanted = [("a0", "a"), ("a1", "a"), ("a2", "a"), ("b", "b")]
        calls = [client.call("GET", f"{url}/{path}", guarded=True, tenant=tenant) for path, tenant in wanted]
        everything = asyncio.gather(*calls)
        await asyncio.sleep(0)  # each waits for the connection now
        free.set()
        await everything
        await client.close()
        await gone.wait()
    assert asked == ["/a0", "/b", "/a1", "/a2"]
