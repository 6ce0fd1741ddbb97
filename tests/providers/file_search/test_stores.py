"""The management API as OpenAI's SDK uses it, in strict mode; on a real Qdrant server."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import APIStatusError, BadRequestError
from tests.http.sdk import create
from tests.providers.file_search.stage import (
    KEYS,
    Clock,
    answering,
    collections,
    on_loop,
    outputs,
    settings_for,
    staged,
    tool,
    write,
)
from tests.support.embeddings import EmbeddingServer
from tests.support.qdrant import QdrantServer

from antwort.providers.file_search import FileSearch
from antwort.providers.file_search.store_record import KIND, StoreState


def test_a_store_is_shown_as_openai_shows_it(
    tmp_path: Path, qdrant_server: QdrantServer, embeddings: EmbeddingServer
) -> None:
    with staged(tmp_path, [], settings_for(qdrant_server, embeddings)) as stage:
        body = {"name": "drinks", "metadata": {"a": "b"}, "expires_after": {"anchor": "last_active_at", "days": 7}}
        made = stage.request("POST", "/vector_stores", json=body).json()
    assert made["id"].startswith("vs_")
    assert made == {
        "id": made["id"],
        "object": "vector_store",
        "created_at": made["created_at"],
        "name": "drinks",
        "usage_bytes": 0,
        "file_counts": {"in_progress": 0, "completed": 0, "cancelled": 0, "failed": 0, "total": 0},
        "status": "completed",
        "expires_after": {"anchor": "last_active_at", "days": 7},
        "expires_at": made["created_at"] + 7 * 86_400,
        "last_active_at": made["created_at"],
        "metadata": {"a": "b"},
    }


def test_a_store_needs_no_name(tmp_path: Path, qdrant_server: QdrantServer, embeddings: EmbeddingServer) -> None:
    with staged(tmp_path, [], settings_for(qdrant_server, embeddings)) as stage:
        made = stage.client().vector_stores.create()
    assert (made.name, made.metadata, made.expires_after, made.expires_at) == ("", {}, None, None)


def test_an_update_changes_what_it_names(
    tmp_path: Path, qdrant_server: QdrantServer, embeddings: EmbeddingServer
) -> None:
    settings = FileSearch.from_settings(settings_for(qdrant_server, embeddings)).settings
    with staged(tmp_path, [], {}, provider=FileSearch(settings, now=Clock())) as stage:
        client = stage.client()
        made = client.vector_stores.create(name="old", metadata={"a": "b"})
        days: Any = {"anchor": "last_active_at", "days": 1}
        timed = client.vector_stores.update(made.id, expires_after=days)
        named = client.vector_stores.update(made.id, name="new")
        cleared = client.vector_stores.update(made.id, metadata=None, expires_after=None)
        same = client.vector_stores.update(made.id)
    assert (timed.name, timed.metadata, timed.expires_at) == ("old", {"a": "b"}, made.created_at + 86_400)
    assert (named.name, named.metadata, named.expires_at) == ("new", {"a": "b"}, made.created_at + 86_400)
    assert (cleared.name, cleared.metadata, cleared.expires_at) == ("new", {}, None)
    assert same == cleared


def test_lists_have_cursors_both_ways(tmp_path: Path, qdrant_server: QdrantServer, embeddings: EmbeddingServer) -> None:
    with staged(tmp_path, [], settings_for(qdrant_server, embeddings)) as stage:
        client = stage.client()
        ids = [client.vector_stores.create(name=str(number)).id for number in range(5)]
        assert [one.id for one in client.vector_stores.list(limit=2)] == ids[::-1]  # page by page, by itself
        assert [one.id for one in client.vector_stores.list(limit=2, order="asc")] == ids
        page = client.vector_stores.list(limit=2, order="asc", after=ids[1])
        assert ([one.id for one in page.data], page.has_more) == (ids[2:4], True)
        page = client.vector_stores.list(limit=2, order="asc", before=ids[4])
        assert ([one.id for one in page.data], page.has_more) == (ids[2:4], True)
        raw = stage.request("GET", "/vector_stores?limit=3").json()
        assert (raw["first_id"], raw["last_id"], raw["has_more"], raw["object"]) == (ids[4], ids[2], True, "list")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"metadata": {str(n): "x" for n in range(17)}}, "metadata"),
        ({"metadata": {"k" * 65: "x"}}, "metadata"),
        ({"metadata": {"k": "x" * 513}}, "metadata"),
        ({"metadata": {"k": 1}}, "metadata"),
        ({"expires_after": {"anchor": "created_at", "days": 1}}, "expires_after"),
        ({"expires_after": {"anchor": "last_active_at", "days": 0}}, "expires_after"),
        ({"expires_after": {"anchor": "last_active_at", "days": 366}}, "expires_after"),
        ({"file_ids": [""]}, "file_ids"),
        ({"nonsense": 1}, "nonsense"),
    ],
)
def test_a_store_that_cannot_be_is_refused_with_the_field(body: Any, param: str, refusals: Any) -> None:
    answer = refusals("POST", "/vector_stores", body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"].startswith(param)


@pytest.fixture(scope="module")
def refusals(tmp_path_factory: pytest.TempPathFactory, qdrant_server: QdrantServer) -> Any:
    """Give a way to ask one app that all of these tests share."""
    with (
        EmbeddingServer() as embeddings,
        staged(tmp_path_factory.mktemp("refusals"), [], settings_for(qdrant_server, embeddings)) as stage,
    ):
        store = stage.client().vector_stores.create(name="one").id
        yield lambda method, path, body: stage.request(method, path.replace("(id)", store), json=body)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "query"),
        ({"query": []}, "query"),
        ({"query": ["a", " "]}, "query"),
        ({"query": "a", "max_num_results": 51}, "max_num_results"),
        ({"query": "a", "filters": {"type": "eq", "key": "a"}}, "filters"),
        ({"query": "a", "ranking_options": {"score_threshold": -1}}, "ranking_options.score_threshold"),
    ],
)
def test_a_search_that_cannot_be_is_refused_with_the_field(body: Any, param: str, refusals: Any) -> None:
    answer = refusals("POST", "/vector_stores/(id)/search", body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"].startswith(param)


@pytest.mark.parametrize(
    "point",
    [
        {"text": ""},
        {"text": "x", "attributes": {"a": None}},
        {"text": "x", "attributes": {"a": {"b": 1}}},
        {"text": "x", "id": "17"},
        {"text": "x", "file_id": "a\0b"},
        {"text": "x", "file_id": "a\n"},
        {"text": "x", "file_id": "\x7f"},
        {"text": "x", "vector": [1.0, 2.0]},
        {"text": "x", "vector": [1e300] * 64},
        {"text": "x", "chunk_index": -1},
    ],
)
def test_a_point_that_cannot_be_is_refused(point: Any, refusals: Any) -> None:
    body = {"points": [{"file_id": "file-1", "filename": "a.txt", **point}]}
    answer = refusals("POST", "/vector_stores/(id)/points", body)
    assert answer.status_code == 400, answer.text
    if len(point.get("vector", ())) == 2:
        assert answer.json()["error"]["param"] == "points[0].vector"


def test_a_search_takes_several_queries_and_embeds_them_at_once(
    tmp_path: Path, qdrant_server: QdrantServer, embeddings: EmbeddingServer
) -> None:
    with staged(tmp_path, [], settings_for(qdrant_server, embeddings)) as stage:
        client = stage.client()
        store = client.vector_stores.create(name="drinks").id
        write(stage, store, {"text": "green tea"}, {"text": "black coffee"}, {"text": "cold water"})
        raw = stage.request("POST", f"/vector_stores/{store}/search", json={"query": ["green tea", "black coffee"]})
        first, second, _ = client.vector_stores.search(store, query=["green tea", "black coffee"]).data
    body = raw.json()
    assert body["object"] == "vector_store.search_results.page"
    assert body["search_query"] == ["green tea", "black coffee"]
    assert (body["has_more"], body["next_page"]) == (False, None)
    assert {one.content[0].text for one in (first, second)} == {"green tea", "black coffee"}
    assert first.score == second.score == pytest.approx(1.0, abs=1e-3)
    assert embeddings.texts()[-1] == ["green tea", "black coffee"]


def test_counts_are_true_after_every_change(
    tmp_path: Path, qdrant_server: QdrantServer, embeddings: EmbeddingServer
) -> None:
    with staged(tmp_path, [], settings_for(qdrant_server, embeddings)) as stage:
        client = stage.client()
        store = client.vector_stores.create(name="drinks").id

        def counted() -> tuple[int, int]:
            found = client.vector_stores.retrieve(store)
            assert found.file_counts.total == found.file_counts.completed
            return found.file_counts.total, found.usage_bytes

        assert counted() == (0, 0)
        write(stage, store, {"text": "tee"}, {"text": "käse"}, {"text": "more", "file_id": "file-0", "chunk_index": 1})
        assert counted() == (2, 3 + 5 + 4)
        write(stage, store, {"text": "tea time"})  # in place of the first
        assert counted() == (2, 8 + 5 + 4)
        gone = stage.request("DELETE", f"/vector_stores/{store}/points", params={"file_id": "file-0"})
        assert gone.json() == {
            "object": "vector_store.points.deleted",
            "vector_store_id": store,
            "file_id": "file-0",
            "deleted": True,
        }
        assert counted() == (1, 5)


def test_writing_points_wants_the_scope(
    tmp_path: Path, qdrant_server: QdrantServer, embeddings: EmbeddingServer
) -> None:
    keys: Any = {
        "api_keys": [
            {"id": "r", "key": "reader", "tenant": "acme", "scopes": ["vector_stores:*"]},
            {"id": "i", "key": "ingester", "tenant": "acme", "scopes": ["ingest"]},
        ]
    }
    with staged(tmp_path, [], settings_for(qdrant_server, embeddings), auth=keys) as stage:
        store = stage.client("reader").vector_stores.create(name="drinks").id
        path, headers = f"/vector_stores/{store}/points", {"authorization": "Bearer reader"}
        body = {"points": [{"text": "tea", "file_id": "f", "filename": "f.txt"}]}
        assert stage.request("POST", path, json=body, headers=headers).status_code == 403
        assert stage.request("DELETE", f"{path}?file_id=f", headers=headers).status_code == 403
        write(stage, store, {"text": "tea"}, key="ingester")
        assert stage.client("reader").vector_stores.retrieve(store).file_counts.total == 1


def test_stores_can_share_a_collection(tmp_path: Path, qdrant: QdrantServer, embeddings: EmbeddingServer) -> None:
    settings = settings_for(qdrant, embeddings, shared_collection=True)
    with staged(tmp_path, [], settings) as stage:
        client = stage.client()
        one, other = client.vector_stores.create(name="one").id, client.vector_stores.create(name="other").id
        write(stage, one, {"text": "green tea"})
        write(stage, other, {"text": "black tea"}, {"text": "tea bag"})
        assert collections(qdrant) == {"antwort_shared_64"}
        assert [hit.content[0].text for hit in client.vector_stores.search(one, query="tea").data] == ["green tea"]
        assert client.vector_stores.retrieve(one).file_counts.total == 1
        client.vector_stores.delete(one)
        assert client.vector_stores.retrieve(other).file_counts.total == 2
        left = httpx.post(f"{qdrant.url}/collections/antwort_shared_64/points/count", json={"exact": True})
    assert left.json()["result"]["count"] == 2


def test_a_tenant_has_only_so_many_stores(
    tmp_path: Path, qdrant_server: QdrantServer, embeddings: EmbeddingServer
) -> None:
    with staged(tmp_path, [], settings_for(qdrant_server, embeddings, max_stores=2), auth=KEYS) as stage:
        client = stage.client("key-of-alpha")
        first, _ = client.vector_stores.create(), client.vector_stores.create()
        with pytest.raises(BadRequestError) as refused:
            client.vector_stores.create()
        assert refused.value.code == "too_many_vector_stores"
        assert "delete one that is not needed" in refused.value.message
        stage.client("key-of-beta").vector_stores.create()
        client.vector_stores.delete(first.id)
        client.vector_stores.create()


def test_stores_that_have_expired_are_not_counted(
    tmp_path: Path, qdrant_server: QdrantServer, embeddings: EmbeddingServer
) -> None:
    clock = Clock()
    settings = FileSearch.from_settings(settings_for(qdrant_server, embeddings, max_stores=2)).settings
    with staged(tmp_path, [], {}, provider=FileSearch(settings, now=clock)) as stage:
        client = stage.client()
        day: Any = {"anchor": "last_active_at", "days": 1}
        for _ in range(3):
            for _ in range(2):
                client.vector_stores.create(expires_after=day)
            with pytest.raises(BadRequestError, match="There are 2 vector stores already"):
                client.vector_stores.create()
            clock.pass_days(2)
        assert [one.status for one in client.vector_stores.list()] == ["expired"] * 6


def test_a_search_of_all_finds_what_is_behind_many_that_have_expired(
    tmp_path: Path, qdrant_server: QdrantServer, embeddings: EmbeddingServer
) -> None:
    provider = FileSearch.from_settings(settings_for(qdrant_server, embeddings))
    with staged(tmp_path, answering("tea"), {}, provider=provider) as stage:
        records = provider.services.records
        client = stage.client()
        first, gone = client.vector_stores.create(name="first").id, {"state": StoreState.EXPIRED, "cleared": True}

        async def expire_many() -> None:
            value = (await provider._stores.get("default", first)).kept.value
            for number in range(1001):
                await records.create("default", KIND, f"vs_{number}", {**value, **gone})

        on_loop(stage, expire_many())
        last = client.vector_stores.create(name="last").id  # there are more than 1,000 records, but two stores
        write(stage, first, {"text": "green tea"})
        write(stage, last, {"text": "black tea"})
        create(stage, False, input="?", tools=[tool()])
        [output] = outputs(stage)
    assert "green tea" in output
    assert "black tea" in output


def test_no_store_can_be_created_while_the_length_of_vectors_is_unknown(
    tmp_path: Path, qdrant_server: QdrantServer, embeddings: EmbeddingServer
) -> None:
    embeddings.broken = True
    with staged(tmp_path, [], settings_for(qdrant_server, embeddings)) as stage:
        with pytest.raises(APIStatusError) as refused:
            stage.client().vector_stores.create(name="drinks")
        assert refused.value.status_code == 503
        assert list(stage.client().vector_stores.list()) == []
        embeddings.broken = False
        assert stage.client().vector_stores.create(name="drinks").status == "completed"


def test_searches_at_the_same_time_keep_the_record_whole(
    tmp_path: Path, qdrant_server: QdrantServer, embeddings: EmbeddingServer
) -> None:
    clock = Clock()
    settings = FileSearch.from_settings(settings_for(qdrant_server, embeddings)).settings
    with staged(tmp_path, [], {}, provider=FileSearch(settings, now=clock)) as stage:
        store = stage.client().vector_stores.create(name="drinks", metadata={"a": "b"}).id

        async def rush() -> list[int]:
            async with httpx.AsyncClient(base_url=f"{stage.server.url}/v1", timeout=60) as client:
                path = f"/vector_stores/{store}"
                searches = [client.post(f"{path}/search", json={"query": "tea"}) for _ in range(8)]
                renames = [client.post(path, json={"name": str(number)}) for number in range(8)]
                return [answer.status_code for answer in await asyncio.gather(*searches, *renames)]

        clock.pass_days(1)
        assert set(on_loop(stage, rush())) == {200}
        after = stage.client().vector_stores.retrieve(store)
    assert after.last_active_at == clock.now
    assert after.metadata == {"a": "b"}
    assert after.name in set("01234567")
