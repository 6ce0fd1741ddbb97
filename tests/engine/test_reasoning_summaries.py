"""Thoughts of models whose servers know no summaries, given as the summary that a request asks for."""

from pathlib import Path
from typing import Any

import pytest
from openai.types.responses import ResponseReasoningItem
from tests.http.sdk import CLIENT_TOOL, create, served

from antwort.testing import call, turn

BOTH_WAYS = pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
ASKED: Any = {"summary": "auto"}


def thoughts(response: Any) -> ResponseReasoningItem:
    (item,) = [item for item in response.output if item.type == "reasoning"]
    assert isinstance(item, ResponseReasoningItem)
    return item


@BOTH_WAYS
@pytest.mark.parametrize("over_http", [False, True])
@pytest.mark.parametrize("asked", [{"summary": "auto"}, {"summary": "detailed"}, {"generate_summary": "concise"}])
def test_thoughts_are_their_own_summary_if_one_is_asked_for(
    tmp_path: Path, stream: bool, over_http: bool, asked: Any
) -> None:
    with served(tmp_path, [turn("Hi", reasoning=["They ", "greet."])], over_http=over_http) as stage:
        item = thoughts(create(stage, stream, input="Hello", reasoning=asked))
    assert [part.text for part in item.summary] == ["They greet."]
    assert not item.content


@BOTH_WAYS
def test_otherwise_they_are_the_content(tmp_path: Path, stream: bool) -> None:
    with served(tmp_path, [turn("Hi", reasoning=["They ", "greet."])]) as stage:
        item = thoughts(create(stage, stream, input="Hello", reasoning={"effort": "low"}))
    assert item.summary == []
    assert [part.text for part in item.content or ()] == ["They greet."]


def test_the_operator_can_leave_it(tmp_path: Path) -> None:
    sections: Any = {"engine": {"thoughts_as_summary": False}}
    with served(tmp_path, [turn("Hi", reasoning="They greet.")], **sections) as stage:
        item = thoughts(create(stage, False, input="Hello", reasoning=ASKED))
    assert item.summary == []
    assert item.content is not None


def test_a_real_summary_stays_what_it_is(tmp_path: Path) -> None:
    with served(tmp_path, [turn("Hi", summary="A greeting.")]) as stage:
        item = thoughts(create(stage, False, input="Hello", reasoning=ASKED))
    assert [part.text for part in item.summary] == ["A greeting."]


def test_the_stream_tells_it_piece_by_piece(tmp_path: Path) -> None:
    with served(tmp_path, [turn("Hi", reasoning=["They ", "greet."])]) as stage:
        seen = stage.stream(input="Hello", reasoning=ASKED)
    kinds = [event["type"] for event in seen.events if "reasoning" in event["type"]]
    assert kinds == [
        "response.reasoning_summary_part.added",
        "response.reasoning_summary_text.delta",
        "response.reasoning_summary_text.delta",
        "response.reasoning_summary_text.done",
        "response.reasoning_summary_part.done",
    ]


@pytest.mark.parametrize("store", [True, False])
def test_the_model_reads_its_thoughts_again_with_the_calls_they_led_to(tmp_path: Path, store: bool) -> None:
    steps = [turn(reasoning="Ask outside.", calls=[call("get_weather", city="Bonn", call_id="call_1")]), turn("Sunny.")]
    include: Any = [] if store else ["reasoning.encrypted_content"]
    with served(tmp_path, steps, over_http=True) as stage:
        asked: Any = {"tools": [CLIENT_TOOL], "reasoning": ASKED, "store": store, "include": include}
        first = create(stage, False, input="Weather?", **asked)
        output: Any = {"type": "function_call_output", "call_id": "call_1", "output": "Sunny."}
        if store:
            create(stage, False, input=[output], previous_response_id=first.id, **asked)
        else:
            carried: Any = [item.to_dict() for item in first.output]
            create(stage, False, input=[{"role": "user", "content": "Weather?"}, *carried, output], **asked)
    assert stage.bodies[1]["messages"][1]["reasoning_content"] == "Ask outside."
