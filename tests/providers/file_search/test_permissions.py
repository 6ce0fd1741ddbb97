"""What lies in the data folder is the server's alone, though its folder was made for everybody to look into."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.providers.file_search.stage import staged, write
from tests.support.embeddings import EmbeddingServer


@pytest.fixture(params=[0o022, 0o000], ids=["umask 022", "umask 000"])
def _usual_umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.mark.usefixtures("_usual_umask")
@pytest.mark.parametrize("old", [False, True], ids=["new", "of an older release"])
def test_nobody_else_can_read_what_is_kept(tmp_path: Path, embeddings: EmbeddingServer, old: bool) -> None:
    folder = tmp_path / "data"
    folder.mkdir(mode=0o755)
    if old:
        (folder / "providers" / "file_search").mkdir(mode=0o755, parents=True)
    audit = {"audit_file": folder / "audit.jsonl"}
    with staged(folder, [], {"embedding_url": embeddings.url}, observability=audit) as stage:
        made = stage.client().vector_stores.create(name="tea")
        write(stage, made.id, {"text": "All about tea."})
        kept = {path: path.stat().st_mode & 0o777 for path in folder.rglob("*")}
    assert [path for path in kept if path.name == "antwort.db-wal"]
    assert [path for path in kept if "vectors" in path.parts and path.is_file()]
    assert {path: oct(mode) for path, mode in kept.items() if mode & 0o077} == {}
    assert folder.stat().st_mode & 0o777 == 0o755  # that one is the operator's
