"""The example pipeline: what it writes, what it replaces, and what it leaves alone."""

from pathlib import Path

import pytest
from tests.http.sdk import Served
from tests.providers.file_search.stage import KEYS, collections, pipeline, settings_for, staged
from tests.support.embeddings import DIMENSIONS, EmbeddingServer
from tests.support.qdrant import QdrantServer

SHARED = ("--collection", f"antwort_shared_{DIMENSIONS}")


def texts(stage: Served, store: str, key: str = "none") -> set[str]:
    """Return what a search finds in a store."""
    hits = stage.client(key).vector_stores.search(store, query="tea", max_num_results=50).data
    return {hit.content[0].text for hit in hits}


@pytest.mark.parametrize("more", [(), SHARED], ids=["its own collection", "a shared one"])
def test_a_file_that_is_shorter_or_empty_loses_its_old_chunks(
    tmp_path: Path, qdrant: QdrantServer, embeddings: EmbeddingServer, more: tuple[str, ...]
) -> None:
    settings = settings_for(qdrant, embeddings, shared_collection=bool(more))
    folder, words = tmp_path / "documents", "green tea is steeped for two minutes and then drunk. "
    with staged(tmp_path / "data", [], settings) as stage:
        store = stage.client().vector_stores.create(name="drinks").id

        def ingest(text: str) -> str:
            documents = {"tea.txt": text, "coffee.md": "black coffee"}
            return pipeline(folder, documents, store, qdrant, embeddings, "default", *more)

        assert ingest(words * 50) == "coffee.md: 1 chunks\ntea.txt: 3 chunks\n"
        assert len(texts(stage, store)) == 4
        assert ingest("white tea") == "coffee.md: 1 chunks\ntea.txt: 1 chunks\n"
        assert texts(stage, store) == {"white tea", "black coffee"}
        assert ingest("") == "coffee.md: 1 chunks\ntea.txt: 0 chunks\n"
        assert texts(stage, store) == {"black coffee"}
        assert stage.client().vector_stores.retrieve(store).file_counts.total == 1


def test_pipelines_of_two_tenants_share_a_collection(
    tmp_path: Path, qdrant: QdrantServer, embeddings: EmbeddingServer
) -> None:
    settings = settings_for(qdrant, embeddings, shared_collection=True)
    with staged(tmp_path / "data", [], settings, auth=KEYS) as stage:
        owners = {"alpha": "green tea", "beta": "black tea"}
        stores = {one: stage.client(f"key-of-{one}").vector_stores.create(name="drinks").id for one in owners}
        for tenant, text in owners.items():  # files of the same name
            pipeline(tmp_path / tenant, {"tea.txt": text}, stores[tenant], qdrant, embeddings, tenant, *SHARED)
        assert {one: texts(stage, stores[one], f"key-of-{one}") for one in owners} == {
            "alpha": {"green tea"},
            "beta": {"black tea"},
        }
        pipeline(tmp_path / "alpha", {"tea.txt": ""}, stores["alpha"], qdrant, embeddings, "alpha", *SHARED)
        assert texts(stage, stores["alpha"], "key-of-alpha") == set()
        assert texts(stage, stores["beta"], "key-of-beta") == {"black tea"}
    assert collections(qdrant) == {f"antwort_shared_{DIMENSIONS}"}
