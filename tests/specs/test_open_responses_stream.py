"""Open Responses 2026-04-24: the rules of streams (1.6), on real streams, and that the linter looks at each of them."""

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.http import sdk
from tests.http.sdk import CLIENT_TOOL, Served, served
from tests.http.sockets import socket
from tests.specs.open_responses import ask

from antwort.provider import Context, Source
from antwort.server.http.sse import DONE, frame
from antwort.testing import LintedStream, LintError, Turn, call, fail, lint_stream, turn
from antwort.types import JSON

EVENTS = {
    "response.created",
    "response.queued",
    "response.in_progress",
    "response.completed",
    "response.failed",
    "response.incomplete",
    "response.output_item.added",
    "response.output_item.done",
    "response.content_part.added",
    "response.content_part.done",
    "response.output_text.delta",
    "response.output_text.done",
    "response.output_text.annotation.added",
    "response.refusal.delta",
    "response.refusal.done",
    "response.reasoning_summary_part.added",
    "response.reasoning_summary_part.done",
    "response.reasoning_summary_text.delta",
    "response.reasoning_summary_text.done",
    "response.function_call_arguments.delta",
    "response.function_call_arguments.done",
    "error",
    # The contract calls these `response.reasoning.*`; SDKs know this name alone, and so does its next version.
    "response.reasoning_text.delta",
    "response.reasoning_text.done",
}
EVERYTHING = turn(
    ["Let ", "me see."],
    reasoning=["H", "m"],
    summary="Thinking",
    calls=[call("get_weather", ['{"city"', ': "Bonn"}'], call_id="call_1")],
)


@pytest.fixture
def on_each_store(database_url: str) -> Iterator[None]:
    token = sdk.DATABASE.set(database_url)
    yield
    sdk.DATABASE.reset(token)


STORED = pytest.mark.usefixtures("on_each_store")


def everything(stage: Served, **fields: Any) -> LintedStream:
    return stage.stream(model="scripted", input="Hi", tools=[CLIENT_TOOL], **fields)


def of_item(events: list[JSON], item_id: str) -> list[JSON]:
    """Return the events about an item, in order."""
    return [event for event in events if (event.get("item_id") or event.get("item", {}).get("id")) == item_id]


# --- items -----------------------------------------------------------------------------------------------------------


@STORED
def test_an_item_is_added_before_and_done_after_all_its_other_events(tmp_path: Path) -> None:
    with served(tmp_path, [EVERYTHING]) as stage:
        seen = everything(stage)
    assert [item["type"] for item in seen.response["output"]] == ["reasoning", "message", "function_call"]
    for item in seen.response["output"]:
        first, *between, last = [event["type"] for event in of_item(seen.events, item["id"])]
        assert (first, last) == ("response.output_item.added", "response.output_item.done")
        assert len(between) > 1
        assert not any(kind.startswith("response.output_item") for kind in between)


def test_an_item_is_added_with_what_is_known_and_zero_values_for_the_rest(tmp_path: Path) -> None:
    """Checklist 8."""
    with served(tmp_path, [EVERYTHING]) as stage:
        seen = everything(stage)
    added = [event["item"] for event in seen.events if event["type"] == "response.output_item.added"]
    reasoning, message, made = ({name: one[name] for name in one if name != "id"} for one in added)
    assert (reasoning["type"], reasoning["status"], reasoning["summary"]) == ("reasoning", "in_progress", [])
    assert message == {"type": "message", "status": "in_progress", "role": "assistant", "content": []}
    assert made["status"] == "in_progress"
    assert (made["name"], made["call_id"], made["arguments"]) == ("get_weather", "call_1", "")


@pytest.mark.parametrize("end", ["stop", "length"])
@STORED
def test_the_output_in_the_end_is_what_the_items_were_when_done(tmp_path: Path, end: str) -> None:
    """Checklist 9."""
    with served(tmp_path, [turn(["Let ", "me see."], reasoning="Hm", finish=end)]) as stage:
        seen = everything(stage)
        finished = [event["item"] for event in seen.events if event["type"] == "response.output_item.done"]
        assert seen.response["output"] == finished
        assert stage.request("GET", f"/responses/{seen.response['id']}").json()["output"] == finished


