"""Two gateways that share their records: what they can share of the vectors, and what they cannot."""

import asyncio
import os
import random
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.http.sdk import Served, create
from tests.providers.file_search.stage import (
    answering,
    collections,
    on_loop,
    outputs,
    search_item,
    settings_for,
    staged,
    tool,
    until,
    write,
)
from tests.support.embeddings import EmbeddingServer
from tests.support.qdrant import QdrantServer

from antwort.errors import ConfigError
from antwort.providers.file_search import FileSearch
from antwort.providers.file_search.reconcile import Reconciler
from antwort.providers.file_search.vectors.embedded.backend import Embedded
from antwort.runs.workers import WorkerWatch

CLIENTS, ROUNDS = 4, 4 if os.environ.get("ANTWORT_TEST_FULL") else 2
ELSEWHERE = "in the data folder of another server; use qdrant or pgvector to share them"


@pytest.fixture(autouse=True)
def _side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let servers start that cannot share a database: what is here is for those that got past being told so."""
    monkeypatch.setattr(WorkerWatch, "_why_not", lambda _watch, _row: None)


def embedded(embeddings: EmbeddingServer, **more: Any) -> FileSearch:
    """Return a provider that keeps vectors in the data folder of its server."""
    return FileSearch.from_settings({"embedding_url": embeddings.url, "embedding_retries": 0, **more})


def keep_house(stage: Served, provider: FileSearch) -> None:
    """Do once what is done every few minutes."""
    on_loop(stage, Reconciler(provider._stores, provider._backend).once())


def test_a_server_does_not_touch_what_is_in_the_folder_of_another(
    tmp_path: Path, postgres_url: str, embeddings: EmbeddingServer, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = embedded(embeddings), embedded(embeddings, reconcile=0.05)
    storage = {"url": postgres_url}
    with (
        staged(tmp_path / "one", [], {}, provider=one, storage=storage) as here,
        staged(tmp_path / "other", answering("tea", "tea"), {}, provider=other, storage=storage) as there,
    ):
        store = here.client().vector_stores.create(name="drinks").id
        write(here, store, {"text": "green tea"})
        told = f"the vectors of {store} are not kept by this server"
        until(lambda: told in caplog.text)
        path, points = f"/vector_stores/{store}", {"points": [{"text": "x", "file_id": "f", "filename": "f"}]}
        answers = [
            there.request("GET", path),
            there.request("POST", path, json={"name": "mine"}),
            there.request("POST", f"{path}/search", json={"query": "tea"}),
            there.request("POST", f"{path}/points", json=points),
            there.request("DELETE", f"{path}/points", params={"file_id": "f"}),
        ]
        for wish in (tool(store), tool()):
            assert search_item(create(there, False, input="?", tools=[wish])).status == "failed"
            assert ELSEWHERE in outputs(there)[0]
        found = here.client().vector_stores.search(store, query="tea").data
        assert caplog.text.count(told) == 1  # however often the other one has looked
        assert there.client().vector_stores.delete(store).deleted
        assert here.request("GET", path).status_code == 404
        keep_house(there, other)
        assert on_loop(here, one._backend.collections()) == [f"antwort_{store}"]
        keep_house(here, one)
        assert on_loop(here, one._backend.collections()) == []
        assert here.request("GET", "/vector_stores").json()["data"] == []
    for answer in answers:
        assert (answer.status_code, ELSEWHERE in answer.json()["error"]["message"]) == (503, True), answer.text
    assert [hit.content[0].text for hit in found] == ["green tea"]
    assert "was lost" not in caplog.text


def test_what_is_elsewhere_does_not_hinder_what_is_here(
    tmp_path: Path, postgres_url: str, embeddings: EmbeddingServer
) -> None:
    storage = {"url": postgres_url}
    with (
        staged(tmp_path / "one", [], {}, provider=embedded(embeddings), storage=storage) as there,
        staged(tmp_path / "other", answering("tea", "tea"), {}, provider=embedded(embeddings), storage=storage) as here,
    ):
        away = [there.client().vector_stores.create(name=str(number)).id for number in range(2)]
        for store in away:
            write(there, store, {"text": "green tea"})
        mine = here.client().vector_stores.create(name="mine").id
        write(here, mine, {"text": "black tea"})
        listed = {store.id: store.file_counts.total for store in here.client().vector_stores.list()}
        unnamed = search_item(create(here, False, input="?", tools=[tool()]))
        [output] = outputs(here)
        named = search_item(create(here, False, input="?", tools=[tool(mine, away[0])]))
        [refusal] = outputs(here)
        for _ in range(2):  # who asks again is told the same
            assert here.request("DELETE", f"/vector_stores/{away[0]}").json()["deleted"]
        assert here.request("GET", f"/vector_stores/{away[0]}").status_code == 404
        assert [store.id for store in there.client().vector_stores.list()] == [mine, away[1]]
    assert listed == {mine: 1, away[0]: 0, away[1]: 0}
    assert (unnamed.status, named.status) == ("completed", "failed")
    assert "black tea" in output
    assert "green tea" not in output
    assert "Vector stores not searched, since this server does not keep their vectors: 2." in output
    assert ELSEWHERE in refusal


def test_a_server_knows_its_own_folder_again(tmp_path: Path, postgres_url: str, embeddings: EmbeddingServer) -> None:
    storage = {"url": postgres_url}
    with staged(tmp_path, [], {}, provider=embedded(embeddings), storage=storage) as stage:
        store = stage.client().vector_stores.create(name="drinks").id
        write(stage, store, {"text": "green tea"})
    with staged(tmp_path, [], {}, provider=embedded(embeddings), storage=storage) as stage:
        assert stage.client().vector_stores.retrieve(store).file_counts.total == 1


def test_vectors_in_a_database_that_is_not_used_are_not_made_again(
    tmp_path: Path, qdrant_server: QdrantServer, embeddings: EmbeddingServer, caplog: pytest.LogCaptureFixture
) -> None:
    with staged(tmp_path, [], settings_for(qdrant_server, embeddings)) as stage:
        store = stage.client().vector_stores.create(name="drinks").id
        write(stage, store, {"text": "green tea"})
    provider = embedded(embeddings)
    with staged(tmp_path, [], {}, provider=provider) as stage:
        keep_house(stage, provider)
        refused = stage.request("GET", f"/vector_stores/{store}")
        assert on_loop(stage, provider._backend.collections()) == []
    assert refused.status_code == 503
    assert "'vector_backend' says which it uses" in refused.json()["error"]["message"]
    with staged(tmp_path, [], settings_for(qdrant_server, embeddings)) as stage:
        assert stage.client().vector_stores.retrieve(store).file_counts.total == 1
    assert "was lost" not in caplog.text


def test_a_folder_has_one_name_that_stays(tmp_path: Path) -> None:
    folder = tmp_path / "vectors"
    name = Embedded(folder).place
    assert Embedded(folder).place == name
    assert name not in {"", Embedded(tmp_path / "others").place}
    assert [file.name for file in folder.iterdir()] == ["place"]
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="folder of the embedded vector database cannot be used"):
        _ = Embedded(tmp_path / "file").place


async def use(gateways: list[str], known: dict[str, str], chance: random.Random) -> None:
    """Make stores on one gateway and use them on the other; delete some."""
    async with httpx.AsyncClient(timeout=60) as client:

        async def ask(method: str, gateway: str, path: str, **body: Any) -> Any:
            answer = await client.request(method, f"{gateway}/v1/vector_stores{path}", **body)
            assert answer.status_code == 200, answer.text
            return answer.json()

        for _ in range(ROUNDS):
            here, there = chance.sample(gateways, 2)
            store = (await ask("POST", here, "", json={"name": "one"}))["id"]
            points = [{"text": f"tea of {store} {n}", "file_id": f"f{n}", "filename": "f"} for n in range(3)]
            await ask("POST", there, f"/{store}/points", json={"points": points})
            for gateway in gateways:
                found = await ask("POST", gateway, f"/{store}/search", json={"query": f"tea of {store} 1"})
                assert found["data"][0]["content"][0]["text"] == f"tea of {store} 1"
                await ask("GET", gateway, "")
            known[store] = "kept"
            if chance.random() < 0.5:
                known[store] = "deleted"
                await ask("DELETE", there, f"/{store}")
                answer = await client.get(f"{here}/v1/vector_stores/{store}")
                assert answer.status_code == 404


@pytest.mark.parametrize("shared", [False, True])
def test_two_servers_share_records_and_vectors(
    tmp_path: Path,
    postgres_url: str,
    qdrant: QdrantServer,
    embeddings: EmbeddingServer,
    shared: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings = settings_for(qdrant, embeddings, reconcile=0.05, shared_collection=shared)
    storage = {"url": postgres_url}
    known: dict[str, str] = {}
    chance = random.Random(7)
    with (
        staged(tmp_path / "one", [], settings, storage=storage) as one,
        staged(tmp_path / "other", [], settings, storage=storage) as other,
    ):

        async def use_both() -> None:
            gateways = [one.server.url, other.server.url]
            await asyncio.gather(*(use(gateways, known, random.Random(chance.random())) for _ in range(CLIENTS)))

        asyncio.run(use_both())
        kept = {store for store, state in known.items() if state == "kept"}
        for stage in (one, other):
            listed = {store.id: store for store in stage.client().vector_stores.list(limit=3)}
            assert listed.keys() == kept
            assert {store.file_counts.total for store in listed.values()} == {3}
        expected = {"antwort_shared_64"} if shared else {f"antwort_{store}" for store in kept}
        until(lambda: collections(qdrant) == expected)
    assert 0 < len(kept) < len(known) == CLIENTS * ROUNDS
    assert "was lost" not in caplog.text
