"""Anthropic's SDK: what a conversation says, and what is answered, whole and streamed."""

import base64
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from anthropic.types import ModelInfo
from pydantic import BaseModel
from tests.http.messages import ASK, TOOL, ask, ask_async, client, events, send
from tests.http.sdk import served
from tests.support.postgres import on_one_store
from typing_extensions import override

from antwort import Antwort
from antwort.backends import base
from antwort.config import BackendConfig, Config
from antwort.testing import ScriptedBackend, ScriptServer, call, fail, running, turn
from antwort.wire.responses import InputTokensDetails, OutputTokensDetails, Usage

pytestmark = on_one_store()
BOTH_WAYS = pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
PNG = "iVBORw0KGgo="
PDF = base64.b64encode(b"%PDF-1.4 tea").decode()


@BOTH_WAYS
async def test_a_message_is_answered(tmp_path: Path, stream: bool) -> None:
    with served(tmp_path, ["Hello!", "Hello again!"]) as stage:
        message = ask(stage, stream, system=[{"type": "text", "text": "Be brief."}, {"type": "text", "text": "Smile."}])
        again = await ask_async(stage, stream, system="Be brief.", extra_body={"temperature": 0.5, "top_p": 0.9})
        kept = stage.client().responses.retrieve(message.id.replace("msg_", "resp_"))
    assert [block.to_dict() for block in message.content] == [{"type": "text", "text": "Hello!"}]
    assert (message.role, message.model, message.stop_reason) == ("assistant", "scripted", "end_turn")
    assert message.stop_sequence is None
    assert (message.usage.input_tokens, message.usage.output_tokens) == (10, 5)
    assert kept.output_text == "Hello!"
    assert again.id != message.id
    first, second = stage.requests
    assert (first.instructions, first.max_output_tokens) == ("Be brief.\n\nSmile.", 1000)
    assert (second.instructions, second.temperature, second.top_p) == ("Be brief.", 0.5, 0.9)


@BOTH_WAYS
def test_tools_of_the_client_are_called_and_answered(tmp_path: Path, stream: bool) -> None:
    calls = [call("get_weather", city="Bonn"), call("get_weather", city="Rome")]
    with served(tmp_path, [turn("Let me look.", calls=calls), "Sunny."]) as stage:
        message = ask(stage, stream, tools=[TOOL])
        asked = [block for block in message.content if block.type == "tool_use"]
        results: list[Any] = [
            {"type": "tool_result", "tool_use_id": asked[0].id, "content": "rain"},
            {
                "type": "tool_result",
                "tool_use_id": asked[1].id,
                "is_error": True,
                "content": [
                    {"type": "text", "text": "no such city"},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
                ],
            },
            {"type": "text", "text": "Well?"},
        ]
        history: list[Any] = [*ASK["messages"], message.to_param(), {"role": "user", "content": results}]
        answer = ask(stage, stream, tools=[TOOL], messages=history)
    assert message.stop_reason == "tool_use"
    assert [block.type for block in message.content] == ["text", "tool_use", "tool_use"]
    assert [block.input for block in asked] == [{"city": "Bonn"}, {"city": "Rome"}]
    assert answer.stop_reason == "end_turn"
    items = stage.requests[1].items
    assert [item["type"] for item in items] == [
        "message",
        "message",
        "function_call",
        "function_call",
        "function_call_output",
        "function_call_output",
        "message",
    ]
    assert items[4]["output"] == "rain"
    assert [part.get("text") for part in items[5]["output"]] == ["Error:", "no such city", None]
    assert items[5]["output"][2]["image_url"] == f"data:image/png;base64,{PNG}"


@pytest.mark.parametrize(
    ("choice", "upstream", "parallel"),
    [
        ({"type": "auto"}, "auto", None),
        ({"type": "auto", "disable_parallel_tool_use": True}, "auto", False),
        ({"type": "any", "disable_parallel_tool_use": False}, "required", True),
        ({"type": "tool", "name": "get_weather"}, {"type": "function", "name": "get_weather"}, None),
        ({"type": "none"}, "none", None),
    ],
)
def test_a_choice_of_tools_reaches_the_model(tmp_path: Path, choice: Any, upstream: Any, parallel: bool | None) -> None:
    with served(tmp_path, ["Fine."]) as stage:
        ask(stage, False, tools=[TOOL], tool_choice=choice)
    [request] = stage.requests
    assert (request.tool_choice, request.parallel_tool_calls) == (upstream, parallel)


