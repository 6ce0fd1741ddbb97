"""A turn that was cut off and is begun again: what readers have seen is closed, and the answer is there once."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from openai.types.responses import ResponseTextDeltaEvent
from pydantic import BaseModel
from tests.http.sdk import served
from tests.runs.embedded import SEARCH, TENANT, embedded, is_delta, text_of

from antwort.config import Config
from antwort.engine.output.events import Events
from antwort.functions import FunctionSpec
from antwort.runs.recovery import state_of
from antwort.storage.base import ConversationRecord, JournalEntry, StoredEvent
from antwort.storage.opening import open_configured
from antwort.testing import Gate, LintedStream, call, turn
from antwort.types import JSON


def told(stream: LintedStream) -> list[tuple[int, str, str]]:
    """Return index, status and text of each item that readers were told is done."""
    done = [event for event in stream.events if event["type"] == "response.output_item.done"]
    return [(event["output_index"], event["item"]["status"], text_of(event["item"])) for event in done]


def delta_is(text: str) -> Callable[[JSON], bool]:
    return lambda event: event.get("delta") == text


async def test_an_answer_that_was_cut_off_is_closed_in_the_stream_and_is_in_the_output_once(tmp_path: Path) -> None:
    async with embedded(tmp_path, [turn(["The answer ", Gate(), "is 42."])]) as app:
        response_id = await app.accept("What is it?")
        seen = await app.read_until(response_id, is_delta)
    async with embedded(tmp_path, [turn(["The answer ", "is 42."])]) as app:
        response, stream = await app.result(response_id)
        assert [item["type"] for item in app.asked()] == ["message"]  # the model does not see its cut-off answer
    assert stream.events[: len(seen)] == seen
    assert told(stream) == [(0, "incomplete", "The answer "), (1, "completed", "The answer is 42.")]
    assert [(item["status"], text_of(item)) for item in response["output"]] == [("completed", "The answer is 42.")]


async def test_a_follow_up_does_not_see_the_cut_off_answer_either(tmp_path: Path) -> None:
    async with embedded(tmp_path, [turn(["The answer ", Gate(), "is 42."])]) as app:
        response_id = await app.accept("What is it?")
        await app.read_until(response_id, is_delta)
    async with embedded(tmp_path, ["The answer is 42.", "Because."]) as app:
        await app.result(response_id)
        await app.app.run("Why?", previous_response_id=response_id)
        assert [text_of(item) for item in app.asked()] == ["What is it?", "The answer is 42.", "Why?"]


async def test_thoughts_that_were_cut_off_are_left_out_and_the_model_thinks_again(tmp_path: Path) -> None:
    async with embedded(tmp_path, [turn("42.", reasoning=["Let me ", Gate(), "think."])]) as app:
        response_id = await app.accept("What is it?")
        await app.read_until(response_id, is_delta)
    async with embedded(tmp_path, [turn("42.", reasoning=["Let me think."])]) as app:
        response, stream = await app.result(response_id)
        assert [item["type"] for item in app.asked()] == ["message"]
    assert told(stream)[0] == (0, "incomplete", "Let me ")
    assert [(item["type"], text_of(item)) for item in response["output"]] == [
        ("reasoning", "Let me think."),
        ("message", "42."),
    ]


async def test_finished_thoughts_of_a_turn_that_was_cut_off_are_left_out_too(tmp_path: Path) -> None:
    step = turn(["4", Gate(), "2."], reasoning=["Let me think."])
    async with embedded(tmp_path, [step]) as app:
        response_id = await app.accept("What is it?")
        await app.read_until(response_id, lambda event: event["type"] == "response.output_text.delta")
    async with embedded(tmp_path, ["42."]) as app:
        response, stream = await app.result(response_id)
        assert [item["type"] for item in app.asked()] == ["message"]
    assert told(stream) == [(0, "completed", "Let me think."), (1, "incomplete", "4"), (2, "completed", "42.")]
    assert [text_of(item) for item in response["output"]] == ["42."]


async def test_thoughts_that_only_the_model_server_reads_are_open_until_more_arrives(tmp_path: Path) -> None:
    """So a turn that was cut off there has an item to be closed, and its thoughts are not told to be complete."""
    step = turn(["4", Gate(), "2."], summary=["They think."], opaque="sealed")
    async with embedded(tmp_path, [step]) as app:
        response_id = await app.accept()
        await app.read_until(response_id, delta_is("4"))
    async with embedded(tmp_path, [turn("42.", summary=["They think."], opaque="sealed")]) as app:
        response, stream = await app.result(response_id)
    assert [item["type"] for item in response["output"]] == ["reasoning", "message"]
    kinds = [kind for kind in stream.types if kind.startswith("response.output_item")]
    assert kinds[:3] == ["response.output_item.added", "response.output_item.done", "response.output_item.added"]


async def test_log_probabilities_of_a_cut_off_answer_are_kept(tmp_path: Path) -> None:
    async with embedded(tmp_path, [turn(["a", "b", Gate(), "c"], logprobs=True)]) as app:
        response_id = await app.accept(include=["message.output_text.logprobs"])
        await app.read_until(response_id, lambda event: "b" in event.get("delta", ""))
    async with embedded(tmp_path, ["abc"]) as app:
        _, stream = await app.result(response_id)
    item = next(event["item"] for event in stream.events if event["type"] == "response.output_item.done")
    tokens = [logprob["token"] for logprob in item["content"][0]["logprobs"]]
    assert "".join(tokens) == text_of(item) == "ab"


async def test_a_run_can_be_cut_off_again_and_again(tmp_path: Path) -> None:
    response_id = ""
    for number in range(4):
        async with embedded(tmp_path, [turn([f"try {number}", Gate()])]) as app:
            response_id = response_id or await app.accept()
            await app.read_until(response_id, delta_is(f"try {number}"))
    async with embedded(tmp_path, ["done"]) as app:
        response, stream = await app.result(response_id)
    assert [text_of(item) for item in response["output"]] == ["done"]
    tries = [(number, "incomplete", f"try {number}") for number in range(4)]
    assert told(stream) == [*tries, (4, "completed", "done")]


async def test_items_of_turns_that_were_finished_keep_their_places_after_several_crashes(tmp_path: Path) -> None:
    gate = Gate()

    async def search(held: bool = False) -> str:
        """Search."""
        if held:
            await gate.wait()
        return "found it"

    specs = [FunctionSpec.of(search, {"hosted": SEARCH})]
    response_id = ""
    for number in range(3):
        steps = [*([] if number else [turn(calls=[call("search")])]), turn([f"try {number}", Gate()])]
        async with embedded(tmp_path, steps, specs) as app:
            response_id = response_id or await app.accept(tools=[{"type": "web_search"}])
            await app.read_until(response_id, delta_is(f"try {number}"))
    async with embedded(tmp_path, [turn(calls=[call("search", held=True)])], specs) as app:
        await gate.reached()
    async with embedded(tmp_path, ["done"], specs) as app:
        response, stream = await app.result(response_id)
    shown = [(item["type"], item["status"]) for item in response["output"]]
    assert shown == [("web_search_call", "completed"), ("web_search_call", "failed"), ("message", "completed")]
    places = {event["item"]["id"]: event["output_index"] for event in stream.events if "item" in event}
    assert [places[item["id"]] for item in response["output"]] == [0, 4, 5]


async def test_a_conversation_has_an_answer_that_was_begun_anew_once(tmp_path: Path) -> None:
    async with embedded(tmp_path, [turn(["The answer ", Gate(), "is 42."])]) as app:
        await app.store.conversations.create(ConversationRecord("conv_1", TENANT, 0))
        response_id = await app.accept("What is it?", conversation="conv_1")
        await app.read_until(response_id, is_delta)
    async with embedded(tmp_path, ["The answer is 42."]) as app:
        await app.result(response_id)
        said = await app.store.conversations.history(TENANT, "conv_1")
    assert [text_of(entry.item) for entry in said or ()] == ["What is it?", "The answer is 42."]


async def test_a_run_that_was_cut_off_and_is_cancelled_keeps_what_the_last_turn_has_written(tmp_path: Path) -> None:
    async with embedded(tmp_path, [turn(["First try", Gate()])]) as app:
        response_id = await app.accept()
        await app.read_until(response_id, is_delta)
    async with embedded(tmp_path, [turn(["Second try", Gate()], reasoning=["Hm."])]) as app:
        await app.read_until(response_id, delta_is("Second try"))
        response = await app.runs.cancel(TENANT, response_id)
    assert response["status"] == "cancelled"
    assert [(item["status"], text_of(item)) for item in response["output"]] == [
        ("completed", "Hm."),
        ("completed", "Second try"),
    ]


async def test_a_run_that_an_earlier_release_has_cut_off_has_its_answer_once_too(tmp_path: Path) -> None:
    """Then the fragment was closed as completed and kept in the journal."""
    async with embedded(tmp_path, [turn(["The answer ", Gate(), "is 42."])]) as app:
        await app.store.conversations.create(ConversationRecord("conv_1", TENANT, 0))
        response_id = await app.accept("What is it?", conversation="conv_1")
        await app.read_until(response_id, is_delta)
    async with open_configured(Config(data_dir=tmp_path)) as storage:  # an app would go on with the run
        store = storage.store
        record = await store.claim(TENANT, response_id)
        assert record is not None
        events = await store.events(TENANT, response_id)
        item = state_of(events).open.popitem()[1]
        closing: list[StoredEvent] = []

        def put(kind: str, *further: bytes) -> None:
            closing.extend(
                StoredEvent(number, kind, data) for number, data in enumerate(further, len(events) + len(closing))
            )

        numbered = Events(put, len(events))
        closed = JournalEntry("output", item.close(numbered, "completed"), mark="partial")
        await store.update(record, entries=[closed], start=1, events=closing)
    async with embedded(tmp_path, ["The answer is 42."]) as app:
        [_ async for _ in app.runs.events(TENANT, response_id)]
        response = await app.retrieve(response_id)
        said = await app.store.conversations.history(TENANT, "conv_1")
    assert [text_of(item) for item in response["output"]] == ["The answer is 42."]
    assert [text_of(entry.item) for entry in said or ()] == ["What is it?", "The answer is 42."]


async def test_a_summary_that_was_cut_off_is_ended(tmp_path: Path) -> None:
    steps = [turn("Hi", summary=["They ", Gate()])]
    async with embedded(tmp_path, steps) as app:
        response_id = await app.accept()
        await app.read_until(response_id, delta_is("They "))
    async with embedded(tmp_path, [turn("Hello.")]) as app:
        response, stream = await app.result(response_id)
    cut_off = next(event["item"] for event in stream.events if event["type"] == "response.output_item.done")
    assert (cut_off["status"], cut_off["summary"]) == ("incomplete", [{"type": "summary_text", "text": "They "}])
    assert [item["type"] for item in response["output"]] == ["message"]
    assert "response.reasoning_summary_part.done" in stream.types


# --- the official SDK -------------------------------------------------------------------------------------------------


class Point(BaseModel):
    """What the model is to answer with."""

    x: int
    y: int


def test_the_sdk_reads_a_structured_answer_that_was_cut_off_and_parses_it(tmp_path: Path) -> None:
    answer = json.dumps({"x": 1, "y": 2})
    schema = {"type": "json_schema", "name": "point", "schema": Point.model_json_schema()}
    with served(tmp_path, [turn([answer[:6], Gate(), answer[6:]])]) as stage:
        client: Any = stage.client()
        begun = client.responses.create(input="Where?", model="scripted", background=True, text={"format": schema})
        with client.responses.retrieve(begun.id, stream=True) as events:
            next(event for event in events if isinstance(event, ResponseTextDeltaEvent))
    with served(tmp_path, [turn([answer[:3], answer[3:]])]) as stage:
        client = stage.client()
        with client.responses.stream(response_id=begun.id, text_format=Point) as stream:
            deltas = [event.snapshot for event in stream if event.type == "response.output_text.delta"]
            final = stream.get_final_response()
        assert deltas[0] == answer[:6]
        assert deltas[-1] == answer
        assert final.output_parsed == Point(x=1, y=2)
        assert client.responses.retrieve(begun.id).output_text == answer
