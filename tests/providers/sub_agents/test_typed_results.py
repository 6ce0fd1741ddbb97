"""Results that have to fit a schema: an agent is told once if its own does not, then it has failed."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.providers.sub_agents.stage import ask, does, output, outputs, prompt_of, stage, tree
from tests.providers.sub_agents.test_options import BOTH
from tests.providers.sub_agents.test_started import Step, agent, asked
from tests.runs.embedded import TENANT, Embedded, embedded

from antwort.context import Context
from antwort.context.agents import AgentTask
from antwort.functions import FunctionSpec
from antwort.providers.sub_agents.provider import SubAgentsProvider
from antwort.testing import Turn, call, matching, turn

PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name", "age"],
}
ADA = '{"name": "Ada", "age": 36}'
OLD = '{"name": "Ada", "age": "old"}'


def found_by(app: Any) -> dict[str, Any]:
    """Return what the parent reads of its agent, whichever function has started it."""
    found = output(app)
    return found if isinstance(found, dict) else found[0]


@BOTH
@pytest.mark.parametrize(
    "said",
    [ADA, f"```json\n{ADA}\n```", does("return_result", value=json.loads(ADA)), does("return_result", value=ADA)],
    ids=["text", "fenced", "returned", "returned as text"],
)
def test_a_result_that_fits_is_json(tmp_path: Path, spawn: Callable[..., Turn], said: Turn | str) -> None:
    with stage(tmp_path, [spawn(output_schema=PERSON), said, "Done."]) as app:
        ask(app, stream=False)
        assert (found_by(app)["status"], found_by(app)["result"]) == ("completed", json.loads(ADA))
        assert json.dumps(PERSON, separators=(",", ":")) in str(app.requests[1].instructions)


def test_what_an_agent_says_before_its_result_is_no_part_of_it(tmp_path: Path) -> None:
    thinking = turn("Let me see.", calls=[call("remember", text="x")])
    with stage(tmp_path, [does("spawn_agent", prompt="A", output_schema=PERSON), thinking, ADA, "Done."]) as app:
        ask(app, stream=False)
        assert output(app)["result"] == json.loads(ADA)


@BOTH
@pytest.mark.parametrize("store", [True, False])
@pytest.mark.parametrize(
    ("said", "problem"),
    [
        (OLD, 'age: \\"old\\" is not of type'),
        ("Ada, I think.", "it is no JSON"),
        (does("return_result", value={"name": "Ada"}), '\\"age\\" is a required property'),
    ],
    ids=["wrong", "no JSON", "returned"],
)
def test_an_agent_is_told_once_that_its_result_does_not_fit(
    tmp_path: Path, spawn: Callable[..., Turn], said: Turn | str, problem: str, *, store: bool
) -> None:
    with stage(tmp_path, [spawn(output_schema=PERSON), said, ADA, "Done."]) as app:
        response = ask(app, stream=False, store=store)
        assert response.output_text == "Done."
        assert (found_by(app)["status"], found_by(app)["result"]) == ("completed", json.loads(ADA))
        told = json.dumps(app.requests[2].items[-1]["content"])
        assert problem.replace('\\"', '\\\\\\"') in told or problem in told
        assert "Your result does not fit the schema" in told
        assert "A" in str(app.requests[2].items[0])  # it remembers what it was asked
        if store:
            _, first, second = tree(app, response.id)["data"]
            assert (first["id"], first["index"]) == (second["id"], second["index"])


@BOTH
def test_a_result_that_does_not_fit_twice_is_a_failure_with_what_was_said(
    tmp_path: Path, spawn: Callable[..., Turn]
) -> None:
    with stage(tmp_path, [spawn(output_schema=PERSON), OLD, "Still no JSON.", "Done."]) as app:
        assert ask(app, stream=False).output_text == "Done."
        found = found_by(app)
        assert (found["status"], found["result"]) == ("failed", "Still no JSON.")
        assert found["reason"].startswith("Its result does not fit the schema: it is no JSON")
        assert len(app.requests) == 4


def test_one_of_many_that_does_not_fit_is_an_entry_and_the_others_are_json(tmp_path: Path) -> None:
    configs = [{"prompt": name, "output_schema": {"type": "integer"}} for name in ("one", "two", "three")]
    steps: list[Turn | str] = [
        does("spawn_many", configs=configs),
        turn("1", by=matching(last="one")),
        turn("zwei", by=matching(last="two")),
        turn("3", by=matching(last="three")),
        turn("Zwei.", by=matching(last="does not fit")),
        "Done.",
    ]
    with stage(tmp_path, steps) as app:
        ask(app, stream=False)
        assert [(one["status"], one["result"]) for one in output(app)] == [
            *(("completed", 1), ("failed", "Zwei."), ("completed", 3))
        ]


def test_an_agent_whose_time_or_turns_are_over_is_not_asked_again(tmp_path: Path) -> None:
    steps: list[Turn | str] = [
        does("spawn_agent", prompt="A", output_schema=PERSON, max_turns=1),
        turn("Hm.", calls=[call("remember", text="x")]),
        "Done.",
    ]
    with stage(tmp_path, steps) as app:
        ask(app, stream=False)
        assert (output(app)["status"], output(app)["reason"], output(app)["result"]) == (
            "incomplete",
            "max_turns",
            "Hm.",
        )


@pytest.mark.parametrize("size", [10, 5000])
def test_a_variable_that_is_given_back_is_checked_by_its_value(tmp_path: Path, size: int) -> None:
    steps: list[Turn | str] = [
        does("spawn_agent", prompt="A", output_schema={"type": "array", "items": {"type": "integer"}}),
        does("store_set", key="all", value=[*range(size), "wrong"]),
        turn(calls=[call("return_result", {"value": {"$ref": "all"}})]),
        does("store_set", key="all", value=[*range(size)]),
        turn(calls=[call("return_result", {"value": {"$ref": "all"}})]),
        "Done.",
    ]
    with stage(tmp_path, steps) as app:
        ask(app, stream=False)
        assert '\\"wrong\\" is not of type' in json.dumps(app.requests[3].items[-1]["content"])
        assert output(app)["status"] == "completed"
        assert output(app)["result"]["type"] == "json"


def test_a_long_result_is_kept_as_json(tmp_path: Path) -> None:
    steps: list[Turn | str] = [
        does("spawn_agent", prompt="A", output_schema={"type": "array"}),
        json.dumps([*range(1000)]),
        "Done.",
    ]
    with stage(tmp_path, steps) as app:
        ask(app, stream=False)
        assert output(app)["result"]["type"] == "json"


@BOTH
@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ({"type": "nonsense"}, "no JSON Schema that can be checked"),
        ({"type": "string", "pattern": "("}, "no JSON Schema that can be checked"),
        ({"type": "string", "pattern": "(a{1,50}){1,50}b"}, "no JSON Schema that can be checked"),
        ({"$defs": {"a": {"type": "string"}}, "$ref": "#/$defs/a"}, "'$ref': write out"),
        ({"enum": ["x" * 2000]}, "at most 1,500"),
    ],
    ids=["no type", "no pattern", "a large pattern", "a reference", "too long"],
)
def test_a_schema_that_cannot_be_held_to_is_told_before_anybody_works(
    tmp_path: Path, spawn: Callable[..., Turn], schema: dict[str, Any], told: str
) -> None:
    with stage(tmp_path, [spawn(output_schema=schema), "I see."]) as app:
        assert ask(app, stream=False).output_text == "I see."
        assert told in outputs(app)[-1]
        assert len(app.requests) == 2


@pytest.mark.parametrize(
    ("items", "value"),
    [
        ({"anyOf": [{"const": number} for number in range(60)]}, [59] * 12_000),
        ({"allOf": [{"type": "string"}] * 60}, [1] * 12_000),
        ({"type": "string", "pattern": "[ab]*a[ab]{60}c"}, ["abbaabab" * 6000]),
    ],
    ids=["choices", "problems", "a pattern"],
)
def test_what_would_take_long_to_check_is_not_checked(tmp_path: Path, items: dict[str, Any], value: list[Any]) -> None:
    steps: list[Turn | str] = [
        does("spawn_agent", prompt="A", output_schema={"type": "array", "items": items}),
        json.dumps(value),
        json.dumps(value),
        "Done.",
    ]
    with stage(tmp_path, steps) as app:
        ask(app, stream=False)
        assert output(app)["status"] == "failed"
        assert "too much to be checked" in output(app)["reason"]


def test_what_is_wrong_is_told_of_very_much_that_is(tmp_path: Path) -> None:
    schema = {"type": "array", "items": {"anyOf": [{"const": number} for number in range(10)]}}
    steps: list[Turn | str] = [
        does("spawn_agent", prompt="A", output_schema=schema),
        json.dumps([10] * 3000),
        "[1]",
        "Done.",
    ]
    with stage(tmp_path, steps) as app:
        ask(app, stream=False)
        assert output(app)["result"] == [1]
        assert len(str(app.requests[2].items[-1]["content"])) < 500


@pytest.mark.parametrize(("stream", "store"), [(False, True), (True, False)])
def test_an_agent_that_nobody_waits_for_is_told_too(tmp_path: Path, *, stream: bool, store: bool) -> None:
    said = {"work": OLD, "more": "No JSON."}
    steps: list[Step] = [
        lambda _: does("spawn_agent", prompt="work", output_schema=PERSON, wait=False),
        lambda told: does("wait_agent", agents=[agent(told)]),
        lambda told: does("followup_task", agent=agent(told), prompt="more"),
    ]
    with asked(tmp_path, steps, lambda text: said.get(text, ADA), stream=stream, store=store) as (_, told):
        assert (told[1]["status"], told[1]["result"]) == ("completed", json.loads(ADA))
        # The schema is that of one task, not of the agent.
        assert (told[2]["status"], told[2]["result"]) == ("completed", "No JSON.")


def test_a_long_task_with_a_schema_leaves_the_window_of_its_agent_small(tmp_path: Path) -> None:
    schema = {"enum": ["x" * 1400]}
    steps: list[Turn | str] = [does("spawn_agent", prompt="Do it. " * 200, output_schema=schema), '"y"', '"y"', "Done."]
    with stage(tmp_path, steps) as app:
        app.client().responses.create(model="recursive", input="Go!")
        assert len(prompt_of(app, 1)) < 700


class Reached:
    """What a model waits for in vain, and tells that it does."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()

    async def wait(self) -> None:
        self.reached.set()
        await asyncio.Event().wait()


