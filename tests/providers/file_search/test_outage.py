"""The vector database dies and comes back, and the gateway crashes half-way: nothing is lost, nothing is left over."""

import asyncio
import logging
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import APIStatusError
from tests.http.sdk import Served, create
from tests.providers.file_search.stage import (
    Clock,
    answering,
    collections,
    mended,
    on_loop,
    outputs,
    search_item,
    settings_for,
    staged,
    tool,
    until,
    write,
)
from tests.support.embeddings import DIMENSIONS, EmbeddingServer
from tests.support.line import Line
from tests.support.qdrant import OwnQdrant, QdrantServer
from typing_extensions import override

from antwort import Antwort, Context, ToolResult
from antwort.config import Config
from antwort.extensions import VectorStoreUnavailable
from antwort.provider import Provider
from antwort.providers.file_search import FileSearch
from antwort.providers.file_search.store_record import KIND, StoreState, VectorStoreRecord
from antwort.providers.file_search.vector_stores import TOMBSTONE
from antwort.testing import running

QUICK = {"reconcile": 0.1}
"""Housekeeping that does not let us wait."""


def records(provider: FileSearch, stage: Served) -> dict[str, StoreState]:
    """Return the records of all tenants with their state."""
    found = on_loop(stage, provider.services.records.scan(KIND))
    return {kept.id: VectorStoreRecord(kept).state for _, kept in found}


def record(store_id: str, state: StoreState) -> dict[str, Any]:
    """Return a record as a crash leaves it."""
    return {
        "name": "left behind",
        "description": "",
        "metadata": {},
        "state": state,
        "days": None,
        "last_active_at": 1_800_000_000,
        "dimensions": DIMENSIONS,
        "collection": f"antwort_{store_id}",
    }


def make(qdrant: QdrantServer | Line, name: str, dimensions: int = DIMENSIONS) -> None:
    """Make a collection behind the gateway's back, without the indexes that the gateway would make."""
    sparse = {"bm25": {"modifier": "idf"}}
    body = {"vectors": {"size": dimensions, "distance": "Cosine"}, "sparse_vectors": sparse}
    httpx.put(f"{qdrant.url}/collections/{name}", json=body).raise_for_status()


def test_an_outage_in_the_middle_is_an_error_result_and_passes(
    tmp_path: Path, qdrant: QdrantServer, embeddings: EmbeddingServer
) -> None:
    with staged(tmp_path, answering("tea", "tea", "tea"), settings_for(qdrant, embeddings)) as stage:
        client = stage.client()
        store = client.vector_stores.create(name="drinks", metadata={"a": "b"})
        write(stage, store.id, {"text": "green tea"})
        before = client.vector_stores.retrieve(store.id)
        statuses = [search_item(create(stage, False, input="?", tools=[tool(store.id)])).status]
        qdrant.kill()
        statuses += [search_item(create(stage, False, input="?", tools=[tool(store.id)])).status]
        qdrant.start()
        statuses += [search_item(create(stage, False, input="?", tools=[tool(store.id)])).status]
        [output] = outputs(stage)
        after = client.vector_stores.retrieve(store.id)
    assert statuses == ["completed", "failed", "completed"]
    assert "green tea" in output
    assert after == before
    assert collections(qdrant) == {f"antwort_{store.id}"}


def test_a_database_that_dies_during_a_search_is_an_error_result(
    tmp_path: Path, qdrant: QdrantServer, embeddings: EmbeddingServer
) -> None:
    with staged(tmp_path, answering("tea", "tea"), settings_for(qdrant, embeddings)) as stage:
        client = stage.client()
        store = client.vector_stores.create(name="drinks").id
        write(stage, store, {"text": "green tea"})
        qdrant.freeze()
        with ThreadPoolExecutor() as threads:
            path, body = f"/vector_stores/{store}/search", {"query": "tea"}
            asked = threads.submit(stage.request, "POST", path, json=body)
            answered = threads.submit(create, stage, False, input="?", tools=[tool(store)])
            until(lambda: qdrant.unread() == 2)  # both are under way
            assert not asked.done()
            assert not answered.done()
            qdrant.kill()
            refused, failed = asked.result(), answered.result()
        [output] = outputs(stage)
        qdrant.start()
        again = search_item(create(stage, False, input="?", tools=[tool(store)]))
        assert client.vector_stores.search(store, query="tea").data[0].content[0].text == "green tea"
    assert refused.status_code == 503
    assert (failed.status, search_item(failed).status, again.status) == ("completed", "failed", "completed")
    assert output == "The vector database cannot be reached. Go on without file search."


