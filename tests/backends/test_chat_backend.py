"""The Chat Completions backend against a server on a socket."""

import asyncio
import gzip
import json
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from tests.backends.conftest import (
    ANSWER,
    DONE,
    HELLO,
    Connect,
    Exchange,
    ModelServer,
    Notes,
    a_request,
    delta,
    event,
    reply,
    retrying,
    silence,
    stream,
)
from typing_extensions import override

from antwort.backends import GuardedBackend, Retries
from antwort.backends.base import ToolDefinitions
from antwort.backends.chat.backend import ChatBackend
from antwort.backends.errors import BROKEN, BUSY, DEADLINE, DISCONNECTED, TIMEOUT, UNREACHABLE, may_pass
from antwort.backends.resilience import CircuitBreaker
from antwort.config import BackendConfig
from antwort.errors import (
    APIError,
    BadGatewayError,
    BadRequestError,
    ConfigError,
    GatewayTimeoutError,
    RateLimitError,
    ServiceUnavailableError,
)

GUARD = 20.0


async def test_a_stream_is_fed_piece_by_piece(server: ModelServer, connect: Connect, notes: Notes) -> None:
    usage = event({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}})
    server.scripts.append(stream(*HELLO[:-1], usage, DONE))
    await connect().run(a_request(stream=True), notes)
    assert notes.calls == [("text", "Hel"), ("text", "lo"), ("usage", 3, 2, 5), ("finish", "stop")]
    assert 4 not in notes.flushed, "the end of a turn is left to whoever has asked"
    body = server.exchanges[0].json()
    assert body["stream"] is True
    assert body["stream_options"] == {"include_usage": True}


async def test_pieces_that_arrive_together_with_the_end_are_left_to_whoever_has_asked(
    server: ModelServer, connect: Connect, notes: Notes
) -> None:
    server.scripts.append(stream(b"".join(HELLO)))
    await connect().run(a_request(stream=True), notes)
    assert notes.flushed == []


async def test_a_stream_sent_byte_by_byte_gives_the_same(server: ModelServer, connect: Connect, notes: Notes) -> None:
    whole = b"".join([*HELLO[:2], delta(content="ö€🙂"), *HELLO[3:]])
    server.scripts.append(stream(*(bytes([byte]) for byte in whole)))
    await connect().run(a_request(stream=True), notes)
    assert notes.calls == [("text", "Hel"), ("text", "ö€🙂"), ("finish", "stop")]


async def test_a_whole_answer_is_fed_like_a_stream(server: ModelServer, connect: Connect, notes: Notes) -> None:
    server.scripts.append(reply(ANSWER))
    await connect().run(a_request(), notes)
    assert notes.calls == [("text", "Hello"), ("usage", 3, 1, 4), ("finish", "stop")]
    assert notes.flushed == []
    assert "stream" not in server.exchanges[0].json()


async def test_a_server_that_does_not_stream_although_asked_is_understood(
    server: ModelServer, connect: Connect, notes: Notes
) -> None:
    server.scripts.append(reply(ANSWER, kind="application/json; charset=utf-8"))
    await connect().run(a_request(stream=True), notes)
    assert notes.said() == "Hello"


async def test_a_server_that_always_streams_is_understood(server: ModelServer, connect: Connect, notes: Notes) -> None:
    server.scripts.append(stream(*HELLO))
    await connect().run(a_request(), notes)
    assert notes.said() == "Hello"


async def test_a_compressed_answer_is_read(server: ModelServer, connect: Connect, notes: Notes) -> None:
    server.scripts.append(reply(gzip.compress(json.dumps(ANSWER).encode()), headers={"content-encoding": "gzip"}))
    await connect().run(a_request(), notes)
    assert notes.said() == "Hello"


async def test_keys_and_headers_are_sent(server: ModelServer, connect: Connect, notes: Notes) -> None:
    server.scripts.append(reply(ANSWER))
    await connect(api_key="sk-secret\n", headers={"X-Team": "blue"}).run(a_request(), notes)
    sent = server.exchanges[0]
    assert (sent.method, sent.path) == ("POST", "/v1/chat/completions")
    assert sent.headers["authorization"] == "Bearer sk-secret"
    assert sent.headers["x-team"] == "blue"
    assert sent.headers["content-type"] == "application/json"


async def test_credentials_and_queries_in_the_url_are_used(server: ModelServer, connect: Connect, notes: Notes) -> None:
    server.scripts.append(reply(ANSWER))
    url = server.url.replace("http://", "http://me:p%40ss@") + "/?api-version=2"
    await connect(url=url).run(a_request(), notes)
    assert server.exchanges[0].path == "/v1/chat/completions?api-version=2"
    assert server.exchanges[0].headers["authorization"] == "Basic bWU6cEBzcw=="


