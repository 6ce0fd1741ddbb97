"""Servers that refuse a version they speak, and older ones that end the stream of an answer and go on in another."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.types import Receive, Scope, Send
from tests.http.sdk import create, outputs
from tests.providers.mcp.stage import mcp_tool, on_socket, staged
from tests.providers.mcp.test_approvals import items
from tests.providers.mcp.test_hostile_servers import PLAIN, listing, reply, server

from antwort.testing import call, turn
from antwort.types import JSON

GREETING: JSON = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "s"}}
PLACE = "retry: 1\nid: {}\ndata:\n\n"
"""What comes before a server leaves, with the name of the event."""
Rest = Callable[[str], "str | int | None"]
"""What is streamed to who asks for what is after an event: with a status nothing, with None it breaks off."""


class Leaving:
    """An older server that ends the stream of each call before its answer is there."""

    def __init__(self, rest: Rest, *, breaks: bool) -> None:
        self._rest = rest
        self._breaks = breaks
        self.calls: list[JSON] = []
        self.asked: list[dict[str, str]] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        body = await Request(scope, receive).body()
        if scope["method"] == "GET":
            self.asked.append({name.decode(): value.decode() for name, value in scope["headers"]})
            said = self._rest(self.asked[-1]["last-event-id"])
            await (reply(send, b"", said) if isinstance(said, int) else stream(send, said))
        elif scope["method"] == "POST":
            await self._answer(json.loads(body), send)
        else:
            await reply(send, b"")

    async def _answer(self, asked: JSON, send: Send) -> None:
        results = {"initialize": GREETING, "tools/list": listing(PLAIN), "notifications/initialized": {}}
        if asked["method"] == "tools/call":
            self.calls.append(asked)
            await stream(send, PLACE.format("e1"), breaks=self._breaks)
        elif asked["method"] in results:
            answer = {"jsonrpc": "2.0", "id": asked.get("id"), "result": results[asked["method"]]}
            await reply(send, answer, 200, "application/json", **{"mcp-session-id": "s1"})
        else:
            await reply(send, b"", 400)

    def answer(self) -> str:
        """Return the answer to the last call, as an event."""
        result = {"content": [{"type": "text", "text": "It is done."}]}
        return f"data: {json.dumps({'jsonrpc': '2.0', 'id': self.calls[-1]['id'], 'result': result})}\n\n"


async def stream(send: Send, said: str | None, *, breaks: bool = False) -> None:
    head = [(b"content-type", b"text/event-stream")]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    await send({"type": "http.response.body", "body": (said or "").encode(), "more_body": True})
    if breaks or said is None:
        raise ConnectionError
    await send({"type": "http.response.body", "body": b""})


@pytest.mark.parametrize("breaks", [False, True], ids=["ends", "breaks"])
def test_the_rest_of_an_answer_is_asked_for_as_often_as_the_server_leaves(tmp_path: Path, *, breaks: bool) -> None:
    def rest(after: str) -> str:
        return PLACE.format("e2") if after == "e1" else leaving.answer()

    leaving = Leaving(rest, breaks=breaks)
    with on_socket(leaving) as url, staged(tmp_path, [turn(calls=[call("act")]), "So."]) as stage:
        create(stage, False, input="?", tools=[mcp_tool(url)])
        assert outputs(stage) == ["It is done."]
    assert len(leaving.calls) == 1
    assert [one["last-event-id"] for one in leaving.asked] == ["e1", "e2"]
    assert {one["mcp-session-id"] for one in leaving.asked} == {"s1"}


@pytest.mark.parametrize("breaks", [False, True], ids=["ends", "breaks"])
@pytest.mark.parametrize("rest", [405, 404, None], ids=str)
def test_a_call_is_never_made_again_if_there_is_no_rest(tmp_path: Path, rest: int | None, *, breaks: bool) -> None:
    leaving = Leaving(lambda _: rest, breaks=breaks)
    with on_socket(leaving) as url, staged(tmp_path, [turn(calls=[call("act")]), "So."]) as stage:
        response = create(stage, False, input="?", tools=[mcp_tool(url)])
        assert items(response)[1]["error"]["type"] in {"mcp_protocol_error", "http_error"}
    assert len(leaving.calls) == 1
    assert len(leaving.asked) == 1


@pytest.mark.parametrize("times", [1, 100])
def test_a_server_that_refuses_a_version_which_it_speaks_is_asked_once_more(tmp_path: Path, times: int) -> None:
    tried: list[Any] = []
    speaking = server(listing(PLAIN))

    async def refusing(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and len(tried) < times:
            tried.append(scope)
            refusal = {"code": -32022, "message": "Not that one.", "data": {"supported": ["2026-07-28"]}}
            await reply(send, {"jsonrpc": "2.0", "id": 1, "error": refusal}, 400)
        else:
            await speaking(scope, receive, send)

    with on_socket(refusing) as url, staged(tmp_path, ["Hi."]) as stage:
        response = create(stage, False, input="?", tools=[mcp_tool(url)])
        assert bool(items(response)[0]["error"]) is (times > 1)
        assert [one["name"] for one in items(response)[0]["tools"]] == ([] if times > 1 else ["act"])
