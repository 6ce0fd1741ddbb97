"""A model turn as the body of a request for a message: whatever was said, Anthropic takes it."""

import base64
import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from anthropic.types import MessageCountTokensParams
from anthropic.types.message_create_params import MessageCreateParamsNonStreaming, MessageCreateParamsStreaming
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ConfigDict, TypeAdapter
from tests.backends.conftest import a_request

from antwort.backends import ModelRequest
from antwort.backends.base import ToolDefinitions
from antwort.backends.http.remote import encode_parts
from antwort.backends.messages.request import (
    HiddenThoughts,
    MessagesShape,
    SignedThoughts,
    count_body,
    messages_body,
    sealed_thoughts,
)
from antwort.backends.messages.thinking import UNKNOWN, AnthropicSettings, ModelTraits, traits_in
from antwort.backends.passages import Passage, Window, stand_alone
from antwort.errors import BadRequestError
from antwort.testing.messages import read_messages
from antwort.types import JSON

STRICT = ConfigDict(extra="forbid")
WHOLE: TypeAdapter[Any] = TypeAdapter(list[MessageCreateParamsNonStreaming], config=STRICT)
STREAMED: TypeAdapter[Any] = TypeAdapter(list[MessageCreateParamsStreaming], config=STRICT)
COUNTED: TypeAdapter[Any] = TypeAdapter(list[MessageCountTokensParams], config=STRICT)
SAMPLING = {"temperature", "top_p"}
"""Fields that the newest SDK has no more: older models, and other servers, take them."""
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n...").decode()
PDF = base64.b64encode(b"%PDF-1.7 ...").decode()
ADD: JSON = {"type": "function", "name": "add", "description": "Add.", "parameters": {"type": "object"}}
SUB: JSON = {"type": "function", "name": "sub", "parameters": None, "strict": True}
SIGNED, HIDDEN = SignedThoughts("Hm.", "s1"), HiddenThoughts("h1")
KNOWN = {("Hm.", "s1"), ("", "h1")}
MARK = {"type": "ephemeral"}
NEW = ModelTraits(64_000, 200_000, frozenset({"adaptive", "disabled"}), frozenset({"low", "medium", "high"}))
OLD = ModelTraits(8_000, 200_000, frozenset({"enabled", "disabled"}), frozenset())
DULL = ModelTraits(4_000, 100_000, frozenset(), frozenset())


def shape(**given: Any) -> MessagesShape:
    return MessagesShape("claude", AnthropicSettings(**{"cache": "off", **given}))


def fits(kind: TypeAdapter[Any], body: JSON) -> None:
    """Have the types of Anthropic's SDK look at all of a body: what is in lists they check as it is read."""

    def read(value: Any) -> None:
        if isinstance(value, dict):
            value = value.values()
        if hasattr(value, "__iter__") and not isinstance(value, str):
            for inner in value:
                read(inner)

    read(kind.validate_python([body]))


def sent(request: ModelRequest, traits: ModelTraits = UNKNOWN, extra: JSON | None = None, **given: Any) -> JSON:
    """Return a body as it reaches the server; Anthropic's SDK and the double of its server have looked at it."""
    parts = encode_parts(messages_body(request, shape(**given), traits, extra or {}))
    body: JSON = json.loads(parts if isinstance(parts, bytes) else b"".join(bytes(part) for part in parts))
    if not extra:
        others = {name: value for name, value in body.items() if name not in SAMPLING}
        fits(STREAMED if request.stream else WHOLE, others)
        read_messages(body, KNOWN)
    return body


def user(content: Any) -> JSON:
    return {"type": "message", "role": "user", "content": content}


def assistant(text: str) -> JSON:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def called(call_id: str, name: str = "add", arguments: str = '{"a": 1}') -> JSON:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}


def output(call_id: str, text: Any = "2") -> JSON:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def thought(thoughts: SignedThoughts | HiddenThoughts = SIGNED) -> JSON:
    return {"type": "reasoning", "summary": [], "encrypted_content": sealed_thoughts(thoughts)}


def text(text: str) -> JSON:
    return {"type": "text", "text": text}


def use(use_id: str, name: str = "add", **arguments: Any) -> JSON:
    return {"type": "tool_use", "id": use_id, "name": name, "input": arguments}


def result(use_id: str, content: Any = "2") -> JSON:
    return {"type": "tool_result", "tool_use_id": use_id, "content": content}


def says(*blocks: JSON) -> JSON:
    return {"role": "assistant", "content": list(blocks)}


def asks(*blocks: JSON) -> JSON:
    return {"role": "user", "content": list(blocks)}