@BOTH_WAYS
def test_images_and_documents_reach_the_model(tmp_path: Path, stream: bool) -> None:
    pdf = {"type": "base64", "media_type": "application/pdf", "data": PDF}
    poem = {"type": "text", "media_type": "text/plain", "data": "Haiku"}
    parts: Any = {"type": "content", "content": [{"type": "text", "text": "A"}]}
    content: list[Any] = [
        {"type": "text", "text": "What is this?", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
        {"type": "document", "title": "tea.pdf", "source": pdf},
        {"type": "document", "context": "A poem.", "source": poem},
        {"type": "document", "title": "Parts", "source": parts},
        {"type": "search_result", "title": "T", "source": "s", "content": [{"type": "text", "text": "found"}]},
    ]
    with served(tmp_path, ["A dot."], over_http=True, backend={"pdf": True}) as stage:
        ask(stage, stream, messages=[{"role": "user", "content": content}])
    [message] = stage.bodies[0]["messages"]
    parts = message["content"]
    assert [part["type"] for part in parts] == ["text", "image_url", "file", "text", "text", "text", "text", "text"]
    assert parts[2]["file"] == {"filename": "tea.pdf", "file_data": f"data:application/pdf;base64,{PDF}"}
    assert parts[3]["text"] == "A poem."
    assert "Haiku" in parts[4]["text"]
    assert [part["text"] for part in parts[5:]] == ["Parts", "A", "T\ns\nfound"]


@BOTH_WAYS
def test_thoughts_come_with_a_signature_and_go_back(tmp_path: Path, stream: bool) -> None:
    first = turn("Let me look.", reasoning="Tea?", calls=[call("get_weather", city="Uji")])
    with served(tmp_path, [first, "Rain.", "Well."], over_http=True) as stage:
        thinking: Any = {"type": "enabled", "budget_tokens": 2000}
        message = ask(stage, stream, tools=[TOOL], thinking=thinking)
        thought, _, asked = message.content
        assert thought.type == "thinking"
        assert thought.signature
        assert asked.type == "tool_use"
        result: Any = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": asked.id, "content": "rain"}]}
        ask(stage, stream, tools=[TOOL], messages=[*ASK["messages"], message.to_param(), result])
        foreign: Any = [
            {"type": "thinking", "thinking": "Hm.", "signature": "not ours"},
            *message.to_param()["content"],
        ]
        hidden: Any = {"type": "redacted_thinking", "data": "opaque"}
        told: Any = {"role": "assistant", "content": [hidden, *foreign]}
        ask(stage, stream, tools=[TOOL], messages=[*ASK["messages"], told, result])
        damaged: Any = {"type": "thinking", "thinking": "Tea?", "signature": f"{thought.signature[:-8]}AAAAAAA="}
        with pytest.raises(anthropic.BadRequestError, match="messages: The 'signature' of a thinking block"):
            ask(stage, stream, messages=[*ASK["messages"], {"role": "assistant", "content": [damaged]}])
    assert thought.thinking == "Tea?"
    assert stage.bodies[0]["reasoning_effort"] == "low"
    assert stage.bodies[1]["messages"][1]["reasoning_content"] == "Tea?"
    assert stage.bodies[2]["messages"][1]["reasoning_content"] == "Hm.Tea?"


@pytest.mark.parametrize(
    ("options", "effort", "shown"),
    [
        ({}, None, ["thinking", "text"]),
        ({"thinking": {"type": "disabled"}}, None, ["text"]),
        ({"thinking": {"type": "adaptive"}}, None, ["thinking", "text"]),
        ({"thinking": {"type": "adaptive"}, "output_config": {"effort": "max"}}, "max", ["thinking", "text"]),
        ({"thinking": {"type": "enabled", "budget_tokens": 8000}}, "medium", ["thinking", "text"]),
        ({"thinking": {"type": "enabled", "budget_tokens": 32000, "display": "omitted"}}, "high", ["thinking", "text"]),
    ],
)
@BOTH_WAYS
def test_how_much_is_thought_and_shown(
    tmp_path: Path, stream: bool, options: Any, effort: str | None, shown: list[str]
) -> None:
    with served(tmp_path, [turn("Tea.", reasoning="Tea or coffee?")]) as stage:
        message = ask(stage, stream, **options)
    assert [block.type for block in message.content] == shown
    assert stage.requests[0].effort == effort
    thoughts = [block.thinking for block in message.content if block.type == "thinking"]
    omitted = options.get("thinking", {}).get("display") == "omitted"
    assert thoughts == ([] if shown == ["text"] else ["" if omitted else "Tea or coffee?"])


@BOTH_WAYS
def test_thoughts_that_only_the_model_server_reads_are_redacted(tmp_path: Path, stream: bool) -> None:
    with served(tmp_path, [turn("Tea.", opaque="sealed there"), "Yes."]) as stage:
        message = ask(stage, stream)
        history: Any = [*ASK["messages"], message.to_param(), {"role": "user", "content": "Sure?"}]
        ask(stage, stream, messages=history)
    assert [block.type for block in message.content] == ["redacted_thinking", "text"]
    thought = next(item for item in stage.requests[1].items if item["type"] == "reasoning")
    assert thought["encrypted_content"] == "sealed there"


@BOTH_WAYS
@pytest.mark.parametrize("deltas", [["one two STOP three"], ["one two ST", "OP three"], [*"one two STOP three"]])
def test_an_answer_ends_at_a_stop_sequence(tmp_path: Path, stream: bool, deltas: list[str]) -> None:
    with served(tmp_path, [turn(deltas)]) as stage:
        message = ask(stage, stream, stop_sequences=["STOPPED", "STOP", "xyz"])
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", "STOP")
    assert [block.to_dict() for block in message.content] == [{"type": "text", "text": "one two "}]
    assert message.usage.output_tokens > 0


@BOTH_WAYS
def test_what_only_begins_like_a_stop_sequence_is_said(tmp_path: Path, stream: bool) -> None:
    said = turn(["It ", "STO", "OD ST"], calls=[call("get_weather", city="Bonn")])
    with served(tmp_path, [said, "STO"]) as stage:
        message = ask(stage, stream, stop_sequences=["STOP"], tools=[TOOL])
        short = ask(stage, stream, stop_sequences=["STOP"])
    assert message.content[0].to_dict()["text"] == "It STOOD ST"
    assert (message.stop_reason, message.stop_sequence) == ("tool_use", None)
    assert short.content[0].to_dict()["text"] == "STO"
    assert short.stop_reason == "end_turn"


@BOTH_WAYS
def test_why_a_message_ends(tmp_path: Path, stream: bool) -> None:
    steps = [turn("Cut", finish="length"), turn("No", finish="content_filter"), turn(refusal="I will not.")]
    with served(tmp_path, steps) as stage:
        found = [ask(stage, stream) for _ in steps]
    assert [message.stop_reason for message in found] == ["max_tokens", "refusal", "refusal"]
    assert found[2].content[0].to_dict() == {"type": "text", "text": "I will not."}


async def double(number: int) -> int:
    """Double a number."""
    return 2 * number


@BOTH_WAYS
def test_functions_of_the_server_are_called_as_in_responses(tmp_path: Path, stream: bool) -> None:
    script = [turn(calls=[call("double", number=21)]), turn("42.")]
    agents = {"short": {"functions": ["double"], "max_turns": 1}}
    with served(tmp_path, [*script, *script, script[0]], functions=[double], agents=agents) as stage:
        offered = ask(stage, stream)
        named = ask(stage, stream, tools=[{"name": "double"}])
        paused = ask(stage, stream, model="short")
    for message in (offered, named):
        assert [block.to_dict() for block in message.content] == [{"type": "text", "text": "42."}]
        assert (message.usage.input_tokens, message.usage.output_tokens) == (20, 10)
        assert message.stop_reason == "end_turn"
    assert (paused.content, paused.stop_reason) == ([], "pause_turn")


@BOTH_WAYS
def test_usage_tells_what_came_from_a_cache(tmp_path: Path, stream: bool) -> None:
    usage = Usage(100, InputTokensDetails(60, 10), 20, OutputTokensDetails(5), 120)
    with served(tmp_path, [turn("Tea.", usage=usage)]) as stage:
        used = ask(stage, stream).usage
    assert (used.input_tokens, used.cache_read_input_tokens, used.cache_creation_input_tokens) == (30, 60, 10)
    assert used.output_tokens == 20
    if not stream:  # the SDK does not put this together
        assert used.output_tokens_details is not None
        assert used.output_tokens_details.thinking_tokens == 5


class Place(BaseModel):
    """A place on a map."""

    city: str
    country: str


def test_an_answer_fits_a_schema(tmp_path: Path) -> None:
    with served(tmp_path, ['{"city": "Uji", "country": "Japan"}']) as stage:
        found = client(stage).messages.parse(**ASK, output_format=Place)
    assert found.parsed_output == Place(city="Uji", country="Japan")
    wanted = stage.requests[0].text_format
    assert wanted is not None
    assert wanted["type"] == "json_schema"
    assert wanted["schema"]["properties"].keys() == {"city", "country"}


@pytest.mark.parametrize("beta", [{}, {"anthropic_beta": "structured-outputs-2025-11-13"}], ids=["plain", "beta"])
def test_a_schema_is_read_where_older_clients_have_it(tmp_path: Path, beta: Any) -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    with served(tmp_path, ["{}"]) as stage:
        found = send(stage, {**ASK, "output_format": {"type": "json_schema", "schema": schema}}, **beta)
    assert found.status_code == 200, found.text
    wanted = stage.requests[0].text_format
    assert wanted is not None
    assert wanted["schema"] == schema


@BOTH_WAYS
def test_the_tool_runner_of_the_sdk_runs_tools(tmp_path: Path, stream: bool) -> None:
    asked: list[str] = []

    @anthropic.beta_tool
    def get_weather(city: str) -> str:
        """Tell the weather.

        Args:
            city: Where.
        """
        asked.append(city)
        return "rain"

    with served(tmp_path, [turn(calls=[call("get_weather", city="Uji")]), turn("It rains.")]) as stage:
        runner = client(stage).beta.messages.tool_runner(**ASK, tools=[get_weather], stream=stream)
        last = runner.until_done()
    assert asked == ["Uji"]
    assert last.content[0].to_dict()["text"] == "It rains."


def test_tokens_are_counted(tmp_path: Path) -> None:
    with served(tmp_path, []) as stage:
        sdk = client(stage)
        plain = sdk.messages.count_tokens(model="scripted", messages=ASK["messages"]).input_tokens
        more = sdk.messages.count_tokens(model="scripted", messages=ASK["messages"], tools=[TOOL], system="Be brief.")
        with pytest.raises(anthropic.BadRequestError, match="messages"):
            sdk.messages.count_tokens(model="scripted", messages=[])
    assert 0 < plain < more.input_tokens


def test_a_message_is_kept_unless_it_is_not_to_be(tmp_path: Path) -> None:
    with served(tmp_path, ["Yes.", "No."]) as stage:
        sdk = client(stage)
        kept = sdk.messages.create(**ASK, metadata={"user_id": "somebody" * 20})
        lost = sdk.messages.create(**ASK, extra_body={"store": False})
        responses = stage.request("GET", "/responses").json()["data"]
    assert [one["id"] for one in responses] == [kept.id.replace("msg_", "resp_")]
    assert responses[0]["user"] == "somebody" * 20
    assert stage.requests[0].user == "somebody" * 20
    assert lost.content[0].to_dict()["text"] == "No."


def test_the_own_sampling_of_a_model_server_is_passed_on_where_it_is_taken(tmp_path: Path) -> None:
    with served(tmp_path, ["Tea.", "Tea."], over_http=True, backend={"parameters": ["top_k"]}) as stage:
        ask(stage, False, extra_body={"top_k": 5})
        assert stage.bodies[0]["top_k"] == 5
        ask(stage, False)
    with served(tmp_path / "plain", ["Tea."], over_http=True) as stage:
        ask(stage, False, extra_body={"top_k": 5})
    assert "top_k" not in stage.bodies[0]


def test_heads_tell_the_version_and_the_request(tmp_path: Path) -> None:
    with served(tmp_path, ["Tea.", "Tea.", "Tea."]) as stage:
        named = send(stage, ASK, anthropic_version="2023-01-01", x_request_id="req_mine")
        unnamed = send(stage, ASK, anthropic_version="a\tb")
        streamed = send(stage, {**ASK, "stream": True})
        missing = send(stage, {}, "/nothing")
        other = stage.request("GET", "/models")
    assert (named.headers["anthropic-version"], named.headers["request-id"]) == ("2023-01-01", "req_mine")
    for found in (unnamed, streamed, missing):
        assert found.headers["anthropic-version"] == "2023-06-01"
        assert found.headers["request-id"] == found.headers["x-request-id"]
    assert "request-id" not in other.headers


def test_betas_may_bring_fields_that_nobody_knows(tmp_path: Path) -> None:
    new = {**ASK, "brand_new": {"a": 1}, "context_management": {"edits": []}}
    with served(tmp_path, ["Tea."]) as stage:
        assert send(stage, new, anthropic_beta="brand-new-2026-11-01").status_code == 200
        refused = send(stage, new)
    assert refused.status_code == 400
    assert "brand_new" in refused.json()["error"]["message"]


@BOTH_WAYS
def test_an_error_of_the_model_server_has_a_status_before_anything_is_said(tmp_path: Path, stream: bool) -> None:
    steps = [turn(error=fail(status)) for status in (429, 503, 400)]
    with served(tmp_path, steps) as stage:
        for kind, name in (
            (anthropic.RateLimitError, "rate_limit_error"),
            (anthropic.APIStatusError, "overloaded_error"),
            (anthropic.BadRequestError, "invalid_request_error"),
        ):
            with pytest.raises(kind) as caught:
                ask(stage, stream)
            body: Any = caught.value.body
            assert body["error"]["type"] == name
            assert body["request_id"] == caught.value.request_id
            assert (caught.value.status_code == 529) == (name == "overloaded_error")


def test_an_error_in_the_middle_of_a_stream_is_an_event(tmp_path: Path) -> None:
    broken = (
        turn(["One", "two"], error=fail(500, after=1))
        if "after" in fail.__annotations__
        else turn("One", close_after=1)
    )
    with served(tmp_path, [broken]) as stage:
        found = events(stage)
    assert [event["type"] for event in found[:3]] == ["message_start", "content_block_start", "content_block_delta"]
    assert found[-1]["type"] == "error"
    assert found[-1]["error"]["type"] == "api_error"


def test_tenants_read_neither_the_messages_nor_the_thoughts_of_others(tmp_path: Path) -> None:
    keys = [{"id": name, "key": f"sk-{name}", "tenant": name} for name in ("acme", "other")]
    thinking: Any = {"type": "adaptive"}
    with served(tmp_path, [turn("Tea.", reasoning="A secret."), "Yes."], auth={"api_keys": keys}) as stage:
        mine, others = client(stage, "sk-acme"), client(stage, "sk-other")
        message = mine.messages.create(**ASK, thinking=thinking)
        kept = message.id.replace("msg_", "resp_")
        for key, status in (("sk-acme", 200), ("sk-other", 404)):
            found = stage.request("GET", f"/responses/{kept}", headers={"x-api-key": key})
            assert found.status_code == status
        history: Any = [*ASK["messages"], message.to_param(), {"role": "user", "content": "Sure?"}]
        with pytest.raises(anthropic.BadRequestError, match="messages: The 'signature' of a thinking block"):
            others.messages.create(**{**ASK, "messages": history})
        mine.messages.create(**{**ASK, "messages": history})
        with pytest.raises(anthropic.AuthenticationError) as caught:
            client(stage, "sk-nobody").messages.create(**ASK)
    assert caught.value.status_code == 401


def test_who_calls_too_often_or_sends_too_much_is_told_so(tmp_path: Path) -> None:
    auth = {"api_keys": [{"id": "a", "key": "sk-a"}]}
    limits = {"per_key": {"requests_per_minute": 1}}
    with served(tmp_path, ["Tea."], auth=auth, limits=limits, server={"max_body_bytes": 2000}) as stage:
        sdk = client(stage, "sk-a")
        sdk.messages.create(**ASK)
        with pytest.raises(anthropic.RateLimitError) as often:
            sdk.messages.create(**ASK)
        large = send(stage, {**ASK, "system": "x" * 4000}, x_api_key="sk-a")
    assert int(often.value.response.headers["retry-after"]) > 0
    body: Any = often.value.body
    assert body["error"]["type"] == "rate_limit_error"
    assert (large.status_code, large.json()["error"]["type"]) == (413, "request_too_large")


def test_a_large_conversation_is_read_part_by_part(tmp_path: Path) -> None:
    said: list[Any] = [{"role": role, "content": "x" * 5000} for role in ("user", "assistant")] * 50
    with served(tmp_path, ["Tea."]) as stage:
        assert send(stage, {**ASK, "messages": [*said, *ASK["messages"]]}).status_code == 200
        wrong = send(stage, {**ASK, "messages": [*said, {"role": "nobody", "content": "x"}]})
    assert len(stage.requests[0].items) == 101
    assert "messages[100].role" in wrong.json()["error"]["message"]


@pytest.mark.parametrize(
    ("block", "role", "named"),
    [
        ({"type": "tool_use", "id": "a", "name": "f", "input": {}}, "user", "messages[0].content[1].type"),
        (
            {"type": "image", "source": {"type": "url", "url": "https://a.example/b.png"}},
            "assistant",
            "content[1].type",
        ),
        ({"type": "server_tool_use", "id": "a", "name": "f", "input": {}}, "assistant", "content[1].name"),
        ({"type": "tool_result", "tool_use_id": "a", "content": "x"}, "user", "messages"),
        ({"type": "document", "source": {"type": "base64", "data": "?", "media_type": "x"}}, "user", "document.pdf"),
        ({"type": "image", "source": {"type": "file", "file_id": "file-none"}}, "user", "content[1]"),
        ({"type": "image"}, "user", "messages[0].content[1].source"),
        ({"type": "image", "source": {"type": "url", "url": "http://127.0.0.1/"}}, "user", "messages[0].content[1]"),
        (
            {"type": "document", "source": {"type": "url", "url": "http://169.254.169.254/"}},
            "user",
            "messages[0].content[1]",
        ),
    ],
)
def test_what_is_wrong_with_a_block_is_told_with_its_place(tmp_path: Path, block: Any, role: str, named: str) -> None:
    first = {"type": "text", "text": "Hi"}
    with served(tmp_path, [], over_http=True) as stage:
        found = send(stage, {**ASK, "messages": [{"role": role, "content": [first, block]}]})
    assert found.status_code in {400, 404}, found.text
    assert named in found.json()["error"]["message"]


def test_models_are_listed_for_the_sdks_of_both_and_for_a_server_in_front(tmp_path: Path) -> None:
    names = [f"model-{number}" for number in range(5)]
    with ScriptServer(["Hello."], models=names) as model:
        behind = Config(data_dir=tmp_path / "behind", backends={"main": BackendConfig(url=model.url)})
        with running(Antwort(behind)) as server:
            with anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0) as sdk:
                whole = sdk.models.list()
                assert [each.id for each in whole] == names
                for each in whole.data:
                    ModelInfo.model_validate(each.to_dict())
                assert [each.id for each in sdk.models.list(limit=2)] == names
                assert [each.id for each in sdk.models.list(limit=2, before_id="model-3").data] == names[1:3]
                assert sdk.models.retrieve("model-4").display_name == "model-4"
                with pytest.raises(anthropic.BadRequestError, match="list again without 'after_id'"):
                    sdk.models.list(after_id="none")
            before = BackendConfig(url=f"{server.url}/v1", api="anthropic")
            front = Antwort(Config(data_dir=tmp_path / "front", backends={"main": before}))
            with running(front) as outer, openai.OpenAI(base_url=f"{outer.url}/v1", api_key="none") as asking:
                assert [each.id for each in asking.models.list()] == names
                assert asking.responses.create(input="Hi!").output_text == "Hello."


def test_a_model_from_no_time_at_all_is_listed(tmp_path: Path) -> None:
    class OddlyDated(ScriptedBackend):
        @override
        async def models(self) -> list[base.ModelInfo]:
            return [base.ModelInfo(str(when), "odd", when) for when in (1_700_000_000_000, -1, 253402300799)]

    app = Antwort(Config(data_dir=tmp_path), backend=OddlyDated([]))
    with running(app) as server, anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0) as sdk:
        assert [model.created_at.year for model in sdk.models.list()] == [1970, 1970, 9999]


@pytest.mark.parametrize(
    ("key", "message"), [("wrong", "The credentials are not accepted"), ("", "Missing credentials")]
)
def test_who_is_not_let_in_is_told_the_header_of_this_api(tmp_path: Path, key: str, message: str) -> None:
    known = [{"id": "one", "key": "a-key-of-somebody", "tenant": "acme"}]
    with served(tmp_path, [], auth={"api_keys": known}) as stage:
        found = send(stage, ASK, **({"x_api_key": key} if key else {}))
    assert found.status_code == 401
    assert found.json()["error"]["message"] == f"{message}. Send 'x-api-key: <API key>'."
