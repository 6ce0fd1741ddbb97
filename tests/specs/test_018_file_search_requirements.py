"""Specification 018, file search: each functional requirement by name, in the setting of the scenarios."""

import inspect
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.http.sdk import Served, create
from tests.providers.file_search.stage import (
    KEYS,
    answering,
    outputs,
    pipeline,
    search_item,
    searching,
    settings_for,
    staged,
    tool,
    until,
    write,
)
from tests.support.embeddings import EmbeddingServer, embedded
from tests.support.qdrant import OwnQdrant, QdrantServer
from typing_extensions import override

from antwort import Antwort, FunctionProvider
from antwort.config import Config, load_config
from antwort.extensions import Attributes, Chunk, Count, Hit, Query, VectorDatabase
from antwort.providers.file_search import FileSearch
from antwort.providers.file_search.embedding import EmbeddingClient
from antwort.testing import running


@pytest.fixture
def embeddings() -> Iterator[EmbeddingServer]:
    """A server that embeds."""
    with EmbeddingServer() as server:
        yield server


class Counting(EmbeddingClient):
    """An embedding client of ours: the vector of a text is its length and its number of words."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    @override
    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        self.texts += texts
        return [[float(len(text)), float(len(text.split()))] for text in texts]

    @override
    async def dimensions(self) -> int:
        return 2

    @override
    async def close(self) -> None:
        self.texts.append("(closed)")


class Memory(VectorDatabase):
    """A backend of ours: it finds everything."""

    name = "memory"

    def __init__(self) -> None:
        self.kept: dict[str, list[Chunk]] = {}

    @override
    async def create_collection(self, name: str, dimensions: int) -> None:
        self.kept.setdefault(name, [])

    @override
    async def delete_collection(self, name: str) -> None:
        self.kept.pop(name, None)

    @override
    async def collections(self) -> list[str]:
        return sorted(self.kept)

    @override
    async def dimensions(self, name: str) -> int | None:
        return 2 if name in self.kept else None

    @override
    async def upsert(self, name: str, chunks: Sequence[Chunk]) -> None:
        self.kept[name] += chunks

    @override
    async def delete(self, name: str, *, tenant: str, file_id: str | None = None, vector_store_id: str = "") -> None:
        self.kept[name].clear()

    @override
    async def remove(self, name: str, ids: Sequence[str], *, tenant: str, vector_store_id: str = "") -> None:
        self.kept[name] = [one for one in self.kept[name] if one.id not in ids]

    @override
    async def set_attributes(
        self, name: str, attributes: Attributes, *, tenant: str, file_id: str, vector_store_id: str = ""
    ) -> None:
        self.kept[name] = [replace(one, attributes=attributes) for one in self.kept[name]]

    @override
    async def fetch(self, name: str, ids: Sequence[str], *, tenant: str, vector_store_id: str = "") -> dict[str, Hit]:
        return {hit.id: hit for hit in await self.search(name, Query(tenant)) if hit.id in ids}

    @override
    async def search(self, name: str, query: Query) -> list[Hit]:
        return [Hit(one.id, 0.5, one.text, one.file_id, one.filename, one.index, {}) for one in self.kept[name]]

    @override
    async def count(self, name: str, *, tenant: str, vector_store_id: str = "") -> Count:
        return Count(len(self.kept[name]), len(self.kept[name]), 0)

    @override
    async def health(self) -> None:
        """Say nothing: it is well."""

    @override
    async def close(self) -> None:
        self.kept.clear()


def series(stage: Served, name: str) -> float:
    """Return the value of a series at /metrics."""
    text = httpx.get(f"{stage.server.url}/metrics").text
    line = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
    return float(line[1]) if line else 0.0


def test_fr_001_the_provider_is_a_function_provider() -> None:
    assert isinstance(FileSearch(), FunctionProvider)


def test_fr_002_file_search_has_a_query_and_optional_vector_store_ids(
    tmp_path: Path, qdrant_server: QdrantServer, embeddings: EmbeddingServer
) -> None:
    with staged(tmp_path, ["Hello."], settings_for(qdrant_server, embeddings)) as stage:
        create(stage, False, input="hi", tools=[tool("vs_1", "vs_2")])
        [offered] = stage.requests[0].tools
    assert offered["name"] == "file_search"
    assert set(offered["parameters"]["properties"]) == {"query", "vector_store_ids"}
    assert offered["parameters"]["required"] == ["query"]


def test_fr_003_results_are_structured_text_with_document_content_and_score(
    tmp_path: Path, qdrant_server: QdrantServer, embeddings: EmbeddingServer
) -> None:
    with staged(tmp_path, searching("green tea"), settings_for(qdrant_server, embeddings)) as stage:
        store = stage.client().vector_stores.create(name="drinks")
        pipeline(tmp_path / "documents", {"tea.md": "green tea"}, store.id, qdrant_server, embeddings)
        create(stage, False, input="?", tools=[tool(store.id)])
        [output] = outputs(stage)
    assert "\n[1] tea.md (chunk 0, score 1.00)\ngreen tea\n" in output


def test_fr_004_the_embedding_client_is_an_interface(tmp_path: Path, qdrant_server: QdrantServer) -> None:
    assert {"embed", "dimensions"} <= {name for name, _ in inspect.getmembers(EmbeddingClient, inspect.isfunction)}
    own = Counting()
    provider = FileSearch.from_settings({"vector_backend": "qdrant", "qdrant": {"url": qdrant_server.url}})
    provider = FileSearch(provider.settings, embedding=own)
    with running(Antwort(Config(data_dir=tmp_path, providers={}), providers=[provider])) as server:
        made = httpx.post(f"{server.url}/v1/vector_stores", json={"name": "own"}).json()
        found = httpx.post(f"{server.url}/v1/vector_stores/{made['id']}/search", json={"query": "two words"})
    assert found.json()["data"] == []
    assert own.texts == ["two words", "(closed)"]


def test_fr_005_the_http_client_calls_an_openai_compatible_endpoint(
    tmp_path: Path, qdrant_server: QdrantServer, embeddings: EmbeddingServer
) -> None:
    settings = settings_for(qdrant_server, embeddings, embedding_model="a-model")
    with staged(tmp_path, searching("green tea"), settings) as stage:
        store = stage.client().vector_stores.create(name="drinks")
        create(stage, False, input="?", tools=[tool(store.id)])
    assert embeddings.asked[-1].body["model"] == "a-model"
    assert embeddings.asked[-1].body["input"] == ["green tea"]


@pytest.mark.parametrize("key", ["embedding_url", "embedding_endpoint"])
def test_fr_006_the_embedding_url_is_configurable(embeddings: EmbeddingServer, key: str) -> None:
    assert FileSearch.from_settings({key: embeddings.url}).settings.embedding_url == embeddings.url


def test_fr_007_each_search_embeds_its_query_once_and_nothing_else(
    tmp_path: Path, qdrant_server: QdrantServer, embeddings: EmbeddingServer
) -> None:
    with (
        EmbeddingServer() as of_the_pipeline,
        staged(tmp_path, answering("one", "two"), settings_for(qdrant_server, embeddings)) as stage,
    ):
        stores = [stage.client().vector_stores.create(name=name).id for name in ("a", "b", "c")]
        for store in stores:
            pipeline(tmp_path / "documents", {"tea.md": "green tea"}, store, qdrant_server, of_the_pipeline)
        before = len(embeddings.asked)
        create(stage, False, input="?", tools=[tool(*stores)])
        create(stage, False, input="?", tools=[tool()])
        asked = embeddings.texts()
    assert before == 2  # to learn the length of the vectors, for all three stores: one answer may be wrong
    assert asked[before:] == [["one"], ["two"]]


def test_fr_008_the_management_endpoints_are_there(
    tmp_path: Path, qdrant_server: QdrantServer, embeddings: EmbeddingServer
) -> None:
    with staged(tmp_path, [], settings_for(qdrant_server, embeddings)) as stage:
        made = stage.request("POST", "/vector_stores", json={"name": "drinks"}).json()
        one = f"/vector_stores/{made['id']}"
        assert stage.request("GET", "/vector_stores").json()["data"] == [made]
        assert stage.request("GET", one).json() == made
        assert stage.request("DELETE", one).json()["deleted"] is True
        assert stage.request("GET", one).status_code == 404
        paths = httpx.get(f"{stage.server.url}/openapi.json").json()["paths"]
    assert {"get", "post"} <= set(paths["/v1/vector_stores"])
    assert {"get", "post", "delete"} <= set(paths["/v1/vector_stores/{vector_store_id}"])


def test_fr_009_the_management_endpoints_want_credentials_and_know_the_tenant(
    tmp_path: Path, qdrant_server: QdrantServer, embeddings: EmbeddingServer
) -> None:
    with staged(tmp_path, [], settings_for(qdrant_server, embeddings), auth=KEYS) as stage:
        store = stage.client("key-of-alpha").vector_stores.create(name="mine").id
        for method, path in [
            ("POST", "/vector_stores"),
            ("GET", "/vector_stores"),
            ("GET", f"/vector_stores/{store}"),
            ("POST", f"/vector_stores/{store}"),
            ("DELETE", f"/vector_stores/{store}"),
            ("POST", f"/vector_stores/{store}/search"),
            ("POST", f"/vector_stores/{store}/points"),
            ("DELETE", f"/vector_stores/{store}/points?file_id=f"),
        ]:
            assert stage.request(method, path).status_code == 401, (method, path)
        other = {"authorization": "Bearer key-of-beta"}
        assert stage.request("GET", f"/vector_stores/{store}", headers=other).status_code == 404
        assert stage.request("GET", "/vector_stores", headers=other).json()["data"] == []


def test_fr_010_the_vector_store_backend_is_an_interface(tmp_path: Path) -> None:
    members = {name for name, _ in inspect.getmembers(VectorDatabase, inspect.isfunction)}
    assert {"create_collection", "delete_collection", "search"} <= members
    own = Memory()
    provider = FileSearch(backend=own, embedding=Counting())
    with running(Antwort(Config(data_dir=tmp_path, providers={}), providers=[provider])) as server:
        stores = f"{server.url}/v1/vector_stores"
        store = httpx.post(stores, json={}).json()["id"]
        assert list(own.kept) == [f"antwort_{store}"]
        point = {"text": "tea", "file_id": "file-1", "filename": "tea.md"}
        httpx.post(f"{stores}/{store}/points", json={"points": [point]}).raise_for_status()
        [hit] = httpx.post(f"{stores}/{store}/search", json={"query": "?"}).json()["data"]
        httpx.delete(f"{stores}/{store}").raise_for_status()
        assert own.kept == {}
    assert hit["content"] == [{"type": "text", "text": "tea"}]


async def test_fr_011_the_qdrant_adapter_is_a_backend(qdrant_server: QdrantServer) -> None:
    settings = FileSearch.from_settings({"vector_backend": "qdrant", "qdrant": {"url": qdrant_server.url}}).settings
    adapter: VectorDatabase = OwnQdrant(settings.qdrant)
    try:
        await adapter.create_collection("antwort_vs_fr011", 64)
        chunk = Chunk("7f0c5a5e-9c55-4f6c-8e0a-d3a4b6a0a9ff", embedded("tea"), "tea", "file-1", "t.md", 0, {}, "acme")
        await adapter.upsert("antwort_vs_fr011", [chunk])
        [hit] = await adapter.search("antwort_vs_fr011", Query("acme", vector=embedded("tea")))
        await adapter.delete_collection("antwort_vs_fr011")
    finally:
        await adapter.close()
    assert (hit.text, hit.filename, round(hit.score, 3)) == ("tea", "t.md", 1.0)


@pytest.mark.parametrize("backend", ["embedded", "qdrant", "pgvector"])
def test_fr_012_the_backend_is_chosen_in_the_providers_map(backend: str) -> None:
    raw: Any = {"vector_backend": backend, "pgvector": {"url": "postgresql://localhost/x"}}
    assert FileSearch.from_settings(raw).settings.vector_backend == backend


def test_fr_013_the_specifications_configuration_works_as_it_stands(
    tmp_path: Path, qdrant_server: QdrantServer, embeddings: EmbeddingServer
) -> None:
    text = f"""
