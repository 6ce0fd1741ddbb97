"""Items that bring tools or change settings take effect, in their response and in those that continue it."""

from pathlib import Path
from typing import Any

import pytest
from openai import BadRequestError
from tests.http.sdk import CLIENT_TOOL, Served, served

from antwort.provider import Hosted, function
from antwort.testing import call, turn

ECHO: Any = {"type": "function", "name": "echo", "parameters": {"type": "object", "properties": {}}}
SHELL: Any = {"type": "custom", "name": "exec", "description": "Runs a script."}
SPACE: Any = {"type": "namespace", "name": "functions", "description": "Ours.", "tools": [SHELL, ECHO]}
SEARCH: Any = {"type": "tool_search", "execution": "client", "description": "Finds tools."}


@function(hosted=Hosted(types=("find",), item="find_call"))
async def find(query: str) -> str:
    """Find something."""
    return query


def message(text: str) -> Any:
    return {"role": "user", "content": text}


def additional(*tools: Any) -> Any:
    return {"type": "additional_tools", "role": "developer", "tools": [*tools]}


def offered(stage: Served, number: int = -1) -> list[str]:
    return [tool["name"] for tool in stage.requests[number].tools]


def ask(stage: Served, *items: Any, **fields: Any) -> Any:
    return stage.client().responses.create(model="scripted", input=[*items, message("Go.")], **fields)


def test_tools_of_an_item_are_offered_and_called_as_those_of_a_request(tmp_path: Path) -> None:
    steps = [turn(calls=[call("functions__exec", input="ls")]), turn("Done.")]
    with served(tmp_path, steps, functions=[find]) as stage:
        first = ask(stage, additional(SPACE), tools=[CLIENT_TOOL])
        made = first.output[-1]
        assert (made.type, made.name, made.namespace, made.input) == ("custom_tool_call", "exec", "functions", "ls")
        assert [tool.name for tool in first.tools] == ["get_weather"]
        output: Any = {"type": "custom_tool_call_output", "call_id": made.call_id, "output": "a.txt"}
        stage.client().responses.create(model="scripted", input=[output], previous_response_id=first.id)
    assert offered(stage, 0) == ["get_weather", "functions__exec", "functions__echo"]
    assert offered(stage, 1) == ["functions__exec", "functions__echo"]  # a request says anew what its own are


def test_an_item_with_tools_is_a_list_of_tools_and_can_be_chosen_from(tmp_path: Path) -> None:
    with served(tmp_path, [turn(calls=[call("echo")])], functions=[find]) as stage:
        response = ask(stage, additional(ECHO), tool_choice={"type": "function", "name": "echo"})
    assert response.output[-1].name == "echo"
    assert offered(stage) == ["echo"]


def test_of_two_tools_with_a_name_the_later_and_the_requests_own_counts(tmp_path: Path) -> None:
    later, own = {**ECHO, "description": "Later."}, {**ECHO, "description": "Own."}
    with served(tmp_path, ["One.", "Two."]) as stage:
        ask(stage, additional(ECHO), additional(later, SPACE), additional({**SPACE, "tools": [ECHO]}))
        ask(stage, additional(later), tools=[own])
    assert [tool.get("description") for tool in stage.requests[0].tools if tool["name"] == "echo"] == ["Later."]
    assert offered(stage, 0) == ["echo", "functions__exec", "functions__echo"]
    assert [tool.get("description") for tool in stage.requests[1].tools] == ["Own."]


def test_a_tool_of_an_item_that_nobody_has_is_refused_with_its_place(tmp_path: Path) -> None:
    with served(tmp_path, []) as stage, pytest.raises(BadRequestError) as error:
        ask(stage, additional(ECHO, {"type": "image_generation"}))
    assert error.value.param == "input[0].tools[1].type"


