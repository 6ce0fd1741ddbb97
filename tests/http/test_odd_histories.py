"""What came before is not always whole: calls that were cut off, references, runs that are not over."""

from pathlib import Path
from typing import Any

import pytest
from openai import BadRequestError
from tests.http.sdk import CLIENT_TOOL, create, done, served
from tests.support.postgres import on_one_store

from antwort.testing import Gate, call, turn

pytestmark = on_one_store()


BOTH_WAYS = pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])


async def look_up(word: str) -> str:
    """Look a word up."""
    return f"{word}: known"


@BOTH_WAYS
@pytest.mark.parametrize("kept_in", ["conversation", "chain"])
def test_a_call_that_was_cut_off_does_not_end_the_conversation(tmp_path: Path, stream: bool, kept_in: str) -> None:
    steps = [turn(calls=[call("get_weather", '{"city":')], finish="length"), turn("Never mind.")]
    with served(tmp_path, steps) as stage:
        before: Any = {"conversation": stage.client().conversations.create().id} if kept_in == "conversation" else {}
        first = create(stage, stream, input="Weather?", tools=[CLIENT_TOOL], **before)
        assert first.status == "incomplete"
        before = before or {"previous_response_id": first.id}
        assert create(stage, stream, input="Well?", tools=[CLIENT_TOOL], **before).output_text == "Never mind."


@BOTH_WAYS
def test_calls_of_turns_after_each_other_stay_after_each_other(tmp_path: Path, stream: bool) -> None:
    steps = [turn(calls=[call("look_up", word=word)]) for word in "ab"]
    with served(tmp_path, [*steps, turn("Both."), turn("Yes.")], functions=[look_up]) as stage:
        first = create(stage, stream, input="Look up a, then b")
        create(stage, stream, input="Sure?", previous_response_id=first.id)
    one_by_one = ["message", "function_call", "function_call_output", "function_call", "function_call_output"]
    assert [item["type"] for item in stage.requests[2].items] == one_by_one
    assert [item["type"] for item in stage.requests[3].items] == [*one_by_one, "message", "message"]


def test_a_reference_to_a_call_of_the_server_brings_its_result(tmp_path: Path) -> None:
    steps = [turn(calls=[call("look_up", word="a", call_id="c1")]), turn("Known."), turn("Yes.")]
    with served(tmp_path, steps, functions=[look_up], engine={"show_calls": True}) as stage:
        first = stage.request("POST", "/responses", json={"input": "Look up a"}).json()
        reference: Any = {"type": "item_reference", "id": first["output"][0]["id"]}
        question = {"role": "user", "content": "Sure?"}
        second = stage.request("POST", "/responses", json={"input": [reference, question]}).json()
        assert second["status"] == "completed"
    called, result, _ = stage.requests[2].items
    assert (called["name"], result["output"]) == ("look_up", "a: known")


def test_a_response_that_is_not_over_cannot_be_continued_yet(tmp_path: Path) -> None:
    gate = Gate()
    with served(tmp_path, [turn(["Hel", gate, "lo."]), turn("Bye.")]) as stage:
        running = create(stage, False, input="Hi", background=True)
        with pytest.raises(BadRequestError) as caught:
            create(stage, False, input="Bye", previous_response_id=running.id)
        assert caught.value.code == "previous_response_not_over"
        gate.open()
        done(stage, running.id)
        create(stage, False, input="Bye", previous_response_id=running.id)


@pytest.mark.parametrize("name", ["x\x00y", "a/b", "x" * 257, "line\nbreak"])
@pytest.mark.parametrize("kind", ["message", "function_call", "item_reference"])
def test_an_id_that_nobody_could_ask_for_is_refused(tmp_path: Path, name: str, kind: str) -> None:
    item: Any = {"type": kind, "id": name, "role": "user", "content": "Hi"}
    with served(tmp_path, []) as stage, pytest.raises(BadRequestError) as caught:
        create(stage, False, input=[item])
    assert caught.value.param == "input[0].id"


def test_a_request_of_very_many_items_is_refused(tmp_path: Path) -> None:
    body = {"model": "scripted", "input": [{"role": "user", "content": ""}] * 10_001}  # the SDK takes long to write it
    with served(tmp_path, []) as stage:
        found = stage.request("POST", "/responses", json=body)
    assert found.status_code == 400
    assert "more than 10,000 items" in found.json()["error"]["message"]


def test_outputs_that_a_client_sends_again_with_each_request_of_a_run_count_once(tmp_path: Path) -> None:
    # Semantic Kernel sends every output of a run, and the id of the response before as well.
    cities = [turn(calls=[call("get_weather", city=city)]) for city in ("Bonn", "Ulm")]
    with served(tmp_path, [*cities, turn("Sunny.")]) as stage:
        answer = create(stage, False, input="Weather?", tools=[CLIENT_TOOL])
        outputs: list[Any] = []
        for told in ("Sun in Bonn", "Sun in Ulm"):
            called: Any = answer.output[-1]
            outputs.append({"type": "function_call_output", "call_id": called.call_id, "output": told})
            answer = create(stage, False, input=outputs, tools=[CLIENT_TOOL], previous_response_id=answer.id)
        assert answer.output_text == "Sunny."
        with pytest.raises(BadRequestError, match="more than one output"):
            other: Any = {**outputs[0], "output": "Rain"}
            stage.client().responses.create(input=[other], previous_response_id=answer.id)
    read = ["message", *["function_call", "function_call_output"] * 2]
    assert [item["type"] for item in stage.requests[2].items] == read


@pytest.mark.parametrize("kept_in", ["conversation", "chain"])
def test_a_call_that_a_client_sends_again_is_read_once(tmp_path: Path, kept_in: str) -> None:
    with served(tmp_path, [turn(calls=[call("get_weather", city="Bonn")]), turn("Sunny.")]) as stage:
        before: Any = {"conversation": stage.client().conversations.create().id} if kept_in == "conversation" else {}
        first = create(stage, False, input="Weather?", tools=[CLIENT_TOOL], **before)
        before = before or {"previous_response_id": first.id}
        called: Any = first.output[0].model_dump(exclude_none=True)
        output: Any = {"type": "function_call_output", "call_id": called["call_id"], "output": "Sun"}
        with pytest.raises(BadRequestError, match=f"Duplicate item found with id {called['id']}. ") as refused:
            stage.client().responses.create(input=[called, output], **before)
        assert (refused.value.param, refused.value.code) == ("input", None)
        del called["id"]
        assert create(stage, False, input=[called, output], **before).output_text == "Sunny."
    assert [item["type"] for item in stage.requests[1].items] == ["message", "function_call", "function_call_output"]
