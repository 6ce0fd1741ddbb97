"""Chat completions that the engine makes: with functions of the server, and OpenAI's SDK before it."""

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import jsonschema_rs
import msgspec
import pytest
from openai import APIStatusError, BadRequestError
from openai.types.chat import ChatCompletion
from pydantic import BaseModel
from tests.http.sdk import CLIENT_TOOL, Served, served

from antwort.functions import Allow, Mask, MaskedSpan, Provider, Verdict, check
from antwort.provider import Context, Source
from antwort.testing import Gate, call, fail, turn
from antwort.types import JSON
from antwort.wire.chat.answers import CompletedChat

ASKED: Any = [{"role": "user", "content": "How is the weather?"}]
INNER = {name: value for name, value in CLIENT_TOOL.items() if name != "type"}
CHAT_TOOL: Any = {"type": "function", "function": INNER}
OWN: Any = {"type": "function", "function": {"name": "look_up"}}
BOTH_WAYS = pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])


async def look_up(word: str) -> str:
    """Look a word up."""
    return f"{word}: a green tea"


@contextlib.contextmanager
def making(tmp_path: Path, steps: Sequence[Any], **sections: Any) -> Iterator[Served]:
    sections.setdefault("functions", [look_up])
    server = {"chat_completions": {"functions": True}}
    with served(tmp_path, steps, server=server, **sections) as stage:
        yield stage


def create(stage: Served, stream: bool, **fields: Any) -> ChatCompletion:
    """Create a completion with the SDK; of a stream, what the SDK itself puts together."""
    completions = stage.client().chat.completions
    fields = {"model": "scripted", "messages": ASKED, **fields}
    if not stream:
        found: ChatCompletion = completions.create(**fields)
        return found
    with completions.stream(**fields) as events:
        for _ in events:
            pass
        return ChatCompletion.model_validate(events.get_final_completion().model_dump())


def ending(stage: Served, stream: bool, **fields: Any) -> tuple[str | None, str | None]:
    """Return what was said, and why it ended: of what is cut off, the SDK puts nothing together."""
    if not stream:
        (choice,) = create(stage, False, **fields).choices
        return choice.message.content, choice.finish_reason
    completions = stage.client().chat.completions
    found = [chunk.choices[0] for chunk in completions.create(model="scripted", messages=ASKED, stream=True, **fields)]
    return "".join(one.delta.content or "" for one in found), found[-1].finish_reason


def refused(stage: Served, **fields: Any) -> JSON:
    found = stage.request("POST", "/chat/completions", json={"messages": ASKED, **fields})
    assert found.status_code == 400, found.text
    error: JSON = found.json()["error"]
    return error


@BOTH_WAYS
def test_functions_of_the_server_run_and_are_not_shown(tmp_path: Path, stream: bool) -> None:
    steps = [turn("Let me see.", calls=[call("look_up", word="sencha")]), "It is green tea."]
    with making(tmp_path, steps) as stage:
        made = create(stage, stream, tools=[OWN])
        (choice,) = made.choices
        assert choice.message.content == "Let me see.\n\nIt is green tea."
        assert (choice.finish_reason, choice.message.tool_calls, choice.message.refusal) == ("stop", None, None)
        assert stage.requests[1].items[-1]["output"] == "sencha: a green tea"
        assert stage.request("GET", "/responses").json()["data"] == []


