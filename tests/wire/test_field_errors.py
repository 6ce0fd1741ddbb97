"""What is said of a field that does not fit: OpenAI's words and codes."""

from typing import Any

import pytest

from antwort.errors import BadRequestError
from antwort.wire.field_errors import check_shape
from antwort.wire.item_shapes import ITEM_SHAPES
from antwort.wire.requests import decode_create
from antwort.wire.strict_schemas import check_answer_schema, check_parameters
from antwort.wire.tool_shapes import check_tool

CLOSED: Any = {
    "type": "object",
    "properties": {"a": {"type": "string"}},
    "required": ["a"],
    "additionalProperties": False,
}
OPEN: Any = {"type": "object", "properties": {}}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"user": 7}', "Invalid type for 'user': expected a string, but got an integer instead."),
        (
            b'{"input": 1.5}',
            "Invalid type for 'input': expected one of a string or an array, but got a decimal instead.",
        ),
        (
            b'{"max_output_tokens": 8}',
            "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, but got 8 instead.",
        ),
        (
            b'{"truncation": "maybe"}',
            "Invalid value for 'truncation': 'maybe'. Supported values are: 'auto' and 'disabled'.",
        ),
        (
            b'{"context_management": [{"type": "x"}]}',
            "Invalid value for 'context_management[0].type': 'x'. Value must be 'compaction'.",
        ),
        (
            b'{"text": {"verbosty": "low"}}',
            "Unknown parameter: 'text.verbosty'; did you mean 'verbosity'?",
        ),
        (b'{"context_management": [{}]}', "Missing required parameter: 'context_management[0].type'."),
        (
            b'{"metadata": {"a": "b", "c": []}}',
            "Invalid type for 'metadata.c': expected a string, but got an array instead.",
        ),
    ],
)
def test_messages_name_the_field_and_what_it_takes(body: bytes, message: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        decode_create(body)
    assert caught.value.message == message


DEEP = 10_000


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (b"", "it is empty"),
        (b'{"input": 5', "it is not complete"),
        (b'{"input": "a', "it is not complete"),
        (b'{"metadata": {"a": []', "it is not complete"),
        (b'{"input": "a}', "it is not complete"),
        (b'{"bogus": 1', "it is not complete"),
        (b'{"input": "\\ud83d\\ude00', "it is not complete"),
        (b'{"input": "\\ud83d', "it is not complete"),
        (b'{"input": "\\ud83d"}', "unexpected end of escaped utf-16 surrogate pair (byte 17)"),
        (b'{"input": [{"content": "\\ud83dx"}]}', "unexpected end of escaped utf-16 surrogate pair (byte 30)"),
        (b'{"input": "\\ude00"}', "invalid utf-16 surrogate pair (byte 17)"),
        (b'{"input": 5, "user": "\\ud83d"}', "unexpected end of escaped utf-16 surrogate pair (byte 28)"),
        (b'{"input": "\\u1"}', "invalid character in unicode escape"),
        (b'{"input": ' + b"[" * DEEP + b"]" * DEEP + b"}", "it is nested too deeply"),
        (b'{"metadata": ' + b"[" * DEEP + b"]" * DEEP + b"}", "it is nested too deeply"),
        (b'{"tools": [{"parameters": ' + b'{"a": ' * DEEP + b"1" + b"}" * DEEP + b"}]}", "it is nested too deeply"),
    ],
    ids=lambda value: value[:40],
)
def test_what_cannot_be_read_says_why(body: bytes, fault: str) -> None:
    for given in (body, bytearray(body), body.decode()):
        with pytest.raises(BadRequestError) as caught:
            decode_create(given)
        assert caught.value.message.startswith("The body is not valid JSON: ")
        assert fault in caught.value.message
        assert (caught.value.code, caught.value.param) == ("invalid_json", None)


def test_a_number_that_no_type_takes_is_a_wrong_value_of_its_field() -> None:
    with pytest.raises(BadRequestError) as caught:
        decode_create(b'{"temperature": 1e400}')
    assert (caught.value.code, caught.value.param) == ("invalid_value", "temperature")


def test_places_within_a_request_are_named_from_its_top() -> None:
    item: Any = {"role": "user", "content": [{"type": "input_image", "detail": "best"}]}
    with pytest.raises(BadRequestError) as caught:
        check_shape(item, ITEM_SHAPES["message"], "input[3]")
    assert caught.value.param == "input[3].content[0].detail"
    assert "'auto', 'high', 'low', and 'original'" in caught.value.message


def test_names_have_the_characters_that_model_servers_take() -> None:
    check_tool({"type": "function", "name": "a-B_9"}, "function", "tools[0]")
    with pytest.raises(BadRequestError, match=r"matches the pattern '\^\[a-zA-Z0-9_-\]\+\$'"):
        check_tool({"type": "function", "name": "a b"}, "function", "tools[0]")


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        (OPEN, r"In context=\(\), 'additionalProperties' is required to be supplied and to be false"),
        ({**CLOSED, "required": []}, r"an array including every key in properties. Missing 'a'"),
        ({**CLOSED, "properties": {"a": OPEN}}, r"In context=\('properties', 'a'\)"),
        ({**CLOSED, "properties": {"a": {"anyOf": [{"type": "null"}, OPEN]}}}, r"'anyOf', '1'\)"),
        ({**CLOSED, "$defs": {"b": {"type": "array", "items": OPEN}}}, r"\('\$defs', 'b', 'items'\)"),
    ],
)
def test_a_schema_that_leaves_something_open_cannot_be_strict(schema: Any, problem: str) -> None:
    check_parameters(schema, "f", "tools[0].parameters", strict=False)
    with pytest.raises(BadRequestError, match=problem):
        check_parameters(schema, "f", "tools[0].parameters", strict=True)
    with pytest.raises(BadRequestError, match=problem):
        check_answer_schema(schema, "n", "text.format.schema")


def test_a_schema_that_leaves_nothing_open_can_be_strict() -> None:
    nested = {**CLOSED, "properties": {"a": {"type": ["object", "null"], "additionalProperties": False}}}
    for schema in (CLOSED, nested, {"type": "object", "additionalProperties": False}):
        check_parameters(schema, "f", "tools[0].parameters", strict=True)
        check_answer_schema(schema, "n", "text.format.schema")
