"""Something is not there, or does not answer: what has happened then, and who is told what."""

import asyncio
from pathlib import Path
from typing import Any

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
    until,
    write,
)
from tests.support.embeddings import EmbeddingServer, Reply, Service
from tests.support.line import Line
from tests.support.qdrant import OwnQdrant, QdrantServer
from typing_extensions import override

from antwort import Context
from antwort.extensions import Count, Hit, Query, VectorStoreUnavailable
from antwort.providers.file_search import FileSearch
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


def test_an_update_needs_no_count(tmp_path: Path, qdrant_server: QdrantServer, embeddings: EmbeddingServer) -> None:
    provider, backend = uncounted(qdrant_server, embeddings)
    with staged(tmp_path, [], {}, provider=provider) as stage:
        client = stage.client()
        made = client.vector_stores.create(name="old")
        changed = client.vector_stores.update(made.id, name="new", metadata={"a": "b"})
        assert (changed.name, changed.metadata) == ("new", {"a": "b"})
        backend.broken = False
        write(stage, made.id, {"text": "green tea"})
        changed = client.vector_stores.update(made.id, name="newer")
    assert (changed.name, changed.file_counts.total, changed.usage_bytes) == ("newer", 1, 9)


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


def test_a_recount_that_fails_leaves_no_count_behind(
    tmp_path: Path, qdrant_server: QdrantServer, embeddings: EmbeddingServer
) -> None:
    settings = FileSearch.from_settings(settings_for(qdrant_server, embeddings)).settings
    backend = Waiting(settings.qdrant, together=5)
    with staged(tmp_path, [], {}, provider=FileSearch(settings, backend=backend)) as stage:
        for number in range(5):
            stage.client().vector_stores.create(name=str(number))
        answer = stage.request("GET", "/vector_stores")  # which is not waited for to be counted anew
        until(lambda: (backend.begun, backend.ended) == (5, 4))
    assert answer.status_code == 200


def test_what_is_in_a_store_is_known_without_the_vector_database_after_a_restart_too(
    tmp_path: Path, qdrant_line: Line, embeddings: EmbeddingServer
) -> None:
    with staged(tmp_path, [], settings_for(qdrant_line, embeddings)) as stage:
        store = stage.client().vector_stores.create(name="drinks").id
        write(stage, store, {"text": "green tea"}, {"text": "coffee"})
        before = stage.request("GET", f"/vector_stores/{store}").json()
    qdrant_line.cut()
    with staged(tmp_path, [], settings_for(qdrant_line, embeddings)) as stage:
        shown = stage.request("GET", f"/vector_stores/{store}")
        [listed] = stage.request("GET", "/vector_stores").json()["data"]
        renamed = stage.request("POST", f"/vector_stores/{store}", json={"name": "new"})
        files = stage.request("GET", f"/vector_stores/{store}/files")
        deleted = stage.request("DELETE", f"/vector_stores/{store}")
    assert (shown.status_code, shown.json(), listed) == (200, before, before)
    assert (before["file_counts"]["total"], before["usage_bytes"]) == (2, 15)
    assert (renamed.status_code, renamed.json()) == (200, {**before, "name": "new"})
    assert (files.status_code, deleted.status_code) == (200, 200)


class Counting(OwnQdrant):
    """The real thing, that counts what it is asked."""

    searches = 0

    @override
    async def search(self, name: str, query: Query) -> list[Hit]:
        self.searches += 1
        return await super().search(name, query)


def test_a_frozen_vector_database_costs_one_time_out(
    tmp_path: Path, qdrant: QdrantServer, embeddings: EmbeddingServer
) -> None:
    settings = FileSearch.from_settings(settings_for(qdrant, embeddings)).settings
    backend = Counting(settings.qdrant.model_copy(update={"timeout": 2.0}))
    with staged(tmp_path, [], {}, provider=FileSearch(settings, backend=backend)) as stage:
        store = stage.client().vector_stores.create(name="drinks").id
        write(stage, store, {"text": "green tea"})
        before = stage.request("GET", f"/vector_stores/{store}").json()
        path = f"/vector_stores/{store}/search"
        qdrant.freeze()
        refused = [stage.request("POST", path, json={"query": "tea"}) for _ in range(6)]
        during = stage.request("GET", f"/vector_stores/{store}").json()
        qdrant.kill()
        qdrant.start()
        until(lambda: stage.request("POST", path, json={"query": "tea"}).status_code == 200)
    assert [answer.status_code for answer in refused] == [503] * 6
    assert backend.searches == 2, "the first, and that which found it back"
    assert during == before


def test_an_empty_store_gets_the_length_of_vectors_that_the_service_has_then(
    tmp_path: Path, every_backend: JSON
) -> None:
    with Service(dimensions=3) as service:
        settings = {**every_backend, "embedding_url": service.url}
        with staged(tmp_path, [], settings) as stage:
            client = stage.client()
            store = client.vector_stores.create(name="drinks").id
            service.dimensions = 8  # as it should have been from the beginning
            point = {"text": "green tea", "file_id": "f", "filename": "f.txt"}
            path = f"/vector_stores/{store}/points"
            until(lambda: stage.request("POST", path, json={"points": [point]}).status_code == 200)
            [hit] = client.vector_stores.search(store, query="green tea").data
            service.dimensions = 5
            refused = stage.request("POST", path, json={"points": [point]})
            client.vector_stores.delete(store)
    assert hit.content[0].text == "green tea"
    assert refused.status_code == 400, "there is something in it now"
    assert "5 dimensions, those of the vector store have 8" in refused.json()["error"]["message"]


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
    tmp_path: Path, qdrant_line: Line, embeddings: EmbeddingServer
) -> None:
    with staged(tmp_path, searching("tea"), settings_for(qdrant_line, embeddings)) as stage:
        store = stage.client().vector_stores.create(name="drinks").id
        embeddings.broken = True
        qdrant_line.cut()
        direct = stage.request("POST", f"/vector_stores/{store}/search", json={"query": "tea"})
        create(stage, False, input="?", tools=[tool(store)])
        [output] = outputs(stage)
    said = direct.json()["error"]["message"]
    assert direct.status_code == 503
    assert said.startswith("The query could not be embedded, and a search by keywords failed: The vector database ")
    assert said.endswith(" cannot be reached.")
    assert output == f"{said} {ADVICE}"


def test_the_model_is_told_to_go_on_without_when_only_the_vector_database_is_away(
    tmp_path: Path, qdrant_line: Line, embeddings: EmbeddingServer
) -> None:
    with staged(tmp_path, searching("tea"), settings_for(qdrant_line, embeddings)) as stage:
        store = stage.client().vector_stores.create(name="drinks").id
        qdrant_line.cut()
        direct = stage.request("POST", f"/vector_stores/{store}/search", json={"query": "tea"})
        create(stage, False, input="?", tools=[tool(store)])
        [output] = outputs(stage)
    assert (direct.status_code, direct.json()["error"]["message"]) == (503, "The vector database cannot be reached.")
    assert output == f"The vector database cannot be reached. {ADVICE}"


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