@BOTH_WAYS
def test_calls_of_functions_of_the_client_are_tool_calls(tmp_path: Path, stream: bool) -> None:
    calls = [call("get_weather", city="Uji"), call("get_weather", city="Kyoto")]
    with making(tmp_path, [turn(calls=calls), "Fine."]) as stage:
        made = create(stage, stream, tools=[CHAT_TOOL])
        message = made.choices[0].message
        calls_made: Any = message.tool_calls
        first, second = calls_made
        assert made.choices[0].finish_reason == "tool_calls"
        assert [json.loads(one.function.arguments) for one in (first, second)] == [
            {"city": "Uji"},
            {"city": "Kyoto"},
        ]
        outputs: Any = [
            {"role": "tool", "tool_call_id": first.id, "content": "Rain"},
            {"role": "tool", "tool_call_id": second.id, "content": [{"type": "text", "text": "Sun"}]},
        ]
        said = message.model_dump(exclude_none=True)
        again = create(stage, stream, tools=[CHAT_TOOL], messages=[*ASKED, said, *outputs])
        assert again.choices[0].message.content == "Fine."
        kinds = [item.get("type", "message") for item in stage.requests[1].items]
        assert kinds[-4:] == ["function_call", "function_call", "function_call_output", "function_call_output"]


@BOTH_WAYS
def test_custom_tools_take_texts(tmp_path: Path, stream: bool) -> None:
    tool: Any = {"type": "custom", "custom": {"name": "write", "description": "Write."}}
    with making(tmp_path, [turn(calls=[call("write", input="A haiku")]), "Done."]) as stage:
        choice: Any = {"type": "custom", "custom": {"name": "write"}}
        body = {"messages": ASKED, "tools": [tool], "tool_choice": choice, "stream": stream}
        found = stage.request("POST", "/chat/completions", json=body)
        assert found.status_code == 200
        assert "A haiku" in found.text
        assert '"type":"custom"' in found.text
        sent = {"id": "call_1", "type": "custom", "custom": {"name": "write", "input": "A haiku"}}
        messages = [*ASKED, {"role": "assistant", "tool_calls": [sent]}]
        messages.append({"role": "tool", "tool_call_id": "call_1", "content": "written"})
        assert create(stage, stream, messages=messages, tools=[tool]).choices[0].message.content == "Done."


def test_everything_of_a_request_reaches_the_model(tmp_path: Path) -> None:
    png = "data:image/png;base64,iVBORw0KGgo="
    messages: Any = [
        {"role": "system", "content": "Be brief."},
        {"role": "developer", "content": [{"type": "text", "text": "Be kind."}]},
        {"role": "user", "name": "ann", "content": [
            {"type": "text", "text": "What is this?"},
            {"type": "image_url", "image_url": {"url": png, "detail": "low"}},
            {"type": "file", "file": {"filename": "a.txt", "file_data": "data:text/plain;base64,SGk="}},
        ]},
        {"role": "assistant", "content": [{"type": "text", "text": "A dot."}], "audio": None},
        {"role": "assistant", "content": None, "refusal": "No."},
        {"role": "user", "content": "And now?"},
    ]  # fmt: skip
    backend = {"parameters": ["seed", "top_k"]}
    with making(tmp_path, ["{}"], over_http=True, backend=backend) as stage:
        made = create(
            stage,
            False,
            messages=messages,
            max_completion_tokens=5,
            temperature=0.5,
            top_p=0.9,
            presence_penalty=0.1,
            frequency_penalty=0.2,
            reasoning_effort="low",
            verbosity="low",
            seed=7,
            stop=["STOP"],
            n=1,
            user="ann",
            prompt_cache_key="k",
            parallel_tool_calls=False,
            tools=[CHAT_TOOL],
            tool_choice="auto",
            extra_body={"top_k": 3},
        )
        assert made.choices[0].message.content == "{}"
        (body,) = stage.bodies
        assert [message["role"] for message in body["messages"]] == [
            "system", "system", "user", "assistant", "user",
        ]  # fmt: skip
        assert [part["type"] for part in body["messages"][2]["content"]][:2] == ["text", "image_url"]
        expected: JSON = {
            "max_tokens": 5,
            "temperature": 0.5,
            "top_p": 0.9,
            "presence_penalty": 0.1,
            "seed": 7,
            "top_k": 3,
        }
        expected |= {"frequency_penalty": 0.2, "reasoning_effort": "low", "verbosity": "low", "user": "ann"}
        assert body | expected == body


