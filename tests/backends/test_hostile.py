"""Model servers that send too much of anything: each is told to stop at a limit, and nobody else has to wait."""

import asyncio
import contextlib
import gzip
import zlib
from collections.abc import Awaitable
from typing import Any

import pytest
from tests.backends.conftest import (
    DONE,
    Connect,
    ConnectResponses,
    Exchange,
    ModelServer,
    Notes,
    a_request,
    delta,
    event,
    reply,
    retrying,
    stream,
)
from typing_extensions import override

from antwort.backends import Retries
from antwort.backends.chat.answer import MOST_BLANKS, ChatAnswer, ThinkTags
from antwort.backends.dialects import MOST, usage_of
from antwort.backends.errors import BROKEN, FAILED
from antwort.backends.http.remote import SLICE
from antwort.backends.http.sse import EventSplitter
from antwort.backends.http.transport import AnswerLimits
from antwort.errors import BadGatewayError
from antwort.http1.client import MAX_PIECE, Unpacker

GUARD = 60.0
MANY = 1024 * 1024 * 1024
"""Bytes that are as good as endless: no limit lets nearly as many pass."""
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"


class Flood:
    """Begins an answer and sends the same again and again, as long as anybody listens."""

    def __init__(self, begin: bytes, again: bytes) -> None:
        self.begin = begin
        self.again = again * max(1, 64 * 1024 // len(again))
        self.sent = 0

    async def __call__(self, exchange: Exchange) -> None:
        await exchange.send(self.begin)
        with contextlib.suppress(ConnectionError):
            while self.sent < MANY:
                await exchange.send(self.again)
                self.sent += len(self.again)
        exchange.writer.close()


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


async def refused(run: Awaitable[None]) -> BadGatewayError:
    async with asyncio.timeout(GUARD):
        with pytest.raises(BadGatewayError) as caught:
            await run
    return caught.value


@pytest.mark.parametrize(
    "flood",
    [
        Flood(HEAD, b"a:b\r\n"),
        Flood(HEAD + b"x-long: ", b"a" * 1000),
        Flood(b"HTTP/1.1 200 ", b"O" * 1000),
        Flood(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        Flood(CHUNKED + b"1;", b"a" * 1000),
        Flood(CHUNKED + chunk(b"\n") + b"0\r\n", b"a:b\r\n"),
        Flood(CHUNKED + chunk(b"\n") + b"0\r\nx-long: ", b"a" * 1000),
    ],
    ids=["lines", "value", "status", "interim", "chunk extension", "trailers", "trailer value"],
)
async def test_a_head_without_end_is_cut_off(server: ModelServer, connect: Connect, notes: Notes, flood: Flood) -> None:
    server.scripts.append(flood)
    error = await refused(retrying(connect(), Retries(2)).run(a_request(stream=True), notes))
    assert "`backends.local.max_header_bytes`" in error.message or "as it should" in error.message
    assert flood.sent < MANY


LIMITED = {"max_event_bytes": 1024 * 1024, "max_answer_bytes": 4 * 1024 * 1024}


@pytest.mark.parametrize(
    ("flood", "streamed", "setting"),
    [
        (Flood(CHUNKED, chunk(b"data:\n")), True, "max_answer_bytes"),
        (Flood(CHUNKED, chunk(b"data: {}\n" * 1000)), True, "max_event_bytes"),
        (Flood(CHUNKED, chunk(b"x" * 1000)), True, "max_event_bytes"),
        (Flood(CHUNKED, chunk(b": ping\n\n")), True, "max_answer_bytes"),
        (Flood(CHUNKED, chunk(b"\n" * 1000)), True, "max_answer_bytes"),
        (Flood(CHUNKED, chunk(delta(content="again and ") * 100)), True, "max_answer_bytes"),
        (Flood(CHUNKED, chunk(delta(content="again and ") * 100)), False, "max_answer_bytes"),
        (Flood(CHUNKED, chunk(delta(content=" ") * 100)), False, "max_answer_bytes"),
        (Flood(CHUNKED.replace(b"text/event-stream", b"application/json"), chunk(b" ")), False, "max_event_bytes"),
        (Flood(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n", b" "), False, "max_event_bytes"),
    ],
)
async def test_an_answer_without_end_is_cut_off_and_not_asked_for_again(
    server: ModelServer, connect: Connect, flood: Flood, streamed: bool, setting: str
) -> None:
    server.scripts.append(flood)
    error = await refused(retrying(connect(**LIMITED), Retries(2)).run(a_request(stream=streamed), Notes()))
    assert (error.code, f"`backends.local.{setting}`" in error.message) == (FAILED, True), error.message
    assert flood.sent < MANY
    assert len(server.exchanges) == 1


async def test_many_lines_of_one_event_cost_no_more_than_they_are_long() -> None:
    events = EventSplitter(AnswerLimits.default("local"))
    for _ in range(8):
        assert events.feed(b"data:\n" * 200_000) == []
    assert len(events.feed(b"data: {}\ndata: {}\n\n")) == 2  # each line is an event if the whole is none


@pytest.mark.parametrize("streamed", [False, True])
async def test_json_that_is_nothing_but_values_is_not_read(
    server: ModelServer, connect: Connect, notes: Notes, streamed: bool
) -> None:
    document = b'{"choices":[{"message":{"content":[' + b"[]," * 500_000 + b"[]]}}]}"
    server.scripts.append(stream(event(document), DONE) if streamed else reply(document))
    error = await refused(connect().run(a_request(stream=streamed), notes))
    assert "more than 500,000 values at once (`backends.local.max_values`)" in error.message


class Looked(bytes):
    """Notes how far it was looked at."""

    far = 0

    @override
    def count(self, sub: Any, start: Any = 0, end: Any = None, /) -> int:
        self.far = max(self.far, len(self) if end is None else end)
        return super().count(sub, start, end)


def test_values_are_counted_no_further_than_they_may_be() -> None:
    document = Looked(b"[" + b"1," * 8_000_000 + b"1]")
    with pytest.raises(BadGatewayError, match="more than 500,000 values"):
        AnswerLimits.default("local").check_values(document)
    assert document.far < 2 * 1024**2


async def test_a_long_text_is_an_answer(server: ModelServer, connect: Connect, notes: Notes) -> None:
    text = "One, two, three, and so on. " * 100_000
    server.scripts.append(reply({"choices": [{"message": {"content": text}}]}))
    await connect().run(a_request(), notes)
    assert notes.said() == text


def bomb(size: int) -> bytes:
    """Return spaces in gzip, without an end, to which nobody comes: what was flushed can be repeated."""
    packer = zlib.compressobj(9, wbits=31)
    begin = packer.compress(b" ") + packer.flush(zlib.Z_FULL_FLUSH)
    block = packer.compress(b" " * 1024 * 1024) + packer.flush(zlib.Z_FULL_FLUSH)
    return begin + block * (size // (1024 * 1024))


@pytest.mark.parametrize(("kind", "setting"), [("application/json", "max_event_bytes"), ("text/event-stream", "max_")])
async def test_a_little_that_becomes_very_much_is_unpacked_up_to_the_limit(
    server: ModelServer, connect: Connect, notes: Notes, kind: str, setting: str
) -> None:
    server.scripts.append(reply(bomb(256 * 1024 * 1024), headers={"content-encoding": "gzip"}, kind=kind))
    error = await refused(connect().run(a_request(stream=kind != "application/json"), notes))
    assert (error.code, f"`backends.local.{setting}" in error.message) == (FAILED, True)


@pytest.mark.usefixtures("behind_a_proxy")
async def test_behind_a_proxy_the_same_limits_hold(server: ModelServer, connect: Connect, notes: Notes) -> None:
    backend = connect(**LIMITED)
    server.scripts.append(reply(bomb(64 * 1024 * 1024), headers={"content-encoding": "gzip"}))
    assert "max_event_bytes" in (await refused(backend.run(a_request(), notes))).message
    server.scripts[0] = Flood(CHUNKED, chunk(delta(content="again and ") * 100))
    assert "max_answer_bytes" in (await refused(backend.run(a_request(stream=True), notes))).message
    server.scripts[0] = Flood(HEAD, b"a:b\r\n")
    await refused(backend.run(a_request(stream=True), notes))
    server.scripts[0] = reply(
        gzip.compress(b'{"choices":[{"message":{"content":"Hi"}}]}'), headers={"content-encoding": "gzip"}
    )
    answered = Notes()
    await backend.run(a_request(), answered)
    assert answered.said() == "Hi"


@pytest.fixture
def behind_a_proxy(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a proxy for everything: here, the model server itself, which does not look at the address."""
    monkeypatch.setenv("HTTP_PROXY", server.url.removesuffix("/v1"))
    monkeypatch.setenv("NO_PROXY", "")
    monkeypatch.setenv("no_proxy", "")


def test_packed_data_is_unpacked_a_piece_at_a_time() -> None:
    unpacker = Unpacker()
    data, pieces = gzip.compress(b" " * 4 * 1024 * 1024), list[int]()
    while data:
        pieces.append(len(unpacker.piece(data)))
        data = unpacker.rest
    assert max(pieces) == MAX_PIECE
    assert sum(pieces) == 4 * 1024 * 1024


def chat_calls(count: int) -> bytes:
    calls = [{"index": n, "id": f"c{n}", "function": {"name": "f", "arguments": "{}"}} for n in range(count)]
    return delta(tool_calls=calls)


def responses_calls(count: int) -> bytes:
    items = ({"type": "function_call", "name": "f", "call_id": f"c{n}", "arguments": "{}"} for n in range(count))
    added = [event({"type": "response.output_item.added", "output_index": n, "item": i}) for n, i in enumerate(items)]
    return b"".join(added)


async def test_too_many_calls_in_one_turn_are_refused(
    server: ModelServer, connect: Connect, connect_responses: ConnectResponses, notes: Notes
) -> None:
    server.scripts.append(stream(chat_calls(10_000), DONE))
    errors = [await refused(connect().run(a_request(stream=True), notes))]
    server.scripts[0] = stream(responses_calls(10_000))
    errors.append(await refused(connect_responses().run(a_request(stream=True), Notes())))
    for error in errors:
        assert "more than 128 calls in one turn (`backends.local.max_calls`)" in error.message
        assert error.code == FAILED


async def test_as_many_calls_as_the_setting_says_are_taken(server: ModelServer, connect: Connect, notes: Notes) -> None:
    server.scripts.append(stream(chat_calls(200), DONE))
    await connect(max_calls=200).run(a_request(stream=True), notes)
    assert len({call[1] for call in notes.calls if call[0] == "call"}) == 200


THOUGHT, TEXT = ("response.reasoning_text.delta", "response.output_text.delta")


def chat_changes(count: int) -> bytes:
    return b"".join(delta(content="a") if n % 2 else delta(reasoning_content="b") for n in range(count))


def responses_changes(count: int) -> bytes:
    return b"".join(
        event({"type": TEXT if n % 2 else THOUGHT, "output_index": n, "content_index": 0, "delta": "a"})
        for n in range(count)
    )


def sealed_thoughts(count: int) -> bytes:
    item = {"type": "reasoning", "summary": [], "encrypted_content": "x"}
    return b"".join(event({"type": "response.output_item.done", "output_index": n, "item": item}) for n in range(count))


async def test_too_many_changes_between_thoughts_and_text_are_refused(
    server: ModelServer, connect: Connect, connect_responses: ConnectResponses
) -> None:
    refusals = []
    server.scripts.append(stream(chat_changes(101), DONE))
    refusals.append(await refused(connect(max_items=100).run(a_request(stream=True), Notes())))
    for answer in (responses_changes(101), sealed_thoughts(101)):
        server.scripts[0] = stream(answer)
        refusals.append(await refused(connect_responses(max_items=100).run(a_request(stream=True), Notes())))
    for error in refusals:
        assert "more than 100 items in one turn (`backends.local.max_items`)" in error.message
        assert error.code == FAILED


async def test_as_many_changes_as_the_setting_says_are_taken(
    server: ModelServer, connect: Connect, notes: Notes
) -> None:
    server.scripts.append(stream(chat_changes(100), *[delta(content="a")] * 200, DONE))
    await connect(max_items=100).run(a_request(stream=True), notes)
    assert notes.said() == "a" * 250


def test_a_call_is_not_read_again_with_each_of_its_pieces() -> None:
    notes = Notes()
    turn = ChatAnswer(AnswerLimits.default("local"), notes)
    turn.take(
        delta(tool_calls=[{"index": 0, "function": {"name": "f", "arguments": '{"a":"'}}]).removeprefix(b"data: ")
    )
    piece = delta(tool_calls=[{"index": 0, "function": {"name": "f", "arguments": "{" + "x" * 1000}}])
    for _ in range(5000):
        turn.take(piece.removeprefix(b"data: "))
    assert {call[1] for call in notes.calls} == {0}


def test_blanks_before_an_answer_are_held_back_for_a_while_only() -> None:
    tags = ThinkTags()
    said = [tags.take(" ")[1] for _ in range(MOST_BLANKS + 2)]
    assert tags.passed
    assert "".join(said) == " " * (MOST_BLANKS + 2)


async def test_others_have_their_turn_while_very_much_arrives_at_once(
    server: ModelServer, connect: Connect, notes: Notes
) -> None:
    turns, over = 0, asyncio.Event()

    async def wait_for_turns() -> None:
        nonlocal turns
        while not over.is_set():
            turns += 1
            await asyncio.sleep(0)

    many = b"data: {}\n\n".replace(b"{}", b'{"choices":[{"delta":{"content":"a"}}]}') * 20_000
    server.scripts.append(stream(many, DONE))
    others = asyncio.create_task(wait_for_turns())
    await connect().run(a_request(stream=True), notes)
    over.set()
    await others
    assert notes.said() == "a" * 20_000
    longest = max(now - before for before, now in zip([0, *notes.flushed], notes.flushed, strict=False))
    assert longest <= SLICE
    assert turns >= 20_000 // SLICE


async def test_no_more_models_are_listed_than_the_setting_says(server: ModelServer, connect: Connect) -> None:
    server.scripts.append(reply({"data": [{"id": f"m{number}"} for number in range(500)]}))
    assert len(await connect(max_models=100).models()) == 100
    server.scripts[0] = reply({"data": [{"id": "m" * 5_000_000}]})
    with pytest.raises(BadGatewayError, match="more than"):
        await connect().models()


@pytest.mark.parametrize(("count", "expected"), [(-5, 0), (1e300, MOST), (7.0, 7)])
def test_tokens_used_are_a_number_that_can_be_counted(count: float, expected: int) -> None:
    usage = usage_of({"prompt_tokens": count})
    assert usage is not None
    assert (usage.input_tokens, usage.total_tokens) == (expected, expected)


class Puzzled(ChatAnswer):
    """Meets something that it does not expect."""

    @override
    def take(self, payload: bytes) -> None:
        raise TypeError(f"'int' object is not iterable: {payload!r}")

    @override
    def take_whole(self, body: bytes) -> None:
        raise KeyError(body)


class Broken(Notes):
    """A sink with a defect."""

    @override
    def text(self, delta: str, logprobs: object = None) -> None:
        raise TypeError("of the sink")


@pytest.mark.parametrize("streamed", [True, False])
async def test_an_answer_that_puzzles_the_reader_is_502_and_the_log_says_why(
    server: ModelServer,
    connect: Connect,
    notes: Notes,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    streamed: bool,
) -> None:
    backend = connect()
    monkeypatch.setattr(backend, "reader", lambda sink: Puzzled(backend.limits, sink))
    server.scripts.append(stream(delta(content="secret"), DONE) if streamed else reply({"secret": 1}))
    error = await refused(backend.run(a_request(stream=streamed), notes))
    assert (error.code, error.message) == (BROKEN, "The backend 'local' sent an answer that could not be read.")
    assert "Traceback" in caplog.text


@pytest.mark.parametrize("streamed", [True, False])
async def test_what_the_sink_raises_is_no_failure_of_the_server(
    server: ModelServer, connect: Connect, streamed: bool
) -> None:
    whole = {"choices": [{"message": {"content": "Hello"}, "finish_reason": "stop"}]}
    server.scripts.append(stream(delta(content="Hello"), DONE) if streamed else reply(whole))
    with pytest.raises(TypeError, match="of the sink"):
        await connect().run(a_request(stream=streamed), Broken())
