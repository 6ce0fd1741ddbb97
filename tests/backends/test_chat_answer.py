"""Streams and whole answers in every dialect, cut anywhere."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.backends.conftest import DONE, Notes, delta, event
from tests.backends.dialects import DIALECTS, Calls

from antwort.backends.chat.answer import ChatAnswer, ThinkTags
from antwort.backends.chat.backend import plain_turn
from antwort.backends.dialects import MOST_WAITING, logprobs_of, usage_of
from antwort.backends.http.sse import EventSplitter
from antwort.backends.http.transport import AnswerLimits
from antwort.errors import (
    APIError,
    BadGatewayError,
    BadRequestError,
    GatewayTimeoutError,
    NotFoundError,
    RateLimitError,
    ServiceUnavailableError,
)
from antwort.wire.responses import InputTokensDetails, OutputTokensDetails, Usage

LIMITS = AnswerLimits.default("local")


def understood(*reads: bytes, alternatives: int | None = None) -> Calls:
    """Read a stream that arrives in these pieces."""
    notes = Notes()
    turn, events = ChatAnswer(LIMITS, notes, alternatives), EventSplitter(LIMITS)
    for read in reads:
        for payload in events.feed(read):
            turn.take(payload)
    for payload in events.end():
        turn.take(payload)
    turn.end()
    return notes.calls


def understood_whole(answer: Any) -> Calls:
    """Read an answer that came as a whole; a plain one in both ways, which must agree."""
    body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    notes = Notes()
    turn = ChatAnswer(LIMITS, notes)
    turn.take_whole(body)
    turn.end()
    if (plain := plain_turn(body, LIMITS)) is not None:
        at_once = Notes()
        at_once.whole_turn(plain)
        assert at_once.calls == notes.calls
    return notes.calls


ADD = {"index": 0, "id": "a", "function": {"name": "add", "arguments": '{"a":1'}}
CLOSING = {"index": 0, "function": {"arguments": "}"}}


@pytest.mark.parametrize("end", [DONE, b""], ids=["done", "no done"])
@pytest.mark.parametrize(
    ("chunks", "reason"),
    [
        ([delta(content="Hi")], "unfinished"),
        ([delta(reasoning="Well")], "unfinished"),
        ([delta(refusal="No")], "unfinished"),
        ([delta(tool_calls=[ADD])], "unfinished"),
        ([delta(tool_calls=[ADD]), delta(tool_calls=[CLOSING])], "tool_calls"),
        ([delta(content="Hi"), delta(tool_calls=[{"index": 0, "function": {"name": "now"}}])], "tool_calls"),
    ],
    ids=["text", "thoughts", "refusal", "half a call", "a call", "a call without arguments"],
)
def test_a_stream_that_does_not_say_why_it_ended_is_unfinished_unless_its_calls_are_whole(
    chunks: list[bytes], reason: str, end: bytes
) -> None:
    assert understood(*chunks, end)[-1] == ("finish", reason)


def test_an_answer_that_came_as_a_whole_is_all_there_whatever_it_says_of_its_end() -> None:
    assert understood_whole({"choices": [{"message": {"content": "Hi"}}]})[-1] == ("finish", "stop")


def read_at_once(answer: Any) -> Calls | None:
    """Read an answer that came as a whole, if it is plain."""
    notes = Notes()
    turn = plain_turn(json.dumps(answer).encode(), LIMITS)
    if turn is None:
        return None
    notes.whole_turn(turn)
    return notes.calls


def a_message(finish_reason: str | None = "stop", **message: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish_reason}]}


@pytest.mark.parametrize(("script", "expected"), DIALECTS.values(), ids=DIALECTS)
def test_a_dialect_is_understood(script: bytes, expected: Calls) -> None:
    assert understood(script) == expected


@pytest.mark.parametrize(("script", "expected"), DIALECTS.values(), ids=DIALECTS)
def test_a_dialect_is_understood_wherever_it_is_cut_in_two(script: bytes, expected: Calls) -> None:
    for cut in range(len(script) + 1):
        assert understood(script[:cut], script[cut:]) == expected, cut


@given(st.data())
def test_a_dialect_is_understood_in_any_pieces(data: st.DataObject) -> None:
    script, expected = data.draw(st.sampled_from(list(DIALECTS.values())))
    cuts = data.draw(st.lists(st.integers(0, len(script)), max_size=20))
    places = sorted({0, len(script), *cuts})
    assert understood(*(script[start:end] for start, end in pairwise(places))) == expected


@pytest.mark.parametrize(("script", "expected"), DIALECTS.values(), ids=DIALECTS)
def test_line_ends_may_be_those_of_windows(script: bytes, expected: Calls) -> None:
    assert understood(script.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")) == expected


def test_characters_cut_between_reads_arrive_whole() -> None:
    script = event(json.dumps({"choices": [{"delta": {"content": "ö€🙂"}}]}, ensure_ascii=False).encode())
    for cut in range(len(script)):
        assert understood(script[:cut], script[cut:])[0] == ("text", "ö€🙂")


def test_bytes_that_are_no_characters_are_replaced() -> None:
    assert understood(event(b'{"choices":[{"delta":{"content":"a\xffb"}}]}'))[0] == ("text", "a\ufffdb")


def test_an_event_without_end_is_refused() -> None:
    events = EventSplitter(LIMITS)
    part = b"x" * (1024 * 1024)
    with pytest.raises(BadGatewayError, match="'local' sent an event of more than"):
        for _ in range(LIMITS.event_bytes // len(part) + 1):
            events.feed(part)


def test_what_follows_the_first_choice_is_not_read() -> None:
    two = event({"choices": [{"index": 0, "delta": {"content": "a"}}, {"index": 1, "delta": {"content": "b"}}]})
    assert understood(two, delta("stop"), DONE) == [("text", "a"), ("finish", "stop")]


# --- why it stopped -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("stop", "stop"),
        ("eos", "stop"),
        ("end_turn", "stop"),
        ("length", "length"),
        ("max_tokens", "length"),
        ("tool_calls", "stop"),
        ("content_filter", "content_filter"),
        ("SAFETY", "content_filter"),
    ],
)
def test_reasons_to_stop_are_those_of_the_engine(reason: str | None, expected: str) -> None:
    assert understood(delta(reason, content="a"), DONE)[-1] == ("finish", expected)
    assert understood_whole(a_message(reason, content="a"))[-1] == ("finish", expected)


def test_calls_that_were_cut_off_end_with_length() -> None:
    script = delta("length", tool_calls=[{"index": 0, "id": "c", "function": {"name": "add", "arguments": '{"a'}}])
    assert understood(script)[-1] == ("finish", "length")


def test_an_empty_answer_that_was_finished_is_one() -> None:
    assert understood(delta(role="assistant", content=""), delta("stop"), DONE) == [("finish", "stop")]


@pytest.mark.parametrize("script", [b"", DONE, b": ping\n\n", event({"choices": []}), delta(content="")])
def test_a_stream_that_ends_before_it_began_is_a_bad_gateway(script: bytes) -> None:
    with pytest.raises(BadGatewayError, match="'local' ended before it began"):
        understood(script)


@pytest.mark.parametrize("reason", ["error", "abort"])
def test_an_answer_the_server_gave_up_is_a_bad_gateway(reason: str) -> None:
    with pytest.raises(BadGatewayError, match="'local' gave up"):
        understood(delta(reason, content="a"), DONE)


def test_a_call_without_a_name_is_a_bad_gateway() -> None:
    with pytest.raises(BadGatewayError, match="without a name"):
        understood(delta("tool_calls", tool_calls=[{"index": 0, "id": "c", "function": {"arguments": "{}"}}]))


# --- errors in the stream -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ({"error": {"message": "boom", "type": "server_error", "code": None}}, BadGatewayError),
        ({"error": {"message": "boom", "code": 429}}, RateLimitError),
        ({"error": {"message": "boom", "type": "rate_limit_error"}}, RateLimitError),
        ({"error": {"message": "boom", "code": "400"}}, BadRequestError),
        ({"error": {"message": "boom", "type": "BadRequestError", "code": 400}}, BadRequestError),
        ({"error": {"message": "boom", "type": "invalid_request_error"}}, BadRequestError),
        ({"error": {"message": "boom", "type": "overloaded_error"}}, ServiceUnavailableError),
        ({"error": {"message": "boom", "code": 503}}, ServiceUnavailableError),
        ({"error": {"message": "boom", "type": "timeout"}}, GatewayTimeoutError),
        ({"error": {"message": "no model boom", "code": "model_not_found"}}, NotFoundError),
        ({"error": "boom"}, BadGatewayError),
        (
            {"object": "error", "message": "boom", "type": "BadRequestError", "param": None, "code": 400},
            BadRequestError,
        ),
        ({"detail": "boom"}, BadGatewayError),
        (
            {"error": {"message": "boom", "code": 502}, "choices": [{"delta": {}, "finish_reason": "error"}]},
            BadGatewayError,
        ),
    ],
)
def test_an_error_in_the_stream_is_the_error_it_stands_for(value: Any, kind: type[APIError]) -> None:
    for script in (event(value), b"event: error\n" + event(value), delta(content="a") + event(value)):
        with pytest.raises(kind, match="boom") as caught:
            understood(script)
        assert type(caught.value) is kind
        assert "'local'" in caught.value.message
    with pytest.raises(kind):
        understood_whole(value)


def test_a_context_that_is_too_long_is_told_by_its_code() -> None:
    message = "the request exceeds the available context size, try increasing it"
    with pytest.raises(BadRequestError) as caught:
        understood(event({"error": {"code": 400, "message": message, "type": "exceed_context_size_error"}}))
    assert caught.value.code == "context_length_exceeded"


# --- thoughts -------------------------------------------------------------------------------------------------------


def parted(*pieces: str) -> tuple[str, str]:
    tags = ThinkTags()
    found = [*(tags.take(piece) for piece in pieces), tags.end()]
    return "".join(thought for thought, _ in found), "".join(answer for _, answer in found)


TAGGED = [
    ("<think>a</think>b", ("a", "b")),
    ("\n <think>\na\n</think>\n\nb\n", ("a\n", "b\n")),
    ("<think>\n\n</think>\n\nb", ("", "b")),
    ("<think>a", ("a", "")),
    ("<think>a</thin", ("a</thin", "")),
    ("<think>a</thinly</think>b", ("a</thinly", "b")),
    ("<thin", ("", "<thin")),
    ("<thinking>b", ("", "<thinking>b")),
    (" \n ", ("", " \n ")),
    ("b <think>c</think>", ("", "b <think>c</think>")),
    ("<think>a</think>b</think><think>c", ("a", "b</think><think>c")),
    ("", ("", "")),
]


@pytest.mark.parametrize(("text", "expected"), TAGGED)
def test_tagged_thoughts_are_parted_from_the_answer(text: str, expected: tuple[str, str]) -> None:
    assert parted(text) == expected
    assert parted(*text) == expected
    for cut in range(len(text)):
        assert parted(text[:cut], text[cut:]) == expected


@given(st.lists(st.sampled_from(["<think>", "</think>", "<", "th", "ink>", "a", "\n", "/"])))
def test_tags_do_not_depend_on_how_the_text_was_cut(pieces: list[str]) -> None:
    assert parted(*pieces) == parted("".join(pieces)) == parted(*"".join(pieces))


def test_text_that_only_looks_like_thoughts_is_left_alone_beside_real_ones() -> None:
    script = delta(reasoning_content="hm") + delta(content="<think>is a tag</think>") + delta("stop")
    assert understood(script) == [("reasoning", "hm"), ("text", "<think>is a tag</think>"), ("finish", "stop")]


# --- numbers --------------------------------------------------------------------------------------------------------


def test_tokens_are_counted_with_their_details() -> None:
    counted = usage_of(
        {
            "prompt_tokens": 10,
            "completion_tokens": 20,
            "total_tokens": 30,
            "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 2},
            "completion_tokens_details": {"reasoning_tokens": 15, "audio_tokens": None},
        }
    )
    assert counted == Usage(10, InputTokensDetails(4, 2), 20, OutputTokensDetails(15), 30)
    cached = usage_of({"prompt_tokens": 10.0, "completion_tokens": None, "prompt_cache_hit_tokens": 8})
    assert cached == Usage(10, InputTokensDetails(8), 0, OutputTokensDetails(), 10)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"prompt_tokens_details": None, "completion_tokens_details": None},
        {"prompt_tokens_details": {"cached_tokens": 3, "cache_creation_tokens": 1}, "prompt_cache_hit_tokens": 3},
        {"cache_read_input_tokens": 3, "cache_creation_input_tokens": 1},
        {"input_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 1}},
        {"output_tokens_details": {"reasoning_tokens": 2}, "total_tokens": 0},
    ],
)
def test_tokens_are_the_same_however_a_server_writes_them(fields: dict[str, object]) -> None:
    well, odd = ({"prompt_tokens": count(10), "completion_tokens": count(5), **fields} for count in (int, float))
    assert usage_of(well) == usage_of(odd)


def test_log_probabilities_have_the_shape_of_responses() -> None:
    entry = {
        "token": "ö",
        "logprob": -0.5,
        "bytes": None,
        "top_logprobs": [{"token": "o", "logprob": -1, "bytes": [111]}],
    }
    shaped = {
        "token": "ö",
        "bytes": [195, 182],
        "logprob": -0.5,
        "top_logprobs": [{"token": "o", "bytes": [111], "logprob": -1}],
    }
    assert logprobs_of({"content": [entry]}) == [shaped]
    first, second = (
        {"choices": [{"delta": {"content": text}, "logprobs": {"content": [entry]}}]} for text in ("", "ö")
    )
    script = event(first) + event(second) + delta("stop", content=" end")
    said: Calls = [("text", " end"), ("finish", "stop")]
    assert understood(script, alternatives=1) == [("text", "ö", [shaped, shaped]), *said]
    alone = {**shaped, "top_logprobs": []}
    assert understood(script, alternatives=0) == [("text", "ö", [alone, alone]), *said]
    assert understood(script) == [("text", "ö"), *said]


def test_log_probabilities_that_nobody_asked_for_are_left_out_of_a_whole_answer_too() -> None:
    answer = a_message("stop", content="Hi")
    answer["choices"][0]["logprobs"] = {"content": [{"token": "Hi", "logprob": -0.5}]}
    assert understood_whole(answer) == [("text", "Hi"), ("finish", "stop")]


@pytest.mark.parametrize("before", ["", " "], ids=["no text", "blanks"])
def test_few_log_probabilities_wait_for_their_text(before: str) -> None:
    entries = {"content": [{"token": "a", "logprob": -1}] * 10}
    chunk = event({"choices": [{"delta": {"content": before}, "logprobs": entries}]})
    *_, text, _ = understood(chunk * MOST_WAITING, delta("stop", content="Hi"), alternatives=0)
    assert text[1].strip() == "Hi"
    assert 10 <= len(text[2]) <= MOST_WAITING


@pytest.mark.parametrize("value", [None, {}, {"content": None}, {"content": []}, {"tokens": ["a"]}, "x"])
def test_no_log_probabilities_are_none(value: Any) -> None:
    assert logprobs_of(value) is None


@pytest.mark.parametrize(
    ("entry", "shaped"),
    [
        ({"token": 1, "top_logprobs": 7}, {"token": "1", "bytes": [49], "logprob": 0.0, "top_logprobs": []}),
        (
            {"token": "a", "bytes": "a", "logprob": "-1", "top_logprobs": [7, None, {}]},
            {
                "token": "a",
                "bytes": [97],
                "logprob": 0.0,
                "top_logprobs": [{"token": "", "bytes": [], "logprob": 0.0}],
            },
        ),
        ({"bytes": [1, "x"], "top_logprobs": {"a": 1}}, {"token": "", "bytes": [], "logprob": 0.0, "top_logprobs": []}),
    ],
)
def test_odd_log_probabilities_are_read_as_far_as_they_can_be(entry: Any, shaped: Any) -> None:
    assert logprobs_of({"content": [7, entry, None]}) == [shaped]


# --- whole answers --------------------------------------------------------------------------------------------------


def test_a_whole_answer_is_understood() -> None:
    answer = a_message(
        "tool_calls",
        content="Let me see.",
        reasoning_content="Well",
        tool_calls=[
            {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a":1}'}},
            {"id": "call_2", "type": "function", "function": {"name": "add", "arguments": {"a": 2}}},
            {"function": {"name": "now", "arguments": ""}},
        ],
    )
    assert understood_whole({**answer, "usage": {"prompt_tokens": 1, "completion_tokens": 2}}) == [
        ("reasoning", "Well"),
        ("text", "Let me see."),
        ("call", 0, "call_1", "add", '{"a":1}'),
        ("call", 1, "call_2", "add", '{"a":2}'),
        ("call", 2, None, "now", ""),
        ("call", 2, None, None, "{}"),
        ("usage", 1, 2, 3),
        ("finish", "tool_calls"),
    ]


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"content": "<think>a</think>\n\nb"}, [("reasoning", "a"), ("text", "b")]),
        ({"content": [{"type": "text", "text": "b"}]}, [("text", "b")]),
        ({"content": None, "refusal": "no"}, [("refusal", "no")]),
        ({"content": "b", "tool_calls": [], "function_call": None}, [("text", "b")]),
        ({"content": None, "function_call": {"name": "f", "arguments": "{}"}}, [("call", 0, None, "f", "{}")]),
    ],
)
def test_a_whole_message_is_understood_in_every_dialect(message: Any, expected: Calls) -> None:
    assert understood_whole(a_message(**message))[:-1] == expected


A_CALL = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a":1}'}}


@pytest.mark.parametrize(
    ("reason", "message", "expected"),
    [
        ("stop", {"content": "b"}, [("text", "b"), ("finish", "stop")]),
        ("length", {"content": "", "refusal": None}, [("finish", "length")]),
        ("tool_calls", {"content": "b", "tool_calls": None}, [("text", "b"), ("finish", "stop")]),
        (
            "stop",
            {"content": "b", "tool_calls": [A_CALL, {**A_CALL, "id": ""}]},
            [
                ("text", "b"),
                ("call", 0, "call_1", "add", '{"a":1}'),
                ("call", 1, None, "add", '{"a":1}'),
                ("finish", "tool_calls"),
            ],
        ),
    ],
)
def test_a_plain_answer_is_read_at_once(reason: str, message: Any, expected: Calls) -> None:
    assert read_at_once(a_message(reason, **message)) == expected == understood_whole(a_message(reason, **message))


def test_a_plain_call_without_arguments_gets_empty_ones() -> None:
    call = {"function": {"name": "now", "arguments": ""}}
    assert read_at_once(a_message(tool_calls=[call])) == [("call", 0, None, "now", "{}"), ("finish", "tool_calls")]


@pytest.mark.parametrize(
    "message",
    [
        {"content": " <think>a</think>b"},
        {"content": [{"type": "text", "text": "b"}]},
        {"content": "b", "reasoning": "a"},
        {"content": "b", "refusal": "no"},
        {"content": "b", "tool_calls": [A_CALL] * (LIMITS.calls + 1)},
        {"tool_calls": [{**A_CALL, "function": {"name": "", "arguments": "{}"}}]},
        {"tool_calls": [{**A_CALL, "function": {"name": "add", "arguments": {"a": 1}}}]},
    ],
)
def test_an_answer_with_anything_odd_is_not_taken_for_plain(message: Any) -> None:
    assert read_at_once(a_message(**message)) is None


def test_an_indented_answer_is_understood() -> None:
    assert understood_whole(json.dumps(a_message(content="b"), indent=2).encode())[0] == ("text", "b")


def test_an_answer_that_is_a_page_is_summed_up_in_a_line() -> None:
    page = b"<!doctype html>\n<html><head>\n<title>Open\n WebUI</title></head></html>"
    with pytest.raises(BadGatewayError, match=r"'local' answered with something that is no answer: Open WebUI \(check"):
        understood_whole(page)