# --- parts and deltas ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "kind", "deltas"),
    [
        (turn(["Hel", "lo"]), "output_text", ["Hel", "lo"]),
        (turn(refusal=["I ", "will not"]), "refusal", ["I ", "will not"]),
        (turn("Fine", reasoning=["H", "m"]), "reasoning_text", ["H", "m"]),
    ],
)
def test_a_part_brackets_its_deltas(tmp_path: Path, step: Turn, kind: str, deltas: list[str]) -> None:
    with served(tmp_path, [step]) as stage:
        seen = stage.stream(model="scripted", input="Hi")
    item = seen.response["output"][0]
    _, *between, _ = of_item(seen.events, item["id"])
    assert [event["type"].removeprefix("response.") for event in between] == [
        "content_part.added",
        *[f"{kind}.delta"] * len(deltas),
        f"{kind}.done",
        "content_part.done",
    ]
    assert {event["content_index"] for event in between} == {0}
    assert [event["delta"] for event in between if "delta" in event] == deltas
    assert item["content"] == [between[-1]["part"]]


def test_a_summary_of_thoughts_has_parts_of_its_own(tmp_path: Path) -> None:
    with served(tmp_path, [turn("Fine", summary=["Thin", "king"])]) as stage:
        seen = stage.stream(model="scripted", input="Hi", reasoning={"summary": "auto"})
    _, *between, _ = of_item(seen.events, seen.response["output"][0]["id"])
    assert [event["type"].removeprefix("response.") for event in between] == [
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
    ]
    assert {event["summary_index"] for event in between} == {0}


def test_arguments_come_in_deltas_that_amount_to_the_whole(tmp_path: Path) -> None:
    with served(tmp_path, [EVERYTHING]) as stage:
        seen = everything(stage)
    _, *deltas, whole, _ = of_item(seen.events, seen.response["output"][-1]["id"])
    assert whole["type"] == "response.function_call_arguments.done"
    assert "".join(event["delta"] for event in deltas) == whole["arguments"] == '{"city": "Bonn"}'


def test_a_citation_is_an_event_of_its_part(tmp_path: Path) -> None:
    async def look_up(ctx: Context) -> str:
        """Look it up."""
        return f"[{ctx.sources.add(Source('Bonn', url='https://example.org/bonn'))}] On the Rhine."

    steps = [turn(calls=[call("look_up")]), turn("On the Rhine [1].")]
    with served(tmp_path, steps, functions=[look_up]) as stage:
        seen = stage.stream(model="scripted", input="Where is Bonn?")
    (event,) = [event for event in seen.events if event["type"] == "response.output_text.annotation.added"]
    assert set(event["annotation"]) >= {"type", "url", "title", "start_index", "end_index"}
    assert seen.response["output"][0]["content"][0]["annotations"] == [event["annotation"]]


# --- numbers and types -----------------------------------------------------------------------------------------------


@STORED
def test_every_event_has_a_number_and_they_rise_without_a_gap(tmp_path: Path) -> None:
    with served(tmp_path, [EVERYTHING, EVERYTHING, EVERYTHING]) as stage, socket(stage) as client:
        streams = [everything(stage), everything(stage, background=True), client.ask(tools=[CLIENT_TOOL])]
    for seen in streams:
        assert [event["sequence_number"] for event in seen.events] == list(range(len(seen.events)))


def test_output_index_and_item_id_name_the_same_item_throughout(tmp_path: Path) -> None:
    with served(tmp_path, [EVERYTHING]) as stage:
        seen = everything(stage)
    for index, item in enumerate(seen.response["output"]):
        assert {event["output_index"] for event in of_item(seen.events, item["id"])} == {index}


@pytest.mark.parametrize(
    "step",
    [EVERYTHING, turn(refusal="No"), turn("Hal", finish="length"), turn(["Hel", "lo"], error=fail(500, after=1))],
    ids=["everything", "refusal", "incomplete", "failed"],
)
def test_nothing_but_the_events_of_the_contract_is_sent_unless_asked_for(tmp_path: Path, step: Turn) -> None:
    with served(tmp_path, [step]) as stage:
        assert set(everything(stage).types) <= EVENTS


def test_log_probabilities_are_a_list_on_every_text_event(tmp_path: Path) -> None:
    with served(tmp_path, ["Fine"]) as stage:
        seen = stage.stream(model="scripted", input="Hi")
    assert [event["logprobs"] for event in seen.events if "output_text" in event["type"]] == [[], []]


# --- errors ----------------------------------------------------------------------------------------------------------


