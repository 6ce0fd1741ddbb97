"""The agents of a run, drawn in the terminal."""

import io
from collections.abc import Callable
from pathlib import Path

from tests.runs.embedded import embedded

from antwort.cli.call_lines import AgentTree, drawn
from antwort.context import Context
from antwort.context.agents import AgentInfo, AgentStatus, AgentTask
from antwort.functions import FunctionSpec
from antwort.testing import Turn, call, turn
from antwort.wire.responses import Usage


def agent(
    response_id: str, parent: str | None = "resp_root", status: AgentStatus = "in_progress", reason: str | None = None
) -> AgentInfo:
    return AgentInfo(
        id=response_id,
        response_id=response_id,
        parent_id=parent,
        call_id="call_1",
        index=0,
        name="reader",
        depth=1,
        status=status,
        model="m",
        created_at=0,
        completed_at=None,
        usage=Usage(total_tokens=1200) if status == "completed" else None,
        reason=reason,
    )


def test_each_agent_stands_below_the_one_that_began_it() -> None:
    agents = [
        agent("resp_aaaaaa", status="completed"),
        agent("resp_bbbbbb"),
        agent("resp_cccccc", parent="resp_bbbbbb", status="failed", reason="It\x1b[2J broke."),
    ]
    assert list(drawn(agents)) == [
        "├─ ✓ reader aaaaaa  1,200 tokens",
        "└─ … reader bbbbbb",
        "   └─ ✗ reader cccccc  It\\x1b[2J broke.",
    ]


def test_of_many_agents_only_some_are_drawn() -> None:
    lines = list(drawn([agent(f"resp_{number:06}", status="completed") for number in range(1000)]))
    assert len(lines) == 17
    assert lines[-1] == "└─ … and 984 more, 984 of them done"


def test_lines_stand_above_the_tree_and_below_it_once_the_answer_has_begun() -> None:
    out = io.StringIO()
    tree = AgentTree(out, clock=lambda: 0.0, later=lambda seconds, work: None)
    tree.say("→ spawn")
    tree.take(agent("resp_aaaaaa"))
    tree.say("→ read")
    tree.end()
    tree.say("✗ read")
    drawing = "└─ … reader aaaaaa\n"
    back = "\x1b[1A\x1b[J"
    assert out.getvalue() == f"→ spawn\n{drawing}{back}→ read\n{drawing}{back}{drawing}✗ read\n"


def test_a_drawing_takes_the_place_of_the_one_before_until_the_answer_begins() -> None:
    out, now = io.StringIO(), 0.0
    tree = AgentTree(out, clock=lambda: now, later=lambda seconds, work: None)
    tree.take(agent("resp_aaaaaa"))
    tree.take(agent("resp_bbbbbb"))  # too soon
    assert out.getvalue() == "└─ … reader aaaaaa\n"
    now = 1.0
    tree.take(agent("resp_aaaaaa", status="completed"))
    assert out.getvalue().endswith("\x1b[1A\x1b[J├─ ✓ reader aaaaaa  1,200 tokens\n└─ … reader bbbbbb\n")
    tree.end()
    told = out.getvalue()
    tree.take(agent("resp_cccccc"))
    tree.end()
    assert out.getvalue() == told


def test_what_came_too_soon_is_drawn_later() -> None:
    out, later = io.StringIO(), list[tuple[float, Callable[[], None]]]()
    tree = AgentTree(out, clock=lambda: 0.0, later=lambda seconds, work: later.append((seconds, work)))
    for name in ("resp_aaaaaa", "resp_bbbbbb", "resp_cccccc"):
        tree.take(agent(name))
    assert out.getvalue() == "└─ … reader aaaaaa\n"
    [(seconds, catch_up)] = later
    catch_up()
    assert seconds > 0
    assert out.getvalue().endswith("├─ … reader aaaaaa\n├─ … reader bbbbbb\n└─ … reader cccccc\n")
    tree.take(agent("resp_dddddd"))
    tree.end()
    told = out.getvalue()
    later[-1][1]()
    assert len(later) == 2
    assert out.getvalue() == told


async def test_watchers_are_told_when_agents_begin_and_when_they_are_done(tmp_path: Path) -> None:
    async def spawn(ctx: Context) -> str:
        """Let an agent work."""
        [result] = await ctx.run_agents([AgentTask("Count!")])
        return result.text

    steps: list[Turn | str] = [turn(calls=[call("spawn")]), "One.", "Done."]
    async with embedded(tmp_path, steps, [FunctionSpec.of(spawn, {"scope": "agent"})]) as app:
        seen: list[tuple[str, str]] = []
        app.runs.agents.watch(lambda told: seen.append((told.name, told.status)))
        await app.app.engine.respond(await app.plan({"input": "Go!", "store": False}))
        assert [status for _, status in seen] == ["in_progress", "completed"]
