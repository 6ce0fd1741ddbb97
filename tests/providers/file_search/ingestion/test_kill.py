"""`kill -9` of the server and of its worker while files are made searchable: nothing is lost, or there twice."""

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
from tests.providers.file_search.stage import until
from tests.runs.processes import ServerProcess
from tests.support.embeddings import EmbeddingServer

from antwort.config import Config
from antwort.files import DiskBlobs, StoredFiles
from antwort.storage.opening import open_configured

ROUNDS = 20 if os.environ.get("ANTWORT_TEST_FULL") else 3
FILES = 2
"""That are attached in each round."""
NOBODY = "http://127.0.0.1:9/v1"


async def _pieces(text: str) -> AsyncIterator[bytes]:
    yield text.encode()


async def upload_all(data_dir: Path, count: int) -> list[str]:
    """Put files into the store of a server that does not run."""
    async with open_configured(Config(data_dir=data_dir)) as storage:
        files = StoredFiles(storage.store.files, DiskBlobs(storage.blobs))
        texts = (" ".join(f"File {n}, line {line}." for line in range(300)) for n in range(count))
        return [(await files.create("default", f"{n}.txt", "assistants", _pieces(t))).id for n, t in enumerate(texts)]


def workers_of(server: ServerProcess) -> list[int]:
    """Return the workers of this server, those that it has left behind as well."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:  # it has ended
            continue
        if b"ingest" in words and str(server.data_dir).encode() in words:
            found.append(int(path.parent.name))
    return found


def stop(server: ServerProcess) -> None:
    """End a server, and the workers that it has left behind."""
    server.kill()
    for pid in workers_of(server):
        os.kill(pid, signal.SIGKILL)


@pytest.fixture
def server(tmp_path: Path, embeddings: EmbeddingServer) -> Iterator[ServerProcess]:
    settings = {"embedding_url": embeddings.url}
    made = ServerProcess(tmp_path, NOBODY, providers={"file_search": {"enabled": True, "settings": settings}})
    yield made
    stop(made)


def statuses(client: httpx.Client, store: str) -> dict[str, str]:
    """Return how far the files of a store are."""
    found: dict[str, str] = {}
    after = ""
    while True:
        page = client.get(f"{store}/files?limit=100&order=asc{after}").json()
        found |= {file["id"]: file["status"] for file in page["data"]}
        if not page["has_more"]:
            return found
        after = f"&after={page['last_id']}"


def test_nothing_is_lost_and_nothing_there_twice(server: ServerProcess) -> None:
    chance = random.Random(12)
    files = asyncio.run(upload_all(server.data_dir, ROUNDS * FILES))
    server.start()
    with httpx.Client(base_url=f"{server.url}/v1", timeout=60) as client:
        store = "vector_stores/" + client.post("vector_stores", json={"name": "docs"}).json()["id"]
    attached: set[str] = set()
    for number in range(ROUNDS):
        with httpx.Client(base_url=f"{server.url}/v1", timeout=60) as client:
            for file_id in files[number * FILES : (number + 1) * FILES]:
                assert client.post(f"{store}/files", json={"file_id": file_id}).status_code == 200
                attached.add(file_id)
            enough = chance.randint(0, FILES)
            until(lambda: list(statuses(client, store).values()).count("completed") >= enough)  # noqa: B023
            removed = chance.choice(sorted(attached))
            assert client.delete(f"{store}/files/{removed}").status_code == 200
            attached.discard(removed)
        for pid in workers_of(server) if number % 2 else []:
            os.kill(pid, signal.SIGKILL)
        if number % 3 != 1:
            server.kill()
            server.start()
    with httpx.Client(base_url=f"{server.url}/v1", timeout=60) as client:
        until(lambda: set(statuses(client, store).values()) == {"completed"})
        assert set(statuses(client, store)) == attached
        listed = [client.get(f"{store}/files/{file_id}").json() for file_id in attached]
        shown = client.get(store).json()
        assert shown["file_counts"]["completed"] == shown["file_counts"]["total"] == len(attached)
        # Bytes of a store are counted in the vector database: of every chunk that is there, whoever wrote it.
        assert shown["usage_bytes"] == sum(file["usage_bytes"] for file in listed) > 0
    assert server.terminate() == 0
    assert "Traceback" not in server.errors
