"""Chat completions and embeddings, passed through."""

import asyncio
import contextlib
import gzip
import json
import socket
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

import httpx
import openai
import pytest
from openai import OpenAI
from pydantic import ByteSize, SecretStr
from starlette.types import Message
from tests.support.telltale import telltale
from typing_extensions import override

from antwort import Antwort
from antwort.backends import ModelRoute, ModelRouter, Reply, Timeouts, Transport
from antwort.concurrency.large_work import LargeWork
from antwort.config import (
    ApiKeyConfig,
    AuthConfig,
    BackendConfig,
    Config,
    EngineConfig,
    LimitsConfig,
    RateConfig,
    ServerConfig,
)
from antwort.context import Context
from antwort.observability import Metrics, NoTracer
from antwort.server.api import passthrough
from antwort.server.api.passthrough import Forwarded, Passthrough, read_forwarded
from antwort.server.chat.keeping import ChatKeeper
from antwort.testing import Gate, RunningApp, ScriptedBackend, ScriptServer, call, fail, running, turn
from antwort.web.requests import CONTEXT

MESSAGES: Any = [{"role": "user", "content": "Say hello."}]
CHAT = {"model": "scripted", "messages": MESSAGES}


def config(tmp_path: Path, **sections: Any) -> Config:
    return Config(data_dir=tmp_path, **sections)


class Sdk:
    """Makes clients, and closes them after the test."""

    def __init__(self, closing: contextlib.ExitStack) -> None:
        self._closing = closing

    def __call__(self, server: RunningApp, key: str = "none", *, strict: bool = True) -> OpenAI:
        return self._closing.enter_context(
            OpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0, _strict_response_validation=strict)
        )


@pytest.fixture
def sdk() -> Iterator[Sdk]:
    with contextlib.ExitStack() as closing:
        yield Sdk(closing)


def post(server: RunningApp, path: str = "/v1/chat/completions", **options: Any) -> httpx.Response:
    return httpx.post(f"{server.url}{path}", timeout=60, **options)


@contextlib.contextmanager
def before(server: ScriptServer, tmp_path: Path, **backend: Any) -> Iterator[RunningApp]:
    """Run the app before a model server called 'main'."""
    backends = {"main": BackendConfig(url=server.url, **backend)}
    with running(Antwort(config(tmp_path, backends=backends))) as app:
        yield app


@dataclass
class Recorder:
    """A model server that keeps what it gets, byte for byte, and always gives the same answer."""

    status: int
    body: bytes
    head: Mapping[str, str]
    url: str = ""
    paths: list[str] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)


