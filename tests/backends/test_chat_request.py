"""A turn as the body of a Chat Completions request."""

import json
from typing import Any

import pytest
from tests.backends.conftest import a_request

from antwort.backends import Transport, estimate_tokens
from antwort.backends.base import EncodedTools, ToolDefinitions
from antwort.backends.chat.request import ChatDialect, chat_body
from antwort.backends.http.remote import COPIED, encode_body, encode_parts, in_pieces
from antwort.backends.responses.backend import responses_body
from antwort.config import BackendConfig
from antwort.errors import BadRequestError
from antwort.http1.shared_bytes import WORTHWHILE, SharedBytes
from antwort.types import JSON

TOOL = {"type": "function", "name": "add", "description": "Adds.", "parameters": {"type": "object"}, "strict": True}


def body(dialect: ChatDialect | None = None, **request: Any) -> JSON:
    built = chat_body(a_request(**request), dialect or ChatDialect(), "local", {})
    decoded: JSON = json.loads(encode_body(built))
    return decoded


def added(**request: Any) -> JSON:
    """Return what a request adds to the least body."""
    return {key: value for key, value in body(**request).items() if key not in {"model", "messages"}}


def test_only_what_was_asked_for_is_sent() -> None:
    assert body() == {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}


@pytest.mark.parametrize(
    ("request_", "fields"),
    [
        ({"temperature": 0.0}, {"temperature": 0.0}),
        ({"top_p": 0.5}, {"top_p": 0.5}),
        ({"presence_penalty": 1.0, "frequency_penalty": 0.0}, {"presence_penalty": 1.0, "frequency_penalty": 0.0}),
        ({"max_output_tokens": 99}, {"max_tokens": 99}),
        ({"top_logprobs": 0}, {"logprobs": True, "top_logprobs": 0}),
        ({"top_logprobs": 3}, {"logprobs": True, "top_logprobs": 3}),
        ({"effort": "low"}, {"reasoning_effort": "low"}),
        ({"verbosity": "low", "user": "u"}, {"verbosity": "low", "user": "u"}),
        ({"service_tier": "flex", "prompt_cache_key": "k"}, {"service_tier": "flex", "prompt_cache_key": "k"}),
        ({"stream": True}, {"stream": True, "stream_options": {"include_usage": True}}),
        ({"text_format": {"type": "text"}}, {}),
        ({"text_format": {"type": "json_object"}}, {"response_format": {"type": "json_object"}}),
        (
            {"text_format": {"type": "json_schema", "name": "n", "schema": {}, "strict": False, "description": None}},
            {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}, "strict": False}}},
        ),
        ({"tool_choice": "auto", "parallel_tool_calls": True}, {}),
    ],
)
def test_a_field_is_sent_under_its_name(request_: JSON, fields: JSON) -> None:
    assert added(**request_) == fields


def test_tools_have_the_shape_of_chat_completions() -> None:
    function = {"name": "add", "description": "Adds.", "parameters": {"type": "object"}, "strict": True}
    assert added(tools=[TOOL]) == {"tools": [{"type": "function", "function": function}]}
    bare = added(tools=[{"type": "function", "name": "now", "description": None, "parameters": None, "strict": None}])
    assert bare["tools"][0]["function"] == {"name": "now", "parameters": {"type": "object", "properties": {}}}


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        ("auto", "auto"),
        ("none", "none"),
        ("required", "required"),
        ({"type": "function", "name": "add"}, "required"),
    ],
)
def test_the_choice_of_a_tool_is_sent_with_the_tools(choice: Any, sent: Any) -> None:
    fields = added(tools=[TOOL], tool_choice=choice, parallel_tool_calls=False)
    assert fields["tool_choice"] == sent
    assert fields["parallel_tool_calls"] is False


def test_a_function_that_is_chosen_by_name_is_named_where_there_are_others_and_to_openai() -> None:
    chosen, named = {"type": "function", "name": "add"}, {"type": "function", "function": {"name": "add"}}
    assert added(tools=[TOOL, {**TOOL, "name": "other"}], tool_choice=chosen)["tool_choice"] == named
    openai = ChatDialect(named_choice=True)
    assert body(openai, tools=[TOOL], tool_choice=chosen)["tool_choice"] == named


def test_a_choice_that_names_no_function_is_refused() -> None:
    with pytest.raises(BadRequestError, match="names no function"):
        body(tools=[TOOL], tool_choice={"type": "shop"})


def test_an_unknown_text_format_is_refused() -> None:
    with pytest.raises(BadRequestError, match="'xml'"):
        body(text_format={"type": "xml"})


