"""What a call carries: any argument may be a reference, and long arguments leave the window when the call is over."""

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.providers.sub_agents.brain import Brain, prompt, size_of, texts
from tests.providers.sub_agents.stage import TOOLS, does

from antwort import Antwort, Context
from antwort.backends.base import ModelRequest
from antwort.config import Config
from antwort.context import ANONYMOUS_TENANT
from antwort.context.values import Place
from antwort.context.variables import Reference
from antwort.functions.arguments import resolve
from antwort.testing import Turn
from antwort.types import JSON

CHILDREN = 1000 if os.environ.get("ANTWORT_TEST_FULL") else 100
STORE: Any = [{"type": "function", "name": name} for name in ("store_get", "store_set", "echo")]
CTX = Context(ANONYMOUS_TENANT, scopes=frozenset({"*"}), run_id="resp_a", agent_id="resp_a", conversation_id="resp_a")


async def echo(value: Any) -> str:
    """Say how long it is what was given."""
    return f"{len(value)} characters"


class Stage:
    """An app, and what its model was asked."""

    def __init__(self) -> None:
        self.requests: list[ModelRequest] = []
        self.brain = Brain(self._decide)
        self.app: Antwort
        self.steps: list[Turn | str] = []

    def _decide(self, request: ModelRequest) -> Turn | str:
        if prompt(request).startswith("root"):
            self.requests.append(request)
            return self.steps.pop(0)
        return f"answer to {prompt(request)}"

    async def play(self, *steps: Turn | str, **options: Any) -> list[str]:
        """Let the root agent take steps; return what its calls have returned."""
        self.steps = [*steps, "Done."]
        await self.app.run("root", model="scripted", **{"tools": [*TOOLS, *STORE], **options})
        assert not self.steps
        return texts(self.requests[-1])

    async def kept(self, value: Any) -> JSON:
        """Keep a value of the tenant; return its reference."""
        kind: Any = "text" if isinstance(value, str) else "json"
        data = (value if isinstance(value, str) else json.dumps(value)).encode()
        return (await self.app.values.write(Place(ANONYMOUS_TENANT), "kept", _once(data), kind=kind)).reference


async def _once(data: bytes) -> AsyncIterator[bytes]:
    yield data


@asynccontextmanager
async def staged(folder: Path, **settings: Any) -> AsyncIterator[Stage]:
    stage = Stage()
    engine = {"run": {"max_agents": 10 * CHILDREN}}
    config = Config.model_validate({"data_dir": folder, "engine": engine, **settings})
    async with Antwort(config, backend=stage.brain, functions=[echo]) as app:
        stage.app = app
        yield stage


def _calls(request: ModelRequest) -> list[str]:
    return [str(item["arguments"]) for item in request.items if item["type"] == "function_call"]


# --- long arguments --------------------------------------------------------------------------------------------------


async def test_the_arguments_of_many_agents_leave_the_window(tmp_path: Path) -> None:
    configs = [{"prompt": f"Read part {number} of the book, and tell what is in it."} for number in range(CHILDREN)]
    async with staged(tmp_path) as stage:
        await stage.play(does("spawn_many", configs=configs))
        before, after = map(size_of, stage.requests)
        assert after - before < 2000
        [told] = map(json.loads, _calls(stage.requests[-1]))
        assert (told["size"], told["head"][:12]) == (len(json.dumps({"configs": configs})), '{"configs": ')


async def test_arguments_that_have_left_can_be_read_on_and_handed_on(tmp_path: Path) -> None:
    text = "All work and no play. " * 500
    async with staged(tmp_path) as stage:
        await stage.play(does("echo", value=text))
        [told] = map(json.loads, _calls(stage.requests[-1]))
        assert stage.brain.largest < 25_000
        variable = await stage.app.values.get(ANONYMOUS_TENANT, told["$ref"])
        assert variable is not None
        data = b"".join([chunk async for chunk in stage.app.values.read(variable)])
        assert json.loads(data) == {"value": text}


async def test_short_arguments_stay_and_so_do_long_ones_that_nobody_could_read_on(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        await stage.play(does("echo", value="x" * 3000))
        assert _calls(stage.requests[-1]) == [json.dumps({"value": "x" * 3000})]
        await stage.play(does("echo", value="x" * 9000), tools=[{"type": "function", "name": "echo"}])
        assert _calls(stage.requests[-1]) == [json.dumps({"value": "x" * 9000})]


async def test_who_continues_a_response_does_not_read_long_arguments_again(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        stage.steps = [does("echo", value="x" * 9000), "Done.", "Done."]
        first = await stage.app.run("root", model="scripted", tools=STORE)
        await stage.app.run("root again", model="scripted", tools=STORE, previous_response_id=first.id)
        assert '"$ref":"var_' in _calls(stage.requests[-1])[0]
        assert size_of(stage.requests[-1]) < 9000


# --- references ------------------------------------------------------------------------------------------------------


async def test_whatever_agents_are_given_may_be_a_reference(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        text, note = await stage.kept("Sum it up."), await stage.kept("All work.")
        configs, prompts = await stage.kept([{"prompt": "one"}, {"prompt": "two"}]), await stage.kept(["one", "two"])
        told = await stage.play(
            does("spawn_agent", prompt=text, context=note),
            does("spawn_many", configs=configs),
            does("spawn_many", configs=[{"prompt": text, "context": note}]),
            does("call_llm", prompt=text, context=note),
            does("call_llm_many", prompts=prompts, context=note),
            does("call_llm_many", prompts=["zero", text]),
        )
        head = "answer to Sum it up.\n\nContext, by reference:\n"
        assert json.loads(told[0])["result"].startswith(head)
        assert [one["result"] for one in json.loads(told[1])] == ["answer to one", "answer to two"]
        assert json.loads(told[2])[0]["result"].startswith(head)
        assert told[3] == "answer to Sum it up.\n\nContext:\nAll work."
        assert [one["result"] for one in json.loads(told[4])] == [
            f"answer to {number}\n\nContext:\nAll work." for number in ("one", "two")
        ]
        assert [one["result"] for one in json.loads(told[5])] == ["answer to zero", "answer to Sum it up."]


async def test_every_argument_of_every_function_may_be_a_reference(tmp_path: Path) -> None:
    values: dict[str, Any] = {"string": "a text", "integer": 7, "number": 0.5, "boolean": True, "array": ["a"]}
    async with staged(tmp_path) as stage:
        ctx = CTX.with_(bind_variables=stage.app.values.of)
        tried = 0
        for spec in stage.app.registry.discovered_tools(CTX):
            for name, schema in spec.parameters["properties"].items():
                value = values.get(str(schema.get("type")), "a text")
                found = await resolve({name: await stage.kept(value)}, ctx, 1000, spec.references)
                own = spec.references is True or name in (spec.references or ())
                assert isinstance(found[name], Reference) if own else found[name] == value, (spec.name, name)
                tried += 1
        assert tried > 20


@pytest.mark.parametrize("value", ["a text", [{"prompt": 5}]])
async def test_what_a_reference_stands_for_is_checked_like_any_argument(tmp_path: Path, value: Any) -> None:
    async with staged(tmp_path) as stage:
        [told] = await stage.play(does("spawn_many", configs=await stage.kept(value)))
        assert told.startswith("Invalid arguments: configs")
