"""Hosts that answer without end: whoever asks them gets an error, soon, while others have their turns."""

import tracemalloc
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.support.hostile_host import ATTACKS, DRIP, HostileHost, LoopWatch

from antwort.config import OutboundConfig
from antwort.context.http_client import OutboundError, OutboundTimeoutError, TooLargeError, UnreachableError
from antwort.outbound import Outbound

LIMIT = 2 * 1024 * 1024
MOST_SENT = 64 * 1024 * 1024
"""Bytes after which an endless answer is given up for certain: eight times the content, and what sockets hold."""
MOST_CPU = 1.0
"""Seconds of CPU in which nobody else has a turn: of a stall there are many more."""
TRIES = 3
"""How often it may be otherwise: what a busy machine takes away counts, too, but a stall comes back each time."""
ONE_READ = 4 * 1024 * 1024
"""Bytes that one read of the socket may become for a moment, however small the limit is: as many small pieces."""
ENDLESS = {
    "chunked content",
    "content without a length",
    "gzip bomb",
    "nothing in gzip",
    "tiny chunks",
    "extended chunks",
}
INTERIM = {"interim answers", "early hints"}


@pytest_asyncio.fixture
async def client() -> AsyncIterator[Outbound]:
    client = Outbound(OutboundConfig(allow=["127.0.0.0/8"], max_bytes=LIMIT))  # type: ignore[arg-type]
    yield client
    await client.close()


@pytest.mark.parametrize("way", ["fetch", "call"])
@pytest.mark.parametrize("attack", ATTACKS)
async def test_an_answer_without_end_is_given_up_while_others_have_their_turns(
    client: Outbound, attack: str, way: str
) -> None:
    wanted = TooLargeError if attack not in INTERIM else UnreachableError
    longest: list[float] = []
    while len(longest) < TRIES and (not longest or longest[-1] >= MOST_CPU):
        with HostileHost(ATTACKS[attack]) as host:
            async with LoopWatch() as watch:
                with pytest.raises(OutboundError) as caught:
                    await (client.fetch(host.url, time_limit=60) if way == "fetch" else client.call("GET", host.url))
        assert isinstance(caught.value, wanted), caught.value
        assert host.sent < MOST_SENT
        longest.append(watch.longest)
    assert min(longest) < MOST_CPU


@pytest.mark.parametrize("attack", DRIP)
async def test_an_answer_that_drips_has_its_time(client: Outbound, attack: str) -> None:
    with HostileHost(DRIP[attack]) as host:
        async with LoopWatch() as watch:
            for way in (client.fetch(host.url, time_limit=0.3), client.call("GET", host.url, time_limit=0.3)):
                with pytest.raises(OutboundTimeoutError):
                    await way
    assert watch.turns > 2
    assert host.connections == 2


@pytest.mark.parametrize("attack", sorted(ENDLESS))
async def test_an_answer_without_end_takes_little_more_memory_than_is_read(client: Outbound, attack: str) -> None:
    with HostileHost(ATTACKS[attack]) as host, pytest.raises(TooLargeError):
        await client.fetch(host.url, max_bytes=1000)  # loads what it needs
    most = LIMIT // 8 if attack == "tiny chunks" else LIMIT  # each takes long to trace
    with HostileHost(ATTACKS[attack]) as host:
        tracemalloc.start()
        try:
            with pytest.raises(TooLargeError):
                await client.fetch(host.url, max_bytes=most, time_limit=60)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < 2.5 * most + ONE_READ
