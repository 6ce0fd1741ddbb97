"""Chunks longer than the embedding model reads: what stands at their end is found, and they are one chunk still."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.http.sdk import Served
from tests.providers.file_search.stage import outputs, searching, staged, tool
from tests.support.embeddings import Asked, EmbeddingServer, Reply, error
from typing_extensions import override

from antwort.providers.file_search.embedding.http import windows

WORDS = 100
"""Words that the model of the service reads."""
BEGINNING = " ".join(f"harvest{number % 7} festival" for number in range(220))
END = "radiator valve leaking"
LONG = f"{BEGINNING} {' '.join([END] * 12)}"


class Cutting(EmbeddingServer):
    """Embeds the first words of a text, and says nothing about the rest."""

    @override
    def vector(self, text: str, dimensions: int) -> list[float]:
        return super().vector(" ".join(text.split()[:WORDS]), dimensions)


class Refusing(EmbeddingServer):
    """Refuses texts of more words than it reads, as some services do."""

    status = 400

    @override
    def reply(self, asked: Asked) -> Reply:
        longest = max(len(text.split()) for text in asked.body["input"])
        if longest > WORDS:
            return error(
                self.status, f"This model's maximum context length is {WORDS} tokens, you asked for {longest}."
            )
        return super().reply(asked)


@pytest.fixture(params=["embedded", "pgvector", "qdrant"])
def database(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The settings of each vector database."""
    settings: dict[str, Any] = {"vector_backend": request.param}
    if request.param == "pgvector":
        settings["pgvector"] = {"url": request.getfixturevalue("postgres_url")}
    if request.param == "qdrant":
        settings["qdrant"] = {"url": request.getfixturevalue("qdrant_server").url}
    return settings


@pytest.fixture
def cutting() -> Iterator[Cutting]:
    with Cutting() as service:
        yield service


def write(stage: Served, store: str, *points: Any) -> dict[str, int]:
    """Write chunks; return how many windows they have."""
    filled = [{"file_id": "file-a", "filename": "a.txt", "chunk_index": n, **one} for n, one in enumerate(points)]
    answer = stage.request("POST", f"/vector_stores/{store}/points", json={"points": filled})
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    assert len(told["ids"]) == len(points)
    return {str(told["ids"].index(id_)): count for id_, count in told["windows"].items()}


def found(stage: Served, store: str, query: str, **options: Any) -> list[tuple[str, float]]:
    """Search; return the beginnings of texts, with their scores."""
    body = {"query": query, **options}
    answer = stage.request("POST", f"/vector_stores/{store}/search", json=body)
    assert answer.status_code == 200, answer.text
    return [(one["content"][0]["text"], one["score"]) for one in answer.json()["data"]]


@pytest.mark.parametrize("shared", [False, True], ids=["apart", "shared"])
def test_what_stands_at_the_end_of_a_long_chunk_is_found(
    tmp_path: Path, database: Any, cutting: Cutting, shared: bool
) -> None:
    settings = {
        **database,
        "embedding_url": cutting.url,
        "embedding_max_tokens": 150,
        "shared_collection": shared,
    }
    with staged(tmp_path, searching(END), settings) as stage:
        client = stage.client()
        store = client.vector_stores.create(name="tea").id
        short = [{"text": f"green tea number {number}"} for number in range(12)]
        assert write(stage, store, {"text": LONG, "attributes": {"year": 2024}}, *short) == {
            "0": pytest.approx(13, abs=8)
        }
        [best, *_] = hits = found(stage, store, END, max_num_results=13)
        assert best[0] == LONG
        assert best[1] > 0.2
        assert len(hits) == len({text for text, _ in hits}) == 13  # each chunk once, windows never
        year = {"type": "eq", "key": "year", "value": 2024}
        assert [text for text, _ in found(stage, store, END, filters=year)] == [LONG]
        assert found(stage, store, END, filters={**year, "type": "gt"}) == []
        both = {"hybrid_search": {"embedding_weight": 1, "text_weight": 1}}
        assert found(stage, store, END, ranking_options=both)[0][0] == LONG
        counted = client.vector_stores.retrieve(store)
        texts = [LONG, *(one["text"] for one in short)]
        assert (counted.usage_bytes, counted.file_counts.total) == (sum(map(len, texts)), 1)
        client.responses.create(input="?", tools=[tool(store)])
        assert outputs(stage)[0].count("a.txt (chunk ") == 13  # each chunk once here, too
        assert "] a.txt (chunk 0," in outputs(stage)[0]

        assert write(stage, store, {"text": "short now"}) == {}
        assert LONG not in [text for text, _ in found(stage, store, END)]
        assert write(stage, store, {"text": LONG}) != {}
        stage.request("DELETE", f"/vector_stores/{store}/points", params={"file_id": "file-a"})
        assert found(stage, store, END) == []
        assert client.vector_stores.retrieve(store).usage_bytes == 0


