"""What workers and the server say to each other: who is let in, who has which job, and what becomes of it."""

import asyncio
import contextlib
import socket
import stat
import threading
import zlib
from array import array
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from openai import APIStatusError, ConflictError
from tests.documents import samples
from tests.providers.file_search.ingestion.stage import IngestionStage, ingesting
from tests.providers.file_search.stage import PATIENCE, on_loop, until
from tests.support.embeddings import DIMENSIONS, Asked, EmbeddingServer, Reply
from typing_extensions import override

from antwort.extensions import VectorStoreUnavailable
from antwort.providers.file_search.ingestion import messages
from antwort.providers.file_search.ingestion.listener import WorkerListener
from antwort.providers.file_search.ingestion.messages import (
    Job,
    NewChunk,
    ServerAddress,
    ServerAnswer,
    connect,
    receive,
    send,
)
from antwort.providers.file_search.ingestion.queue import IngestionQueue
from antwort.providers.file_search.ingestion.worker import IngestionWorker

VECTOR = array("f", [0.5] * DIMENSIONS).tobytes()
CHUNK = messages.Write([NewChunk(0, "tea", [VECTOR])])
DONE = messages.Complete([(0, 3, 0, 0, 0)], [""])
Ask = Callable[[messages.Request], Awaitable[ServerAnswer]]


@pytest.fixture
def stage(tmp_path: Path, embeddings: EmbeddingServer) -> Iterator[IngestionStage]:
    with ingesting(tmp_path, {"embedding_url": embeddings.url, "embedding_retries": 0}) as stage:
        yield stage


@pytest.fixture
def address(tmp_path: Path) -> Path:
    return tmp_path / "providers" / "file_search" / "workers.json"


@contextlib.asynccontextmanager
async def worker(address: Path) -> AsyncIterator[Ask]:
    """Be a worker."""
    reader, writer = await connect(ServerAddress.read(address))

    async def ask(request: messages.Request) -> ServerAnswer:
        await send(writer, request)
        return msgspec.msgpack.decode(await receive(reader), type=ServerAnswer)

    try:
        yield ask
    finally:
        writer.close()
        await writer.wait_closed()


async def job_of(ask: Ask, wait: float = 10.0) -> Job:
    return msgspec.convert((await ask(messages.Claim(wait))).value, Job)


def mode_of(file: Path) -> int:
    return stat.S_IMODE(file.stat().st_mode)


def attached(stage: IngestionStage, text: str = "tea") -> tuple[str, str]:
    """Return a store, and a file that waits in it."""
    file_id = stage.upload(text)
    return stage.client.vector_stores.create(file_ids=[file_id]).id, file_id


def usage(stage: IngestionStage, store: str) -> int:
    """Return how much of a store is in the vector database."""
    its = stage.provider.attached
    collection = on_loop(stage.served, its._stores.get("default", store)).collection
    return on_loop(stage.served, its._backend.count(collection, tenant="default", vector_store_id=store)).bytes


async def test_only_whoever_reads_the_file_is_let_in(stage: IngestionStage, address: Path) -> None:
    assert mode_of(address) == 0o600
    with pytest.raises(ConnectionRefusedError, match="not the secret"):
        await connect(ServerAddress(ServerAddress.read(address).port, "a guess"))
    reader, writer = await asyncio.open_connection("127.0.0.1", ServerAddress.read(address).port)
    await send(writer, messages.Claim())
    assert msgspec.msgpack.decode(await receive(reader), type=ServerAnswer).error is not None
    assert await reader.read() == b""
    writer.close()


async def test_a_job_is_one_workers_until_it_leaves(stage: IngestionStage, address: Path) -> None:
    _, file_id = attached(stage, "tea leaves")
    async with worker(address) as second:
        async with worker(address) as first:
            job = await job_of(first)
            assert (job.file_id, job.size, job.overlap, job.dimensions) == (file_id, 200, 0, DIMENSIONS)
            assert (await first(messages.Read(0))).value == b"tea leaves"
            assert (await first(messages.Read(10))).value == b""
            assert (await second(messages.Claim(0))).value is None
            assert (await second(CHUNK)).lost, "it has no job to write for"
        assert (await job_of(second)).file_id == file_id


