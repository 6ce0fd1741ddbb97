"""Reading bodies, and refusing what does not claim to be JSON."""

import gc
import gzip
import json
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from pydantic import BaseModel, ByteSize
from starlette.requests import ClientDisconnect
from websockets.sync.client import connect

from antwort import Antwort
from antwort.concurrency.load import ServerLoad
from antwort.config import Config, ServerConfig
from antwort.errors import BadRequestError, ServiceUnavailableError, UnsupportedMediaTypeError
from antwort.observability import Metrics
from antwort.provider import Provider, route
from antwort.server.gate import AllowedHosts, BodyBudget, BodyLimit, RequestGate, RequestGuards
from antwort.server.observation import Observation
from antwort.server.router import Router
from antwort.testing import Gate, ScriptedBackend, Turn, running, turn
from antwort.web.requests import read_body, require_json


def receiving(*messages: Any) -> Any:
    left: Iterator[Any] = iter(messages)

    async def receive() -> Any:
        return next(left)

    return receive


def piece(body: bytes, *, more: bool) -> Any:
    return {"type": "http.request", "body": body, "more_body": more}


async def test_a_body_is_read_in_one_piece_or_in_many() -> None:
    assert await read_body(receiving(piece(b"abc", more=False))) == b"abc"
    assert await read_body(receiving({"type": "http.request"})) == b""
    pieces = [piece(b"a", more=True), piece(b"", more=True), piece(b"c", more=False)]
    assert await read_body(receiving(*pieces)) == b"ac"


@pytest.mark.parametrize("before", [[], [piece(b"a", more=True)]])
async def test_a_client_that_leaves_has_no_body(before: list[Any]) -> None:
    with pytest.raises(ClientDisconnect):
        await read_body(receiving(*before, {"type": "http.disconnect"}))


@pytest.mark.parametrize("value", [b"application/json", b"Application/JSON; charset=utf-8", b"text/json", b"a/b+json"])
def test_what_claims_to_be_json_is_taken(value: bytes) -> None:
    require_json({b"content-type": value})
    require_json({})


@pytest.mark.parametrize("value", [b"text/plain", b"application/x-www-form-urlencoded", b"", b"application/jsonp"])
def test_what_claims_to_be_something_else_is_refused(value: bytes) -> None:
    with pytest.raises(UnsupportedMediaTypeError, match="application/json"):
        require_json({b"host": b"x", b"content-type": value})


@pytest.mark.parametrize("origin", [b"https://evil.example", b"null"])
def test_what_claims_nothing_is_not_taken_from_web_pages(origin: bytes) -> None:
    with pytest.raises(UnsupportedMediaTypeError, match="application/json"):
        require_json({b"origin": origin})
    headers: dict[bytes, bytes]
    for headers in ({b"origin": origin}, {}):
        require_json({**headers, b"content-type": b"application/json"})
        require_json({b"content-type": b"application/json", **headers})


PATHS = [
    "/v1/responses",
    "/v1/responses/compact",
    "/v1/responses/input_tokens",
    "/v1/conversations",
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/decisions",
    "/v1/moderations",
    "/v1/images/generations",
]


class Vessel(BaseModel):
    """What a provider's route reads."""

    name: str


class Harbour(Provider):
    @route("POST", "/v1/vessel")
    async def put(self, body: Vessel) -> dict[str, str]:
        """Take a vessel."""
        return {"name": body.name}


@pytest.mark.parametrize("path", PATHS)
def test_a_page_of_another_site_cannot_send_what_browsers_let_it_send_without_asking(tmp_path: Path, path: str) -> None:
    body = b'{"model": "scripted", "input": "Hi", "messages": []}'
    kinds = ["text/plain", "text/plain;charset=UTF-8", "application/x-www-form-urlencoded", "multipart/form-data", None]
    model = ScriptedBackend([])
    with running(Antwort(Config(data_dir=tmp_path), backend=model)) as server:
        for kind in kinds:
            headers = {"origin": "https://evil.example"} | ({} if kind is None else {"content-type": kind})
            found = httpx.post(f"{server.url}{path}", content=body, headers=headers)
            assert (found.status_code, found.json()["error"]["code"]) == (415, "unsupported_media_type"), kind
        asked = {"origin": "https://evil.example", "access-control-request-method": "POST"}
        preflight = httpx.options(
            f"{server.url}{path}", headers={**asked, "access-control-request-headers": "content-type"}
        )
        assert "access-control-allow-origin" not in preflight.headers
    assert model.script.requests == []