def test_only_what_was_asked_for_is_sent() -> None:
    assert sent(a_request()) == {"model": "m", "messages": [asks(text("Hi"))], "max_tokens": 8192}


SAID: list[tuple[str, list[JSON], list[JSON]]] = [
    ("neighbours are one message", [user("a"), user("b")], [asks(text("a"), text("b"))]),
    (
        "an empty text is none, and what is left is one message",
        [user("a"), assistant(" "), user([{"type": "input_text", "text": ""}, {"type": "input_text", "text": "b"}])],
        [asks(text("a"), text("b"))],
    ),
    (
        "the user begins",
        [assistant("a"), user("b")],
        [asks(text("[The conversation goes on.]")), says(text("a")), asks(text("b"))],
    ),
    ("the assistant does not end with blanks", [user("a"), assistant("b \n")], [asks(text("a")), says(text("b"))]),
    (
        "calls of a message are answered in the next one, in their order and first of all",
        [user("a"), assistant("b"), called("1"), called("2", "sub", ""), user("c"), output("2", "y"), output("1", "x")],
        [
            asks(text("a")),
            says(text("b"), use("1", a=1), use("2", "sub")),
            asks(result("1", "x"), result("2", "y"), text("c")),
        ],
    ),
    (
        "calls behind results are another message",
        [user("a"), called("1"), output("1"), called("2"), output("2")],
        [asks(text("a")), says(use("1", a=1)), asks(result("1")), says(use("2", a=1)), asks(result("2"))],
    ),
    (
        "ids are of few characters, and no two calls have one",
        [user("a"), called("c:1"), output("c:1"), called("c:1"), output("c:1")],
        [asks(text("a")), says(use("c_1", a=1)), asks(result("c_1")), says(use("c_1_2", a=1)), asks(result("c_1_2"))],
    ),
    (
        "a call without a result has one that says so",
        [user("a"), called("1")],
        [asks(text("a")), says(use("1", a=1)), asks({**result("1", "[There is no result.]"), "is_error": True})],
    ),
    (
        "an empty result has no content",
        [user("a"), called("1"), output("1", " ")],
        [asks(text("a")), says(use("1", a=1)), asks({"type": "tool_result", "tool_use_id": "1"})],
    ),
    (
        "results have images and documents themselves",
        [
            user("a"),
            called("1"),
            output("1", [
                {"type": "input_text", "text": "see"},
                {"type": "input_image", "image_url": f"data:image/jpeg;base64,{PNG}"},
            ]),
        ],
        [
            asks(text("a")),
            says(use("1", a=1)),
            asks(result("1", [
                text("see"),
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
            ])),
        ],
    ),
    (
        "thoughts go back as they came, in their place",
        [user("a"), thought(), thought(HIDDEN), assistant("b"), called("1"), output("1")],
        [
            asks(text("a")),
            says(
                {"type": "thinking", "thinking": "Hm.", "signature": "s1"},
                {"type": "redacted_thinking", "data": "h1"},
                text("b"),
                use("1", a=1),
            ),
            asks(result("1")),
        ],
    ),
    ("thoughts alone are no message", [user("a"), thought(), user("b")], [asks(text("a"), text("b"))]),
    (
        "thoughts of others are left out",
        [
            user("a"),
            {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
            {"type": "reasoning", "summary": [], "encrypted_content": "gAAAAABo"},
            {"type": "reasoning", "summary": [], "encrypted_content": '{"type":"text","text":"x"}'},
            assistant("b"),
            user("c"),
        ],
        [asks(text("a")), says(text("b")), asks(text("c"))],
    ),
    (
        "what only means something to us is left out",
        [user("a"), {"type": "web_search_call", "id": "ws_1", "status": "completed"}, user("b")],
        [asks(text("a"), text("b"))],
    ),
    (
        "images and documents, by value and by URL",
        [
            user([
                {"type": "input_image", "image_url": "https://example.org/a.png"},
                {"type": "input_file", "filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PDF}"},
                {"type": "input_file", "filename": "a.txt", "file_data": base64.b64encode(b"tea").decode()},
                {"type": "input_file", "file_url": "https://example.org/b.pdf"},
            ])
        ],
        [
            asks(
                {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
                {
                    "type": "document",
                    "source": {"type": "base64", "media_type": "application/pdf", "data": PDF},
                    "title": "a.pdf",
                },
                {
                    "type": "document",
                    "source": {"type": "text", "media_type": "text/plain", "data": "tea"},
                    "title": "a.txt",
                },
                {"type": "document", "source": {"type": "url", "url": "https://example.org/b.pdf"}},
            )
        ],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("items", "messages"), [row[1:] for row in SAID], ids=[row[0] for row in SAID])
def test_what_was_said_becomes_messages(items: list[JSON], messages: list[JSON]) -> None:
    found = sent(a_request(items=items, tools=[ADD, SUB]))["messages"]
    assert [(message["role"], message["content"]) for message in found] == [
        (message["role"], message["content"]) for message in messages
    ]


def test_instructions_stand_before_everything_wherever_they_are() -> None:
    items = [
        {"role": "developer", "content": "one"},
        user("a"),
        {"role": "system", "content": [{"type": "input_text", "text": "two"}]},
        user("b"),
    ]
    body = sent(a_request(items=items, instructions="zero"))
    assert body["system"] == [text("zero"), text("one"), text("two")]
    assert body["messages"] == [asks(text("a"), text("b"))]


def test_instructions_alone_are_what_is_answered() -> None:
    body = sent(a_request(items=[{"role": "developer", "content": "Say hi."}], instructions="Be brief."))
    assert (body["system"], body["messages"]) == ([text("Be brief.")], [asks(text("Say hi."))])
    assert sent(a_request(items=[]))["messages"] == [asks(text("[The conversation goes on.]"))]


@pytest.mark.parametrize(
    ("item", "code"),
    [
        ({"role": "critic", "content": "x"}, "invalid_value"),
        (output("1"), "invalid_value"),
        (user([{"type": "input_audio"}]), "unsupported_content"),
        ({"role": "system", "content": [{"type": "input_image", "image_url": "https://e.org"}]}, "unsupported_content"),
        (user([{"type": "input_image", "file_id": "f"}]), "unsupported_image"),
        (user([{"type": "input_image", "image_url": "data:image/bmp;base64,Qk0="}]), "unsupported_image"),
        (user([{"type": "input_image", "image_url": "data:image/png,x"}]), "unsupported_image"),
        (user([{"type": "input_file", "file_id": "f"}]), "unsupported_file"),
        (user([{"type": "input_file", "file_data": "////"}]), "unsupported_file"),
    ],
)
def test_what_no_message_can_have_is_refused(item: JSON, code: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        sent(a_request(items=[item]))
    assert (caught.value.code, caught.value.param) == (code, "input")


# --- how to answer ----------------------------------------------------------------------------------------------------

CHOICES: list[tuple[JSON, JSON | None]] = [
    ({}, None),
    ({"tool_choice": "auto"}, {"type": "auto"}),
    ({"tool_choice": "none", "parallel_tool_calls": False}, {"type": "none"}),
    ({"tool_choice": "required"}, {"type": "any"}),
    ({"tool_choice": {"type": "function", "name": "add"}}, {"type": "tool", "name": "add"}),
    ({"parallel_tool_calls": True}, None),
    ({"parallel_tool_calls": False}, {"type": "auto", "disable_parallel_tool_use": True}),
    ({"tool_choice": "required", "parallel_tool_calls": False}, {"type": "any", "disable_parallel_tool_use": True}),
]


@pytest.mark.parametrize(("asked", "choice"), CHOICES)
def test_tools_and_which_of_them_must_be_called(asked: JSON, choice: JSON | None) -> None:
    body = sent(a_request(tools=[ADD, SUB], **asked))
    assert body["tools"] == [
        {"name": "add", "description": "Add.", "input_schema": {"type": "object"}},
        {"name": "sub", "input_schema": {"type": "object", "properties": {}}, "strict": True},
    ]
    assert body.get("tool_choice") == choice


def test_calls_in_the_history_are_defined_though_there_are_no_tools_any_more() -> None:
    body = sent(a_request(items=[user("a"), called("1"), output("1"), called("2"), output("2")]))
    assert body["tools"] == [{"name": "add", "input_schema": {"type": "object"}}]
    assert body["tool_choice"] == {"type": "none"}


def test_sampling_limits_and_names_are_passed_on() -> None:
    asked = {"temperature": 1.5, "top_p": 0.5, "max_output_tokens": 99, "user": "u", "service_tier": "default"}
    body = sent(a_request(**asked, stream=True, verbosity="low", frequency_penalty=1.0, prompt_cache_key="k"))
    del body["model"], body["messages"]
    assert body == {
        "temperature": 1.0,
        "top_p": 0.5,
        "max_tokens": 99,
        "metadata": {"user_id": "u"},
        "service_tier": "standard_only",
        "stream": True,
    }


def test_further_fields_replace_ours_and_null_leaves_one_out() -> None:
    body = sent(a_request(extra={"top_k": 3}), extra={"top_k": 1, "container": "c", "max_tokens": None})
    assert (body["top_k"], body["container"], "max_tokens" in body) == (3, "c", False)


def test_the_answer_may_have_to_be_json() -> None:
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    wanted = {"type": "json_schema", "name": "n", "schema": schema, "strict": True}
    body = sent(a_request(text_format=wanted))
    assert body["output_config"] == {"format": {"type": "json_schema", "schema": schema}}
    assert "system" not in body
    assert "JSON" in sent(a_request(text_format={"type": "json_object"}))["system"][0]["text"]
    assert "output_config" not in sent(a_request(text_format={"type": "text"}))


def budget(tokens: int) -> JSON:
    return {"type": "enabled", "budget_tokens": tokens}


MEASURES: list[tuple[ModelTraits, JSON, JSON, tuple[JSON | None, str | None, int]]] = [
    # what is not known thinks within a budget, and writes as much beside it
    (UNKNOWN, {}, {"effort": "low"}, (budget(2048), None, 10_240)),
    (UNKNOWN, {}, {"summary": "auto"}, (budget(8192), None, 16_384)),
    (UNKNOWN, {}, {"effort": "none"}, ({"type": "disabled"}, None, 8192)),
    # of what was asked for some is left for the answer
    (UNKNOWN, {}, {"effort": "max", "max_output_tokens": 4000}, (budget(3000), None, 4000)),
    (UNKNOWN, {}, {"effort": "high", "max_output_tokens": 1000}, (None, None, 1000)),
    (UNKNOWN, {"max_tokens": 500}, {}, (None, None, 500)),
    (UNKNOWN, {"thinking": "adaptive"}, {"effort": "xhigh"}, ({"type": "adaptive"}, "high", 8192)),
    # the list tells what a model takes
    (NEW, {}, {}, (None, None, 32_000)),
    (NEW, {}, {"max_output_tokens": 100_000}, (None, None, 64_000)),
    (NEW, {}, {"effort": "minimal"}, ({"type": "adaptive"}, "low", 32_000)),
    (NEW, {}, {"effort": "max", "summary": "auto"}, ({"type": "adaptive", "display": "summarized"}, "high", 32_000)),
    (NEW, {}, {"effort": "high", "tool_choice": "required"}, (None, "high", 32_000)),
    (NEW, {"thinking": "off"}, {"effort": "high"}, (None, None, 32_000)),
    (OLD, {}, {"effort": "high"}, (budget(6000), None, 8000)),
    (OLD, {}, {"effort": "high", "tool_choice": "required"}, (None, None, 8000)),
    (DULL, {}, {"effort": "high"}, (None, None, 4000)),
    (DULL, {}, {"effort": "none"}, (None, None, 4000)),
    (ModelTraits(window=4000), {}, {}, (None, None, 2000)),
]  # fmt: skip


@pytest.mark.parametrize(("traits", "given", "asked", "expected"), MEASURES)
def test_how_much_a_turn_thinks_and_writes(traits: ModelTraits, given: JSON, asked: JSON, expected: Any) -> None:
    body = sent(a_request(tools=[ADD], **asked), traits, **given)
    found = body.get("thinking"), body.get("output_config", {}).get("effort"), body["max_tokens"]
    assert found == expected


def test_who_thinks_is_not_told_how_to_choose_words() -> None:
    body = sent(a_request(effort="low", temperature=0.2, top_p=0.3))
    assert not {"temperature", "top_p"} & body.keys()
    assert sent(a_request(effort="low", top_p=0.99))["top_p"] == 0.99
    assert "top_k" not in sent(a_request(effort="low", extra={"top_k": 3}))


@pytest.mark.parametrize(("items", "thinks"), [((), False), ((thought(),), True)])
def test_calls_made_without_thoughts_are_answered_without_a_budget(items: Sequence[JSON], thinks: bool) -> None:
    body = sent(a_request(items=[user("a"), *items, called("1"), output("1")], tools=[ADD], effort="high"))
    assert ("thinking" in body) is thinks


def test_a_list_of_models_tells_what_they_are_like() -> None:
    can = {
        "thinking": {"supported": True, "types": {"adaptive": {"supported": True}, "enabled": {"supported": False}}},
        "effort": {"supported": True, "low": {"supported": True}, "max": {"supported": False}},
    }
    models = [{"id": "m-20260101", "max_tokens": 9, "max_input_tokens": 99, "capabilities": can}, {"id": "n"}, {}, 7]
    said = ModelTraits(9, 99, frozenset({"adaptive"}), frozenset({"low"}))
    assert dict(traits_in(models)) == {"m-20260101": said, "m": said, "n": UNKNOWN}


def test_a_count_is_of_what_the_model_reads() -> None:
    asked = a_request(instructions="Be brief.", tools=[ADD], max_output_tokens=5000, effort="low", stream=True)
    body = json.loads(msgspec.json.encode(count_body(asked, shape(cache="5m"), UNKNOWN)))
    fits(COUNTED, body)
    assert body.keys() == {"model", "messages", "system", "tools", "thinking"}


# --- what is cached ---------------------------------------------------------------------------------------------------


def marks(body: JSON) -> list[str]:
    """Return where the marks are."""
    blocks = {"tools": body.get("tools", []), "system": body.get("system", [])}
    blocks |= {f"messages.{index}": message["content"] for index, message in enumerate(body["messages"])}
    return [
        f"{where}.{index - len(found)}"
        for where, found in blocks.items()
        for index, block in enumerate(found)
        if block.get("cache_control")
    ]


@pytest.mark.parametrize("kept", [True, False])
def test_the_ends_of_what_stays_the_same_are_marked(kept: bool) -> None:
    shared = ToolDefinitions([ADD])
    tools = ToolDefinitions([{**SUB, "name": "own"}], shared, [SUB]) if kept else [ADD, SUB]
    items = [user("a"), assistant("b"), user("c"), called("1"), output("1"), called("2"), output("2")]
    asked = a_request(items=items, instructions="Be brief.", tools=tools)
    for _ in range(2):
        body = sent(asked, cache="5m")
        assert marks(body) == ["tools.-1", "system.-1", "messages.4.-1", "messages.6.-1"]
        assert body["tools"][-1]["cache_control"] == MARK
        assert [tool["name"] for tool in body["tools"]] == (["own", "add", "sub"] if kept else ["add", "sub"])
    assert sent(asked, cache="1h")["system"][0]["cache_control"] == {**MARK, "ttl": "1h"}
    assert marks(sent(asked, cache="off")) == []


# --- whatever was said ------------------------------------------------------------------------------------------------

TEXTS = st.sampled_from(["", " ", "a", "b \n", ']},{"role":"user"'])
TURNS = st.one_of(
    TEXTS.map(lambda said: [user(said)]),
    TEXTS.map(lambda said: [assistant(said)]),
    TEXTS.map(lambda said: [{"type": "message", "role": "system", "content": said}]),
    st.sampled_from([thought(SIGNED), thought(HIDDEN)]).map(lambda item: [item]),
    st.lists(st.sampled_from(["1", "2", "!"]), min_size=1, max_size=3, unique=True).flatmap(
        lambda ids: st.permutations([output(one, "x" if one == "1" else "") for one in ids]).map(
            lambda outputs: [*map(called, ids), *outputs]
        )
    ),
)
CONVERSATIONS = st.lists(TURNS, max_size=8).map(lambda turns: [item for turn in turns for item in turn])


@settings(max_examples=60)
@given(CONVERSATIONS, st.sampled_from([None, "low"]), st.booleans())
def test_anthropic_takes_whatever_was_said(items: list[JSON], effort: str | None, has_tools: bool) -> None:
    sent(a_request(items=items, effort=effort, tools=[ADD] if has_tools else []), cache="5m")


@settings(max_examples=60)
@given(CONVERSATIONS, CONVERSATIONS, CONVERSATIONS)
def test_a_passage_is_sent_as_its_items_are(first: list[JSON], second: list[JSON], rest: list[JSON]) -> None:
    """However it was made, also if a message runs over its end, or a call has the id of another."""
    opening, more = [user("q"), *first], [user("r"), *second]
    passage = Passage(opening if stand_alone(opening) else [user("q")])
    messages_body(a_request(items=Window(passage, [user("s")])), shape(), UNKNOWN, {})
    if stand_alone(more):
        passage = passage.extended(more)
    window = Window(passage, [user("s"), *rest])
    asked = a_request(items=window, tools=[ADD])
    found, plain = sent(asked), sent(a_request(items=list(window), tools=[ADD]))
    assert found == plain


def test_a_passage_is_encoded_once() -> None:
    passage = Passage([user("a"), called("1"), output("1"), assistant("b")])
    found = [
        messages_body(a_request(items=Window(passage, [user(said)])), shape(), UNKNOWN, {})["messages"]
        for said in ("c", "d")
    ]
    assert isinstance(found[0][0], msgspec.Raw)
    assert found[0][0] is found[1][0]
    assert [messages[1:] for messages in found] == [[asks(text("c"))], [asks(text("d"))]]
