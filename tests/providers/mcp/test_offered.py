"""Servers of the operator whose tools are functions of every request, as those of a provider."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner
from mcp.server.mcpserver import MCPServer
from tests.http.sdk import Served, create, outputs
from tests.providers.mcp.stage import nowhere, on_socket, running_server, staged
from tests.providers.mcp.test_approvals import items, types, verdict
from tests.providers.mcp.test_changed_tools import Turncoat

from antwort import Antwort
from antwort.cli.main import root
from antwort.config import Config
from antwort.errors import ConfigError
from antwort.providers.mcp.provider import Mcp
from antwort.testing import call, turn
from antwort.types import JSON

ADD = call("add", a=1, b=2, call_id="call_1")


def offering(url: str, **fields: Any) -> JSON:
    return {"servers": {"calc": {"url": url, "offer": "always", **fields}}}


def offered(stage: Served, step: int = 0) -> list[str]:
    return [tool["name"] for tool in stage.requests[step].tools or ()]


@pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
@pytest.mark.parametrize("era", ["stateless", "greeted"])
def test_tools_are_there_without_being_named(tmp_path: Path, era: str, *, stream: bool) -> None:
    with running_server(era=era) as server:
        steps = [turn(calls=[ADD]), "3."]
        with staged(tmp_path, steps, settings=offering(server.url), allow=()) as stage:
            response = create(stage, stream, input="1 + 2?")
            assert {"add", "forget", "picture"} <= {*offered(stage)}
            assert outputs(stage) == ["3"]
            assert response.output_text == "3."
    assert server.calls == [(1, 2)]


def test_names_begin_with_the_prefix_of_their_server(tmp_path: Path) -> None:
    with running_server() as one, running_server() as two:
        servers = {
            "one": {"url": one.url, "offer": "always", "prefix": "one_", "allowed_tools": ["add"]},
            "two": {"url": two.url, "offer": "always", "prefix": "two_", "allowed_tools": ["add"]},
        }
        steps = [turn(calls=[call("two_add", a=1, b=2)]), "3."]
        with staged(tmp_path, steps, settings={"servers": servers}) as stage:
            create(stage, False, input="1 + 2?")
            assert offered(stage)[-2:] == ["one_add", "two_add"]
    assert (one.calls, two.calls) == ([], [(1, 2)])


def test_of_two_servers_with_the_same_tool_the_first_has_the_name(tmp_path: Path) -> None:
    with running_server() as one, running_server() as two:
        servers = {label: {"url": server.url, "offer": "always"} for label, server in (("one", one), ("two", two))}
        with staged(tmp_path, [turn(calls=[ADD]), "3."], settings={"servers": servers}) as stage:
            create(stage, False, input="1 + 2?")
            assert offered(stage).count("add") == 1
    assert (one.calls, two.calls) == ([(1, 2)], [])


def test_a_tool_on_request_is_there_where_it_is_named(tmp_path: Path) -> None:
    with running_server() as server:
        steps = ["Hi.", turn(calls=[ADD]), "3."]
        with staged(tmp_path, steps, settings=offering(server.url, offer="on_request")) as stage:
            create(stage, False, input="Hi")
            assert "add" not in offered(stage)
            create(stage, False, input="1 + 2?", tools=[{"type": "function", "name": "add"}])
            assert "add" in offered(stage, 1)
    assert server.calls == [(1, 2)]


def test_calls_wait_for_an_approval_where_the_operator_says_so(tmp_path: Path) -> None:
    with running_server() as server:
        own = offering(server.url, require_approval="always")
        with staged(tmp_path, [turn(calls=[ADD]), "3."], settings=own) as stage:
            first = create(stage, False, input="1 + 2?")
            assert types(first) == ["mcp_approval_request"]
            assert server.calls == []
            create(stage, False, input=[verdict(items(first)[0], True)], previous_response_id=first.id)
    assert server.calls == [(1, 2)]


def test_arguments_may_have_any_name(tmp_path: Path) -> None:
    tools = MCPServer("odd")

    @tools.tool()
    def repeat(given: str, self_: int = 2, ctx: str = "!") -> str:
        """Repeat something."""
        return given * self_ + ctx

    steps = [turn(calls=[call("repeat", given="ab")]), "Done."]
    with running_server(tools) as server, staged(tmp_path, steps, settings=offering(server.url)) as stage:
        create(stage, False, input="Go!")
        assert outputs(stage) == ["abab!"]


def test_what_a_server_has_newly_is_offered(tmp_path: Path) -> None:
    program = """
