"""A server that speaks Messages, on a socket."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from tests.backends.conftest import ModelServer, Notes, Script, a_request, event, reply, silence, stream
from tests.backends.test_messages_answer import HELLO, STOP, ends

from antwort.backends.build import build_routes
from antwort.backends.detection import LoopbackServer, find_backend
from antwort.backends.errors import DISCONNECTED, UNAUTHORIZED, UNAVAILABLE, UNSUITABLE, worth_another_try
from antwort.backends.messages.backend import MessagesBackend
from antwort.backends.messages.thinking import AnthropicSettings
from antwort.backends.router import ModelRoute
from antwort.config import BackendConfig
from antwort.errors import APIError, GatewayTimeoutError
from antwort.testing import ScriptServer, turn
from antwort.types import JSON

WHOLE: JSON = {
    "type": "message",
    "content": [{"type": "text", "text": "Hello"}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 9, "output_tokens": 5},
}
NO_LIST = reply({"type": "error", "error": {"type": "not_found_error", "message": "Not Found"}}, 404)
KEY = "sk-ant-0123456789"


def failing(status: int, kind: str, message: str, **headers: str) -> Script:
    return reply({"type": "error", "error": {"type": kind, "message": message}}, status, headers)


def listed(*names: str, more: bool = False, **fields: Any) -> JSON:
    data = [{"type": "model", "id": name, "created_at": "2025-01-01T00:00:00Z", **fields} for name in names]
    return {"data": data, "has_more": more, "first_id": names[0], "last_id": names[-1]}


ConnectMessages = Callable[..., MessagesBackend]


@pytest.fixture
async def connect_messages(server: ModelServer) -> AsyncIterator[ConnectMessages]:
    """Build backends that speak Messages to the server, and close them."""
    opened: list[MessagesBackend] = []

    def build(settings: JSON | None = None, **config: Any) -> MessagesBackend:
        own = AnthropicSettings(**{"cache": "off", **(settings or {})})
        backend = MessagesBackend(own, "claude", BackendConfig(**{"url": server.url, **config}))
        opened.append(backend)
        return backend

    yield build
    for backend in opened:
        await backend.close()


@pytest.mark.parametrize(
    ("auth", "expected"), [("x-api-key", {"x-api-key": KEY}), ("bearer", {"authorization": f"Bearer {KEY}"})]
)
async def test_a_turn_is_one_request(
    server: ModelServer, connect_messages: ConnectMessages, notes: Notes, auth: str, expected: JSON
) -> None:
    server.scripts += [NO_LIST, reply(WHOLE)]
    backend = connect_messages({"auth": auth}, api_key=KEY, headers={"Anthropic-Beta": "b"})
    for _ in range(2):  # the list is asked for once
        await backend.run(a_request(), notes)
    assert notes.calls[:3] == [("text", "Hello"), ("usage", 9, 5, 14), ("finish", "stop")]
    assert [(sent.method, sent.path) for sent in server.exchanges] == [
        ("GET", "/v1/models"),
        ("POST", "/v1/messages"),
        ("POST", "/v1/messages"),
    ]
    for sent in server.exchanges:
        told = {name: sent.headers.get(name) for name in ("x-api-key", "authorization") if name in sent.headers}
        assert told == expected
        assert (sent.headers["anthropic-version"], sent.headers["anthropic-beta"]) == ("2023-06-01", "b")


@pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/"])
async def test_the_path_that_sdks_add_need_not_be_in_the_url(
    server: ModelServer, connect_messages: ConnectMessages, notes: Notes, path: str
) -> None:
    server.scripts += [NO_LIST, reply(WHOLE)]
    await connect_messages(url=f"{server.url.removesuffix('/v1')}{path}").run(a_request(), notes)
    assert server.exchanges[-1].path == "/v1/messages"


async def test_a_stream_is_read_with_the_names_of_its_events(
    server: ModelServer, connect_messages: ConnectMessages, notes: Notes
) -> None:
    pieces = [f"event: {one['type']}\n".encode() + event(one) for one in [*HELLO, ends(), STOP]]
    server.scripts += [NO_LIST, stream(*pieces)]
    backend = connect_messages()
    for _ in range(2):
        await backend.run(a_request(stream=True), notes)
    assert notes.said() == "HelloHello"
    assert server.exchanges[-1].json()["stream"] is True
    assert server.connections == 2  # one of them for the list


@pytest.mark.parametrize("ended", [True, False])
@pytest.mark.parametrize("begun", [0, 6, 20])
async def test_a_stream_that_breaks_off_is_an_error(
    server: ModelServer, connect_messages: ConnectMessages, notes: Notes, ended: bool, begun: int
) -> None:
    server.scripts += [NO_LIST, stream(*map(event, HELLO[:2]), event(HELLO[2])[:begun], end=ended)]
    with pytest.raises(APIError) as caught:
        await connect_messages().run(a_request(stream=True), notes)
    assert (caught.value.status, caught.value.code, notes.said()) == (502, DISCONNECTED, "Hel")


@pytest.mark.parametrize(
    ("answer", "status", "code", "told"),
    [
        (failing(400, "invalid_request_error", "max_tokens: bad"), 400, None, "max_tokens: bad"),
        (failing(400, "invalid_request_error", "prompt is too long: 9 > 8"), 400, "context_length_exceeded", "9 > 8"),
        (
            failing(400, "invalid_request_error", "input length and `max_tokens` exceed context limit: 9"),
            *(400, "context_length_exceeded", "context limit"),
        ),
        (failing(401, "authentication_error", f"no {KEY}"), 502, UNAUTHORIZED, "check its api_key"),
        (failing(404, "not_found_error", "model: m"), 404, "model_not_found", "'m'"),
        (failing(404, "not_found_error", "Not Found"), 502, UNSUITABLE, "check its url"),
        (failing(413, "request_too_large", "big"), 413, "request_too_large", "big"),
        (failing(429, "rate_limit_error", f"slow, {KEY}", **{"retry-after": "7"}), 429, "rate_limit_exceeded", "slow"),
        (failing(500, "api_error", "Oh"), 502, "backend_error", "Oh"),
        (failing(529, "overloaded_error", "Busy", **{"retry-after": "3"}), 503, UNAVAILABLE, "Busy"),
    ],
)
async def test_refusals_are_errors_without_the_key(
    server: ModelServer,
    connect_messages: ConnectMessages,
    notes: Notes,
    answer: Script,
    status: int,
    code: str | None,
    told: str,
) -> None:
    server.scripts += [NO_LIST, answer]
    with pytest.raises(APIError) as caught:
        await connect_messages(api_key=KEY).run(a_request(), notes)
    error = caught.value
    assert (error.status, error.code if code else None) == (status, code)
    assert told in error.message
    assert KEY not in error.message
    assert error.headers.get("retry-after") == {429: "7", 503: "3"}.get(status)
    assert worth_another_try(error) is (status in {429, 503})


async def test_models_are_listed_page_by_page(server: ModelServer, connect_messages: ConnectMessages) -> None:
    server.scripts += [reply(listed("a/1", "b", more=True)), reply(listed("c-20250101", max_input_tokens=200_000))]
    backend = connect_messages(url=f"{server.url}?tier=1")
    assert [(info.id, info.owned_by, info.created) for info in await backend.models()] == [
        (name, "claude", 1735689600) for name in ("a/1", "b", "c-20250101")
    ]
    assert [sent.path for sent in server.exchanges] == [
        "/v1/models?tier=1",
        "/v1/models?after_id=b&tier=1",
    ]
    assert [await backend.context_window(name) for name in ("c-20250101", "c", "b")] == [200_000, 200_000, None]
    assert await connect_messages(context_window=7).context_window("c") == 7


async def test_a_list_that_never_ends_does(server: ModelServer, connect_messages: ConnectMessages) -> None:
    server.scripts.append(reply(listed("a", more=True)))
    assert [info.id for info in await connect_messages().models()] == ["a", "a"]


@pytest.mark.parametrize(("brings", "asked"), [(False, 1), (True, 100)])
async def test_a_list_with_ever_new_pages_ends_too(
    server: ModelServer, connect_messages: ConnectMessages, brings: bool, asked: int
) -> None:
    pages = [listed(f"m{number}", more=True) for number in range(asked + 1)]
    server.scripts += [reply(page if brings else {**page, "data": []}) for page in pages]
    assert len(await connect_messages().models()) == (asked if brings else 0)
    assert len(server.exchanges) == asked


async def test_what_the_list_says_of_a_model_is_heeded_from_the_first_turn_on(
    server: ModelServer, connect_messages: ConnectMessages, notes: Notes
) -> None:
    adaptive = {"thinking": {"types": {"adaptive": {"supported": True}}}, "effort": {"high": {"supported": True}}}
    server.scripts += [reply(listed("m-20260101", max_tokens=1000, capabilities=adaptive)), reply(WHOLE)]
    await connect_messages().run(a_request(effort="high"), notes)
    sent = server.exchanges[-1].json()
    assert (sent["max_tokens"], sent["thinking"], sent["output_config"]) == (
        1000,
        {"type": "adaptive"},
        {"effort": "high"},
    )


async def test_a_list_that_hangs_takes_no_more_than_the_time_of_the_turn(
    server: ModelServer, connect_messages: ConnectMessages, notes: Notes
) -> None:
    asked = asyncio.Event()
    server.scripts += [silence(asked), reply(WHOLE)]
    with pytest.raises(GatewayTimeoutError, match="deadline"):
        await connect_messages().run(a_request(deadline=time.monotonic() + 0.01), notes)


async def test_tokens_are_counted_where_the_server_does(connect_messages: ConnectMessages) -> None:
    with ScriptServer([], models=["m"]) as server:
        backend = connect_messages(url=server.url)
        assert await backend.count_tokens(a_request(items=[{"role": "user", "content": "one two three"}])) == 3
        assert "max_tokens" not in server.tokenized[0]


@pytest.mark.parametrize("answer", [reply({}), reply({"input_tokens": None}), NO_LIST])
async def test_who_does_not_count_is_left_alone(
    server: ModelServer, connect_messages: ConnectMessages, answer: Script
) -> None:
    server.scripts += [NO_LIST, answer]
    backend = connect_messages()
    assert [await backend.count_tokens(a_request()) for _ in range(2)] == [None, None]
    assert len(server.exchanges) == 2


# --- among backends ---------------------------------------------------------------------------------------------------


def routes(**config: Any) -> list[ModelRoute]:
    return build_routes({"claude": BackendConfig.model_validate(config)})


async def test_the_configuration_names_it_and_its_settings() -> None:
    with ScriptServer([turn("Hi")], models=["m"]) as server:
        chosen = {"name": "anthropic", "max_tokens": 77, "cache": "1h"}
        [route] = routes(url=server.url, api=chosen, api_key=KEY)
        notes = Notes()
        await route.backend.run(a_request(), notes)
        await route.backend.close()
        assert (notes.said(), server.requests[0]["max_tokens"]) == ("Hi", 77)
        assert server.requests[0]["messages"][0]["content"][0]["cache_control"]["ttl"] == "1h"


def test_it_reads_pdf_unless_told_otherwise_and_nothing_is_passed_through_to_it() -> None:
    read = [
        routes(url="http://localhost", **said)[0]
        for said in ({"api": "anthropic"}, {"api": "anthropic", "pdf": False}, {})
    ]
    assert [(route.files, route.transport is None) for route in read] == [
        ("pdf", True),
        ("text", True),
        ("text", False),
    ]


async def test_one_on_a_usual_port_is_found_with_what_it_speaks(server: ModelServer) -> None:
    server.scripts.append(reply(listed("m")))
    port = int(server.url.rpartition(":")[2].removesuffix("/v1"))
    found = await find_backend({}, timeout=10, ports=[LoopbackServer("Some", port)])
    assert found is not None
    assert (found.config.api, found.config.url) == ("anthropic", server.url)