async def test_cookies_are_not_kept(server: ModelServer, connect: Connect, notes: Notes) -> None:
    server.scripts.append(reply(ANSWER, headers={"set-cookie": "a=b; path=/"}))
    backend = connect()
    await backend.run(a_request(), notes)
    await backend.run(a_request(), notes)
    assert "cookie" not in server.exchanges[1].headers


@pytest.mark.parametrize("proxy", [False, True])
async def test_many_tools_that_are_kept_encoded_arrive_as_they_are(
    server: ModelServer, connect: Connect, notes: Notes, monkeypatch: pytest.MonkeyPatch, proxy: bool
) -> None:
    if proxy:  # it is spoken to through another client
        monkeypatch.setenv("http_proxy", server.url.removesuffix("/v1"))
        monkeypatch.setenv("no_proxy", "")
    tools = [{"type": "function", "name": f"f{n}", "description": "é" * 40} for n in range(400)]
    shared = ToolDefinitions(tools[1:])
    backend = connect(url="http://models.internal/v1") if proxy else connect()
    for sent in (shared, ToolDefinitions(tools[:1], shared), tools):
        server.scripts.append(reply(ANSWER))
        await backend.run(a_request(tools=sent, tool_choice="auto", temperature=0.5), notes)
    first, second, third = [exchange.json() for exchange in server.exchanges]
    assert second == third
    assert first == {**third, "tools": third["tools"][1:]}


@pytest.mark.parametrize("headers", [{"X-Team": "a\r\nb: c"}, {"X-Team": "grün"}, {"X Team": "a"}, {"": "a"}])
def test_a_header_that_cannot_be_sent_is_a_configuration_error(headers: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"backends\.local: The header"):
        ChatBackend("local", BackendConfig(url="http://localhost", headers=headers))


def test_a_key_that_cannot_be_sent_is_not_shown() -> None:
    with pytest.raises(ConfigError) as caught:
        ChatBackend("local", BackendConfig.model_validate({"url": "http://localhost", "api_key": "sk-sec\nret"}))
    assert "sec" not in str(caught.value)


async def test_connections_are_used_again(server: ModelServer, connect: Connect, notes: Notes) -> None:
    server.scripts.append(stream(*HELLO))
    backend = connect()
    for _ in range(3):
        await backend.run(a_request(stream=True), notes)
    assert len(server.exchanges) == 3
    assert server.connections == 1


async def test_a_kept_connection_that_the_server_closed_is_replaced(
    server: ModelServer, connect: Connect, notes: Notes
) -> None:
    async def answer_once(exchange: Exchange) -> None:
        await reply(ANSWER)(exchange)
        await exchange.reader.readuntil(b"\r\n\r\n")  # the next request is met with a closed connection
        exchange.writer.close()

    server.scripts.extend([answer_once, reply(ANSWER)])
    backend = connect()
    await backend.run(a_request(), notes)
    await backend.run(a_request(), notes)
    assert notes.said() == "HelloHello"
    assert server.connections == 2


async def test_a_server_that_never_ends_its_stream_is_not_waited_for(
    server: ModelServer, connect: Connect, notes: Notes
) -> None:
    left = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        await exchange.begin_stream()
        await exchange.chunk(b"".join(HELLO))
        await exchange.gone()
        left.set()

    server.scripts.append(script)
    async with asyncio.timeout(GUARD):
        await connect().run(a_request(stream=True), notes)
        await left.wait()
    assert notes.said() == "Hello"


# --- leaving --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("begun", [True, False])
async def test_cancelling_closes_the_connection_at_once(
    server: ModelServer, connect: Connect, notes: Notes, begun: bool
) -> None:
    asked, left = asyncio.Event(), asyncio.Event()

    async def script(exchange: Exchange) -> None:
        if begun:
            await exchange.begin_stream()
            await exchange.chunk(delta(content="Hel"))
        asked.set()
        await exchange.gone()
        left.set()

    server.scripts.append(script)
    task = asyncio.create_task(connect().run(a_request(stream=True), notes))
    async with asyncio.timeout(GUARD):
        await (notes.progress if begun else asked).wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await left.wait()


