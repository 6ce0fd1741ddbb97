"""Agents that are cancelled or deleted by their ids, and what a root agent answers with."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.providers.sub_agents.brain import Brain, prompt
from tests.providers.sub_agents.stage import TOOLS, ask, does, stage

from antwort import Antwort
from antwort.backends.base import ModelRequest
from antwort.config import Config
from antwort.context import ANONYMOUS_TENANT, Context
from antwort.providers.sub_agents import SubAgentsProvider
from antwort.testing import Gate, Turn, turn
from antwort.wire.requests import CreateResponse


@pytest.mark.parametrize("how", ["cancelled", "deleted"])
@pytest.mark.parametrize("wait", [True, False], ids=["waited for", "started"])
async def test_an_agent_that_is_cancelled_by_its_id_stops_and_its_parent_goes_on(
    tmp_path: Path, how: str, *, wait: bool
) -> None:
    told: list[str] = []

    def decide(request: ModelRequest) -> Turn | str:
        if prompt(request) != "root":
            return turn("never", wait_for=Gate())
        outputs = [str(item["output"]) for item in request.items if item["type"] == "function_call_output"]
        told[:] = outputs
        if not outputs:
            return does("spawn_agent", prompt="child", wait=wait)
        if not wait and len(outputs) == 1:
            return does("wait_agent", agents=[outputs[0].split('"')[3]])
        return "I go on."

    brain = Brain(decide)
    settings = Config.model_validate({"data_dir": tmp_path, "providers": {}})
    async with asyncio.timeout(60), Antwort(settings, backend=brain, providers=[SubAgentsProvider()]) as app:
        ctx = Context(ANONYMOUS_TENANT, scopes=frozenset({"*"}))
        create = CreateResponse(input="root", model="scripted", tools=TOOLS, background=True)
        plan = await app.engine.plan(create, ctx)
        await app.runs.accept(plan)
        await brain.until(1)
        root_id = plan.response.id
        while True:
            children = await app.engine.store.descendants(ANONYMOUS_TENANT, root_id)
            if children and brain.asked == (2 if wait else 3):
                break
            await asyncio.sleep(0.01)
        act = app.runs.cancel if how == "cancelled" else app.runs.delete
        await act(ANONYMOUS_TENANT, children[0].id)
        events = [event async for event in app.runs.events(ANONYMOUS_TENANT, root_id)]
        assert events[-1].type == "response.completed"
        assert (brain.in_flight, brain.cancelled) == (0, 1)
        assert '"status":"cancelled"' in told[-1]
        response: dict[str, Any] = await app.engine.retrieve(ANONYMOUS_TENANT, root_id)
        assert response["output"][-1]["content"][0]["text"] == "I go on."


@pytest.mark.parametrize("stream", [False, True], ids=["json", "streamed"])
def test_a_root_agent_that_returns_a_reference_answers_with_the_value(tmp_path: Path, *, stream: bool) -> None:
    steps: list[Turn | str] = [
        does("remember", text="found ", times=2000),
        does("return_result", value={"$ref": "remembered"}),
    ]
    with stage(tmp_path, steps) as app:
        assert ask(app, stream=stream).output_text == "found " * 2000
