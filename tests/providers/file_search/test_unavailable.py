"""Something is not there, or does not answer: what has happened then, and who is told what."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from openai import APIStatusError
from tests.http.sdk import create
from tests.providers.file_search.stage import (
    answering,
    on_loop,
    outputs,
    search_item,
    searching,
    settings_for,
    staged,
    tool,
    write,
)
from tests.support.embeddings import EmbeddingServer, Reply
from tests.support.qdrant import OwnQdrant, QdrantServer
from typing_extensions import override

from antwort import Context
from antwort.providers.file_search import FileSearch
from antwort.providers.file_search.errors import VectorStoreUnavailable
from antwort.providers.file_search.vectors.base import Count
from antwort.testing import call, turn
from antwort.types import JSON

ADVICE = "Go on without file search."
"""What is of use to a model only."""


class Uncounted(OwnQdrant):
    """The real thing, but nothing can be counted while it is told so."""

    broken = True

    @override
    async def count(self, name: str, *, tenant: str, vector_store_id: str = "") -> Count:
        if self.broken:
            raise VectorStoreUnavailable("It cannot count.")
        return await super().count(name, tenant=tenant, vector_store_id=vector_store_id)


def uncounted(qdrant: QdrantServer, embeddings: EmbeddingServer) -> tuple[FileSearch, Uncounted]:
    """Return a provider with such a database."""
    settings = FileSearch.from_settings(settings_for(qdrant, embeddings)).settings
    backend = Uncounted(settings.qdrant)
    return FileSearch(settings, backend=backend), backend


def test_a_store_is_created_once_though_nothing_can_be_counted(
    tmp_path: Path, qdrant_server: QdrantServer, embeddings: EmbeddingServer
) -> None:
    provider, backend = uncounted(qdrant_server, embeddings)
    with staged(tmp_path, [], {}, provider=provider) as stage:
        made = stage.client().with_options(max_retries=2).vector_stores.create(name="once")
        backend.broken = False
        listed = list(stage.client().vector_stores.list())
    assert listed == [made]
    assert (made.status, made.file_counts.total, made.usage_bytes) == ("completed", 0, 0)


def test_an_update_that_is_refused_changes_nothing(
    tmp_path: Path, qdrant_server: QdrantServer, embeddings: EmbeddingServer
) -> None:
    provider, backend = uncounted(qdrant_server, embeddings)
    with staged(tmp_path, [], {}, provider=provider) as stage:
        client = stage.client()
        made = client.vector_stores.create(name="old")
        with pytest.raises(APIStatusError) as refused:
            client.vector_stores.update(made.id, name="new", metadata={"a": "b"})
        assert refused.value.status_code == 503
        backend.broken = False
        assert client.vector_stores.retrieve(made.id) == made
        write(stage, made.id, {"text": "green tea"})
        changed = client.vector_stores.update(made.id, name="new")
    assert (changed.name, changed.file_counts.total, changed.usage_bytes) == ("new", 1, 9)


class Waiting(OwnQdrant):
    """The real thing, but of the counts that are asked for at the same time the last fails, and the others wait."""

    def __init__(self, *args: Any, together: int) -> None:
        super().__init__(*args)
        self._together = together
        self.begun = self.ended = 0

    @override
    async def count(self, name: str, *, tenant: str, vector_store_id: str = "") -> Count:
        self.begun += 1
        if self.begun == self._together:
            raise VectorStoreUnavailable("It cannot count.")
        try:
            await asyncio.Event().wait()
        finally:
            self.ended += 1
        return Count()


def test_a_list_that_fails_leaves_no_count_behind(
    tmp_path: Path, qdrant_server: QdrantServer, embeddings: EmbeddingServer
) -> None:
    settings = FileSearch.from_settings(settings_for(qdrant_server, embeddings)).settings
    backend = Waiting(settings.qdrant, together=5)
    with staged(tmp_path, [], {}, provider=FileSearch(settings, backend=backend)) as stage:
        for number in range(5):
            stage.client().vector_stores.create(name=str(number))
        answer = stage.request("GET", "/vector_stores")
        counts = backend.begun, backend.ended
    assert answer.status_code == 200
    assert counts == (5, 4)


def test_a_list_has_what_was_known_last_while_the_vector_database_is_away(
    tmp_path: Path, qdrant_server: QdrantServer, embeddings: EmbeddingServer
) -> None:
    provider, backend = uncounted(qdrant_server, embeddings)
    backend.broken = False
    with staged(tmp_path, [], {}, provider=provider) as stage:
        store = stage.client().vector_stores.create(name="drinks").id
        write(stage, store, {"text": "green tea"})
        now = stage.request("GET", "/vector_stores").json()["data"]
    provider, _ = uncounted(qdrant_server, embeddings)
    with staged(tmp_path, [], {}, provider=provider) as stage:  # after a restart
        unseen = stage.client().vector_stores.create(name="new").id
        away = {one["id"]: one for one in stage.request("GET", "/vector_stores").json()["data"]}
        back = stage.request("GET", f"/vector_stores/{store}")
    assert "counts_last_known" not in now[0]
    assert away[store] == {**now[0], "counts_last_known": True, "last_active_at": away[store]["last_active_at"]}
    assert (away[store]["usage_bytes"], away[unseen]["usage_bytes"]) == (9, 0)
    assert away[unseen]["counts_last_known"]
    assert back.status_code == 503


def test_words_are_searched_for_while_there_is_time_though_the_embedding_service_hangs(
    tmp_path: Path, every_backend: JSON, embeddings: EmbeddingServer
) -> None:
    settings = {**every_backend, "timeout": 8}
    assert FileSearch.from_settings(settings).settings.embedding_timeout > 8
    with staged(tmp_path, searching("coffee"), settings) as stage:
        store = stage.client().vector_stores.create(name="drinks").id
        write(stage, store, {"text": "green tea"}, {"text": "black coffee"})
        embeddings.replies = [Reply(held=True), Reply(held=True)]
        direct = stage.client().vector_stores.search(store, query="coffee").data
        create(stage, False, input="?", tools=[tool(store)])
        [output] = outputs(stage)
        stage.client().vector_stores.delete(store)
    assert [one.content[0].text for one in direct] == ["black coffee"]
    assert "found by their words alone" in output
    assert "black coffee" in output


def test_only_the_model_is_told_to_go_on_without(
    tmp_path: Path, qdrant: QdrantServer, embeddings: EmbeddingServer
) -> None:
    with staged(tmp_path, searching("tea"), settings_for(qdrant, embeddings)) as stage:
        store = stage.client().vector_stores.create(name="drinks").id
        embeddings.broken = True
        qdrant.kill()
        direct = stage.request("POST", f"/vector_stores/{store}/search", json={"query": "tea"})
        create(stage, False, input="?", tools=[tool(store)])
        [output] = outputs(stage)
    said = direct.json()["error"]["message"]
    assert direct.status_code == 503
    assert said.startswith("The query could not be embedded, and a search by keywords failed: The vector database ")
    assert said.endswith(" cannot be reached.")
    assert output == f"{said} {ADVICE}"


def test_the_model_is_told_whether_the_request_or_itself_names_what_is_not_there(
    tmp_path: Path, qdrant_server: QdrantServer, embeddings: EmbeddingServer
) -> None:
    itself = [turn(calls=[call("file_search", query="tea", vector_store_ids=["vs_2"])]), turn("Done.")]
    with staged(tmp_path, [*answering("tea"), *itself, *itself], settings_for(qdrant_server, embeddings)) as stage:
        store = stage.client().vector_stores.create(name="drinks").id
        said = []
        for wish in (tool(store, "vs_1"), tool(store, "vs_2"), tool(store)):
            assert search_item(create(stage, False, input="?", tools=[wish])).status == "failed"
            said += outputs(stage)
        ctx = Context("default", options=tool(store))
        arguments = {"query": "tea", "vector_store_ids": ["vs_2"]}
        result = on_loop(stage, stage.server.app.registry.execute("file_search", arguments, ctx))
    for number, output in zip((1, 2), said[:2], strict=True):
        assert output == (
            f"There is no vector store 'vs_{number}' here, although the request names it; whoever sent it must correct "
            f"its vector_store_ids. {ADVICE}"
        )
    assert said[2] == result.output == "There is no vector store 'vs_2' here; leave vector_store_ids out to search all."