@STORED
def test_an_error_in_the_middle_is_an_error_event_and_then_a_failed_response(tmp_path: Path) -> None:
    with served(tmp_path, [turn(["Hel", "lo"], error=fail(500, "Out of order.", after=1))]) as stage:
        seen = stage.stream(model="scripted", input="Hi")
        *_, error, failed = seen.events
        assert (error["type"], failed["type"]) == ("error", "response.failed")
        assert set(error["error"]) >= {"type", "code", "message", "param"}
        assert failed["response"]["error"]["code"] == error["error"]["code"]
        assert failed["response"]["error"]["message"] == error["error"]["message"]
        assert seen.text == "Hel"
        assert stage.request("GET", f"/responses/{seen.response['id']}").json() == failed["response"]


def test_an_error_before_the_first_event_is_a_status(tmp_path: Path) -> None:
    with served(tmp_path, [turn(error=fail(429))]) as stage:
        found = stage.request("POST", "/responses", json={"input": "Hi", "stream": True})
    assert found.status_code == 429
    assert found.json()["error"]["code"] == "rate_limit_exceeded"


def test_a_stream_and_an_answer_in_one_piece_say_the_same(tmp_path: Path) -> None:
    with served(tmp_path, [EVERYTHING, EVERYTHING]) as stage:
        one, other = everything(stage).response, ask(stage, tools=[CLIENT_TOOL])
    own = {"id", "created_at", "completed_at", "output"}
    assert {name: one[name] for name in one.keys() - own} == {name: other[name] for name in other.keys() - own}
    assert [_without_id(item) for item in one["output"]] == [_without_id(item) for item in other["output"]]


def _without_id(item: JSON) -> JSON:
    return {name: value for name, value in item.items() if name != "id"}


# --- the linter looks at each of these rules -------------------------------------------------------------------------


def _drop(kind: str) -> Callable[[list[JSON]], object]:
    return lambda events: events.pop(_place(events, kind))


def _set(kind: str, **fields: Any) -> Callable[[list[JSON]], object]:
    return lambda events: events[_place(events, kind)].update(fields)


def _place(events: list[JSON], kind: str) -> int:
    return next(index for index, event in enumerate(events) if event["type"] == f"response.{kind}")


BREAK: dict[str, Callable[[list[JSON]], object]] = {
    "item-open": _drop("output_item.added"),
    "item-done": _drop("output_item.done"),
    "part-open": _drop("content_part.added"),
    "part-done": _drop("content_part.done"),
    "deltas-text": _drop("output_text.delta"),
    "text-done": _drop("output_text.done"),
    "deltas-arguments": _drop("function_call_arguments.delta"),
    "arguments-done": _drop("function_call_arguments.done"),
    "first-event": _drop("created"),
    "in-progress-first": _drop("in_progress"),
    "one-terminal": _drop("completed"),
    "after-terminal": lambda events: events.append(events[-2]),
    "sequence": _set("output_text.delta", sequence_number=0),
    "item-index": _set("output_text.delta", output_index=9),
    "final-output": lambda events: events[-1]["response"]["output"].pop(),
    "item-zero": lambda events: events[_place(events, "output_item.added")]["item"].update(status="completed"),
    "error-then-failed": lambda events: events.insert(-1, {"type": "error", "error": {}}),
}


def test_the_linter_finds_each_rule_that_is_broken(tmp_path: Path) -> None:
    with served(tmp_path, [EVERYTHING]) as stage:
        events = everything(stage).events
    lint_stream(_written(events))
    for rule, damage in BREAK.items():
        broken = copy.deepcopy(events)
        damage(broken)
        if rule != "sequence":
            for number, event in enumerate(broken):
                event["sequence_number"] = number
        with pytest.raises(LintError) as caught:
            lint_stream(_written(broken))
        assert rule in {violation.rule for violation in caught.value.violations}


def test_the_linter_finds_what_is_wrong_with_frames(tmp_path: Path) -> None:
    with served(tmp_path, ["Fine"]) as stage:
        body = _written(stage.stream(model="scripted", input="Hi").events)
    for rule, broken in {
        "done-marker": body.removesuffix(DONE),
        "event-type": body.replace(b"event: response.created", b"event: response.made"),
        "no-id": body.replace(b"event: response.created", b"id: 1\nevent: response.created"),
        "after-done": body + DONE,
    }.items():
        with pytest.raises(LintError) as caught:
            lint_stream(broken)
        assert rule in {violation.rule for violation in caught.value.violations}


def _written(events: list[JSON]) -> bytes:
    return b"".join([*(frame(event["type"], json.dumps(event).encode()) for event in events), DONE])
