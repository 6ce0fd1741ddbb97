"""Streams: signs of life, clients that do not read, clients that leave."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from typing_extensions import override

from antwort.concurrency.deadline import Straggler, Stragglers
from antwort.server.http.exchange import Exchange, FlowControl
from antwort.server.http.sse import DONE, LARGE, EventStream, Heartbeats, frame, while_connected
from antwort.web.requests import EXCHANGE


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
        await asyncio.wait_for(alive.beaten_thrice.wait(), 60)
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


class SlowClient(Client):
    """Reads one piece of what is sent at a time, when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.has_read = asyncio.Event()

    @override
    async def send(self, message: Any) -> None:
        await super().send(message)
        if message.get("body"):
            self.reading.clear()
            self.has_read.set()


HUGE = b"x" * (3 * LARGE)


async def test_what_comes_while_a_sign_of_life_writes_a_large_event_stands_behind_it() -> None:
    client = SlowClient()
    stream = EventStream(client.send)
    stream.put("response.created", HUGE)
    beating = asyncio.create_task(stream.beat())
    await client.has_read.wait()
    stream.put("response.output_text.delta", b"{}")
    writing = asyncio.create_task(_ended(stream))
    await asyncio.sleep(0)
    await _read_on(client, beating, writing)
    assert client.body == frame("response.created", HUGE) + frame("response.output_text.delta", b"{}") + DONE


async def test_a_large_event_that_is_cut_off_by_a_deadline_is_written_to_its_end_before_the_next() -> None:
    client = SlowClient()
    stream = EventStream(client.send)
    stream.put("response.output_text.done", HUGE)
    writing = asyncio.create_task(stream.flush())
    await client.has_read.wait()
    writing.cancel()
    await asyncio.wait({writing})
    await _read_on(client, asyncio.create_task(stream.beat()))
    assert client.body == frame("response.output_text.done", HUGE), "no sign of life stands in the midst of it"
    stream.put("response.failed", b"{}")
    await _read_on(client, asyncio.create_task(_ended(stream)))
    assert client.body == frame("response.output_text.done", HUGE) + frame("response.failed", b"{}") + DONE


async def test_a_sign_of_life_that_comes_too_late_does_not_stand_in_a_large_event() -> None:
    client = SlowClient()
    stream = EventStream(client.send)
    await stream.open()
    stream.put("response.output_text.done", HUGE)
    late = stream.beat()
    writing = asyncio.create_task(stream.flush())
    await client.has_read.wait()
    await _read_on(client, asyncio.create_task(late), writing)
    assert client.body == frame("response.output_text.done", HUGE)


class Wire:
    """What an exchange writes to."""

    def __init__(self) -> None:
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def close(self) -> None:
        """Be closed."""


async def test_a_sign_of_life_that_comes_after_the_end_is_none() -> None:
    client = Client()
    stream = EventStream(client.send)
    await stream.open()
    late = stream.beat()
    await stream.end()
    sent = [*client.sent]
    await late
    assert client.sent == sent


async def _streaming() -> tuple[EventStream, Exchange, Wire]:
    wire: Any = Wire()
    exchange = Exchange({"type": "http", "method": "POST"}, wire, FlowControl(wire), (), on_end=lambda: None)
    stream = EventStream(exchange.send, exchange)
    stream.put("a", b"{}")
    await stream.flush()
    wire.written.clear()
    return stream, exchange, wire


def _chunk(*frames: bytes) -> bytes:
    body = b"".join(frames)
    return b"%x\r\n%b\r\n" % (len(body), body)


async def test_what_need_not_wait_is_written_at_once_as_it_would_be_otherwise() -> None:
    stream, _, wire = await _streaming()
    assert stream.flush_now is not None
    assert stream.flush_now()
    stream.put("a", b"1", b"2")
    stream.put("b", b"3")
    assert stream.flush_now()
    stream.put("c", b"4")
    await stream.flush()
    first = _chunk(frame("a", b"1"), frame("a", b"2"), frame("b", b"3"))
    assert wire.written == [first, _chunk(frame("c", b"4"))]


def _pause(stream: EventStream, exchange: Exchange) -> None:
    stream.put("a", b"1")
    exchange.flow.pause_writing()


def _leave(stream: EventStream, exchange: Exchange) -> None:
    stream.put("a", b"1")
    exchange.leave()


def _say_much(stream: EventStream, _: Exchange) -> None:
    stream.put("a", HUGE)


@pytest.mark.parametrize("happens", [_pause, _leave, _say_much])
async def test_what_has_to_wait_is_not_written_at_once_and_not_lost(
    happens: Callable[[EventStream, Exchange], None],
) -> None:
    stream, exchange, wire = await _streaming()
    happens(stream, exchange)
    assert stream.flush_now is not None
    assert not stream.flush_now()
    assert wire.written == []
    exchange.flow.resume_writing()
    await stream.flush()
    await stream.end()
    whole = b"".join(wire.written)
    assert (b"event: a" in whole) != exchange.disconnected, "nobody writes to who has left"


async def test_nothing_is_written_at_once_before_the_head_of_an_answer_or_without_an_exchange() -> None:
    wire: Any = Wire()
    exchange = Exchange({"type": "http", "method": "POST"}, wire, FlowControl(wire), (), on_end=lambda: None)
    stream = EventStream(exchange.send, exchange)
    stream.put("a", b"1")
    assert stream.flush_now is not None
    assert not stream.flush_now()
    assert wire.written == []
    assert EventStream(exchange.send).flush_now is None


async def _ended(stream: EventStream) -> None:
    await stream.flush()
    await stream.end()


async def _read_on(client: Client, *tasks: asyncio.Task[None]) -> None:
    """Let a client read until some tasks are over."""
    async with asyncio.timeout(30):
        while not all(task.done() for task in tasks):
            client.reading.set()
            await asyncio.sleep(0)
    await asyncio.gather(*tasks)