@contextlib.contextmanager
def recording(
    status: int = 200, body: bytes = b'{"answer": 42}', head: Mapping[str, str] | None = None
) -> Iterator[Recorder]:
    recorder = Recorder(status, body, head or {})

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            recorder.paths.append(self.path)
            recorder.bodies.append(self.rfile.read(int(self.headers["content-length"])))
            recorder.headers.append({name.lower(): value for name, value in self.headers.items()})
            self.send_response(recorder.status)
            for name, value in {"content-type": "application/json", **recorder.head}.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(recorder.body)))
            self.end_headers()
            self.wfile.write(recorder.body)

        @override
        def log_message(self, format: str, *args: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        recorder.url = f"http://127.0.0.1:{server.server_port}/v1"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield recorder
        finally:
            server.shutdown()
            thread.join()


# --- what clients see ------------------------------------------------------------------------------------------------


def test_the_sdk_completes_a_chat(sdk: Sdk, tmp_path: Path) -> None:
    with ScriptServer([turn("Hello!", usage=(7, 2))]) as model, before(model, tmp_path) as app:
        completion = sdk(app).chat.completions.create(model="scripted", messages=MESSAGES, temperature=0.5)
    assert completion.choices[0].message.content == "Hello!"
    assert completion.usage is not None
    assert completion.usage.total_tokens == 9
    assert model.requests == [{"messages": MESSAGES, "model": "scripted", "temperature": 0.5}]


def test_the_sdk_streams_a_chat_with_tool_calls(sdk: Sdk, tmp_path: Path) -> None:
    step = turn(["Hel", "lo"], calls=[call("add", a=1, call_id="call_7")])
    with ScriptServer([step]) as model, before(model, tmp_path) as app:
        stream = sdk(app).chat.completions.create(
            model="scripted", messages=MESSAGES, stream=True, stream_options={"include_usage": True}
        )
        chunks = list(stream)
    deltas = [choice.delta for chunk in chunks for choice in chunk.choices]
    assert "".join(delta.content or "" for delta in deltas) == "Hello"
    calls = [one for delta in deltas for one in delta.tool_calls or ()]
    assert calls[0].id == "call_7"
    assert chunks[-1].usage is not None


COMPLETION: dict[str, Any] = {
    "id": "cmpl-1",
    "object": "text_completion",
    "created": 1,
    "model": "small",
    "choices": [{"index": 0, "text": " upon a time", "logprobs": None, "finish_reason": "length"}],
}


def test_the_sdk_completes_a_text(sdk: Sdk, tmp_path: Path) -> None:
    with recording(body=json.dumps(COMPLETION).encode()) as recorder:
        backends = {"main": BackendConfig(url=recorder.url, models=["small"], aliases={"fast": "small"})}
        with running(Antwort(config(tmp_path, backends=backends))) as server:
            found = sdk(server).completions.create(model="fast", prompt="Once", max_tokens=3)
            metrics = httpx.get(f"{server.url}/metrics").text
    assert found.choices[0].text == " upon a time"
    assert recorder.paths == ["/v1/completions"]
    assert json.loads(recorder.bodies[0]) == {"model": "small", "prompt": "Once", "max_tokens": 3}
    assert 'antwort_passthrough_requests_total{path="/v1/completions",status="200"} 1.0' in metrics


def test_the_sdk_streams_the_completion_of_a_text(sdk: Sdk, tmp_path: Path) -> None:
    pieces = [{**COMPLETION, "choices": [{**COMPLETION["choices"][0], "text": text}]} for text in (" upon", " a time")]
    events = b"".join(b"data: %s\n\n" % json.dumps(piece).encode() for piece in pieces) + b"data: [DONE]\n\n"
    with recording(body=events, head={"content-type": "text/event-stream"}) as recorder:
        keys = AuthConfig(api_keys=[ApiKeyConfig(id="ci", key=SecretStr("a" * 32), scopes=["responses:write"])])
        app = Antwort(config(tmp_path, auth=keys), backend=recorder.url)
        with running(app) as server:
            chunks = list(sdk(server, "a" * 32).completions.create(model="m", prompt="Once", stream=True))
            with pytest.raises(openai.AuthenticationError):
                sdk(server, "wrong").completions.create(model="m", prompt="Once")
    assert "".join(chunk.choices[0].text for chunk in chunks) == " upon a time"
    assert len(recorder.paths) == 1


def test_the_sdk_embeds_texts(sdk: Sdk, tmp_path: Path) -> None:
    with ScriptServer([], models=["small"]) as model, before(model, tmp_path, aliases={"embed": "small"}) as app:
        client = sdk(app, strict=False)  # the SDK asks for base64 and then finds that it is no list of numbers
        found = client.embeddings.create(model="embed", input=["one", "two"], dimensions=8)
        again = client.embeddings.create(model="embed", input="one", dimensions=8, encoding_format="float")
    assert [len(entry.embedding) for entry in found.data] == [8, 8]
    assert found.data[0].embedding == pytest.approx(again.data[0].embedding)
    assert [body["model"] for body in model.embedded] == ["small", "small"]
    assert [found.model, again.model] == ["embed", "embed"]  # as the client knows it


def test_the_sdk_judges_texts_and_makes_images(sdk: Sdk, tmp_path: Path) -> None:
    judged = {"flagged": True, "categories": {}, "category_scores": {}, "category_applied_input_types": {}}
    answers = {
        "/v1/moderations": {"id": "modr_1", "model": "small", "results": [judged]},
        "/v1/images/generations": {"created": 1, "data": [{"b64_json": "aGk="}]},
    }
    for path, answer in answers.items():
        with recording(body=json.dumps(answer).encode()) as recorder:
            backends = {"main": BackendConfig(url=recorder.url, models=["small"], aliases={"other": "small"})}
            with running(Antwort(config(tmp_path, backends=backends))) as app:
                client = sdk(app, strict=False)
                if path == "/v1/moderations":
                    assert client.moderations.create(model="other", input="Hello!").results[0].flagged
                else:
                    found = client.images.generate(model="other", prompt="A lighthouse.").data
                    assert [image.b64_json for image in found or ()] == ["aGk="]
        assert recorder.paths == [path]
        assert json.loads(recorder.bodies[0])["model"] == "small"


def test_bytes_are_passed_on_as_they_arrive(sdk: Sdk, tmp_path: Path) -> None:
    gate = Gate()
    with ScriptServer([turn(["Hel", gate, "lo"])]) as model, before(model, tmp_path) as app:
        stream = sdk(app).chat.completions.create(model="scripted", messages=MESSAGES, stream=True)
        chunks = iter(stream)
        assert next(chunks).choices[0].delta.content == ""
        assert next(chunks).choices[0].delta.content == "Hel"
        gate.wait_reached()
        gate.open()
        assert next(chunks).choices[0].delta.content == "lo"


def test_an_answer_is_passed_on_unchanged(tmp_path: Path) -> None:
    answer = b'{ "id" : 1.0, "big": 123456789012345678901234567890, "text": "\\u00e9" }'
    kind = "application/json; charset=utf-8"
    with recording(body=answer, head={"content-type": kind}) as recorder:
        app = Antwort(config(tmp_path), backend=recorder.url)
        with running(app) as server:
            found = post(server, json=CHAT)
    assert found.content == answer
    assert found.headers["content-type"] == kind


def test_only_the_type_of_an_answer_is_kept_of_its_head(tmp_path: Path) -> None:
    headers = {
        "server": "vllm/1.0",
        "x-upstream-host": "gpu-7",
        "set-cookie": "a=b",
        "x-request-id": "theirs",
        "content-encoding": "gzip",
        "keep-alive": "timeout=5",
        "openai-organization": "acme",
    }
    body = gzip.compress(b'{"a": 1}')
    with recording(body=body, head=headers) as recorder:
        app = Antwort(config(tmp_path), backend=recorder.url)
        with running(app) as server:
            found = post(server, json=CHAT, headers={"x-request-id": "mine"})
    assert found.json() == {"a": 1}
    assert set(found.headers) <= {"content-type", "content-length", "x-request-id", "date", "server"}
    assert found.headers["x-request-id"] == "mine"
    assert "vllm" not in found.headers.get("server", "")


# --- what the model server gets --------------------------------------------------------------------------------------


def test_a_request_is_passed_on_byte_for_byte(tmp_path: Path) -> None:
    body = b'{ "model" : "m", "seed": 12345678901234567890123, "temperature": 1.0, "unknown": {"x": [1e5]} }'
    with recording() as recorder, running(Antwort(config(tmp_path), backend=recorder.url)) as app:
        post(app, content=body)
        post(app, "/v1/embeddings", content=body)
    assert recorder.bodies == [body, body]
    assert recorder.paths == ["/v1/chat/completions", "/v1/embeddings"]


@pytest.mark.parametrize("name", ["fast", "main/model-a", "main/fast"])
def test_another_name_of_a_model_is_replaced_and_nothing_else(tmp_path: Path, name: str) -> None:
    rest = b'"seed":12345678901234567890123,"temperature":1.0,"unknown":{"x":[1e5, "\\u00e9"]}}'
    backend: dict[str, Any] = {"models": ["model-a"], "aliases": {"fast": "model-a"}}
    with recording() as recorder:
        backends = {"main": BackendConfig(url=recorder.url, **backend)}
        with running(Antwort(config(tmp_path, backends=backends))) as app:
            assert post(app, content=b'{"model":"%s",' % name.encode() + rest).status_code == 200
    assert recorder.bodies == [b'{"model":"model-a",' + rest]


def test_a_model_is_asked_for_where_it_is(sdk: Sdk, tmp_path: Path) -> None:
    with ScriptServer(["one"]) as first, ScriptServer(["two"]) as second:
        backends = {
            "first": BackendConfig(url=first.url, models=["a"]),
            "second": BackendConfig(url=second.url, models=["b"]),
        }
        with running(Antwort(config(tmp_path, backends=backends))) as app:
            client = sdk(app)
            texts = [client.chat.completions.create(model=name, messages=MESSAGES) for name in ("b", "a")]
    assert [completion.choices[0].message.content for completion in texts] == ["two", "one"]


@pytest.mark.parametrize("model", [{}, {"model": None}, {"model": ""}])
def test_without_a_model_the_default_is_asked(tmp_path: Path, model: dict[str, Any]) -> None:
    with recording() as recorder:
        settings = config(tmp_path, backends={"main": {"url": recorder.url}}, engine={"default_model": "usual"})
        with running(Antwort(settings)) as app:
            post(app, json={"messages": MESSAGES, **model})
    assert json.loads(recorder.bodies[0]) == {"messages": MESSAGES, "model": "usual"}


def test_a_server_gets_its_own_key_and_nothing_of_the_client(tmp_path: Path) -> None:
    keys = AuthConfig(api_keys=[ApiKeyConfig(id="k", key=SecretStr("secret-client"), tenant="acme")])
    with recording() as recorder:
        backends = {"main": BackendConfig(url=recorder.url, api_key=SecretStr("secret-backend"))}
        with running(Antwort(config(tmp_path, backends=backends, auth=keys))) as app:
            headers = {"authorization": "Bearer secret-client", "cookie": "session=1", "x-anything": "x"}
            assert post(app, json=CHAT, headers=headers).status_code == 200
    received = recorder.headers[0]
    assert received["authorization"] == "Bearer secret-backend"
    assert "secret-client" not in str(received)
    assert not {"cookie", "x-anything"} & {name.lower() for name in received}


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings"])
def test_a_large_body_is_read_on_a_thread(tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    readers: list[str] = []

    def watched(body: bytes | bytearray, max_values: int) -> Forwarded:
        readers.append(threading.current_thread().name)
        return read_forwarded(body, max_values)

    monkeypatch.setattr(passthrough, "read_forwarded", watched)
    with recording() as recorder, running(Antwort(config(tmp_path), backend=recorder.url)) as app:
        for size in (10, 100_000):
            body = {"model": "m", "input": "x" * size, "messages": [{"role": "user", "content": "x" * size}]}
            assert post(app, path, json=body).status_code == 200
    small, large = readers
    assert "large-work" not in small
    assert "large-work" in large


# --- who may, and how much -------------------------------------------------------------------------------------------


def test_credentials_and_limits_hold(sdk: Sdk, tmp_path: Path) -> None:
    auth = AuthConfig(api_keys=[ApiKeyConfig(id="k", key=SecretStr("secret-client"), tenant="acme")])
    limits = LimitsConfig(per_key=RateConfig(requests_per_minute=1))
    with ScriptServer(["Hello!"]) as model:
        settings = config(
            tmp_path,
            backends={"main": {"url": model.url}},
            auth=auth,
            limits=limits,
            server=ServerConfig(max_body_bytes=ByteSize(10_000)),
        )
        with running(Antwort(settings)) as app:
            with pytest.raises(openai.AuthenticationError):
                sdk(app, "wrong").chat.completions.create(model="scripted", messages=MESSAGES)
            sdk(app, "secret-client").chat.completions.create(model="scripted", messages=MESSAGES)
            with pytest.raises(openai.RateLimitError) as limited:
                sdk(app, "secret-client").chat.completions.create(model="scripted", messages=MESSAGES)
    assert limited.value.response.headers["retry-after"]


def test_a_body_that_is_too_large_is_not_passed_on(tmp_path: Path) -> None:
    with recording() as recorder:
        server = ServerConfig(max_body_bytes=ByteSize(100))
        with running(Antwort(config(tmp_path, server=server), backend=recorder.url)) as app:
            assert post(app, content=b'{"a":"%s"}' % (b"x" * 100)).status_code == 413
            chunks = (b"x" * 60 for _ in range(2))
            assert post(app, content=chunks).status_code == 413
    assert recorder.bodies == []


def test_requests_are_counted_by_path_and_status(tmp_path: Path) -> None:
    with recording() as recorder, running(Antwort(config(tmp_path), backend=recorder.url)) as app:
        post(app, json=CHAT)
        post(app, "/v1/embeddings", json=CHAT)
        post(app, "/v1/embeddings", content=b"[")
        page = httpx.get(f"{app.url}/metrics").text
    assert 'antwort_passthrough_requests_total{path="/v1/chat/completions",status="200"} 1.0' in page
    assert 'antwort_passthrough_requests_total{path="/v1/embeddings",status="200"} 1.0' in page
    assert 'antwort_passthrough_requests_total{path="/v1/embeddings",status="400"} 1.0' in page


# --- what cannot be passed through -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        (b"{", None, "invalid_json"),
        (b'{"model": "\xff"}', "model", "invalid_type"),
        (b'{"model": "m", "messages": [{"role": "user", "content": "image_url \xff"}]}', "messages", "invalid_json"),
        (b"[]", None, "invalid_type"),
        (b"", None, "invalid_json"),
        (b'{"model": 7}', "model", "invalid_type"),
    ],
)
def test_a_body_that_cannot_be_read_is_refused(tmp_path: Path, body: bytes, param: str | None, code: str) -> None:
    with recording() as recorder, running(Antwort(config(tmp_path), backend=recorder.url)) as app:
        found = post(app, content=body)
    assert found.status_code == 400
    assert (found.json()["error"]["param"], found.json()["error"]["code"]) == (param, code)
    assert recorder.bodies == []


