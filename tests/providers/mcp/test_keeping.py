"""What is kept of servers and of what requests say of them: addresses, sessions, approvals, names in the audit log."""

import json
import re
import socket
import threading
from pathlib import Path
from typing import Any

import openai
import pytest
from starlette.types import Receive, Scope, Send
from tests.http.sdk import create, done
from tests.providers.mcp.stage import mcp_tool, on_socket, running_server, staged
from tests.providers.mcp.test_approvals import ASKING, FORGET, items, types, verdict
from tests.providers.mcp.test_hostile_servers import PLAIN, listing, reply
from tests.providers.user.stage import answer, asked, begun

from antwort.engine.tools import targets
from antwort.providers.mcp import provider
from antwort.testing import call, turn
from antwort.types import JSON

ADD = call("add", a=1, b=2)
SECRET = "a-secret-of-the-address"


@pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
def test_of_an_address_others_see_only_where_it_leads(tmp_path: Path, *, stream: bool) -> None:
    with running_server() as server, staged(tmp_path, [turn(calls=[ADD]), "3."]) as stage:
        tool = mcp_tool(f"{server.url}?key={SECRET}")
        response = create(stage, stream, input="1 + 2?", tools=[tool])
        assert types(response) == ["mcp_list_tools", "mcp_call", "message"]
        shown: Any = response.to_dict()["tools"]
        assert shown[0]["server_url"] == server.url.removesuffix("/mcp")
        fetched = stage.request("GET", f"/responses/{response.id}").text
        stored = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()).decode(errors="replace")
        assert SECRET not in fetched + stored


def test_a_background_run_knows_the_whole_address(tmp_path: Path) -> None:
    user: JSON = {"user": {"enabled": True}}
    steps = [turn(calls=[FORGET]), "Done."]
    with running_server() as server, staged(tmp_path, steps, section=user) as stage:
        response_id = begun(stage, tools=[mcp_tool(f"{server.url}?key={SECRET}", **ASKING)])
        [question] = asked(stage)
        stored = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()).decode(errors="replace")
        assert SECRET not in stored
        answer(stage, question, approve=True)
        assert [item["type"] for item in done(stage, response_id)["output"]][2:] == ["mcp_call", "message"]
        assert server.calls == ["it"]


def test_a_user_in_an_address_is_refused(tmp_path: Path) -> None:
    with staged(tmp_path, []) as stage:
        with pytest.raises(openai.BadRequestError, match="user name") as refused:
            create(stage, False, input="?", tools=[mcp_tool(f"http://me:{SECRET}@127.0.0.1:1/mcp")])
        assert refused.value.param == "tools[0].server_url"
        assert SECRET not in str(refused.value)


def test_what_is_said_of_a_server_the_model_reads_with_its_tools(tmp_path: Path) -> None:
    with running_server() as server, staged(tmp_path, ["Hi."]) as stage:
        create(stage, False, input="?", tools=[mcp_tool(server, server_description="For\nsums only.")])
        offered = {tool["name"]: tool["description"] for tool in stage.requests[0].tools or ()}
        assert offered["add"] == "Add two numbers.\n\ncalc: For sums only."


def test_the_audit_log_names_the_server_and_its_tool(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    steps = [turn(calls=[ADD]), "3."]
    with running_server() as server, staged(tmp_path, steps, observability={"audit_file": file}) as stage:
        create(stage, False, input="1 + 2?", tools=[mcp_tool(server)])
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        executed = [(line["provider"], line["function"]) for line in lines if line["event"] == "function.executed"]
        assert executed == [("mcp", "calc.add")]


def test_a_session_ends_when_nobody_remembers_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider, "_KEPT", 1)
    with running_server(era="greeted") as server:
        with staged(tmp_path, ["Hi."] * 3) as stage:
            for number in range(3):
                create(stage, False, input="?", tools=[mcp_tool(server, headers={"X-Number": str(number)})])
        assert server.methods.count("initialize") == 3
        assert server.methods.count("DELETE") == 3


def test_an_approval_that_nobody_has_stored_is_not_waited_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    question: Any = {"role": "user", "content": "Forget it!"}
    with running_server() as server, staged(tmp_path, [turn(calls=[FORGET])]) as stage:
        tools = [mcp_tool(server, **ASKING)]
        first = create(stage, False, input=[question], tools=tools, store=False)
        request = items(first)[1]
        monkeypatch.setattr(targets, "_CARRIED_FOR", -1)
        with pytest.raises(openai.BadRequestError, match="too old") as refused:
            create(stage, False, input=[question, request, verdict(request, True)], tools=tools, store=False)
        assert refused.value.param == "input[2].approval_request_id"
        assert server.calls == []


def test_a_session_counts_although_the_answer_that_has_it_does_not_end(tmp_path: Path) -> None:
    sessions: list[str | None] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] == "DELETE":
            return
        message = json.loads((await receive())["body"])
        sessions.append(dict(scope["headers"]).get(b"mcp-session-id", b"").decode() or None)
        if message["method"] == "initialize":
            result = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}}
            body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()
            head = [(b"content-type", b"text/event-stream"), (b"mcp-session-id", b"one")]
            await send({"type": "http.response.start", "status": 200, "headers": head})
            await send({"type": "http.response.body", "body": b"data: " + body + b"\n\n", "more_body": True})
            while (await receive())["type"] != "http.disconnect":
                pass
        elif message["method"] == "tools/list":
            await reply(send, {"jsonrpc": "2.0", "id": message["id"], "result": listing(PLAIN)})
        else:
            await reply(send, b"", 202 if message["method"].startswith("notifications/") else 400)

    with on_socket(app) as url, staged(tmp_path, ["Hi."]) as stage:
        response = create(stage, False, input="?", tools=[mcp_tool(url)])
        assert [tool["name"] for tool in items(response)[0]["tools"]] == ["act"]
    assert sessions == [None, None, "one", "one"]


@pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
def test_a_server_is_left_when_the_client_leaves_that_has_named_it(tmp_path: Path, *, stream: bool) -> None:
    is_asked, is_left = threading.Event(), threading.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            is_asked.set()
            while (await receive())["type"] != "http.disconnect":
                pass
            is_left.set()

    with on_socket(app) as url, staged(tmp_path, []) as stage:
        body = json.dumps({"model": "m", "input": "?", "stream": stream, "tools": [mcp_tool(url)]}).encode()
        found = re.fullmatch(r"http://(.+):(\d+)", stage.server.url)
        assert found
        with socket.create_connection((found[1], int(found[2]))) as client:
            head = f"content-type: application/json\r\ncontent-length: {len(body)}"
            client.sendall(f"POST /v1/responses HTTP/1.1\r\nhost: {found[1]}\r\n{head}\r\n\r\n".encode() + body)
            assert is_asked.wait(30)
        assert is_left.wait(8)  # the server has more time than that to be asked in
