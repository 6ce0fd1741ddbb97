"""The provider holds to what all providers do, and its functions are offered where they should be."""

from pathlib import Path
from typing import Any, ClassVar

import httpx
from tests.http.sdk import served
from tests.providers.sub_agents.stage import TOOLS, ask, does, offered, stage, tree

from antwort import Antwort
from antwort.config import Config
from antwort.providers.sub_agents import SubAgentsProvider
from antwort.testing import ProviderContract, ScriptedBackend, Turn, running


class TestSubAgents(ProviderContract):
    provider = SubAgentsProvider
    calls: ClassVar[dict[str, Any]] = {
        "spawn_agent": {"prompt": "Say {canary}."},
        "spawn_many": {"configs": [{"prompt": "Say {canary}."}]},
        "return_result": {"value": "{canary}"},
        "call_llm": {"prompt": "Say {canary}."},
        "call_llm_many": {"prompts": ["Say {canary}."]},
        "wait_agent": {"agents": ["resp_1"]},
        "interrupt_agent": {"agent": "resp_1"},
        "followup_task": {"agent": "resp_1", "prompt": "Say {canary}."},
        "close_agent": {"agent": "resp_1"},
    }


def test_it_is_in_the_default_set_and_offered_to_requests_that_name_its_functions(tmp_path: Path) -> None:
    steps: list[Turn | str] = ["Nothing.", does("spawn_agent", prompt="A"), "A.", "Done."]
    with ScriptedBackend(steps) as model, running(Antwort(Config(data_dir=tmp_path), backend=model)) as server:
        url = f"{server.url}/v1/responses"
        httpx.post(url, json={"input": "Hello"}).raise_for_status()
        assert list(model.requests[0].tools) == []
        named = [{"type": "function", "name": name} for name in ("spawn_agent", "spawn_many")]
        httpx.post(url, json={"input": "Hello", "tools": named}).raise_for_status()
        assert [tool["name"] for tool in model.requests[1].tools] == ["spawn_agent", "spawn_many"]
        # A sub-agent has what its parent has, and what ends it.
        assert [tool["name"] for tool in model.requests[2].tools] == ["spawn_agent", "spawn_many", "return_result"]


def test_functions_of_the_client_are_no_sub_agents(tmp_path: Path) -> None:
    weather: Any = {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}}
    with stage(tmp_path, [does("spawn_agent", prompt="A"), "A.", "Done."]) as app:
        ask(app, stream=False, tools=[weather])
        assert "weather" in offered(app, 0)
        assert "weather" not in offered(app, 1)


def test_the_tree_tells_status_usage_timing_and_reason_and_strangers_nothing(tmp_path: Path) -> None:
    keys = [{"id": name, "key": name * 32, "tenant": name} for name in ("k", "s")]
    steps: list[Turn | str] = [does("spawn_agent", prompt="A"), "A.", "Done."]
    auth = {"api_keys": keys}
    with served(tmp_path, steps, providers=[SubAgentsProvider()], auth=auth) as app:
        tools: Any = TOOLS
        client = app.client("k" * 32)
        response = client.responses.create(model="scripted", input="Go!", tools=tools)
        mine, theirs = ({"authorization": f"Bearer {key['key']}"} for key in keys)
        root, child = tree(app, response.id, headers=mine)["data"]
        assert (root["id"], root["depth"], root["name"], root["parent_id"]) == (response.id, 0, "root", None)
        assert (child["parent_id"], child["depth"], child["index"]) == (response.id, 1, 0)
        for agent in (root, child):
            assert agent["status"] == "completed"
            assert agent["reason"] is None
            assert agent["completed_at"] >= agent["created_at"]
        assert (root["usage"]["total_tokens"], child["usage"]["total_tokens"]) == (30, 15)
        assert response.usage is not None
        assert response.usage.total_tokens == 45
        path = f"/responses/{response.id}/agents"
        assert app.request("GET", path, headers=theirs).status_code == 404
        assert app.request("GET", path).status_code == 401
        assert app.request("GET", "/responses/resp_nothing/agents", headers=mine).status_code == 404