def test_a_form_is_refused(tmp_path: Path) -> None:
    with recording() as recorder, running(Antwort(config(tmp_path), backend=recorder.url)) as app:
        found = post(app, content=b"{}", headers={"content-type": "text/plain"})
    assert found.status_code == 415
    assert recorder.bodies == []


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings"])
def test_a_model_inside_the_server_cannot_be_passed_through_to(tmp_path: Path, path: str) -> None:
    with running(Antwort(config(tmp_path))) as app:
        found = post(app, path, json={"messages": MESSAGES})
    error = found.json()["error"]
    assert found.status_code == 400
    assert "'antwort-demo' runs inside this server" in error["message"]
    assert ("server.chat_completions.functions" in error["message"]) is path.endswith("/chat/completions")
    assert "/v1/responses" in error["message"]
    assert (error["param"], error["code"]) == ("model", "unsupported_model")


def test_neither_can_a_backend_given_in_code(sdk: Sdk, tmp_path: Path) -> None:
    with running(Antwort(config(tmp_path), backend=ScriptedBackend([]))) as app, pytest.raises(openai.BadRequestError):
        sdk(app).chat.completions.create(model="scripted", messages=MESSAGES)


def test_a_model_nobody_has_is_not_found(sdk: Sdk, tmp_path: Path) -> None:
    backends = {"main": BackendConfig(url="http://127.0.0.1:1/v1", models=["model-a"])}
    with running(Antwort(config(tmp_path, backends=backends))) as app, pytest.raises(openai.NotFoundError) as error:
        sdk(app).chat.completions.create(model="model-b", messages=MESSAGES)
    assert error.value.code == "model_not_found"