async def test_after_a_crash_an_agent_goes_on_with_its_second_try(tmp_path: Path) -> None:
    async def person(ctx: Context) -> str:
        """Let an agent tell who it was."""
        [result] = await ctx.run_agents([AgentTask("Who?", output_schema=PERSON)])
        return f"{result.status}: {result.text}"

    specs = [FunctionSpec.of(person, {"scope": "agent", "attach": True, "timeout": float("inf")})]
    never = Reached()
    steps: list[Turn | str] = [turn(calls=[call("person")]), OLD, turn("never", wait_for=never)]
    async with embedded(tmp_path, steps, specs) as app:
        response_id = await app.accept()
        async with asyncio.timeout(30):
            await never.reached.wait()
    async with embedded(tmp_path, [ADA, "Done."], specs) as app:
        response, _ = await app.result(response_id)
        assert response["output"][-1]["content"][0]["text"] == "Done."
        assert read(app) == [f"completed: {json.dumps(json.loads(ADA), separators=(',', ':'))}"]
        tree = await app.runs.agents.tree(TENANT, response_id)
        assert [(one.index, one.status) for one in tree or ()] == [
            (None, "completed"),
            (0, "completed"),
            (0, "completed"),
        ]


def read(app: Embedded) -> list[str]:
    """Return what the root agent has read of its calls."""
    return [item["output"] for item in app.asked() if item["type"] == "function_call_output"]


def test_the_functions_take_the_same_options() -> None:
    one, many = [spec.parameters for spec in SubAgentsProvider().tools() if spec.name in {"spawn_agent", "spawn_many"}]
    options = {*one["properties"]} - {"wait"}
    assert options == {*many["$defs"]["AgentWork"]["properties"]}
    assert {"model", "output_schema", "max_turns", "timeout"} <= options
