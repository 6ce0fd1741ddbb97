"""Many agents in the server as it is shipped, over HTTP, on a model that takes 50 ms: limits hold to the last call."""

import contextlib
import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import OpenAI
from tests.providers.sub_agents.model_server import TOKENS, Asked, Decide, ModelServer, Said, model_server
from tests.runs.processes import ServerProcess

from antwort.types import JSON

FULL = bool(os.environ.get("ANTWORT_TEST_FULL"))
CHILDREN = 1000 if FULL else 100
BREADTH = 10 if FULL else 4
"""Agents that each of a tree starts, three levels deep: 1,110 of them, or 84."""
IN_FLIGHT = 16
AT_ONCE = 300 if FULL else 60
PATIENCE = 600.0
TOOLS: Any = [{"type": "function", "name": name} for name in ("spawn_many", "store_get")]


@contextlib.contextmanager
def serving(folder: Path, decide: Decide, **run: Any) -> Iterator[tuple[ServerProcess, ModelServer]]:
    """Start the server with a model behind it; there must be nothing to complain of in the end."""
    limits = {"max_agents": 2 * CHILDREN, "max_in_flight": IN_FLIGHT, **run}
    enabled = {"sub_agents": {"enabled": True}, "variables": {"enabled": True}}
    with model_server(decide) as model:
        server = ServerProcess(folder, model.url, providers=enabled, sections={"engine": {"run": limits}})
        server.start()
        try:
            yield server, model
            assert server.errors == ""
        finally:
            server.kill()


def spawning(asked: Asked) -> Said:
    """Decide as a root agent that starts many, and as each of them."""
    if asked.prompt != "root":
        return f"The result of {asked.prompt}, which goes on for a while so that all of them are long."
    return "Done." if asked.outputs else ("spawn_many", {"configs": [{"prompt": f"task {n}"} for n in range(CHILDREN)]})


def branching(asked: Asked) -> Said:
    """Decide as an agent of a tree."""
    if asked.outputs:
        return "Done."
    if asked.prompt.count("+") == 3:
        return "leaf"
    return "spawn_many", {"configs": [{"prompt": f"{asked.prompt}+"}] * BREADTH}


def answered(server: ServerProcess, *, stream: bool = False) -> JSON:
    """Let the root agent answer, as the SDK reads it."""
    with OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=PATIENCE) as client:
        if not stream:
            return client.responses.create(model="steady", input="root", tools=TOOLS).model_dump()
        with client.responses.stream(model="steady", input="root", tools=TOOLS) as events:
            return events.get_final_response().model_dump()


def client_of(server: ServerProcess) -> httpx.Client:
    """Return a client without the SDK."""
    return httpx.Client(base_url=f"{server.url}/v1", timeout=PATIENCE)


def statuses(server: ServerProcess, response_id: str) -> Counter[str]:
    """Count the agents of a run by their status."""
    with client_of(server) as client:
        found = client.get(f"/responses/{response_id}/agents")
    assert found.status_code == 200, found.text
    return Counter(agent["status"] for agent in found.json()["data"])


@pytest.mark.parametrize("stream", [False, True])
def test_of_many_agents_none_fails_and_as_many_are_in_flight_as_may_be(tmp_path: Path, *, stream: bool) -> None:
    with serving(tmp_path, spawning) as (server, model):
        response = answered(server, stream=stream)
        assert response["status"] == "completed"
        assert response["output"][-1]["content"][0]["text"] == "Done."
        assert statuses(server, response["id"]) == {"completed": CHILDREN + 1}
        assert model.asked == CHILDREN + 2
        assert model.most_in_flight == IN_FLIGHT
        assert response["usage"]["total_tokens"] == model.asked * TOKENS
        [told] = model.read
        assert len(told) < 2000
        assert json.loads(told)["statuses"] == {"completed": CHILDREN}


def test_as_many_agents_work_at_the_same_time_as_the_settings_say(tmp_path: Path) -> None:
    with serving(tmp_path, spawning, max_in_flight=AT_ONCE) as (server, model), client_of(server) as client:
        model.hold()
        body = {"model": "steady", "input": "root", "tools": TOOLS, "background": True}
        response_id = client.post("/responses", json=body).json()["id"]
        model.wait_until(lambda: model.in_flight == AT_ONCE)
        model.release()
        model.wait_until(lambda: model.asked == CHILDREN + 2)
        with client.stream("GET", f"/responses/{response_id}", params={"stream": True}) as events:
            events.read()
        assert statuses(server, response_id) == {"completed": CHILDREN + 1}
        assert model.most_in_flight == AT_ONCE


def test_a_tree_of_many_finishes_with_one_call_at_a_time(tmp_path: Path) -> None:
    with serving(tmp_path, branching, max_in_flight=1) as (server, model):
        response = answered(server)
        below = BREADTH + BREADTH**2 + BREADTH**3
        assert response["status"] == "completed"
        assert statuses(server, response["id"]) == {"completed": below + 1}
        assert model.asked == below + 1 + (1 + BREADTH + BREADTH**2)  # whoever has started others asks twice
        assert model.most_in_flight == 1


def test_tokens_are_passed_by_one_call_for_each_slot_at_most(tmp_path: Path) -> None:
    limit = CHILDREN // 2 * TOKENS
    with serving(tmp_path, spawning, max_tokens=limit) as (server, model):
        response = answered(server)
        assert (response["status"], response["incomplete_details"]) == ("incomplete", {"reason": "budget"})
        used = model.asked * TOKENS
        assert limit <= used <= limit + IN_FLIGHT * TOKENS
        assert response["usage"]["total_tokens"] == used
        assert "in_progress" not in statuses(server, response["id"])


def test_to_cancel_a_tree_stops_its_last_call(tmp_path: Path) -> None:
    with serving(tmp_path, spawning) as (server, model), client_of(server) as client:
        body = {"model": "steady", "input": "root", "tools": TOOLS}
        response_id = client.post("/responses", json={**body, "background": True}).json()["id"]
        model.wait_until(lambda: model.asked > CHILDREN // 2)
        model.hold()
        model.wait_until(lambda: model.in_flight == IN_FLIGHT)
        asked = model.asked
        cancelled = client.post(f"/responses/{response_id}/cancel")
        assert (cancelled.status_code, cancelled.json()["status"]) == (200, "cancelled")
        model.wait_until(lambda: model.in_flight == 0)
        assert (model.asked, model.cut_off) == (asked, IN_FLIGHT)
        model.release()
        assert statuses(server, response_id).keys() == {"completed", "cancelled"}
        # Whoever comes next is the next to ask.
        assert client.post("/responses", json={**body, "input": "something else"}).json()["status"] == "completed"
        assert model.asked == asked + 1
