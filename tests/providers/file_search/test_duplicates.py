"""A file may have the same text in many chunks: it is found once, and does not crowd out what else there is."""

from pathlib import Path
from typing import Any

import pytest
from tests.http.sdk import Served, create
from tests.providers.file_search.stage import search_item, searching, settings_for, staged, tool, write
from tests.support.embeddings import EmbeddingServer
from tests.support.qdrant import OwnQdrant, QdrantServer
from typing_extensions import override

from antwort.extensions import Hit, Query
from antwort.providers.file_search import FileSearch
from antwort.providers.file_search.settings import QdrantSettings
from antwort.types import JSON

HYBRID: Any = {"hybrid_search": {"embedding_weight": 1.0, "text_weight": 1.0}}
RESULTS: Any = ["file_search_call.results"]


def crowd(stage: Served, store: str, *, same: int, others: int) -> None:
    """Write many chunks of the same text, which fits best, and some that fit less."""
    alike: list[JSON] = [{"text": "green tea", "file_id": "same", "chunk_index": n} for n in range(same)]
    write(stage, store, *alike, *({"text": f"green tea, cup {n}", "file_id": f"other-{n}"} for n in range(others)))


@pytest.mark.parametrize("how", ["meaning", "words", "both"])
def test_the_same_text_many_times_leaves_room_for_others(
    tmp_path: Path, every_backend: JSON, embeddings: EmbeddingServer, how: str
) -> None:
    with staged(tmp_path, [], every_backend) as stage:
        client = stage.client()
        store = client.vector_stores.create(name="crowded").id
        crowd(stage, store, same=300, others=20)
        embeddings.broken = how == "words"
        more = {"ranking_options": HYBRID} if how == "both" else {}
        found = client.vector_stores.search(store, query="green tea", max_num_results=10, **more).data
        client.vector_stores.delete(store)
    texts = [one.content[0].text for one in found]
    assert len(set(texts)) == len(texts) == 10
    assert texts[0] == "green tea"


@pytest.mark.parametrize("ranking", [{}, {"ranking_options": HYBRID}])
def test_it_leaves_room_in_each_of_several_stores(
    tmp_path: Path, qdrant_server: QdrantServer, embeddings: EmbeddingServer, ranking: Any
) -> None:
    with staged(tmp_path, searching("green tea"), settings_for(qdrant_server, embeddings)) as stage:
        stores = [stage.client().vector_stores.create(name=name).id for name in ("first", "second")]
        for store in stores:
            crowd(stage, store, same=100, others=20)
        wish = tool(*stores, max_num_results=10, **ranking)
        response = create(stage, False, input="?", tools=[wish], include=RESULTS)
    texts = [one.text for one in search_item(response).results]
    assert len(set(texts)) == len(texts) == 10
    assert texts[0] == "green tea"


class Watched(OwnQdrant):
    """The real thing, which remembers how much it was asked for."""

    def __init__(self, settings: QdrantSettings) -> None:
        super().__init__(settings)
        self.limits: list[int] = []

    @override
    async def search(self, name: str, query: Query) -> list[Hit]:
        self.limits.append(query.limit)
        return await super().search(name, query)


@pytest.mark.parametrize(
    ("same", "others", "limits"),
    [(5, 20, [20]), (15, 0, [20]), (19, 1, [20, 80]), (60, 0, [20, 80]), (1100, 0, [20, 80, 320, 1000])],
)
def test_more_is_asked_for_only_if_there_may_be_more_and_not_for_ever(
    tmp_path: Path, qdrant_server: QdrantServer, embeddings: EmbeddingServer, same: int, others: int, limits: list[int]
) -> None:
    settings = FileSearch.from_settings(settings_for(qdrant_server, embeddings)).settings
    backend = Watched(settings.qdrant)
    with staged(tmp_path, [], {}, provider=FileSearch(settings, backend=backend)) as stage:
        store = stage.client().vector_stores.create(name="crowded").id
        for start in range(0, same, 1000):
            alike = range(start, min(same, start + 1000))
            write(stage, store, *({"text": "green tea", "file_id": "same", "chunk_index": n} for n in alike))
        if others:
            crowd(stage, store, same=0, others=others)
        found = stage.client().vector_stores.search(store, query="green tea", max_num_results=10).data
    assert backend.limits == limits
    assert len(found) == min(10, others + 1)
