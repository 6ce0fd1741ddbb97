"""From the configuration to answers: all wrappers at once, against servers on sockets."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.backends.conftest import (
    ANSWER,
    HELLO,
    Exchange,
    ModelServer,
    Notes,
    a_request,
    reply,
    stream,
    wait_until_examined,
)

from antwort.backends import GuardedBackend, ModelRouter, build_router
from antwort.config import Config
from antwort.errors import ConfigError, ServiceUnavailableError

GUARD = 20.0
MESSAGE = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hello"}]}


@pytest.fixture
async def spare() -> AsyncIterator[ModelServer]:
    model = ModelServer()
    listener = await asyncio.start_server(model.serve, "127.0.0.1", 0)
    model.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/v1"
    async with listener:
        yield model
        await model.stop()


def config(**backends: Any) -> Config:
    return Config.model_validate({"backends": backends})


async def run(router: ModelRouter, notes: Notes, **request: Any) -> None:
    try:
        await router.run(a_request(**request), notes)
    finally:
        await router.close()


async def test_a_server_that_is_down_is_replaced_by_its_fallback(
    server: ModelServer, spare: ModelServer, notes: Notes
) -> None:
    server.scripts.append(reply({"error": "restarting"}, 503))
    spare.scripts.append(stream(*HELLO))
    settings = config(
        main={"url": server.url, "fallback": "spare", "fallback_model": "small", "retries": 1},
        spare={"url": spare.url, "aliases": {"small": "tiny"}},
    )
    await run(build_router(settings), notes, model="main/big", stream=True)
    assert notes.said() == "Hello"
    asked = [exchange for exchange in server.exchanges if exchange.method == "POST"]  # it may list the whole name
    assert [exchange.json()["model"] for exchange in asked] == ["big", "big"]
    assert [exchange.json()["model"] for exchange in spare.exchanges] == ["tiny"]


async def _refusal(router: ModelRouter) -> str:
    with pytest.raises(ServiceUnavailableError, match="'main'") as caught:
        await router.run(a_request(), Notes())
    return caught.value.message


@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_a_server_that_is_down_is_left_alone_until_it_answers(
    server: ModelServer, notes: Notes, api: str
) -> None:
    server.scripts.append(reply({"error": "restarting"}, 503))
    router = build_router(config(main={"url": server.url, "retries": 0, "api": api}))
    async with asyncio.timeout(GUARD):
        while "cannot be reached at the moment" not in await _refusal(router):
            pass
        asked = len(_turns(server))
        assert "restarting" not in await _refusal(router)
        assert len(_turns(server)) == asked
        assert {exchange.path for exchange in server.exchanges if exchange.method == "GET"} == {"/v1/models"}
        server.scripts[0] = reply(ANSWER if api == "chat" else {"status": "completed", "output": [MESSAGE]})
        guarded = (await router.resolve("m")).backend
        assert isinstance(guarded, GuardedBackend)
        await wait_until_examined(guarded.breaker)
        await run(router, notes)
    assert notes.said() == "Hello"


async def test_requests_that_fail_leave_a_server_to_the_others(server: ModelServer, notes: Notes) -> None:
    async def script(exchange: Exchange) -> None:
        if exchange.method == "GET":
            await reply({"data": []})(exchange)
        elif exchange.json()["model"] == "good":
            await reply(ANSWER)(exchange)
        else:
            await reply({"error": "out of memory"}, 503)(exchange)

    server.scripts.append(script)
    router = build_router(config(main={"url": server.url, "retries": 0}))
    for _ in range(20):
        with pytest.raises(ServiceUnavailableError, match="out of memory"):
            await router.run(a_request(model="bad"), Notes())
    await run(router, notes, model="good")
    assert notes.said() == "Hello"
    assert any(exchange.method == "GET" for exchange in server.exchanges)


def _turns(server: ModelServer) -> list[Exchange]:
    return [exchange for exchange in server.exchanges if exchange.method == "POST"]


async def test_settings_of_a_backend_reach_its_requests(server: ModelServer, notes: Notes) -> None:
    server.scripts.append(reply(ANSWER))
    router = build_router(config(main={"url": server.url, "extra_body": {"top_k": 5}, "aliases": {"fast": "llama"}}))
    target = await router.resolve("fast")
    assert target.route.transport is not None
    await run(router, notes, model="fast")
    sent = server.exchanges[0].json()
    assert (sent["model"], sent["top_k"]) == ("llama", 5)


@pytest.mark.parametrize(
    ("backends", "reason"),
    [
        (
            {"a": {"fallback": "bee"}, "bees": {}},
            "backends.a.fallback: There is no backend 'bee'; did you mean 'bees'?",
        ),
        ({"a": {"fallback": "a"}}, "backends.a.fallback: The backend 'a' would be its own fallback."),
        (
            {"a": {"fallback": "b"}, "b": {"fallback": "a"}},
            "backends.b.fallback: The backend 'a' would be its own fallback.",
        ),
    ],
)
def test_a_fallback_that_leads_nowhere_is_a_configuration_error(backends: dict[str, Any], reason: str) -> None:
    entries = {name: {"url": "http://localhost", **entry} for name, entry in backends.items()}
    with pytest.raises(ConfigError) as caught:
        build_router(config(**entries))
    assert str(caught.value) == reason


async def test_a_router_without_backends_says_so(notes: Notes) -> None:
    with pytest.raises(ServiceUnavailableError, match="No backend is configured"):
        await run(build_router(Config()), notes)
