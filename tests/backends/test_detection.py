"""How a model server is found, against real sockets."""

import asyncio
import contextlib
import json
import logging
import socket
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from antwort.backends.detection import USUAL_SERVERS, LoopbackServer, find_backend, named_service, service_not_used
from antwort.errors import ConfigError

MODELS = {"object": "list", "data": [{"id": "small", "object": "model"}, {"id": "large", "object": "model"}]}
PATIENCE = 10.0
"""Longer than any server here takes that answers at all."""


class HTTPServer:
    """Answers paths with fixed bodies, as JSON where they are not bytes, and keeps what was asked."""

    def __init__(self, answers: Mapping[str, Any]) -> None:
        self._answers = answers
        self.asked: list[str] = []
        self.port = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                path = head.split(" ")[1]
                self.asked.append(path)
                status = "200 OK" if path in self._answers else "404 Not Found"
                found = self._answers.get(path, {"detail": "Not Found"})
                body = found if isinstance(found, bytes) else json.dumps(found).encode()
                writer.write(f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)


@contextlib.asynccontextmanager
async def serving(answers: Mapping[str, Any]) -> AsyncIterator[HTTPServer]:
    server = HTTPServer(answers)
    async with await asyncio.start_server(server.answer, "127.0.0.1", 0) as sockets:
        server.port = sockets.sockets[0].getsockname()[1]
        yield server


@pytest.fixture
async def model_server() -> AsyncIterator[HTTPServer]:
    async with serving({"/v1/models": MODELS}) as server:
        yield server


