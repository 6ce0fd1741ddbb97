"""Sub-agents and questions: trees of responses in one run, with one budget, that park and go on."""

import asyncio
import math
import re
from pathlib import Path
from typing import Any

import pytest
from tests.runs.embedded import TENANT, Embedded, embedded

from antwort.context import Context
from antwort.context.agents import AgentTask
from antwort.context.calls import SuspendedError, Suspension
from antwort.engine.budget import Budget
from antwort.engine.turns.loop import Loop
from antwort.errors import ConflictError, NotFoundError
from antwort.functions import FunctionRegistry, FunctionSpec
from antwort.runs.agents_at_work import AgentsAtWork
from antwort.runs.background import BackgroundRun
from antwort.storage.base import Question, ResponseRecord
from antwort.testing import Gate, Turn, call, fail, matching, turn


class Functions:
    """Functions on sub-agents and questions."""

    def __init__(self) -> None:
        self.worked: list[str] = []
        self.gate = Gate()
        self.begun = Gate()

    async def spawn(self, ctx: Context, prompts: list[str]) -> list[dict[str, Any]]:
        """Let agents work."""
        results = await ctx.run_agents([AgentTask(prompt) for prompt in prompts])
        return [{"status": result.status, "text": result.text, "reason": result.reason} for result in results]

    async def consult(self, ctx: Context) -> str:
        """Let one agent work, then ask the model about it."""
        first = await ctx.run_agent("first")
        second = await ctx.call_model(f"second, after {first.text}", instructions="Be short.")
        return f"{first.text} {second.text}"

    async def start(self, ctx: Context, prompt: str) -> list[str]:
        """Let an agent work, and do not wait."""
        return await ctx.agents.start([AgentTask(prompt)])

    async def wait(self, ctx: Context, ids: list[str]) -> list[str]:
        """Wait for agents."""
        return [result.text for result in await ctx.agents.wait(ids)]

    async def ask(self, question: str) -> str:
        """Ask the user."""
        raise SuspendedError(Suspension("question", {"question": question}))

    async def answer(self, text: str) -> str:
        """Answer."""
        return text

    async def remember(self, ctx: Context, what: str) -> str:
        """Keep something for the run, when the time has come."""
        self.begun.open()
        await self.gate.wait()
        return (await ctx.variables.set("what", what, scope="run")).key

    async def work(self, what: str) -> str:
        """Work on something."""
        self.worked.append(what)
        self.begun.open()
        await self.gate.wait()
        return f"{what} is done"

    def specs(self) -> list[FunctionSpec]:
        return [
            FunctionSpec.of(self.spawn, {"scope": "agent", "attach": True, "timeout": math.inf}),
            FunctionSpec.of(self.consult, {"scope": "agent", "attach": True, "timeout": math.inf}),
            FunctionSpec.of(self.start, {"scope": "agent", "attach": True, "timeout": math.inf}),
            FunctionSpec.of(self.wait, {"scope": "agent", "attach": True, "timeout": math.inf}),
            FunctionSpec.of(self.ask, {"scope": "user", "effect": "suspend", "attach": True}),
            FunctionSpec.of(self.answer, {"effect": "end_agent"}),
            FunctionSpec.of(self.remember),
            FunctionSpec.of(self.work),
        ]


async def until_parked(app: Embedded, response_id: str) -> None:
    async with asyncio.timeout(30):
        while True:
            record = await app.store.get(TENANT, response_id)
            assert record is not None
            if record.parked:
                break
            assert record.status in {"queued", "in_progress"}, record.body
            await asyncio.sleep(0.01)
    await app.at_rest()


async def open_questions(app: Embedded) -> list[Question]:
    return list((await app.runs.questions.page(TENANT, status="open", order="asc")).data)


def outputs(app: Embedded, number: int = -1) -> list[str]:
    return [item["output"] for item in app.asked(number) if item["type"] == "function_call_output"]


