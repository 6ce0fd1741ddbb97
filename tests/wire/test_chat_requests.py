"""Requests for chat completions: whatever is mutated in one is read, or refused by its name."""

import msgspec
import pytest
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming
from tests.fuzz.mutations import mutations
from tests.server.truth.sdk_types import Maker

from antwort.errors import BadRequestError
from antwort.types import JSON
from antwort.wire.chat.reading import read_chat, stops
from antwort.wire.chat.requests import decode_chat
from antwort.wire.requests import CreateResponse

ASKED: list[JSON] = [{"role": "user", "content": "Hi"}]
NEEDED = {"stream": "stream_options", "logprobs": "top_logprobs"}
"""What some fields need beside them."""
OPEN = (
    "prediction",
    "logit_bias",
    "messages",
    "no_such_field",
    "response_format",
    "tools[0].custom.format",
    "web_search_options.user_location",
)
"""What is ignored, what clients send back, and what is looked at later: by those who plan the response."""
SCHEMA: JSON = {"type": "object", "properties": {}}
FUNCTION: JSON = {"type": "function", "function": {"name": "f", "description": "d", "parameters": SCHEMA}}
GRAMMAR: JSON = {"type": "grammar", "grammar": {"definition": "start: x", "syntax": "lark"}}
CUSTOM: JSON = {"type": "custom", "custom": {"name": "c", "format": GRAMMAR}}
BODIES: list[JSON] = [
    {
        "messages": [
            {"role": "system", "content": "s"},
            {"role": "user", "content": [
                {"type": "text", "text": "t"},
                {"type": "image_url", "image_url": {"url": "data:,", "detail": "low"}},
                {"type": "file", "file": {"file_id": "file-1"}},
            ]},
            {"role": "assistant", "content": "a", "reasoning_content": "r", "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}},
                {"id": "2", "type": "custom", "custom": {"name": "c", "input": "i"}},
            ]},
            {"role": "tool", "tool_call_id": "1", "content": [{"type": "text", "text": "t"}]},
            {"role": "tool", "tool_call_id": "2", "content": "o"},
        ],
        "tools": [FUNCTION, CUSTOM, {"type": "web_search"}],
        "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [FUNCTION]}},
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}},
        "stop": ["a"],
        "store": True,
    },
    {
        "messages": [{"role": "user", "content": "Hi"}],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "web_search_options": {"search_context_size": "low", "user_location": {"approximate": {"city": "Uji"}}},
        "stream": True,
        "stream_options": {"include_usage": True},
    },
]  # fmt: skip


def read(body: bytes) -> CreateResponse:
    sent = decode_chat(body)
    stops(sent.chat)
    return read_chat(sent.chat).create


def top(place: str) -> str:
    return place.partition("[")[0].partition(".")[0]


def refused(body: JSON) -> tuple[str | None, str | None]:
    """Return the field for which a request is refused, and the code; None if it is taken."""
    try:
        read(msgspec.json.encode(body))
    except BadRequestError as error:
        return top(error.param or ""), error.code
    return None, None


def test_a_conversation_becomes_items() -> None:
    create = read(msgspec.json.encode(BODIES[0]))
    assert isinstance(create.input, list)
    kinds = [item["type"] for item in create.input]
    assert kinds == [
        *("message", "message", "reasoning", "message", "function_call", "custom_tool_call"),
        *("function_call_output", "custom_tool_call_output"),
    ]
    assert [tool["type"] for tool in create.tools or ()] == ["function", "custom", "web_search"]
    assert (create.tools or [{}, {}])[1]["format"] == {"type": "grammar", "definition": "start: x", "syntax": "lark"}
    assert create.tool_choice == {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]}
    assert create.text is not None
    assert create.text.format == {"type": "json_schema", "name": "n", "schema": SCHEMA}


