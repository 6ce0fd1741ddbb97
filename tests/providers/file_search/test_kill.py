"""`kill -9` of the gateway while vector stores are made, filled and deleted, and what is found after the next start."""

import asyncio
import os
import random
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from openai import OpenAI
from openai.types import VectorStore
from tests.providers.file_search.stage import collections, settings_for, until
from tests.runs.processes import ServerProcess
from tests.support.embeddings import EmbeddingServer
from tests.support.qdrant import QdrantServer

ROUNDS = 30 if os.environ.get("ANTWORT_TEST_FULL") else 2
CLIENTS = 6
LATEST = 24
"""Answers that clients get before the kill comes, at the most."""
PAUSE = 0.05
"""Seconds until it comes after the last of them, at the most: a few steps of the gateway."""
NOBODY = "http://127.0.0.1:9/v1"
"""The address of a model that is never asked."""


@dataclass
class Known:
    """What clients know of stores; what they were not told is not here."""

    made: set[str] = field(default_factory=set)
    filled: set[str] = field(default_factory=set)
    doomed: set[str] = field(default_factory=set)
    """Those whose deletion was asked for."""
    deleted: set[str] = field(default_factory=set)

    @property
    def answers(self) -> int:
        """How many answers clients got."""
        return len(self.made) + len(self.filled) + len(self.deleted)


async def use(url: str, known: Known, chance: random.Random) -> None:
    """Make stores, write to them and delete some, until the gateway is gone."""
    async with httpx.AsyncClient(base_url=f"{url}/v1", timeout=60) as client:
        while True:
            made = await client.post("/vector_stores", json={"name": "one"})
            assert made.status_code == 200, made.text
            store = made.json()["id"]
            known.made.add(store)
            points = [{"text": f"tea {n}", "file_id": f"f{n}", "filename": f"{n}.txt"} for n in range(3)]
            written = await client.post(f"/vector_stores/{store}/points", json={"points": points})
            assert written.status_code == 200, written.text
            known.filled.add(store)
            if chance.random() < 0.7:
                known.doomed.add(store)
                gone = await client.delete(f"/vector_stores/{store}")
                assert gone.status_code == 200, gone.text
                known.deleted.add(store)


async def use_until_killed(server: ServerProcess, known: Known, chance: random.Random) -> None:
    """Let clients use the gateway, and kill it at some moment."""
    clients = [asyncio.create_task(use(server.url, known, random.Random(chance.random()))) for _ in range(CLIENTS)]
    enough = known.answers + chance.randint(0, LATEST)
    ended: set[asyncio.Task[None]] = set()
    while known.answers < enough and not ended:
        ended, _ = await asyncio.wait(clients, timeout=0.001, return_when=asyncio.FIRST_COMPLETED)
    await asyncio.sleep(chance.uniform(0, PAUSE))
    server.kill()
    for outcome in await asyncio.gather(*clients, return_exceptions=True):
        assert isinstance(outcome, httpx.TransportError), outcome


def stores(server: ServerProcess) -> dict[str, VectorStore]:
    """Return all stores, by id."""
    with OpenAI(base_url=f"{server.url}/v1", api_key="none") as client:
        return {store.id: store for store in client.vector_stores.list(limit=100)}


def is_mended(found: dict[str, VectorStore], qdrant: QdrantServer) -> bool:
    """Tell whether every store is whole, has its collection, and nothing else has one."""
    whole = all(store.status == "completed" for store in found.values())  # a collection is there before its store is
    return whole and collections(qdrant) == {f"antwort_{store}" for store in found}


def test_a_gateway_that_is_killed_leaves_no_orphans_and_loses_nothing(
    tmp_path: Path, qdrant: QdrantServer, embeddings: EmbeddingServer
) -> None:
    chance = random.Random(6)
    settings = settings_for(qdrant, embeddings, reconcile=0.1)
    server = ServerProcess(tmp_path, NOBODY, providers={"file_search": {"enabled": True, "settings": settings}})
    known = Known()
    try:
        for _ in range(ROUNDS):
            server.start()
            asyncio.run(use_until_killed(server, known, chance))
        server.start()
        until(lambda: is_mended(stores(server), qdrant))
        found = stores(server)
        assert is_mended(found, qdrant)
        assert known.made - known.doomed <= found.keys()
        assert not known.deleted & found.keys()
        for store in (known.filled - known.doomed) & found.keys():
            assert found[store].file_counts.total == 3
    finally:
        server.kill()
    assert known.deleted
    assert "Traceback" not in server.errors
