"""What servers of Messages send, and what it should be understood as."""

import contextlib
import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.backends.conftest import Notes

from antwort.backends.errors import BROKEN, DISCONNECTED, FAILED, UNAVAILABLE
from antwort.backends.http.transport import AnswerLimits
from antwort.backends.messages.answer import MessagesAnswer, message_usage, plain_message
from antwort.config import BackendConfig
from antwort.errors import APIError, RateLimitError, ServiceUnavailableError
from antwort.testing import Turn, call, turn
from antwort.testing.messages import MessagesWriter
from antwort.testing.playback import perform
from antwort.types import JSON
from antwort.wire.responses import InputTokensDetails, OutputTokensDetails, Usage

LIMITS = AnswerLimits.default("claude")
STOP: JSON = {"type": "message_stop"}


def begin(index: int, kind: str, **fields: Any) -> JSON:
    return {"type": "content_block_start", "index": index, "content_block": {"type": kind, **fields}}


def piece(index: int, kind: str, **fields: Any) -> JSON:
    return {"type": "content_block_delta", "index": index, "delta": {"type": f"{kind}_delta", **fields}}


def over(index: int) -> JSON:
    return {"type": "content_block_stop", "index": index}


def ends(reason: str | None = "end_turn", usage: JSON | None = None, **fields: Any) -> JSON:
    return {"type": "message_delta", "delta": {"stop_reason": reason, **fields}, "usage": usage or {}}


def read(*events: JSON | bytes, limits: AnswerLimits = LIMITS) -> list[tuple[Any, ...]]:
    """Read a stream, and return what a sink is fed."""
    notes = Notes()
    answer = MessagesAnswer(limits, notes)
    for event in events:
        answer.take(event if isinstance(event, bytes) else json.dumps(event).encode())
    answer.end()
    return notes.calls


def read_whole(**fields: Any) -> list[tuple[Any, ...]]:
    """Read a message that came as a whole."""
    notes = Notes()
    body = json.dumps({"type": "message", "stop_reason": "end_turn", **fields}).encode()
    found = plain_message(body, LIMITS)
    if found is not None:
        notes.whole_turn(found)
        return notes.calls
    answer = MessagesAnswer(LIMITS, notes)
    answer.take_whole(body)
    answer.end()
    return notes.calls


HELLO = [begin(0, "text", text=""), piece(0, "text", text="Hel"), piece(0, "text", text="lo"), over(0)]
STREAMS: list[tuple[str, list[JSON], list[tuple[Any, ...]]]] = [
    (
        "a text, with a ping and events that nobody knows",
        [
            {"type": "message_start", "message": {"usage": {"input_tokens": 3, "output_tokens": 1}}},
            {"type": "ping"},
            *HELLO,
            {"type": "weather", "delta": {"text": "rain"}},
            ends(usage={"output_tokens": 5}),
            STOP,
        ],
        [("text", "Hel"), ("text", "lo"), ("usage", 3, 5, 8), ("finish", "stop")],
    ),
    (
        "thoughts with a signature",
        [
            begin(0, "thinking", thinking="", signature=""),
            piece(0, "thinking", thinking="H"),
            piece(0, "thinking", thinking="m"),
            piece(0, "signature", signature="s"),
            over(0),
            begin(1, "redacted_thinking", data="d"),
            over(1),
            begin(2, "text", text="Y"),
            over(2),
            ends(),
            STOP,
        ],
        [
            ("reasoning", "H"),
            ("reasoning", "m"),
            ("opaque", '{"type":"thinking","thinking":"Hm","signature":"s"}'),
            ("opaque", '{"type":"redacted_thinking","data":"d"}'),
            ("text", "Y"),
            ("finish", "stop"),
        ],
    ),
    (
        "calls in pieces, as a whole, and without arguments",
        [
            begin(0, "tool_use", id="t0", name="add", input={}),
            piece(0, "input_json", partial_json=""),
            piece(0, "input_json", partial_json='{"a":'),
            piece(0, "input_json", partial_json="1}"),
            over(0),
            begin(1, "tool_use", id="t1", name="add", input={"a": 2}),
            over(1),
            begin(2, "tool_use", id="t2", name="now", input={}),
            ends("tool_use"),
            STOP,
        ],
        [
            ("call", 0, "t0", "add", ""),
            ("call", 0, None, None, '{"a":'),
            ("call", 0, None, None, "1}"),
            ("call", 1, "t1", "add", ""),
            ("call", 1, None, None, '{"a":2}'),
            ("call", 2, "t2", "now", ""),
            ("call", 2, None, None, "{}"),
            ("finish", "tool_calls"),
        ],
    ),
    (
        "tools of the server itself, and citations, are passed over",
        [
            begin(0, "server_tool_use", id="s", name="web_search", input={}),
            piece(0, "input_json", partial_json='{"query":"x"}'),
            over(0),
            begin(1, "web_search_tool_result", tool_use_id="s", content=[{"type": "web_search_result"}]),
            over(1),
            begin(2, "text", text="", citations=[]),
            piece(2, "citations", citation={"type": "char_location", "cited_text": "x"}),
            piece(2, "text", text="Yes"),
            over(2),
            ends("pause_turn"),
            STOP,
        ],
        [("text", "Yes"), ("finish", "length")],
    ),
    (
        "a refusal says why",
        [*HELLO, ends("refusal", stop_details={"type": "refusal", "explanation": "No."}), STOP],
        [("text", "Hel"), ("text", "lo"), ("refusal", "No."), ("finish", "content_filter")],
    ),
    ("a text that is cut off", [*HELLO[:2], ends("max_tokens"), STOP], [("text", "Hel"), ("finish", "length")]),
    ("no more room", [ends("model_context_window_exceeded"), STOP], [("finish", "length")]),
    ("a stop sequence", [*HELLO, ends("stop_sequence"), STOP], [("text", "Hel"), ("text", "lo"), ("finish", "stop")]),
    ("an end without a reason", [STOP], [("finish", "unfinished")]),
    ("a reason without an end", [ends()], [("finish", "stop")]),
]


