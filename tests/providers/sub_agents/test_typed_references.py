"""A reference is an object in arguments that a model has written; a text that reads like one is a text, whosever."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.providers.programs.stage import TOOL, program
from tests.providers.sub_agents.brain import Brain, prompt, texts
from tests.providers.sub_agents.stage import TOOLS, does, remember

from antwort import Antwort
from antwort.backends.base import ModelRequest
from antwort.config import Config
from antwort.context import ANONYMOUS_TENANT
from antwort.context.values import Place
from antwort.testing import Turn
from antwort.types import JSON

SECRET = "salaries: 4711"
KEY = "payroll"
Step = Turn | str | Callable[[list[str]], Turn]
"""What a model says, perhaps by what calls have returned."""
OWN: Any = [{"type": "function", "name": name} for name in ("store_set", "store_get", "echo", "remember", "page")]


async def echo(value: Any) -> str:
    """Say what was given."""
    return json.dumps(value)


async def page(key: str) -> str:
    """Return a page that somebody else has written."""
    return json.dumps({"$ref": key})


async def _secret() -> AsyncIterator[bytes]:
    yield SECRET.encode()


class Stage:
    """An app whose tenant has a variable that nobody in the talk has asked for."""

    def __init__(self) -> None:
        self._steps: list[Step] = []
        self.requests: list[ModelRequest] = []
        self.brain = Brain(self._decide)
        self.id = ""

    def _decide(self, request: ModelRequest) -> Turn | str:
        self.requests.append(request)
        step = self._steps.pop(0)
        return step(self.told) if callable(step) else step

    async def begin(self, app: Antwort) -> None:
        """Take an app that runs."""
        self._app = app
        self.id = (await app.values.write(Place(ANONYMOUS_TENANT), KEY, _secret(), kind="text")).id

    async def play(self, *steps: Step, tools: Any = OWN) -> str:
        """Let the root agent take steps; nothing that any model reads has the value."""
        self._steps = [*steps, "Done."]
        response = await self._app.run("root", model="scripted", tools=[*TOOLS, *tools])
        assert SECRET not in str([request.items for request in self.requests])
        return response.output_text

    @property
    def told(self) -> list[str]:
        """What calls have returned, as the last request has it."""
        return texts(self.requests[-1])

    @property
    def output(self) -> Any:
        """What the last call has returned."""
        return json.loads(self.told[-1])


@asynccontextmanager
async def staged(folder: Path, **settings: Any) -> AsyncIterator[Stage]:
    stage = Stage()
    providers = {name: {"enabled": True} for name in ("variables", "sub_agents")}
    config = Config.model_validate({"data_dir": folder, "providers": {**providers, **settings}})
    async with Antwort(config, backend=stage.brain, functions=[echo, page, remember]) as app:
        await stage.begin(app)
        yield stage


@pytest.fixture
async def on_stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with staged(tmp_path) as stage:
        yield stage


@pytest.fixture(params=["by key", "by id"])
def text(request: pytest.FixtureRequest, on_stage: Stage) -> str:
    """Return a text that reads like a reference."""
    return json.dumps({"$ref": KEY if request.param == "by key" else on_stage.id})


async def test_what_a_child_says_is_never_a_reference(on_stage: Stage, text: str) -> None:
    await on_stage.play(does("spawn_agent", prompt="A"), text)
    assert on_stage.output["result"] == text


async def test_what_children_say_is_never_a_reference(on_stage: Stage, text: str) -> None:
    await on_stage.play(does("spawn_many", configs=[{"prompt": "A"}]), text)
    assert on_stage.output[0]["result"] == text


async def test_what_a_model_that_is_asked_once_says_is_never_a_reference(on_stage: Stage, text: str) -> None:
    await on_stage.play(does("call_llm", prompt="A"), text)
    assert on_stage.told[-1] == text


async def test_a_text_that_is_given_as_a_result_is_never_a_reference(on_stage: Stage, text: str) -> None:
    await on_stage.play(does("spawn_agent", prompt="A"), does("return_result", value=text))
    assert on_stage.output["result"] == text


async def test_a_text_that_is_the_answer_of_the_root_agent_stays_as_it_is(on_stage: Stage, text: str) -> None:
    assert await on_stage.play(does("return_result", value=text)) == text


@pytest.mark.parametrize("function", ["call_llm", "spawn_agent"])
async def test_a_text_that_is_given_as_context_is_never_a_reference(on_stage: Stage, text: str, function: str) -> None:
    alone, listed = (does(function, prompt="Read.", context=given) for given in (text, [text]))
    await on_stage.play(alone, "Read.", listed, "Read.")
    assert prompt(on_stage.requests[1]) == f"Read.\n\nContext:\n{text}"
    assert prompt(on_stage.requests[3]) == f"Read.\n\nContext 1:\n{text}"


async def test_a_text_that_is_stored_is_never_a_reference(on_stage: Stage, text: str) -> None:
    await on_stage.play(does("store_set", key="copy", value=text), does("store_get", key="copy"))
    assert on_stage.told[-1] == text


async def test_a_text_that_is_given_to_any_function_is_never_a_reference(on_stage: Stage, text: str) -> None:
    await on_stage.play(does("echo", value=[text]))
    assert on_stage.output == [text]


async def test_what_a_referenced_value_says_is_data(on_stage: Stage) -> None:
    """Whoever hands a file, a page or a result on by reference has not written what is in it."""
    inner = {"$ref": on_stage.id}
    await on_stage.play(
        does("store_set", key="kept", value={"prompt": "A", "context": {"a": 1, "b": inner}}),
        lambda told: does("echo", value=_reference(told[-1])),
        lambda told: does("spawn_many", configs=[_reference(told[0])]),
        "Read.",
    )
    assert json.loads(on_stage.told[1])["context"]["b"] == inner
    assert prompt(on_stage.requests[-2]).endswith(f"b:\n{json.dumps(inner, separators=(',', ':'))}")


async def test_an_object_that_a_model_writes_is_a_reference(on_stage: Stage) -> None:
    kept: list[JSON] = []

    def spawn(told: list[str]) -> Turn:
        kept.append(_reference(told[-1]))
        return does("spawn_agent", prompt="A", context=kept[0])

    await on_stage.play(
        does("remember", text="long"),
        spawn,
        lambda _: does("return_result", value=kept[0]),
        lambda _: does("store_set", key="copy", value=kept[0]),
        lambda _: does("echo", value=[kept[0]]),
        does("spawn_many", configs=[{"prompt": "A"}]),
        lambda _: does("return_result", value=kept[0]),
    )
    _, one, copy, echoed, many = map(json.loads, on_stage.told)
    shown = one["result"]
    assert (shown["$ref"], shown["size"], shown["head"]) == (kept[0]["$ref"], 4, "long")
    assert (copy["size"], echoed) == (4, ["long"])
    assert many[0]["result"] == kept[0]


def _reference(told: str) -> JSON:
    return {"$ref": json.loads(told)["$ref"]}


# --- programs --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("interpreter", ["monty", "sandbox"])
async def test_what_a_program_has_read_is_data_and_its_variables_are_references(
    tmp_path: Path, interpreter: str
) -> None:
    own = {"enabled": True, "settings": {"interpreter": interpreter}}
    async with staged(tmp_path, programs=own) as on_stage:
        code = f"""
import json
found = await page(key="{on_stage.id}")
data = json.loads(found)
print(await echo(value=found))
print(await echo(value=data))
print(await echo(value=[data]))
await store_set(key="copy", value=data)
print(await store_get(key="copy"))
await store_set(key="copy", value=json.loads(await page(key="{KEY}")))
print(await store_get(key="copy"))
mine = await set_variable("mine", "my own")
print(await echo(value=mine), await echo(value={{"deep": [mine]}}))
"""
        await on_stage.play(program(code), tools=[TOOL, *OWN])
        by_id, by_key = (json.dumps({"$ref": name}) for name in (on_stage.id, KEY))
        told = on_stage.told[-1].splitlines()
        assert told[:3] == [json.dumps(by_id), by_id, f"[{by_id}]"]
        assert [json.loads(line) for line in told[3:5]] == [json.loads(by_id), json.loads(by_key)]
        assert told[5] == '"my own" {"deep": ["my own"]}'