@pytest.mark.parametrize("where", ["it leaves", "it looks for the answer"])
async def test_an_answer_that_comes_while_a_run_is_parked_lets_one_go_on_and_not_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    functions, parked, answered, resumed = Functions(), Gate(), Gate(), list[str]()
    run, look, resume = Loop.run, BackgroundRun.has_answer, BackgroundRun._resume

    async def pause() -> None:
        parked.open()
        await answered.wait()

    async def leave(loop: Loop) -> None:
        await run(loop)
        if loop.parked and where == "it leaves":
            await pause()

    async def looked(work: BackgroundRun) -> bool:
        if where == "it looks for the answer":
            await pause()
        return await look(work)

    async def counted(work: BackgroundRun, record: ResponseRecord | None = None) -> Loop | None:
        resumed.append(work._id)
        return await resume(work, record)

    for thing, name, wrapped in (
        (Loop, "run", leave),
        (BackgroundRun, "has_answer", looked),
        (BackgroundRun, "_resume", counted),
    ):
        monkeypatch.setattr(thing, name, wrapped)
    steps = [turn(calls=[call("ask", question="Which one?")]), said("Blue it is.")]
    async with embedded(tmp_path, steps, functions.specs()) as app:
        response_id = await app.accept("Choose!")
        await parked.wait()
        [question] = await open_questions(app)
        await app.runs.questions.answer(TENANT, question.id, {"text": "Blue."})
        answered.open()
        response, _ = await app.result(response_id)
        assert response["status"] == "completed"
        await app.at_rest()
    assert resumed == [response_id]


@pytest.mark.parametrize("background", [False, True])
async def test_sub_agents_answer_in_the_order_of_their_tasks(tmp_path: Path, *, background: bool) -> None:
    functions = Functions()
    steps = [turn(calls=[call("spawn", prompts=["one", "two"])], usage=(3, 2)), *map(said, ["eins", "zwei"])]
    config: dict[str, Any] = {"engine": {"run": {"max_in_flight": 1}}}
    async with embedded(tmp_path, [*steps, said("Done.")], functions.specs(), **config) as app:
        if background:
            response, _ = await app.result(await app.accept("Count!"))
        else:
            plan = await app.plan({"input": "Count!"})
            await app.app.engine.respond(plan)
            response = await app.retrieve(plan.response.id)
        assert [item["type"] for item in response["output"]] == ["message"]
        assert response["usage"]["total_tokens"] == 8
        assert outputs(app) == [
            '[{"status":"completed","text":"eins","reason":null},{"status":"completed","text":"zwei","reason":null}]'
        ]
        tree = await app.runs.agents.tree(TENANT, response["id"])
        assert tree is not None
        assert [(agent.depth, agent.index, agent.status) for agent in tree] == [
            (0, None, "completed"),
            (1, 0, "completed"),
            (1, 1, "completed"),
        ]
        listed = await app.store.list_responses(TENANT, limit=10)
        assert [entry.record.id for entry in listed.data] == [response["id"]]
        await app.store.delete(TENANT, response["id"])
        assert await app.store.get(TENANT, tree[1].response_id) is None


def said(text: str) -> Any:
    return turn(text, usage=(1, 0))


async def test_a_function_that_ends_the_agent_gives_its_answer(tmp_path: Path) -> None:
    functions = Functions()
    steps = [turn(calls=[call("answer", text="42"), call("work", what="the rest")])]
    functions.gate.open()
    async with embedded(tmp_path, steps, functions.specs()) as app:
        response, stream = await app.result(await app.accept("What?"))
        assert stream.text == "42"
        assert response["status"] == "completed"
        assert functions.worked == ["the rest"]


async def test_a_run_is_parked_until_its_question_is_answered(tmp_path: Path) -> None:
    functions = Functions()
    async with embedded(tmp_path, [turn(calls=[call("ask", question="Which?")])], functions.specs()) as app:
        response_id = await app.accept("Do it!")
        await until_parked(app, response_id)
        assert app.runs.idle
        [question] = await open_questions(app)
        assert question.body == {"question": "Which?"}
        with pytest.raises(NotFoundError):
            await app.runs.questions.answer("stranger", question.id, {"text": "B"})
    async with embedded(tmp_path, ["Blue it is."], functions.specs()) as app:
        assert app.runs.idle  # a start does not wake it
        await app.runs.questions.answer(TENANT, question.id, {"text": "The blue one."})
        with pytest.raises(ConflictError):
            await app.runs.questions.answer(TENANT, question.id, {"text": "The red one."})
        response, _ = await app.result(response_id)
        assert outputs(app) == ["The blue one."]
        kinds = [item["type"] for item in response["output"]]
        assert kinds == ["function_call", "message"]


