"""Open Responses 2026-04-24: the response resource (1.3), items (1.4), and the states of both (1.4, 1.5)."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.http import sdk
from tests.http.sdk import CLIENT_TOOL, Served, done, served
from tests.http.sockets import socket
from tests.specs.open_responses import DEFAULTS, NULLABLE, ask, called_back, post, said
from tests.support.postgres import on_one_store

from antwort.testing import Gate, LintError, Turn, call, fail, lint_response, turn
from antwort.types import JSON

pytestmark = on_one_store()

SNAPSHOTS = {"response.created", "response.queued", "response.in_progress"}
TERMINAL = {"response.completed", "response.failed", "response.incomplete"}
FIRST_KEYS = {"id", "created_at", "status", "model", "output"}
ENDS: dict[str, Turn] = {
    "completed": turn("Fine", reasoning="Hm"),
    "incomplete": turn("Hal", finish="length"),
    "failed": turn(["Hel", "lo"], error=fail(500, after=1)),
}


@pytest.fixture(autouse=True)
def _on_each_store(database_url: str) -> Iterator[None]:
    token = sdk.DATABASE.set(database_url)
    yield
    sdk.DATABASE.reset(token)


def snapshots(events: list[JSON]) -> list[JSON]:
    """Return the responses that events carry."""
    return [event["response"] for event in events if event["type"] in SNAPSHOTS | TERMINAL]


def check_keys(response: JSON) -> None:
    """Check that all 31 keys are there, and that those which a request left out have their defaults."""
    assert len(NULLABLE | set(DEFAULTS) | FIRST_KEYS) == 31
    assert set(response) >= NULLABLE | set(DEFAULTS) | FIRST_KEYS
    assert {name: response[name] for name in DEFAULTS} == DEFAULTS
    assert [name for name in FIRST_KEYS if response[name] is None] == []


# --- 1.3 the resource ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ENDS)
def test_every_snapshot_of_a_stream_has_all_31_keys_and_no_null_where_none_may_be(tmp_path: Path, end: str) -> None:
    """Checklist 1."""
    with served(tmp_path, [ENDS[end]]) as stage:
        found = snapshots(stage.stream(model="scripted", input="Hi").events)
        assert [response["status"] for response in found] == ["in_progress", "in_progress", end]
        stored = stage.request("GET", f"/responses/{found[0]['id']}").json()
        assert stored == found[-1]
    for response in found:
        check_keys(response)


def test_so_have_answers_that_are_not_streamed_and_those_over_a_socket(tmp_path: Path) -> None:
    with served(tmp_path, ["One", "Two"]) as stage, socket(stage) as client:
        check_keys(ask(stage))
        for response in snapshots(client.ask().events):
            check_keys(response)


def test_a_background_response_has_them_from_the_beginning(tmp_path: Path) -> None:
    gate = Gate()
    with served(tmp_path, [turn("Fine", wait_for=gate)]) as stage:
        _, queued = post(stage, input="Hi", background=True)
        gate.wait_reached()
        running = stage.request("GET", f"/responses/{queued['id']}").json()
        gate.open()
        ended = done(stage, queued["id"])
    states = [queued["status"], running["status"], ended["status"]]
    assert states == ["queued", "in_progress", "completed"]
    for response in (queued, running, ended):
        check_keys({**lint_response(response), "background": False})
        assert response["background"] is True


def test_the_echo_of_a_function_has_all_its_keys(tmp_path: Path) -> None:
    """Checklist 4."""
    bare = {"type": "function", "name": "bare"}
    with served(tmp_path, ["Fine"]) as stage:
        answer = ask(stage, tools=[CLIENT_TOOL, bare])
    assert answer["tools"][0] == CLIENT_TOOL
    assert set(answer["tools"][1]) == {"type", "name", "description", "parameters", "strict"}
    assert (answer["tools"][1]["name"], answer["tools"][1]["description"]) == ("bare", None)


def test_the_echo_of_allowed_tools_has_a_mode(tmp_path: Path) -> None:
    choice = {"type": "allowed_tools", "tools": [{"type": "function", "name": "get_weather"}]}
    with served(tmp_path, ["Fine"]) as stage:
        assert ask(stage, tools=[CLIENT_TOOL], tool_choice=choice)["tool_choice"] == {**choice, "mode": "auto"}


@pytest.mark.parametrize(
    ("given", "echoed"),
    [
        (None, {"effort": None, "summary": None}),
        ({}, {"effort": None, "summary": None}),
        ({"effort": "high"}, {"effort": "high", "summary": None}),
        ({"summary": "auto"}, {"effort": None, "summary": "auto"}),
    ],
)
def test_the_echo_of_reasoning_has_both_keys(tmp_path: Path, given: Any, echoed: Any) -> None:
    with served(tmp_path, ["Fine"]) as stage:
        assert ask(stage, reasoning=given)["reasoning"] == echoed


def test_usage_has_its_details(tmp_path: Path) -> None:
    with served(tmp_path, [turn("Fine", usage=(10, 5))]) as stage:
        usage = ask(stage)["usage"]
    assert (usage["input_tokens"], usage["output_tokens"], usage["total_tokens"]) == (10, 5, 15)
    assert usage["input_tokens_details"]["cached_tokens"] == 0
    assert usage["output_tokens_details"]["reasoning_tokens"] == 0


def test_a_failure_says_code_and_message_and_an_early_end_its_reason(tmp_path: Path) -> None:
    with served(tmp_path, [ENDS["failed"], ENDS["incomplete"]]) as stage:
        failed = stage.stream(model="scripted", input="Hi").response
        early = ask(stage)
    assert set(failed["error"]) == {"code", "message"}
    assert failed["incomplete_details"] is None
    assert early["incomplete_details"] == {"reason": "max_output_tokens"}
    assert early["error"] is None


# --- 1.4 items -------------------------------------------------------------------------------------------------------

EVERY_KIND = turn("Let me see.", reasoning="Hm", calls=[call("get_weather", city="Bonn", call_id="call_1")])


def every_kind(stage: Served) -> JSON:
    return ask(stage, tools=[CLIENT_TOOL], include=["reasoning.encrypted_content"])


def test_every_item_has_id_type_and_status_and_the_fields_of_its_kind(tmp_path: Path) -> None:
    """Checklist 2 and 3."""
    with served(tmp_path, [EVERY_KIND]) as stage:
        items = every_kind(stage)["output"]
    assert all(item["id"] and item["status"] == "completed" for item in items)
    reasoning, message, made = items
    assert (reasoning["type"], reasoning["summary"]) == ("reasoning", [])
    assert (message["type"], message["role"]) == ("message", "assistant")
    (part,) = message["content"]
    assert (part["type"], part["text"], part["annotations"]) == ("output_text", "Let me see.", [])
    assert (made["type"], made["call_id"], made["name"]) == ("function_call", "call_1", "get_weather")
    assert made["arguments"] == '{"city": "Bonn"}'


def test_what_an_item_does_not_have_is_left_out_and_not_null(tmp_path: Path) -> None:
    """Checklist 5."""
    with served(tmp_path, ["Fine", EVERY_KIND]) as stage:
        items = [*ask(stage)["output"], *every_kind(stage)["output"]]
    assert len(items) == 4
    for item in items:
        assert [name for name, value in item.items() if value is None] == []
    assert "phase" not in items[0]


def test_input_items_get_ids_and_statuses_too(tmp_path: Path) -> None:
    with served(tmp_path, [EVERY_KIND, "Fine"]) as stage:
        first = every_kind(stage)
        second = ask(stage, [called_back("call_1")], previous_response_id=first["id"], tools=[CLIENT_TOOL])
        (output,) = stage.request("GET", f"/responses/{second['id']}/input_items").json()["data"]
    assert output["id"]
    assert (output["type"], output["call_id"], output["output"]) == ("function_call_output", "call_1", "done")
    assert output["status"] == "completed"


@pytest.mark.parametrize("given", [{}, {"id": None}, {"id": "msg_mine"}], ids=["without", "null", "own"])
def test_the_id_of_an_input_item_is_optional(tmp_path: Path, given: JSON) -> None:
    with served(tmp_path, ["Fine"]) as stage:
        first = ask(stage, [said("user", "Hi") | given])
        (item,) = stage.request("GET", f"/responses/{first['id']}/input_items").json()["data"]
    assert item["id"] == (given.get("id") or item["id"])
    assert item["id"]


def test_thoughts_that_are_sent_back_are_taken(tmp_path: Path) -> None:
    with served(tmp_path, [EVERY_KIND, "Fine", "Fine"]) as stage:
        items = every_kind(stage)["output"]
        assert ask(stage, [said("user", "Hi"), *items, called_back("call_1")], tools=[CLIENT_TOOL])["output"]
        bare = {"type": "reasoning", "summary": [], "encrypted_content": "gAAAA of somebody else"}
        assert ask(stage, [said("user", "Hi"), bare, said("user", "Well?")])["status"] == "completed"


@pytest.mark.parametrize("reason", ["length", "content_filter"])
@pytest.mark.parametrize(
    "cut",
    [turn("Hal", reasoning="Hm"), turn(reasoning="Hm"), turn("Let me", calls=[call("get_weather", '{"ci')])],
    ids=["message", "reasoning", "call"],
)
def test_an_incomplete_item_is_the_last_one_and_its_response_is_incomplete(
    tmp_path: Path, reason: str, cut: Turn
) -> None:
    with served(tmp_path, [dataclasses.replace(cut, finish=reason)]) as stage:
        answer = stage.stream(model="scripted", input="Hi", tools=[CLIENT_TOOL]).response
    assert answer["status"] == "incomplete"
    assert answer["incomplete_details"]["reason"] == {"length": "max_output_tokens"}.get(reason, reason)
    *before, last = answer["output"]
    assert last["status"] == "incomplete"
    assert all(item["status"] == "completed" for item in before)


# --- 1.5 states ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ENDS)
def test_a_response_is_created_then_in_progress_then_over(tmp_path: Path, end: str) -> None:
    with served(tmp_path, [ENDS[end]]) as stage:
        types = stage.stream(model="scripted", input="Hi").types
    assert types[:2] == ["response.created", "response.in_progress"]
    assert types[-1] == f"response.{end}"
    assert len([kind for kind in types if kind in SNAPSHOTS | TERMINAL]) == 3


def test_a_background_response_is_queued_in_between(tmp_path: Path) -> None:
    with served(tmp_path, ["Fine"]) as stage:
        types = stage.stream(model="scripted", input="Hi", background=True).types
    assert types[:3] == ["response.created", "response.queued", "response.in_progress"]
    assert types[-1] == "response.completed"


def test_a_background_response_may_fail_before_it_said_anything(tmp_path: Path) -> None:
    with served(tmp_path, [turn(error=fail(500))]) as stage:
        seen = stage.stream(model="scripted", input="Hi", background=True)
        assert seen.types[-2:] == ["error", "response.failed"]
        assert stage.request("GET", f"/responses/{seen.response['id']}").json() == seen.response


def test_a_response_that_is_over_does_not_change(tmp_path: Path) -> None:
    with served(tmp_path, ["One", "Two"]) as stage:
        first = ask(stage)
        assert stage.request("POST", f"/responses/{first['id']}/cancel").status_code in {200, 400}
        ask(stage, "More", previous_response_id=first["id"])
        assert stage.request("GET", f"/responses/{first['id']}").json() == first


# --- the linter looks at each of these rules -------------------------------------------------------------------------


def test_the_linter_misses_every_key_and_refuses_every_null_that_may_not_be() -> None:
    whole = _whole()
    for key in NULLABLE | set(DEFAULTS) | FIRST_KEYS:
        with pytest.raises(LintError, match=key):
            lint_response({name: value for name, value in whole.items() if name != key})
    for key in set(DEFAULTS) | FIRST_KEYS:
        with pytest.raises(LintError, match=key):
            lint_response({**whole, key: None})


def _whole() -> JSON:
    part = {"type": "output_text", "text": "Hi", "annotations": [], "logprobs": []}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
    usage = {
        "input_tokens": 1,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 1,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 2,
    }
    filled = {"id": "resp_1", "created_at": 1, "status": "completed", "model": "m", "output": [message]}
    return lint_response({**DEFAULTS, **dict.fromkeys(NULLABLE), **filled, "completed_at": 2, "usage": usage})