import json, sys
tools = ["first"]
def say(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    method, number = asked["method"], asked.get("id")
    if method == "initialize":
        say(id=number, result={"protocolVersion": "2025-06-18"})
    elif method == "tools/list":
        say(id=number, result={"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in tools]})
    elif method == "tools/call":
        tools.append("second")
        say(method="notifications/tools/list_changed")
        say(id=number, result={"content": [{"type": "text", "text": "There is a second now."}]})
"""
    file = tmp_path / "server.py"
    file.write_text(program)
    servers = {"shop": {"command": [sys.executable, "-I", str(file)], "offer": "always"}}
    steps = [turn(calls=[call("first")]), "Done.", "Hi."]
    with staged(tmp_path, steps, settings={"servers": servers}) as stage:
        create(stage, False, input="Go!")
        with httpx.Client(base_url=stage.server.url, timeout=60) as client:
            while "second" not in _listed(client):
                pass
        create(stage, False, input="And now?")
        assert offered(stage, 2)[-2:] == ["first", "second"]


def _listed(client: httpx.Client) -> list[str]:
    """Return the tools of /mcp: the functions that are offered."""
    asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    answer = client.post("/mcp", json=asked, headers={"mcp-protocol-version": "2025-06-18"})
    return [tool["name"] for tool in answer.json()["result"]["tools"]]


def test_a_server_that_is_away_costs_its_own_tools(tmp_path: Path) -> None:
    with running_server() as good:
        servers = {
            "bad": {"url": nowhere(), "offer": "always"},
            "calc": {"url": good.url, "offer": "always"},
        }
        with staged(tmp_path, [turn(calls=[ADD]), "3."], settings={"servers": servers}) as stage:
            create(stage, False, input="1 + 2?")
            assert outputs(stage) == ["3"]


def test_a_tool_with_a_schema_that_is_none_is_left_out(tmp_path: Path) -> None:
    bad = Turncoat()
    bad.change(inputSchema={"type": "object", "properties": {"a": {"type": "nonsense"}}})
    with on_socket(bad.app) as url, staged(tmp_path, ["Hi."], settings=offering(url)) as stage:
        create(stage, False, input="Hi")
        assert "other" in offered(stage)
        assert "act" not in offered(stage)


def searching(calls: list[str]) -> MCPServer:
    tools = MCPServer("finder")

    @tools.tool()
    def find(q: str, most: int = 5) -> str:
        """Find pages."""
        calls.append(q)
        return "[1] Tea - https://tea.example/"

    @tools.tool()
    def other() -> str:
        """Do something else."""
        return ""

    return tools


@pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
def test_a_tool_answers_a_hosted_one(tmp_path: Path, *, stream: bool) -> None:
    calls: list[str] = []
    steps = [turn(calls=[call("find", q="tea", call_id="call_1")]), "Tea."]
    with running_server(searching(calls)) as server:
        own = offering(server.url, offer="on_request", answers="web_search", allowed_tools=["find"])
        with staged(tmp_path, steps, settings=own) as stage:
            response = create(stage, stream, input="Tea?", tools=[{"type": "web_search"}])
            assert types(response) == ["web_search_call", "message"]
            made = items(response)[0]
            assert made["status"] == "completed"
            assert made["action"]["query"] == "tea"
            assert outputs(stage) == ["[1] Tea - https://tea.example/"]
    assert calls == ["tea"]


def test_a_tool_answers_a_type_whose_items_nobody_knows(tmp_path: Path) -> None:
    calls: list[str] = []
    steps = [turn(calls=[call("find", q="tea", call_id="call_1")]), "Tea."]
    with running_server(searching(calls)) as server:
        own = offering(server.url, offer="on_request", answers="atlas", allowed_tools=["find"])
        with staged(tmp_path, steps, settings=own) as stage:
            response = stage.request("POST", "/responses", json={"input": "Tea?", "tools": [{"type": "atlas"}]}).json()
            [made, _] = response["output"]
            assert (made["type"], made["name"], json.loads(made["arguments"])) == ("mcp_call", "find", {"q": "tea"})


def test_a_label_still_names_the_server(tmp_path: Path) -> None:
    with running_server() as server:
        steps = [turn(calls=[call("calc__add", a=1, b=2)]), "3."]
        with staged(tmp_path, steps, settings=offering(server.url)) as stage:
            response = create(stage, False, input="1 + 2?", tools=[{"type": "mcp", "server_label": "calc"}])
            assert types(response) == ["mcp_list_tools", "mcp_call", "message"]
            assert outputs(stage) == ["3"]


def test_others_see_which_servers_are_there(tmp_path: Path) -> None:
    with running_server() as good:
        servers = {"bad": {"url": nowhere(), "offer": "always"}, "calc": {"url": good.url, "offer": "always"}}
        with staged(tmp_path, [], settings={"servers": servers}) as stage:
            answer = httpx.get(f"{stage.server.url}/readyz", timeout=60)
            [provider] = [one for one in httpx.get(f"{stage.server.url}/v1/providers", timeout=60).json()["data"]
                          if one["name"] == "mcp"]  # fmt: skip
    assert [(one["name"], one["state"]) for one in provider["services"]] == [("bad", "away"), ("calc", "ok")]
    assert provider["services"][0]["functions"] == []
    assert "add" in provider["services"][1]["functions"]
    assert answer.status_code == 200
    assert answer.json()["services"] == [
        {"provider": "mcp", "name": "bad", "state": "away"},
        {"provider": "mcp", "name": "calc", "state": "ok"},
    ]


def test_commands_know_them(tmp_path: Path) -> None:
    file = tmp_path / "antwort.yaml"
    with running_server() as server:
        own = {"url": server.url, "offer": "always", "prefix": "calc_"}
        section = {"mcp": {"enabled": True, "settings": {"servers": {"calc": own}}}}
        file.write_text(json.dumps({"data_dir": str(tmp_path / "data"), "providers": section}))

        def said(*arguments: str) -> str:
            result = CliRunner().invoke(root, [*arguments, "--config", str(file)], prog_name="antwort")
            assert result.exit_code == 0, result.output
            return result.output

        assert "calc_add" in said("functions", "list")
        assert "Add two numbers." in said("functions", "show", "calc_add")
        assert said("functions", "call", "calc_add", '{"a": 1, "b": 2}') == "3\n"
        assert "calc_add" in said("check", "--no-probe")
    assert server.calls == [(1, 2)]


@pytest.mark.parametrize("own", [{"prefix": "a_"}, {"answers": "web_search"}])
def test_what_is_for_offered_tools_needs_an_offer(own: JSON) -> None:
    with pytest.raises(ConfigError, match="offer"):
        Mcp.from_settings({"servers": {"calc": {"url": "http://127.0.0.1:1/mcp", **own}}})


def test_a_check_asks_which_tool_answers(tmp_path: Path) -> None:
    async def examined() -> list[str]:
        provider = Mcp.from_settings(offering(server.url, answers="web_search"))
        async with Antwort(Config(data_dir=tmp_path, providers={}), providers=[provider]):
            return [*await provider.examine()]

    with running_server() as server:
        assert asyncio.run(examined()) == ["servers.calc.answers: which tool does? Name it first in 'allowed_tools'"]