async def test_a_question_in_the_foreground_is_a_call_that_the_client_answers(tmp_path: Path) -> None:
    functions = Functions()
    tools = [{"type": "function", "name": "ask"}]
    asks = turn(calls=[call("ask", {"question": "Which?"}, call_id="call_1")])
    async with embedded(tmp_path, [asks, "Blue."], functions.specs()) as app:
        plan = await app.plan({"input": "Do it!", "tools": tools})
        first = await app.app.engine.respond(plan)
        assert first.status == "completed"
        answer = {"type": "function_call_output", "call_id": "call_1", "output": "The blue one."}
        follow_up = {"previous_response_id": first.id, "input": [answer]}
        plan = await app.plan(follow_up)
        assert plan.ctx.run_id == first.id
        second = await app.app.engine.respond(plan)
        assert second.output_text == "Blue."
        assert outputs(app) == ["The blue one."]
        with pytest.raises(ConflictError):
            await app.plan(follow_up)


async def test_several_questions_are_one_pause(tmp_path: Path) -> None:
    functions = Functions()
    calls = turn(calls=[call("ask", question="A?"), call("ask", question="B?")])
    async with embedded(tmp_path, [calls, "Thanks."], functions.specs()) as app:
        response_id = await app.accept("Do it!")
        await until_parked(app, response_id)
        first, second = await open_questions(app)
        await app.runs.questions.answer(TENANT, second.id, {"text": "b"})
        assert app.runs.idle
        await app.runs.questions.answer(TENANT, first.id, {"text": "a"})
        await app.result(response_id)
        assert outputs(app) == ["a", "b"]


async def test_children_go_on_after_a_crash_and_none_starts_twice(tmp_path: Path) -> None:
    functions = Functions()
    steps = [
        turn(calls=[call("spawn", prompts=["one", "two"])]),
        said("eins"),
        turn(calls=[call("work", what="two")]),
    ]
    config: dict[str, Any] = {"engine": {"run": {"max_in_flight": 1}}}
    async with embedded(tmp_path, steps, functions.specs(), **config) as app:
        response_id = await app.accept("Go!")
        async with asyncio.timeout(30):
            await functions.begun.wait()
    functions.gate.open()
    async with embedded(tmp_path, [said("zwei"), "Done."], functions.specs(), **config) as app:
        response, _ = await app.result(response_id)
        assert response["output"][0]["content"][0]["text"] == "Done."
        assert functions.worked == ["two"]
        [result] = outputs(app)
        assert '"text":"eins"' in result
        assert '"text":"zwei"' in result
        assert len(await app.store.descendants(TENANT, response_id)) == 2


async def test_a_call_can_start_several_agents_after_each_other(tmp_path: Path) -> None:
    functions = Functions()
    steps = [turn(calls=[call("consult")]), turn(calls=[call("work", what="first")])]
    async with embedded(tmp_path, steps, functions.specs()) as app:
        response_id = await app.accept("Go!")
        async with asyncio.timeout(30):
            await functions.begun.wait()
    functions.gate.open()
    async with embedded(tmp_path, [said("eins"), said("zwei"), "Done."], functions.specs()) as app:
        await app.result(response_id)
        assert outputs(app) == ["eins zwei"]
        asked = app.asked(1)
        assert "second, after eins" in str(asked)
        assert [record.child_index for record in await app.store.descendants(TENANT, response_id)] == [0, 1]


async def test_a_run_that_goes_on_counts_what_agents_have_spent_that_are_done(tmp_path: Path) -> None:
    functions = Functions()
    steps = [
        turn(calls=[call("spawn", prompts=["one"])], usage=(3, 2)),
        turn("eins", usage=(60, 40)),
        turn(calls=[call("work", what="more")], usage=(3, 2)),
    ]
    async with embedded(tmp_path, steps, functions.specs()) as app:
        response_id = await app.accept("Go!")
        async with asyncio.timeout(30):
            await functions.begun.wait()
    functions.gate.open()
    async with embedded(tmp_path, [turn("Done.", usage=(3, 2))], functions.specs()) as app:
        response, _ = await app.result(response_id)
        assert response["usage"]["total_tokens"] == 115


async def test_without_an_app_there_are_no_agents() -> None:
    registry = FunctionRegistry()
    registry.register(FunctionSpec.of(Functions().consult))
    result = await registry.execute("consult", {}, Context(TENANT))
    assert result.is_error
    assert "need a running app" in result.output