def test_fields_of_the_operator_replace_ours_and_null_leaves_one_out() -> None:
    sent = chat_body(
        a_request(stream=True, temperature=1.0, extra={"seed": 2}),
        ChatDialect(),
        "local",
        {"stream_options": None, "top_k": 5, "seed": 1, "temperature": 0.2},
    )
    assert {key: sent.get(key) for key in ("stream", "stream_options", "top_k", "seed", "temperature")} == {
        "stream": True,
        "stream_options": None,
        "top_k": 5,
        "seed": 2,
        "temperature": 0.2,
    }
    assert "stream_options" not in sent


def test_tools_that_are_kept_encoded_are_the_same_tools() -> None:
    other = {"type": "function", "name": "sub", "parameters": None}
    shared = ToolDefinitions([TOOL])
    for tools in (shared, ToolDefinitions([other], shared), ToolDefinitions([], shared), ToolDefinitions([other])):
        assert body(tools=tools) == body(tools=list(tools))
        assert estimate_tokens(a_request(tools=tools)) == estimate_tokens(a_request(tools=list(tools)))
    kept = a_request(tools=ToolDefinitions([other, TOOL], shared), tool_choice="auto")
    plain = a_request(tools=[other, TOOL, TOOL], tool_choice="auto")
    expected = chat_body(plain, ChatDialect(), "local", {})
    assert json.loads(encode_body(chat_body(kept, ChatDialect(), "local", {}), in_pieces)) == expected
    assert json.loads(encode_body(responses_body(kept, {}))) == responses_body(plain, {})


def test_many_tools_that_are_kept_encoded_are_not_copied() -> None:
    tools = ToolDefinitions([{**TOOL, "description": "x" * COPIED}])
    sent = chat_body(a_request(tools=tools), ChatDialect(), "local", {})
    for body in (sent, {"tools": sent["tools"]}, {**sent, "tools": EncodedTools(sent["tools"] * 2)}):
        for parts in (encode_parts(body), encode_parts(body, in_pieces)):
            assert not isinstance(parts, bytes)
            assert json.loads(b"".join(parts)) == json.loads(encode_body(body))
    assert isinstance(encode_parts(chat_body(a_request(tools=[TOOL]), ChatDialect(), "local", {})), bytes)
    assert isinstance(encode_parts({"tools": []}), bytes)


def test_very_many_tools_that_others_offer_too_end_the_body_and_are_kept_once() -> None:
    other = {"type": "function", "name": "sub", "parameters": None}
    shared = ToolDefinitions([{**TOOL, "description": "x" * WORTHWHILE}])
    endings = []
    for tools in (shared, ToolDefinitions([other], shared)):
        sent = chat_body(a_request(tools=tools), ChatDialect(), "local", {})
        parts = encode_parts(sent)
        assert not isinstance(parts, bytes)
        assert json.loads(b"".join(parts)) == json.loads(encode_body(sent))
        endings.append(parts[-1])
    assert isinstance(endings[0], SharedBytes)
    assert endings[0] is endings[1]


def test_a_tool_that_is_no_unicode_is_refused() -> None:
    with pytest.raises(BadRequestError, match="not valid Unicode"):
        body(tools=ToolDefinitions([{**TOOL, "description": "\ud800"}]))


def test_what_is_too_deep_to_be_written_is_refused() -> None:
    deep: JSON = {}
    for _ in range(5000):
        deep = {"a": deep}
    with pytest.raises(BadRequestError, match="tools are nested too deeply"):
        body(tools=ToolDefinitions([{**TOOL, "parameters": deep}]))
    with pytest.raises(BadRequestError, match="request is nested too deeply"):
        body(extra={"top_k": deep})


def test_text_that_is_no_unicode_is_refused() -> None:
    with pytest.raises(BadRequestError, match="not valid Unicode"):
        body(instructions="\ud800")


@pytest.mark.parametrize(
    ("url", "field", "role"),
    [
        ("https://api.openai.com/v1", "max_completion_tokens", "developer"),
        ("http://localhost:8000/v1", "max_tokens", "system"),
        ("https://api.openai.com.example.org/v1", "max_tokens", "system"),
    ],
)
def test_the_dialect_is_told_by_the_host(url: str, field: str, role: str) -> None:
    config = BackendConfig(url=url)
    dialect = ChatDialect.of(config, Transport("local", config))
    sent = body(dialect, max_output_tokens=99, items=[{"role": "developer", "content": "Hi"}])
    assert sent[field] == 99
    assert sent["messages"][0]["role"] == role
