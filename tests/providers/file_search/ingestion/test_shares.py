"""Files of several tenants: nobody's large, slow or many files hold up those of others, and none is read in vain."""

import asyncio
import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI, RateLimitError
from tests.providers.file_search.ingestion.stage import IngestionStage, _pieces, ingesting
from tests.providers.file_search.ingestion.test_listener import job_of, worker
from tests.providers.file_search.stage import on_loop, until
from tests.support.embeddings import EmbeddingServer

from antwort.providers.file_search.ingestion import messages

TENANTS = ("attacker", "other")
SLOW = b"<p>x</p>" * 1_500_000
"""A page that takes a minute to be read."""
SMALL_CHUNKS: Any = {"type": "static", "static": {"max_chunk_size_tokens": 100, "chunk_overlap_tokens": 0}}
LARGE_CHUNKS: Any = {"type": "static", "static": {"max_chunk_size_tokens": 800, "chunk_overlap_tokens": 0}}


class TwoTenants:
    """An app with files of two tenants."""

    def __init__(self, stage: IngestionStage) -> None:
        self.stage = stage
        url = f"{stage.served.server.url}/v1"
        self.clients = {name: OpenAI(base_url=url, api_key=f"secret-{name}", max_retries=0) for name in TENANTS}
        self.stores = {name: client.vector_stores.create().id for name, client in self.clients.items()}

    def attach(self, tenant: str, content: bytes | str, name: str = "a.txt", chunks: Any = SMALL_CHUNKS) -> str:
        """Upload a file, and attach it to the store of its tenant."""
        data = content.encode() if isinstance(content, str) else content
        files = self.stage.served.server.app.files
        made = on_loop(self.stage.served, files.create(tenant, name, "assistants", _pieces(data)))
        self.clients[tenant].vector_stores.files.create(self.stores[tenant], file_id=made.id, chunking_strategy=chunks)
        return made.id

    def status(self, tenant: str, file_id: str) -> str:
        return self.clients[tenant].vector_stores.files.retrieve(file_id, vector_store_id=self.stores[tenant]).status

    def settled(self, tenant: str, file_id: str) -> Any:
        """Wait until a file is completed, or has failed, and return it."""
        files, store = self.clients[tenant].vector_stores.files, self.stores[tenant]
        until(lambda: files.retrieve(file_id, vector_store_id=store).status != "in_progress")
        return files.retrieve(file_id, vector_store_id=store)


@contextlib.contextmanager
def two_tenants(tmp_path: Path, embeddings: EmbeddingServer, **settings: Any) -> Iterator[TwoTenants]:
    keys = [{"id": name, "key": f"secret-{name}", "tenant": name} for name in TENANTS]
    own = {"embedding_url": embeddings.url, "embedding_retries": 0, **settings}
    with ingesting(tmp_path, own, auth={"api_keys": keys}) as stage:
        both = TwoTenants(stage)
        try:
            yield both
        finally:
            for client in both.clients.values():
                client.close()


async def test_files_are_lent_in_turns_and_a_hand_is_left_for_others(
    tmp_path: Path, embeddings: EmbeddingServer
) -> None:
    with two_tenants(tmp_path, embeddings) as both:
        address = tmp_path / "providers" / "file_search" / "workers.json"
        for _ in range(6):
            await asyncio.to_thread(both.attach, "attacker", "tea")
        async with worker(address) as first, worker(address) as second, worker(address) as third:
            assert (await job_of(first)).tenant == "attacker"
            assert (await job_of(second)).tenant == "attacker"
            assert (await third(messages.Claim(0.1))).value is None, "it is left for others"
            page = both.stage.served.server.app.metrics.render(None)[0].decode()
            assert 'antwort_queue_waiting{queue="ingestion"} 4.0' in page
            for _ in range(2):
                await asyncio.to_thread(both.attach, "other", "coffee")
            assert (await job_of(third)).tenant == "other"
            await first(messages.Fail("invalid_file", "It is damaged."))
            assert (await job_of(first)).tenant == "attacker", "both have one, and its turn was longer ago"
            await second(messages.Fail("invalid_file", "It is damaged."))
            assert (await job_of(second)).tenant == "other"


def test_a_small_file_is_searchable_before_a_large_one_of_another_tenant(
    tmp_path: Path, embeddings: EmbeddingServer
) -> None:
    large = "\n\n".join(f"Paragraph {number} tells of tea, and of little else." * 10 for number in range(3000))
    with two_tenants(tmp_path, embeddings) as both, both.stage.worker():
        many = [both.attach("attacker", large) for _ in range(3)]
        until(lambda: "antwort_ingestion_chunks_total 0.0" not in metrics(both))
        small = both.attach("other", "Coffee is roasted.")
        assert both.settled("other", small).status == "completed"
        assert {both.status("attacker", one) for one in many} == {"in_progress"}


