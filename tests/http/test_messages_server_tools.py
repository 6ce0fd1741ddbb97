"""Tools of the server in Messages: they run in the loop, have Anthropic's blocks, and are read again when sent back."""

from pathlib import Path
from typing import Any

import pytest
from anthropic.types.beta import BetaMessage
from tests.http.messages import ASK, client, events, strict
from tests.http.sdk import Served
from tests.providers.code_interpreter import stage as code
from tests.providers.mcp import stage as mcp
from tests.providers.web_search import stage as search
from tests.support.postgres import on_one_store
from tests.support.site import Site

from antwort.testing import call, turn

pytestmark = on_one_store()
TOOLSET = {"type": "mcp_toolset", "mcp_server_name": "calc"}
BOTH_WAYS = pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])


def ask(stage: Served, stream: bool, **body: Any) -> BetaMessage:
    """Ask in either way, and hold the answer against the types of the beta, which has the blocks of MCP."""
    sdk = client(stage).beta.messages
    message: BetaMessage
    if not stream:
        message = sdk.create(**{**ASK, **body})
    else:
        with sdk.stream(**{**ASK, **body}) as answer:
            message = answer.get_final_message()
    strict(BetaMessage, message.to_dict())
    return message


def shown(message: BetaMessage) -> list[Any]:
    """Return the blocks of a message as they are on the wire."""
    return [block.to_dict() for block in message.content]


def answered(message: BetaMessage, text: str = "Sure?") -> list[Any]:
    """Return a history that goes on."""
    return [*ASK["messages"], message.to_param(), {"role": "user", "content": text}]


@BOTH_WAYS
def test_the_web_is_searched(tmp_path: Path, stream: bool) -> None:
    with (
        Site({"/search": search.found(search.result())}) as site,
        search.staged(tmp_path, [*search.searching(), "Yes."], {"url": site.url}) as stage,
    ):
        tool: Any = {"type": "web_search_20250305", "name": "web_search", "blocked_domains": ["bad.example"]}
        chosen: Any = {"type": "tool", "name": "web_search"}
        message = ask(stage, stream, tools=[tool], tool_choice=chosen)
        ask(stage, stream, tools=[tool], messages=answered(message))
    use, result, text = shown(message)
    assert (use["type"], use["name"], use["input"]) == ("server_tool_use", "web_search", {"query": "tea"})
    assert use["id"].startswith("srvtoolu_")
    assert (result["type"], result["tool_use_id"]) == ("web_search_tool_result", use["id"])
    [found] = result["content"]
    assert (found["title"], found["url"]) == ("All about tea", "https://example.org/tea")
    [cited] = text["citations"]
    assert (cited["type"], cited["url"]) == ("web_search_result_location", "https://example.org/tea")
    assert message.stop_reason == "end_turn"
    if not stream:  # the SDK does not put this together
        assert message.usage.server_tool_use is not None
        assert message.usage.server_tool_use.web_search_requests == 1
    again = stage.requests[-1].items
    assert [item["type"] for item in again] == [
        "message",
        "function_call",
        "function_call_output",
        "message",
        "message",
    ]
    assert "What there is to know about tea." in again[2]["output"]


@BOTH_WAYS
def test_code_is_executed(tmp_path: Path, stream: bool) -> None:
    with code.staged(tmp_path, [*code.running_code("print(6 * 7)"), "Yes."]) as stage:
        tool: Any = {"type": "code_execution_20250825", "name": "code_execution"}
        message = ask(stage, stream, tools=[tool])
        ask(stage, stream, tools=[tool], messages=answered(message))
    use, result, text = shown(message)
    assert (use["name"], use["input"]) == ("code_execution", {"code": "print(6 * 7)"})
    assert result["tool_use_id"] == use["id"]
    assert (result["content"]["stdout"].strip(), result["content"]["return_code"]) == ("42", 0)
    assert text["text"] == "Done."
    assert "42" in stage.requests[-1].items[2]["output"]


@BOTH_WAYS
def test_tools_of_mcp_servers_are_called(tmp_path: Path, stream: bool) -> None:
    script = [turn(calls=[call("add", a=1, b=2)]), turn(calls=[call("fail")]), "3.", "Yes."]
    with mcp.running_server(token=mcp.TOKEN) as server, mcp.staged(tmp_path, script) as stage:
        listed: Any = [{"type": "url", "name": "calc", "url": server.url, "authorization_token": mcp.TOKEN}]
        tools: Any = [
            {
                "type": "mcp_toolset",
                "mcp_server_name": "calc",
                "default_config": {"enabled": False},
                "configs": {"add": {"enabled": True}, "fail": {"enabled": True}},
            }
        ]
        message = ask(stage, stream, mcp_servers=listed, tools=tools)
        ask(stage, stream, mcp_servers=listed, tools=tools, messages=answered(message))
    use, result, bad_use, bad, text = shown(message)
    assert (use["type"], use["name"], use["server_name"]) == ("mcp_tool_use", "add", "calc")
    assert (use["input"], result["tool_use_id"], result["is_error"]) == ({"a": 1, "b": 2}, use["id"], False)
    assert result["content"] == [{"type": "text", "text": "3"}]
    assert (bad_use["name"], bad["is_error"]) == ("fail", True)
    assert text["text"] == "3."
    assert server.calls[0] == (1, 2)
    assert {tool["name"] for tool in stage.requests[0].tools or ()} >= {"add", "fail"}
    assert "forget" not in {tool["name"] for tool in stage.requests[0].tools or ()}
    outputs = [item["output"] for item in stage.requests[-1].items if item["type"] == "function_call_output"]
    assert outputs[0] == "3"


@pytest.mark.parametrize(
    ("tool", "named"),
    [
        ({**TOOLSET, "mcp_server_name": "other"}, "tools[0].mcp_server_name"),
        ({**TOOLSET, "configs": {"add": {"enabled": False}}}, "tools[0].configs"),
        ({"type": "web_fetch_20250910", "name": "web_fetch"}, "tools[0].type"),
        ({"type": "custom"}, "tools[0].name"),
        ({"name": "f", "input_schema": []}, "tools[0].input_schema"),
    ],
)
def test_a_tool_that_means_nothing_is_refused_by_its_field(tmp_path: Path, tool: Any, named: str) -> None:
    with mcp.staged(tmp_path, []) as stage:
        body: Any = {**ASK, "tools": [tool], "mcp_servers": [{"type": "url", "name": "calc", "url": mcp.nowhere()}]}
        found = stage.request("POST", "/messages", json=body)
    assert found.status_code == 400
    assert found.json()["error"]["type"] == "invalid_request_error"
    assert named in found.json()["error"]["message"]


def test_the_events_of_tools_of_the_server_are_those_of_the_api(tmp_path: Path) -> None:
    script = [turn("Let me see.", calls=[call("add", a=1, b=2)]), turn("3.", reasoning="Easy.")]
    with mcp.running_server() as server, mcp.staged(tmp_path, script) as stage:
        listed: Any = [{"type": "url", "name": "calc", "url": server.url}]
        tools: Any = [{"type": "mcp_toolset", "mcp_server_name": "calc"}]
        found = events(stage, beta=True, mcp_servers=listed, tools=tools)
    begun = [event["content_block"]["type"] for event in found if event["type"] == "content_block_start"]
    assert begun == ["text", "mcp_tool_use", "mcp_tool_result", "thinking", "text"]
