"""What clients may say, and how they are told what they may not; on a real Qdrant server."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from tests.http.sdk import Served
from tests.providers.file_search.stage import settings_for, staged
from tests.support.embeddings import EmbeddingServer
from tests.support.qdrant import QdrantServer

from antwort.providers.file_search.wire import NewPoint, ToolOptions

DIMENSIONS = 64
KIND = "must be a text, a number or a boolean."


class App:
    """An app with one vector store, that all of these tests share."""

    def __init__(self, stage: Served) -> None:
        self._stage = stage
        self._store = stage.client().vector_stores.create(name="one").id

    def post(self, path: str, body: Any) -> httpx.Response:
        """Ask the app; `path` is below the store."""
        return self._stage.request("POST", f"/vector_stores/{self._store}/{path}", json=body)

    def write(self, *points: Any) -> httpx.Response:
        """Write points, which need no more than what matters."""
        filled = [{"text": "tea", "file_id": f"file-{n}", "filename": "a", **point} for n, point in enumerate(points)]
        return self.post("points", {"points": filled})

    def respond(self, options: Any) -> httpx.Response:
        """Ask for a response with the tool."""
        body = {"input": "?", "model": "scripted", "tools": [{"type": "file_search", **options}]}
        return self._stage.request("POST", "/responses", json=body)


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory, qdrant_server: QdrantServer) -> Iterator[App]:
    with (
        EmbeddingServer() as embeddings,
        staged(tmp_path_factory.mktemp("wire"), [], settings_for(qdrant_server, embeddings)) as stage,
    ):
        yield App(stage)


def refused(answer: httpx.Response) -> tuple[str, str]:
    """Return what a refusal names, and what it says."""
    error = answer.json()["error"]
    assert (answer.status_code, error["type"]) == (400, "invalid_request_error")
    return error["param"], error["message"]


# --- attributes ---


@pytest.mark.parametrize("value", [None, [1], {"b": 1}])
def test_an_attribute_of_another_kind_is_refused_with_the_kinds_there_are(app: App, value: Any) -> None:
    param, message = refused(app.write({}, {"attributes": {"a": value}}))
    assert (param, message) == ("points[1].attributes.a", f"Invalid value for 'points[1].attributes.a': {KIND}")


@pytest.mark.parametrize("value", [2**53 + 1, -(2**53) - 1, 2**63, 10**400])
def test_a_whole_number_that_would_be_rounded_is_refused(app: App, value: int) -> None:
    param, message = refused(app.write({"attributes": {"a": value}}))
    assert param == "points[0].attributes.a"
    assert "from -9007199254740992 to 9007199254740992; write a longer one as a text." in message


def test_an_attribute_that_is_too_long_is_refused_as_such(app: App) -> None:
    param, message = refused(app.write({"attributes": {"a": "x" * 513}}))
    assert param == "points[0].attributes.a"
    assert message.startswith(
        "Invalid 'points[0].attributes.a': string too long. Expected a string with maximum length"
    )


def test_attributes_come_back_as_they_were_sent(app: App) -> None:
    attributes = {"whole": 47, "large": 1904729410800015, "time": 1702754332.6375275, "flag": True, "text": "47"}
    assert app.write({"file_id": "file-sent", "attributes": attributes}).status_code == 200
    for key, value in attributes.items():
        body = {"query": "tea", "filters": {"type": "eq", "key": key, "value": value}}
        [found] = app.post("search", body).json()["data"]
        assert json.dumps(found["attributes"], sort_keys=True) == json.dumps(attributes, sort_keys=True)


def test_kinds_of_attributes_are_kept_apart() -> None:
    sent = '{"a": 1, "b": 1.5, "c": true, "d": "1", "e": 9007199254740992, "f": 1e300}'
    point = NewPoint.model_validate_json(f'{{"text": "x", "file_id": "f", "filename": "f", "attributes": {sent}}}')
    assert json.dumps(point.attributes) == json.dumps(json.loads(sent))


# --- vectors ---


def test_a_vector_of_another_length_is_named(app: App) -> None:
    param, message = refused(app.write({"vector": [1.0] * DIMENSIONS}, {}, {"vector": [1.0, 2.0]}))
    assert param == "points[2].vector"
    assert message == "points[2].vector: The vector has 2 dimensions, those of the vector store have 64."


# --- options ---


@pytest.mark.parametrize(
    "options",
    [
        {"ranking_options": {"treshold": 0.5}},
        {"ranking_options": {"hybrid_search": {"embedding_weight": 1, "text_weight": 1, "text_weigth": 1}}},
    ],
)
def test_an_unknown_option_of_a_search_is_refused_however_deep(app: App, options: Any) -> None:
    """That of a tool is ignored, as at OpenAI."""
    assert refused(app.post("search", {"query": "tea", **options}))[0].startswith("ranking_options.")


@pytest.mark.parametrize("number", ["5", 5.5, True])
def test_a_number_of_results_is_a_number_wherever_it_is_said(app: App, number: Any) -> None:
    assert refused(app.respond({"max_num_results": number}))[0] == "tools[0].max_num_results"
    assert refused(app.post("search", {"query": "tea", "max_num_results": number}))[0] == "max_num_results"


def test_weights_of_which_none_counts_are_refused(app: App) -> None:
    ranking = {"hybrid_search": {"embedding_weight": 0, "text_weight": 0.0}}
    for answer, place in (
        (app.respond({"ranking_options": ranking}), "tools[0].ranking_options.hybrid_search"),
        (app.post("search", {"query": "tea", "ranking_options": ranking}), "ranking_options.hybrid_search"),
    ):
        param, message = refused(answer)
        assert param == place
        assert "embedding_weight, text_weight or both must be greater than 0." in message


def test_what_clients_send_is_read() -> None:
    """Of OpenAI's package: all there is. A client may also send the echo of a tool, in which all is filled in."""
    ranking = {"ranker": "auto", "score_threshold": 0, "hybrid_search": {"embedding_weight": 1, "text_weight": 0}}
    sent = {
        "type": "file_search",
        "vector_store_ids": ["vs_1"],
        "filters": {"type": "eq", "key": "a", "value": 1},
        "max_num_results": 5,
        "ranking_options": ranking,
    }
    assert ToolOptions.read(sent).model_dump() == sent
    echo = {**sent, "vector_store_ids": [], "filters": None, "max_num_results": None}
    assert ToolOptions.read(echo).model_dump() == echo


def test_a_tool_that_is_named_as_a_function_has_fields_of_its_own() -> None:
    function = {"type": "function", "name": "file_search", "parameters": None, "strict": True}
    assert ToolOptions.read(function) == ToolOptions.read({}) == ToolOptions()
    assert ToolOptions.read({**function, "max_num_results": 3}).max_num_results == 3
