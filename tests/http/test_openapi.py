"""`/openapi.json` is valid, whole and true: every endpoint with parameters, bodies, answers, errors and examples."""

import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import httpx
import jsonschema_rs
import pytest
from schemathesis.specs.openapi.definitions import OPENAPI_31_VALIDATOR
from tests.support.postgres import on_one_store

from antwort import Antwort
from antwort.config import Config
from antwort.provider import Annotated, BaseModel, ConflictError, Field, Provider, route
from antwort.server.api.description import openapi as description
from antwort.server.api.description.openapi import OWN, openapi
from antwort.testing import running
from antwort.types import JSON
from antwort.web.routes import Example, Route
from antwort.wire import answers

pytestmark = on_one_store()


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> JSON:
    config = Config(data_dir=tmp_path_factory.mktemp("data"))
    with running(Antwort(config)) as server:
        found: JSON = httpx.get(f"{server.url}/openapi.json").raise_for_status().json()
        return found


def operations(document: JSON) -> Iterator[tuple[str, JSON]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def contents(operation: JSON) -> Iterator[JSON]:
    """Yield every content of an operation's body and its success."""
    if "requestBody" in operation:
        yield from operation["requestBody"]["content"].values()
    for status, response in operation["responses"].items():
        if status.startswith("2") and "content" in response:
            yield next(iter(response["content"].values()))


def test_it_is_valid_openapi_3_1(document: JSON) -> None:
    OPENAPI_31_VALIDATOR.validate(document)
    for schema in document["components"]["schemas"].values():
        jsonschema_rs.meta.validate({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema})


def test_every_reference_leads_somewhere(document: JSON) -> None:
    def references(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            if isinstance(value.get("$ref"), str):
                yield value["$ref"]
            for part in value.values():
                yield from references(part)
        elif isinstance(value, list):
            for part in value:
                yield from references(part)

    for found in set(references(document)):
        _, components, kind, name = found.split("/")
        assert name in document[components][kind], found


def test_every_operation_has_a_readable_name_of_its_own(document: JSON) -> None:
    names = [operation["operationId"] for _, operation in operations(document)]
    assert len(set(names)) == len(names) > 20
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", name) for name in names)
    assert {"responses_create", "responses_list", "models_retrieve", "chat_completions", "functions_list"} < set(names)
    described = {tag["name"] for tag in document["tags"]}
    assert {tag for _, operation in operations(document) for tag in operation["tags"]} == described


def test_every_operation_has_examples_that_fit(document: JSON) -> None:
    for name, operation in operations(document):
        for content in contents(operation):
            schema = {**content["schema"], "components": document["components"]}
            validator = jsonschema_rs.Draft202012Validator(schema)
            assert content["examples"], name
            for example in content["examples"].values():
                validator.validate(example["value"])
        for parameter in operation.get("parameters", ()):
            assert "example" in parameter or parameter["in"] == "query", f"{name}: {parameter['name']}"
            if "example" in parameter:
                jsonschema_rs.Draft202012Validator(parameter["schema"]).validate(parameter["example"])


def test_every_field_of_a_body_and_every_parameter_of_a_query_is_described(document: JSON) -> None:
    schemas = document["components"]["schemas"]
    for name, operation in operations(document):
        for parameter in operation.get("parameters", ()):
            assert parameter["in"] == "path" or parameter["description"], f"{name}: {parameter['name']}"
        if "requestBody" in operation:
            [content] = operation["requestBody"]["content"].values()
            schema = content["schema"]
            body = schemas[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
            missing = [field for field, value in body["properties"].items() if not _described(value)]
            assert not missing, f"{name}: {missing}"


def _described(schema: JSON) -> bool:
    return "description" in schema or any(_described(part) for part in schema.get("anyOf", ()))


def test_open_types_refer_to_what_describes_them(document: JSON) -> None:
    schemas = document["components"]["schemas"]

    def members(name: str, field: str) -> str:
        schema = schemas[name]["properties"][field]
        lists = [part for part in (schema, *schema.get("anyOf", ())) if part.get("type") == "array"]
        kind: str = lists[0]["items"]["$ref"].rpartition("/")[2]
        return kind

    open_types = {
        "InputItem": [("CreateResponse", "input"), ("CompactRequest", "input"), ("CreateConversation", "items")],
        "Item": [("ResponseObject", "output"), ("CompactedResponse", "output"), ("ItemList", "data")],
        "Tool": [("CreateResponse", "tools"), ("ResponseObject", "tools")],
    }
    for kind, places in open_types.items():
        assert [members(*place) for place in places] == [kind] * len(places)
    assert members("CreateItems", "items") == "InputItem"


def test_every_answer_that_can_come_is_there(document: JSON) -> None:
    paths = document["paths"]
    create = paths["/v1/responses"]["post"]["responses"]
    assert set(create) >= {"200", "400", "401", "403", "404", "413", "415", "429", "500", "502", "503", "504"}
    assert set(create["200"]["content"]) == {"application/json", "text/event-stream"}
    assert set(paths["/v1/models"]["get"]["responses"]) == {"200", "400", "401", "403", "405", "429", "500", "503"}
    assert set(paths["/healthz"]["get"]["responses"]) == {"200", "405", "500", "503"}
    assert "404" in paths["/v1/responses/{response_id}"]["get"]["responses"]
    assert "security" in paths["/v1/models"]["get"]
    assert "security" not in paths["/healthz"]["get"]
    for _, operation in operations(document):
        for status, answer in operation["responses"].items():
            assert status.startswith("2") or answer["$ref"].startswith("#/components/responses/")


def test_every_key_of_a_response_is_always_there_but_those_that_are_not(document: JSON) -> None:
    schema = document["components"]["schemas"]["ResponseObject"]
    assert set(schema["properties"]) - set(schema["required"]) == {"agent", "prompt"}


def test_the_websocket_is_mentioned(document: JSON) -> None:
    assert "WebSocket" in document["paths"]["/v1/responses"]["post"]["description"]


def test_lists_say_their_limits(document: JSON) -> None:
    parameters = document["paths"]["/v1/responses"]["get"]["parameters"]
    limit = next(parameter for parameter in parameters if parameter["name"] == "limit")
    assert limit["schema"] == {"type": "integer", "minimum": 1, "maximum": 100, "default": 20}
    after = next(parameter for parameter in parameters if parameter["name"] == "after")
    assert after["schema"] == {"type": "string"}


# --- providers -------------------------------------------------------------------------------------------------------


class Conversation(BaseModel):
    """A model with the name of one of ours."""

    with_whom: str


class Talks(Provider):
    """Everything a route can declare."""

    @route(
        "GET",
        "/v1/talks",
        errors=[ConflictError],
        examples=[Example({"with_whom": "Ada"}, parameters={"mood": "good"}, summary="With Ada")],
    )
    async def find(
        self, mood: Literal["good", "bad"], most: Annotated[int, Field(ge=1)] = 5, topic: list[str] | None = None
    ) -> Conversation:
        """Find a talk.

        Args:
            mood: The mood of the talk.
            topic: What it is about.
        """
        return Conversation(with_whom=f"{mood} {most} {topic}")

    @route("GET", "/v1/talks/stream", streams=True, returns={"type": "string"})
    async def listen(self) -> Any:
        """Listen to a talk."""


def test_routes_of_providers_are_described_from_their_signatures() -> None:
    found = openapi([("talks", Talks().routes())], public=())
    find = found["paths"]["/v1/talks"]["get"]
    assert find["operationId"] == "talks_find"
    assert find["description"] == "Find a talk.\n\nNeeds the scope `talks`."
    mood, most, topic = find["parameters"]
    assert mood == {
        "name": "mood",
        "in": "query",
        "required": True,
        "description": "The mood of the talk.",
        "schema": {"type": "string", "enum": ["good", "bad"]},
        "example": "good",
    }
    assert most["schema"] == {"type": "integer", "minimum": 1, "default": 5}
    assert topic["schema"] == {"type": "array", "items": {"type": "string"}}
    assert "required" not in topic
    assert {"400", "409"} < set(find["responses"])
    content = find["responses"]["200"]["content"]["application/json"]
    assert content["examples"] == {"with_ada": {"summary": "With Ada", "value": {"with_whom": "Ada"}}}
    listen = found["paths"]["/v1/talks/stream"]["get"]["responses"]["200"]["content"]
    assert listen["application/json"] == {"schema": {"type": "string"}}
    assert "text/event-stream" in listen


def test_a_model_with_the_name_of_one_of_ours_keeps_its_own_schema() -> None:
    ours = Route("GET", "/v1/x", Talks().find, returns=answers.Conversation)
    document = openapi([(OWN, [ours]), ("talks", Talks().routes())], public=())

    def properties(path: str) -> set[str]:
        content = document["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]
        return set(document["components"]["schemas"][content["schema"]["$ref"].rpartition("/")[2]]["properties"])

    assert properties("/v1/x") == {"id", "object", "created_at", "metadata"}
    assert properties("/v1/talks") == {"with_whom"}


def test_of_two_operations_with_one_name_the_second_is_named_after_its_path() -> None:
    handler = Talks().find
    found = openapi([("talks", [Route("GET", "/a", handler), Route("GET", "/b", handler)])], public=())
    assert [operation["operationId"] for _, operation in operations(found)] == ["talks_find", "get_b"]


class Late(Provider):
    """A provider that comes and goes."""

    @route("GET", "/v1/late")
    async def late(self) -> str:
        """Be there."""
        return "late"


def test_it_is_made_once_for_all_and_not_on_the_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    build = description.build_schemas

    def counted(uses: Any) -> Any:
        made.append(threading.get_ident())
        return build(uses)

    monkeypatch.setattr(description, "build_schemas", counted)
    with (
        running(Antwort(Config(data_dir=tmp_path), providers=[Late()])) as server,
        ThreadPoolExecutor(8) as pool,
    ):
        url = f"{server.url}/openapi.json"
        pages = {answer.content for answer in pool.map(httpx.get, [url] * 24)}
        assert len(made) == 1
        assert len(pages) == 1
        server.loop.call_soon_threadsafe(server.app.registry.disable, "late")
        while b"/v1/late" in httpx.get(url).content:
            pass
        assert len(made) == 2
        [loop] = [thread.ident for thread in threading.enumerate() if thread.name == "antwort-testing"]
    assert loop not in made