@pytest.mark.parametrize("status", [400, 413, 422, 500])
def test_a_service_that_refuses_long_texts_gets_shorter_ones(tmp_path: Path, status: int) -> None:
    with Refusing() as service:
        service.status = status
        settings = {"embedding_url": service.url, "embedding_retries": 0}
        with staged(tmp_path, [], settings) as stage:
            store = stage.client().vector_stores.create(name="tea").id
            told = write(stage, store, {"text": "green tea"}, {"text": LONG})
            assert list(told) == ["1"]
            assert found(stage, store, END)[0][0] == LONG


def test_short_texts_and_given_vectors_cost_nothing_more(tmp_path: Path, embeddings: EmbeddingServer) -> None:
    with staged(tmp_path, [], {"embedding_url": embeddings.url, "embedding_max_tokens": 150}) as stage:
        store = stage.client().vector_stores.create(name="tea").id
        before = len(embeddings.asked)
        assert write(stage, store, {"text": "green"}, {"text": "tea"}, {"text": LONG, "vector": [1.0] * 64}) == {}
        assert embeddings.texts()[before:] == [["green", "tea"]]


def test_the_model_in_the_process_finds_the_end_of_a_long_chunk(tmp_path: Path) -> None:
    text = " ".join(["The harvest festival starts on Sunday."] * 70)
    text += " A leaking radiator valve is replaced by turning off the water. Drain the radiator, unscrew it." * 3
    with staged(tmp_path, [], {}) as stage:
        store = stage.client().vector_stores.create(name="tea").id
        assert write(stage, store, {"text": text}, {"text": "Green tea is a drink."}).keys() == {"0"}
        (first, score), *_ = found(stage, store, "How do I repair a radiator valve?")
    assert first == text
    assert score > 0.4


UNIQUE = {
    "words": " ".join(f"word{number}" for number in range(600)),
    "one long word": "".join(f"{number:04d}" for number in range(800)),
    "signs": "".join(chr(0x4E00 + number) for number in range(1000)),
    "lines": "\n\n".join(f"{number}:" for number in range(900)),
}


@pytest.mark.parametrize("most", [16, 50, 300, 1000])
@pytest.mark.parametrize("kind", UNIQUE)
def test_windows_overlap_and_leave_nothing_out(kind: str, most: int) -> None:
    text = UNIQUE[kind]
    parts = windows(text, most)
    assert max(len(part.encode()) for part in parts) <= most
    end = 0
    for part in parts:
        place = text.find(part)
        assert 0 <= place <= end
        end = place + len(part)
    assert end == len(text)
    assert len(parts) <= 2 + 2 * len(text.encode()) // most


@pytest.mark.parametrize("text", [" " * 2000, "\ud800" * 400, "x" * 3000])
def test_any_text_is_parted(text: str) -> None:
    assert max(map(len, windows(text, 50))) <= 50


def test_a_text_that_fits_is_left_as_it_is() -> None:
    assert windows("green tea", 9) == ["green tea"]
    assert windows("", 9) == [""]


def test_the_answer_to_a_write_is_described(tmp_path: Path, embeddings: EmbeddingServer) -> None:
    with staged(tmp_path, [], {"embedding_url": embeddings.url}) as stage:
        described = httpx.get(f"{stage.server.url}/openapi.json").text
    assert '"windows"' in json.dumps(json.loads(described)["components"]["schemas"])
