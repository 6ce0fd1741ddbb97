"""A second ranking: when it is made, what it changes, and that a search does without it."""

import json
import logging
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.http.sdk import Served
from tests.providers.file_search.stage import staged, write
from tests.support.embeddings import EmbeddingServer

from antwort.providers.file_search.reranking import read_scores
from antwort.providers.file_search.settings import FileSearchSettings
from antwort.testing import ScriptServer

NEAR, RIGHT, OTHER = "tea", "tea leaves are dried in the shade of a roof for days", "coffee"
"""What is nearest to "tea leaves" by the vectors of the tests, what has all the words, and what has none."""


@pytest.fixture(scope="module")
def service() -> Iterator[ScriptServer]:
    with ScriptServer([]) as server:
        yield server


@pytest.fixture
def settings(embeddings: EmbeddingServer) -> dict[str, Any]:
    return {"embedding_url": embeddings.url, "embedding_retries": 0, "hybrid": False}


def found(stage: Served, store: str, **more: Any) -> list[tuple[str, float]]:
    answer = stage.request("POST", f"/vector_stores/{store}/search", json={"query": "tea leaves", **more})
    assert answer.status_code == 200, answer.text
    return [(one["content"][0]["text"], round(one["score"], 2)) for one in answer.json()["data"]]


def metric(stage: Served, name: str) -> list[str]:
    page = httpx.get(f"{stage.server.url}/metrics", timeout=60).text
    return [line for line in page.splitlines() if line.startswith(name)]


def test_results_are_ranked_again_unless_the_request_says_none(
    tmp_path: Path, settings: dict[str, Any], service: ScriptServer
) -> None:
    settings |= {"rerank_url": f"{service.url}/rerank", "rerank_model": "small", "rerank_max_tokens": 16}
    with staged(tmp_path, [], settings) as stage:
        store = stage.client().vector_stores.create().id
        write(stage, store, {"text": NEAR}, {"text": RIGHT}, {"text": OTHER})
        first = found(stage, store, ranking_options={"ranker": "none"})
        assert ([text for text, _ in first], service.reranked) == ([NEAR, RIGHT, OTHER], [])
        assert found(stage, store) == [(RIGHT, 1.0), (NEAR, 0.5), (OTHER, 0.0)]
        assert found(stage, store, ranking_options={"ranker": "auto"}, max_num_results=1) == [(RIGHT, 1.0)]
        assert found(stage, store, ranking_options={"score_threshold": 0.9}) == [(RIGHT, 1.0)]
        asked = service.reranked[0]
        assert (asked["model"], asked["query"], asked["top_n"]) == ("small", "tea leaves", 3)
        assert asked["documents"] == [NEAR, RIGHT[:48], OTHER]
        assert metric(stage, "antwort_filesearch_reranks_total") == [
            'antwort_filesearch_reranks_total{status="success"} 3.0'
        ]


def test_without_the_service_results_stay_as_they_are(
    tmp_path: Path, settings: dict[str, Any], service: ScriptServer, caplog: pytest.LogCaptureFixture
) -> None:
    settings |= {"rerank_url": f"{service.url}/nothing", "rerank_api_key": "sesame"}
    with staged(tmp_path, [], settings) as stage, caplog.at_level(logging.WARNING):
        store = stage.client().vector_stores.create().id
        write(stage, store, {"text": NEAR}, {"text": RIGHT}, {"text": OTHER})
        assert [text for text, _ in found(stage, store)] == [NEAR, RIGHT, OTHER]
        assert found(stage, store, ranking_options={"score_threshold": 0.6}) == [(NEAR, 0.71)]
        assert metric(stage, "antwort_filesearch_reranks_total") == [
            'antwort_filesearch_reranks_total{status="failed"} 2.0'
        ]
    assert "results are not ranked again: The rerank service at '127.0.0.1:" in caplog.text
    assert "answered with 404." in caplog.text
    assert "sesame" not in caplog.text


def answer(*results: tuple[int, float]) -> bytes:
    return json.dumps({"results": [{"index": index, "relevance_score": score} for index, score in results]}).encode()


def test_scores_are_in_the_order_of_the_texts_and_between_zero_and_one() -> None:
    assert read_scores(answer((2, 0.9), (0, 0.1)), 3) == [0.1, 0.0, 0.9]
    assert read_scores(answer((0, 0.0), (1, -1e9), (2, 1e9)), 3) == [0.5, pytest.approx(0.0), pytest.approx(1.0)]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"results": []}',
        b'{"results": [{"index": 0}]}',
        answer((2, 0.5)),
        answer((-1, 0.5)),
        answer((0, 0.5), (0, 0.6)),
        answer((0, math.nan)),
        answer((0, math.inf)),
    ],
)
def test_what_is_no_ranking_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"ranking|results|score"):
        read_scores(body, 2)


@pytest.mark.parametrize("key", ["rerank_model", "rerank_api_key", "rerank_max_tokens"])
def test_settings_of_a_service_that_is_not_asked_are_refused(key: str) -> None:
    with pytest.raises(ValueError, match=f"'{key}' has no effect without 'rerank_url'"):
        FileSearchSettings.model_validate({key: 16 if key.endswith("tokens") else "x"})
