"""A server that speaks the Responses API, on a socket."""

import asyncio
import time
from typing import Any

import pytest
from tests.backends.conftest import ConnectResponses, Exchange, ModelServer, Notes, a_request, event, reply, stream
from tests.backends.test_responses_answer import end, message, text

from antwort.backends.errors import DISCONNECTED, TIMEOUT, UNAUTHORIZED, UNSUITABLE
from antwort.errors import APIError, BadRequestError, GatewayTimeoutError
from antwort.types import JSON

WHOLE: JSON = end(output=[message("Hello")])["response"]
REFUSED_SEAL = reply({"error": {"message": "Encrypted content is not supported with this model.", "param": None}}, 400)


async def test_a_turn_is_one_request(server: ModelServer, connect_responses: ConnectResponses, notes: Notes) -> None:
    server.scripts.append(reply(WHOLE))
    await connect_responses(api_key="k", headers={"x-team": "a"}).run(a_request(), notes)
    assert notes.calls == [("text", "Hello"), ("usage", 9, 5, 14), ("finish", "stop")]
    sent = server.exchanges[0]
    assert (sent.method, sent.path) == ("POST", "/v1/responses")
    assert (sent.headers["authorization"], sent.headers["x-team"]) == ("Bearer k", "a")
    assert sent.json()["store"] is False


async def test_a_stream_is_passed_on_as_it_arrives(
    server: ModelServer, connect_responses: ConnectResponses, notes: Notes
) -> None:
    go_on = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        await exchange.begin_stream()
        await exchange.chunk(b"event: response.output_text.delta\n" + event(text("Hel")))
        await go_on.wait()
        await exchange.chunk(event(text("lo")) + event(end()) + event(b"[DONE]"))
        await exchange.send(b"0\r\n\r\n")

    server.scripts.append(script)
    turn = asyncio.create_task(connect_responses().run(a_request(stream=True), notes))
    await notes.progress.wait()
    assert notes.said() == "Hel"
    go_on.set()
    await turn
    assert (notes.said(), notes.calls[-1]) == ("Hello", ("finish", "stop"))


async def test_a_connection_is_used_again_after_a_stream(
    server: ModelServer, connect_responses: ConnectResponses
) -> None:
    server.scripts.append(stream(event(text("Hi")), event(end()), event(b"[DONE]")))
    backend = connect_responses()
    for _ in range(3):
        await backend.run(a_request(stream=True), Notes())
    assert server.connections == 1


async def test_a_server_may_stream_unasked_or_not_at_all(
    server: ModelServer, connect_responses: ConnectResponses
) -> None:
    server.scripts += [stream(event(text("Hello")), event(end())), reply(WHOLE)]
    backend = connect_responses()
    for streamed in (False, True):
        notes = Notes()
        await backend.run(a_request(stream=streamed), notes)
        assert notes.said() == "Hello"


@pytest.mark.parametrize("ended", [True, False])
async def test_a_stream_that_breaks_off_is_an_error(
    server: ModelServer, connect_responses: ConnectResponses, notes: Notes, ended: bool
) -> None:
    server.scripts.append(stream(event(text("Hel")), end=ended))
    with pytest.raises(APIError) as caught:
        await connect_responses().run(a_request(stream=True), notes)
    assert (caught.value.status, caught.value.code) == (502, DISCONNECTED)


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (400, {"error": {"message": "bad", "param": "top_p", "code": "x"}}, (400, "x")),
        (400, {"error": {"message": "m", "code": "context_length_exceeded"}}, (400, "context_length_exceeded")),
        (401, {"error": {"message": "bad key"}}, (502, UNAUTHORIZED)),
        (404, {"detail": "Not Found"}, (502, UNSUITABLE)),
        (404, {"error": {"message": "The model 'm' does not exist."}}, (404, "model_not_found")),
        (429, {"error": {"message": "slow down"}}, (429, "rate_limit_exceeded")),
    ],
)
async def test_refusals_mean_what_they_mean_from_any_server(
    server: ModelServer,
    connect_responses: ConnectResponses,
    notes: Notes,
    status: int,
    body: JSON,
    expected: tuple[int, str],
) -> None:
    server.scripts.append(reply(body, status))
    with pytest.raises(APIError) as caught:
        await connect_responses().run(a_request(), notes)
    assert (caught.value.status, caught.value.code) == expected
    assert len(server.exchanges) == 1


async def test_a_model_without_thoughts_is_asked_for_none_from_then_on(
    server: ModelServer, connect_responses: ConnectResponses
) -> None:
    server.scripts += [REFUSED_SEAL, reply(WHOLE)]
    backend = connect_responses()
    for model in ("m", "m", "other"):
        notes = Notes()
        await backend.run(a_request(model=model), notes)
        assert notes.said() == "Hello"
    asked = [("include" in exchange.json(), exchange.json()["model"]) for exchange in server.exchanges]
    assert asked == [(True, "m"), (False, "m"), (False, "m"), (True, "other")]


async def test_a_refusal_that_only_seems_to_be_about_the_seal_is_an_error_and_changes_nothing(
    server: ModelServer, connect_responses: ConnectResponses, notes: Notes
) -> None:
    server.scripts.append(REFUSED_SEAL)
    backend = connect_responses()
    for asked in (2, 4):
        with pytest.raises(BadRequestError, match="Encrypted content"):
            await backend.run(a_request(), notes)
        assert len(server.exchanges) == asked


async def test_silence_and_deadlines_end_a_turn(
    server: ModelServer, connect_responses: ConnectResponses, notes: Notes
) -> None:
    async def silent(exchange: Exchange) -> None:
        await exchange.gone()

    server.scripts.append(silent)
    with pytest.raises(GatewayTimeoutError) as caught:
        await connect_responses(first_byte_timeout=0.05).run(a_request(stream=True), notes)
    assert caught.value.code == TIMEOUT
    with pytest.raises(GatewayTimeoutError) as caught:
        await connect_responses().run(a_request(deadline=time.monotonic() + 0.05), notes)
    assert caught.value.code == "deadline_exceeded"


async def test_further_fields_of_the_configuration_are_sent(
    server: ModelServer, connect_responses: ConnectResponses, notes: Notes
) -> None:
    server.scripts.append(reply(WHOLE))
    await connect_responses(extra_body={"truncation": "auto", "include": None}).run(a_request(), notes)
    sent = server.exchanges[0].json()
    assert sent["truncation"] == "auto"
    assert "include" not in sent


async def test_tokens_are_counted_where_the_server_does(
    server: ModelServer, connect_responses: ConnectResponses
) -> None:
    server.scripts.append(reply({"object": "response.input_tokens", "input_tokens": 42}))
    assert await connect_responses().count_tokens(a_request(instructions="Be brief.")) == 42
    sent = server.exchanges[0]
    assert sent.path == "/v1/responses/input_tokens"
    assert sent.json() == {
        "model": "m",
        "input": [{"type": "message", "role": "user", "content": "Hi"}],
        "instructions": "Be brief.",
    }


@pytest.mark.parametrize("answer", [reply({"detail": "Not Found"}, 404), reply({"strange": 1}), reply(b"[]")])
async def test_a_server_that_does_not_count_is_asked_once(
    server: ModelServer, connect_responses: ConnectResponses, answer: Any
) -> None:
    server.scripts.append(answer)
    backend = connect_responses()
    assert [await backend.count_tokens(a_request()) for _ in range(3)] == [None, None, None]
    assert len(server.exchanges) == 1
