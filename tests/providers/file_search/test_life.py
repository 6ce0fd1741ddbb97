"""The life of vector stores: when they expire, how they are deleted, and what happens if both meet a write."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import BadRequestError
from tests.http.sdk import Served
from tests.providers.file_search.stage import Clock, collections, mended, on_loop, settings_for, staged, write
from tests.support.embeddings import EmbeddingServer
from tests.support.line import Line
from tests.support.qdrant import OwnQdrant, QdrantServer
from typing_extensions import override

from antwort.extensions import Chunk, VectorStoreUnavailable
from antwort.providers.file_search import FileSearch
from antwort.providers.file_search.reconcile import Reconciler
from antwort.providers.file_search.store_record import KIND, StoreState, VectorStoreRecord
from antwort.types import JSON

WEEK: Any = {"anchor": "last_active_at", "days": 7}


def keep_house(stage: Served, provider: FileSearch) -> None:
    """Do once what is done every few minutes."""
    on_loop(stage, Reconciler(provider._stores, provider._backend).once())


def states(stage: Served, provider: FileSearch) -> list[StoreState]:
    """Return the states of all records."""
    return [VectorStoreRecord(kept).state for _, kept in on_loop(stage, provider.services.records.scan(KIND))]


def test_days_that_are_set_later_begin_when_they_are_set(
    tmp_path: Path, qdrant_server: QdrantServer, embeddings: EmbeddingServer
) -> None:
    clock = Clock()
    provider = FileSearch(FileSearch.from_settings(settings_for(qdrant_server, embeddings)).settings, now=clock)
    with staged(tmp_path, [], {}, provider=provider) as stage:
        client = stage.client()
        store = client.vector_stores.create(name="idle").id
        write(stage, store, {"text": "green tea"})
        clock.pass_days(30)
        updated = client.vector_stores.update(store, expires_after=WEEK)
        assert (updated.status, updated.last_active_at) == ("completed", clock.now)
        assert updated.expires_at == clock.now + 7 * 86_400
        clock.pass_days(6)
        day: Any = {**WEEK, "days": 1}
        changed = client.vector_stores.update(store, expires_after=day)
        assert changed.expires_at == clock.now + 86_400
        keep_house(stage, provider)
        assert client.vector_stores.search(store, query="tea").data[0].content[0].text == "green tea"
        clock.pass_days(1)
        assert client.vector_stores.retrieve(store).status == "expired"


def test_a_list_can_be_deleted_while_it_is_read(
    tmp_path: Path, qdrant_server: QdrantServer, embeddings: EmbeddingServer
) -> None:
    with staged(tmp_path, [], settings_for(qdrant_server, embeddings)) as stage:
        client = stage.client()
        made = [client.vector_stores.create(name=str(number)).id for number in range(5)]
        deleted = []
        for store in client.vector_stores.list(limit=2):
            client.vector_stores.delete(store.id)
            deleted.append(store.id)
        assert deleted == made[::-1]
        assert list(client.vector_stores.list()) == []
        with pytest.raises(BadRequestError) as refused:
            client.vector_stores.list(after="vs_that_never_was")
        assert refused.value.param == "after"


def test_stores_that_are_created_without_the_vector_database_are_counted(
    tmp_path: Path, qdrant_line: Line, embeddings: EmbeddingServer
) -> None:
    provider = FileSearch.from_settings(settings_for(qdrant_line, embeddings, max_stores=2))
    with staged(tmp_path, [], {}, provider=provider) as stage:
        client = stage.client()
        client.vector_stores.create(name="before")
        qdrant_line.cut()
        client.vector_stores.create(name="during")
        with pytest.raises(BadRequestError, match="There are 2 vector stores already"):
            client.vector_stores.create(name="too many")
        mended(qdrant_line, stage)
        keep_house(stage, provider)
        assert states(stage, provider) == [StoreState.READY] * 2


def test_nothing_brings_a_store_back_that_is_being_deleted(
    tmp_path: Path, qdrant_line: Line, embeddings: EmbeddingServer
) -> None:
    clock = Clock()
    provider = FileSearch(FileSearch.from_settings(settings_for(qdrant_line, embeddings)).settings, now=clock)
    with staged(tmp_path, [], {}, provider=provider) as stage:
        client, stores = stage.client(), provider._stores
        made = client.vector_stores.create(name="one", expires_after=WEEK)
        seen = on_loop(stage, stores.get("default", made.id))
        clock.pass_days(8)
        qdrant_line.cut()
        client.vector_stores.delete(made.id)
        mended(qdrant_line, stage)

        async def go_on_from_what_was_seen() -> None:
            await stores.expire(seen)
            await stores.touch(seen)

        on_loop(stage, go_on_from_what_was_seen())
        assert states(stage, provider) == [StoreState.DELETING]
        assert stage.request("GET", f"/vector_stores/{made.id}").status_code == 404
        keep_house(stage, provider)
        assert states(stage, provider) == []
    assert collections(qdrant_line) == set()


def test_housekeeping_does_not_mistake_a_deletion_for_a_loss(
    tmp_path: Path, qdrant: QdrantServer, embeddings: EmbeddingServer, caplog: pytest.LogCaptureFixture
) -> None:
    provider = FileSearch.from_settings(settings_for(qdrant, embeddings))
    with staged(tmp_path, [], {}, provider=provider) as stage:
        client = stage.client()
        store = client.vector_stores.create(name="one").id
        seen = on_loop(stage, provider._stores.get("default", store))
        client.vector_stores.delete(store)
        on_loop(stage, Reconciler(provider._stores, provider._backend)._mend(seen, []))
    assert collections(qdrant) == set()
    assert "was lost" not in caplog.text


class Stubborn(OwnQdrant):
    """The real thing, but some collections cannot be removed; or the line is cut when the first one is to be."""

    cuts: Line | None = None

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.broken: set[str] = set()
        self.asked: list[str] = []

    @override
    async def delete_collection(self, name: str) -> None:
        self.asked.append(name)
        if self.cuts is not None:
            self.cuts.cut()
        if name in self.broken:
            raise VectorStoreUnavailable("This collection is broken.")
        await super().delete_collection(name)


def stubborn(qdrant: QdrantServer | Line, embeddings: EmbeddingServer) -> tuple[FileSearch, Stubborn]:
    """Return a provider with such a database."""
    settings = FileSearch.from_settings(settings_for(qdrant, embeddings)).settings
    backend = Stubborn(settings.qdrant)
    return FileSearch(settings, backend=backend), backend


def mark(stage: Served, backend: Stubborn, *stores: str) -> None:
    """Delete stores whose collections stay."""
    backend.broken = {f"antwort_{store}" for store in stores}
    for store in stores:
        assert stage.request("DELETE", f"/vector_stores/{store}").status_code == 503


def test_a_collection_that_cannot_be_removed_does_not_hinder_the_others(
    tmp_path: Path, qdrant: QdrantServer, embeddings: EmbeddingServer, caplog: pytest.LogCaptureFixture
) -> None:
    provider, backend = stubborn(qdrant, embeddings)
    with staged(tmp_path, [], {}, provider=provider) as stage:
        ids = [stage.client().vector_stores.create(name=str(number)).id for number in range(3)]
        names = [f"antwort_{store}" for store in ids]
        mark(stage, backend, *ids)
        backend.broken = {names[0]}  # whose turn is first
        keep_house(stage, provider)
        assert collections(qdrant) == {names[0]}
        assert states(stage, provider) == [StoreState.DELETING]
        backend.broken = set()
        keep_house(stage, provider)
        assert (collections(qdrant), states(stage, provider)) == (set(), [])
        for name in names:  # as a restored backup brings them back
            on_loop(stage, backend.create_collection(name, 64))
        backend.broken = {min(names)}
        keep_house(stage, provider)
        assert collections(qdrant) == {min(names)}
    assert f"vector store {ids[0]} of 'default': This collection is broken." in caplog.text
    assert f"collection {min(names)}: This collection is broken." in caplog.text


def test_housekeeping_stops_when_the_database_is_gone(
    tmp_path: Path, qdrant_line: Line, embeddings: EmbeddingServer
) -> None:
    provider, backend = stubborn(qdrant_line, embeddings)
    with staged(tmp_path, [], {}, provider=provider) as stage:
        ids = [stage.client().vector_stores.create(name=str(number)).id for number in range(3)]
        mark(stage, backend, *ids)
        backend.asked, backend.cuts = [], qdrant_line
        with pytest.raises(VectorStoreUnavailable):
            keep_house(stage, provider)
        assert len(backend.asked) == 1
        assert states(stage, provider) == [StoreState.DELETING] * 3


@pytest.mark.parametrize("order", ["asc", "desc"])
def test_a_list_between_two_cursors_has_what_is_behind_those_being_deleted(
    tmp_path: Path, qdrant: QdrantServer, embeddings: EmbeddingServer, order: Any
) -> None:
    provider, backend = stubborn(qdrant, embeddings)
    with staged(tmp_path, [], {}, provider=provider) as stage:
        client = stage.client()
        ids = [client.vector_stores.create(name=str(number)).id for number in range(8)]
        ids = ids if order == "asc" else ids[::-1]
        mark(stage, backend, ids[1], ids[2], ids[4])
        pages = [
            client.vector_stores.list(limit=2, order=order, after=after, before=ids[7]) for after in (ids[0], ids[5])
        ]
        before = client.vector_stores.list(limit=2, order=order, before=ids[5])
    assert [[one.id for one in page.data] for page in pages] == [[ids[3], ids[5]], [ids[6]]]
    assert [page.has_more for page in pages] == [True, False]
    assert [one.id for one in before.data] == [ids[0], ids[3]]


class Gated(OwnQdrant):
    """The real thing, but a write waits at a gate: whatever is to happen meanwhile can happen."""

    closed = True

    async def gate(self) -> None:
        """Wait at the gate, the first time."""
        if self.closed:
            self.closed = False
            self.reached.set()
            await self.opened.wait()

    @override
    async def upsert(self, name: str, chunks: Sequence[Chunk]) -> None:
        await self.gate()
        await super().upsert(name, chunks)

    @override
    async def delete(self, name: str, *, tenant: str, file_id: str | None = None, vector_store_id: str = "") -> None:
        if file_id is not None:
            await self.gate()
        await super().delete(name, tenant=tenant, file_id=file_id, vector_store_id=vector_store_id)

    @override
    async def health(self) -> None:
        self.reached, self.opened = asyncio.Event(), asyncio.Event()
        await super().health()


def gated(qdrant: QdrantServer, embeddings: EmbeddingServer, clock: Clock, **more: Any) -> tuple[FileSearch, Gated]:
    """Return a provider with a gate."""
    settings = FileSearch.from_settings(settings_for(qdrant, embeddings, **more)).settings
    backend = Gated(settings.qdrant)
    return FileSearch(settings, backend=backend, now=clock), backend


async def during(stage: Served, backend: Gated, store: str, end: Any, request: JSON) -> httpx.Response:
    """Let a store end while a request to its points is at the gate, and return the answer."""
    async with httpx.AsyncClient(base_url=f"{stage.server.url}/v1", timeout=60) as client:
        waiting = asyncio.ensure_future(client.request(url=f"/vector_stores/{store}/points", **request))
        await backend.reached.wait()
        await end(client)
        backend.opened.set()
        return await waiting


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("how", ["deleted", "expired"])
def test_a_write_to_a_store_that_ends_leaves_nothing(
    tmp_path: Path, qdrant: QdrantServer, embeddings: EmbeddingServer, shared: bool, how: str
) -> None:
    clock = Clock()
    provider, backend = gated(qdrant, embeddings, clock, shared_collection=shared)
    with staged(tmp_path, [], {}, provider=provider) as stage:
        store = stage.client().vector_stores.create(name="one", expires_after=WEEK).id
        points = [{"text": f"tea {n}", "file_id": "f", "filename": "f", "chunk_index": n} for n in range(3)]

        async def end(client: httpx.AsyncClient) -> None:
            if how == "deleted":
                assert (await client.delete(f"/vector_stores/{store}")).status_code == 200
            else:
                clock.pass_days(8)
                await provider._stores.expire(await provider._stores.get("default", store))

        request = {"method": "POST", "json": {"points": points}}
        answer = on_loop(stage, during(stage, backend, store, end, request))
        error = answer.json()["error"]
        expected = (404, "not found") if how == "deleted" else (400, "has expired")
        assert answer.status_code == expected[0]
        assert expected[1] in error["message"]
    assert collections(qdrant) == ({"antwort_shared_64"} if shared else set())
    if shared:
        left = httpx.post(f"{qdrant.url}/collections/antwort_shared_64/points/count", json={"exact": True})
        assert left.json()["result"]["count"] == 0


def test_chunks_of_a_store_that_is_deleted_meanwhile_are_not_found(
    tmp_path: Path, qdrant_server: QdrantServer, embeddings: EmbeddingServer
) -> None:
    provider, backend = gated(qdrant_server, embeddings, Clock())
    with staged(tmp_path, [], {}, provider=provider) as stage:
        store = stage.client().vector_stores.create(name="one").id

        async def end(client: httpx.AsyncClient) -> None:
            assert (await client.delete(f"/vector_stores/{store}")).status_code == 200

        answer = on_loop(stage, during(stage, backend, store, end, {"method": "DELETE", "params": {"file_id": "f"}}))
        assert answer.status_code == 404
        described = httpx.get(f"{stage.server.url}/openapi.json").json()
    path = described["paths"]["/v1/vector_stores/{vector_store_id}/points"]
    assert {"404", "409", "503"} <= path["delete"]["responses"].keys()
