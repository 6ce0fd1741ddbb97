"""Nothing tells a tenant whether an id is another tenant's or nobody's: no status, no message, no header, no result."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.http.sdk import Served
from tests.providers.file_search.stage import KEYS, on_loop, settings_for, staged, write
from tests.support.embeddings import EmbeddingServer
from tests.support.qdrant import QdrantServer

from antwort import Context, ToolResult
from antwort.providers.file_search import FileSearch

EXAMPLES = 300 if os.environ.get("ANTWORT_TEST_FULL") else 40
SECRET = "the secret ingredient is cardamom"
NOBODYS = "vs_" + "0" * 32
BETA = {"authorization": "Bearer key-of-beta"}
ROUTES = [(one.method, one.path) for one in FileSearch().routes() if "{vector_store_id}" in one.path]

names = st.text(max_size=8)
filters = st.none() | st.fixed_dictionaries(
    {"type": st.sampled_from(["eq", "ne", "gt", "bad"]), "key": names, "value": names | st.integers()}
)
bodies = st.one_of(
    st.none(),
    st.just({}),
    st.fixed_dictionaries({"query": st.sampled_from(["secret ingredient", "cardamom", "", "?"]), "filters": filters}),
    st.fixed_dictionaries({"query": st.lists(names, max_size=2), "max_num_results": st.integers(-1, 60)}),
    st.fixed_dictionaries({"name": names, "metadata": st.dictionaries(names, names, max_size=2)}),
    st.fixed_dictionaries({"expires_after": st.fixed_dictionaries({"anchor": names, "days": st.integers(0, 3)})}),
    st.just({"points": [{"text": "mine", "file_id": "file-0", "filename": "mine.txt"}]}),
    st.just({"points": [{"text": "mine", "file_id": "file-0", "filename": "mine.txt", "vector": [1.0, 2.0]}]}),
    st.dictionaries(names, names, max_size=2),
)
queries = st.sampled_from(["", "?file_id=file-0", "?file_id=", "?limit=0"])


@dataclass
class Scene:
    """Two tenants, of whom the first has a store with a secret in it."""

    stage: Served
    theirs: str
    mine: str

    def call(self, arguments: dict[str, Any], options: dict[str, Any]) -> ToolResult:
        """Call the tool as the second tenant."""
        ctx = Context("beta", scopes=frozenset({"*"}), options=options)
        return on_loop(self.stage, self.stage.server.app.registry.execute("file_search", arguments, ctx))

    def still_there(self) -> None:
        """Check that the first tenant's store is as it was."""
        found = self.stage.client("key-of-alpha").vector_stores.search(self.theirs, query="secret ingredient").data
        assert [one.content[0].text for one in found] == [SECRET]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory, qdrant_server: QdrantServer) -> Iterator[Scene]:
    """The scene of all tests here: nothing that the second tenant does changes it."""
    with (
        EmbeddingServer() as embeddings,
        staged(tmp_path_factory.mktemp("scene"), [], settings_for(qdrant_server, embeddings), auth=KEYS) as stage,
    ):
        theirs = stage.client("key-of-alpha").vector_stores.create(name="secrets").id
        write(stage, theirs, {"text": SECRET}, key="key-of-alpha")
        mine = stage.client("key-of-beta").vector_stores.create(name="mine").id
        scene = Scene(stage, theirs, mine)
        yield scene
        scene.still_there()


def seen(answer: httpx.Response, store: str) -> tuple[int, str, dict[str, str]]:
    """Return all that a client sees of an answer, with the id it sent itself taken out."""
    passing = {"date", "x-request-id", "openai-processing-ms"}
    headers = {name: value for name, value in answer.headers.items() if name not in passing}
    return answer.status_code, answer.text.replace(store, "(id)"), headers


@pytest.mark.parametrize("route", ROUTES, ids=" ".join)
@given(data=st.data())
@settings(max_examples=max(5, EXAMPLES // len(ROUTES)), deadline=None)
def test_a_foreign_id_is_answered_as_an_unknown_one_at_every_endpoint(
    scene: Scene, route: tuple[str, str], data: st.DataObject
) -> None:
    method, path = route
    body, query = data.draw(bodies), data.draw(queries)
    answers = []
    for store in (scene.theirs, NOBODYS):
        place = path.replace("/v1", "", 1).replace("{vector_store_id}", store) + query
        sent = {} if body is None or method in {"GET", "DELETE"} else {"json": body}
        answer = scene.stage.request(method, place, headers=BETA, **sent)
        assert answer.status_code in {400, 404}, answer.text
        assert SECRET not in answer.text
        answers.append(seen(answer, store))
    assert answers[0] == answers[1]


@pytest.mark.parametrize("cursor", ["after", "before"])
@pytest.mark.parametrize("order", ["asc", "desc"])
def test_a_foreign_cursor_is_answered_as_an_unknown_one(scene: Scene, cursor: str, order: str) -> None:
    path = "/vector_stores?order={}&{}={}"
    answers = [
        seen(scene.stage.request("GET", path.format(order, cursor, store), headers=BETA), store)
        for store in (scene.theirs, NOBODYS)
    ]
    assert answers[0] == answers[1]
    assert answers[0][0] == 400


@given(
    named=st.sampled_from([(), ("*",), ("mine", "*"), ("*", "mine")]),
    narrowed=st.sampled_from([None, ("*",), ("mine",), ("mine", "*")]),
    query=st.sampled_from(["secret ingredient", "cardamom", "?"]),
    filters=st.sampled_from([None, {"type": "ne", "key": "x", "value": "y"}]),
)
@settings(max_examples=EXAMPLES, deadline=None)
def test_the_tool_answers_a_foreign_id_as_an_unknown_one(
    scene: Scene, named: tuple[str, ...], narrowed: tuple[str, ...] | None, query: str, filters: Any
) -> None:
    outcomes = []
    for store in (scene.theirs, NOBODYS):
        ids = {"*": store, "mine": scene.mine}
        options = {"type": "file_search", "vector_store_ids": [ids[one] for one in named], "filters": filters}
        arguments: dict[str, Any] = {"query": query}
        if narrowed is not None:
            arguments["vector_store_ids"] = [ids[one] for one in narrowed]
        result = scene.call(arguments, options)
        assert SECRET not in result.output
        assert result.is_error is (
            "*" in (narrowed or named) or bool(narrowed and named and set(narrowed) - set(named))
        )
        outcomes.append((result.is_error, result.output.replace(store, "(id)"), dict(result.item)))
    assert outcomes[0] == outcomes[1]


def test_without_ids_only_the_own_stores_are_searched(scene: Scene) -> None:
    result = scene.call({"query": "secret ingredient"}, {})
    assert not result.is_error
    assert result.item["results"] == []


def test_the_list_has_only_the_own_stores(scene: Scene) -> None:
    assert [one.id for one in scene.stage.client("key-of-beta").vector_stores.list()] == [scene.mine]
