"""Hosted tools, as their providers prepare them before the model is asked."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from openai import InternalServerError, NotFoundError
from tests.http.sdk import served
from typing_extensions import override

from antwort.context import Context
from antwort.errors import NotFoundError as Missing
from antwort.provider import Hosted, Provider, function
from antwort.testing import call, turn


class Library(Provider):
    """A provider that knows some shelves."""

    @override
    async def prepare_tool(
        self, name: str, tool: Mapping[str, Any], items: Iterable[Mapping[str, Any]], ctx: Context
    ) -> Mapping[str, Any]:
        if tool.get("shelf") == "broken":
            raise SystemExit(3)
        if tool.get("shelf") == "none":
            raise Missing("There is no such shelf.", param="shelf")
        said = [part["text"] for item in items for part in item["content"] if item.get("role") == "user"]
        return {**tool, "said": said, "function": name}

    @function(hosted=Hosted(types=("library",)))
    async def look(self, ctx: Context) -> str:
        """Look for a book."""
        return f"{ctx.options['function']}: {ctx.options['said']}"


def test_calls_get_the_tool_as_it_was_prepared_with_what_came_before(tmp_path: Path) -> None:
    steps = [turn("Yes?"), turn(calls=[call("look")]), turn("Done.")]
    tool: Any = {"type": "library", "shelf": "a"}
    with served(tmp_path, steps, providers=[Library()]) as stage:
        first = stage.request("POST", "/responses", json={"model": "m", "input": "One."}).json()
        said = [{"role": "user", "content": "Two."}]
        body = {"model": "m", "input": said, "previous_response_id": first["id"], "tools": [tool]}
        second = stage.request("POST", "/responses", json=body).json()
        (read,) = [item["output"] for item in stage.requests[-1].items if item["type"] == "function_call_output"]
        assert read == "look: ['Two.', 'One.']"
        assert second["tools"] == [tool]


class Scribbler(Provider):
    """A provider that writes where it should only read."""

    @function
    async def scribble(self, ctx: Context) -> str:
        """Tell what the request says of the tool, and write into it."""
        before, options = str(ctx.options), dict[str, Any](ctx.options)
        options["allowed_callers"].append("stranger")
        ctx.options.update(stranger=True)  # type: ignore[attr-defined]
        return before


def test_what_a_function_does_to_its_options_is_not_seen_by_the_next_request(tmp_path: Path) -> None:
    steps = [turn(calls=[call("scribble")]), turn("Done."), turn(calls=[call("scribble")]), turn("Done.")]
    tool: Any = {"type": "function", "name": "scribble", "allowed_callers": ["direct"]}
    with served(tmp_path, steps, providers=[Scribbler()]) as stage:
        for _ in range(2):
            answer = stage.request("POST", "/responses", json={"model": "m", "input": "Go.", "tools": [tool]}).json()
            (read,) = [item["output"] for item in stage.requests[-1].items if item["type"] == "function_call_output"]
            assert read == str(tool)
            assert answer["tools"][0]["allowed_callers"] == ["direct"]


def test_a_refusal_names_the_tool(tmp_path: Path) -> None:
    tools: Any = [{"type": "custom", "name": "mine"}, {"type": "library", "shelf": "none"}]
    with served(tmp_path, [], providers=[Library()]) as stage, pytest.raises(NotFoundError) as refused:
        stage.client().responses.create(model="m", input="Go.", tools=tools)
    assert refused.value.param == "tools[1].shelf"


def test_a_provider_that_fails_does_not_end_the_server(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tools: Any = [{"type": "library", "shelf": "broken"}]
    with served(tmp_path, ["Hi."], providers=[Library()]) as stage:
        with pytest.raises(InternalServerError, match="A tool cannot be prepared"):
            stage.client().responses.create(model="m", input="Go.", tools=tools)
        assert stage.client().responses.create(model="m", input="Go.").output_text == "Hi."
    assert "a tool of the type 'library' cannot be prepared" in caplog.text