async def test_a_sink_that_fails_closes_the_connection(server: ModelServer, connect: Connect) -> None:
    left = asyncio.Event()

    class Broken(Notes):
        @override
        async def flush(self) -> None:
            raise RuntimeError("the client is gone")

    async def script(exchange: Exchange) -> None:
        await exchange.begin_stream()
        await exchange.chunk(delta(content="Hel"))
        await exchange.gone()
        left.set()

    server.scripts.append(script)
    async with asyncio.timeout(GUARD):
        with pytest.raises(RuntimeError, match="client is gone"):
            await connect().run(a_request(stream=True), Broken())
        await left.wait()


class QuickNotes(Notes):
    """Sends what came at once, but now and then it has to wait; it fails when it is told to."""

    def __init__(self, *, waits: bool = False, fails: bool = False) -> None:
        super().__init__()
        self.tasks: list[object] = []
        self._waits = waits
        self._fails = fails

    @override
    def text_burst(self, deltas: Sequence[str]) -> None:
        self.tasks.append(asyncio.current_task())
        super().text_burst(deltas)

    def flush_now(self) -> bool:
        if self._fails:
            raise RuntimeError("the client is gone")
        self.progress.set()
        return not self._waits


def paced(notes: Notes, *pieces: bytes) -> Callable[[Exchange], Awaitable[None]]:
    """Return a server that sends each piece when the one before has been passed on."""

    async def script(exchange: Exchange) -> None:
        await exchange.begin_stream()
        for piece in pieces:
            await exchange.chunk(piece)
            await notes.progress.wait()
            notes.progress.clear()
        await exchange.chunk(delta("stop"))
        await exchange.chunk(DONE)
        await exchange.chunk(b"")

    return script


@pytest.mark.parametrize("waits", [False, True])
async def test_a_sink_that_need_not_wait_is_fed_without_a_change_of_tasks(
    server: ModelServer, connect: Connect, waits: bool
) -> None:
    notes = QuickNotes(waits=waits)
    words = [f"{number} " for number in range(9)]
    server.scripts.append(paced(notes, *(delta(content=word) for word in words)))
    async with asyncio.timeout(GUARD):
        await connect().run(a_request(stream=True), notes)
    assert notes.calls == [*(("text", word) for word in words), ("finish", "stop")]
    if not waits:  # the first are waited for: there may be no more
        assert notes.tasks == [asyncio.current_task()] * 3 + [None] * 6


async def test_a_quick_sink_that_fails_is_not_taken_for_the_server(server: ModelServer, connect: Connect) -> None:
    notes, backend = QuickNotes(fails=True), connect()
    breaker = CircuitBreaker("local", backend.is_there)
    server.scripts.append(paced(notes, *(delta(content=letter) for letter in "Hello")))
    async with asyncio.timeout(GUARD):
        with pytest.raises(RuntimeError, match="client is gone"):
            await GuardedBackend(backend, breaker).run(a_request(stream=True), notes)
    assert not breaker.failures


async def test_what_is_handed_over_counts_for_the_length_of_an_answer(server: ModelServer, connect: Connect) -> None:
    notes = QuickNotes()
    piece = delta(content="x" * 100)
    server.scripts.append(paced(notes, *[piece] * 9))
    async with asyncio.timeout(GUARD):
        with pytest.raises(BadGatewayError, match="max_answer_bytes"):
            await connect(max_answer_bytes=6 * len(piece)).run(a_request(stream=True), notes)
    assert len(notes.calls) == 6


# --- failures -------------------------------------------------------------------------------------------------------


async def _silent(exchange: Exchange) -> None:
    await exchange.gone()


async def _silent_after_the_head(exchange: Exchange) -> None:
    await exchange.begin_stream()
    await exchange.gone()


async def _silent_after_a_piece(exchange: Exchange) -> None:
    await exchange.begin_stream()
    await exchange.chunk(delta(content="Hel"))
    await exchange.gone()


async def _hang_up(exchange: Exchange) -> None:
    exchange.writer.close()


async def _no_http(exchange: Exchange) -> None:
    await exchange.send(b"SSH-2.0-OpenSSH\r\n\r\n")


