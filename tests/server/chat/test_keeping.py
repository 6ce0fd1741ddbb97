"""Chat completions put together of the chunks of a stream, whatever a model server sends."""

from typing import Any

import msgspec
import pytest

from antwort.server.chat.keeping import ChatChunks
from antwort.types import JSON


def chunk(delta: JSON | None = None, *, finish: str | None = None, index: int = 0, **fields: Any) -> bytes:
    choice = {"index": index, "delta": delta or {}, "finish_reason": finish}
    return msgspec.json.encode({"id": "theirs", "created": 7, "model": "m", "choices": [choice], **fields})


def put_together(*events: bytes) -> JSON | None:
    chunks = ChatChunks("chatcmpl-1")
    chunks.frames(events)
    return chunks.completion()


def message(*events: bytes) -> JSON:
    found = put_together(*events, chunk(finish="stop"))
    assert found is not None
    said: JSON = found["choices"][0]["message"]
    return said


def test_each_chunk_gets_the_id_and_stays_as_it_is_otherwise() -> None:
    chunks = ChatChunks("chatcmpl-1")
    event = b'{"id": "theirs", "choices": [], "x": [1.50, "\\u00e4"]}'
    assert chunks.frames([event]) == b'data: {"id":"chatcmpl-1","choices":[],"x":[1.50, "\\u00e4"]}\n\n'
    assert chunks.frames([b"no json\nat all"]) == b"data: no json\ndata: at all\n\n"
    assert chunks.frames([b'{"choices": {}}', b"[DONE]", b"{}"]) == b'data: {"choices": {}}\n\n'
    assert chunks.is_over


def test_texts_grow_and_what_each_chunk_repeats_does_not() -> None:
    events = [chunk({"role": "assistant", "content": text, "reasoning_content": text.upper()}) for text in ("a", "b")]
    assert message(*events) == {"role": "assistant", "content": "ab", "reasoning_content": "AB", "refusal": None}


def test_calls_are_told_apart_by_their_index() -> None:
    first = {"index": 0, "id": "c1", "type": "function", "function": {"name": "f", "arguments": ""}}
    more = {"index": 0, "id": None, "function": {"arguments": "{}"}}
    second = {"index": 1, "id": "c2", "type": "function", "function": {"name": "g", "arguments": "[]"}}
    said = message(chunk({"content": ""}), chunk({"tool_calls": [first]}), chunk({"tool_calls": [second, more]}))
    assert said["content"] is None
    assert said["tool_calls"] == [
        {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}},
        {"id": "c2", "type": "function", "function": {"name": "g", "arguments": "[]"}},
    ]


def test_choices_probabilities_and_usage_are_taken_over() -> None:
    logprobs: JSON = {"content": [{"token": "a", "logprob": -0.5}], "refusal": None}
    choice = {"index": 0, "delta": {"content": "a"}, "logprobs": logprobs, "finish_reason": "length"}
    both = [chunk({"content": "b"}, finish="stop", index=1), chunk(choices=[choice]), chunk(choices=[choice])]
    found = put_together(*both, chunk(choices=[], usage={"total_tokens": 3}, system_fingerprint="fp", usages=None))
    assert found is not None
    assert [(one["index"], one["message"]["content"], one["finish_reason"]) for one in found["choices"]] == [
        (0, "aa", "length"),
        (1, "b", "stop"),
    ]
    assert found["choices"][0]["logprobs"] == {"content": logprobs["content"] * 2, "refusal": None}
    assert (found["usage"], found["system_fingerprint"], found["created"]) == ({"total_tokens": 3}, "fp", 7)


def test_empty_lists_take_nothing_away() -> None:
    some: JSON = {"content": [{"token": "a", "logprob": -0.5}]}
    none: JSON = {"content": [], "refusal": []}
    choices = [{"index": 0, "delta": {}, "logprobs": each, "finish_reason": "stop"} for each in (none, some, none)]
    found = put_together(*(chunk(choices=[choice]) for choice in choices))
    assert found is not None
    assert found["choices"][0]["logprobs"] == {**some, "refusal": []}


def test_characters_that_were_cut_in_halves_are_joined() -> None:
    halves = [chunk({"content": "half"}).replace(b"half", code) for code in (rb"\ud83d", rb"\ude00")]
    chunks = ChatChunks("chatcmpl-1")
    shown = chunks.frames([*halves, chunk(finish="stop")])
    assert shown.count(b'"id":"chatcmpl-1"') == 3
    assert rb'"content":"\ud83d"' in shown
    found = chunks.completion()
    assert found is not None
    assert (
        found["choices"][0]["message"]["content"].encode("utf-16", "surrogatepass").decode("utf-16")
        == "\N{GRINNING FACE}"
    )


def deep(levels: int) -> bytes:
    return chunk({"x": "deep"}, finish="stop").replace(b'"deep"', b'{"a":' * levels + b"1" + b"}" * levels)


@pytest.mark.parametrize(
    "events",
    [
        [],
        [chunk({"content": "a"})],
        [chunk(finish="stop"), chunk({"content": "a"}, index=1)],
        [chunk(finish="stop"), b'{"error": {"message": "no"}}'],
        [chunk(finish="stop"), chunk(choices=["a"])],
        [chunk(finish="stop"), chunk(choices=[{"index": "a"}])],
        [deep(700)],
        [deep(900)],
    ],
)
def test_what_is_not_complete_is_none(events: list[bytes]) -> None:
    assert put_together(*events) is None


@pytest.mark.parametrize(
    "odd",
    [
        {"content": 1},
        {"content": {"a": 1}},
        {"content": ["a"]},
        {"tool_calls": [{"index": 0, "function": "f"}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": {}}}]},
        {"tool_calls": "f"},
    ],
)
def test_odd_values_are_kept_in_one_form_or_another(odd: JSON) -> None:
    plain = chunk({"content": "a", "tool_calls": [{"index": 0, "function": {"arguments": "{"}}]})
    for events in ([plain, chunk(odd)], [chunk(odd), plain]):
        msgspec.json.encode(message(*events))
