"""Open Responses 2026-04-24: what the fields of a request mean (1.8), tools and extensions (1.9)."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.http import sdk
from tests.http.sdk import CLIENT_TOOL, Served, done, served
from tests.specs.open_responses import ask, called_back, post, said, texts
from tests.support.postgres import on_one_store

from antwort.provider import Context, Hosted, Provider, Source, ToolResult, function
from antwort.testing import Turn, call, fail, lint_response, lint_stream, turn
from antwort.types import JSON

pytestmark = on_one_store()

WEATHER = call("get_weather", city="Bonn", call_id="call_1")
TOO_LONG = turn(error=fail(400, "The maximum context length is 100 tokens.", code="context_length_exceeded"))


@pytest.fixture(autouse=True)
def _on_each_store(database_url: str) -> Iterator[None]:
    token = sdk.DATABASE.set(database_url)
    yield
    sdk.DATABASE.reset(token)


class Search(Provider):
    """A hosted tool with an item of its own."""

    @function(
        hosted=Hosted(
            types=("web_search",),
            item="web_search_call",
            describe=lambda arguments: {"action": {"type": "search", "query": str(arguments.get("query", ""))}},
            phases=("in_progress", "searching"),
        )
    )
    async def look_up(self, ctx: Context, query: str) -> ToolResult:
        """Look something up."""
        number = ctx.sources.add(Source("Bonn", url="https://example.org/bonn"))
        return ToolResult(f"[{number}] {query} is on the Rhine.")


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def outputs(stage: Served, number: int = -1) -> Mapping[str, Any]:
    """Return what the model read of calls, by their ids."""
    items = stage.requests[number].items
    return {item["call_id"]: item["output"] for item in items if item["type"] == "function_call_output"}


# --- 1.8 previous_response_id ----------------------------------------------------------------------------------------


def test_what_came_before_is_read_in_order_input_and_output_and_then_the_new_input(tmp_path: Path) -> None:
    with served(tmp_path, ["One", "Two", "Three"]) as stage:
        first = ask(stage, [said("user", "a"), said("assistant", "b"), said("user", "c")])
        second = ask(stage, "d", previous_response_id=first["id"])
        third = ask(stage, "e", previous_response_id=second["id"])
    assert texts(stage) == ["a", "b", "c", "One", "d", "Two", "e"]
    assert third["previous_response_id"] == second["id"]


def test_calls_and_their_outputs_keep_their_places(tmp_path: Path) -> None:
    with served(tmp_path, [turn("Let me see.", calls=[WEATHER]), "Wet.", "Yes."]) as stage:
        first = ask(stage, "Rain?", tools=[CLIENT_TOOL])
        second = ask(stage, [called_back("call_1", "wet")], tools=[CLIENT_TOOL], previous_response_id=first["id"])
        ask(stage, "Sure?", previous_response_id=second["id"])
    kinds = ["message", "message", "function_call", "function_call_output", "message", "message"]
    assert [item["type"] for item in stage.requests[-1].items] == kinds
    assert texts(stage) == ["Rain?", "Let me see.", "Wet.", "Sure?"]


def test_instructions_are_not_carried_over(tmp_path: Path) -> None:
    with served(tmp_path, ["One", "Two"]) as stage:
        first = ask(stage, "a", instructions="Talk like a pirate.")
        second = ask(stage, "b", previous_response_id=first["id"])
    assert [request.instructions for request in stage.requests] == ["Talk like a pirate.", None]
    assert (first["instructions"], second["instructions"]) == ("Talk like a pirate.", None)


@pytest.mark.parametrize("stream", [False, True])
def test_a_previous_response_nobody_knows_is_refused(tmp_path: Path, stream: bool) -> None:
    with served(tmp_path, []) as stage:
        status, answer = post(stage, input="Hi", previous_response_id="resp_none", stream=stream)
    assert (status, answer["error"]["code"]) == (400, "previous_response_not_found")
    assert answer["error"]["param"] == "previous_response_id"


def test_an_output_of_a_call_nobody_made_is_refused(tmp_path: Path) -> None:
    """Checklist 11."""
    with served(tmp_path, ["One"]) as stage:
        first = ask(stage)
        for before in ({"previous_response_id": first["id"]}, {}):
            status, answer = post(stage, input=[called_back("call_none")], **before)
            assert (status, answer["error"]["type"]) == (400, "invalid_request_error")
            assert "call_none" in answer["error"]["message"]


# --- 1.8 tool_choice -------------------------------------------------------------------------------------------------

ONE = {"type": "function", "name": "get_weather"}


@pytest.mark.parametrize(
    ("choice", "told"),
    [
        (None, None),
        ("auto", "auto"),
        ("none", "none"),
        ("required", "required"),
        (ONE, ONE),
        ({"type": "allowed_tools", "mode": "auto", "tools": [ONE]}, "auto"),
        ({"type": "allowed_tools", "mode": "required", "tools": [ONE]}, "required"),
    ],
)
def test_every_choice_reaches_the_model_and_comes_back(tmp_path: Path, choice: Any, told: Any) -> None:
    with served(tmp_path, ["Fine"]) as stage:
        assert ask(stage, tools=[CLIENT_TOOL], tool_choice=choice)["tool_choice"] == (choice or "auto")
    assert stage.requests[0].tool_choice == told


def test_with_none_no_call_is_made_whatever_the_model_says(tmp_path: Path) -> None:
    ran: list[str] = []

    async def tempting() -> str:
        """Tempt."""
        ran.append("tempting")
        return "done"

    steps = [turn(calls=[call("tempting"), WEATHER]), turn("Well.")]
    with served(tmp_path, steps, functions=[tempting]) as stage:
        answer = ask(stage, tools=[CLIENT_TOOL], tool_choice="none")
    assert ran == []
    assert [item["type"] for item in answer["output"]] == ["message"]


@pytest.mark.parametrize("stream", [False, True])
def test_allowed_tools_are_a_hard_limit_and_the_prompt_is_the_same_as_without(tmp_path: Path, stream: bool) -> None:
    """Checklist 16."""
    ran: list[str] = []

    async def other() -> str:
        """Do something else."""
        ran.append("other")
        return "done"

    choice = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "add"}]}
    tools = [{"type": "function", "name": "add"}, {"type": "function", "name": "other"}, CLIENT_TOOL]
    calls = [call("add", a=1, b=2, call_id="good"), call("other", call_id="bad"), WEATHER]
    with served(tmp_path, [turn(calls=calls), "Three.", "Fine."], functions=[add, other]) as stage:
        body: JSON = {"model": "scripted", "input": "Hi", "tools": tools}
        found = stage.request("POST", "/responses", json={**body, "tool_choice": choice, "stream": stream})
        answer = lint_stream(found.content).response if stream else lint_response(found.json())
        post(stage, **{**body, "tool_choice": "auto"})
    assert ran == []
    assert [item["type"] for item in answer["output"]] == ["message"]
    results = outputs(stage, 1)
    assert results["good"] == "3"
    assert "3" not in {results["bad"], results["call_1"]}
    limited, free = stage.requests[0], stage.requests[2]
    assert (limited.tools, limited.instructions, limited.items[0]["content"]) == (
        free.tools,
        free.instructions,
        free.items[0]["content"],
    )


@pytest.mark.parametrize(
    "choice",
    [
        {"type": "allowed_tools", "tools": []},
        {"type": "allowed_tools", "tools": [{"type": "function", "name": "nobody"}]},
        {"type": "allowed_tools", "mode": "sometimes", "tools": [ONE]},
        {"type": "function", "name": "nobody"},
        "perhaps",
    ],
)
def test_a_choice_that_cannot_be_kept_is_refused(tmp_path: Path, choice: Any) -> None:
    with served(tmp_path, []) as stage:
        status, answer = post(stage, input="Hi", tools=[CLIENT_TOOL], tool_choice=choice)
    assert status == 400
    assert answer["error"]["param"].startswith("tool_choice")


# --- 1.8 truncation, service_tier, store, background, max_tool_calls -------------------------------------------------

WINDOW = [said("system", "Be kind."), *(said("user", f"message {number} " + "x" * 40) for number in range(12))]


def test_without_truncation_nothing_is_dropped_and_what_is_too_long_fails(tmp_path: Path) -> None:
    with served(tmp_path, [TOO_LONG, TOO_LONG]) as stage:
        for fields in ({}, {"truncation": "disabled"}):
            status, answer = post(stage, input=WINDOW, **fields)
            assert (status, answer["error"]["code"]) == (400, "context_length_exceeded")
    assert [len(request.items) for request in stage.requests] == [len(WINDOW)] * 2


def test_with_truncation_the_system_s_and_the_latest_messages_are_kept(tmp_path: Path) -> None:
    with served(tmp_path, [TOO_LONG, "Fine."]) as stage:
        assert ask(stage, WINDOW, truncation="auto")["truncation"] == "auto"
    whole, kept = texts(stage, 0), texts(stage, 1)
    assert 1 < len(kept) < len(whole)
    assert kept == [whole[0], *whole[len(whole) - len(kept) + 1 :]]


@pytest.mark.parametrize(
    ("given", "echoed"), [(None, "default"), ("auto", "default"), ("default", "default"), ("flex", "flex")]
)
def test_the_service_tier_that_was_used_is_told(tmp_path: Path, given: str | None, echoed: str) -> None:
    with served(tmp_path, ["Fine"]) as stage:
        assert ask(stage, service_tier=given)["service_tier"] == echoed


@pytest.mark.parametrize("stream", [False, True])
def test_of_a_response_that_is_not_stored_nothing_can_be_found(tmp_path: Path, stream: bool) -> None:
    with served(tmp_path, ["Fine"]) as stage:
        seen = stage.stream(input="Hi", store=False).response if stream else ask(stage, store=False)
        assert seen["store"] is False
        for path in ("", "/input_items"):
            assert stage.request("GET", f"/responses/{seen['id']}{path}").status_code == 404
        assert stage.request("GET", "/responses").json()["data"] == []
        assert post(stage, input="Hi", previous_response_id=seen["id"])[0] == 400
        (item,) = seen["output"]
        assert post(stage, input=[{"type": "item_reference", "id": item["id"]}])[0] == 404


def test_a_background_response_is_answered_at_once_and_fetched_later(tmp_path: Path) -> None:
    with served(tmp_path, ["Fine"]) as stage:
        _, accepted = post(stage, input="Hi", background=True)
        assert (accepted["background"], accepted["status"]) == (True, "queued")
        assert done(stage, accepted["id"])["status"] == "completed"


def test_no_more_calls_are_made_than_allowed(tmp_path: Path) -> None:
    steps = [turn(calls=[call("add", a=1, b=1, call_id="one"), call("add", a=2, b=2, call_id="two")]), turn("Two.")]
    with served(tmp_path, steps, functions=[add]) as stage:
        assert ask(stage, max_tool_calls=1)["max_tool_calls"] == 1
    assert outputs(stage)["one"] == "2"
    assert outputs(stage)["two"] != "4"


# --- 1.8 compaction --------------------------------------------------------------------------------------------------

CHAT = [said("user", "We launch on Tuesday."), said("assistant", "Understood."), said("user", "Tell support first.")]


def test_a_window_is_compacted_into_items_and_not_into_a_response(tmp_path: Path) -> None:
    with served(tmp_path, [turn("Launch on Tuesday.", usage=(7, 3))]) as stage:
        status, window = post(stage, "/responses/compact", input=CHAT, prompt_cache_key="k", instructions="Be brief.")
        assert (status, window["object"]) == (200, "response.compaction")
        assert set(window) == {"id", "object", "created_at", "output", "usage"}
        assert window["usage"]["total_tokens"] == 10
        assert window["output"][-1]["type"] == "compaction"
        assert all(item["id"] for item in window["output"])
        assert stage.request("GET", f"/responses/{window['id']}").status_code == 404
        assert post(stage, input="Hi", previous_response_id=window["id"])[0] == 400


@pytest.mark.parametrize("stream", [False, True])
def test_what_compaction_gives_is_taken_back_verbatim_and_has_the_content(tmp_path: Path, stream: bool) -> None:
    """Checklist 12."""
    with served(tmp_path, ["They launch on Tuesday.", "On Tuesday."]) as stage:
        _, window = post(stage, "/responses/compact", input=CHAT)
        given = [*window["output"], said("user", "When?")]
        answer = stage.stream(input=given, store=False).response if stream else ask(stage, given, store=False)
        assert answer["status"] == "completed"
    *before, question = texts(stage)
    assert "They launch on Tuesday." in " ".join(before)
    assert question == "When?"


def test_messages_beside_a_compaction_are_taken_too(tmp_path: Path) -> None:
    with served(tmp_path, ["They launch on Tuesday.", "On Tuesday."]) as stage:
        _, window = post(stage, "/responses/compact", input=CHAT)
        part = {"type": "input_text", "text": "Tell support first."}
        message = {"id": "msg_1", "type": "message", "role": "user", "status": "completed", "content": [part]}
        ask(stage, [message, *window["output"], said("user", "When?")])
    assert texts(stage)[-1] == "When?"


def test_a_stored_window_is_compacted_by_its_response(tmp_path: Path) -> None:
    with served(tmp_path, ["Understood.", "They launch on Tuesday."]) as stage:
        first = ask(stage, "We launch on Tuesday.")
        assert post(stage, "/responses/compact", previous_response_id=first["id"])[0] == 200
    assert "We launch on Tuesday." in texts(stage)[0]


def test_compaction_needs_a_model(tmp_path: Path) -> None:
    with served(tmp_path, []) as stage:
        found = stage.request("POST", "/responses/compact", json={"input": CHAT})
    assert found.status_code == 400
    assert found.json()["error"]["param"] == "model"


# --- 1.9 tools and extensions ----------------------------------------------------------------------------------------


def test_a_function_of_the_client_ends_the_loop_and_is_answered_in_the_next_request(tmp_path: Path) -> None:
    steps: list[Turn | str] = [turn(calls=[WEATHER]), "Wet."]
    with served(tmp_path, steps) as stage:
        first = ask(stage, "Rain?", tools=[CLIENT_TOOL])
        assert first["status"] == "completed"
        assert [item["type"] for item in first["output"]] == ["function_call"]
        assert len(stage.requests) == 1
        ask(stage, [called_back("call_1", "wet")], previous_response_id=first["id"])
    assert outputs(stage) == {"call_1": "wet"}


def test_a_hosted_tool_is_executed_inside_and_leaves_a_receipt_that_can_be_sent_back(tmp_path: Path) -> None:
    steps = [turn(calls=[call("look_up", query="Bonn")]), turn("On the Rhine [1]."), turn("Yes.")]
    with served(tmp_path, steps, providers=[Search()]) as stage:
        seen = stage.stream(model="scripted", input="Where is Bonn?", tools=[{"type": "web_search"}])
        receipt, message = seen.response["output"]
        assert (receipt["type"], receipt["status"]) == ("web_search_call", "completed")
        assert receipt["action"] == {"type": "search", "query": "Bonn"}
        assert message["content"][0]["annotations"][0]["url"] == "https://example.org/bonn"
        window = [said("user", "Where is Bonn?"), receipt, message, said("user", "Sure?")]
        follow_up = ask(stage, window, tools=[{"type": "web_search"}])
        listed = stage.request("GET", f"/responses/{follow_up['id']}/input_items?order=asc").json()["data"]
        assert listed[1:3] == [receipt, message]


def test_an_extension_has_a_prefix_and_is_only_sent_to_whoever_asks_for_it(tmp_path: Path) -> None:
    with served(tmp_path, [turn(calls=[call("add", a=1, b=2)]), "3"] * 2, functions=[add]) as stage:
        plain = stage.stream(model="scripted", input="Hi")
        body: JSON = {"model": "scripted", "input": "Hi", "stream": True}
        found = stage.request("POST", "/responses", json=body, headers={"antwort-show-calls": "1"})
        shown = lint_stream(found.content)
    assert [item["type"] for item in plain.response["output"]] == ["message"]
    extension, message = shown.response["output"]
    assert extension["type"] == "antwort:function_call"
    assert {"id", "status", "content"} <= set(extension)
    assert message["content"] == plain.response["output"][0]["content"]


def test_an_item_of_a_type_nobody_knows_is_kept_as_it_is(tmp_path: Path) -> None:
    given = {"type": "acme:note", "id": "note_1", "status": "completed", "text": "kept"}
    with served(tmp_path, ["Fine"]) as stage:
        first = ask(stage, [given, said("user", "Hi")])
        listed = stage.request("GET", f"/responses/{first['id']}/input_items?order=asc").json()["data"]
    assert listed[0] == given
