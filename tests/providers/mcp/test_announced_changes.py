"""Servers of the operator that say over HTTP that they have other tools now."""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp.server.mcpserver import Context as ToolContext
from mcp.server.mcpserver import MCPServer
from mcp.server.subscriptions import InMemorySubscriptionBus, ServerEvent
from starlette.requests import Request
from starlette.types import Receive, Scope, Send
from tests.http.sdk import Served, create, outputs
from tests.providers.mcp.stage import ERAS, on_socket, running_server, staged
from tests.providers.mcp.test_approvals import items
from tests.providers.mcp.test_hostile_servers import reply
from typing_extensions import override

from antwort.providers.mcp import changes, offered
from antwort.testing import call, turn
from antwort.types import JSON

CHANGED = b'data: {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}\n\n'
ASKING = b'data: {"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": {"message": "Well?"}}\n\n'
Listening = Callable[["Shop", Send, Receive], Awaitable[None]]
"""What a server does with who listens to it."""


async def tell(shop: "Shop", send: Send, receive: Receive) -> None:
    """Say what the test wants to be said, until nobody listens."""
    await begin(send)
    queue, loop = asyncio.Queue[bytes](), asyncio.get_running_loop()
    shop.say = lambda said: loop.call_soon_threadsafe(queue.put_nowait, said)

    async def speak() -> None:
        while True:
            await send({"type": "http.response.body", "body": await queue.get(), "more_body": True})

    speaking = asyncio.create_task(speak())
    shop.is_heard.set()
    while (await receive())["type"] != "http.disconnect":
        pass
    speaking.cancel()
    shop.is_left.set()


async def begin(send: Send) -> None:
    head = [(b"content-type", b"text/event-stream")]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    await send({"type": "http.response.body", "body": b": hello\n\n", "more_body": True})


async def refuse(shop: "Shop", send: Send, _: Receive) -> None:
    await reply(send, b"", 405)


async def answer_at_once(shop: "Shop", send: Send, _: Receive) -> None:
    await reply(send, {"jsonrpc": "2.0", "id": 1, "error": {"code": -32601, "message": "No."}})


async def end_at_once(shop: "Shop", send: Send, _: Receive) -> None:
    await begin(send)
    await send({"type": "http.response.body", "body": b""})


async def flood(shop: "Shop", send: Send, _: Receive) -> None:
    await begin(send)
    for _piece in range(100):  # the server does not see that nobody reads any more
        await send({"type": "http.response.body", "body": CHANGED * 100, "more_body": True})


async def swell(shop: "Shop", send: Send, _: Receive) -> None:
    await begin(send)
    for _piece in range(100):
        await send({"type": "http.response.body", "body": b"data: " + b"x" * 65536, "more_body": True})


async def say_nonsense(shop: "Shop", send: Send, _: Receive) -> None:
    await begin(send)
    await send({"type": "http.response.body", "body": b"data: {\n\n", "more_body": True})


class Shop:
    """A server of either era that has what it is given, and says so as a test wants."""

    def __init__(self, era: str = "stateless", listening: Listening = tell, *, announces: bool = True) -> None:
        self.names = ["first"]
        self.asked: list[str] = []
        self.answers: list[JSON] = []
        self.say: Callable[[bytes], object] = lambda _: None
        self.is_heard, self.is_left, self.is_answered = threading.Event(), threading.Event(), threading.Event()
        self._begun = threading.Semaphore(0)
        self._era = era
        self._listening = listening
        self._capabilities: JSON = {"tools": {"listChanged": announces}}

    @property
    def streams(self) -> int:
        """How often somebody began to listen."""
        return sum(name in {"GET", "subscriptions/listen"} for name in self.asked)

    def wait_for_streams(self, number: int) -> None:
        """Wait until somebody has begun to listen for so many times more."""
        for _ in range(number):
            assert self._begun.acquire(timeout=120)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        body = await Request(scope, receive).body()
        said = json.loads(body or b"{}")
        self.asked.append(said.get("method") or scope["method"])
        if self.asked[-1] == ("GET" if self._era == "greeted" else "subscriptions/listen"):
            self._begun.release()
            await self._listening(self, send, receive)
        elif "method" not in said:
            self.answers.append(said)
            self.is_answered.set()
            await reply(send, b"", 202)
        else:
            await self._reply(said, send)

    async def _reply(self, said: JSON, send: Send) -> None:
        tools = [{"name": name, "inputSchema": {"type": "object"}} for name in self.names]
        speaks: JSON = {"supportedVersions": ["2026-07-28"]} if self._era == "stateless" else {}
        results: JSON = {
            "server/discover": {**speaks, "capabilities": self._capabilities},
            "initialize": {"protocolVersion": "2025-11-25", "capabilities": self._capabilities},
            "tools/list": {"tools": tools, "ttlMs": 300_000},
            "tools/call": {"content": [{"type": "text", "text": "Here."}]},
        }
        result = results.get(said["method"], {})
        await reply(
            send,
            {"jsonrpc": "2.0", "id": said.get("id"), "result": result},
            200,
            "application/json",
            **{"mcp-session-id": "s"},
        )


def settings(url: str, **fields: Any) -> JSON:
    return {"servers": {"shop": {"url": url, "offer": "always", **fields}}}