async def test_a_file_that_is_removed_meanwhile_leaves_nothing_behind(stage: IngestionStage, address: Path) -> None:
    store, file_id = attached(stage)
    async with worker(address) as ask:
        await job_of(ask)
        assert await ask(CHUNK) == ServerAnswer()
        assert usage(stage, store) == 3
        stage.client.vector_stores.files.delete(file_id, vector_store_id=store)
        assert usage(stage, store) == 0
        assert (await ask(CHUNK)).lost
        assert (await ask(messages.Complete([(0, 3, 0, 0, 0)], [""]))).lost
        assert usage(stage, store) == 0
        assert (await ask(messages.Claim(0))).value is None


async def test_a_file_that_is_attached_again_meanwhile_is_read_again(stage: IngestionStage, address: Path) -> None:
    store, file_id = attached(stage)
    async with worker(address) as ask:
        await job_of(ask)
        stage.client.vector_stores.files.create(store, file_id=file_id, attributes={"n": 2})
        assert (await ask(CHUNK)).lost
        await job_of(ask)
        assert await ask(CHUNK) == await ask(CHUNK) == ServerAnswer(), "what is written twice is there once"
        assert usage(stage, store) == 3
        assert await ask(messages.Complete([(0, 3, 0, 0, 0)], [""])) == ServerAnswer()
    done = stage.client.vector_stores.files.retrieve(file_id, vector_store_id=store)
    assert (done.status, done.attributes) == ("completed", {"n": 2})


async def test_a_file_that_is_attached_while_it_is_deleted_does_not_stay(stage: IngestionStage, address: Path) -> None:
    store, file_id = attached(stage)
    its, files = stage.provider.attached, stage.client.vector_stores.files
    found = on_loop(stage.served, its.get(on_loop(stage.served, its._stores.get("default", store)), file_id))
    on_loop(stage.served, stage.served.server.app.files.delete("default", file_id))
    on_loop(stage.served, its.store_files.put("default", store, found.value))
    on_loop(stage.served, its.queue.add("default", store, file_id))
    assert [file.id for file in files.list(store)] == [file_id]
    async with worker(address) as ask:
        assert (await ask(messages.Claim(0))).value is None
    assert files.list(store).data == []


