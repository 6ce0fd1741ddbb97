"""What nobody knows beside the fields of a tool or a format, and schemas that are none, whatever the tool."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from antwort.app import Antwort
from antwort.config import Config
from antwort.testing import ScriptedBackend, running, turn

EMPTY = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "name": "book", "parameters": EMPTY},
    {"type": "function", "name": "calculate"},
    {"type": "custom", "name": "write"},
    {"type": "namespace", "name": "mail", "description": "Mail.", "tools": [{"type": "function", "name": "send"}]},
    {"type": "shell"},
    {"type": "local_shell"},
    {"type": "apply_patch"},
    {"type": "computer"},
    {"type": "file_search"},
    {"type": "web_search", "external_web_access": False},
    {"type": "tool_search", "execution": "client"},
]
WEIGHTS = {"embedding_weight": 1, "text_weight": 2}
RANKED = {"score_threshold": 0.5, "hybrid_search": WEIGHTS}
UNKNOWN = {"colour": "red"}
WITH_PARTS: list[dict[str, Any]] = [
    {
        "type": "file_search",
        "ranking_options": {"score_threshold": 0.5, "hybrid_search": {**WEIGHTS, **UNKNOWN}, **UNKNOWN},
    },
    {"type": "web_search", "external_web_access": False, "user_location": {"type": "approximate", **UNKNOWN}},
    {"type": "custom", "name": "write", "format": {"type": "text", **UNKNOWN}},
    {"type": "shell", "environment": {"type": "local", **UNKNOWN}},
]
"""Tools with parts that have a field which nobody knows."""
FORMATS: list[dict[str, Any]] = [
    {"type": "text"},
    {"type": "json_object"},
    {"type": "json_schema", "name": "answer", "schema": EMPTY},
    {"type": "json_schema", "name": "answer", "schema": EMPTY, "strict": True},
]
MISSHAPEN: list[dict[str, Any]] = [
    {"type": "object", "properties": 1},
    {"type": "object", "properties": {"a": {"type": "object", "properties": 1}}},
    {"type": "object", "properties": {"a": 1}},
    {"anyOf": [{"properties": []}]},
    {"type": "object", "properties": {}, "$defs": {"one": {"properties": "all"}}},
]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client of a server whose model says always the same."""
    backend = ScriptedBackend([turn("Yes.") for _ in range(len(TOOLS) + len(WITH_PARTS) + len(FORMATS))])
    app = Antwort(Config(data_dir=tmp_path_factory.mktemp("data")), backend=backend)
    with running(app) as served, httpx.Client(base_url=f"{served.url}/v1", timeout=60) as client:
        yield client


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool["type"])
def test_a_sibling_that_nobody_knows_is_ignored_in_every_type_of_tool(
    client: httpx.Client, tool: dict[str, Any]
) -> None:
    answer = client.post("/responses", json={"input": "Hi", "tools": [{**tool, "colour": "red"}]})
    assert answer.status_code == 200, answer.text
    assert "colour" not in str(answer.json()["tools"])


@pytest.mark.parametrize("tool", WITH_PARTS, ids=lambda tool: tool["type"])
def test_a_field_that_nobody_knows_is_ignored_in_the_parts_of_a_tool(
    client: httpx.Client, tool: dict[str, Any]
) -> None:
    answer = client.post("/responses", json={"input": "Hi", "tools": [tool]})
    assert answer.status_code == 200, answer.text
    tools = answer.json()["tools"]
    assert "colour" not in str(tools)
    assert [one["ranking_options"] for one in tools if one["type"] == "file_search"] in ([], [RANKED])


@pytest.mark.parametrize("wanted", FORMATS, ids=lambda wanted: wanted["type"])
def test_a_sibling_that_nobody_knows_is_ignored_in_every_format(client: httpx.Client, wanted: dict[str, Any]) -> None:
    answer = client.post("/responses", json={"input": "Hi", "text": {"format": {**wanted, "colour": "red"}}})
    assert answer.status_code == 200, answer.text
    assert "colour" not in str(answer.json()["text"])


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("schema", MISSHAPEN, ids=str)
def test_a_schema_whose_properties_are_none_is_refused_wherever_they_stand(
    client: httpx.Client, schema: dict[str, Any], strict: bool
) -> None:
    wanted = {"type": "json_schema", "name": "answer", "schema": schema, "strict": strict}
    tool = {"type": "function", "name": "book", "parameters": {"type": "object", **schema}, "strict": strict}
    for asked, param in (({"text": {"format": wanted}}, "text.format.schema"), ({"tools": [tool]}, "tools[0]")):
        answer = client.post("/responses", json={"input": "Hi", **asked})
        error = answer.json()["error"]
        assert (answer.status_code, str(error["param"]).startswith(param)) == (400, True), answer.text
