"""`allowed_tools`: the model server gets these and no others, unless its prompts are to stay the same."""

from pathlib import Path
from typing import Any

import pytest

from antwort import Antwort
from antwort.config import BackendConfig, Config
from antwort.testing import ScriptServer, call, turn

TOOLS: list[Any] = [{"type": "function", "name": name, "parameters": {"type": "object"}} for name in ("look", "book")]
SUM: Any = {"type": "function", "name": "calculate"}
CHOICE: Any = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "calculate"}]}


@pytest.mark.parametrize(("setting", "names"), [("fewer", ["calculate"]), ("all", ["look", "book", "calculate"])])
@pytest.mark.parametrize("mode", ["auto", "required"])
async def test_a_model_server_gets_the_tools_that_are_allowed(
    tmp_path: Path, setting: Any, names: list[str], mode: str
) -> None:
    steps = [turn(calls=[call("calculate", expression="6*7"), call("look")]), turn("It is 42.")]
    with ScriptServer(steps) as server:
        backends = {"local": BackendConfig(url=server.url, allowed_tools=setting)}
        async with Antwort(Config(data_dir=tmp_path, backends=backends)) as app:
            choice = {**CHOICE, "mode": mode}
            response = await app.run("6*7?", model="scripted", tools=[*TOOLS, SUM], tool_choice=choice)
    assert [[tool["function"]["name"] for tool in sent["tools"]] for sent in server.requests] == [names, names]
    assert [sent["tool_choice"] for sent in server.requests] == [mode, "auto"]
    # Whatever the model saw, what is not allowed is not called.
    done, refused = server.requests[1]["messages"][-2:]
    assert done["content"] == "42"
    assert "may not be called" in refused["content"]
    assert [tool["name"] for tool in response.tools] == ["look", "book", "calculate"]


@pytest.mark.parametrize(("setting", "names"), [("fewer", ["calculate"]), ("all", ["look", "book", "calculate"])])
async def test_of_a_function_that_is_chosen_by_name_a_server_needs_to_know_only_that_it_must_call(
    tmp_path: Path, setting: Any, names: list[str]
) -> None:
    """Ollama heeds no choice, llama.cpp and LM Studio none that is a name: what they do not see they do not call."""
    with ScriptServer([turn(calls=[call("calculate", expression="6*7")]), turn("It is 42.")]) as server:
        backends = {"local": BackendConfig(url=server.url, allowed_tools=setting)}
        async with Antwort(Config(data_dir=tmp_path, backends=backends)) as app:
            choice = {"type": "function", "name": "calculate"}
            response = await app.run("6*7?", model="scripted", tools=[*TOOLS, SUM], tool_choice=choice)
    first, second = server.requests
    assert [tool["function"]["name"] for tool in first["tools"]] == names
    named = {"type": "function", "function": {"name": "calculate"}}
    assert first["tool_choice"] == ("required" if len(names) == 1 else named)
    # What was required is done: the model may call what it likes, or answer.
    assert (len(second["tools"]), second["tool_choice"]) == (3, "auto")
    assert response.tool_choice == choice


@pytest.mark.parametrize("choice", ["none", {**CHOICE, "mode": "none"}])
async def test_other_choices_leave_all_of_them(tmp_path: Path, choice: Any) -> None:
    with ScriptServer(["Well."]) as server:
        backends = {"local": BackendConfig(url=server.url)}
        async with Antwort(Config(data_dir=tmp_path, backends=backends)) as app:
            await app.run("Hi", model="scripted", tools=[*TOOLS, SUM], tool_choice=choice)
    assert len(server.requests[0]["tools"]) == 3


async def test_tokens_are_counted_of_what_the_model_reads(tmp_path: Path) -> None:
    with ScriptServer(["Well."], tokenizer="vllm", context_window=10_000) as server:
        backends = {"local": BackendConfig(url=server.url, context_window=1)}
        async with Antwort(Config(data_dir=tmp_path, backends=backends)) as app:
            await app.run("Hi", model="scripted", tools=[*TOOLS, SUM], tool_choice=CHOICE, truncation="auto")
    assert [len(counted["tools"]) for counted in server.tokenized] == [1]