@pytest.mark.parametrize(("events", "fed"), [row[1:] for row in STREAMS], ids=[row[0] for row in STREAMS])
def test_a_stream_is_read(events: list[JSON], fed: list[tuple[Any, ...]]) -> None:
    assert read(*events) == fed


def test_a_message_that_came_as_a_whole_is_read() -> None:
    thinking = {"type": "thinking", "thinking": "Hm", "signature": "s"}
    asked = {"type": "tool_use", "id": "t", "name": "add", "input": {"a": 1}}
    said = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    usage = {"input_tokens": 1, "output_tokens": 2}
    assert read_whole(content=[*said, asked], stop_reason="tool_use", usage=usage) == [
        ("text", "ab"),
        ("call", 0, "t", "add", '{"a":1}'),
        ("usage", 1, 2, 3),
        ("finish", "tool_calls"),
    ]
    assert read_whole(content=[thinking, *said]) == [
        ("reasoning", "Hm"),
        ("opaque", '{"type":"thinking","thinking":"Hm","signature":"s"}'),
        ("text", "a"),
        ("text", "b"),
        ("finish", "stop"),
    ]
    assert read_whole(content=[], stop_reason="refusal", stop_details={"explanation": "No."}) == [
        ("refusal", "No."),
        ("finish", "content_filter"),
    ]


def test_tokens_of_the_cache_are_among_those_of_the_input() -> None:
    told = {
        "input_tokens": 1,
        "cache_read_input_tokens": 20,
        "cache_creation_input_tokens": 300,
        "output_tokens": 4,
        "output_tokens_details": {"thinking_tokens": 3},
    }
    assert message_usage(told) == Usage(321, InputTokensDetails(20, 300), 4, OutputTokensDetails(3), 325)
    assert message_usage({"input_tokens": "many", "output_tokens": 2, "output_tokens_details": 7}) == Usage(
        output_tokens=2, total_tokens=2
    )
    assert message_usage(None) is None
    started = {"type": "message_start", "message": {"usage": told}}
    assert ("usage", 321, 9, 330) in read(started, ends(usage={"input_tokens": None, "output_tokens": 9}), STOP)


ODD: list[tuple[list[JSON | bytes], str]] = [
    ([b"{"], BROKEN),
    ([b'"no"'], BROKEN),
    ([{"choices": [{"delta": {"content": "Hi"}}]}], BROKEN),
    ([{"type": "content_block_delta", "index": "0", "delta": {}}], BROKEN),
    ([piece(0, "text", text="a")], BROKEN),
    ([*HELLO, piece(0, "text", text="a")], BROKEN),
    ([HELLO[0], piece(1, "text", text="a")], BROKEN),
    ([begin(0, "tool_use", id="t", input={})], BROKEN),
    ([], DISCONNECTED),
    ([*HELLO], DISCONNECTED),
]


@pytest.mark.parametrize(("events", "code"), ODD)
def test_what_is_no_message_is_an_error_that_names_the_server(events: list[JSON | bytes], code: str) -> None:
    with pytest.raises(APIError, match="'claude'") as caught:
        read(*events)
    assert (caught.value.status, caught.value.code) == (502, code)