class Refusing(OwnQdrant):
    """The real thing, but it takes no collection."""

    @override
    async def create_collection(self, name: str, dimensions: int) -> None:
        raise VectorStoreUnavailable("It has too many.")


def test_a_store_that_cannot_be_created_leaves_nothing(
    tmp_path: Path, qdrant: QdrantServer, embeddings: EmbeddingServer
) -> None:
    settings = FileSearch.from_settings(settings_for(qdrant, embeddings, **QUICK)).settings
    provider = FileSearch(settings, backend=Refusing(settings.qdrant))
    with staged(tmp_path, [], {}, provider=provider) as stage:
        with pytest.raises(APIStatusError) as refused:
            stage.client().vector_stores.create(name="refused")
        assert refused.value.status_code == 503
        until(lambda: records(provider, stage) == {})
    assert collections(qdrant) == set()


def test_a_store_that_is_created_during_an_outage_is_completed_afterwards(
    tmp_path: Path, qdrant_line: Line, embeddings: EmbeddingServer
) -> None:
    with staged(tmp_path, [], settings_for(qdrant_line, embeddings, **QUICK)) as stage:
        client = stage.client()
        before = client.vector_stores.create(name="before").id
        qdrant_line.cut()
        during = client.vector_stores.create(name="during")
        assert during.status == "in_progress"
        mended(qdrant_line, stage)
        until(lambda: client.vector_stores.retrieve(during.id).status == "completed")
    assert collections(qdrant_line) == {f"antwort_{before}", f"antwort_{during.id}"}


def test_a_store_that_was_created_during_an_outage_is_made_by_the_first_write(
    tmp_path: Path, qdrant_line: Line, embeddings: EmbeddingServer
) -> None:
    with staged(tmp_path, [], settings_for(qdrant_line, embeddings)) as stage:
        client = stage.client()
        client.vector_stores.create(name="before")  # which tells how long vectors are
        qdrant_line.cut()
        during = client.vector_stores.create(name="during").id
        mended(qdrant_line, stage)
        write(stage, during, {"text": "green tea"})
        found = client.vector_stores.retrieve(during)
    assert (found.status, found.file_counts.total, found.usage_bytes) == ("completed", 1, 9)


def test_a_deletion_during_an_outage_is_completed_afterwards(
    tmp_path: Path, qdrant_line: Line, embeddings: EmbeddingServer
) -> None:
    provider = FileSearch.from_settings(settings_for(qdrant_line, embeddings, **QUICK))
    with staged(tmp_path, [], {}, provider=provider) as stage:
        client = stage.client()
        store, other = client.vector_stores.create(name="one"), client.vector_stores.create(name="two")
        qdrant_line.cut()
        assert client.vector_stores.delete(store.id).deleted
        assert stage.request("GET", f"/vector_stores/{store.id}").status_code == 404
        assert client.vector_stores.delete(store.id).deleted, "it can be asked for again"
        mended(qdrant_line, stage)
        until(lambda: set(records(provider, stage)) == {other.id})
    assert collections(qdrant_line) == {f"antwort_{other.id}"}


class Crashed(Provider):
    """Stands for a gateway that crashed: it leaves a record behind, and nothing follows it."""

    name = "file_search"

    def __init__(self, store: str, state: StoreState) -> None:
        super().__init__()
        self._left = store, state

    @override
    async def lifespan(self) -> AsyncIterator[None]:
        store, state = self._left
        await self.services.records.create("default", KIND, store, record(store, state))
        yield


def crashed(tmp_path: Path, store: str, state: StoreState) -> None:
    """Let a gateway crash in the middle of something."""
    with running(Antwort(Config(data_dir=tmp_path, providers={}), providers=[Crashed(store, state)])):
        pass


