"""Servers of the operator, which requests name by their labels."""

import asyncio
from pathlib import Path
from typing import Any

import openai
import pytest
from tests.http.sdk import create
from tests.providers.mcp.stage import TOKEN, nowhere, running_server, staged
from tests.providers.mcp.test_approvals import items, types

from antwort import Antwort
from antwort.config import Config
from antwort.providers.mcp.provider import Mcp
from antwort.testing import call, turn
from antwort.types import JSON

FORGET = call("forget", what="it", call_id="call_1")
CALC: Any = {"type": "mcp", "server_label": "calc"}


def test_a_label_alone_names_a_server_of_the_operator(tmp_path: Path) -> None:
    with running_server(token=TOKEN) as server:
        own: JSON = {"url": server.url, "authorization": TOKEN, "headers": {"X-Key": "k"}}
        settings = {"servers": {"calc": own}}
        with staged(tmp_path, [turn(calls=[FORGET]), "Done."], settings=settings, allow=()) as stage:
            response = create(stage, False, input="Forget it!", tools=[CALC])
            assert types(response) == ["mcp_list_tools", "mcp_call", "message"]
            assert TOKEN not in stage.request("GET", f"/responses/{response.id}").text
        assert server.calls == ["it"]
        assert {headers["x-key"] for headers in server.headers} == {"k"}


def test_the_operator_says_which_tools_there_are_and_which_calls_wait(tmp_path: Path) -> None:
    with running_server() as server:
        own = {"url": server.url, "allowed_tools": ["forget", "add"], "require_approval": "always"}
        with staged(tmp_path, [turn(calls=[FORGET])], settings={"servers": {"calc": own}}) as stage:
            tool = {**CALC, "require_approval": "never", "allowed_tools": ["forget", "fail"]}
            response = create(stage, False, input="Forget it!", tools=[tool])
            assert types(response) == ["mcp_list_tools", "mcp_approval_request"]
            assert [tool["name"] for tool in items(response)[0]["tools"]] == ["forget"]
        assert server.calls == []


def test_a_request_brings_credentials_of_its_own(tmp_path: Path) -> None:
    with running_server(token=TOKEN) as server:
        settings = {"servers": {"calc": {"url": server.url, "authorization": "another"}}}
        with staged(tmp_path, ["Hi."], settings=settings) as stage:
            response = create(stage, False, input="Hi", tools=[{**CALC, "authorization": TOKEN}])
            assert len(items(response)[0]["tools"]) == 6


def test_a_label_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    settings = {"servers": {"wiki": {"url": nowhere()}}}
    with staged(tmp_path, [], settings=settings) as stage:
        with pytest.raises(openai.BadRequestError, match="there is 'wiki'") as error:
            create(stage, False, input="Hi", tools=[CALC])
        assert error.value.param == "tools[0].server_url"


def test_a_connector_is_a_server_of_the_operator(tmp_path: Path) -> None:
    with running_server(token=TOKEN) as server:
        own: JSON = {"url": server.url, "authorization": TOKEN, "allowed_tools": ["forget"]}
        servers = {"connector_gmail": own, "tickets": own}  # a name of OpenAI's, and any other
        steps = [turn(calls=[FORGET]), "Done."]
        with staged(tmp_path, [*steps, *steps], settings={"servers": servers}, allow=()) as stage:
            response = create(stage, False, input="Forget it!", tools=[{**CALC, "connector_id": "connector_gmail"}])
            assert types(response) == ["mcp_list_tools", "mcp_call", "message"]
            assert {item["server_label"] for item in items(response)[:2]} == {"calc"}
            tool = {**CALC, "connector_id": "tickets"}
            other = stage.request("POST", "/responses", json={"input": "Forget it!", "tools": [tool]}).json()
            assert [item["type"] for item in other["output"]] == types(response)
        assert server.calls == ["it", "it"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"connector_id": "connector_gmail"}, "there is no server 'connector_gmail' .*; there is 'calc'"),
        ({"connector_id": "calc", "server_url": "https://mcp.example/mcp"}, "give one of them"),
    ],
)
def test_a_connector_that_nobody_knows_is_refused(tmp_path: Path, fields: JSON, message: str) -> None:
    with staged(tmp_path, [], settings={"servers": {"calc": {"url": nowhere()}}}) as stage:
        with pytest.raises(openai.BadRequestError, match=message) as error:
            create(stage, False, input="Hi", tools=[{**CALC, **fields}])
        assert error.value.param == "tools[0].connector_id"


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        (
            ["sh", "-c", "echo 'it has no key' >&2; exit 1"],
            "The program of the server has ended. It said: it has no key",
        ),
        (
            ["nope"],
            (
                "The program of the server cannot be found. "
                "There is no 'nope' that can be run; install it, or give its path."
            ),
        ),
    ],
)
def test_a_check_says_why_a_program_cannot_be_asked(tmp_path: Path, command: list[str], problem: str) -> None:
    async def examined() -> list[str]:
        provider = Mcp.from_settings({"servers": {"calc": {"command": command}}})
        async with Antwort(Config(data_dir=tmp_path, providers={}), providers=[provider]):
            return [*await provider.examine()]

    assert asyncio.run(examined()) == [f"servers.calc: {problem}"]


def test_a_check_names_allowed_tools_that_a_server_does_not_have(tmp_path: Path) -> None:
    async def examined(settings: JSON) -> list[str]:
        provider = Mcp.from_settings({"servers": {"calc": settings}})
        async with Antwort(Config(data_dir=tmp_path, providers={}), providers=[provider]):
            return [*await provider.examine()]

    with running_server() as server:
        assert asyncio.run(examined({"url": server.url})) == []
        problems = asyncio.run(examined({"url": server.url, "allowed_tools": ["forget", "forgot"]}))
    assert problems == [
        "servers.calc.allowed_tools: the server has no tool 'forgot'; it has add, forget, fail, picture, point, much"
    ]