@pytest.mark.parametrize("body", [b"{", b'"no"', b"{}", b'{"content": 7}', b'{"choices": []}'])
def test_a_whole_that_is_no_message_is_an_error(body: bytes) -> None:
    assert plain_message(body, LIMITS) is None
    with pytest.raises(APIError, match="check its url and api") as caught:
        MessagesAnswer(LIMITS, Notes()).take_whole(body)
    assert caught.value.code == BROKEN


@pytest.mark.parametrize(
    ("kind", "expected", "code"),
    [
        ("overloaded_error", ServiceUnavailableError, UNAVAILABLE),
        ("rate_limit_error", RateLimitError, "rate_limit_exceeded"),
        ("api_error", APIError, FAILED),
    ],
)
def test_an_error_among_the_events_is_that_error(kind: str, expected: type[APIError], code: str) -> None:
    """What was said before it has been said."""
    notes = Notes()
    answer = MessagesAnswer(LIMITS, notes)
    for event in HELLO[:2]:
        answer.take(json.dumps(event).encode())
    with pytest.raises(expected, match="Overdone") as caught:
        answer.take(json.dumps({"type": "error", "error": {"type": kind, "message": "Overdone"}}).encode())
    assert caught.value.code == code
    answer.pass_on()
    assert notes.said() == "Hel"


def test_a_signature_costs_no_more_than_it_is_long() -> None:
    answer = MessagesAnswer(LIMITS, Notes())
    answer.take(json.dumps(begin(0, "thinking", signature="s" * 10_000_000)).encode())
    sent = json.dumps(piece(0, "signature", signature="x")).encode()
    for _ in range(20_000):  # which is nothing, if what is there is not copied each time
        answer.take(sent)
    notes = Notes()
    answer = MessagesAnswer(LIMITS, notes)
    for event in (begin(0, "thinking", signature="s"), *[piece(0, "signature", signature="x")] * 3, over(0), ends()):
        answer.take(json.dumps(event).encode())
    answer.end()
    assert json.loads(notes.calls[0][1])["signature"] == "sxxx"


def test_blocks_and_calls_have_limits() -> None:
    few = AnswerLimits.of("claude", BackendConfig(url="http://localhost", max_calls=2, max_items=3))
    calls = [begin(index, "tool_use", id="t", name="f", input={}) for index in range(3)]
    for events, setting in ((calls, "max_calls"), ([begin(index, "text", text="") for index in range(4)], "max_items")):
        with pytest.raises(APIError, match=setting) as caught:
            read(*events, limits=few)
        assert caught.value.code == FAILED
    whole = {"content": [one["content_block"] for one in calls], "stop_reason": "tool_use"}
    assert plain_message(json.dumps(whole).encode(), few) is None


# --- whole and streamed -----------------------------------------------------------------------------------------------

PIECES = st.lists(st.text("ab \n🦊", min_size=1, max_size=3), max_size=3)
ARGUMENTS = st.dictionaries(st.sampled_from("abc"), st.integers(0, 9) | st.text(max_size=3), max_size=2)


async def written(said: Turn, *, streamed: bool) -> list[JSON]:
    """Write a turn as a server does."""
    writer = MessagesWriter(said, 1, {"model": "m"}, set())
    async with contextlib.aclosing(perform(said)) as bursts:
        pieces = [one async for burst in bursts for one in burst]
    return [*writer.start(), *writer.deltas(pieces), *writer.end()] if streamed else [writer.completion(pieces)]


def joined(fed: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Put pieces of one thing together."""
    found: list[tuple[Any, ...]] = []
    for kind, *rest in fed:
        if found and found[-1][0] == kind and kind in {"text", "reasoning"}:
            found[-1] = (kind, found[-1][1] + rest[0])
        elif found and kind == "call" and found[-1][:2] == (kind, rest[0]):
            found[-1] = (*found[-1][:-1], found[-1][-1] + rest[-1])
        else:
            found.append((kind, *rest))
    return [(*one[:-1], json.loads(one[-1])) if one[0] == "call" else one for one in found]


@settings(max_examples=40)
@given(PIECES, PIECES, st.lists(ARGUMENTS, max_size=2), st.sampled_from(["", "sealed"]))
async def test_a_stream_says_what_the_whole_says(
    thoughts: list[str], said: list[str], arguments: list[JSON], opaque: str
) -> None:
    spoken = turn(said, reasoning=thoughts, opaque=opaque, calls=[call("f", given) for given in arguments])
    streamed = joined(read(*await written(spoken, streamed=True)))
    [whole] = await written(spoken, streamed=False)
    assert streamed == joined(read_whole(**whole))
    assert [one[1] for one in streamed if one[0] == "text"] == ["".join(said)] * bool(said)
    assert [one[-1] for one in streamed if one[0] == "call"] == arguments