@pytest.mark.parametrize("has_collection", [False, True])
def test_a_crash_during_creation_is_completed_at_the_next_start(
    tmp_path: Path, qdrant_line: Line, embeddings: EmbeddingServer, has_collection: bool
) -> None:
    store = "vs_" + "1" * 32
    crashed(tmp_path, store, StoreState.CREATING)
    if has_collection:
        make(qdrant_line, f"antwort_{store}")
    qdrant_line.cut()
    with staged(tmp_path, [], settings_for(qdrant_line, embeddings, **QUICK)) as stage:
        client = stage.client()
        assert client.vector_stores.retrieve(store).status == "in_progress"
        mended(qdrant_line, stage)
        until(lambda: client.vector_stores.retrieve(store).status == "completed")
        write(stage, store, {"text": "green tea"})
        assert client.vector_stores.search(store, query="green tea").data[0].score > 0.9
    assert collections(qdrant_line) == {f"antwort_{store}"}


@pytest.mark.parametrize("has_collection", [False, True])
def test_a_crash_during_deletion_is_completed_at_the_next_start(
    tmp_path: Path, qdrant: QdrantServer, embeddings: EmbeddingServer, has_collection: bool
) -> None:
    store = "vs_" + "2" * 32
    crashed(tmp_path, store, StoreState.DELETING)
    if has_collection:
        make(qdrant, f"antwort_{store}")
    provider = FileSearch.from_settings(settings_for(qdrant, embeddings))
    with staged(tmp_path, [], {}, provider=provider) as stage:
        assert list(stage.client().vector_stores.list()) == []
        until(lambda: records(provider, stage) == {})
    assert collections(qdrant) == set()


def test_a_crash_during_expiry_is_completed_at_the_next_start(
    tmp_path: Path, qdrant: QdrantServer, embeddings: EmbeddingServer
) -> None:
    store = "vs_" + "3" * 32
    crashed(tmp_path, store, StoreState.EXPIRED)
    make(qdrant, f"antwort_{store}")
    provider = FileSearch.from_settings(settings_for(qdrant, embeddings))
    with staged(tmp_path, [], {}, provider=provider) as stage:

        def is_cleared() -> bool:
            kept = on_loop(stage, provider.services.records.get("default", KIND, store))
            return kept is not None and VectorStoreRecord(kept).is_cleared

        until(is_cleared)
        assert collections(qdrant) == set()
        assert stage.client().vector_stores.retrieve(store).status == "expired"


def test_only_collections_that_are_known_to_be_ours_are_removed(
    tmp_path: Path, qdrant: QdrantServer, embeddings: EmbeddingServer, caplog: pytest.LogCaptureFixture
) -> None:
    names = {"antwort_vs_of_another_gateway", "antwort_something", "not_ours", "antwort_shared_7"}
    for name in names:
        make(qdrant, name)
    provider = FileSearch.from_settings(settings_for(qdrant, embeddings, **QUICK))
    with staged(tmp_path, [], {}, provider=provider) as stage:
        client = stage.client()
        deleted = client.vector_stores.create(name="one").id
        client.vector_stores.delete(deleted)
        with caplog.at_level(logging.WARNING):
            make(qdrant, f"antwort_{deleted}")  # as a restored backup brings it back
            until(lambda: f"antwort_{deleted}" not in collections(qdrant))
    assert collections(qdrant) == names


def test_tombstones_are_forgotten_after_a_week(
    tmp_path: Path, qdrant: QdrantServer, embeddings: EmbeddingServer
) -> None:
    clock = Clock()
    given = FileSearch.from_settings(settings_for(qdrant, embeddings, **QUICK)).settings
    provider = FileSearch(given, now=clock)
    with staged(tmp_path, [], {}, provider=provider) as stage:
        client = stage.client()
        client.vector_stores.delete(client.vector_stores.create(name="one").id)
        scan = provider.services.records.scan
        assert len(on_loop(stage, scan(TOMBSTONE))) == 1
        clock.pass_days(8)
        until(lambda: on_loop(stage, scan(TOMBSTONE)) == [])


