"""Files of vector stores through the SDK: attached, read by a worker, searched, changed, removed."""

import logging
from pathlib import Path
from typing import Any

import pytest
from openai import BadRequestError, NotFoundError
from tests.documents import samples
from tests.providers.file_search.ingestion.stage import IngestionStage, ingesting
from tests.providers.file_search.stage import on_loop

from antwort.testing import call, turn

GUIDE = "# Guide\n\nTea is made with hot water.\n\n# Coffee\n\nCoffee needs a filter and patience.\n"


def found(stage: IngestionStage, store_id: str, query: str, **options: Any) -> list[tuple[str, str]]:
    results = stage.client.vector_stores.search(store_id, query=query, **options)
    return [(hit.file_id, hit.content[0].text) for hit in results]


def test_a_file_becomes_searchable(tmp_path: Path, settings: dict[str, Any]) -> None:
    with ingesting(tmp_path, settings) as stage, stage.worker():
        file_id = stage.upload(GUIDE, "guide.md")
        store = stage.client.vector_stores.create(name="docs")
        made = stage.client.vector_stores.files.create(
            store.id, file_id=file_id, attributes={"kind": "guide", "pages": 2}
        )
        assert (made.status, made.usage_bytes, made.vector_store_id) == ("in_progress", 0, store.id)
        done = stage.settled(store.id, file_id)
        assert (done.status, done.last_error) == ("completed", None)
        assert done.usage_bytes == len(GUIDE.replace("#", "").replace("\n\n ", "\n\n").strip().encode()) + 2
        ((hit_id, text),) = found(stage, store.id, "hot water for tea")
        assert hit_id == file_id
        assert "Tea is made with hot water." in text
        assert not found(stage, store.id, "tea", filters={"type": "eq", "key": "kind", "value": "other"})
        shown = stage.client.vector_stores.retrieve(store.id)
        assert (shown.status, shown.file_counts.completed, shown.file_counts.total) == ("completed", 1, 1)
        assert shown.usage_bytes == done.usage_bytes


@pytest.fixture
def settings(embeddings: Any) -> dict[str, Any]:
    return {"embedding_url": embeddings.url, "embedding_retries": 0}