def test_a_page_of_another_site_cannot_send_what_needs_no_body(tmp_path: Path) -> None:
    app = Antwort(Config(data_dir=tmp_path), backend=ScriptedBackend([]), providers=[Harbour()])
    paths = ["/v1/providers/harbour/disable", "/v1/responses/resp_1/cancel", "/v1/runs/resp_1/retry", "/mcp"]
    with running(app) as server:
        for path in paths:
            for kind in ("text/plain", "Text/Plain; x=application/json", "multipart/form-data; boundary=x", "", None):
                headers = {"origin": "null"} | ({} if kind is None else {"content-type": kind})
                found = httpx.post(f"{server.url}{path}", headers=headers)
                assert (found.status_code, found.json()["error"]["code"]) == (415, "unsupported_media_type"), path
        own = {"origin": server.url}
        for headers in ({}, {**own, "content-type": "application/json"}, {**own, "authorization": "Bearer none"}):
            found = httpx.post(f"{server.url}/v1/providers/harbour/disable", headers=headers)
            assert (found.status_code, found.json()["enabled"]) == (200, False)


@pytest.mark.parametrize("path", [*PATHS, "/v1/vessel"])
def test_a_body_that_was_encoded_is_refused_by_the_name_of_the_header(tmp_path: Path, path: str) -> None:
    body = gzip.compress(b'{"model": "scripted", "input": "Hi", "messages": []}')
    app = Antwort(Config(data_dir=tmp_path), backend=ScriptedBackend([]), providers=[Harbour()])
    with running(app) as server:
        for encoding in ("gzip", "GZIP", "br", "identity, gzip", "x-unknown"):
            headers = {"content-type": "application/json", "content-encoding": encoding}
            found = httpx.post(f"{server.url}{path}", content=body, headers=headers)
            assert (found.status_code, found.json()["error"]["code"]) == (415, "unsupported_media_type"), encoding
            assert "Content-Encoding" in found.json()["error"]["message"]
            assert found.headers["accept-encoding"] == "identity"


def test_a_body_that_says_it_was_not_encoded_is_taken(tmp_path: Path) -> None:
    with running(Antwort(Config(data_dir=tmp_path), backend=ScriptedBackend(["Hello."]))) as server:
        headers = {"content-encoding": "Identity"}
        found = httpx.post(f"{server.url}/v1/responses", json={"input": "Hi"}, headers=headers)
    assert found.status_code == 200


# --- all together ----------------------------------------------------------------------------------------------------

LARGE = {"model": "scripted", "input": "x" * 600_000}
BUDGET = ServerConfig(max_bodies_bytes=ByteSize(1_000_000), max_body_bytes=ByteSize(1_000_000))


def test_the_bodies_of_all_requests_under_way_have_a_largest_size_together(tmp_path: Path) -> None:
    gate = Gate()
    steps: list[Turn | str] = [turn(["On", gate, "e"]), "Small.", "Two"]
    with (
        ScriptedBackend(steps) as model,
        running(Antwort(Config(data_dir=tmp_path, server=BUDGET), backend=model)) as site,
        httpx.Client(base_url=site.url, timeout=60) as client,
        ThreadPoolExecutor() as pool,
    ):
        first = pool.submit(client.post, "/v1/responses", json=LARGE)
        gate.wait_reached()
        refused = client.post("/v1/responses", json=LARGE)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert refused.json()["error"]["code"] == "server_overloaded"
        small = client.post("/v1/responses", json={"model": "scripted", "input": "x" * 60_000})
        assert small.status_code == 200
        gate.open()
        assert first.result().status_code == 200
        assert client.post("/v1/responses", json=LARGE).status_code == 200