async def _break_off(exchange: Exchange) -> None:
    await exchange.send(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{")
    exchange.writer.close()


@pytest.mark.parametrize(
    ("script", "settings", "kind", "code"),
    [
        (_silent, {"first_byte_timeout": 0.05}, GatewayTimeoutError, TIMEOUT),
        (_silent_after_the_head, {"first_byte_timeout": 0.05}, GatewayTimeoutError, TIMEOUT),
        (_silent_after_a_piece, {"chunk_timeout": 0.05}, GatewayTimeoutError, TIMEOUT),
        (_hang_up, {}, BadGatewayError, DISCONNECTED),
        (_no_http, {}, BadGatewayError, BROKEN),
        (_break_off, {}, BadGatewayError, DISCONNECTED),
        (stream(delta(content="Hel"), end=False), {}, BadGatewayError, DISCONNECTED),
        (stream(), {}, BadGatewayError, BROKEN),
        (stream(DONE), {}, BadGatewayError, BROKEN),
        (stream(b": ping\n\n", event({"choices": []})), {}, BadGatewayError, BROKEN),
        (stream(event(b"Internal Server Error")), {}, BadGatewayError, BROKEN),
        (reply(b"<html><title>Welcome</title></html>", kind="text/html"), {}, BadGatewayError, BROKEN),
        (reply({"choices": []}), {}, BadGatewayError, BROKEN),
    ],
)
async def test_a_failing_server_gives_the_right_error_that_names_it(
    server: ModelServer,
    connect: Connect,
    notes: Notes,
    script: Any,
    settings: dict[str, float],
    kind: type[APIError],
    code: str,
) -> None:
    server.scripts.append(script)
    async with asyncio.timeout(GUARD):
        with pytest.raises(kind, match="'local'") as caught:
            await connect(**settings).run(a_request(stream=True), notes)
    assert caught.value.code == code
    assert "127.0.0.1" not in caught.value.message
    assert not any(call[0] == "finish" for call in notes.calls)


async def test_the_pause_before_the_first_piece_may_be_longer_than_those_after_it(
    server: ModelServer, connect: Connect, notes: Notes
) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.begin_stream()
        await exchange.chunk(HELLO[0])
        await asyncio.sleep(0.2)
        await exchange.chunk(b"".join(HELLO[1:]))
        await exchange.send(b"0\r\n\r\n")

    server.scripts.append(script)
    await connect(chunk_timeout=0.05).run(a_request(stream=True), notes)
    assert notes.said() == "Hello"


async def test_a_server_nobody_listens_at_is_unavailable(connect: Connect, notes: Notes) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        with pytest.raises(ServiceUnavailableError, match="'local' cannot be reached: connection refused") as caught:
            await connect(url=f"http://127.0.0.1:{bound.getsockname()[1]}").run(a_request(), notes)
    assert caught.value.code == UNREACHABLE


async def test_tls_with_a_server_that_has_none_is_unavailable(connect: Connect, notes: Notes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listener:
        url = f"https://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        with pytest.raises(ServiceUnavailableError, match="'local' cannot be reached: TLS"):
            await connect(url=url).run(a_request(), notes)


async def test_a_connection_that_takes_too_long_times_out(connect: Connect, notes: Notes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(1024):  # the TLS handshake is never answered
            pass
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listener:
        url = f"https://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        with pytest.raises(GatewayTimeoutError, match=r"within 0.05 s .`backends.local.connect_timeout`.") as caught:
            await connect(url=url, connect_timeout=0.05).run(a_request(), notes)
    assert caught.value.code == UNREACHABLE  # nothing was asked, so it may be tried again


@pytest.mark.parametrize(
    ("script", "settings", "said"),
    [
        (_silent, {"first_byte_timeout": 0.05}, "did not answer within 0.05 s (`backends.local.first_byte_timeout`)"),
        (_silent_after_the_head, {"first_byte_timeout": 0.05}, "for 0.05 s (`backends.local.first_byte_timeout`)"),
        (_silent_after_a_piece, {"chunk_timeout": 0.05}, "for 0.05 s (`backends.local.chunk_timeout`)"),
    ],
)
async def test_a_timeout_names_the_setting_and_is_not_tried_again(
    server: ModelServer, connect: Connect, notes: Notes, script: Any, settings: dict[str, float], said: str
) -> None:
    server.scripts.append(script)
    async with asyncio.timeout(GUARD):
        with pytest.raises(GatewayTimeoutError) as caught:
            await retrying(connect(**settings), Retries(2)).run(a_request(stream=True), notes)
    assert said in caught.value.message
    assert len(server.exchanges) == 1


async def test_an_answer_that_is_not_streamed_has_until_the_deadline(
    server: ModelServer, connect: Connect, notes: Notes
) -> None:
    asked, gate = asyncio.Event(), asyncio.Event()

    async def slow(exchange: Exchange) -> None:
        asked.set()
        await gate.wait()
        await reply(ANSWER)(exchange)

    server.scripts += [slow, _silent]
    backend = connect(first_byte_timeout=0.01)
    async with asyncio.timeout(GUARD):
        running = asyncio.create_task(backend.run(a_request(deadline=time.monotonic() + GUARD), notes))
        await asked.wait()
        with pytest.raises(GatewayTimeoutError):  # a stream has the time to wait for; by then, it is over for both
            await backend.run(a_request(stream=True), Notes())
        gate.set()
        await running
    assert notes.said() == "Hello"


async def test_the_deadline_of_the_request_is_kept(server: ModelServer, connect: Connect, notes: Notes) -> None:
    server.scripts.append(_silent_after_a_piece)
    with pytest.raises(GatewayTimeoutError) as caught:
        await connect().run(a_request(stream=True, deadline=time.monotonic() + 0.1), notes)
    assert caught.value.code == DEADLINE
    assert "0.1 s that were left to the request (`engine.deadline`)" in caught.value.message


async def test_the_status_of_a_refusal_is_mapped(server: ModelServer, connect: Connect, notes: Notes) -> None:
    backend = connect()
    server.scripts.append(reply({"error": {"message": "temperature must be low", "param": "temperature"}}, 400))
    with pytest.raises(BadRequestError, match="temperature must be low") as caught:
        await backend.run(a_request(), notes)
    assert caught.value.param == "temperature"
    server.scripts.clear()
    server.scripts.append(reply({"error": {"message": "slow down"}}, 429, {"retry-after": "7"}))
    with pytest.raises(RateLimitError, match="slow down") as limited:
        await backend.run(a_request(stream=True), notes)
    assert limited.value.headers["retry-after"] == "7"
    assert notes.calls == []


async def test_a_redirect_is_not_followed(server: ModelServer, connect: Connect, notes: Notes) -> None:
    server.scripts.append(reply(b"", 307, {"location": "http://127.0.0.1:9/elsewhere"}))
    with pytest.raises(BadGatewayError, match="redirect"):
        await connect(api_key="sk-secret").run(a_request(), notes)
    assert len(server.exchanges) == 1


async def test_an_answer_that_is_too_large_is_refused(server: ModelServer, connect: Connect) -> None:
    server.scripts.append(reply(b"x" * 1000))
    answer = await connect().transport.get("/models")
    with pytest.raises(BadGatewayError, match="an answer of more than 100 bytes"):
        await answer.read(100)


# --- models ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "document",
    [
        {"object": "list", "data": [{"id": "a", "created": 5, "owned_by": "vllm"}, {"id": "b"}]},
        {"models": [{"name": "a", "model": "a"}, {"name": "b"}]},
        {"models": [{"model": "a"}, {"model": "b"}], "data": [{"id": "a"}, {"id": "b"}]},
        [{"id": "a"}, {"id": "b"}],
        ["a", "b"],
    ],
)
async def test_models_are_listed_in_every_shape(server: ModelServer, connect: Connect, document: Any) -> None:
    server.scripts.append(reply(document))
    assert [info.id for info in await connect().models()] == ["a", "b"]
    assert server.exchanges[0].path == "/v1/models"


async def test_a_list_of_models_that_is_none_is_a_bad_gateway(server: ModelServer, connect: Connect) -> None:
    server.scripts.append(reply(b"<html>hi</html>", kind="text/html"))
    with pytest.raises(BadGatewayError, match="'local' is no JSON: hi"):
        await connect().models()


async def test_a_request_waits_for_a_connection_for_a_while_only(
    server: ModelServer, connect: Connect, notes: Notes, caplog: pytest.LogCaptureFixture
) -> None:
    asked = asyncio.Event()
    server.scripts.append(silence(asked))
    backend = connect(max_connections=1, connection_wait=0.05)
    first = asyncio.create_task(backend.run(a_request(), Notes()))
    await asked.wait()
    breaker = CircuitBreaker("local", backend.is_there)
    with pytest.raises(ServiceUnavailableError, match=r"`backends\.local\.max_connections`") as caught:
        await GuardedBackend(backend, breaker, Retries(2)).run(a_request(), notes)
    with pytest.raises(ServiceUnavailableError):
        await backend.run(a_request(), notes)
    (line,) = caplog.messages  # however many are refused
    assert line.startswith("all 1 connections to the backend 'local' are in use, 0 more requests wait for one")
    assert (caught.value.code, caught.value.headers["retry-after"]) == (BUSY, "1")
    assert may_pass(caught.value)  # a background response waits for its turn
    assert len(server.exchanges) == 1
    assert (backend.transport.in_use, backend.transport.waiting) == (1, 0)
    first.cancel()
    await asyncio.wait([first])
    assert backend.transport.in_use == 0