async def test_values_of_a_run_that_is_not_stored_are_gone_with_it(tmp_path: Path) -> None:
    async def note(ctx: Context) -> str:
        """Note something."""
        return (await ctx.variables.set("noted", "something")).id

    for store in (False, True):
        steps: list[Turn | str] = [turn(calls=[call("note")]), "Done."]
        async with embedded(tmp_path, steps, [FunctionSpec.of(note)]) as app:
            plan = await app.plan({"input": "Note!", "store": store})
            await app.app.engine.respond(plan)
            [variable_id] = outputs(app)
            assert (await app.app.values.get(TENANT, variable_id) is not None) is store


@pytest.mark.parametrize("background", [False, True])
async def test_an_agent_that_nobody_waits_for_ends_with_its_run(tmp_path: Path, *, background: bool) -> None:
    functions, gate = Functions(), Gate()
    steps: list[Turn | str] = [
        turn(calls=[call("start", prompt="Slowly!")], by=matching(last="Go!")),
        turn("Never.", wait_for=gate, by=matching(last="Slowly!")),
        turn("Done.", by=matching(last={"type": "function_call_output"})),
    ]
    async with embedded(tmp_path, steps, functions.specs()) as app:
        plan = await app.plan({"input": "Go!", "background": background})
        if background:
            await app.runs.accept(plan)
            await app.at_rest()
        else:
            await app.app.engine.respond(plan)
        [child] = await app.store.descendants(TENANT, plan.response.id)
        assert child.status == "cancelled"
        assert (await app.retrieve(plan.response.id))["status"] == "completed"
        assert counted(app) == {"completed": 1, "cancelled": 1}


async def test_agents_of_a_run_that_was_taken_over_are_left_to_whose_it_is_now(tmp_path: Path) -> None:
    functions, gate = Functions(), Gate()
    steps: list[Turn | str] = [
        turn(calls=[call("start", prompt="Slowly!")], by=matching(last="Go!")),
        turn("Never.", wait_for=Gate(), by=matching(last="Slowly!")),
        turn("Done.", wait_for=gate, by=matching(last={"type": "function_call_output"})),
    ]
    async with embedded(tmp_path, steps, functions.specs()) as app:
        response_id = await app.accept("Go!")
        await gate.reached()
        assert await app.store.claim(TENANT, response_id) is not None  # as another process does
        gate.open()
        await app.at_rest()
        [child] = await app.store.descendants(TENANT, response_id)
        assert child.status == "in_progress"


async def test_a_work_on_a_run_that_ends_late_leaves_the_agents_of_the_next_one_in_the_same_process(
    tmp_path: Path,
) -> None:
    async with embedded(tmp_path, []) as app:
        before, after = await app.plan({"input": "Go!"}), await app.plan({"input": "Go!"})
        after.response.id = before.response.id  # it was taken over, and has come back before this had noticed
        at_work, [earlier, later] = AgentsAtWork(app.app.engine), [plan.ctx.budget for plan in (before, after)]
        assert isinstance(earlier, Budget)
        assert isinstance(later, Budget)
        agents = at_work.open_run(before, earlier), at_work.open_run(after, later)
        await earlier.close("broken_off")
        assert (at_work.of_run(before), at_work.of_run(after)) == (None, agents[1])
        await later.close("broken_off")
        assert at_work.of_run(after) is None


async def test_an_agent_in_the_background_whose_model_stays_away_has_failed(tmp_path: Path) -> None:
    functions = Functions()
    steps: list[Turn | str] = [
        turn(calls=[call("spawn", prompts=["one"])], by=matching(last="Go!")),
        turn(error=fail(429, "Slow down."), by=matching(last="one")),
        turn("Done.", by=matching(last={"type": "function_call_output"})),
    ]
    async with embedded(tmp_path, steps, functions.specs(), engine={"outage_patience": 0}) as app:
        response, _ = await app.result(await app.accept("Go!"))
        assert response["status"] == "completed"
        [child] = await app.store.descendants(TENANT, response["id"])
        assert (child.status, (await app.retrieve(child.id))["error"]["code"]) == ("failed", "rate_limit_exceeded")
        assert '"status":"failed"' in outputs(app)[-1]
        assert counted(app) == {"completed": 1, "failed": 1}


def counted(app: Embedded) -> dict[str, int]:
    """Return how many responses have ended, by how."""
    found = re.findall(r'antwort_responses_total\{status="(\w+)"\} (\d+)', app.app.metrics.render(None)[0].decode())
    return {status: int(number) for status, number in found if number != "0"}


