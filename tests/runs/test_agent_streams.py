"""Background runs whose streams show sub-agents: what is told of them outlives the process, as all else does."""

import asyncio
import re
from pathlib import Path

import msgspec
from tests.runs.embedded import TENANT, Embedded, embedded

from antwort.context import Context
from antwort.context.agents import AgentTask
from antwort.engine.plan import Shown
from antwort.functions import FunctionSpec
from antwort.testing import Gate, LintedStream, call, turn
from antwort.types import JSON
from antwort.wire.requests import decode_create


async def delegate(ctx: Context, prompt: str) -> str:
    """Let an agent work."""
    return (await ctx.run_agent(prompt)).text


async def begin(ctx: Context, prompt: str) -> list[str]:
    """Let an agent work, and do not wait."""
    return await ctx.agents.start([AgentTask(prompt)])


SPECS = [FunctionSpec.of(one, {"scope": "agent", "attach": True, "timeout": 3600}) for one in (delegate, begin)]


async def accepted(app: Embedded, *, background: bool = True) -> str:
    """Accept a run that shows its agents."""
    create = decode_create(msgspec.json.encode({"input": "Go!", "background": background}))
    plan = await app.app.engine.plan(create, Context(TENANT, scopes=frozenset({"*"})), shown=Shown(agents=True))
    return str(msgspec.json.decode(await app.runs.accept(plan))["id"])


def of_others(stream: LintedStream) -> list[tuple[str, str, str]]:
    """Return the items of sub-agents as they have ended: the agent, the status, the text."""
    ended = [event for event in stream.events if event["type"] == "response.output_item.done"]
    return [
        (str(event["agent"]["agent_name"]), str(event["item"]["status"]), event["item"]["content"][0]["text"])
        for event in ended
        if event.get("agent", {}).get("agent_name", "/root") != "/root"
    ]


async def test_what_a_sub_agent_was_saying_at_a_crash_is_closed_and_it_begins_again(tmp_path: Path) -> None:
    gate = Gate()
    steps = [turn("Well.", calls=[call("delegate", prompt="Count.")]), turn(["One, ", gate, "two."])]
    async with embedded(tmp_path, steps, SPECS) as app:
        response_id = await accepted(app)
        await app.read_until(response_id, lambda event: event.get("delta") == "One, ")
    async with embedded(tmp_path, ["One, two.", "They are two."], SPECS) as app:
        response, stream = await app.result(response_id)
        (name, *cut), (again, *whole) = of_others(stream)
        assert (name, cut, whole) == (again, ["incomplete", "One, "], ["completed", "One, two."])
        assert re.fullmatch(r"/root/agent_[0-9a-f]{8}", name)
        assert [item["content"][0]["text"] for item in response["output"]] == ["Well.", "They are two."]
        assert all("agent" not in item for item in response["output"])


async def test_a_run_that_is_cancelled_keeps_nothing_of_what_its_sub_agents_have_said(tmp_path: Path) -> None:
    gate = Gate()
    steps = [turn("Well.", calls=[call("delegate", prompt="Count.")]), turn(["One, ", gate, "two."])]
    async with embedded(tmp_path, steps, SPECS) as app:
        response_id = await accepted(app)
        await app.read_until(response_id, lambda event: event.get("delta") == "One, ")
        cancelled = await app.runs.cancel(TENANT, response_id)
        assert [item["content"][0]["text"] for item in cancelled["output"]] == ["Well."]


async def test_nothing_is_told_of_sub_agents_after_the_end_of_the_response(tmp_path: Path) -> None:
    gate, told = Gate(), asyncio.Event()

    def is_child(items: list[JSON]) -> bool:
        return any("Count." in str(item) for item in items if item.get("role") == "user")

    steps = [
        turn(calls=[call("begin", prompt="Count.")], by=lambda request: not is_child(list(request.items))),
        turn(["One, ", gate, "two."], by=lambda request: is_child(list(request.items))),
        turn("Done.", wait_for=told, by=lambda request: not is_child(list(request.items))),
    ]
    async with embedded(tmp_path, steps, SPECS) as app:
        response_id = await accepted(app)
        await app.read_until(response_id, lambda event: event.get("delta") == "One, ")
        told.set()
        response, stream = await app.result(response_id)
        assert response["status"] == "completed"
        assert [(status, text) for _, status, text in of_others(stream)] == [("incomplete", "One, ")]
        assert stream.types[-1] == "response.completed"
