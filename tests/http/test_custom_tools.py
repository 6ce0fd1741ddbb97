"""Tools of the client that take text, on model servers that only know functions; and thoughts that clients carry."""

from pathlib import Path
from typing import Any

import pytest
from openai import BadRequestError
from openai.types.responses import Response, ResponseCustomToolCall, ResponseReasoningItem
from tests.http.sdk import CLIENT_TOOL, create, served
from tests.support.postgres import on_one_store

from antwort.testing import call, turn

pytestmark = on_one_store()


BOTH_WAYS = pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
TOOL: Any = {"type": "custom", "name": "run_sql", "description": "Runs SQL."}
GRAMMAR: Any = {**TOOL, "format": {"type": "grammar", "syntax": "lark", "definition": 'start: "SELECT" /.+/'}}
SQL = 'SELECT "name"\nFROM bikes'


def custom_calls(response: Response) -> list[ResponseCustomToolCall]:
    return [item for item in response.output if item.type == "custom_tool_call"]


@BOTH_WAYS
@pytest.mark.parametrize("over_http", [False, True])
def test_a_custom_tool_makes_a_round_trip(tmp_path: Path, stream: bool, over_http: bool) -> None:
    steps = [turn("Let me see.", calls=[call("run_sql", input=SQL, call_id="call_1")]), turn("There is one.")]
    with served(tmp_path, steps, over_http=over_http) as stage:
        first = create(stage, stream, input="Which bikes are there?", tools=[TOOL])
        (called,) = custom_calls(first)
        assert (called.name, called.input, called.call_id) == ("run_sql", SQL, "call_1")
        assert first.tools[0].type == "custom"
        answer: Any = {"type": "custom_tool_call_output", "call_id": "call_1", "output": "one row"}
        second = create(stage, stream, input=[answer], previous_response_id=first.id, tools=[TOOL])
        assert second.output_text == "There is one."
    if over_http:
        asked, said, result = stage.bodies[1]["messages"]
        assert asked["role"] == "user"
        assert said["tool_calls"][0]["function"]["name"] == "run_sql"
        assert SQL.split("\n")[1] in said["tool_calls"][0]["function"]["arguments"]
        assert result["content"] == "one row"


@BOTH_WAYS
def test_the_input_is_told_in_events_of_its_own(tmp_path: Path, stream: bool) -> None:
    with served(tmp_path, [turn(calls=[call("run_sql", ['{"inp', 'ut": "SELECT 1"}'])])]) as stage:
        seen = stage.stream(input="One", tools=[TOOL], background=stream)
    kinds = [event["type"] for event in seen.events if "custom" in event["type"] or "output_item" in event["type"]]
    assert kinds == [
        "response.output_item.added",
        "response.custom_tool_call_input.delta",
        "response.custom_tool_call_input.done",
        "response.output_item.done",
    ]


def test_a_stored_call_is_streamed_again_as_it_was(tmp_path: Path) -> None:
    with served(tmp_path, [turn(calls=[call("run_sql", input=SQL)])]) as stage:
        response = create(stage, False, input="Bikes?", tools=[TOOL])
        seen = stage.resume(response.id)
    assert [event["input"] for event in seen.events if event["type"] == "response.custom_tool_call_input.done"] == [SQL]


@pytest.mark.parametrize("arguments", ["SELECT 1", '"SELECT 1"', '{"input": "SELECT 1"}'])
def test_a_model_that_writes_the_text_alone_is_understood(tmp_path: Path, arguments: str) -> None:
    with served(tmp_path, [turn(calls=[call("run_sql", arguments)])]) as stage:
        (called,) = custom_calls(create(stage, False, input="One", tools=[TOOL]))
    assert called.input == "SELECT 1"


def test_the_model_is_told_about_a_grammar(tmp_path: Path) -> None:
    with served(tmp_path, ["No."]) as stage:
        create(stage, False, input="One", tools=[GRAMMAR])
    (tool,) = stage.requests[0].tools
    assert tool["type"] == "function"
    assert 'lark grammar:\nstart: "SELECT" /.+/' in tool["description"]
    assert tool["parameters"]["required"] == ["input"]