# --- when the model server fails -------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [400, 404, 413, 422, 429])
@pytest.mark.parametrize("stream", [False, True])
def test_errors_about_the_request_are_passed_on(tmp_path: Path, status: int, stream: bool) -> None:
    failure = fail(status, "Too hot.", code="hot", type="their_type", headers={"retry-after": "17", "x-host": "gpu-7"})
    with ScriptServer([turn(error=failure)]) as model, before(model, tmp_path) as app:
        found = post(app, json={**CHAT, "stream": stream})
    assert found.status_code == status
    assert found.json()["error"] == {"message": "Too hot.", "type": "their_type", "param": None, "code": "hot"}
    assert found.headers["retry-after"] == "17"
    assert "x-host" not in found.headers


@pytest.mark.parametrize(
    ("status", "mapped", "code"),
    [
        (401, 502, "backend_unauthorized"),
        (403, 502, "backend_unauthorized"),
        (302, 502, "backend_unsuitable"),
        (405, 502, "backend_unsuitable"),
        (500, 502, "backend_error"),
        (502, 502, "backend_unavailable"),
        (503, 503, "backend_unavailable"),
        (504, 504, "backend_timeout"),
        (529, 503, "backend_unavailable"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_errors_of_the_server_itself_are_told_in_our_words(
    tmp_path: Path, status: int, mapped: int, code: str, stream: bool
) -> None:
    with recording(status, b'{"error": {"message": "key sk-123 at gpu-7"}}', {"location": "/x"}) as recorder:
        backends = {"main": BackendConfig(url=recorder.url)}
        with running(Antwort(config(tmp_path, backends=backends))) as app:
            found = post(app, json={**CHAT, "stream": stream})
    error = found.json()["error"]
    assert found.status_code == mapped
    assert "'main'" in error["message"]
    assert (error["type"], error["code"]) == ("server_error", code)
    if status in {401, 403}:
        assert "sk-123" not in error["message"]


@pytest.mark.parametrize("status", [400, 404, 429, 500])
@pytest.mark.parametrize("key", ["sk-of/operator", r"sk-of\/operator", r"\u0073k-of/operator"])
def test_an_error_that_repeats_the_key_of_the_server_is_told_without_it(tmp_path: Path, status: int, key: str) -> None:
    body = '{"error": {"message": "The model m is not for KEY", "code": "KEY"}}'.replace("KEY", key)
    with recording(status, body.encode()) as recorder:
        backends = {"main": BackendConfig(url=recorder.url, api_key=SecretStr("sk-of/operator"))}
        with running(Antwort(config(tmp_path, backends=backends))) as app:
            found = post(app, json=CHAT)
    assert found.status_code == (502 if status == 500 else status)
    assert "The model m is not for ***" in found.json()["error"]["message"]
    assert "operator" not in found.text


@pytest.mark.parametrize(
    ("status", "body", "mapped"),
    [
        (404, '{"detail": "Not Found"}', 502),
        (400, '{"detail": "n must be 1"}', 400),
        (422, '{"detail": [{"loc": ["body", "n"], "msg": "too many"}]}', 400),
        (429, "slow down", 429),
        (413, "<html><title>413 Too Large</title></html>", 413),
    ],
)
def test_errors_that_no_client_could_read_are_put_into_the_envelope(
    tmp_path: Path, status: int, body: str, mapped: int
) -> None:
    with ScriptServer([turn(error=fail(status, body=body))]) as model, before(model, tmp_path) as app:
        found = post(app, json=CHAT)
    assert found.status_code == mapped
    assert "'main'" in found.json()["error"]["message"]
    assert ("retry-after" in found.headers) == (status == 429)


def test_a_server_that_cannot_be_reached_is_503(sdk: Sdk, tmp_path: Path) -> None:
    with socket.socket() as taken:  # bound and not listening: connections are refused
        taken.bind(("127.0.0.1", 0))
        backends = {"main": BackendConfig(url=f"http://127.0.0.1:{taken.getsockname()[1]}/v1")}
        app = Antwort(config(tmp_path, backends=backends))
        with running(app) as server, pytest.raises(openai.InternalServerError) as error:
            sdk(server).chat.completions.create(model="m", messages=MESSAGES)
    assert error.value.status_code == 503
    assert error.value.code == "backend_unreachable"
    assert "'main'" in str(error.value)


def test_a_stream_that_does_not_begin_in_time_is_504(tmp_path: Path) -> None:
    with ScriptServer([turn("never", hang_after=0)]) as model, before(model, tmp_path, first_byte_timeout=0.2) as app:
        found = post(app, json={**CHAT, "stream": True})
    assert found.status_code == 504
    assert found.json()["error"]["code"] == "backend_timeout"
    assert "0.2 s (`backends.main.first_byte_timeout`)" in found.json()["error"]["message"]


def test_an_answer_that_is_not_streamed_has_until_the_deadline(tmp_path: Path) -> None:
    gate = Gate()
    steps = [turn("At last.", wait_for=gate), turn("never", hang_after=0)]
    with ScriptServer(steps) as model:
        settings = config(
            tmp_path,
            engine=EngineConfig(deadline=60),
            backends={"main": BackendConfig(url=model.url, first_byte_timeout=0.01)},
        )
        with running(Antwort(settings)) as app, ThreadPoolExecutor(1) as pool:
            slow = pool.submit(post, app, json=CHAT)
            gate.wait_reached()
            # What has a first byte to wait for was given up long ago by the time another request has its answer.
            assert post(app, json={**CHAT, "stream": True}).status_code == 504
            gate.open()
            assert slow.result().json()["choices"][0]["message"]["content"] == "At last."


def test_an_answer_that_is_not_complete_at_the_deadline_is_504(tmp_path: Path) -> None:
    with ScriptServer([turn("never", hang_after=0)]) as model:
        settings = config(tmp_path, engine=EngineConfig(deadline=0.2), backends={"main": BackendConfig(url=model.url)})
        with running(Antwort(settings)) as app:
            found = post(app, json=CHAT)
    assert (found.status_code, found.json()["error"]["code"]) == (504, "deadline_exceeded")
    assert "within 0.2 s (`engine.deadline`)" in found.json()["error"]["message"]


def test_a_stream_nobody_asked_for_is_not_cut_by_the_deadline(tmp_path: Path) -> None:
    with telltale() as model:
        backend = BackendConfig(url=model.url, chunk_timeout=0.5)
        settings = config(tmp_path, engine=EngineConfig(deadline=0.2), backends={"main": backend})
        with running(Antwort(settings)) as app:
            found = post(app, json={**CHAT, "model": "silent-stream"})
    assert found.status_code == 200
    assert "0.5 s (`backends.main.chunk_timeout`)" in found.text


def test_a_server_that_drops_the_connection_is_502(tmp_path: Path) -> None:
    with ScriptServer([turn("never", close_after=0)]) as model, before(model, tmp_path) as app:
        found = post(app, json=CHAT)
    assert found.status_code == 502
    assert found.json()["error"]["code"] == "backend_disconnected"


@pytest.mark.parametrize(
    ("options", "seconds", "code"),
    [({"close_after": 1}, 60, "backend_disconnected"), ({"hang_after": 1}, 0.2, "backend_timeout")],
)
def test_a_stream_that_breaks_off_ends_with_an_error(
    sdk: Sdk, tmp_path: Path, options: dict[str, Any], seconds: float, code: str
) -> None:
    step = turn(["Hel", "lo"], **options)
    with ScriptServer([step]) as model, before(model, tmp_path, chunk_timeout=seconds) as app:
        stream = sdk(app).chat.completions.create(model="scripted", messages=MESSAGES, stream=True)
        seen = []
        with pytest.raises(openai.APIError) as error:
            seen += [chunk.choices[0].delta.content for chunk in stream]
    assert "'main'" in error.value.message
    assert error.value.code == code


# --- leaving and pausing ---------------------------------------------------------------------------------------------


def test_a_client_that_leaves_a_stream_aborts_it_at_the_server(tmp_path: Path) -> None:
    gate = Gate()
    with ScriptServer([turn(["Hel", gate, "lo"])]) as model, before(model, tmp_path) as app:
        with httpx.stream("POST", f"{app.url}/v1/chat/completions", json={**CHAT, "stream": True}) as response:
            assert b"Hel" in b"".join(_until(response, b"Hel"))
            gate.wait_reached()
        gate.wait_abandoned()
    assert model.cancelled == [1]


def test_a_client_that_leaves_before_the_answer_aborts_it_too(tmp_path: Path) -> None:
    gate = Gate()
    with ScriptServer([turn("late", wait_for=gate)]) as model, before(model, tmp_path) as app:
        host, port = app.url.removeprefix("http://").split(":")
        body = json.dumps(CHAT).encode()
        with socket.create_connection((host, int(port))) as client:
            client.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n")
            client.sendall(b"content-length: %d\r\n\r\n" % len(body) + body)
            gate.wait_reached()
        gate.wait_abandoned()


async def test_a_client_that_does_not_read_pauses_the_reading_of_the_server() -> None:
    reply = _Endless()
    route = ModelRoute(ScriptedBackend([]), transport=cast("Transport", _Always(reply)))
    keeper = cast("ChatKeeper", None)
    endpoints = Passthrough(ModelRouter([route]), Metrics("0"), NoTracer(), LargeWork(), max_values=1000, keeper=keeper)
    sent = 0
    full, left = asyncio.Event(), asyncio.Event()
    incoming: list[Message] = [{"type": "http.request", "body": json.dumps(CHAT).encode()}]

    async def receive() -> Message:
        if incoming:
            return incoming.pop()
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        nonlocal sent
        sent += message["type"] == "http.response.body"
        if sent == 3:
            full.set()
            await asyncio.Event().wait()

    scope = {"type": "http", "method": "POST", "path": "/", "headers": [], CONTEXT: Context("acme")}
    serving = asyncio.ensure_future(endpoints.chat_completions(scope, receive, send))
    async with asyncio.timeout(60):
        await full.wait()
    for _ in range(20):
        await asyncio.sleep(0)
    assert reply.reads == 3
    left.set()
    await serving
    assert reply.aborted


class _Endless:
    status = 200
    headers: Mapping[str, str] = {"content-type": "text/event-stream"}

    def __init__(self) -> None:
        self.reads = 0
        self.aborted = False

    async def chunk(self) -> bytes:
        self.reads += 1
        return b"data: {}\n\n"

    def limit_silence(self, seconds: float) -> None: ...

    def abort(self) -> None:
        self.aborted = True


class _Always:
    timeouts = Timeouts(1, 1, 1)

    def __init__(self, reply: _Endless) -> None:
        self._reply = reply

    async def post(self, *_: object) -> Reply:
        return cast("Reply", self._reply)


def _until(response: httpx.Response, mark: bytes) -> Iterator[bytes]:
    for data in response.iter_raw():
        yield data
        if mark in data:
            return