async def test_an_agent_that_works_beside_its_parent_goes_on_after_a_crash(tmp_path: Path) -> None:
    functions, gate = Functions(), Gate()
    steps: list[Turn | str] = [
        turn(calls=[call("start", prompt="Slowly!")], by=matching(last="Go!")),
        turn(["One", gate, "."], by=matching(last="Slowly!")),
        turn(calls=[call("work", what="something")], by=matching(last={"type": "function_call_output"})),
    ]
    async with embedded(tmp_path, steps, functions.specs()) as app:
        response_id = await app.accept("Go!")
        async with asyncio.timeout(30):
            await functions.begun.wait()
        [child] = await app.store.descendants(TENANT, response_id)
    functions.gate.open()
    steps = [
        turn(calls=[call("wait", ids=[child.id])], by=matching(text="interrupted")),
        turn("Two.", by=matching(last="Slowly!")),
        "Done.",
    ]
    async with embedded(tmp_path, steps, functions.specs()) as app:
        await app.result(response_id)
        assert outputs(app)[-1] == '["Two."]'


async def test_an_agent_whose_time_is_over_ends_before_the_run_that_says_so(tmp_path: Path) -> None:
    functions = Functions()
    steps: list[Turn | str] = [
        turn(calls=[call("spawn", prompts=["one"])], by=matching(last="Go!")),
        turn(calls=[call("work", what="something")], by=matching(last="one")),
        turn("It took too long.", by=matching(last="deadline")),
    ]
    async with embedded(tmp_path, steps, functions.specs(), engine={"deadline": 3.0}) as app:
        response_id = await app.accept("Go!")
        await app.at_rest()
        response = await app.retrieve(response_id)
        assert (response["status"], response["output"][-1]["content"][0]["text"]) == ("completed", "It took too long.")
        [child] = await app.store.descendants(TENANT, response_id)
        assert child.status == "incomplete"


async def test_the_deadline_of_responses_does_not_end_a_run_that_may_take_longer(tmp_path: Path) -> None:
    functions = Functions()
    steps: list[Turn | str] = [
        turn(calls=[call("spawn", prompts=["one"])], by=matching(last="Go!")),
        turn(calls=[call("work", what="something")], by=matching(last="one")),
        turn(calls=[call("spawn", prompts=["two"])], by=matching(last="deadline")),
        turn(calls=[call("work", what="more")], by=matching(last="two")),
        turn("Both took too long.", by=matching(last="deadline")),
    ]
    engine = {"deadline": 0.5, "run": {"max_time": "1h"}}
    async with embedded(tmp_path, steps, functions.specs(), engine=engine) as app:
        response, _ = await app.result(await app.accept("Go!"))
        text = response["output"][-1]["content"][0]["text"]
        assert (response["status"], text) == ("completed", "Both took too long.")


async def test_long_input_that_comes_with_an_answer_is_kept_in_the_run_that_goes_on(tmp_path: Path) -> None:
    functions = Functions()
    steps: list[Turn | str] = [turn(calls=[call("ask", {"question": "Which?"}, call_id="call_1")]), "Thanks."]
    agents = {"reader": {"max_input": 1000, "functions": ["ask"]}}
    async with embedded(tmp_path, steps, functions.specs(), agents=agents) as app:
        first = await app.app.engine.respond(await app.plan({"input": "Do it!", "agent": "reader"}))
        answer = {"type": "function_call_output", "call_id": "call_1", "output": "This one."}
        text = {"role": "user", "content": "x" * 5000}
        plan = await app.plan({"previous_response_id": first.id, "input": [answer, text], "agent": "reader"})
        assert plan.ctx.run_id == first.id
        assert (await app.app.values.of(plan.ctx).find("input")).run_id == first.id


async def test_a_call_whose_run_goes_on_elsewhere_keeps_nothing_for_it(tmp_path: Path) -> None:
    functions = Functions()
    steps = [turn(calls=[call("remember", what="too late")])]
    async with embedded(tmp_path, steps, functions.specs()) as app:
        response_id = await app.accept("Go!")
        await functions.begun.wait()
        assert await app.store.claim(TENANT, response_id) is not None  # as another process does
        functions.gate.open()
        await app.at_rest()
        assert await app.app.values.list(TENANT) == []
    again = Functions()
    again.gate.open()
    steps = [turn(calls=[call("remember", what="in time")]), turn("Done.")]
    async with embedded(tmp_path, steps, again.specs()) as app:
        await app.result(response_id)
        [variable] = await app.app.values.list(TENANT)
        assert variable.run_id == response_id
