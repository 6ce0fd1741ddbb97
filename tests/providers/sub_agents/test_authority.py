"""Authority only shrinks: whom an agent may start, and what holds below it."""

from pathlib import Path
from typing import Any

import pytest
from tests.providers.sub_agents.stage import ask, does, offered, output, outputs, stage
from tests.runs.embedded import TENANT, embedded
from tests.runs.test_agents import open_questions, until_parked

from antwort.config.engine import Approval
from antwort.context import Context
from antwort.context.agents import AgentTask
from antwort.errors import ConfigError
from antwort.functions import FunctionSpec
from antwort.testing import Turn, call, matching, turn


class Page:
    """A page to which something is appended, and which can be read."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    async def append(self, line: str) -> str:
        """Append a line."""
        self.lines.append(line)
        return "It stands there."

    async def look(self) -> str:
        """Read the page."""
        return "\n".join(self.lines)

    async def wipe(self) -> str:
        """Empty the page."""
        self.lines.clear()
        return "It is empty."

    async def delegate(self, ctx: Context, model: str) -> str:
        """Let an agent work with a model."""
        [result] = await ctx.run_agents([AgentTask("write", model=model)])
        return result.reason or result.text

    def specs(self, approval: Approval = "never") -> list[FunctionSpec]:
        return [
            FunctionSpec.of(self.append, {"approval": approval}),
            FunctionSpec.of(self.look),
            FunctionSpec.of(self.wipe, {"offer": "on_request"}),
            FunctionSpec.of(self.delegate, {"scope": "agent", "attach": True}),
        ]


WRITER: dict[str, Any] = {"functions": ["append"], "approval": {"append": "never"}}
ASKS: dict[str, Any] = {"functions": ["spawn_agent", "append"], "approval": {"append": "always"}}
PROVIDERS: dict[str, Any] = {"sub_agents": {"enabled": True}}
START = does("spawn_agent", prompt="write", agent="writer")
WRITES = turn(calls=[call("append", line="Hello.")], by=matching(last="write"))


@pytest.mark.parametrize("stream", [False, True], ids=["json", "streamed"])
@pytest.mark.parametrize("declared", [None, [], ["reader"]])
def test_an_agent_starts_none_that_it_does_not_declare(
    tmp_path: Path, declared: list[str] | None, *, stream: bool
) -> None:
    boss: dict[str, Any] = {"functions": ["spawn_agent"]}
    if declared is not None:
        boss["agents"] = declared
    page = Page()
    agents = {"boss": boss, "writer": WRITER, "reader": {"functions": ["look"]}}
    with stage(tmp_path, [START, "I cannot."], functions=page.specs(), agents=agents) as app:
        response = ask(app, stream=stream, extra_body={"agent": "boss"})
        assert response.output_text == "I cannot."
        assert "may not start the agent 'writer'" in outputs(app)[-1]
        assert page.lines == []


@pytest.mark.parametrize("declared", [False, True])
def test_a_request_without_an_agent_starts_those_that_the_run_declares(tmp_path: Path, *, declared: bool) -> None:
    page = Page()
    engine: dict[str, Any] = {"run": {"agents": ["writer"]}} if declared else {}
    written: list[Turn | str] = [WRITES, "Written."] if declared else []
    steps: list[Turn | str] = [START, *written, "Done."]
    with stage(tmp_path, steps, functions=page.specs(), agents={"writer": WRITER}, engine=engine) as app:
        ask(app, stream=False)
        assert page.lines == (["Hello."] if declared else [])
        assert ("may not start the agent 'writer'" in outputs(app)[-1]) is not declared


def test_an_agent_that_is_named_as_a_model_has_to_be_declared_too(tmp_path: Path) -> None:
    page = Page()
    steps: list[Turn | str] = [does("delegate", model="writer"), "I cannot."]
    with stage(tmp_path, steps, functions=page.specs(), agents={"writer": WRITER}) as app:
        ask(app, stream=False)
        assert "may not start the agent 'writer'" in outputs(app)[-1]


@pytest.mark.parametrize("approve", [False, True])
@pytest.mark.parametrize("who", ["agent", "function"])
async def test_what_needs_a_yes_above_needs_one_below(tmp_path: Path, who: str, *, approve: bool) -> None:
    """Whether the agent above says so, or the function itself and nobody above it says otherwise."""
    page = Page()
    boss = {**ASKS, "agents": ["middle"]}
    if who == "function":
        del boss["approval"]
    agents = {"boss": boss, "middle": {"functions": ["spawn_agent"], "agents": ["writer"]}, "writer": WRITER}
    if who == "function":
        agents["middle"]["approval"] = "never"
    steps: list[Turn | str] = [
        does("spawn_agent", prompt="delegate", agent="middle"),
        turn(calls=[call("spawn_agent", prompt="write", agent="writer")], by=matching(last="delegate")),
        WRITES,
        "Written.",
        "Told.",
        "Done.",
    ]
    specs = page.specs("always" if who == "function" else "never")
    async with embedded(tmp_path, steps, specs, agents=agents, providers=PROVIDERS) as app:
        response_id = await app.accept(agent="boss")
        await until_parked(app, response_id)
        assert page.lines == []
        [question] = await open_questions(app)
        assert question.kind == "approval"
        await app.runs.questions.answer(TENANT, question.id, {"approve": approve})
        response, _ = await app.result(response_id)
        assert response["output"][-1]["content"][0]["text"] == "Done."
        assert page.lines == (["Hello."] if approve else [])


def test_functions_that_were_taken_from_an_agent_do_not_come_back_below_it(tmp_path: Path) -> None:
    steps: list[Turn | str] = [
        does("spawn_agent", prompt="first", functions=["spawn_agent"]),
        turn(calls=[call("spawn_agent", prompt="second")], by=matching(last="first")),
        turn("nothing", by=matching(last="second")),
        "Told.",
        "Done.",
    ]
    page = Page()
    with stage(tmp_path, steps, functions=page.specs()) as app:
        ask(app, stream=False)
        assert {"append", "look"} <= set(offered(app, 0))
        assert sorted(offered(app, 1)) == sorted(offered(app, 2)) == ["return_result", "spawn_agent"]


def test_an_agent_that_starts_itself_has_no_new_functions(tmp_path: Path) -> None:
    steps: list[Turn | str] = [
        does("spawn_agent", prompt="first", functions=["spawn_agent", "look"]),
        turn(calls=[call("spawn_agent", prompt="second", agent="boss")], by=matching(last="first")),
        turn("nothing", by=matching(last="second")),
        "Told.",
        "Done.",
    ]
    page = Page()
    agents = {"boss": {"functions": ["spawn_agent", "append", "look"]}}
    with stage(tmp_path, steps, functions=page.specs(), agents=agents) as app:
        ask(app, stream=False, extra_body={"agent": "boss"})
        assert sorted(offered(app, 2)) == ["look", "return_result", "spawn_agent"]


def test_tools_that_a_request_does_not_allow_are_not_allowed_below(tmp_path: Path) -> None:
    steps: list[Turn | str] = [
        does("spawn_agent", prompt="first"),
        turn("nothing", by=matching(last="first")),
        "Done.",
    ]
    page = Page()
    allowed = [{"type": "function", "name": "spawn_agent"}, {"type": "function", "name": "look"}]
    choice = {"type": "allowed_tools", "mode": "auto", "tools": allowed}
    with stage(tmp_path, steps, functions=page.specs()) as app:
        ask(app, stream=False, tool_choice=choice, tools=[{"type": "function", "name": "wipe"}])
        assert sorted(offered(app, 1)) == ["look", "return_result", "spawn_agent"]


def test_a_declared_agent_has_its_own_functions_and_can_be_given_fewer(tmp_path: Path) -> None:
    steps: list[Turn | str] = [
        does("spawn_agent", prompt="first", agent="writer"),
        turn("all", by=matching(last="first")),
        does("spawn_agent", prompt="second", agent="writer", functions=["look"]),
        turn("fewer", by=matching(last="second")),
        does("spawn_agent", prompt="third", agent="writer", functions=["wipe"]),
        "Done.",
    ]
    agents = {
        "boss": {"functions": ["spawn_agent"], "agents": ["writer"]},
        "writer": {"functions": ["append", "look"]},
    }
    page = Page()
    with stage(tmp_path, steps, functions=page.specs(), agents=agents) as app:
        ask(app, stream=False, extra_body={"agent": "boss"})
        assert sorted(offered(app, 1)) == ["append", "look", "return_result"]
        assert sorted(offered(app, 3)) == ["look", "return_result"]
        assert "There is no function 'wipe' here" in outputs(app)[-1]


def test_limits_of_the_agent_above_hold_below_it(tmp_path: Path) -> None:
    steps: list[Turn | str] = [
        does("spawn_agent", prompt="write", agent="writer"),
        WRITES,
        turn(calls=[call("append", line="Again.")], by=matching(last="It stands there.")),
        turn(calls=[call("append", line="Once more.")], by=matching(last="limit of function calls")),
        "Done.",
    ]
    agents = {
        "boss": {"functions": ["spawn_agent"], "agents": ["writer"], "max_turns": 3, "max_output_tokens": 500},
        "writer": {**WRITER, "max_turns": 40, "max_tool_calls": 30, "max_output_tokens": 9000},
    }
    page = Page()
    with stage(tmp_path, steps, functions=page.specs(), agents=agents) as app:
        ask(app, stream=False, extra_body={"agent": "boss"}, max_tool_calls=1)
        assert page.lines == ["Hello."]
        assert app.requests[1].max_output_tokens == 500
        found = output(app)
        assert (found["status"], found["reason"]) == ("incomplete", "max_tool_calls")


@pytest.mark.parametrize(
    ("sections", "setting"),
    [
        ({"agents": {"boss": {"agents": ["wroter"]}, "writer": WRITER}}, "agents.boss.agents"),
        ({"agents": {"writer": WRITER}, "engine": {"run": {"agents": ["wroter"]}}}, "engine.run.agents"),
    ],
)
async def test_an_agent_that_is_not_there_cannot_be_declared(
    tmp_path: Path, sections: dict[str, Any], setting: str
) -> None:
    with pytest.raises(ConfigError, match=rf"{setting}.*'wroter'.*writer"):
        async with embedded(tmp_path, [], Page().specs(), **sections):
            pass
