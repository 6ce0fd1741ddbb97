"""Many agents and large values: windows stay small, limits hold, and a tree that is cancelled stops."""

import asyncio
import base64
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.providers.sub_agents.brain import Brain, prompt, texts
from tests.providers.sub_agents.stage import TOOLS, does

from antwort import Antwort, Context
from antwort.backends.base import ModelRequest
from antwort.config import Config
from antwort.context import ANONYMOUS_TENANT, Progress
from antwort.providers.sub_agents import SubAgentsProvider
from antwort.providers.variables import VariablesProvider
from antwort.testing import Gate, Turn, call, turn
from antwort.types import JSON
from antwort.wire.requests import decode_create
from antwort.wire.responses import ResponseObject

CHILDREN = 1000 if os.environ.get("ANTWORT_TEST_FULL") else 100
LARGE = 100 * 1024**2 if os.environ.get("ANTWORT_TEST_FULL") else 10 * 1024**2
MOST_IN_FLIGHT = 16


class Running:
    """An app that answers in this process."""

    def __init__(self, app: Antwort, brain: Brain) -> None:
        self.app = app
        self.brain = brain

    async def ask(self, text: str = "root", **options: Any) -> ResponseObject:
        """Make a response."""
        return await self.app.run(text, model="scripted", **{"tools": TOOLS, **options})

    async def begin(self, emit: Callable[[Progress], None] | None = None) -> str:
        """Begin a background response."""
        body = {"input": "root", "model": "scripted", "tools": TOOLS, "background": True}
        create = decode_create(msgspec.json.encode(body))
        ctx = Context(ANONYMOUS_TENANT, scopes=frozenset({"*"}))
        plan = await self.app.engine.plan(create, ctx if emit is None else ctx.with_(emit=emit))
        accepted: JSON = msgspec.json.decode(await self.app.runs.accept(plan))
        return str(accepted["id"])


@asynccontextmanager
async def running(
    folder: Path, decide: Callable[[ModelRequest], Turn | str], *, pause: float = 0, **run: Any
) -> AsyncIterator[Running]:
    brain = Brain(decide, pause=pause)
    settings = Config.model_validate({"data_dir": folder, "providers": {}, "engine": {"run": run}})
    async with Antwort(settings, backend=brain, providers=[SubAgentsProvider(), VariablesProvider()]) as app:
        yield Running(app, brain)


def spawning(number: int) -> Callable[[ModelRequest], Turn | str]:
    """Decide as a root agent that starts many, and as each of them."""

    def decide(request: ModelRequest) -> Turn | str:
        if prompt(request) != "root":
            return f"The result of {prompt(request)}, which goes on for a while so that all of them are long."
        if texts(request):
            return "Done."
        return does("spawn_many", configs=[{"prompt": f"task {index}"} for index in range(number)])

    return decide


async def test_many_children_add_little_to_the_window_and_are_as_many_in_flight_as_may_be(tmp_path: Path) -> None:
    async with running(tmp_path, spawning(CHILDREN), pause=0.005, max_agents=CHILDREN + 1) as app:
        response = await app.ask()
        assert response.output_text == "Done."
        [(_, _, told)] = app.brain.read
        assert len(told["output"]) < 2000
        found = msgspec.json.decode(told["output"])
        assert found["statuses"] == {"completed": CHILDREN}
        assert app.brain.most_in_flight == MOST_IN_FLIGHT
        assert app.brain.asked == CHILDREN + 2
        # All results are there, in order, behind the one reference.
        variables = app.app.values.of(Context(ANONYMOUS_TENANT, run_id=response.id, agent_id=response.id))
        results = await variables.load(await variables.find(found["results"]["$ref"]))
        assert [one["index"] for one in results] == list(range(CHILDREN))
        assert all(one["result"].startswith(f"The result of task {one['index']},") for one in results)


async def test_how_far_many_agents_are_is_told_a_few_times(tmp_path: Path) -> None:
    told: list[Progress] = []
    async with running(tmp_path, spawning(CHILDREN), max_agents=CHILDREN + 1) as app:
        response_id = await app.begin(told.append)
        async for _ in app.app.runs.events(ANONYMOUS_TENANT, response_id):
            pass
    assert [progress.fraction for progress in told] == [number / 20 for number in range(1, 21)]
    assert told[-1].message == f"{CHILDREN} of {CHILDREN} agents are done"


async def test_a_reference_given_to_many_children_is_stored_once(tmp_path: Path) -> None:
    def decide(request: ModelRequest) -> Turn | str:
        told = texts(request)
        if not prompt(request).startswith("root"):
            return "short"
        if not told:
            return does("store_set", key="book", value="x" * 1024**2, scope="run")
        if len(told) == 1:
            return turn(
                calls=[call("spawn_many", {"configs": [{"prompt": "read", "context": {"$ref": "book"}}] * CHILDREN})]
            )
        return "Done."

    async with running(tmp_path, decide, max_agents=CHILDREN + 1) as app:
        await app.ask()
        found = [one for one in await app.app.values.list(ANONYMOUS_TENANT) if not one.key.startswith("arguments_")]
        assert sum(variable.size for variable in found if variable.key == "book") == 1024**2
        assert len({variable.blob_id for variable in found}) == len(found) <= 2


