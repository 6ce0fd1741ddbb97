"""Reading the body of a request: what is taken, and what is refused by name."""

import contextlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antwort.engine.tools.parameters import check_beyond
from antwort.errors import BadRequestError
from antwort.wire.requests import CreateResponse, decode_compact, decode_create


def refused(body: dict[str, Any] | bytes) -> BadRequestError:
    with pytest.raises(BadRequestError) as caught:
        decode_create(body if isinstance(body, bytes) else msgspec.json.encode(body))
    return caught.value


def test_a_plain_request_is_read() -> None:
    create = decode_create(b'{"model": "m", "input": "hi", "stream": true, "temperature": 1}')
    assert (create.model, create.input, create.stream, create.temperature) == ("m", "hi", True, 1.0)


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        ({"text": {"fromat": {}}}, "text.fromat", "unknown_parameter"),
        ({"model": 3}, "model", "invalid_type"),
        ({"temperature": 3}, "temperature", "decimal_above_max_value"),
        ({"max_output_tokens": 1}, "max_output_tokens", "integer_below_min_value"),
        ({"max_tool_calls": 0}, "max_tool_calls", "integer_below_min_value"),
        ({"top_logprobs": 21}, "top_logprobs", "integer_above_max_value"),
        ({"metadata": {"a": "x" * 513}}, "metadata.a", "string_above_max_length"),
        ({"metadata": {str(n): "x" for n in range(17)}}, "metadata", "object_above_max_properties"),
        ({"tools": [3]}, "tools[0]", "invalid_type"),
        ({"truncation": "maybe"}, "truncation", "invalid_value"),
    ],
)
def test_what_does_not_fit_is_named(body: dict[str, Any], param: str, code: str) -> None:
    error = refused(body)
    assert (error.status, error.param, error.code) == (400, param, code)


def test_a_mistyped_parameter_gets_a_suggestion() -> None:
    with pytest.raises(BadRequestError, match=r"did you mean 'input'\?"):
        decode_compact(b'{"model": "m", "inptu": "x"}')


def test_fields_beyond_the_api_are_put_aside_for_the_planner() -> None:
    create = decode_create(b'{"input": "x", "top_k": 3, "extra_body": {"min_p": 0.1}, "inptu": {"a": [null]}}')
    assert create.extra_body == {"min_p": 0.1, "top_k": 3, "inptu": {"a": [None]}}
    assert create.input == "x"


def test_fields_beyond_the_api_excuse_nothing_else() -> None:
    assert refused({"top_k": 3, "model": 4}).param == "model"
    assert refused(b'{"top_k": ' + b"[" * 5000 + b"]" * 5000 + b"}").code == "invalid_json"


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("messages", "'input'"),
        ("max_tokens", "'max_output_tokens'"),
        ("max_completion_tokens", "'max_output_tokens'"),
        ("response_format", "'text.format'"),
        ("reasoning_effort", "'reasoning.effort'"),
    ],
)
def test_a_parameter_of_chat_completions_is_told_by_its_name_here(name: str, instead: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        check_beyond(decode_create(msgspec.json.encode({name: []})), ())
    error = caught.value
    assert (error.param, error.code) == (name, "unknown_parameter")
    assert error.message.startswith(f"Unknown parameter: '{name}'; this is the Responses API: use {instead}")


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"3", b'"x"', b"\xff\xfe", b'{"input": "\\ud800"}x'])
def test_what_is_not_a_json_object_is_refused(body: bytes) -> None:
    assert refused(body).status == 400


@given(st.binary() | st.text().map(str.encode))
def test_any_bytes_are_a_request_or_a_bad_request(body: bytes) -> None:
    with contextlib.suppress(BadRequestError):  # whatever else it raises fails the test
        assert isinstance(decode_create(body), CreateResponse)
