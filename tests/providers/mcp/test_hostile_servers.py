"""Hostile MCP servers: each costs its own tools only, and a good one beside it goes on."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import openai
import pytest
from starlette.types import Receive, Scope, Send
from tests.http.sdk import create, outputs
from tests.outbound.hostile import HOSTILE
from tests.providers.mcp.stage import mcp_tool, on_socket, running_server, staged
from tests.providers.mcp.test_approvals import items

from antwort.providers.mcp.messages import AnswerEvents
from antwort.testing import call, turn
from antwort.types import JSON

Answering = Callable[[JSON, Send], Awaitable[None]]
PLAIN: JSON = {"name": "act", "description": "Act.", "inputSchema": {"type": "object", "properties": {}}}


def deep(levels: int) -> JSON:
    schema: JSON = {"type": "object"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def listing(*tools: JSON, **fields: Any) -> JSON:
    return {"tools": [*tools], **fields}


LISTS: dict[str, Any] = {
    "no list": {"tools": "none"},
    "too many": listing(*({**PLAIN, "name": f"act{number}"} for number in range(2000))),
    "endless pages": listing(nextCursor="again"),
    "a huge cursor": listing(nextCursor="x" * 100_000),
    "a cursor that is none": listing(nextCursor={"a": 1}),
    "half a character": listing({**PLAIN, "description": "\ud800"}),
}
"""Lists of which nothing can be used."""


def in_headers(*parts: JSON) -> JSON:
    """Return a tool that wants arguments in headers, too."""
    return {
        **PLAIN,
        "name": "bad",
        "inputSchema": {"type": "object", "properties": {f"a{n}": one for n, one in enumerate(parts)}},
    }


TOOLS: dict[str, JSON] = {
    "a header without a name": in_headers({"type": "string", "x-mcp-header": ""}),
    "a header with two lines": in_headers({"type": "string", "x-mcp-header": "a\r\nb"}),
    "a header that is none": in_headers({"type": "string", "x-mcp-header": 7}),
    "an object in a header": in_headers({"type": "object", "x-mcp-header": "A"}),
    "a number in a header": in_headers({"type": "number", "x-mcp-header": "A"}),
    "nothing in a header": in_headers({"type": "null", "x-mcp-header": "A"}),
    "a header twice": in_headers(*({"type": "string", "x-mcp-header": name} for name in ("A", "a"))),
    "a huge name": {**PLAIN, "name": "x" * 10_000},
    "a name that is turned round": {**PLAIN, "name": "act\u202e"},
    "no name": {"inputSchema": {}},
    "a deep schema": {**PLAIN, "inputSchema": deep(200)},
    "a huge schema": {**PLAIN, "inputSchema": {"type": "object", "description": "x" * 1_000_000}},
    "a schema that is none": {**PLAIN, "inputSchema": ["x"]},
}
"""Tools that are left out."""


async def reply(send: Send, result: Any, status: int = 200, kind: str = "application/json", **headers: str) -> None:
    body = result if isinstance(result, bytes) else json.dumps(result).encode()
    head = [(b"content-type", kind.encode()), *((name.encode(), value.encode()) for name, value in headers.items())]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})


def server(on_list: Any, on_call: Answering | None = None) -> Any:
    """Return a server that says what it is told to say."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        asked = json.loads(body or b"{}")
        if asked.get("method") == "server/discover":
            result: Any = {"supportedVersions": ["2026-07-28"], "capabilities": {}, "resultType": "complete"}
        elif asked.get("method") == "tools/call" and on_call is not None:
            await on_call(asked, send)
            return
        elif callable(on_list):
            await on_list(asked, send)
            return
        else:
            result = on_list
        await reply(send, {"jsonrpc": "2.0", "id": asked.get("id"), "result": result})

    return app


async def redirect(asked: JSON, send: Send) -> None:
    await reply(send, b"", 307, location="http://127.0.0.1:9/mcp")


async def hang(asked: JSON, send: Send) -> None:
    await asyncio.Event().wait()