def test_a_file_that_cannot_be_read_fails_with_a_reason_and_the_next_is_read(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    with ingesting(tmp_path, settings) as stage, stage.worker():
        bad, good = stage.upload(samples.pdf("x", encrypted=True), "a.pdf"), stage.upload("good words", "b.txt")
        odd = stage.upload(b"\x89PNG\r\n\x1a\n" + bytes(50), "c.png")
        store = stage.client.vector_stores.create(file_ids=[bad, odd, good])
        assert (store.status, store.file_counts.in_progress) == ("in_progress", 3)
        states = [stage.settled(store.id, file_id) for file_id in (bad, odd, good)]
        assert [state.status for state in states] == ["failed", "failed", "completed"]
        errors = [state.last_error for state in states[:2] if state.last_error is not None]
        assert [error.code for error in errors] == ["invalid_file", "unsupported_file"]
        assert errors[0].message == "It is encrypted, and needs a password."
        counts = stage.client.vector_stores.retrieve(store.id).file_counts
        assert (counts.completed, counts.failed, counts.in_progress, counts.total) == (1, 2, 0, 3)
        listed = stage.client.vector_stores.files.list(store.id, filter="failed").data
        assert {file.id for file in listed} == {bad, odd}
        assert [file.id for file in stage.client.vector_stores.files.list(store.id, filter="completed")] == [good]


def test_what_is_not_read_of_a_file_is_told_with_its_status(
    tmp_path: Path, settings: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    pages = [f"Page {number} says this." for number in range(1, 6)]
    without = settings | {"ocr": "off"}
    with ingesting(tmp_path, without) as stage, stage.worker(), caplog.at_level(logging.WARNING):
        whole = stage.upload(samples.pdf(*pages), "whole.pdf")
        part = stage.upload(samples.scanned(samples.pdf(*pages), 2, 4, 5), "part.pdf")
        store = stage.client.vector_stores.create(file_ids=[whole, part])
        done = [stage.settled(store.id, file_id) for file_id in (whole, part)]
        assert [(file.status, file.last_error) for file in done] == [("completed", None)] * 2
        assert [(file.model_extra or {})["status_details"] is None for file in done] == [True, False]
        details = (done[1].model_extra or {})["status_details"]
        [warning] = details.pop("warnings")
        assert details == {"phase": "done", "pages": 3, "chunks": 1, "chunks_embedded": 1}
        assert warning.startswith("The pictures that fill pages 2 and 4-5 were not read. ")
        assert [record.getMessage() for record in caplog.records] == [f"'part.pdf': {warning}"]


def test_the_language_of_a_file_is_told_and_filtered_by(tmp_path: Path, settings: dict[str, Any]) -> None:
    german = "Der Vertrag kann von beiden Seiten mit einer Frist von drei Monaten schriftlich gekündigt werden."
    with ingesting(tmp_path, settings) as stage, stage.worker():
        store = stage.client.vector_stores.create()
        files = [stage.upload(text, name) for text, name in ((german, "a.txt"), (german, "b.txt"), ("KX-1", "c.txt"))]
        given: list[dict[str, str | float | bool]] = [{"kind": "lease"}, {"language": "nl"}, {}]
        for file_id, attributes in zip(files, given, strict=True):
            stage.client.vector_stores.files.create(store.id, file_id=file_id, attributes=attributes)
        done = [stage.settled(store.id, file_id) for file_id in files]
        assert [(one.model_extra or {})["language"] for one in done] == ["de", "de", None]
        assert [one.attributes for one in done] == given

        def found_in(language: str) -> list[tuple[str, object]]:
            wanted: Any = {"type": "eq", "key": "language", "value": language}
            results = stage.client.vector_stores.search(store.id, query="Kündigung", filters=wanted)
            return [(hit.file_id, hit.attributes) for hit in results]

        assert found_in("de") == [(files[0], {"language": "de", "kind": "lease"})]
        assert found_in("nl") == [(files[1], {"language": "nl"})]  # whoever says it is believed
        for file_id in files[:2]:
            stage.client.vector_stores.files.update(file_id, vector_store_id=store.id, attributes={"kind": "other"})
        assert [file_id for file_id, _ in sorted(found_in("de"))] == sorted(files[:2])


def test_the_text_of_pictures_is_found(tmp_path: Path, settings: dict[str, Any]) -> None:
    pages = ["Green tea is steeped for two minutes.", "Oolong is steeped for three minutes."]
    with ingesting(tmp_path, settings) as stage, stage.worker():
        part = stage.upload(samples.scanned(samples.pdf(*pages, height=142), 2), "part.pdf")
        store = stage.client.vector_stores.create(file_ids=[part])
        done = stage.settled(store.id, part)
        assert (done.status, (done.model_extra or {})["status_details"]) == ("completed", None)
        [(_, text)] = found(stage, store.id, "Oolong")
        assert text.split("\n\n")[:2] == pages


def test_attributes_change_and_the_content_is_what_was_read(tmp_path: Path, settings: dict[str, Any]) -> None:
    text = "\n\n".join(f"Paragraph {number} is about {'word ' * 60}" for number in range(20))
    with ingesting(tmp_path, settings) as stage, stage.worker():
        file_id = stage.upload(text)
        store = stage.client.vector_stores.create()
        strategy: Any = {"type": "static", "static": {"max_chunk_size_tokens": 200, "chunk_overlap_tokens": 100}}
        stage.client.vector_stores.files.create(store.id, file_id=file_id, chunking_strategy=strategy)
        done = stage.settled(store.id, file_id)
        assert done.chunking_strategy is not None
        assert done.chunking_strategy.to_dict() == strategy
        (content,) = stage.client.vector_stores.files.content(file_id, vector_store_id=store.id)
        assert content.text == text
        before = found(stage, store.id, "paragraph", max_num_results=50)
        stage.client.vector_stores.files.update(file_id, vector_store_id=store.id, attributes={"lang": "en"})
        assert stage.settled(store.id, file_id).attributes == {"lang": "en"}
        wanted: Any = {"type": "eq", "key": "lang", "value": "en"}
        after = found(stage, store.id, "paragraph", max_num_results=50, filters=wanted)
        assert sorted(after) == sorted(before)


def test_new_attributes_leave_a_file_as_it_is_and_filters_see_them_at_once(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    with ingesting(tmp_path, settings) as stage:
        good, bad = stage.upload("Green tea."), stage.upload(samples.pdf("x", encrypted=True), "bad.pdf")
        with stage.worker():
            store = stage.client.vector_stores.create(file_ids=[good, bad])
            states = [stage.settled(store.id, file_id).status for file_id in (good, bad)]
        for file_id, state in zip((good, bad), states, strict=True):  # and there is no worker any more
            changed = stage.client.vector_stores.files.update(
                file_id, vector_store_id=store.id, attributes={"lang": "en"}
            )
            assert (changed.status, changed.attributes) == (state, {"lang": "en"})
            kept = stage.client.vector_stores.files.retrieve(file_id, vector_store_id=store.id)
            assert (kept.status, kept.attributes) == (state, {"lang": "en"})
        assert states == ["completed", "failed"]
        assert stage.client.vector_stores.retrieve(store.id).file_counts.in_progress == 0
        for lang, texts in (("en", [(good, "Green tea.\n\n")]), ("de", [])):
            wanted: Any = {"type": "eq", "key": "lang", "value": lang}
            assert found(stage, store.id, "tea", filters=wanted) == texts


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.txt", "Tea.\n\n\n\n  Coffee.  \n"),
        ("a.txt", "Tea."),
        ("a.md", "# Tea\n\n* green\n* black\n\n\n"),
        ("a.py", "def tea():\n\n\n    return 3\n"),
        ("a.csv", "tea,3\r\ncoffee,4\r\n"),
        ("a.json", '{"tea": [1,\n 2]}\n'),
    ],
)
def test_the_content_of_a_text_is_what_was_uploaded(
    tmp_path: Path, settings: dict[str, Any], name: str, text: str
) -> None:
    with ingesting(tmp_path, settings) as stage, stage.worker():
        file_id = stage.upload(text, name)
        store = stage.client.vector_stores.create(file_ids=[file_id])
        assert stage.settled(store.id, file_id).status == "completed"
        (content,) = stage.client.vector_stores.files.content(file_id, vector_store_id=store.id)
    assert content.text == text


def test_the_content_of_a_document_is_what_was_read_out_of_it_without_line_ends_at_its_end(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    with ingesting(tmp_path, settings) as stage, stage.worker():
        file_id = stage.upload("<html><body><h1>Tea</h1><p>It is <b>hot</b>.</p></body></html>", "a.html")
        store = stage.client.vector_stores.create(file_ids=[file_id])
        assert stage.settled(store.id, file_id).status == "completed"
        (content,) = stage.client.vector_stores.files.content(file_id, vector_store_id=store.id)
    assert content.text == "# Tea\n\nIt is hot."


def test_a_file_attached_again_is_cut_anew_and_leaves_nothing_of_before(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    settings = {**settings, "join_neighbours": False}  # each result is a chunk
    with ingesting(tmp_path, settings) as stage, stage.worker():
        file_id = stage.upload(" ".join(f"Some words, number {number}." for number in range(300)))
        store = stage.client.vector_stores.create()
        strategy: Any = {"type": "static", "static": {"max_chunk_size_tokens": 100, "chunk_overlap_tokens": 0}}
        auto: Any = {"type": "auto"}
        sizes = []
        for chunking in (strategy, auto, strategy):
            stage.client.vector_stores.files.create(store.id, file_id=file_id, chunking_strategy=chunking)
            assert stage.settled(store.id, file_id).status == "completed"
            sizes.append(len(found(stage, store.id, "words", max_num_results=50)))
        assert sizes[0] == sizes[2] > sizes[1]


def test_a_removed_file_is_found_no_more(tmp_path: Path, settings: dict[str, Any]) -> None:
    with ingesting(tmp_path, settings) as stage, stage.worker():
        kept, gone, deleted = (stage.upload(f"tea number {number}") for number in range(3))
        store = stage.client.vector_stores.create(file_ids=[kept, gone, deleted])
        for file_id in (kept, gone, deleted):
            stage.settled(store.id, file_id)
        answer = stage.client.vector_stores.files.delete(gone, vector_store_id=store.id)
        assert (answer.id, answer.deleted) == (gone, True)
        on_loop(stage.served, stage.served.server.app.files.delete("default", deleted))
        assert [file_id for file_id, _ in found(stage, store.id, "tea")] == [kept]
        assert stage.client.vector_stores.retrieve(store.id).file_counts.total == 1
        for file_id in (gone, deleted):
            with pytest.raises(NotFoundError):
                stage.client.vector_stores.files.retrieve(file_id, vector_store_id=store.id)


def test_lists_go_page_by_page(tmp_path: Path, settings: dict[str, Any]) -> None:
    with ingesting(tmp_path, settings) as stage:
        files = [stage.upload(f"number {number}") for number in range(5)]
        store = stage.client.vector_stores.create(file_ids=files)
        listing = stage.client.vector_stores.files
        assert [file.id for file in listing.list(store.id, limit=2)] == files[::-1]
        assert [file.id for file in listing.list(store.id, limit=2, order="asc", filter="in_progress")] == files
        page = listing.list(store.id, limit=2, order="asc", before=files[3])
        assert [file.id for file in page.data] == files[1:3]
        assert listing.list(store.id, filter="completed").data == []
        with pytest.raises(BadRequestError):
            listing.list(store.id, after="file-nobody")


def test_a_batch_is_counted_listed_and_cancelled(tmp_path: Path, settings: dict[str, Any]) -> None:
    with ingesting(tmp_path, settings) as stage:
        first, second, third = (stage.upload(f"tea number {number}") for number in range(3))
        store = stage.client.vector_stores.create()
        batches = stage.client.vector_stores.file_batches
        files: Any = [{"file_id": first, "attributes": {"n": 1}}, {"file_id": second}]
        batch = batches.create(store.id, files=files)
        assert (batch.status, batch.file_counts.in_progress, batch.file_counts.total) == ("in_progress", 2, 2)
        with stage.worker():
            done = batches.poll(batch.id, vector_store_id=store.id, poll_interval_ms=50)
        assert (done.status, done.file_counts.completed) == ("completed", 2)
        listed = batches.list_files(batch.id, vector_store_id=store.id, order="asc").data
        assert [(file.id, file.attributes) for file in listed] == [(first, {"n": 1}), (second, {})]
        other = batches.create(store.id, file_ids=[second, third])
        cancelled = batches.cancel(other.id, vector_store_id=store.id)
        assert (cancelled.status, cancelled.file_counts.cancelled) == ("cancelled", 2)
        assert stage.client.vector_stores.files.retrieve(third, vector_store_id=store.id).status == "cancelled"
        assert [file_id for file_id, _ in found(stage, store.id, "tea")] == [first]


def test_what_is_not_there_cannot_be_attached(tmp_path: Path, settings: dict[str, Any]) -> None:
    with ingesting(tmp_path, settings) as stage:
        store = stage.client.vector_stores.create()
        with pytest.raises(NotFoundError):
            stage.client.vector_stores.files.create(store.id, file_id="file-nobody")
        with pytest.raises(NotFoundError):
            stage.client.vector_stores.create(file_ids=["file-nobody"])
        with pytest.raises(NotFoundError):
            stage.client.vector_stores.file_batches.create(store.id, file_ids=[stage.upload("x"), "file-nobody"])
        assert stage.client.vector_stores.files.list(store.id).data == []
        with pytest.raises(NotFoundError):
            stage.client.vector_stores.files.delete("file-nobody", vector_store_id=store.id)
        strategy: Any = {"type": "static", "static": {"max_chunk_size_tokens": 100, "chunk_overlap_tokens": 51}}
        with pytest.raises(BadRequestError, match="more than half"):
            stage.client.vector_stores.files.create(store.id, file_id=stage.upload("x"), chunking_strategy=strategy)


def test_files_of_others_cannot_be_attached_and_stores_of_others_not_filled(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    keys: Any = {
        "api_keys": [
            {"id": "a", "key": "key-of-alpha", "tenant": "default", "scopes": ["*"]},
            {"id": "b", "key": "key-of-beta", "tenant": "beta", "scopes": ["*"]},
        ]
    }
    with ingesting(tmp_path, settings, auth=keys) as stage:
        alpha, beta = (stage.client.with_options(api_key=f"key-of-{name}") for name in ("alpha", "beta"))
        file_id = stage.upload("a secret")
        store, other = alpha.vector_stores.create(file_ids=[file_id]), beta.vector_stores.create()
        for attempt in (
            lambda: beta.vector_stores.files.create(other.id, file_id=file_id),
            lambda: beta.vector_stores.files.create(store.id, file_id=file_id),
            lambda: beta.vector_stores.files.list(store.id),
            lambda: beta.vector_stores.files.retrieve(file_id, vector_store_id=store.id),
            lambda: beta.vector_stores.files.content(file_id, vector_store_id=store.id),
            lambda: beta.vector_stores.files.delete(file_id, vector_store_id=store.id),
            lambda: beta.vector_stores.file_batches.create(store.id, file_ids=[file_id]),
        ):
            with pytest.raises(NotFoundError):
                attempt()
        assert alpha.vector_stores.files.retrieve(file_id, vector_store_id=store.id).status == "in_progress"


def test_the_model_reads_where_in_a_file_a_chunk_stands(tmp_path: Path, settings: dict[str, Any]) -> None:
    steps = [turn(calls=[call("file_search", query="patience")]), turn("It needs patience [1].")]
    with ingesting(tmp_path, settings, steps) as stage, stage.worker():
        file_id = stage.upload(samples.pptx([("Coffee", "Coffee needs patience.")]), "talk.pptx")
        store = stage.client.vector_stores.create(file_ids=[file_id])
        assert stage.settled(store.id, file_id).status == "completed"
        tools: Any = [{"type": "file_search", "vector_store_ids": [store.id]}]
        answer = stage.client.responses.create(model="any", input="What does coffee need?", tools=tools)
        assert answer.output_text == "It needs patience [1]."
        read = str(stage.served.requests[-1].items)
        assert "[1] talk.pptx (Coffee, page 1, chunk 0, score" in read