def test_a_search_for_tools_is_the_clients_and_what_it_finds_is_offered(tmp_path: Path) -> None:
    steps = [turn(calls=[call("tool_search", query="weather")]), turn(calls=[call("get_weather", city="Ulm")])]
    with served(tmp_path, steps) as stage:
        found = ask(stage, tools=[SEARCH]).output[-1]
        assert (found.type, found.execution, found.arguments) == ("tool_search_call", "client", {"query": "weather"})
        output = {"type": "tool_search_output", "call_id": found.call_id, "execution": "client", "tools": [CLIENT_TOOL]}
        history = [message("Go."), found.to_dict(), output]
        client: Any = stage.client()
        response = client.responses.create(model="scripted", input=history, tools=[SEARCH], store=False)
    assert response.output[-1].name == "get_weather"
    assert offered(stage, 0) == ["tool_search"]
    assert offered(stage, 1) == ["tool_search", "get_weather"]


def test_a_search_by_another_server_is_read_without_call_ids(tmp_path: Path) -> None:
    search = {"type": "tool_search_call", "id": "tsc_1", "call_id": None, "execution": "server", "arguments": {"q": 1}}
    output = {"type": "tool_search_output", "call_id": None, "execution": "server", "tools": [ECHO]}
    with served(tmp_path, ["Hi."], over_http=True) as stage:
        ask(stage, search, output, tools=[{"type": "tool_search"}])
    names = [tool["function"]["name"] for tool in stage.bodies[0]["tools"]]
    assert names == ["echo"]
    assert [entry["role"] for entry in stage.bodies[0]["messages"]] == ["assistant", "tool", "user"]


def test_a_tool_that_may_ask_nothing_outside_is_left_out_where_nobody_has_it(tmp_path: Path) -> None:
    search: Any = {"type": "web_search", "external_web_access": False, "search_content_types": ["text", "image"]}
    with served(tmp_path, ["Hi."]) as stage:
        ask(stage, tools=[ECHO, search])
        with pytest.raises(BadRequestError, match="web_search"):
            ask(stage, tools=[{"type": "web_search"}])
    assert offered(stage) == ["echo"]


def test_settings_that_items_change_hold_until_others_do(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    form = {"type": "json_schema", "name": "answer", "schema": schema}
    update = {"type": "configuration_update", "reasoning": {"effort": "high"}, "text": {"format": form}}
    with served(tmp_path, ["{}", "{}", "Hi."]) as stage:
        first = ask(stage, update, reasoning={"effort": "low", "summary": "auto"})
        second = ask(stage, previous_response_id=first.id, store=True)
        plain = {"type": "configuration_update", "text": {"format": {"type": "text"}}}
        third = ask(stage, plain, previous_response_id=second.id)
    assert [request.effort for request in stage.requests] == ["high"] * 3
    assert [(request.text_format or {}).get("type") for request in stage.requests] == [
        *("json_schema", "json_schema"),
        "text",
    ]
    assert stage.requests[0].summary == "auto"
    assert [one.reasoning.effort for one in (first, second, third)] == ["high"] * 3


def test_calls_of_mcp_servers_in_a_history_are_read_with_their_outputs(tmp_path: Path) -> None:
    made = {"type": "mcp_call", "id": "mcp_1", "server_label": "wiki", "name": "find", "arguments": '{"q": "tea"}'}
    failed = {**made, "id": "mcp_2", "error": {"type": "http_error", "code": 500, "message": "Away."}}
    with served(tmp_path, ["Hi."], over_http=True) as stage:
        ask(stage, message("?"), {**made, "output": "Tea is a drink."}, failed)
    called = [entry for entry in stage.bodies[0]["messages"] if entry.get("tool_calls")]
    assert {one["function"]["name"] for entry in called for one in entry["tool_calls"]} == {"wiki__find"}
    read = [entry["content"] for entry in stage.bodies[0]["messages"] if entry["role"] == "tool"]
    assert read[0] == "Tea is a drink."
    assert "Away." in read[1]