async def break_off(asked: JSON, send: Send) -> None:
    head = [(b"content-type", b"application/json"), (b"content-length", b"1000")]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    await send({"type": "http.response.body", "body": b'{"jsonrpc"', "more_body": True})
    raise ConnectionError


async def babble(asked: JSON, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
    for _ in range(100_000):
        await send({"type": "http.response.body", "body": b": still there\n\n" * 1000, "more_body": True})


async def nest(asked: JSON, send: Send) -> None:
    await reply(send, b'{"jsonrpc": "2.0", "id": 1, "result": ' + b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b"}")


async def say_nonsense(asked: JSON, send: Send) -> None:
    await reply(send, b"<html>")


async def ask_for_ever(asked: JSON, send: Send) -> None:
    requests = {"q": {"method": "elicitation/create", "params": {"message": "Well?"}}}
    result = {"resultType": "input_required", "inputRequests": requests, "requestState": "s"}
    await reply(send, {"jsonrpc": "2.0", "id": asked["id"], "result": result})


async def keep_much(asked: JSON, send: Send) -> None:
    result = {"resultType": "input_required", "requestState": "x" * 10_000_000}
    await reply(send, {"jsonrpc": "2.0", "id": asked["id"], "result": result})


async def answer_nobody(asked: JSON, send: Send) -> None:
    message = {"jsonrpc": "2.0", "id": [asked["id"]], "result": {}}
    await reply(send, b"data: " + json.dumps(message).encode() + b"\n\n", kind="text/event-stream")


async def refuse(asked: JSON, send: Send) -> None:
    await reply(send, {"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -32000, "message": "No."}}, 401)


DEEDS: dict[str, Answering] = {
    "redirect": redirect,
    "hang": hang,
    "break off": break_off,
    "babble": babble,
    "nest": nest,
    "nonsense": say_nonsense,
    "answer nobody": answer_nobody,
}


@pytest.mark.parametrize("name", [*LISTS, *DEEDS])
def test_a_list_that_cannot_be_used_costs_its_own_tools(tmp_path: Path, name: str) -> None:
    steps = [turn(calls=[call("add", a=1, b=2)]), "3."]
    settings = {"list_timeout": 3, "max_bytes": 1_000_000}
    with (
        on_socket(server({**LISTS, **DEEDS}[name])) as url,
        running_server() as good,
        staged(tmp_path, steps, settings=settings) as stage,
    ):
        response = create(stage, False, input="?", tools=[mcp_tool(url, "bad"), mcp_tool(good)])
        bad = items(response)[0]
        assert (bad["server_label"], bad["tools"]) == ("bad", [])
        assert bad["error"]
        assert outputs(stage) == ["3"]


@pytest.mark.parametrize("name", TOOLS)
def test_a_tool_that_cannot_be_offered_is_left_out(tmp_path: Path, name: str) -> None:
    with on_socket(server(listing(TOOLS[name], PLAIN))) as url, staged(tmp_path, ["Hi."]) as stage:
        response = create(stage, False, input="?", tools=[mcp_tool(url)])
        assert [tool["name"] for tool in items(response)[0]["tools"]] == ["act"]


@pytest.mark.parametrize("name", [*DEEDS, "ask for ever", "keep much"])
def test_a_call_that_comes_to_nothing_is_told_to_the_model(tmp_path: Path, name: str) -> None:
    deed = {**DEEDS, "ask for ever": ask_for_ever, "keep much": keep_much}[name]
    settings = {"timeout": 0.5, "max_bytes": 1_000_000}
    with (
        on_socket(server(listing(PLAIN), deed)) as url,
        staged(tmp_path, [turn(calls=[call("act")]), "It failed."], settings=settings) as stage,
    ):
        response = create(stage, False, input="?", tools=[mcp_tool(url)])
        made = items(response)[1]
        assert (made["status"], made["output"]) == ("failed", None)
        assert made["error"]["type"] in {"mcp_protocol_error", "http_error"}
        assert outputs(stage)
        assert response.output_text == "It failed."


@pytest.mark.parametrize(("size", "times"), [(1_000, 1), (100_000, 2)])
def test_only_a_list_of_usual_size_is_kept(tmp_path: Path, size: int, times: int) -> None:
    asked: list[JSON] = []
    tools = [{**PLAIN, "name": f"act{number}", "inputSchema": {"description": "x" * size}} for number in range(3)]

    async def say(message: JSON, send: Send) -> None:
        asked.append(message)
        await reply(send, {"jsonrpc": "2.0", "id": message["id"], "result": listing(*tools, ttlMs=300_000)})

    with on_socket(server(say)) as url, staged(tmp_path, ["Hi.", "Hi."]) as stage:
        lists = [items(create(stage, False, input="?", tools=[mcp_tool(url)]))[0]["tools"] for _ in range(2)]
    assert lists[0] == lists[1]
    assert len(asked) == times


def bomb(levels: int) -> JSON:
    """Return a schema that is as long as two to the power of its levels, if it is written out."""
    parts: JSON = {f"s{n}": {"allOf": [{"$ref": f"#/$defs/s{n + 1}"}] * 2} for n in range(levels)}
    return {"type": "object", "properties": {"a": {"$ref": "#/$defs/s0"}}, "$defs": {**parts, f"s{levels}": {}}}


REFERENCES: dict[str, JSON] = {
    "to itself": {"type": "object", "properties": {"a": {"$ref": "#"}}},
    "round and round": {"type": "object", "$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}},
    "a bomb": bomb(60),
    "elsewhere": {"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:9/schema.json"}}},
    "nowhere": {"type": "object", "properties": {"a": {"$ref": "#/$defs/nothing"}}},
}


@pytest.mark.parametrize("name", REFERENCES)
@pytest.mark.parametrize("offered", [False, True], ids=["named", "offered"])
def test_references_in_a_schema_cost_nobody_anything(tmp_path: Path, name: str, *, offered: bool) -> None:
    async def act(asked: JSON, send: Send) -> None:
        await reply(send, {"jsonrpc": "2.0", "id": asked["id"], "result": {"content": [{"type": "text", "text": "."}]}})

    steps = [turn(calls=[call("act", a={"a": {"a": {}}}, call_id="c1"), call("add", a=1, b=2, call_id="c2")]), "Hi."]
    with on_socket(server(listing({**PLAIN, "inputSchema": REFERENCES[name]}), act)) as url, running_server() as good:
        servers = {"bad": {"url": url, "offer": "always"}} if offered else {}
        tools = [mcp_tool(good), *([] if offered else [mcp_tool(url, "bad")])]
        with staged(tmp_path, steps, over_http=True, settings={"servers": servers}) as stage:
            response = create(stage, False, input="?", tools=tools)
            assert response.output_text == "Hi."
            assert outputs(stage)[1] == "3"


def test_an_address_that_clients_may_not_reach_is_refused_in_every_spelling(tmp_path: Path) -> None:
    with staged(tmp_path, [], allow=()) as stage:
        for url in HOSTILE:
            with pytest.raises(openai.BadRequestError) as refused:
                create(stage, False, input="?", tools=[mcp_tool(url)])
            assert refused.value.param == "tools[0].server_url", url


def slowly(deed: Answering, asked: list[JSON]) -> Answering:
    """Let a server take half of the time for each answer."""

    async def act(message: JSON, send: Send) -> None:
        asked.append(message)
        await asyncio.sleep(0.3)
        await deed(message, send)

    return act


async def go_on(asked: JSON, send: Send) -> None:
    await reply(send, {"jsonrpc": "2.0", "id": asked["id"], "result": listing(PLAIN, nextCursor="again")})


def test_a_list_has_its_time_for_all_pages(tmp_path: Path) -> None:
    asked: list[JSON] = []
    with (
        on_socket(server(slowly(go_on, asked))) as url,
        staged(tmp_path, ["Hi."], settings={"list_timeout": 0.6}) as stage,
    ):
        response = create(stage, False, input="?", tools=[mcp_tool(url)])
        assert "did not answer within" in items(response)[0]["error"]
        assert len(asked) < 5


def test_a_call_has_its_time_for_all_that_the_server_wants_to_know(tmp_path: Path) -> None:
    asked: list[JSON] = []
    steps = [turn(calls=[call("act")]), "It failed."]
    with (
        on_socket(server(listing(PLAIN), slowly(ask_for_ever, asked))) as url,
        staged(tmp_path, steps, settings={"timeout": 0.6}) as stage,
    ):
        response = create(stage, False, input="?", tools=[mcp_tool(url)])
        assert "did not answer within" in items(response)[1]["error"]["message"]
        assert len(asked) < 5


def test_a_list_may_be_said_to_stay_the_same_for_ever(tmp_path: Path) -> None:
    with on_socket(server(listing(PLAIN, ttlMs=10**400))) as url, staged(tmp_path, ["Hi."]) as stage:
        response = create(stage, False, input="?", tools=[mcp_tool(url)])
        assert [tool["name"] for tool in items(response)[0]["tools"]] == ["act"]


def test_credentials_may_be_refused_in_words_of_the_protocol(tmp_path: Path) -> None:
    refused = pytest.raises(openai.AuthenticationError, match="'calc'")
    with on_socket(server(refuse)) as url, staged(tmp_path, []) as stage, refused:
        create(stage, False, input="?", tools=[mcp_tool(url)])


@pytest.mark.parametrize("status", [301, 307, 308, 401])
def test_nobody_is_asked_where_a_server_points_to(tmp_path: Path, status: int) -> None:
    reached: list[str] = []

    async def trap(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            reached.append(str(scope["path"]))
            await reply(send, {"authorization_servers": ["http://127.0.0.1:9"]})

    with on_socket(trap) as other, staged(tmp_path, [] if status == 401 else ["Well."]) as stage:

        async def point(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "http":
                metadata = f'Bearer resource_metadata="{other}/.well-known/oauth-protected-resource"'
                places = {"location": f"{other}/mcp", "www-authenticate": metadata}
                await reply(send, b"", status, "text/plain", **places)

        with on_socket(point) as url:
            if status == 401:
                with pytest.raises(openai.AuthenticationError, match="'calc'"):
                    create(stage, False, input="?", tools=[mcp_tool(url)])
            else:
                response = create(stage, False, input="?", tools=[mcp_tool(url)])
                assert "redirects" in items(response)[0]["error"]
    assert reached == []


def test_the_words_of_a_tool_lose_the_characters_that_nobody_sees(tmp_path: Path) -> None:
    tool = {**PLAIN, "description": "Act.\u202e\u200bNow\u2066 \U000e0041twice."}
    with on_socket(server(listing(tool))) as url, staged(tmp_path, ["Hi."]) as stage:
        response = create(stage, False, input="?", tools=[mcp_tool(url)])
        assert items(response)[0]["tools"][0]["description"] == "Act.Now twice."
        [offered] = stage.requests[0].tools or ()
        assert offered["description"] == "Act.Now twice."


async def test_others_have_their_turn_while_many_lines_of_nothing_are_read() -> None:
    turns, found = 0, asyncio.Event()

    async def be_another() -> None:
        nonlocal turns
        while not found.is_set():
            turns += 1
            await asyncio.sleep(0)

    async def nobody(asked: JSON) -> None:
        raise AssertionError

    events = AnswerEvents(1, nobody, found.set)
    another = asyncio.create_task(be_another())
    await events.take(b"event: message\r\n" + b"\n" * 100_000)
    assert turns >= 100
    await events.take(b'data: {"id": 1,\r\nda')
    await events.take(b'ta: "result": {}}\r\n\r')
    await events.take(b"\n")
    await another
    assert events.answer == {"id": 1, "result": {}}