async def test_windows_stay_small_while_an_agent_works_over_a_large_value(tmp_path: Path) -> None:
    steps: list[Turn | str] = [
        does("store_get", key="book.txt", limit=300),
        turn(calls=[call("spawn_agent", {"prompt": "look", "context": {"$ref": "book.txt"}})] * 3),
        does("store_get", key="book.txt", offset=1000, limit=400),
        "Found it.",
    ]

    def decide(request: ModelRequest) -> Turn | str:
        told = texts(request)
        if "root" in prompt(request):
            return steps.pop(0)
        if not told:
            return does("store_get", key="book.txt", grep="needle")
        return turn(calls=[call("return_result", {"value": told[-1]})])

    line = b"All work and no play makes Jack a dull boy.\n"
    text = line * (LARGE // len(line) // 2) + b"Here is the needle.\n" + line * (LARGE // len(line) // 2)

    part = {"type": "input_file", "filename": "book.txt", "file_data": base64.b64encode(text).decode()}
    content = [{"type": "input_text", "text": "root: find it"}, part]
    async with running(tmp_path, decide) as app:
        response = await app.app.run(
            [{"role": "user", "content": content}], model="scripted", agent="recursive", store=True
        )
        assert response.output_text == "Found it."
        assert app.brain.largest < 8000
        assert "Here is the needle." in str(app.brain.read)


@pytest.mark.parametrize("in_flight", [1, 3])
async def test_trees_finish_with_few_calls_at_a_time(tmp_path: Path, in_flight: int) -> None:
    def decide(request: ModelRequest) -> Turn | str:
        if texts(request):
            return "Done."
        depth = prompt(request).count("+")
        if depth == 3:
            return "leaf"
        return does("spawn_many", configs=[{"prompt": prompt(request) + "+"}] * 3)

    async with running(tmp_path, decide, max_in_flight=in_flight) as app:
        response = await app.ask()
        assert response.output_text == "Done."
        assert app.brain.most_in_flight == in_flight
        assert app.brain.asked == 1 + 3 + 9 + 27 + (1 + 3 + 9)
        tree = await app.app.runs.agents.tree(ANONYMOUS_TENANT, response.id)
        assert tree is not None
        assert [agent.status for agent in tree] == ["completed"] * 40


async def test_the_number_of_agents_bounds_the_whole_tree(tmp_path: Path) -> None:
    def decide(request: ModelRequest) -> Turn | str:
        return "Done." if texts(request) else does("spawn_many", configs=[{"prompt": "more"}] * 3)

    async with running(tmp_path, decide, max_depth=8, max_agents=50) as app:
        response = await app.ask()
        assert response.output_text == "Done."
        tree = await app.app.runs.agents.tree(ANONYMOUS_TENANT, response.id)
        assert tree is not None
        assert len(tree) <= 50
        assert "This run may have 50 agents" in str(app.brain.read)


@pytest.mark.parametrize("in_flight", [1, 4])
async def test_tokens_are_passed_by_one_call_for_each_slot_at_most(tmp_path: Path, in_flight: int) -> None:
    limit = 300
    async with running(tmp_path, spawning(100), pause=0.001, max_in_flight=in_flight, max_tokens=limit) as app:
        response = await app.ask()
        assert response.status == "incomplete"
        assert response.incomplete_details is not None
        assert response.incomplete_details.reason == "budget"
        assert response.usage is not None
        assert limit <= response.usage.total_tokens <= limit + 15 * in_flight


async def test_to_cancel_a_tree_stops_all_its_calls(tmp_path: Path) -> None:
    gate = Gate()

    def decide(request: ModelRequest) -> Turn | str:
        if prompt(request) == "root":
            return does("spawn_many", configs=[{"prompt": "wait"}] * CHILDREN)
        return turn("never", wait_for=gate)

    async with running(tmp_path, decide, max_agents=CHILDREN + 1) as app:
        response_id = await app.begin()
        async with asyncio.timeout(60):
            await app.brain.until(MOST_IN_FLIGHT)
            await app.app.runs.cancel(ANONYMOUS_TENANT, response_id)
            await app.brain.until(0)
        assert app.brain.cancelled == MOST_IN_FLIGHT
        asked = app.brain.asked
        await asyncio.sleep(0.05)
        assert app.brain.asked == asked
        tree = await app.app.runs.agents.tree(ANONYMOUS_TENANT, response_id)
        assert tree is not None
        assert {agent.status for agent in tree} == {"cancelled"}


async def test_an_agent_whose_time_is_over_stops_asking(tmp_path: Path) -> None:
    def decide(request: ModelRequest) -> Turn | str:
        if prompt(request) != "root":
            return turn("never", wait_for=Gate())
        return does("spawn_agent", prompt="wait") if len(request.items) == 1 else "It took too long."

    brain = Brain(decide)
    settings = Config.model_validate({"data_dir": tmp_path, "providers": {}, "engine": {"deadline": 3}})
    async with Antwort(settings, backend=brain, providers=[SubAgentsProvider()]) as app:
        response = await app.run("root", model="scripted", tools=TOOLS)
        assert (response.status, response.output_text) == ("completed", "It took too long.")
        assert (brain.in_flight, brain.cancelled) == (0, 1)