@pytest.fixture
def nobody() -> int:
    """A port on which nobody listens."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return int(unused.getsockname()[1])


async def test_a_server_on_loopback_is_found_and_described(model_server: HTTPServer, nobody: int) -> None:
    ports = [LoopbackServer("Ollama", nobody), LoopbackServer("vLLM", model_server.port)]
    found = await find_backend({}, timeout=PATIENCE, ports=ports)
    assert found is not None
    assert found.config.url == f"http://127.0.0.1:{model_server.port}/v1"
    assert found.config.api_key is None
    assert found.label == f"vLLM at http://127.0.0.1:{model_server.port}/v1, 2 models"


async def test_one_model_is_spoken_of_in_the_singular() -> None:
    async with serving({"/v1/models": {"data": [{"id": "only"}]}}) as server:
        found = await find_backend({}, timeout=PATIENCE, ports=[LoopbackServer("LM Studio", server.port)])
    assert found is not None
    assert found.label.endswith(", 1 model")


async def test_the_order_of_preference_decides_between_servers(model_server: HTTPServer) -> None:
    async with serving({"/v1/models": MODELS}) as other:
        ports = [LoopbackServer("first", other.port), LoopbackServer("second", model_server.port)]
        for expected in (ports, ports[::-1]):
            found = await find_backend({}, timeout=PATIENCE, ports=expected)
            assert found is not None
            assert found.label.startswith(expected[0].label)


@pytest.mark.parametrize(
    "answers",
    [
        {},
        {"/v1/models": b"<!doctype html><title>Hello</title>"},
        {"/v1/models": None},
        {"/v1/models": "data"},
        {"/v1/models": [1, 2]},
        {"/v1/models": {"object": "list", "data": None}},
        {"/v1/models": {"object": "list", "data": []}},
        {"/v1/models": {"data": ["small"]}},
        {"/v1/models": {"data": [{"name": "small"}]}},
        {"/v1/models": {"models": ["small"]}},
        {"/v1/models": b"[" * 100_000},
        {"/v1/models": b'{"data": [{"id": "\xff"}]}'},
        {"/v1/models": MODELS, "/healthz": {"status": "ok", "version": "0.1.0"}},
        {"/v1/models": {"data": [{"id": "antwort-demo"}]}},
    ],
    ids=[
        "nothing",
        "a page",
        "null",
        "text",
        "a list",
        "no data",
        "no models",
        "names",
        "no ids",
        "other keys",
        "nesting",
        "not UTF-8",
        "another server of ours",
        "a demo model",
    ],
)
async def test_what_is_no_model_server_is_passed_over(answers: Mapping[str, Any], model_server: HTTPServer) -> None:
    async with serving(answers) as server:
        ports = [LoopbackServer("wrong", server.port), LoopbackServer("right", model_server.port)]
        assert await find_backend({}, timeout=PATIENCE, ports=ports[:1]) is None
        found = await find_backend({}, timeout=PATIENCE, ports=ports)
    assert found is not None
    assert found.label.startswith("right")


async def test_a_model_server_with_a_health_check_of_its_own_is_taken() -> None:
    async with serving({"/v1/models": MODELS, "/healthz": {"status": "ok"}}) as server:
        assert await find_backend({}, timeout=PATIENCE, ports=[LoopbackServer("any", server.port)]) is not None


async def test_a_server_that_hangs_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts connections and says nothing
        port = int(silent.getsockname()[1])
        assert await find_backend({}, timeout=0.05, ports=[LoopbackServer("silent", port)]) is None


async def test_a_server_that_speaks_no_http_is_passed_over() -> None:
    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example.com ESMTP\r\n")
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        assert await find_backend({}, timeout=PATIENCE, ports=[LoopbackServer("mail", port)]) is None


async def test_the_port_this_server_will_use_is_not_asked(model_server: HTTPServer) -> None:
    ports = [LoopbackServer("llama.cpp", model_server.port)]
    assert await find_backend({}, timeout=PATIENCE, ports=ports, own_port=model_server.port) is None
    assert model_server.asked == []


async def test_no_proxy_is_used_for_loopback(model_server: HTTPServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    found = await find_backend({}, timeout=PATIENCE, ports=[LoopbackServer("Ollama", model_server.port)])
    assert found is not None


async def test_without_servers_nothing_is_found() -> None:
    assert await find_backend({}, ports=[]) is None


def test_the_usual_servers_are_asked_in_this_order() -> None:
    assert [(server.label, server.port) for server in USUAL_SERVERS] == [
        ("Ollama", 11434),
        ("vLLM", 8000),
        ("LM Studio", 1234),
        ("llama.cpp", 8080),
    ]


# --- the environment -------------------------------------------------------------------------------------------------


async def test_the_environment_goes_before_loopback(model_server: HTTPServer) -> None:
    ports = [LoopbackServer("Ollama", model_server.port)]
    environ = {"OPENAI_BASE_URL": "https://user:word@models.internal/v1?key=word", "OPENAI_API_KEY": "sk-word"}
    found = await find_backend(environ, ports=ports)
    assert found is not None
    assert found.config.url == environ["OPENAI_BASE_URL"]
    assert found.config.api_key is not None
    assert found.config.api_key.get_secret_value() == "sk-word"
    assert found.label == "OPENAI_BASE_URL, at models.internal"
    assert model_server.asked == []


async def test_a_base_url_alone_is_enough() -> None:
    found = await find_backend({"OPENAI_BASE_URL": " http://10.0.0.5:9000/v1 "}, ports=[])
    assert found is not None
    assert found.config.url == "http://10.0.0.5:9000/v1"
    assert found.config.api_key is None
    assert found.label == "OPENAI_BASE_URL, at 10.0.0.5:9000"


PUBLIC = [
    ({"OPENAI_API_KEY": "sk-word", "OPENAI_BASE_URL": ""}, "OPENAI_API_KEY", "api.openai.com"),
    ({"OPENAI_BASE_URL": "https://models.example.com/v1"}, "OPENAI_BASE_URL", "models.example.com"),
    ({"OPENAI_BASE_URL": "http://8.8.8.8/v1", "OPENAI_API_KEY": "sk-word"}, "OPENAI_BASE_URL", "8.8.8.8"),
]


@pytest.mark.parametrize(("environ", "variable", "host"), PUBLIC)
async def test_a_public_service_is_named_and_not_used(environ: Mapping[str, str], variable: str, host: str) -> None:
    assert await find_backend(environ, ports=[]) is None
    assert service_not_used(environ) == f"{variable} is set, and not used: --backend openai asks {host}"


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"OPENAI_BASE_URL": "http://10.0.0.5:9000/v1", "OPENAI_API_KEY": "sk-word"},
        {"OPENAI_BASE_URL": "http://gpu-box:9000/v1"},
        {"OPENAI_BASE_URL": "http://localhost:8080/v1", "OPENAI_API_KEY": "sk-ours"},
    ],
)
def test_of_what_is_used_or_not_there_nothing_is_said(environ: Mapping[str, str]) -> None:
    assert service_not_used(environ, own_port=8080) is None


def test_the_service_is_used_by_its_name() -> None:
    service = named_service({"OPENAI_API_KEY": "sk-word"})
    assert service.url == "https://api.openai.com/v1"
    assert service.api_key is not None
    assert service.api_key.get_secret_value() == "sk-word"
    assert "sk-word" not in repr(service)
    other = named_service({"OPENAI_BASE_URL": "https://models.example.com/v1"})
    assert (other.url, other.api_key) == ("https://models.example.com/v1", None)
    with pytest.raises(ConfigError, match="--backend openai needs a key in OPENAI_API_KEY"):
        named_service({})


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]", "0.0.0.0"])
async def test_the_address_of_this_server_is_not_its_own_backend(
    host: str, model_server: HTTPServer, caplog: pytest.LogCaptureFixture
) -> None:
    environ = {"OPENAI_BASE_URL": f"http://{host}:8080/v1", "OPENAI_API_KEY": "sk-ours"}
    ports = [LoopbackServer("Ollama", model_server.port)]
    with caplog.at_level(logging.WARNING):
        found = await find_backend(environ, timeout=PATIENCE, ports=ports, own_port=8080)
    assert found is not None
    assert found.label.startswith("Ollama")
    assert found.config.api_key is None
    assert "address of this server itself" in caplog.text
    other = await find_backend(environ, ports=[], own_port=8081)
    assert other is not None
    assert other.config.url == environ["OPENAI_BASE_URL"]


@pytest.mark.parametrize(
    "url", ["models.example.com", "ftp://models.example.com", "http://", "http://[", "http://a:b:c"]
)
async def test_a_base_url_that_is_none_is_an_error_with_the_cure(url: str) -> None:
    with pytest.raises(
        ConfigError, match=r"^OPENAI_BASE_URL: it is not an http:// or https:// URL; correct it or unset"
    ):
        await find_backend({"OPENAI_BASE_URL": url}, ports=[])


async def test_a_base_url_of_requests_is_an_error_with_the_right_one() -> None:
    environ = {"OPENAI_BASE_URL": "http://me:word@localhost:8000/v1/responses"}
    right = r"give 'http://me:\*+@localhost:8000/v1' with `api: responses`$"
    told = f"^OPENAI_BASE_URL: url: the base URL is wanted.*{right}"
    with pytest.raises(ConfigError, match=told):
        await find_backend(environ, ports=[])
    with pytest.raises(ConfigError, match=told):
        named_service(environ)
