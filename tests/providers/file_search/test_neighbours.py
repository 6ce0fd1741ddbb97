"""Neighbouring chunks become one result."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.providers.file_search.ingestion.stage import IngestionStage, ingesting
from tests.providers.file_search.stage import tool
from tests.support.embeddings import EmbeddingServer

from antwort.extensions import Hit
from antwort.providers.file_search.ingestion.store_files import ChunkPosition
from antwort.providers.file_search.neighbours import with_neighbours_joined
from antwort.providers.file_search.search import RankedChunk
from antwort.providers.file_search.store_record import VectorStoreRecord
from antwort.storage.base import Kept
from antwort.testing import call, turn

STORE, OTHER = (VectorStoreRecord(Kept(f"vs_{name}", "default", 0, {})) for name in "ab")
TEXT = "".join(map(chr, range(0x4E00, 0x4E00 + 100)))
"""A text in which no character is there twice."""


def chunk(
    index: int, start: int, end: int, *, score: float = 0.5, file: str = "f", store: VectorStoreRecord = STORE
) -> RankedChunk:
    hit = Hit(f"{file}{index}", score, TEXT[start:end], file, f"{file}.txt", index, {})
    return RankedChunk(store, hit, ChunkPosition(start, end, 1 + start // 10, 1 + (end - 1) // 10, "Tea"))


def shown(found: list[RankedChunk]) -> list[tuple[str, str, float]]:
    return [(one.hit.file_id, one.hit.text, one.hit.score) for one in found]


def test_neighbours_have_one_text_without_repetition_and_the_best_rank_and_score() -> None:
    found = [chunk(4, 70, 80, score=0.9), chunk(1, 10, 20, score=0.8), chunk(0, 0, 10, score=0.7), chunk(2, 15, 30)]
    one, other = with_neighbours_joined(found)
    assert shown([one, other]) == [("f", TEXT[70:80], 0.9), ("f", TEXT[0:30], 0.8)]
    assert (other.hit.id, other.hit.index, other.last_index) == ("f1", 0, 2)
    assert other.position == ChunkPosition(0, 30, 1, 3, "Tea")
    assert (str(other.position), one.last_index) == ("Tea, pages 1-3", None)


def test_chunks_that_only_follow_each_other_are_one_result_if_they_do_so_in_rank() -> None:
    found = [chunk(1, 10, 20), chunk(7, 70, 80), chunk(2, 20, 30), chunk(0, 0, 10), chunk(3, 30, 40)]
    assert with_neighbours_joined(found) == found
    found = [chunk(2, 20, 30), chunk(1, 10, 20), chunk(7, 70, 80), chunk(0, 0, 10)]
    assert [one.hit.text for one in with_neighbours_joined(found)] == [TEXT[10:30], TEXT[70:80], TEXT[0:10]]


def test_only_chunks_of_the_same_file_and_store_are_neighbours() -> None:
    found = [chunk(0, 0, 10), chunk(1, 10, 20, file="g"), chunk(1, 10, 20, store=OTHER), chunk(2, 11, 20)]
    assert with_neighbours_joined(found) == found
    unknown = [RankedChunk(STORE, Hit(str(n), 0.5, "tea", "f", "f.txt", n, {})) for n in range(3)]
    assert with_neighbours_joined(unknown) == unknown


def test_a_chunk_within_others_adds_nothing() -> None:
    [one] = with_neighbours_joined([chunk(1, 5, 8), chunk(0, 0, 20), chunk(2, 18, 25)])
    assert one.hit.text == TEXT[0:25]


def test_the_header_of_a_table_is_there_once() -> None:
    first, second = chunk(0, 0, 10), chunk(1, 10, 20)
    found = [replace(one, hit=replace(one.hit, text=f"a | b\n{one.hit.text}")) for one in (first, second)]
    [joined] = with_neighbours_joined(found)
    assert joined.hit.text == f"a | b\n{TEXT[0:20]}"


@given(st.lists(st.tuples(st.integers(0, 90), st.integers(1, 10)), max_size=12))
def test_what_was_found_is_there_once_and_in_its_order(spans: list[tuple[int, int]]) -> None:
    found = [chunk(index, start, start + length) for index, (start, length) in enumerate(spans)]
    results = with_neighbours_joined(found)
    wanted = {position for start, length in spans for position in range(start, start + length)}
    texts = "".join(one.hit.text for one in results)
    assert sorted(texts) == sorted(TEXT[position] for position in wanted)
    assert all(one.hit.text in TEXT for one in results)


def words(stage: IngestionStage, store: str, **more: Any) -> list[str]:
    found = stage.client.vector_stores.search(store, query="tea", **more).data
    return [one.content[0].text for one in found]


@pytest.mark.parametrize("join", [True, False])
def test_a_passage_that_was_cut_is_found_whole(tmp_path: Path, embeddings: EmbeddingServer, join: bool) -> None:
    settings = {"embedding_url": embeddings.url, "ingestion_workers": 0, "join_neighbours": join}
    text = "\n\n".join(f"Tea number {number} is steeped for {number} minutes." * 4 for number in range(12))
    steps = [turn(calls=[call("file_search", query="tea")]), turn("Done [1].")]
    with ingesting(tmp_path, settings, steps) as stage, stage.worker():
        sizes: Any = {"type": "static", "static": {"max_chunk_size_tokens": 100, "chunk_overlap_tokens": 50}}
        file_id = stage.upload(text)
        store = stage.client.vector_stores.create(file_ids=[file_id], chunking_strategy=sizes).id
        assert stage.settled(store, file_id).status == "completed"
        found = words(stage, store, max_num_results=50)
        assert "".join(found).strip() == text if join else len(found) > 5
        assert len(words(stage, store, max_num_results=2)) <= 2
        stage.client.responses.create(model="any", input="?", tools=[tool(store, max_num_results=50)])
        read = str(stage.served.requests[-1].items)
        assert ("(chunks 0-" in read) is join
        assert ("(chunk 0, score" in read) is not join
