"""Counting tokens with the tokenizers of servers that speak Chat Completions."""

import logging
from typing import Any, Literal

import pytest
from pydantic import SecretStr
from tests.backends.conftest import ANSWER, Connect, Exchange, ModelServer, Notes, a_request, reply

from antwort.backends.chat.backend import ChatBackend, ChatTokens
from antwort.backends.http.transport import Transport
from antwort.backends.tokens import FAILED_REST, MISSING_REST, TokenEndpoint
from antwort.config import BackendConfig
from antwort.errors import BadRequestError
from antwort.testing import ScriptedBackend, ScriptServer, count_words
from antwort.types import JSON

TOOL = {"type": "function", "name": "add", "parameters": {"type": "object"}}
BODY: JSON = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("tokenizer", ["vllm", "llamacpp"])
async def test_a_server_with_a_tokenizer_counts(tokenizer: Literal["vllm", "llamacpp"]) -> None:
    with ScriptServer([], tokenizer=tokenizer) as server:
        backend = ChatBackend("local", BackendConfig(url=server.url))
        request = a_request(items=[{"role": "user", "content": "one two three"}], instructions="Be brief.")
        assert await backend.count_tokens(request) == 5
        assert await backend.count_tokens(request) == 5
        request = a_request(items=[{"role": "user", "content": "one two three"}], tools=[TOOL])
        assert await backend.count_tokens(request) == count_words(request)
        await backend.close()
        first = server.tokenized[0]
        assert first["messages"][0] == {"role": "system", "content": "Be brief."}
        assert (first["model"], first["add_generation_prompt"]) == ("m", True)
        assert len(server.tokenized) == {"vllm": 3, "llamacpp": 7}[tokenizer]


async def test_tokenizers_stand_beside_the_api(server: ModelServer, connect: Connect) -> None:
    server.scripts.append(reply({"count": 3, "max_model_len": 8, "tokens": [1, 2, 3]}))
    root = server.url.removesuffix("/v1")
    for url in (server.url, f"{server.url}/", root, f"{root}/proxy/v1"):
        assert await connect(url=url, api_key="k").count_tokens(a_request()) == 3
    assert [exchange.path for exchange in server.exchanges] == ["/tokenize"] * 3 + ["/proxy/tokenize"]
    assert {exchange.headers["authorization"] for exchange in server.exchanges} == {"Bearer k"}


async def test_templates_of_the_operator_count_too(server: ModelServer, connect: Connect) -> None:
    server.scripts.append(reply({"count": 3}))
    extra = {"chat_template_kwargs": {"enable_thinking": False}, "top_k": 5}
    await connect(extra_body=extra).count_tokens(a_request(temperature=0.5))
    assert server.exchanges[0].json().keys() == {"model", "messages", "chat_template_kwargs", "add_generation_prompt"}


@pytest.mark.parametrize(
    "answers",
    [
        [reply({"detail": "Not Found"}, 404)],
        [reply(b"", 405)],
        [reply({"detail": [{"msg": "field required"}]}, 422)],
        [reply({"error": "no"}, 501)],
        [reply(b"<html></html>", kind="text/html")],
        [reply({"object": "list"})],
        [reply({"tokens": []}), reply({"detail": "Not Found"}, 404)],
        [reply({"tokens": []}), reply({"text": "x"})],
        [reply({"tokens": []}), reply({"prompt": "x"}), reply({"detail": "Not Found"}, 404)],
        [reply({"tokens": []}), reply({"prompt": "x"}), reply({"text": "x"})],
    ],
)
async def test_a_server_without_a_tokenizer_is_left_alone_for_a_while(server: ModelServer, answers: list[Any]) -> None:
    server.scripts += answers
    clock = Clock()
    transport = Transport("local", BackendConfig(url=server.url))
    tokens = ChatTokens(TokenEndpoint("local", transport, clock))
    assert [await tokens.count(BODY, "acme") for _ in range(3)] == [None, None, None]
    assert len(server.exchanges) == len(answers)
    clock.now += MISSING_REST
    server.scripts.clear()
    server.scripts.append(reply({"count": 3}))
    found = await tokens.count(BODY, "acme")
    await transport.close()
    assert found == 3 or len(answers) > 1


async def test_one_request_that_cannot_be_counted_does_not_speak_for_others(
    server: ModelServer, connect: Connect
) -> None:
    server.scripts += [reply({"error": {"message": "the template does not take this"}}, 400), reply({"count": 3})]
    backend = connect()
    assert await backend.count_tokens(a_request()) is None
    assert await backend.count_tokens(a_request()) == 3


async def test_a_server_that_cannot_be_asked_is_asked_later(
    server: ModelServer, caplog: pytest.LogCaptureFixture
) -> None:
    async def hang_up(exchange: Exchange) -> None:
        exchange.writer.close()

    server.scripts += [hang_up, reply({"count": 3})]
    clock = Clock()
    transport = Transport("local", BackendConfig(url=server.url, api_key=SecretStr("secret")))
    tokens = ChatTokens(TokenEndpoint("local", transport, clock))
    with caplog.at_level(logging.DEBUG):
        assert [await tokens.count(BODY, "acme") for _ in range(2)] == [None, None]
    assert [record.levelname for record in caplog.records if "count tokens" in record.message] == ["WARNING"]
    assert "secret" not in caplog.text
    clock.now += FAILED_REST
    assert await tokens.count(BODY, "acme") == 3
    await transport.close()


async def test_counting_does_not_disturb_turns(server: ModelServer, connect: Connect, notes: Notes) -> None:
    server.scripts += [reply({"detail": "Not Found"}, 404), reply(ANSWER)]
    backend = connect()
    assert await backend.count_tokens(a_request()) is None
    await backend.run(a_request(), notes)
    assert notes.said() == "Hello"


# --- windows in scripts ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tokenizer", [None, "vllm", "llamacpp"])
async def test_a_request_that_is_too_long_is_refused_and_plays_no_step(
    tokenizer: Literal["vllm", "llamacpp"] | None, notes: Notes
) -> None:
    with ScriptServer(["Hello."], tokenizer=tokenizer, context_window=3) as server:
        backend = ChatBackend("local", BackendConfig(url=server.url))
        with pytest.raises(BadRequestError) as caught:
            await backend.run(a_request(items=[{"role": "user", "content": "one two three four"}]), notes)
        assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "input")
        await backend.run(a_request(items=[{"role": "user", "content": "one two three"}]), notes)
        assert await backend.context_window("m") == (None if tokenizer is None else 3)
        await backend.close()
    assert notes.said() == "Hello."
    assert len(server.requests) == len(server.script.requests) == 2


async def test_a_scripted_backend_has_a_window_and_a_tokenizer_if_it_is_given_them(notes: Notes) -> None:
    long = a_request(items=[{"role": "user", "content": "one two three four"}])
    with ScriptedBackend(["Hello."], context_window=3) as model:
        assert (await model.count_tokens(long), await model.context_window("scripted")) == (None, 3)
        with pytest.raises(BadRequestError) as caught:
            await model.run(long, notes)
        assert caught.value.code == "context_length_exceeded"
        await model.run(a_request(), notes)
        assert [info.context_window for info in await model.models()] == [3]
    assert len(model.requests) == 2
    with ScriptedBackend([], tokenizer=count_words) as model:
        assert (await model.count_tokens(long), await model.context_window("scripted")) == (4, None)
