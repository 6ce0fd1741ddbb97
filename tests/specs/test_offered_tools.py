"""What a model is offered where every provider is enabled: a request's own word about hosted types counts."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from antwort import Antwort
from antwort.config import Config
from antwort.testing import ScriptedBackend

PROVIDERS: dict[str, Any] = {
    "basics": {"enabled": True},
    "code_interpreter": {"enabled": True},
    "file_search": {"enabled": True},
    "files": {"enabled": True},
    "programs": {"enabled": True},
    "sub_agents": {"enabled": True},
    "user": {"enabled": True},
    "variables": {"enabled": True},
    "web_search": {"enabled": True, "settings": {"url": "http://127.0.0.1:9"}},
    "workspace": {"enabled": True},
}
HOSTED = {
    *("code_interpreter", "edit_file", "file_search", "find_in_page", "open_page", "read_file", "run_program"),
    *("shell", "web_search", "write_file"),
}
"""Functions of theirs that answer tool types, or belong to one that does, and are offered unasked."""
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "Get the current weather for a location",
    "parameters": {
        "type": "object",
        "properties": {"location": {"type": "string", "description": "The city and state, e.g. San Francisco, CA"}},
        "required": ["location"],
    },
}
QUESTION = "What's the weather like in San Francisco?"


@pytest.fixture
def model() -> ScriptedBackend:
    return ScriptedBackend(["Hello."] * 4)


@pytest.fixture
async def app(tmp_path: Path, model: ScriptedBackend) -> AsyncIterator[Antwort]:
    async with Antwort(Config(data_dir=tmp_path, providers=PROVIDERS), backend=model) as app:
        yield app


async def test_a_list_of_tools_leaves_out_the_hosted_types_that_it_does_not_name(
    app: Antwort, model: ScriptedBackend
) -> None:
    requests: list[Any] = [{}, {"tools": []}, {"tools": [WEATHER]}, {"tools": [{"type": "web_search"}]}]
    for fields in requests:
        await app.run("Hi", **fields)
    plain, empty, own, search = ({tool["name"] for tool in request.tools} for request in model.requests)
    assert plain >= HOSTED
    assert empty == plain - HOSTED
    assert own == empty | {"get_weather"}
    assert search == empty | {"web_search", "open_page", "find_in_page"}
    assert "calculate" in empty


async def test_with_every_provider_the_demo_model_calls_the_function_that_the_request_brings(tmp_path: Path) -> None:
    async with Antwort(Config(data_dir=tmp_path, providers=PROVIDERS)) as app:
        response = await app.run(QUESTION, tools=[WEATHER])
        required = await app.run("Hello!", tools=[WEATHER], tool_choice="required")
    assert [getattr(item, "name", None) for item in response.output] == ["get_weather"]
    assert [getattr(item, "name", None) for item in required.output] == ["get_weather"]
