"""Streams: signs of life, clients that do not read, clients that leave."""

import asyncio
from typing import Any

import pytest
from typing_extensions import override

from antwort.concurrency.stragglers import Straggler, Stragglers
from antwort.server.exchange import Exchange
from antwort.server.sse import EventStream, Heartbeats, frame, while_connected
from antwort.web.asgi_scope import EXCHANGE


class Client:
    """Takes what is sent; while `reading` is not set, it does not."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.reading = asyncio.Event()
        self.reading.set()
        self.beaten_thrice = asyncio.Event()

    async def send(self, message: Any) -> None:
        await self.reading.wait()
        self.sent.append(message)
        if self.body.count(b": keep-alive\n\n") == 3:
            self.beaten_thrice.set()

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)


async def test_frames_that_come_together_leave_in_one_write() -> None:
    client = Client()
    stream = EventStream(client.send)
    stream.put("a", b"{}")
    stream.put("b", b"[]")
    await stream.flush()
    await stream.end()
    assert [message["type"] for message in client.sent] == ["http.response.start", *["http.response.body"] * 2]
    assert client.sent[1]["body"] == frame("a", b"{}") + frame("b", b"[]")
    assert client.body.endswith(b"data: [DONE]\n\n")


async def test_a_silent_stream_gives_signs_of_life_and_a_stuck_one_does_not_stop_the_others() -> None:
    heartbeats = Heartbeats(silence=0.01)
    stuck, alive = Client(), Client()
    streams = [EventStream(client.send) for client in (stuck, alive)]
    for stream in streams:
        await stream.open()
    stuck.reading.clear()
    with heartbeats.watching(streams[0]), heartbeats.watching(streams[1]):
        await asyncio.wait_for(alive.beaten_thrice.wait(), 10)
    assert stuck.body == b""
    stuck.reading.set()
    await asyncio.sleep(0.05)
    assert stuck.body == b": keep-alive\n\n"


async def test_work_is_cancelled_when_the_client_leaves_and_nothing_is_raised() -> None:
    leaving, cancelled = asyncio.Event(), False

    async def receive() -> Any:
        await leaving.wait()
        return {"type": "http.disconnect"}

    async def work() -> None:
        nonlocal cancelled
        leaving.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled = True
            raise

    await while_connected({}, receive, work(), Stragglers())
    assert cancelled


class _AtOnce(Stragglers):
    """Takes everything for late."""

    @override
    def expect(self, straggler: Straggler) -> None:
        straggler.be_late()


@pytest.mark.parametrize("before", [False, True], ids=["while it works", "before it begins"])
async def test_an_exchange_tells_that_its_client_leaves(before: bool) -> None:
    anything: Any = None
    exchange = Exchange({"type": "http", "method": "POST"}, anything, anything, (), on_end=anything)
    left: list[str] = []

    async def receive() -> Any:
        raise AssertionError("nobody need ask")

    async def work() -> None:
        if not before:
            exchange.leave()
        await asyncio.Event().wait()

    if before:
        exchange.leave()
    await while_connected({EXCHANGE: exchange}, receive, work(), _AtOnce(), on_leave=lambda: left.append("the client"))
    assert left == ["the client"]
    assert exchange.on_leave is None