@BOTH_WAYS
def test_stop_sequences_limits_and_filters_tell_why_it_ended(tmp_path: Path, stream: bool) -> None:
    steps = ["One STOP two", turn("Cut", finish="length"), turn("No", finish="content_filter")]
    with making(tmp_path, steps) as stage:
        made = [ending(stage, stream, stop="STOP") for _ in steps]
        assert made == [("One ", "stop"), ("Cut", "length"), ("No", "content_filter")]


@BOTH_WAYS
def test_refusals_thoughts_and_probabilities_are_shown(tmp_path: Path, stream: bool) -> None:
    steps = [turn(reasoning="Hm.", refusal="I would rather not."), turn(["To", "kyo"], logprobs=True)]
    with making(tmp_path, steps) as stage:
        message = create(stage, stream).choices[0].message
        assert message.refusal == "I would rather not."
        assert not message.content
        assert message.model_extra == {"reasoning_content": "Hm."} or message.to_dict()["reasoning_content"] == "Hm."
        (choice,) = create(stage, stream, logprobs=True, top_logprobs=1).choices
        assert choice.logprobs is not None
        assert [one.token for one in choice.logprobs.content or ()] == ["To", "kyo"]


def test_chunks_come_in_order_with_the_usage_at_the_end(tmp_path: Path) -> None:
    steps = [turn(["a", "b"], calls=[call("look_up", word="x")], usage=(10, 5)), turn("c", usage=(20, 7))]
    with making(tmp_path, steps) as stage:
        stream = stage.client().chat.completions.create(
            model="scripted", messages=ASKED, tools=[OWN], stream=True, stream_options={"include_usage": True}
        )
        first, *chunks, end, usage = list(stream)
        assert len({chunk.id for chunk in (first, *chunks, end, usage)}) == 1
        assert (first.choices[0].delta.role, end.choices[0].finish_reason) == ("assistant", "stop")
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "ab\n\nc"
        assert all(chunk.usage is None for chunk in (first, *chunks, end))
        assert usage.choices == []
        assert usage.usage is not None
        assert (usage.usage.prompt_tokens, usage.usage.completion_tokens, usage.usage.total_tokens) == (30, 12, 42)


@BOTH_WAYS
def test_with_store_the_completion_and_its_response_are_kept(tmp_path: Path, stream: bool) -> None:
    with making(tmp_path, ["Rain."]) as stage:
        made = create(stage, stream, store=True, metadata={"topic": "weather"})
        client = stage.client()
        kept = client.chat.completions.retrieve(made.id)
        assert (kept.choices[0].message.content, kept.metadata) == ("Rain.", {"topic": "weather"})
        assert stream or kept == made
        (message,) = stage.client(strict=False).chat.completions.messages.list(made.id)
        assert (message.id, message.content) == (f"{made.id}-0", "How is the weather?")
        response = client.responses.retrieve(f"resp_{made.id.removeprefix('chatcmpl-')}")
        assert (response.output_text, response.metadata) == ("Rain.", {"topic": "weather"})


async def test_the_asynchronous_sdk_makes_them_too(tmp_path: Path) -> None:
    steps = [turn(calls=[call("look_up", word="x")]), "Tea.", "Tea again."]
    with making(tmp_path, steps) as stage:
        async with stage.async_client() as client:
            made = await client.chat.completions.create(model="scripted", messages=ASKED, tools=[OWN], store=True)
            assert made.choices[0].message.content == "Tea."
            assert await client.chat.completions.retrieve(made.id) == made
            stream = await client.chat.completions.create(model="scripted", messages=ASKED, stream=True)
            texts = [chunk.choices[0].delta.content async for chunk in stream]
            assert "".join(filter(None, texts)) == "Tea again."


