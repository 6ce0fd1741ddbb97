"""Threads and slots of functions, shared by tenants."""

import asyncio
import threading

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from antwort.concurrency.slots import Queues
from antwort.context import Context
from antwort.functions import FunctionRegistry, Provider, function, route
from antwort.web.requests import CONTEXT

PATIENCE = 60.0


class Holding(Provider):
    """Functions and routes that hold what they got until they are told to let it go."""

    name = "holding"

    def __init__(self) -> None:
        super().__init__()
        self.let_go = threading.Event()
        self.go_on = asyncio.Event()

    @function(timeout=PATIENCE)
    def on_a_thread(self, hold: bool) -> str:
        """Hold a thread."""
        if hold:
            self.let_go.wait(PATIENCE)
        return "done"

    @function(timeout=PATIENCE, concurrency=4)
    async def in_a_slot(self, hold: bool) -> str:
        """Hold a slot."""
        if hold:
            await self.go_on.wait()
        return "done"

    @route("GET", "/v1/holding")
    def held(self, hold: bool) -> dict[str, str]:
        """Hold a thread."""
        return {"said": self.on_a_thread(hold)}


@pytest.mark.parametrize(
    ("name", "queue"), [("on_a_thread", "threads of holding"), ("in_a_slot", "function in_a_slot")]
)
async def test_a_call_does_not_wait_for_those_of_another_tenant(name: str, queue: str) -> None:
    queues, provider = Queues(several=True), Holding()
    registry = FunctionRegistry(threads=4, queues=queues)
    registry.register(provider)
    async with registry, asyncio.timeout(PATIENCE):
        attack = [asyncio.create_task(registry.execute(name, {"hold": True}, Context("a"))) for _ in range(6)]
        while queues.by_name[queue].waiting < 3:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.01)
        try:
            assert (await registry.execute(name, {"hold": False}, Context("b"))).output == "done"
            assert not any(call.done() for call in attack)
        finally:
            provider.let_go.set()
            provider.go_on.set()
        assert {result.output for result in await asyncio.gather(*attack)} == {"done"}
    assert queues.by_name[queue].waiting == 0


async def test_too_many_calls_that_wait_are_refused_and_too_many_requests_are_a_429() -> None:
    queues, provider = Queues(several=True, most_waiting=2), Holding()
    registry = FunctionRegistry(threads=4, queues=queues)
    registry.register(provider)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await registry.http_handler()({**scope, CONTEXT: Context("a", scopes=frozenset({"*"}))}, receive, send)

    async with registry, asyncio.timeout(PATIENCE):
        attack = [asyncio.create_task(registry.execute("on_a_thread", {"hold": True}, Context("a"))) for _ in range(5)]
        while queues.by_name["threads of holding"].waiting < 2:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.01)
        try:
            refused = await registry.execute("on_a_thread", {"hold": True}, Context("a"))
            assert (refused.status, refused.output.partition(",")[0]) == (
                "unavailable",
                "2 requests of this tenant wait in the queue 'threads of holding' already",
            )
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://local") as client:
                answer = await client.get("/v1/holding", params={"hold": False})
            assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
            assert answer.json()["error"]["code"] == "queue_full"
            assert "queue 'threads of holding'" in answer.json()["error"]["message"]
        finally:
            provider.let_go.set()
        await asyncio.gather(*attack)