providers:
  file_search:
    enabled: true
    settings:
      embedding_url: {embeddings.url}
      vector_backend: qdrant
      max_results: 10
      qdrant:
        url: {qdrant_server.url}
data_dir: {tmp_path}
"""
    (tmp_path / "antwort.yaml").write_text(text)
    app = Antwort(load_config(tmp_path / "antwort.yaml", environ={}))
    with running(app) as server:
        store = httpx.post(f"{server.url}/v1/vector_stores", json={}).json()
        there = httpx.get(f"{qdrant_server.url}/collections/antwort_{store['id']}")
    assert there.status_code == 200


def test_fr_014_searches_embeddings_and_results_are_measured(
    tmp_path: Path, qdrant_server: QdrantServer, embeddings: EmbeddingServer
) -> None:
    with staged(tmp_path, answering("tea", "black tea"), settings_for(qdrant_server, embeddings)) as stage:
        store = stage.client().vector_stores.create(name="drinks").id
        write(stage, store, {"text": "green tea"}, {"text": "black tea"})
        create(stage, False, input="?", tools=[tool(store)])
        embeddings.broken = True
        create(stage, False, input="?", tools=[tool(store)])
        assert series(stage, 'antwort_filesearch_queries_total{status="success"}') == 1
        assert series(stage, 'antwort_filesearch_queries_total{status="keywords"}') == 1
        assert series(stage, "antwort_filesearch_search_duration_seconds_count") == 2
        assert series(stage, "antwort_filesearch_embedding_duration_seconds_count") == 2
        assert series(stage, "antwort_filesearch_results_returned_sum") == 4
        assert series(stage, "antwort_filesearch_results_returned_count") == 2


def test_fr_015_a_store_belongs_to_the_tenant_of_the_credentials(
    tmp_path: Path, qdrant_server: QdrantServer, embeddings: EmbeddingServer
) -> None:
    with staged(tmp_path, [], settings_for(qdrant_server, embeddings), auth=KEYS) as stage:
        store = stage.client("key-of-alpha").vector_stores.create(name="mine").id
        assert stage.client("key-of-a-reader").vector_stores.retrieve(store).id == store
        write(stage, store, {"text": "green tea"}, key="key-of-alpha")
        points = httpx.post(f"{qdrant_server.url}/collections/antwort_{store}/points/scroll", json={}).json()
    [point] = points["result"]["points"]
    assert point["payload"]["tenant"] == "alpha"


def test_fr_016_points_of_another_tenant_in_the_same_collection_are_not_found(
    tmp_path: Path, qdrant_server: QdrantServer, embeddings: EmbeddingServer
) -> None:
    with staged(tmp_path, searching("tea"), settings_for(qdrant_server, embeddings)) as stage:
        store = stage.client().vector_stores.create(name="mine").id
        pipeline(tmp_path / "other", {"theirs.md": "tea of another"}, store, qdrant_server, embeddings, "other")
        pipeline(tmp_path / "mine", {"mine.md": "tea of mine"}, store, qdrant_server, embeddings)
        response = create(stage, False, input="?", tools=[tool(store)], include=["file_search_call.results"])
        until(lambda: stage.client().vector_stores.retrieve(store).file_counts.total > 0)  # counted after a look
        counted = stage.client().vector_stores.retrieve(store)
    assert [one.filename for one in search_item(response).results] == ["mine.md"]
    assert counted.file_counts.total == 1
