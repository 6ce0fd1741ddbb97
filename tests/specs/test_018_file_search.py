"""Specification 018, file search: each scenario, edge case and success criterion by name.

The shipped app answers on a real socket, the official SDK asks in strict mode, the vectors are in a real Qdrant server,
and the example pipeline, a process of its own, writes them there.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import NotFoundError
from openai.types.responses import Response
from tests.http.sdk import create
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
)
from tests.support.embeddings import DIMENSIONS, EmbeddingServer
from tests.support.line import Line
from tests.support.qdrant import QdrantServer

from antwort.testing import call, turn

BOTH_WAYS = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
DOCUMENTS = {
    "tea.md": "Green tea grows in Uji. Tea is steeped for two minutes.",
    "coffee.md": "Coffee beans are roasted in Trieste.",
    "water.txt": "Water boils at one hundred degrees.",
}


@pytest.fixture
def embeddings() -> Iterator[EmbeddingServer]:
    """A server that embeds."""
    with EmbeddingServer() as server:
        yield server


def collections(qdrant: QdrantServer) -> dict[str, int]:
    """Return the collections of the server, with the length of their vectors."""
    names = [one["name"] for one in httpx.get(f"{qdrant.url}/collections").json()["result"]["collections"]]
    found = {name: httpx.get(f"{qdrant.url}/collections/{name}").json()["result"] for name in names}
    return {name: one["config"]["params"]["vectors"]["size"] for name, one in found.items()}


def text_of(response: Response) -> Any:
    [part] = [part for item in response.output if item.type == "message" for part in item.content]
    return part


def failed(response: Response) -> bool:
    return bool(search_item(response).status == "failed")


# --- user story 1: search indexed documents --------------------------------------------------------------------------


@BOTH_WAYS
def test_us1_1_a_call_queries_the_vector_database_and_returns_chunks_with_their_source(
    tmp_path: Path, qdrant_server: QdrantServer, embeddings: EmbeddingServer, stream: bool
) -> None:
    with staged(tmp_path, searching("Where does green tea grow?"), settings_for(qdrant_server, embeddings)) as stage:
        store = stage.client().vector_stores.create(name="drinks")
        pipeline(tmp_path / "documents", DOCUMENTS, store.id, qdrant_server, embeddings)
        response = create(stage, stream, input="?", tools=[tool(store.id)])
        [output] = outputs(stage)
    item = search_item(response)
    assert item.status == "completed"
    assert item.queries == ["Where does green tea grow?"]
    assert item.results is None
    assert re.search(r"\[1\] tea\.md \(chunk 0, score [01]\.\d\d", output)
    assert output.index(DOCUMENTS["tea.md"]) < output.index(DOCUMENTS["coffee.md"])


@BOTH_WAYS
def test_us1_2_the_answer_can_cite_the_document_and_the_position_of_the_chunk(
    tmp_path: Path, qdrant_server: QdrantServer, embeddings: EmbeddingServer, stream: bool
) -> None:
    words = ["tea", "coffee", "water", "juice"]
    long = {"long.md": "\n\n".join(f"{word} {word} {word}. " + "filler " * 120 for word in words)}
    answer = "Juice is in chunk 3 of long.md [1]."
    with staged(tmp_path, searching("juice", answer), settings_for(qdrant_server, embeddings)) as stage:
        store = stage.client().vector_stores.create(name="one")
        pipeline(tmp_path / "documents", long, store.id, qdrant_server, embeddings)
        options = tool(store.id, filters={"type": "eq", "key": "kind", "value": "md"})
        response = create(stage, stream, input="?", tools=[options], include=["file_search_call.results"])
        [output] = outputs(stage)
    best = search_item(response).results[0]
    assert "juice" in best.text
    assert "\n[1] long.md (chunk 3, score " in output
    [citation] = text_of(response).annotations
    assert citation.type == "file_citation"
    assert citation.filename == "long.md"
    assert citation.file_id == best.file_id
    assert answer[citation.index :].startswith("[1]")


@BOTH_WAYS
def test_us1_3_an_empty_vector_store_is_an_empty_result_and_no_error(
    tmp_path: Path, qdrant_server: QdrantServer, embeddings: EmbeddingServer, stream: bool
) -> None:
    with staged(tmp_path, searching(answer="Nothing."), settings_for(qdrant_server, embeddings)) as stage:
        store = stage.client().vector_stores.create(name="empty")
        response = create(stage, stream, input="?", tools=[tool(store.id)], include=["file_search_call.results"])
        [output] = outputs(stage)
    assert "No results were found" in output
    assert search_item(response).status == "completed"
    assert search_item(response).results == []
    assert text_of(response).annotations == []


# --- user story 2: the management API --------------------------------------------------------------------------------


def test_us2_1_creating_a_store_creates_its_collection_and_lists_it(
    tmp_path: Path, qdrant_server: QdrantServer, embeddings: EmbeddingServer
) -> None:
    with staged(tmp_path, [], settings_for(qdrant_server, embeddings)) as stage:
        client = stage.client()
        store = client.vector_stores.create(name="drinks", metadata={"team": "kitchen"})
        assert collections(qdrant_server)[f"antwort_{store.id}"] == DIMENSIONS
        assert [one.id for one in client.vector_stores.list()] == [store.id]
        assert client.vector_stores.retrieve(store.id) == store
    assert (store.name, store.status, store.metadata) == ("drinks", "completed", {"team": "kitchen"})
    assert store.file_counts.total == store.usage_bytes == 0


def test_us2_2_deleting_a_store_removes_its_collection(
    tmp_path: Path, qdrant_server: QdrantServer, embeddings: EmbeddingServer
) -> None:
    with staged(tmp_path, [], settings_for(qdrant_server, embeddings)) as stage:
        client = stage.client()
        store, other = client.vector_stores.create(name="one"), client.vector_stores.create(name="two")
        deleted = client.vector_stores.delete(store.id)
        left = collections(qdrant_server)
        with pytest.raises(NotFoundError):
            client.vector_stores.retrieve(store.id)
        assert [one.id for one in client.vector_stores.list()] == [other.id]
    assert (deleted.id, deleted.deleted, deleted.object) == (store.id, True, "vector_store.deleted")
    assert f"antwort_{store.id}" not in left
    assert f"antwort_{other.id}" in left


def test_us2_3_with_auth_only_the_own_tenants_stores_are_visible(
    tmp_path: Path, qdrant_server: QdrantServer, embeddings: EmbeddingServer
) -> None:
    with staged(tmp_path, [], settings_for(qdrant_server, embeddings), auth=KEYS) as stage:
        alpha, beta = stage.client("key-of-alpha"), stage.client("key-of-beta")
        mine, theirs = alpha.vector_stores.create(name="mine"), beta.vector_stores.create(name="theirs")
        assert [one.id for one in alpha.vector_stores.list()] == [mine.id]
        assert [one.id for one in beta.vector_stores.list()] == [theirs.id]
        assert stage.request("GET", "/vector_stores").status_code == 401


# --- user story 3: a pluggable backend -------------------------------------------------------------------------------


def test_us3_1_with_qdrant_configured_a_store_is_a_qdrant_collection(
    tmp_path: Path, qdrant_server: QdrantServer, embeddings: EmbeddingServer
) -> None:
    before = set(collections(qdrant_server))
    with staged(tmp_path, [], settings_for(qdrant_server, embeddings)) as stage:
        store = stage.client().vector_stores.create(name="drinks")
        assert set(collections(qdrant_server)) - before == {f"antwort_{store.id}"}


@BOTH_WAYS
def test_us3_2_a_search_queries_the_qdrant_collection(
    tmp_path: Path, qdrant_server: QdrantServer, embeddings: EmbeddingServer, stream: bool
) -> None:
    with staged(tmp_path, searching("coffee"), settings_for(qdrant_server, embeddings)) as stage:
        store = stage.client().vector_stores.create(name="drinks")
        pipeline(tmp_path / "documents", DOCUMENTS, store.id, qdrant_server, embeddings)
        options = tool(store.id, max_num_results=1)
        response = create(stage, stream, input="?", tools=[options], include=["file_search_call.results"])
    [result] = search_item(response).results
    assert (result.filename, result.text) == ("coffee.md", DOCUMENTS["coffee.md"])
    assert 0 < result.score <= 1
    assert result.attributes == {"kind": "md", "characters": len(DOCUMENTS["coffee.md"])}


# --- edge cases ------------------------------------------------------------------------------------------------------


@BOTH_WAYS
def test_edge_case_an_unreachable_vector_database_is_an_error_result(
    tmp_path: Path, qdrant_line: Line, embeddings: EmbeddingServer, stream: bool
) -> None:
    with staged(tmp_path, searching(answer="It is down."), settings_for(qdrant_line, embeddings)) as stage:
        store = stage.client().vector_stores.create(name="drinks")
        qdrant_line.cut()
        response = create(stage, stream, input="?", tools=[tool(store.id)])
        [output] = outputs(stage)
    assert response.status == "completed"
    assert failed(response)
    assert text_of(response).text == "It is down."
    assert "cannot be reached" in output


def test_edge_case_when_the_pipelines_embedding_service_is_down_searches_go_on(
    tmp_path: Path, qdrant_server: QdrantServer, embeddings: EmbeddingServer
) -> None:
    with (
        EmbeddingServer() as of_the_pipeline,
        staged(tmp_path, searching("green tea"), settings_for(qdrant_server, embeddings)) as stage,
    ):
        store = stage.client().vector_stores.create(name="drinks")
        pipeline(tmp_path / "documents", DOCUMENTS, store.id, qdrant_server, of_the_pipeline)
        of_the_pipeline.broken = True
        with pytest.raises(Exception, match="non-zero exit status"):
            pipeline(tmp_path / "documents", {"new.md": "New."}, store.id, qdrant_server, of_the_pipeline)
        response = create(stage, False, input="?", tools=[tool(store.id)])
        [output] = outputs(stage)
    assert not failed(response)
    assert DOCUMENTS["tea.md"] in output


def test_edge_case_a_store_deleted_during_a_search_leaves_what_is_there(
    tmp_path: Path, qdrant_server: QdrantServer, embeddings: EmbeddingServer
) -> None:
    with staged(tmp_path, searching("tea coffee"), settings_for(qdrant_server, embeddings)) as stage:
        client = stage.client()
        gone, stays = client.vector_stores.create(name="gone"), client.vector_stores.create(name="stays")
        for store, name in ((gone, "tea.md"), (stays, "coffee.md")):
            pipeline(tmp_path / store.id, {name: DOCUMENTS[name]}, store.id, qdrant_server, embeddings)
        # Between the look at the records and the search: the collection is gone, the record is still there.
        httpx.delete(f"{qdrant_server.url}/collections/antwort_{gone.id}").raise_for_status()
        response = create(stage, False, input="?", tools=[tool(gone.id, stays.id)])
        [output] = outputs(stage)
    assert not failed(response)
    assert DOCUMENTS["coffee.md"] in output
    assert DOCUMENTS["tea.md"] not in output


@pytest.mark.parametrize(
    "options", [{}, {"tools": [{"type": "file_search", "vector_store_ids": []}]}], ids=["unnamed", "empty"]
)
def test_edge_case_without_ids_all_stores_of_the_tenant_are_searched(
    tmp_path: Path, qdrant_server: QdrantServer, embeddings: EmbeddingServer, options: Any
) -> None:
    with staged(tmp_path, searching("tea coffee water"), settings_for(qdrant_server, embeddings), auth=KEYS) as stage:
        for tenant, names in {"alpha": ["tea.md", "coffee.md"], "beta": ["water.txt"]}.items():
            for name in names:
                store = stage.client(f"key-of-{tenant}").vector_stores.create(name=name)
                documents = {name: DOCUMENTS[name]}
                pipeline(tmp_path / store.id, documents, store.id, qdrant_server, embeddings, tenant)
        stage.client("key-of-alpha").responses.create(model="scripted", input="?", **options)
        [output] = outputs(stage)
    assert DOCUMENTS["tea.md"] in output
    assert DOCUMENTS["coffee.md"] in output
    assert DOCUMENTS["water.txt"] not in output


# --- success criteria ------------------------------------------------------------------------------------------------


def test_sc_001_documents_of_the_external_pipeline_are_found(
    tmp_path: Path, qdrant_server: QdrantServer, embeddings: EmbeddingServer
) -> None:
    with staged(tmp_path, searching("Where is green tea grown?"), settings_for(qdrant_server, embeddings)) as stage:
        client = stage.client()
        store = client.vector_stores.create(name="drinks")
        printed = pipeline(tmp_path / "documents", DOCUMENTS, store.id, qdrant_server, embeddings)
        again = pipeline(tmp_path / "documents", DOCUMENTS, store.id, qdrant_server, embeddings)
        found = client.vector_stores.search(store.id, query="boiling water degrees")
        until(lambda: client.vector_stores.retrieve(store.id).file_counts.total == 3)  # counted after the first look
        counted = client.vector_stores.retrieve(store.id)
        create(stage, False, input="?", tools=[tool(store.id)])
        [output] = outputs(stage)
    assert printed == again == "coffee.md: 1 chunks\ntea.md: 1 chunks\nwater.txt: 1 chunks\n"
    assert found.data[0].filename == "water.txt"
    assert found.data[0].content[0].text == DOCUMENTS["water.txt"]
    assert DOCUMENTS["tea.md"] in output
    assert counted.file_counts.total == counted.file_counts.completed == 3
    assert counted.usage_bytes == sum(len(text.encode()) for text in DOCUMENTS.values())


@BOTH_WAYS
def test_sc_002_an_answer_has_citations_for_what_it_cites_and_nothing_else(
    tmp_path: Path, qdrant_server: QdrantServer, embeddings: EmbeddingServer, stream: bool
) -> None:
    answer = "Green tea grows in Uji [1]."
    with staged(tmp_path, searching("green tea Uji", answer), settings_for(qdrant_server, embeddings)) as stage:
        store = stage.client().vector_stores.create(name="drinks")
        pipeline(tmp_path / "documents", DOCUMENTS, store.id, qdrant_server, embeddings)
        response = create(stage, stream, input="?", tools=[tool(store.id)])
    [citation] = text_of(response).annotations
    assert (citation.type, citation.filename, citation.index) == ("file_citation", "tea.md", answer.index("[1]"))


def test_sc_003_the_api_creates_and_deletes_collections(
    tmp_path: Path, qdrant_server: QdrantServer, embeddings: EmbeddingServer
) -> None:
    before = collections(qdrant_server)
    with staged(tmp_path, [], settings_for(qdrant_server, embeddings)) as stage:
        client = stage.client()
        stores = [client.vector_stores.create(name=str(number)) for number in range(3)]
        assert len(collections(qdrant_server)) == len(before) + 3
        for store in stores:
            client.vector_stores.delete(store.id)
    assert collections(qdrant_server) == before


def test_sc_004_no_tenant_finds_anothers_documents(
    tmp_path: Path, qdrant_server: QdrantServer, embeddings: EmbeddingServer
) -> None:
    script = [*answering("tea"), turn(calls=[call("file_search", query="tea")]), turn("Nothing.")]
    with staged(tmp_path, script, settings_for(qdrant_server, embeddings), auth=KEYS) as stage:
        store = stage.client("key-of-alpha").vector_stores.create(name="mine")
        pipeline(tmp_path / "documents", DOCUMENTS, store.id, qdrant_server, embeddings, "alpha")
        beta = stage.client("key-of-beta")
        named = beta.responses.create(model="scripted", input="?", tools=[tool(store.id)])
        [output] = outputs(stage)
        beta.responses.create(model="scripted", input="?", tools=[tool()])
        [without] = outputs(stage)
        with pytest.raises(NotFoundError):
            beta.vector_stores.search(store.id, query="tea")
    assert failed(named)
    assert "There is no vector store" in output
    assert "No results were found" in without


def test_sc_005_the_adapter_ranks_by_vector(
    tmp_path: Path, qdrant_server: QdrantServer, embeddings: EmbeddingServer
) -> None:
    with staged(tmp_path, [], settings_for(qdrant_server, embeddings)) as stage:
        store = stage.client().vector_stores.create(name="drinks")
        texts = {"same.txt": "red green blue", "near.txt": "red green gold", "far.txt": "one two three"}
        pipeline(tmp_path / "documents", texts, store.id, qdrant_server, embeddings)
        found = stage.client().vector_stores.search(store.id, query="red green blue").data
    assert [one.filename for one in found] == ["same.txt", "near.txt", "far.txt"]
    assert found[0].score == pytest.approx(1.0, abs=1e-3)
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
