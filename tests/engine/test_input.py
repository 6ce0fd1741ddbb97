"""Input in all its spellings."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antwort.engine.planning.input import read_input
from antwort.errors import BadRequestError


def test_a_string_is_a_user_message() -> None:
    (item,) = read_input("hi")
    assert (item["type"], item["role"], item["status"]) == ("message", "user", "completed")
    assert item["content"] == [{"type": "input_text", "text": "hi"}]
    assert item["id"].startswith("msg_")


def test_a_message_without_type_and_with_string_content_is_read() -> None:
    user, assistant, developer = read_input(
        [
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": "b", "phase": None},
            {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "c"}]},
        ]
    )
    assert user["content"][0]["type"] == "input_text"
    assert assistant["content"] == [{"type": "output_text", "text": "b", "annotations": [], "logprobs": []}]
    assert "phase" not in assistant
    assert developer["role"] == "developer"


def test_ids_that_were_sent_are_kept_and_unknown_items_come_back_as_they_were() -> None:
    known, unknown = read_input([{"role": "user", "content": "x", "id": "msg_1"}, {"type": "acme:note", "x": [1]}])
    assert known["id"] == "msg_1"
    assert unknown == {"type": "acme:note", "x": [1], "id": unknown["id"]}


@pytest.mark.parametrize(
    ("item", "param"),
    [
        ({}, "input[0].type"),
        ({"type": 3}, "input[0].type"),
        ({"role": "boss", "content": "x"}, "input[0].role"),
        ({"role": "user"}, "input[0].content"),
        ({"role": "user", "content": [3]}, "input[0].content[0]"),
        ({"role": "user", "content": [{"type": "video"}]}, "input[0].content[0].type"),
        ({"role": "system", "content": [{"type": "input_image"}]}, "input[0].content[0].type"),
        ({"role": "user", "content": [{"type": "input_text"}]}, "input[0].content[0].text"),
        ({"type": "function_call", "name": "f", "arguments": "{}"}, "input[0].call_id"),
        ({"type": "function_call", "call_id": "c", "name": "f", "arguments": {}}, "input[0].arguments"),
        ({"type": "function_call_output", "output": "x"}, "input[0].call_id"),
        ({"type": "function_call_output", "call_id": "c", "output": 3}, "input[0].output"),
        ({"type": "item_reference"}, "input[0].id"),
    ],
)
def test_what_does_not_fit_is_named(item: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        read_input([item])
    assert caught.value.param == param


def test_a_string_of_more_than_ten_million_characters_is_refused() -> None:
    with pytest.raises(BadRequestError, match="longer than"):
        read_input("x" * 10_485_761)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
keys = st.sampled_from(["type", "role", "content", "id", "call_id", "name", "arguments", "output", "text", "status"])
values = json_values | st.sampled_from(["message", "function_call", "user", "assistant", "input_text"])


@given(st.lists(st.dictionaries(keys, values, max_size=6), max_size=3))
def test_any_items_are_read_or_refused(items: list[dict[str, Any]]) -> None:
    try:
        read = read_input(items)
    except BadRequestError:
        return  # whatever else it raises fails the test
    assert all(isinstance(item["id"], str) and isinstance(item["type"], str) for item in read)