def test_parsed_answers_and_allowed_tools_work(tmp_path: Path) -> None:
    class Weather(BaseModel):
        city: str

    allowed: Any = {"mode": "auto", "tools": [CHAT_TOOL | {"function": {"name": "get_weather"}}]}
    with making(tmp_path, ['{"city": "Uji"}', "Yes."]) as stage:
        completions = stage.client().chat.completions
        parsed = completions.parse(model="scripted", messages=ASKED, response_format=Weather)
        assert parsed.choices[0].message.parsed == Weather(city="Uji")
        create(stage, False, tools=[CHAT_TOOL, OWN], tool_choice={"type": "allowed_tools", "allowed_tools": allowed})
        assert stage.requests[1].allowed == frozenset({"get_weather"})


@BOTH_WAYS
def test_urls_that_are_cited_are_annotations(tmp_path: Path, stream: bool) -> None:
    async def search(ctx: Context, query: str) -> str:
        """Search."""
        return f"[{ctx.sources.add(Source('Tea', url='https://tea.example'))}] {query}"

    steps = [turn("Wait.", calls=[call("search", query="tea")]), "Green [1]."]
    with making(tmp_path, steps, functions=[search]) as stage:
        made = create(stage, stream, tools=[{"type": "function", "function": {"name": "search"}}])
        message = made.choices[0].message
        assert message.annotations is not None
        (cited,) = message.annotations
        assert cited.url_citation.url == "https://tea.example"
        assert message.content is not None
        shown = message.content[cited.url_citation.start_index : cited.url_citation.end_index]
        assert message.content.startswith("Wait.\n\nGreen")
        assert shown in message.content[len("Wait.\n\n") :]


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"n": 2}, "n", "unsupported_parameter"),
        ({"audio": {}}, "audio", "unsupported_parameter"),
        ({"functions": []}, "functions", "unsupported_parameter"),
        ({"modalities": ["audio"]}, "modalities", "invalid_value"),
        ({"seed": 1}, "seed", "unknown_parameter"),
        ({"logit_bias": {}}, "logit_bias", "unknown_parameter"),
        ({"input": "Hi"}, "input", "unknown_parameter"),
        ({"tempratur": 1}, "tempratur", "unknown_parameter"),
        ({"temperature": 3}, "temperature", "decimal_above_max_value"),
        ({"top_logprobs": 1}, "top_logprobs", "invalid_value"),
        ({"stream_options": {}}, "stream_options", "invalid_value"),
        ({"messages": []}, "messages", "empty_array"),
        ({"messages": [{"role": "user"}]}, "messages[0].content", "missing_required_parameter"),
        ({"messages": [{"role": "function", "name": "f"}]}, "messages[0].role", "unsupported_parameter"),
        ({"messages": [{"role": "assistant", "function_call": {}}]}, "messages[0].function_call", None),
        ({"messages": [{"role": "tool", "content": "x", "tool_call_id": "c"}]}, "messages", None),
        ({"tools": [{"type": "function"}]}, "tools[0].function", "missing_required_parameter"),
        ({"tools": [{"type": "shell"}]}, "tools[0].type", "unsupported_parameter"),
        ({"tools": [{"type": "mcp", "server_label": "a"}]}, "tools[0].require_approval", "invalid_value"),
        ({"tools": [{"type": "function", "function": {"name": "f", "parameters": 1}}]}, None, "invalid_type"),
        ({"web_search_options": {}, "tools": [OWN]}, "web_search_options", "unsupported_tool"),
        ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice", None),
        ({"tool_choice": {"type": "allowed_tools"}}, "tool_choice.allowed_tools", "missing_required_parameter"),
        ({"tools": [{"type": "custom", "custom": {"name": 1}}]}, "tools[0].custom.name", "invalid_type"),
        ({"tools": [{**CHAT_TOOL, "x": 1}]}, "tools[0].x", "unknown_parameter"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema", "missing_required_parameter"),
        ({"response_format": {"type": "xml"}}, "response_format.type", None),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "n"}}},
            "response_format.json_schema.schema",
            "missing_required_parameter",
        ),
        ({"metadata": {"k": 1}, "store": True}, "metadata.k", "invalid_type"),
    ],
)
def test_what_is_not_served_is_refused_by_the_name_that_was_sent(
    tmp_path: Path, fields: JSON, param: str | None, code: str | None
) -> None:
    with making(tmp_path, []) as stage:
        error = refused(stage, **fields)
        assert str(error["param"]).startswith(param or "tools[0].function"), error
        assert error["code"] == (code or error["code"]), error


