"""`antwort ingest`: a folder and a vector store are kept alike."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.documents import samples
from tests.providers.file_search.ingestion.stage import IngestionStage, ingesting
from tests.support.embeddings import EmbeddingServer

from antwort.cli.folder_upload import LocalFile, RefusedFile, ServerFiles, found_files
from antwort.cli.main import root
from antwort.cli.output import Misuse

Ingest = Callable[..., Result]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[IngestionStage]:
    with EmbeddingServer() as embeddings:
        settings = {"embedding_url": embeddings.url, "embedding_retries": 0}
        both = {"file_search": {"enabled": True, "settings": settings}, "files": {"enabled": True}}
        with ingesting(tmp_path / "data", settings, providers=both) as stage, stage.worker():
            yield stage


@pytest.fixture
def ingest(stage: IngestionStage) -> Ingest:
    def run(*words: str | Path) -> Result:
        where = ["--store", "docs", "--url", stage.served.server.url]
        return CliRunner().invoke(root, ["ingest", *map(str, words), *where])

    return run


def names(stage: IngestionStage) -> dict[str, Any]:
    """Return what is in the store, by path."""
    (store,) = stage.client.vector_stores.list()
    return {str((file.attributes or {})["path"]): file.id for file in stage.client.vector_stores.files.list(store.id)}


def test_a_folder_is_brought_in_kept_alike_and_mirrored(tmp_path: Path, stage: IngestionStage, ingest: Ingest) -> None:
    folder = tmp_path / "docs"
    (folder / "deep").mkdir(parents=True)
    (folder / ".hidden").write_text("nobody reads it")
    (folder / "a.md").write_text("# Tea\n\nTea is hot.")
    (folder / "deep" / "b.txt").write_text("Coffee is strong.")
    first = ingest(folder, "--json")
    assert first.exit_code == 0, first.output
    assert json.loads(first.stdout)["counts"] == {"completed": 2}
    before = names(stage)
    assert set(before) == {"a.md", "deep/b.txt"}
    again = ingest(folder)
    assert (again.exit_code, again.stdout) == (0, "2 unchanged\n")
    assert names(stage) == before
    (folder / "a.md").write_text("# Tea\n\nTea is cold by now.")
    (folder / "deep" / "b.txt").unlink()
    assert ingest(folder).stdout == "1 completed\n"
    assert set(names(stage)) == {"a.md", "deep/b.txt"}
    assert names(stage)["a.md"] != before["a.md"]
    assert ingest(folder, "--mirror").stdout == "1 unchanged, 1 removed\n"
    assert [file.id for file in stage.client.files.list()] == [names(stage)["a.md"]]


def test_a_file_that_cannot_be_read_is_told_and_the_others_are_there(
    tmp_path: Path, stage: IngestionStage, ingest: Ingest
) -> None:
    (tmp_path / "bad.pdf").write_bytes(samples.pdf("x", encrypted=True))
    (tmp_path / "good.txt").write_text("Good words.")
    result = ingest(tmp_path / "*.pdf", tmp_path / "good.txt")
    assert (result.exit_code, result.stdout) == (1, "1 completed, 1 failed\n")
    assert "bad.pdf: It is encrypted, and needs a password." in result.stderr
    again = ingest(tmp_path / "*.pdf", tmp_path / "good.txt")
    assert (again.exit_code, again.stdout) == (1, "1 unchanged, 1 failed\n")
    assert len(stage.client.files.list().data) == 2, "a file that fails each time is there once"
    (tmp_path / "good.txt").write_bytes(samples.pdf("x", encrypted=True))
    assert ingest(tmp_path / "good.txt").stdout == "1 failed\n"
    (store,) = stage.client.vector_stores.list()
    assert (store.file_counts.completed, store.file_counts.failed) == (1, 2), "the version that can be found stays"


def test_what_is_not_read_of_a_file_is_told_each_time(tmp_path: Path, stage: IngestionStage, ingest: Ingest) -> None:
    (tmp_path / "a.eml").write_text(
        'Subject: s\nContent-Type: multipart/mixed; boundary="x"\n\n--x\nContent-Type: text/plain\n\nWords.\n--x\n'
        'Content-Disposition: attachment; filename="b.txt"\n\nMore.\n--x--\n'
    )
    for outcome in ("completed", "unchanged"):
        result = ingest(tmp_path / "a.eml")
        assert (result.exit_code, result.stdout) == (0, f"1 {outcome}\n")
        assert "\na.eml: warning: What is attached to it was not read; " in f"\n{result.stderr}"
    [report] = json.loads(ingest(tmp_path / "a.eml", "--json").stdout)["files"]
    assert report["warnings"][0].startswith("What is attached ")


def test_a_file_that_is_not_taken_or_cannot_be_opened_leaves_the_others_alone(
    tmp_path: Path, stage: IngestionStage, ingest: Ingest, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "docs").mkdir()
    for name in ("closed.txt", "good.txt", "refused.txt"):
        (tmp_path / "docs" / name).write_text(f"Words of {name}.")
    opened = Path.open

    def open_unless_closed(path: Path, *options: Any, **more: Any) -> Any:
        if path.name == "closed.txt":
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, *options, **more)

    monkeypatch.setattr(Path, "open", open_unless_closed)
    bring = ServerFiles.bring

    async def bring_unless_refused(server: ServerFiles, store_id: str, file: LocalFile, sha256: str) -> str:
        if file.name == "refused.txt":
            raise RefusedFile("The file is larger than 512 MiB.")
        return await bring(server, store_id, file, sha256)

    monkeypatch.setattr(ServerFiles, "bring", bring_unless_refused)
    result = ingest(tmp_path / "docs")
    assert (result.exit_code, result.stdout) == (1, "1 completed, 2 failed\n")
    assert "closed.txt: It cannot be read: Permission denied." in result.stderr
    assert "refused.txt: The file is larger than 512 MiB." in result.stderr
    assert set(names(stage)) == {"good.txt"}


def test_a_file_has_one_name_however_it_is_named(tmp_path: Path) -> None:
    (tmp_path / "docs" / "deep").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "a.md").write_text("y")
    (tmp_path / "docs" / "a.md").write_text("x")
    (tmp_path / "docs" / "deep" / "b.md").write_text("x")
    whole = found_files([str(tmp_path / "docs")])
    assert [file.name for file in whole] == ["a.md", "deep/b.md"]
    assert found_files([str(tmp_path / "docs" / "**" / "*.md")]) == whole
    assert found_files([str(tmp_path / "docs" / "*.md"), str(tmp_path / "docs" / "a.md")]) == whole[:1]
    with pytest.raises(Misuse, match="no file matches"):
        found_files([str(tmp_path / "docs" / "*.docx")])
    with pytest.raises(Misuse, match="name the folder above both, or give each a store of its own"):
        found_files([str(tmp_path / "docs"), str(tmp_path / "other")])


def test_what_is_not_there_is_one_line(tmp_path: Path) -> None:
    missing = CliRunner().invoke(root, ["ingest", str(tmp_path / "nothing"), "--store", "docs"])
    assert (missing.exit_code, missing.stderr.count("\n")) == (2, 1)
    assert "there is no file or folder" in missing.stderr
    (tmp_path / "a.txt").write_text("x")
    away = CliRunner().invoke(root, ["ingest", str(tmp_path), "--store", "docs", "--url", "http://127.0.0.1:9"])
    assert away.exit_code == 1
    assert "no answer from http://127.0.0.1:9/v1: connection refused; " in away.stderr
    assert "start the server ('antwort serve'), or say where it is with --url" in away.stderr
    bare = CliRunner().invoke(root, ["ingest", str(tmp_path), "--store", "docs", "--url", "localhost:9"])
    assert (bare.exit_code, bare.stderr) == (2, "antwort: --url must begin with http:// or https://\n")
