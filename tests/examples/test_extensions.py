"""Each extension of the examples keeps its contract, and serves an app that names its file."""

import asyncio
import contextlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest
from aiohttp import web
from examples.extensions.json_search import JsonIndex, JsonIndexSettings
from examples.extensions.ollama_dialect import Ollama, OllamaSettings
from examples.extensions.sqlite_vectors import SqliteSettings, SqliteVectors
from tests.support.embeddings import EmbeddingServer
from typing_extensions import override

from antwort.config import BackendConfig
from antwort.extensions import RemoteBackend, SearchEngine, VectorDatabase
from antwort.testing import (
    AppFactory,
    DialectContract,
    SearchEngineContract,
    Turn,
    VectorDatabaseContract,
    call,
    turn,
)
from antwort.types import JSON

EXTENSIONS = Path(__file__).parents[2] / "examples" / "extensions"
PAGES = [
    {"title": "Tea", "url": "https://example.org/tea", "text": "Tea leaves are dried in the shade."},
    {"title": "Coffee", "url": "https://example.org/coffee", "text": "Coffee is roasted."},
]


class TestSqliteVectors(VectorDatabaseContract):
    @override
    def make(self, folder: Path) -> VectorDatabase:
        return SqliteVectors(SqliteSettings(path=folder / "vectors.db"), cast("Any", None))


class TestJsonIndex(SearchEngineContract):
    @pytest.fixture(autouse=True)
    def _index(self, tmp_path: Path) -> None:
        self.index = tmp_path / "pages.json"
        self.index.write_text(json.dumps(PAGES))

    @override
    def make(self) -> SearchEngine:
        return JsonIndex(JsonIndexSettings(index=self.index))


def ollama_lines(turn: Turn) -> Iterator[JSON]:
    """Write a turn as Ollama does."""
    for thought in turn.reasoning:
        yield {"message": {"role": "assistant", "content": "", "thinking": thought}, "done": False}
    for piece in turn.text:
        yield {"message": {"role": "assistant", "content": piece}, "done": False}
    for one in turn.calls:
        function = {"name": one.name, "arguments": json.loads("".join(one.arguments))}
        yield {"message": {"role": "assistant", "content": "", "tool_calls": [{"function": function}]}, "done": False}
    usage = turn.usage
    assert usage is not None
    counts = {"prompt_eval_count": usage.input_tokens, "eval_count": usage.output_tokens}
    yield {"message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "stop", **counts}


def ollama_whole(turn: Turn) -> JSON:
    """Write a turn in one piece."""
    *lines, last = ollama_lines(turn)
    said = [line["message"] for line in lines]
    message = {
        "content": "".join(one["content"] for one in said),
        "thinking": "".join(one.get("thinking", "") for one in said),
        "tool_calls": [call for one in said for call in one.get("tool_calls", ())],
    }
    return {**last, "message": message}


class TestOllama(DialectContract):
    models: ClassVar = {"models": [{"name": "small", "model": "small"}]}

    @override
    def make(self, url: str) -> RemoteBackend:
        return Ollama(OllamaSettings(num_ctx=4096), "local", BackendConfig(url=url), None)

    @override
    def written(self, turn: Turn, *, streamed: bool) -> tuple[str, list[bytes]]:
        if streamed:
            return "application/x-ndjson", [json.dumps(line).encode() + b"\n" for line in ollama_lines(turn)]
        return "application/json; charset=utf-8", [json.dumps(ollama_whole(turn)).encode()]


# --- in an app -------------------------------------------------------------------------------------------------------


def test_an_app_keeps_its_vectors_there(antwort_app: AppFactory, tmp_path: Path) -> None:
    with EmbeddingServer() as embeddings:
        chosen = {"use": f"{EXTENSIONS}/sqlite_vectors.py:SqliteVectors", "path": str(tmp_path / "own.db")}
        settings = {"enabled": True, "vector_backend": chosen, "embedding_url": embeddings.url}
        app = antwort_app({"providers": {"files": {"enabled": True}, "file_search": settings}})
        store = app.request("POST", "/v1/vector_stores", body={"name": "notes"}).json()["id"]
        points = [{"file_id": "f", "filename": "f.txt", "text": "tea leaves are dried"}]
        assert app.request("POST", f"/v1/vector_stores/{store}/points", body={"points": points}).status == 200
        answer = app.request("POST", f"/v1/vector_stores/{store}/search", body={"query": "tea leaves"}).json()
        assert [one["content"][0]["text"] for one in answer["data"]] == ["tea leaves are dried"]
    assert (tmp_path / "own.db").exists()


def test_an_app_searches_there(antwort_app: AppFactory, tmp_path: Path) -> None:
    index = tmp_path / "pages.json"
    index.write_text(json.dumps(PAGES))
    chosen = {"use": f"{EXTENSIONS}/json_search.py:JsonIndex", "index": str(index)}
    app = antwort_app({"providers": {"web_search": {"enabled": True, "backend": chosen}}})
    assert "https://example.org/tea" in app.call("web_search", {"query": "tea leaves"}).output
    assert 'antwort_websearch_queries_total{backend="JsonIndex",status="success"} 1.0' in app.get("/metrics").text


@contextlib.contextmanager
def ollama(*turns: Turn) -> Iterator[str]:
    """Serve turns as Ollama does, on a thread of its own, and yield the URL."""
    loop, left = asyncio.new_event_loop(), list(turns)

    async def answer(request: web.Request) -> web.StreamResponse:
        asked = await request.json()
        one = left.pop(0)
        if not asked["stream"]:
            return web.json_response(ollama_whole(one))
        stream = web.StreamResponse(headers={"content-type": "application/x-ndjson"})
        await stream.prepare(request)
        for line in ollama_lines(one):
            await stream.write(json.dumps(line).encode() + b"\n")
        return stream

    async def tags(_: web.Request) -> web.Response:
        return web.json_response(TestOllama.models)

    async def start() -> web.AppRunner:
        app = web.Application()
        app.router.add_post("/api/chat", answer)
        app.router.add_get("/api/tags", tags)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return runner

    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    runner = asyncio.run_coroutine_threadsafe(start(), loop).result(30)
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def test_an_app_asks_a_server_in_that_dialect(antwort_app: AppFactory) -> None:
    calls = turn(calls=[call("calculate", expression="6 * 7")])
    with ollama(calls, turn("It is 42."), turn("Hello.")) as url:
        chosen = {"use": f"{EXTENSIONS}/ollama_dialect.py:Ollama", "num_ctx": 4096}
        app = antwort_app({"backends": {"local": {"url": url, "api": chosen}}})
        asked = {"model": "small", "input": "What is 6 * 7?"}
        answer = app.request("POST", "/v1/responses", body=asked)
        assert answer.status == 200, answer.text
        assert answer.json()["output"][-1]["content"][0]["text"] == "It is 42."
        streamed = app.request("POST", "/v1/responses", body={**asked, "stream": True}).text
        assert '"delta":"Hello."' in streamed
