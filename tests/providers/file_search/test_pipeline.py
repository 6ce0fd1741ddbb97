"""The example pipeline: what it writes, what it replaces, and what it leaves alone."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.http.sdk import Served
from tests.providers.file_search.stage import INGEST, KEYS, collections, pipeline, settings_for, staged, until
from tests.support.embeddings import DIMENSIONS, EmbeddingServer, Service
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
        until(lambda: stage.client().vector_stores.retrieve(store).file_counts.total == 1)  # counted after a look


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


NOWHERE = "http://127.0.0.1:9"


def failed(*arguments: str | Path) -> tuple[int, str]:
    """Run the pipeline where it cannot work; return its exit code and its one line."""
    done = subprocess.run([sys.executable, INGEST, *arguments], check=False, capture_output=True, text=True)
    [line] = done.stderr.splitlines()
    assert line.startswith("ingest.py: ")
    return done.returncode, line.removeprefix("ingest.py: ")


def documents(folder: Path) -> Path:
    """Make a folder with two documents."""
    folder.mkdir()
    for name in ("coffee.md", "tea.txt"):
        (folder / name).write_text("a drink")
    return folder


def test_a_folder_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    to = ("--store", "vs_1", "--embeddings", NOWHERE)
    (tmp_path / "a.txt").write_text("a drink")
    assert failed(*to, tmp_path / "none") == (2, f"there is no folder {tmp_path / 'none'}")
    assert failed(*to, tmp_path / "a.txt") == (2, f"there is no folder {tmp_path / 'a.txt'}")


def test_a_folder_without_documents_is_one_line(tmp_path: Path) -> None:
    documents(tmp_path / "below")
    code, line = failed("--store", "vs_1", "--embeddings", NOWHERE, tmp_path)
    assert (code, line) == (1, f"there is no .txt or .md file in {tmp_path}; folders below it are not read")


def test_an_unknown_store_is_one_line(tmp_path: Path, qdrant: QdrantServer, embeddings: EmbeddingServer) -> None:
    servers = ("--qdrant", qdrant.url, "--embeddings", embeddings.url)
    code, line = failed("--store", "vs_none", *servers, documents(tmp_path / "documents"))
    assert code == 1
    assert line.startswith("coffee.md: --qdrant answered 404")
    assert "antwort_vs_none" in line
    assert line.endswith("is --store right, and does antwort have 'vector_backend: qdrant'? (0 of 2 files indexed)")


def test_a_wrong_key_is_one_line_without_the_key(tmp_path: Path) -> None:
    with Service(key="right") as service:
        given = ("--store", "vs_1", "--embeddings", service.url, "--embeddings-key", "sekret")
        code, line = failed(*given, documents(tmp_path / "documents"))
    assert code == 1
    assert line.startswith("coffee.md: --embeddings answered 401")
    assert line.endswith("; is --embeddings-key right? (0 of 2 files indexed)")
    assert "sekret" not in line


@pytest.mark.parametrize("address", [NOWHERE, "http://u:sekret@127.0.0.1:9", "127.0.0.1:9", "u:sekret@host", "nowhere"])
def test_a_service_that_is_not_there_is_one_line_without_a_password(tmp_path: Path, address: str) -> None:
    code, line = failed("--store", "vs_1", "--embeddings", address, documents(tmp_path / "documents"))
    assert code == 1
    assert line.startswith("coffee.md: --embeddings cannot be asked: ")
    assert "sekret" not in line


def test_a_service_that_answers_something_else_is_one_line(tmp_path: Path, qdrant: QdrantServer) -> None:
    code, line = failed("--store", "vs_1", "--embeddings", qdrant.url, documents(tmp_path / "documents"))
    assert code == 1
    assert line.startswith("coffee.md: --embeddings answered ")


def test_a_failure_says_how_many_files_came_before_it(
    tmp_path: Path, qdrant: QdrantServer, embeddings: EmbeddingServer
) -> None:
    with staged(tmp_path / "data", [], settings_for(qdrant, embeddings)) as stage:
        store = stage.client().vector_stores.create(name="drinks").id
        folder = documents(tmp_path / "documents")
        (folder / "tea.txt").unlink()
        (folder / "tea.txt").symlink_to(folder / "none")
        code, line = failed("--store", store, "--qdrant", qdrant.url, "--embeddings", embeddings.url, folder)
        found = texts(stage, store)
    assert (code, line) == (1, "tea.txt: No such file or directory (1 of 2 files indexed)")
    assert found == {"a drink"}