def test_requests_on_websockets_count_among_the_bodies(tmp_path: Path) -> None:
    gate = Gate()
    with (
        ScriptedBackend([turn(["On", gate, "e"]), "Two"]) as model,
        running(Antwort(Config(data_dir=tmp_path, server=BUDGET), backend=model)) as site,
        connect(f"ws{site.url.removeprefix('http')}/v1/responses", proxy=None, max_size=None) as socket,
        httpx.Client(base_url=site.url, timeout=60) as client,
    ):
        socket.send(json.dumps({"type": "response.create", **LARGE}))
        gate.wait_reached()
        assert client.post("/v1/responses", json=LARGE).status_code == 503
        socket.send(json.dumps({"type": "response.create", **LARGE}))
        while (event := json.loads(socket.recv(60)))["type"] != "error":
            pass
        assert (event["status"], event["error"]["code"]) == (503, "server_overloaded")
        gate.open()
        while json.loads(socket.recv(60))["type"] != "response.completed":
            pass
        assert client.post("/v1/responses", json=LARGE).status_code == 200


def gate_before(app: Any, bodies: BodyBudget) -> RequestGate:
    """Return a gate that lets every request to a public path in, and has it answered by an app."""
    nobody: Any = None
    limit = BodyLimit(1_000_000, bodies, max_values=1_000_000)
    guards = RequestGuards(AllowedHosts(["*"]), limit, nobody, nobody, nobody, public={"/"}, load=ServerLoad())
    return RequestGate(cast("Router", _Answering(app)), guards, Observation(Metrics("1"), access_log=False))


class _Answering:
    """A router with one answer to all, which counts nothing."""

    def __init__(self, app: Any) -> None:
        self._app = app

    def __call__(self, scope: Any, receive: Any, send: Any) -> Any:
        return self._app(scope, receive, send)

    def count_refusal(self, *_: object) -> None:
        return None


async def test_a_body_that_was_refused_counts_no_more() -> None:
    bodies = BodyBudget(100_000)
    answers: list[Any] = []

    async def send(message: Any) -> None:
        answers.append(message)

    async def app(_scope: Any, receive: Any, _send: Any) -> None:
        while True:
            await receive()

    chunks = receiving(*[piece(b"x" * 40_000, more=True)] * 3)
    scope = {"type": "http", "method": "POST", "path": "/", "headers": [(b"host", b"localhost")]}
    await gate_before(app, bodies)(scope, chunks, send)
    assert answers[0]["status"] == ServiceUnavailableError.status
    assert bodies.held == 0


async def test_a_small_body_may_have_too_many_values_too() -> None:
    limit = BodyLimit(1_000_000, BodyBudget(1_000_000), max_values=1000)
    text = b"[" + b"1," * 2000 + b"1]"
    headers: dict[bytes, bytes]
    for headers in ({b"content-length": b"%d" % len(text)}, {}):
        body = limit.watch({"path": "/"}, headers, receiving(piece(text, more=False)))
        assert body is not None
        with pytest.raises(BadRequestError, match="max_values"):
            await read_body(body.receive)


class Held:
    """Something of a request, whose end can be seen."""


async def test_an_error_does_not_keep_the_body_until_garbage_is_collected() -> None:
    ended: list[str] = []

    async def app(_scope: Any, _receive: Any, _send: Any) -> None:
        held = Held()
        weakref.finalize(held, ended.append, "ended")
        raise BadRequestError("That is not enough.")

    async def send(_message: Any) -> None:
        pass

    gc.collect()
    gc.disable()
    try:
        scope = {"type": "http", "method": "POST", "path": "/", "headers": [(b"host", b"localhost")]}
        await gate_before(app, BodyBudget(1))(scope, receiving(), send)
        assert ended == ["ended"]
    finally:
        gc.enable()