def test_the_web_can_be_searched_by_an_option() -> None:
    create = read(msgspec.json.encode(BODIES[1]))
    location = {"type": "approximate", "city": "Uji"}
    assert create.tools == [{"type": "web_search", "search_context_size": "low", "user_location": location}]
    assert create.input == "Hi"


def test_every_field_of_the_sdk_is_taken_or_refused_by_its_name() -> None:
    values = {"messages": ASKED, "schema": SCHEMA, "parameters": SCHEMA, "n": 1, "top_logprobs": 3}
    values["tools"] = [{"type": "function", "function": {"name": "f"}}]
    for case in Maker(values).cases(CompletionCreateParamsNonStreaming, lambda body: body):
        body = {"messages": ASKED, **case.body}
        body |= {name: True for name, needs in NEEDED.items() if needs in body}
        place, code = refused(body)
        if place is None:
            assert case.kind != "unknown" or case.place.startswith(OPEN), case
        else:
            assert place == top(case.place), case
            assert case.kind not in {"legal", "null"} or code == "unsupported_parameter", case


def test_every_mutation_is_read_or_refused() -> None:
    refused = 0
    for body in BODIES:
        for one in mutations(body):
            try:
                read(one.make())
            except BadRequestError:
                refused += 1
    assert refused > 100


FLAT = {"type": "function", "name": "f", "parameters": SCHEMA}


@pytest.mark.parametrize(
    ("sent", "param", "cure"),
    [
        ({"input": "Hi", "messages": None}, "input", "'messages'"),
        ({"instructions": "Be brief."}, "instructions", "a message with the role 'developer'"),
        ({"max_output_tokens": 9}, "max_output_tokens", "'max_completion_tokens'"),
        ({"text": {"format": {"type": "text"}}}, "text", "'response_format' and 'verbosity'"),
        ({"reasoning": {"effort": "low"}}, "reasoning", "'reasoning_effort'"),
        ({"prompt": "Hi", "messages": None}, "prompt", "'messages', or /v1/responses with a prompt of the server"),
        ({"extra_body": {"input": "Hi"}}, "input", "'messages'"),
        ({"previous_response_id": "resp_1"}, "previous_response_id", "/v1/responses"),
        ({"tools": [FLAT]}, "tools[0].name", "'tools[0].function.name'"),
        ({"tools": [{**FUNCTION, "strict": True}]}, "tools[0].strict", "'tools[0].function.strict'"),
        ({"tools": [{"type": "custom", "format": {}}]}, "tools[0].format", "'tools[0].custom.format'"),
        ({"tool_choice": {"type": "function", "name": "f"}}, "tool_choice.name", "'tool_choice.function.name'"),
        ({"tool_choice": {"type": "allowed_tools", "mode": "auto"}}, "tool_choice.mode",
         "'tool_choice.allowed_tools.mode'"),
        ({"response_format": {"type": "json_schema", "name": "n", "schema": SCHEMA}}, "response_format.name",
         "'response_format.json_schema.name'"),
    ],
)  # fmt: skip
def test_what_has_another_place_in_responses_is_refused_with_the_one_it_has_here(
    sent: JSON, param: str, cure: str
) -> None:
    fields = {name: value for name, value in {"messages": ASKED, **sent}.items() if value is not None}
    with pytest.raises(BadRequestError) as error:
        read(msgspec.json.encode(fields))
    assert (error.value.param, error.value.code) == (param, "unknown_parameter")
    assert error.value.message == f"Unknown parameter: '{param}'; this is Chat Completions: use {cure}."


def test_a_field_of_the_request_is_refused_among_those_of_the_model_server() -> None:
    with pytest.raises(BadRequestError, match="stands beside 'extra_body', not in it") as error:
        read(msgspec.json.encode({"messages": ASKED, "extra_body": {"max_tokens": 9}}))
    assert error.value.param == "extra_body.max_tokens"
    assert read(msgspec.json.encode({"messages": ASKED, "extra_body": {"seed": 9}})).extra_body == {"seed": 9}
