"""Our own extensions keep the contracts that others inherit."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr
from tests.backends import test_responses_answer as responses
from tests.providers.web_search.stage import found, result
from tests.support.embeddings import Service
from tests.support.qdrant import OwnQdrant, QdrantServer
from tests.support.s3 import Bucket
from tests.support.site import Site
from typing_extensions import override

from antwort.backends.chat.backend import ChatBackend
from antwort.backends.messages.backend import MessagesBackend
from antwort.backends.messages.thinking import AnthropicSettings
from antwort.backends.responses.backend import ResponsesBackend
from antwort.config import BackendConfig
from antwort.extensions import (
    Blobs,
    EmbeddingClient,
    RemoteBackend,
    Reranker,
    Sandbox,
    SearchEngine,
    VectorDatabase,
)
from antwort.files import open_blobs
from antwort.outbound import Outbound
from antwort.providers.file_search.embedding import HttpEmbedding, MiniLM
from antwort.providers.file_search.reranking import HttpReranker, HttpRerankerSettings
from antwort.providers.file_search.settings import PgvectorSettings, QdrantSettings
from antwort.providers.file_search.vectors.embedded.backend import Embedded
from antwort.providers.file_search.vectors.pgvector.backend import Pgvector
from antwort.providers.web_search.searxng import SearXNG, SearXNGSettings
from antwort.sandbox import sandbox_of
from antwort.testing import (
    BlobStoreContract,
    DialectContract,
    EmbeddingContract,
    RerankerContract,
    SandboxContract,
    ScriptServer,
    SearchEngineContract,
    Turn,
    VectorDatabaseContract,
)
from antwort.testing.messages import MessagesWriter
from antwort.testing.playback import TurnPiece
from antwort.types import JSON


class TestEmbedded(VectorDatabaseContract):
    @override
    def make(self, folder: Path) -> VectorDatabase:
        return Embedded(folder / "vectors")


class TestQdrant(VectorDatabaseContract):
    @pytest.fixture(autouse=True)
    def _server(self, qdrant: QdrantServer) -> None:
        self.url = qdrant.url

    @override
    def make(self, folder: Path) -> VectorDatabase:
        return OwnQdrant(QdrantSettings(url=self.url))


class TestPgvector(VectorDatabaseContract):
    @pytest.fixture(autouse=True)
    def _server(self, postgres_url: str) -> None:
        self.url = postgres_url

    @override
    def make(self, folder: Path) -> VectorDatabase:
        return Pgvector(PgvectorSettings(url=SecretStr(self.url)))


class TestMiniLM(EmbeddingContract):
    @override
    async def make(self) -> EmbeddingClient:
        return MiniLM(threads=1)


class TestFolder(BlobStoreContract):
    @override
    def make(self, folder: Path) -> Blobs:
        return open_blobs(None, folder / "files")


class TestBucket(BlobStoreContract):
    @pytest.fixture(autouse=True)
    def _bucket(self, bucket: Bucket) -> None:
        self.bucket = bucket

    @override
    def make(self, folder: Path) -> Blobs:
        return open_blobs(self.bucket.settings, folder)


@pytest.mark.parametrize("runtime", ["bubblewrap", "runsc", "unsafe"])
class TestSandboxes(SandboxContract):
    @pytest.fixture(autouse=True)
    def _runtime(self, runtime: str) -> None:
        self.runtime = runtime

    @override
    def make(self) -> Sandbox:
        return sandbox_of(self.runtime, Sandbox())


def chat_chunks(turn: Turn) -> Iterator[JSON]:
    """Write a turn as servers of Chat Completions do."""
    deltas: list[JSON] = [{"reasoning_content": thought} for thought in turn.reasoning]
    deltas += [{"content": piece} for piece in turn.text]
    for index, one in enumerate(turn.calls):
        function = {"name": one.name, "arguments": "".join(one.arguments)}
        deltas.append({"tool_calls": [{"index": index, "id": f"c{index}", "type": "function", "function": function}]})
    for delta in deltas:
        yield {"choices": [{"index": 0, "delta": delta}]}
    usage = turn.usage
    assert usage is not None
    yield {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls" if turn.calls else "stop"}]}
    yield {"choices": [], "usage": {"prompt_tokens": usage.input_tokens, "completion_tokens": usage.output_tokens}}


class TestChatCompletions(DialectContract):
    @override
    def make(self, url: str) -> RemoteBackend:
        return ChatBackend("main", BackendConfig(url=url))

    @override
    def written(self, turn: Turn, *, streamed: bool) -> tuple[str, list[bytes]]:
        chunks = list(chat_chunks(turn))
        if streamed:
            events = [b"data: %s\n\n" % json.dumps(chunk).encode() for chunk in chunks]
            return "text/event-stream", [*events, b"data: [DONE]\n\n"]
        deltas = [chunk["choices"][0]["delta"] for chunk in chunks[:-1]]
        whole = {
            "content": "".join(delta.get("content", "") for delta in deltas),
            "reasoning_content": "".join(delta.get("reasoning_content", "") for delta in deltas),
            "tool_calls": [call for delta in deltas for call in delta.get("tool_calls", ())],
        }
        choice = {"index": 0, "message": whole, "finish_reason": chunks[-2]["choices"][0]["finish_reason"]}
        return "application/json", [json.dumps({"choices": [choice], "usage": chunks[-1]["usage"]}).encode()]


class OwnReranker(HttpReranker):
    def __init__(self, url: str) -> None:
        self._client = Outbound()
        super().__init__(HttpRerankerSettings(url=url), self._client)

    @override
    async def close(self) -> None:
        await self._client.close()


class TestHttpReranker(RerankerContract):
    @pytest.fixture(autouse=True)
    def _service(self) -> Iterator[None]:
        with ScriptServer([]) as server:
            self.url = server.url
            yield

    @override
    async def make(self) -> Reranker:
        return OwnReranker(f"{self.url}/rerank")


class OwnEmbedding(HttpEmbedding):
    def __init__(self, url: str) -> None:
        self._client = Outbound()
        super().__init__(self._client, url)

    @override
    async def close(self) -> None:
        await super().close()
        await self._client.close()


class TestHttpEmbedding(EmbeddingContract):
    @pytest.fixture(autouse=True)
    def _service(self) -> Iterator[None]:
        with Service() as service:
            self.url = service.url
            yield

    @override
    async def make(self) -> EmbeddingClient:
        return OwnEmbedding(self.url)


class TestSearxng(SearchEngineContract):
    @pytest.fixture(autouse=True)
    def _site(self) -> Iterator[None]:
        with Site({"*": found(result("tea"), result("milk"))}) as site:
            self.url = site.url
            yield

    @override
    def make(self) -> SearchEngine:
        return SearXNG(SearXNGSettings(url=self.url))


def response_items(turn: Turn) -> Iterator[JSON]:
    """Write the items of a turn as the Responses API has them."""
    if turn.reasoning:
        thoughts = [{"type": "reasoning_text", "text": thought} for thought in turn.reasoning]
        yield {"id": "rs_1", "type": "reasoning", "summary": [], "content": thoughts}
    if turn.text:
        yield responses.message("".join(str(piece) for piece in turn.text))
    for number, one in enumerate(turn.calls):
        yield responses.call(f"call_{number}", one.name, "".join(one.arguments))


class TestResponsesApi(DialectContract):
    @override
    def make(self, url: str) -> RemoteBackend:
        return ResponsesBackend("main", BackendConfig(url=url))

    @override
    def written(self, turn: Turn, *, streamed: bool) -> tuple[str, list[bytes]]:
        assert turn.usage is not None
        usage = {"input_tokens": turn.usage.input_tokens, "output_tokens": turn.usage.output_tokens}
        items = list(response_items(turn))
        end = responses.end(output=items, usage=usage)
        if not streamed:
            return "application/json", [json.dumps(end["response"]).encode()]
        events: list[JSON] = []
        for index, item in enumerate(items):
            events.append(responses.added(index, {**item, "content": [], "arguments": ""}))
            if item["type"] == "message":
                events += [responses.text(str(piece), index) for piece in turn.text]
            elif item["type"] == "reasoning":
                place = {"item_id": "rs_1", "output_index": index, "content_index": 0}
                events += [
                    {"type": "response.reasoning_text.delta", "delta": one["text"], **place} for one in item["content"]
                ]
            else:
                events.append(responses.arguments(index, item["arguments"]))
            events.append(responses.done(index, item))
        return "text/event-stream", [b"data: %s\n\n" % json.dumps(event).encode() for event in [*events, end]]


class TestMessagesApi(DialectContract):
    @override
    def make(self, url: str) -> RemoteBackend:
        return MessagesBackend(AnthropicSettings(), "main", BackendConfig(url=url))

    @override
    def written(self, turn: Turn, *, streamed: bool) -> tuple[str, list[bytes]]:
        writer = MessagesWriter(turn, 1, {"model": "small"}, set())
        pieces = [TurnPiece(kind, str(one)) for kind in ("reasoning", "text") for one in getattr(turn, kind)]
        pieces += [TurnPiece("call", "".join(one.arguments), index, one) for index, one in enumerate(turn.calls)]
        if not streamed:
            return "application/json", [json.dumps(writer.completion(pieces)).encode()]
        events = [*writer.start(), *writer.deltas(pieces), *writer.end()]
        return "text/event-stream", [f"event: {one['type']}\ndata: {json.dumps(one)}\n\n".encode() for one in events]