def test_a_custom_tool_can_be_chosen(tmp_path: Path) -> None:
    with served(
        tmp_path, [turn(calls=[call("run_sql", input="x")]), turn(calls=[call("run_sql", input="y")])]
    ) as stage:
        chosen = create(stage, False, input="One", tools=[TOOL], tool_choice={"type": "custom", "name": "run_sql"})
        assert chosen.tool_choice.to_dict() == {"type": "custom", "name": "run_sql"}  # type: ignore[union-attr]
        allowed: Any = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "custom", "name": "run_sql"}]}
        create(stage, False, input="One", tools=[TOOL, CLIENT_TOOL], tool_choice=allowed)
    assert stage.requests[0].tool_choice == {"type": "function", "name": "run_sql"}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{"type": "custom"}]}, "tools[0].name"),
        ({"tools": [TOOL, {**CLIENT_TOOL, "name": "run_sql"}]}, "tools[1].name"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "name": "run_sql"}}, "tool_choice"),
        ({"tools": [CLIENT_TOOL], "tool_choice": {"type": "custom", "name": "get_weather"}}, "tool_choice"),
        ({"input": [{"type": "custom_tool_call", "call_id": "c", "name": "x"}]}, "input[0].input"),
        ({"input": [{"type": "custom_tool_call_output", "call_id": "c", "output": "x"}]}, "input"),
    ],
)
def test_a_custom_tool_that_does_not_fit_is_a_bad_request(tmp_path: Path, fields: Any, param: str) -> None:
    with served(tmp_path, []) as stage, pytest.raises(BadRequestError) as caught:
        create(stage, False, **{"input": "Hi", **fields})
    assert caught.value.param == param


# --- thoughts --------------------------------------------------------------------------------------------------------


def reasoning_of(response: Response) -> ResponseReasoningItem:
    return next(item for item in response.output if item.type == "reasoning")


@BOTH_WAYS
def test_a_client_carries_thoughts_that_it_cannot_read(tmp_path: Path, stream: bool) -> None:
    steps = [
        turn(reasoning="They mean Bonn.", calls=[call("get_weather", city="Bonn", call_id="c1")]),
        turn("Wet."),
    ]
    with served(tmp_path, steps) as stage:
        fields: Any = {"store": False, "tools": [CLIENT_TOOL], "include": ["reasoning.encrypted_content"]}
        first = create(stage, stream, input="Weather?", **fields)
        thoughts = reasoning_of(first)
        sealed = thoughts.encrypted_content
        assert sealed is not None
        assert "Bonn" not in sealed
        carried: list[Any] = [
            {"role": "user", "content": "Weather?"},
            {"type": "reasoning", "id": thoughts.id, "summary": [], "encrypted_content": sealed},
            *(item.to_dict() for item in first.output if item.type == "function_call"),
            {"type": "function_call_output", "call_id": "c1", "output": "rain"},
        ]
        create(stage, stream, input=carried, **fields)
    (read,) = [item for item in stage.requests[1].items if item["type"] == "reasoning"]
    assert read["content"] == [{"type": "reasoning_text", "text": "They mean Bonn."}]
    assert "encrypted_content" not in read


def test_thoughts_are_not_sealed_unless_asked_for(tmp_path: Path) -> None:
    with served(tmp_path, [turn("Hi", reasoning="Hm.")]) as stage:
        assert reasoning_of(create(stage, False, input="Hi")).encrypted_content is None


def test_altered_thoughts_are_refused(tmp_path: Path) -> None:
    with served(tmp_path, [turn("Hi", reasoning="Hm.")]) as stage:
        first = create(stage, False, input="Hi", include=["reasoning.encrypted_content"])
        sealed = str(reasoning_of(first).encrypted_content)
        item: Any = {"type": "reasoning", "summary": [], "encrypted_content": f"{sealed[:-4]}AAA="}
        with pytest.raises(BadRequestError, match="cannot be read"):
            create(stage, False, input=[item, {"role": "user", "content": "Hi"}])


def test_thoughts_that_another_server_sealed_are_left_to_it(tmp_path: Path) -> None:
    theirs = "aw1.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
    with served(tmp_path, ["Hi"]) as stage:
        item: Any = {"type": "reasoning", "summary": [], "encrypted_content": theirs}
        create(stage, False, input=[item, {"role": "user", "content": "Hi"}])
    assert stage.requests[0].items[0]["encrypted_content"] == theirs


@BOTH_WAYS
def test_summaries_and_opaque_thoughts_of_a_model_server_come_through(tmp_path: Path, stream: bool) -> None:
    steps = [turn("Hi", summary=["They ", "greet."], opaque="gAAAA-theirs"), turn("Bye")]
    with served(tmp_path, steps) as stage:
        first = create(stage, stream, input="Hi")
        thoughts = reasoning_of(first)
        assert [part.text for part in thoughts.summary] == ["They greet."]
        assert thoughts.encrypted_content is not None
        assert "theirs" not in thoughts.encrypted_content  # sealed for this tenant and model
        create(stage, stream, input="Bye", previous_response_id=first.id)
        stage.resume(first.id)
    (read,) = [item for item in stage.requests[1].items if item["type"] == "reasoning"]
    assert read["encrypted_content"] == "gAAAA-theirs"


def test_a_background_run_tells_summaries_too(tmp_path: Path) -> None:
    with served(tmp_path, [turn("Hi", summary=["They ", "greet."], opaque="gAAAA-theirs")]) as stage:
        seen = stage.stream(input="Hi", background=True)
    assert [event["text"] for event in seen.events if event["type"] == "response.reasoning_summary_text.done"] == [
        "They greet."
    ]