def test_chunks_are_embedded_in_small_turns_where_there_are_several_tenants(
    tmp_path: Path, embeddings: EmbeddingServer
) -> None:
    with two_tenants(tmp_path, embeddings) as both, both.stage.worker():
        large = both.attach("other", "Coffee is roasted. " * 3000, chunks=LARGE_CHUNKS)
        small = both.attach("other", "Tea is a drink. " * 1000)
        assert {both.settled("other", one).status for one in (large, small)} == {"completed"}
        made = [one.body["input"] for one in embeddings.asked]
        assert max(sum(map(len, texts)) for texts in made) < 5000, "with what they stand below"
        assert max(len(texts) for texts in made if "Tea" in texts[0]) == 4


def metrics(both: TwoTenants) -> str:
    return both.stage.served.server.app.metrics.render(None)[0].decode()


@pytest.mark.parametrize("what", ["file", "store file", "store"])
def test_reading_a_file_stops_when_it_is_not_wanted_any_more(
    tmp_path: Path, embeddings: EmbeddingServer, what: str
) -> None:
    with two_tenants(tmp_path, embeddings, max_parsing_time="10m") as both, both.stage.worker():
        client, store = both.clients["attacker"], both.stores["attacker"]
        file_id = both.attach("attacker", SLOW, "a.html")
        until(lambda: bool(parsers()))
        if what == "file":
            on_loop(both.stage.served, both.stage.served.server.app.files.delete("attacker", file_id))
        elif what == "store file":
            client.vector_stores.files.delete(file_id, vector_store_id=store)
        else:
            client.vector_stores.delete(store)
        until(lambda: not parsers())
        small = both.attach("other", "Coffee is roasted.")
        assert both.settled("other", small).status == "completed"


def parsers() -> list[int]:
    """Return the processes below this one that read documents."""
    parents: dict[int, int] = {}
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parents[int(path.name)] = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            if b"antwort.documents.child\0" in (path / "cmdline").read_bytes():
                found.append(int(path.name))
    own = os.getpid()

    def is_below(pid: int) -> bool:
        while pid > 1 and pid != own:
            pid = parents.get(pid, 0)
        return pid == own

    return [pid for pid in found if is_below(pid)]


def test_a_file_with_too_many_chunks_has_failed_and_says_what_to_do(
    tmp_path: Path, embeddings: EmbeddingServer
) -> None:
    with two_tenants(tmp_path, embeddings, max_chunks=3) as both, both.stage.worker():
        failed = both.settled("other", both.attach("other", "Tea is a drink. " * 1000))
        assert (failed.status, failed.last_error.code) == ("failed", "invalid_file")
        assert "a file may have 3 (`max_chunks` of file search)" in failed.last_error.message
        assert "Part it" in failed.last_error.message
        assert not [one for one in embeddings.asked if "Tea is a drink" in str(one.body)], "nothing was embedded"


def test_a_file_that_takes_too_long_has_failed_and_says_so(tmp_path: Path, embeddings: EmbeddingServer) -> None:
    with two_tenants(tmp_path, embeddings, max_ingestion_time="1s") as both, both.stage.worker():
        failed = both.settled("other", both.attach("other", SLOW, "a.html"))
        assert (failed.status, failed.last_error.code) == ("failed", "invalid_file")
        assert "within 1 seconds (`max_ingestion_time` of file search)" in failed.last_error.message
        until(lambda: not parsers())


def test_only_so_many_files_of_a_tenant_wait(tmp_path: Path, embeddings: EmbeddingServer) -> None:
    with two_tenants(tmp_path, embeddings, max_waiting_files=2) as both:
        for _ in range(2):
            both.attach("attacker", "tea")
        with pytest.raises(RateLimitError) as refused:
            both.attach("attacker", "tea")
        assert refused.value.code == "queue_full"
        assert refused.value.response.headers["retry-after"] == "10"
        assert "2 files of this tenant wait" in refused.value.message
        assert both.status("other", both.attach("other", "coffee")) == "in_progress"


def test_of_files_for_which_there_is_no_room_none_is_attached(tmp_path: Path, embeddings: EmbeddingServer) -> None:
    with two_tenants(tmp_path, embeddings, max_waiting_files=2) as both:
        client, store = both.clients["other"], both.stores["other"]
        files = both.stage.served.server.app.files
        made = [
            on_loop(both.stage.served, files.create("other", "a.txt", "assistants", _pieces(b"tea"))).id
            for _ in range(3)
        ]
        with pytest.raises(RateLimitError):
            client.vector_stores.file_batches.create(store, file_ids=made)
        with pytest.raises(RateLimitError):
            client.vector_stores.create(file_ids=made)
        assert client.vector_stores.files.list(store).data == []
        assert [one.id for one in client.vector_stores.list()] == [store]
        assert client.vector_stores.file_batches.create(store, file_ids=made[:2]).file_counts.in_progress == 2


def test_a_search_for_which_too_many_wait_is_a_429(tmp_path: Path, embeddings: EmbeddingServer) -> None:
    with two_tenants(tmp_path, embeddings) as both:
        slots = both.stage.provider._searcher.slots

        async def fill() -> None:
            slots.queue.most_waiting = 0
            while slots.take("other"):
                pass

        on_loop(both.stage.served, fill())
        with pytest.raises(RateLimitError) as refused:
            both.clients["other"].vector_stores.search(both.stores["other"], query="tea")
        assert refused.value.code == "queue_full"
