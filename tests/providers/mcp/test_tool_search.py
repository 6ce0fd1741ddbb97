"""Tools of MCP servers that a model finds before it is offered them."""

import json
from pathlib import Path
from typing import Any

import pytest
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.tools import Tool
from openai.types.responses import Response, ResponseToolSearchOutputItem
from tests.http.sdk import Served, create, outputs
from tests.providers.mcp.stage import mcp_tool, running_server, staged

from antwort.testing import call, turn
from antwort.types import JSON

HOSTED: Any = {"type": "tool_search"}
FIND, ASK = turn(calls=[call("tool_search", query="weather")]), turn(calls=[call("forecast", city="Ulm")])


def large_server(count: int = 1000) -> MCPServer:
    """Return a server with so many tools, of which one tells the weather."""

    def move(city: str) -> str:
        return f"{city} is moved"

    def forecast(city: str) -> str:
        return f"Sun in {city}."

    desk = Tool.from_function(move)  # once: to read a function takes longer than all that a test does with its tool
    texts = [(f"desk_{number}", f"Move the papers of desk {number}.") for number in range(count - 1)]
    desks = [desk.model_copy(update={"name": name, "description": text}) for name, text in texts]
    weather = Tool.from_function(forecast, name="forecast", description="Tell the weather in a city.")
    return MCPServer("large", tools=[*desks, weather])


def offered(stage: Served, number: int = -1) -> list[str]:
    return [tool["name"] for tool in stage.requests[number].tools or ()]


def items(response: Response) -> list[JSON]:
    output: Any = response.to_dict()["output"]
    return list(output)


@pytest.mark.parametrize("said", [True, None], ids=["deferred", "because-there-are-so-many"])
def test_a_thousand_tools_of_a_server_cost_less_than_four_kilobytes(tmp_path: Path, said: bool | None) -> None:
    tools: list[Any] = [HOSTED] if said else []
    about = "Moves papers, and knows the weather."
    with running_server(large_server()) as server, staged(tmp_path, [FIND, ASK, "Sun.", "Still."]) as stage:
        tools.append(mcp_tool(server, "office", server_description=about, defer_loading=said))
        response = create(stage, False, input="Rain?", tools=tools)
        assert outputs(stage)[-1] == "Sun in Ulm."
        again = create(stage, True, input="And now?", tools=tools, previous_response_id=response.id)
        assert server.methods.count("tools/list") == 1
    listed, search, found, made, _ = response.output
    assert len(listed.to_dict()["tools"]) == 1000  # type: ignore[arg-type]
    assert isinstance(found, ResponseToolSearchOutputItem)
    assert (search.type, made.type) == ("tool_search_call", "mcp_call")
    loaded = {"type": "mcp", "server_label": "office", "allowed_tools": ["forecast"], "defer_loading": True}
    assert [tool.to_dict() for tool in found.tools] == [loaded]
    assert len(json.dumps(stage.requests[0].tools)) < 4096
    assert f"- office (1000): {about}" in stage.requests[0].tools[0]["description"]
    assert [offered(stage, number) for number in range(4)] == [["tool_search"], *[["tool_search", "forecast"]] * 3]
    assert [item["type"] for item in items(again)] == ["message"]


def test_what_was_found_is_found_in_what_a_client_sends_back(tmp_path: Path) -> None:
    with running_server(large_server(3)) as server, staged(tmp_path, [FIND, ASK, "Sun.", "Still."]) as stage:
        tools = [mcp_tool(server, "office", defer_loading=True), HOSTED]
        first = create(stage, False, input="Rain?", tools=tools, store=False)
        history = [{"role": "user", "content": "Rain?"}, *items(first), {"role": "user", "content": "And now?"}]
        create(stage, False, input=history, tools=tools, store=False)
    assert offered(stage, 3) == offered(stage, 1) == ["tool_search", "forecast"]


def test_the_tools_of_one_server_are_found_beside_those_that_another_offers(tmp_path: Path) -> None:
    steps = [
        turn(calls=[call("tool_search", query="weather")]),
        turn(calls=[call("few__forecast", city="Ulm")]),
        "Sun.",
    ]
    with (
        running_server(large_server(3)) as few,
        running_server(large_server(2)) as all_,
        staged(tmp_path, steps) as stage,
    ):
        create(stage, False, input="?", tools=[mcp_tool(few, "few", defer_loading=True), mcp_tool(all_, "all")])
    assert offered(stage, 0) == ["all__desk_0", "all__forecast", "tool_search"]
    assert offered(stage, 1) == [*offered(stage, 0), "few__forecast"]


def test_whoever_has_to_call_a_server_can_search_it(tmp_path: Path) -> None:
    with running_server(large_server(3)) as server, staged(tmp_path, [FIND, ASK, "Sun.", ASK, "Sun."]) as stage:
        tools = [mcp_tool(server, "office", defer_loading=True)]
        choice: Any = {"type": "mcp", "server_label": "office"}
        create(stage, False, input="Rain?", tools=tools, tool_choice=choice)
        create(stage, False, input="Rain?", tools=tools, tool_choice={**choice, "name": "forecast"})
    assert "tool_search" in (stage.requests[0].allowed or ())
    assert offered(stage, 0) == ["tool_search"]
    assert offered(stage, 3) == ["tool_search", "forecast"]
    assert stage.requests[3].tool_choice == {"type": "function", "name": "forecast"}


def test_a_request_can_say_otherwise_of_a_server_that_the_operator_defers(tmp_path: Path) -> None:
    with running_server(large_server(3)) as server:
        settings = {"servers": {"office": {"url": server.url, "offer": "deferred"}}}
        with staged(tmp_path, ["Hi.", "Hi."], settings=settings) as stage:
            tool = {"type": "mcp", "server_label": "office"}
            create(stage, False, input="Rain?", tools=[tool])
            create(stage, False, input="Rain?", tools=[{**tool, "defer_loading": False}])
    assert offered(stage, 0) == ["tool_search"]
    assert offered(stage, 1) == ["office__desk_0", "office__desk_1", "office__forecast", "tool_search"]


@pytest.mark.parametrize("offer", ["always", "deferred"])
def test_a_thousand_tools_that_no_request_names_are_found_too(tmp_path: Path, offer: str) -> None:
    with running_server(large_server()) as server:
        settings = {"servers": {"office": {"url": server.url, "offer": offer}}}
        with staged(tmp_path, [FIND, ASK, "Sun."], settings=settings) as stage:
            response = create(stage, False, input="Rain?")
            assert outputs(stage)[-1] == "Sun in Ulm."
    assert [item["type"] for item in items(response)] == ["tool_search_call", "tool_search_output", "message"]
    assert len(json.dumps(stage.requests[0].tools)) < 4096
    assert [offered(stage, number) for number in range(3)] == [["tool_search"], *[["tool_search", "forecast"]] * 2]