async def test_what_another_server_attaches_while_a_job_ends_counts(
    stage: IngestionStage, address: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, file_id = attached(stage)
    files, queue = stage.provider.attached.store_files, stage.provider.attached.queue
    note = files.note

    async def interrupted(*what: Any) -> None:
        await note(*what)
        found = await files.get("default", store, file_id)
        assert found is not None
        await files.put("default", store, msgspec.structs.replace(found.value, attributes={"n": 2}))
        await queue.add("default", store, file_id)

    async with worker(address) as ask:
        await job_of(ask)
        await ask(CHUNK)
        monkeypatch.setattr(files, "note", interrupted)
        assert (await ask(messages.Complete([(0, 3, 0, 0, 0)], [""]))).lost
        monkeypatch.undo()
        await job_of(ask)
        await ask(CHUNK)
        assert await ask(messages.Complete([(0, 3, 0, 0, 0)], [""])) == ServerAnswer()
    done = stage.client.vector_stores.files.retrieve(file_id, vector_store_id=store)
    assert (done.status, done.attributes) == ("completed", {"n": 2})


async def test_what_another_process_of_the_server_has_had_read_does_not_wait_here_any_more(
    stage: IngestionStage, address: Path
) -> None:
    # Workers come to one process of a server; the others are asked for no jobs, and are given files all the same.
    own = stage.provider.attached.queue
    beside = IngestionQueue(own._records, own._now, most=10)
    done, waiting = attached(stage), attached(stage)
    for store, file_id in (done, waiting):
        on_loop(stage.served, beside.add("default", store, file_id))
    assert beside.waiting == 2
    async with worker(address) as ask:
        assert (await job_of(ask)).file_id == done[1]
        await ask(CHUNK)
        assert await ask(messages.Complete([(0, 3, 0, 0, 0)], [""])) == ServerAnswer()
    assert on_loop(stage.served, beside.depth()) == 1
    assert beside.waiting == 1, "the other one"
    stage.client.vector_stores.files.delete(waiting[1], vector_store_id=waiting[0])
    assert on_loop(stage.served, beside.depth()) == 0
    assert beside.waiting == 0


async def test_a_removal_that_failed_is_done_later_and_the_file_is_not_attached_meanwhile(
    stage: IngestionStage, address: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, file_id = attached(stage)
    async with worker(address) as ask:
        await job_of(ask)
        await ask(CHUNK)
    its, files = stage.provider.attached, stage.client.vector_stores.files

    async def away(*_: object, **__: object) -> None:
        raise VectorStoreUnavailable("The vector database cannot be reached.")

    monkeypatch.setattr(its._backend, "delete", away)
    with pytest.raises(APIStatusError) as refused:
        files.delete(file_id, vector_store_id=store)
    with pytest.raises(ConflictError):
        files.create(store, file_id=file_id)
    on_loop(stage.served, its.complete_removals())  # the database is still away
    assert (refused.value.status_code, files.list(store).data, usage(stage, store)) == (503, [], 3)
    monkeypatch.undo()
    on_loop(stage.served, its.complete_removals())
    assert usage(stage, store) == 0
    assert files.create(store, file_id=file_id).status == "in_progress"


def known(stage: IngestionStage, store: str) -> int:
    """Return how many bytes the record of a store says are in it."""
    return on_loop(stage.served, stage.provider.attached._stores.get("default", store)).known.bytes


async def index(ask: Ask) -> None:
    """Do the next job."""
    await job_of(ask)
    assert await ask(CHUNK) == ServerAnswer()
    assert await ask(DONE) == ServerAnswer()


async def test_a_file_counts_once_though_its_store_is_counted_while_it_is_written(
    stage: IngestionStage, address: Path
) -> None:
    store, _ = attached(stage)
    stores = stage.provider.attached._stores
    async with worker(address) as ask:
        await job_of(ask)
        await ask(CHUNK)
        record = on_loop(stage.served, stores.get("default", store))
        assert not on_loop(stage.served, stores.counts.recount([record]))
        assert await ask(DONE) == ServerAnswer()
    assert known(stage, store) == usage(stage, store) == 3


async def test_a_file_that_was_searchable_and_is_cancelled_counts_no_more(stage: IngestionStage, address: Path) -> None:
    store, first = attached(stage)
    second = stage.upload("tea")
    batches, files = stage.client.vector_stores.file_batches, stage.client.vector_stores.files
    async with worker(address) as ask:
        await index(ask)
        files.create(store, file_id=second)
        await index(ask)
        assert known(stage, store) == 6
        batch = batches.create(store, file_ids=[second])
        batches.cancel(batch.id, vector_store_id=store)
        assert known(stage, store) == usage(stage, store) == 3
        files.create(store, file_id=second)
        await index(ask)
        assert known(stage, store) == usage(stage, store) == 6
        batches.cancel(batches.create(store, file_ids=[second]).id, vector_store_id=store)
        files.delete(second, vector_store_id=store)
        assert known(stage, store) == usage(stage, store) == 3
    assert files.retrieve(first, vector_store_id=store).status == "completed"


async def test_a_file_that_could_not_be_cancelled_can_be_later_and_leaves_nothing(
    stage: IngestionStage, address: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, file_id = attached(stage)
    batches = stage.client.vector_stores.file_batches
    batch = batches.create(store, file_ids=[file_id])
    async with worker(address) as ask:
        await job_of(ask)
        await ask(CHUNK)

        async def away(*_: object, **__: object) -> None:
            raise VectorStoreUnavailable("The vector database cannot be reached.")

        monkeypatch.setattr(stage.provider.attached._backend, "delete", away)
        with pytest.raises(APIStatusError) as refused:
            batches.cancel(batch.id, vector_store_id=store)
        assert refused.value.status_code == 503
        monkeypatch.undo()
        assert batches.cancel(batch.id, vector_store_id=store).file_counts.cancelled == 1
        assert usage(stage, store) == 0
        assert (await ask(CHUNK)).lost


async def test_a_store_that_is_deleted_meanwhile_ends_the_work(stage: IngestionStage, address: Path) -> None:
    store, _ = attached(stage)
    async with worker(address) as ask:
        await job_of(ask)
        assert await ask(CHUNK) == ServerAnswer()
        stage.client.vector_stores.delete(store)
        assert (await ask(CHUNK)).lost
        assert (await ask(messages.Claim(0))).value is None
    assert stage.client.vector_stores.list().data == []


async def test_a_job_that_is_given_up_too_often_has_failed(stage: IngestionStage, address: Path) -> None:
    store, file_id = attached(stage)
    for _ in range(5):
        async with worker(address) as ask:
            await job_of(ask)
            await ask(CHUNK)
    files = stage.client.vector_stores.files
    async with asyncio.timeout(PATIENCE), worker(address) as ask:
        while (failed := files.retrieve(file_id, vector_store_id=store)).status == "in_progress":
            assert (await ask(messages.Claim(0))).value is None  # the server may not have seen yet that the last left
    assert failed.last_error is not None
    assert (failed.status, failed.last_error.code) == ("failed", "server_error")
    assert usage(stage, store) == 0


async def test_what_may_pass_is_tried_again_and_the_last_reason_is_told(stage: IngestionStage, address: Path) -> None:
    store, file_id = attached(stage)
    async with worker(address) as ask:
        for _ in range(5):
            await job_of(ask)
            await ask(messages.Release("The embedding service is down.", 0.0))
    failed: Any = stage.client.vector_stores.files.retrieve(file_id, vector_store_id=store)
    assert failed.last_error.message == "The embedding service is down."
    counted = await asyncio.to_thread(metric, stage, "antwort_ingestion_files_total")
    assert counted == 'antwort_ingestion_files_total{status="failed"} 1.0'


def metric(stage: IngestionStage, name: str) -> str:
    page = httpx.get(f"{stage.served.server.url}/metrics").text
    return next(line for line in page.splitlines() if line.startswith(f"{name}{{"))


async def test_nobody_waits_at_a_door_behind_which_nothing_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The port of a server that was killed may be another's by now."""
    unused: Any = None
    address, listener = tmp_path / "workers.json", WorkerListener(unused, tmp_path / "workers.json")
    monkeypatch.setattr(messages, "FIRST_SECONDS", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        left_behind = ServerAddress(silent.getsockname()[1], "secret")
        left_behind.write(address)
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(TimeoutError):
                await connect(left_behind)
            await listener.open()
        assert ServerAddress.read(address) != left_behind
        await listener.close()


async def test_a_worker_without_a_server_says_once_that_it_waits(
    address: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    unused: Any = None
    monkeypatch.setattr("antwort.providers.file_search.ingestion.worker._AGAIN", 0.01)
    with caplog.at_level("INFO", "antwort.providers.file_search.ingestion.worker"):
        await IngestionWorker(address, unused, unused, idle=0.1).run()
    (line,) = [record.message for record in caplog.records if "ingestion.worker" in record.name]
    assert "the server is not there, or has no work to give; waiting for it: " in line
    assert address.name in line


async def test_a_job_that_was_broken_off_goes_on_where_it_was(stage: IngestionStage, address: Path) -> None:
    store, file_id = attached(stage, "tea leaves")
    texts = [f"tea number {number}" for number in range(20)]
    checks = [zlib.crc32(text.encode()) for text in texts]
    chunks = [NewChunk(number, text, [VECTOR]) for number, text in enumerate(texts)]
    async with worker(address) as first:
        await job_of(first)
        assert (await first(messages.Cut(0, checks))).value == 0
        assert (await first(messages.Write(chunks[:18]))).error is None
    for others in (["other", *texts[1:]], texts[:10]):  # read otherwise since, or shorter
        async with worker(address) as second:
            await job_of(second)
            assert (await second(messages.Cut(0, [zlib.crc32(text.encode()) for text in others]))).value == 0
    async with worker(address) as last:
        await job_of(last)
        assert (await last(messages.Cut(0, checks))).value == 10, "of the last ones nobody knows whether they are whole"
        assert (await last(messages.Write(chunks[10:]))).error is None
        assert (await last(messages.Complete([(0, 0, 0, 0, 0)] * 20, [""]))).error is None
    file = await asyncio.to_thread(stage.client.vector_stores.files.retrieve, file_id, vector_store_id=store)
    assert (file.status, file.usage_bytes) == ("completed", sum(map(len, texts)))
    assert await asyncio.to_thread(usage, stage, store) == sum(map(len, texts))


async def test_an_attempt_with_other_sizes_that_broke_off_leaves_nothing(stage: IngestionStage, address: Path) -> None:
    store, file_id = attached(stage, "tea leaves")
    other: Any = {"type": "static", "static": {"max_chunk_size_tokens": 100, "chunk_overlap_tokens": 0}}

    def attach(**options: Any) -> None:
        stage.client.vector_stores.files.create(store, file_id=file_id, **options)

    async with worker(address) as ask:
        await job_of(ask)
        assert (await ask(CHUNK)).error is (await ask(DONE)).error is None
        await asyncio.to_thread(attach, chunking_strategy=other)
        await job_of(ask)
        assert (await ask(messages.Write([NewChunk(0, "tea leaves", [VECTOR])]))).error is None
        await asyncio.to_thread(attach, chunking_strategy=other)
        await asyncio.to_thread(attach)
        await job_of(ask)
        assert (await ask(CHUNK)).error is (await ask(DONE)).error is None
        assert await asyncio.to_thread(usage, stage, store) == len("tea")
        await asyncio.to_thread(attach)
        assert stage.client.vector_stores.retrieve(store).file_counts.in_progress == 1
        await job_of(ask)
        assert (await ask(CHUNK)).error is (await ask(DONE)).error is None
    assert await asyncio.to_thread(usage, stage, store) == len("tea")


async def test_a_file_that_is_read_shorter_than_before_leaves_nothing_of_before(
    stage: IngestionStage, address: Path
) -> None:
    store, file_id = attached(stage, "tea leaves")
    async with worker(address) as ask:
        for texts in (["tea", "leaves"], ["tea leaves"]):
            await job_of(ask)
            await ask(messages.Cut(0, [zlib.crc32(text.encode()) for text in texts]))
            await ask(messages.Write([NewChunk(number, text, [VECTOR]) for number, text in enumerate(texts)]))
            assert (await ask(messages.Complete([(0, 10, 0, 0, 0)] * len(texts), [""]))).error is None
            await asyncio.to_thread(stage.client.vector_stores.files.create, store, file_id=file_id)
        assert await asyncio.to_thread(usage, stage, store) == len("tea leaves")


async def test_how_far_a_file_is_can_be_asked(stage: IngestionStage, address: Path) -> None:
    store, file_id = attached(stage, "tea leaves")

    def details() -> Any:
        [listed] = stage.client.vector_stores.files.list(store).data
        file = stage.client.vector_stores.files.retrieve(file_id, vector_store_id=store)
        assert file == listed
        return (file.model_extra or {})["status_details"]

    waiting: dict[str, Any] = {"phase": "waiting", "pages": None, "chunks": None, "chunks_embedded": 0, "warnings": []}
    assert await asyncio.to_thread(details) == waiting
    async with worker(address) as first:
        await job_of(first)
        assert await asyncio.to_thread(details) == waiting | {"phase": "reading"}
        await first(messages.Cut(3, [zlib.crc32(b"tea"), 0]))
        begun = waiting | {"phase": "embedding", "pages": 3, "chunks": 2}
        assert await asyncio.to_thread(details) == begun
        await first(messages.Write(CHUNK.chunks, tokens=7))
        assert await asyncio.to_thread(details) == begun | {"chunks_embedded": 1}
        await first(DONE)
        assert await asyncio.to_thread(details) is None
    shown = (await asyncio.to_thread(httpx.get, f"{stage.served.server.url}/metrics")).text.splitlines()
    assert {f"antwort_ingestion_{what}" for what in ("pages_total 3.0", "chunks_total 1.0", "tokens_total 7.0")} <= {
        *shown
    }
    assert stage.client.vector_stores.files.retrieve(file_id, vector_store_id=store).status == "completed"


async def test_what_is_written_of_a_file_is_found_when_all_of_it_is_unless_the_store_wants_it_early(
    stage: IngestionStage, address: Path
) -> None:
    store, file_id = attached(stage, "tea leaves")
    stores = stage.client.vector_stores

    def found() -> list[str]:
        return [hit.file_id for hit in stores.search(store, query="tea")]

    def want(*, early: bool) -> None:
        stores.update(store, extra_body={"early_results": early})

    async with worker(address) as ask:
        await job_of(ask)
        await ask(CHUNK)
        assert await asyncio.to_thread(found) == []
        await asyncio.to_thread(want, early=True)
        assert await asyncio.to_thread(found) == [file_id]
        await asyncio.to_thread(want, early=False)
        assert await asyncio.to_thread(found) == []
    async with worker(address) as second:  # a part stays a part, whoever goes on with it
        await job_of(second)
        assert await asyncio.to_thread(found) == []
        await second(CHUNK)
        await second(DONE)
        assert await asyncio.to_thread(found) == [file_id]
        store = stores.create(file_ids=[file_id], extra_body={"early_results": True}).id
        await job_of(second)
        await second(CHUNK)
        assert await asyncio.to_thread(found) == [file_id]


async def test_other_files_are_found_while_very_much_of_a_large_one_is_written(
    stage: IngestionStage, address: Path, embeddings: EmbeddingServer
) -> None:
    store, file_id = attached(stage, "water")
    large = stage.upload("tea leaves")
    stores, near = stage.client.vector_stores, array("f", embeddings.vector("tea", DIMENSIONS)).tobytes()
    async with worker(address) as ask:
        await job_of(ask)
        await ask(messages.Write([NewChunk(0, "water", [VECTOR])]))
        await ask(DONE)
        await asyncio.to_thread(stores.files.create, store, file_id=large)
        await job_of(ask)
        await ask(messages.Write([NewChunk(number, f"tea {number}", [near]) for number in range(1001)]))
        assert [hit.file_id for hit in await asyncio.to_thread(stores.search, store, query="tea")] == [file_id]


async def test_a_file_that_is_given_up_while_it_is_written_is_no_longer_noted(
    stage: IngestionStage, address: Path
) -> None:
    stores = stage.client.vector_stores

    def noted(store: str) -> frozenset[str]:
        return on_loop(stage.served, stage.provider.attached._stores.get("default", store)).unfinished

    async with worker(address) as ask:
        for end in (
            lambda store, file_id: stores.files.delete(file_id, vector_store_id=store),
            lambda store, file_id: stores.file_batches.cancel(
                stores.file_batches.create(store, file_ids=[file_id]).id, vector_store_id=store
            ),
        ):
            store, file_id = attached(stage)
            await job_of(ask)
            await ask(CHUNK)
            assert await asyncio.to_thread(noted, store) == {file_id}
            await asyncio.to_thread(end, store, file_id)
            assert await asyncio.to_thread(noted, store) == frozenset()
        store, file_id = attached(stage)
        await job_of(ask)
        await ask(CHUNK)
        await ask(messages.Fail("invalid_file", "It is damaged."))
        assert await asyncio.to_thread(noted, store) == frozenset()


class Halting(EmbeddingServer):
    """Answers so many requests, and others when it may go on."""

    def __init__(self, most: int = 30) -> None:
        super().__init__()
        self.goes_on = threading.Event()
        self._most = most

    @override
    def reply(self, asked: Asked) -> Reply:
        if len(self.asked) > self._most:
            self.goes_on.wait(PATIENCE)
        return super().reply(asked)


def test_what_was_embedded_before_a_worker_ended_is_not_embedded_again(tmp_path: Path) -> None:
    text = "\n\n".join(f"Paragraph {number} tells of tea, and of little else." * 10 for number in range(100))
    with Halting() as service, ingesting(tmp_path, {"embedding_url": service.url, "embedding_retries": 0}) as stage:
        store, file_id = attached(stage, text)
        with stage.worker():
            until(lambda: usage(stage, store) > 20_000)
        service.goes_on.set()
        with stage.worker():
            assert stage.settled(store, file_id).status == "completed"
        embedded = [one for texts in service.texts() for one in texts if "Paragraph" in one]
        assert len(embedded) - len(set(embedded)) <= 24 + 16, "those under way, or about to be written"
        assert sum("Paragraph 0 tells" in one for one in embedded) == 1
        file = stage.client.vector_stores.files.retrieve(file_id, vector_store_id=store)
        assert usage(stage, store) == file.usage_bytes == len(text) + 2


def test_a_single_large_file_shows_how_far_it_is_long_before_its_end(tmp_path: Path) -> None:
    pages = [f"Page {number} tells of tea, and of how long it is steeped. " * 12 for number in range(1, 61)]
    with (
        Halting(4) as service,
        ingesting(tmp_path, {"embedding_url": service.url, "embedding_timeout": 120.0}) as stage,
    ):
        file_id = stage.upload(samples.pdf(*pages), "large.pdf")
        store = stage.client.vector_stores.create(file_ids=[file_id]).id

        def details() -> dict[str, Any]:
            file = stage.client.vector_stores.files.retrieve(file_id, vector_store_id=store)
            assert file.status == "in_progress"
            found: dict[str, Any] = (file.model_extra or {})["status_details"]
            return found

        with stage.worker():
            until(lambda: details()["chunks_embedded"] > 0)
            seen = details()
            assert (seen["phase"], seen["pages"]) == ("embedding", len(pages))
            assert 0 < seen["chunks_embedded"] < seen["chunks"]
            service.goes_on.set()
            assert stage.settled(store, file_id).status == "completed"