def test_a_collection_that_was_lost_is_made_again(
    tmp_path: Path, qdrant: QdrantServer, embeddings: EmbeddingServer, caplog: pytest.LogCaptureFixture
) -> None:
    with staged(tmp_path, [], settings_for(qdrant, embeddings, **QUICK)) as stage:
        store = stage.client().vector_stores.create(name="one").id
        httpx.delete(f"{qdrant.url}/collections/antwort_{store}").raise_for_status()
        until(lambda: f"antwort_{store}" in collections(qdrant))
        write(stage, store, {"text": "green tea"})
    assert f"the collection antwort_{store} was lost" in caplog.text


def test_an_expired_store_loses_its_collection_and_says_so(
    tmp_path: Path, qdrant: QdrantServer, embeddings: EmbeddingServer
) -> None:
    clock = Clock()
    given = FileSearch.from_settings(settings_for(qdrant, embeddings, **QUICK)).settings
    with staged(tmp_path, answering("tea", "tea"), {}, provider=FileSearch(given, now=clock)) as stage:
        client = stage.client()
        store = client.vector_stores.create(name="short", expires_after={"anchor": "last_active_at", "days": 2})
        write(stage, store.id, {"text": "green tea"})
        clock.pass_days(1.5)
        client.vector_stores.search(store.id, query="tea")  # which puts the end off
        clock.pass_days(1)
        alive = client.vector_stores.retrieve(store.id)
        clock.pass_days(2)
        expired = client.vector_stores.retrieve(store.id)
        until(lambda: collections(qdrant) == set())
        refused = stage.request("POST", f"/vector_stores/{store.id}/search", json={"query": "tea"})
        revived = stage.request("POST", f"/vector_stores/{store.id}", json={"expires_after": None})
        renamed = client.vector_stores.update(store.id, name="was short")
        named = create(stage, False, input="?", tools=[tool(store.id)])
        [output] = outputs(stage)
        unnamed = create(stage, False, input="?", tools=[tool()])
        assert client.vector_stores.delete(store.id).deleted
    assert store.expires_at == store.created_at + 2 * 86_400
    assert (alive.status, alive.last_active_at) == ("completed", store.created_at + 1.5 * 86_400)
    assert (expired.status, expired.file_counts.total, expired.usage_bytes) == ("expired", 0, 0)
    assert refused.status_code == revived.status_code == 400
    assert refused.json()["error"]["code"] == "vector_store_expired"
    assert (renamed.name, renamed.status) == ("was short", "expired")
    assert search_item(named).status == "failed"
    assert "has expired" in output
    assert search_item(unnamed).status == "completed"


def test_searches_end_well_while_their_store_is_deleted(
    tmp_path: Path, qdrant_server: QdrantServer, embeddings: EmbeddingServer
) -> None:
    with staged(tmp_path, [], settings_for(qdrant_server, embeddings)) as stage:
        client = stage.client()
        gone, stays = client.vector_stores.create(name="gone").id, client.vector_stores.create(name="stays").id
        write(stage, gone, {"text": "green tea"})
        write(stage, stays, {"text": "black tea"})

        async def rush() -> list[ToolResult]:
            execute = stage.server.app.registry.execute
            named = Context("default", options=tool(gone, stays))
            unnamed = Context("default")
            first = [asyncio.ensure_future(execute("file_search", {"query": "tea"}, named)) for _ in range(10)]
            async with httpx.AsyncClient(timeout=60) as http:
                deletion = asyncio.ensure_future(http.delete(f"{stage.server.url}/v1/vector_stores/{gone}"))
                then = [asyncio.ensure_future(execute("file_search", {"query": "tea"}, unnamed)) for _ in range(10)]
                assert (await deletion).status_code == 200
            return list(await asyncio.gather(*first, *then))

        results = on_loop(stage, rush())
    assert len(results) == 20
    for result in results:
        if result.is_error:  # it began after the end
            assert f"There is no vector store '{gone}' here" in result.output
        else:
            assert "black tea" in result.output
