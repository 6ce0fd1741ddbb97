"""A vector database that is away while files are made searchable: they wait for it, however long."""

from array import array
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.providers.file_search.ingestion.stage import IngestionStage, ingesting
from tests.providers.file_search.ingestion.test_listener import Ask, job_of, worker
from tests.providers.file_search.stage import mended, settings_for
from tests.support.embeddings import DIMENSIONS, EmbeddingServer
from tests.support.line import Line

from antwort.providers.file_search.ingestion import jobs, messages
from antwort.providers.file_search.ingestion.messages import NewChunk
from antwort.providers.file_search.ingestion.queue import MOST_ATTEMPTS

CHUNK = messages.Write([NewChunk(0, "tea", [array("f", [0.5] * DIMENSIONS).tobytes()])])
COMPLETE = messages.Complete([(0, 3, 0, 0, 0)], [""])


@pytest.fixture
def stage(tmp_path: Path, qdrant_line: Line, embeddings: EmbeddingServer) -> Iterator[IngestionStage]:
    with ingesting(tmp_path, settings_for(qdrant_line, embeddings)) as stage:
        yield stage


@pytest.fixture
def address(tmp_path: Path) -> Path:
    return tmp_path / "providers" / "file_search" / "workers.json"


def attached_while_away(stage: IngestionStage, qdrant_line: Line) -> tuple[str, str]:
    """Attach a file to a store whose vector database has gone."""
    store = stage.client.vector_stores.create(name="tea").id
    qdrant_line.cut()
    file_id = stage.upload("tea")
    stage.client.vector_stores.files.create(store, file_id=file_id)
    return store, file_id


async def indexed(ask: Ask) -> None:
    """Make the file that is next searchable."""
    await job_of(ask)
    for request in (CHUNK, COMPLETE):
        assert (await ask(request)).error is None


async def test_a_file_waits_for_a_vector_database_that_is_away_for_longer_than_it_is_tried(
    stage: IngestionStage, address: Path, qdrant_line: Line
) -> None:
    store, file_id = attached_while_away(stage, qdrant_line)
    async with worker(address) as ask:
        for _ in range(MOST_ATTEMPTS + 1):
            await job_of(ask)
            refused = (await ask(CHUNK)).error
            assert refused == "The vector database cannot be reached."
            assert (await ask(messages.Release(refused, 0.0))).error is None
        mended(qdrant_line, stage.served)
        await indexed(ask)
    assert stage.settled(store, file_id).status == "completed"


async def test_a_file_is_written_into_a_store_that_was_created_while_the_vector_database_was_away(
    stage: IngestionStage, address: Path, qdrant_line: Line
) -> None:
    stage.client.vector_stores.create(name="before")  # which tells how long vectors are
    qdrant_line.cut()
    file_id = stage.upload("tea")
    during = stage.client.vector_stores.create(name="during", file_ids=[file_id]).id
    mended(qdrant_line, stage.served)
    async with worker(address) as ask:
        await indexed(ask)
    assert stage.settled(during, file_id).status == "completed"
    assert stage.client.vector_stores.retrieve(during).status == "completed"


async def test_a_file_that_cannot_be_read_is_told_why_when_the_vector_database_is_back(
    stage: IngestionStage, address: Path, qdrant_line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "_AWAY", 0.0)
    store, file_id = attached_while_away(stage, qdrant_line)
    async with worker(address) as ask:
        for _ in range(MOST_ATTEMPTS + 1):
            await job_of(ask)
            assert (await ask(messages.Fail("invalid_file", "It is empty."))).error is None
        mended(qdrant_line, stage.served)
        await job_of(ask)
        await ask(messages.Fail("invalid_file", "It is empty."))
    failed = stage.settled(store, file_id)
    assert failed.last_error is not None
    assert (failed.status, failed.last_error.message) == ("failed", "It is empty.")