def test_messages_that_could_not_be_read_again_are_not_kept(tmp_path: Path) -> None:
    body = b'{"messages": [{"role": "user", "content": "Hi", "n": 1e999}], "store": true}'
    with making(tmp_path, []) as stage:
        found = stage.request("POST", "/chat/completions", content=body, headers={"content-type": "application/json"})
        error = found.json()["error"]
        assert (found.status_code, error["code"]) == (400, "invalid_value")
        assert error["param"].startswith("messages")


def test_errors_of_the_model_are_in_the_envelope_or_end_the_stream(tmp_path: Path) -> None:
    steps = [turn(error=fail(400, "No.")), turn(["a", "b"], error=fail(500, "Broken.", after=1))]
    with making(tmp_path, steps) as stage:
        with pytest.raises(BadRequestError, match=r"No\."):
            create(stage, False)
        found = stage.request("POST", "/chat/completions", json={"messages": ASKED, "stream": True, "store": True}).text
        assert '"error":{' in found
        assert found.endswith("data: [DONE]\n\n")
        assert stage.request("GET", "/chat/completions").json()["data"] == []


def test_what_its_client_has_left_is_not_kept(tmp_path: Path) -> None:
    gate = Gate()
    with making(tmp_path, [turn(["a", gate, "b"])]) as stage:
        stream = stage.client().chat.completions.create(model="scripted", messages=ASKED, stream=True, store=True)
        next(iter(stream))
        stream.close()
        gate.open()
        assert stage.request("GET", "/chat/completions").json()["data"] == []


def test_limits_of_tenants_hold(tmp_path: Path) -> None:
    with making(tmp_path, ["Rain."]) as stage:
        create(stage, False, store=True)
    with making(tmp_path, ["Sun."], limits={"per_tenant": {"max_stored_bytes": 1}}) as stage:
        with pytest.raises(APIStatusError) as error:
            create(stage, False, store=True)
        assert error.value.status_code == 429
        assert create(stage, False).choices[0].message.content == "Sun."


def test_the_endpoint_is_described_as_it_is_served(tmp_path: Path) -> None:
    with making(tmp_path, ["Rain."]) as stage:
        document = httpx.get(f"{stage.server.url}/openapi.json").json()
        operation = document["paths"]["/v1/chat/completions"]["post"]
        for content in (operation["requestBody"]["content"], operation["responses"]["200"]["content"]):
            described = content["application/json"]
            schema = {**described["schema"], "components": document["components"]}
            for example in described["examples"].values():
                jsonschema_rs.Draft202012Validator(schema).validate(example["value"])
        found = stage.request("POST", "/chat/completions", json={"messages": ASKED}).content
        assert msgspec.json.encode(msgspec.json.decode(found, type=CompletedChat)) == found


class Discreet(Provider):
    """Takes secrets out of what is sent and said."""

    @check("input", "output")
    async def mask(self, text: str) -> Verdict:
        """Mask a secret."""
        found = text.find("4711")
        return Allow() if found < 0 else Mask(spans=[MaskedSpan(found, found + 4, "****")])


@BOTH_WAYS
def test_what_a_check_has_taken_out_is_kept_nowhere(tmp_path: Path, stream: bool) -> None:
    with making(tmp_path, ["Your number is 4711."], providers=[Discreet()]) as stage:
        made = create(stage, stream, store=True, messages=[{"role": "user", "content": "I am 4711."}])
        assert "4711" not in str(made.choices[0].message.content)
        assert "4711" not in str(stage.requests[0].items)
        kept = stage.request("GET", f"/chat/completions/{made.id}").text
        messages = stage.request("GET", f"/chat/completions/{made.id}/messages").text
        assert "4711" not in kept + messages