def wait_until_offered(stage: Served, name: str) -> None:
    """Wait until a function is offered: a tool of /mcp."""
    asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    headers = {"mcp-protocol-version": "2025-06-18"}
    with httpx.Client(base_url=stage.server.url, timeout=60) as client:
        while name not in client.post("/mcp", json=asked, headers=headers).text:
            pass


@pytest.mark.parametrize("era", ERAS)
def test_what_a_server_has_newly_is_offered_and_listed_for_all(tmp_path: Path, era: str) -> None:
    shop, named = Shop(era), [{"type": "mcp", "server_label": "shop"}]
    with on_socket(shop) as url, staged(tmp_path, ["Hi.", "Hi."], settings=settings(f"{url}/mcp")) as stage:
        before = items(create(stage, False, input="?", tools=named))[0]["tools"]
        assert shop.is_heard.wait(120)
        shop.names.append("second")
        shop.say(CHANGED)
        wait_until_offered(stage, "second")
        after = items(create(stage, False, input="?", tools=named))[0]["tools"]
        assert [[tool["name"] for tool in tools] for tools in (before, after)] == [["first"], ["first", "second"]]
        shop.say(ASKING)
        assert shop.is_answered.wait(120)
    assert shop.is_left.wait(120)
    assert shop.answers[0]["result"] == {"action": "decline"}
    assert shop.streams == 1  # for two tenants: that of the request, and antwort itself


class Bus(InMemorySubscriptionBus):
    """Tells the test that somebody listens."""

    def __init__(self) -> None:
        super().__init__()
        self.is_heard = threading.Event()

    @override
    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        leave = super().subscribe(listener)
        self.is_heard.set()
        return leave


def test_a_server_of_the_official_sdk_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offered, "_USUAL", 300.0)
    bus = Bus()
    tools = MCPServer("shop", subscriptions=bus)

    @tools.tool()
    async def first(ctx: ToolContext[Any]) -> str:
        """Have another."""
        tools.add_tool(lambda: "It is.", name="second", description="Be the second.")
        await ctx.notify_tools_changed()
        return "There is another."

    steps = [turn(calls=[call("first")]), "Done."]
    with (
        running_server(tools, events=True) as server,
        staged(tmp_path, steps, settings=settings(server.url)) as stage,
    ):
        assert bus.is_heard.wait(120)
        create(stage, False, input="Go!")
        wait_until_offered(stage, "second")


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("listening", [refuse, answer_at_once, end_at_once, flood, swell, say_nonsense])
def test_a_stream_that_is_of_no_use_costs_nothing(
    tmp_path: Path, era: str, listening: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "_FIRST", 0.01)
    shop = Shop(era, listening)
    again = 1 if listening in {refuse, answer_at_once} else 3
    with (
        on_socket(shop) as url,
        staged(tmp_path, [turn(calls=[call("first")]), "So."], settings=settings(f"{url}/mcp")) as stage,
    ):
        create(stage, False, input="Go!")
        assert outputs(stage) == ["Here."]
        shop.wait_for_streams(again)
    assert again == 3 or shop.streams == 1


def test_a_stream_is_opened_anew_after_a_while_and_what_was_missed_meanwhile_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "_FIRST", 0.01)
    monkeypatch.setattr(changes, "_LASTS", 0.2)
    shop = Shop()
    with on_socket(shop) as url, staged(tmp_path, [], settings=settings(f"{url}/mcp")) as stage:
        shop.wait_for_streams(1)
        shop.names.append("second")  # and nothing is said of it
        wait_until_offered(stage, "second")
        shop.wait_for_streams(2)


def test_no_more_servers_are_listened_to_than_there_may_be_streams(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "_MOST", 1)
    one, other = Shop(), Shop()
    with on_socket(one) as url, on_socket(other) as other_url:
        servers = {"one": {"url": url, "offer": "always"}}
        servers["other"] = {"url": other_url, "offer": "always", "prefix": "other_"}
        with staged(tmp_path, [], settings={"servers": servers}) as stage:
            wait_until_offered(stage, "other_first")
            wait_until_offered(stage, '"first"')
            while not one.is_heard.wait(0.1) and not other.is_heard.wait(0.1):
                pass
    assert one.streams + other.streams == 1


def test_who_announces_nothing_is_not_listened_to_and_neither_is_who_a_request_names(tmp_path: Path) -> None:
    silent, named, lent = Shop(announces=False), Shop(), Shop()
    with on_socket(silent) as url, on_socket(named) as other, on_socket(lent) as third:
        servers = {"shop": {"url": url, "offer": "always"}, "lent": {"url": third}}
        steps = [turn(calls=[call("other__first")]), "So."]
        with staged(tmp_path, steps, settings={"servers": servers}) as stage:
            tool: Any = {"type": "mcp", "server_label": "other", "server_url": other, "require_approval": "never"}
            his: Any = {"type": "mcp", "server_label": "lent", "authorization": "his-token"}
            create(stage, False, input="Go!", tools=[tool, his])
            assert outputs(stage) == ["Here."]
    assert all("tools/list" in shop.asked for shop in (silent, named, lent))
    assert (silent.streams, named.streams, lent.streams) == (0, 0, 0)
