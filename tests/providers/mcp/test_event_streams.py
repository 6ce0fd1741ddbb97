"""Servers of 2024-11-05, whose answers come in a stream of their own."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import openai
import pytest
from mcp.server.mcpserver import Context as ToolContext
from mcp.server.mcpserver import MCPServer
from pydantic import BaseModel
from starlette.types import Receive, Scope, Send
from tests.http.sdk import create, done, outputs
from tests.providers.mcp.stage import McpServer, calculator, mcp_tool, on_socket, running_server, staged
from tests.providers.mcp.test_approvals import ASKING, FORGET, USER, items, types, verdict
from tests.providers.user.stage import answer, asked, begun

from antwort.testing import call, turn

ADD = call("add", a=1, b=2, call_id="call_1")


def streamed(tools: MCPServer | None = None) -> tuple[McpServer, Any]:
    """Return a server of the official SDK for this transport."""
    state = McpServer("")
    return state, (calculator(state) if tools is None else tools).sse_app()


@pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
def test_tools_are_listed_and_called(tmp_path: Path, *, stream: bool) -> None:
    state, app = streamed()
    steps = [turn(calls=[ADD]), turn(calls=[call("fail", call_id="call_2")]), "3.", "Hi."]
    with on_socket(app) as url, staged(tmp_path, steps) as stage:
        tools = [mcp_tool(f"{url}/sse")]
        response = create(stage, stream, input="1 + 2?", tools=tools)
        assert types(response) == ["mcp_list_tools", "mcp_call", "mcp_call", "message"]
        assert items(response)[1]["output"] == "3"
        assert items(response)[2]["error"]["type"] == "mcp_tool_execution_error"
        create(stage, stream, input="Hi", tools=tools)
    assert state.calls == [(1, 2)]


def test_approvals_and_servers_of_the_operator(tmp_path: Path) -> None:
    state, app = streamed()
    with on_socket(app) as url:
        servers = {"calc": {"url": f"{url}/sse", "require_approval": "always"}}
        with staged(tmp_path, [turn(calls=[FORGET]), "Done."], settings={"servers": servers}, allow=()) as stage:
            tools: list[Any] = [{"type": "mcp", "server_label": "calc"}]
            first = create(stage, False, input="Forget it!", tools=tools)
            second = create(
                stage, False, input=[verdict(items(first)[1], True)], tools=tools, previous_response_id=first.id
            )
            assert types(second) == ["mcp_call", "message"]
    assert state.calls == ["it"]


class Choice(BaseModel):
    colour: str


def test_a_server_asks_while_it_works(tmp_path: Path) -> None:
    tools = MCPServer("painter")

    @tools.tool()
    async def paint(ctx: ToolContext[Any]) -> str:
        """Paint."""
        found = await ctx.elicit("Which colour?", Choice)
        return f"It is {found.data.colour}." if found.action == "accept" else "Nothing is painted."

    _, app = streamed(tools)
    steps = [turn(calls=[call("paint")]), "Done."]
    with on_socket(app) as url, staged(tmp_path, steps, section=USER) as stage:
        response_id = begun(stage, tools=[mcp_tool(f"{url}/sse")])
        [question] = asked(stage)
        answer(stage, question, answer="red")
        done(stage, response_id)
        assert outputs(stage) == ["It is red."]


Telling = Callable[[Send], Awaitable[None]]


def teller(tell: Telling, statuses: int = 202) -> Any:
    """Return a server that tells what it is told to tell when its stream is opened."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        while (await receive()).get("more_body"):
            pass
        if scope["method"] == "GET":
            head = [(b"content-type", b"text/event-stream")]
            await send({"type": "http.response.start", "status": 200, "headers": head})
            await tell(send)
            return
        status = statuses if scope["path"] == "/messages" else 405
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    return app


async def say(send: Send, text: str) -> None:
    await send({"type": "http.response.body", "body": text.encode(), "more_body": True})


async def name_another(send: Send) -> None:
    await say(send, "event: endpoint\ndata: http://127.0.0.1:9/messages\n\n")
    await asyncio.Event().wait()


async def name_none(send: Send) -> None:
    await say(send, "event: endpoint\ndata: http://[::1/\n\n")
    await asyncio.Event().wait()


async def end_at_once(send: Send) -> None:
    await send({"type": "http.response.body", "body": b""})


async def end_later(send: Send) -> None:
    await say(send, "event: endpoint\ndata: /messages\n\n")
    await end_at_once(send)


async def babble(send: Send) -> None:
    for _ in range(10_000):
        await say(send, "event: nothing\n" * 1000)


async def say_nonsense(send: Send) -> None:
    await say(send, "event: endpoint\ndata: /messages\n\ndata: {\n\ndata: [1]\n\ndata: 7\n\n")
    wrong = {"jsonrpc": "2.0", "id": 1, "result": {"protocolVersion": "1999"}}
    await say(send, f"data: {json.dumps(wrong)}\n\n")
    await asyncio.Event().wait()


@pytest.mark.parametrize("deed", [name_another, name_none, end_at_once, end_later, babble, say_nonsense])
def test_a_stream_that_cannot_be_used_costs_its_own_tools(tmp_path: Path, deed: Telling) -> None:
    with on_socket(teller(deed)) as url, running_server() as good:
        steps = [turn(calls=[ADD]), "3."]
        with staged(tmp_path, steps, settings={"list_timeout": 5, "max_bytes": 1_000_000}) as stage:
            response = create(stage, False, input="?", tools=[mcp_tool(f"{url}/sse", "bad"), mcp_tool(good)])
            assert items(response)[0]["error"]
            assert outputs(stage) == ["3"]


def test_a_server_that_takes_nothing_costs_its_own_tools(tmp_path: Path) -> None:
    with on_socket(teller(say_nonsense, 500)) as url, staged(tmp_path, ["Hi."]) as stage:
        response = create(stage, False, input="?", tools=[mcp_tool(f"{url}/sse", "bad")])
        assert items(response)[0]["error"]


def test_an_address_of_this_machine_is_not_reached(tmp_path: Path) -> None:
    state, app = streamed()
    with on_socket(app) as url, staged(tmp_path, [], allow=()) as stage:
        with pytest.raises(openai.BadRequestError, match="127") as refused:
            create(stage, False, input="?", tools=[mcp_tool(f"{url}/sse", **ASKING)])
        assert refused.value.param == "tools[0].server_url"
    assert state.methods == []
