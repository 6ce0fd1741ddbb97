"""Agents that are started without waiting: listed, awaited, interrupted, given more to do, closed."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI
from openai.types.responses import Response
from tests.providers.sub_agents.brain import Brain, prompt, texts
from tests.providers.sub_agents.stage import TOOLS, does

from antwort import Antwort
from antwort.backends.base import ModelRequest
from antwort.config import Config
from antwort.providers.sub_agents import SubAgentsProvider
from antwort.testing import Gate, Turn, running, turn

Step = Callable[[list[str]], Turn | str]
"""What the root agent says, by what its calls have returned so far."""

pytestmark = pytest.mark.parametrize(("stream", "store"), [(False, True), (True, True), (True, False)])


@contextmanager
def asked(
    folder: Path,
    steps: Sequence[Step],
    answer: Callable[[str], Turn | str],
    *,
    stream: bool,
    store: bool,
    seen: list[ModelRequest] | None = None,
    **settings: Any,
) -> Iterator[tuple[Response, list[Any]]]:
    """Let a root agent take its steps; return the response, and what its calls have returned.

    `seen` gets what the others are asked.
    """
    told: list[str] = []

    def decide(request: ModelRequest) -> Turn | str:
        if "root" not in str(request.items[0]):
            if seen is not None:
                seen.append(request)
            return answer(prompt(request))
        told[:] = texts(request)
        return steps[len(told)](told) if len(told) < len(steps) else "Done."

    config = Config.model_validate({"data_dir": folder, "providers": {}, **settings})
    app = Antwort(config, backend=Brain(decide), providers=[SubAgentsProvider()])
    with running(app) as server, OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        tools: Any = TOOLS
        if stream:
            *_, last = client.responses.create(model="scripted", input="root", tools=tools, store=store, stream=True)
            response = last.response  # type: ignore[union-attr]
        else:
            response = client.responses.create(model="scripted", input="root", tools=tools, store=store)
        yield response, [json.loads(text) if text.startswith(("{", "[")) else text for text in told]


def agent(told: list[str], number: int = 0) -> str:
    """Return the id of the agent that a call has started."""
    return str(json.loads(told[number])["agent"])


def test_an_agent_works_while_its_parent_does(tmp_path: Path, *, stream: bool, store: bool) -> None:
    gate = Gate()

    def after(told: list[str]) -> Turn:
        gate.open()
        return does("wait_agent", agents=[agent(told)])

    steps: list[Step] = [
        lambda _: does("spawn_agent", prompt="work", wait=False),
        lambda _: does("list_agents"),
        lambda told: does("wait_agent", agents=[agent(told)], seconds=0),
        after,
        lambda _: does("list_agents"),
    ]
    answer = turn("worked", wait_for=gate)
    with asked(tmp_path, steps, lambda _: answer, stream=stream, store=store) as (response, told):
        assert response.output_text == "Done."
        started, listed, looked, waited, at_last = told
        assert started["status"] == "in_progress"
        assert listed["statuses"] == {"in_progress": 1}
        assert looked == started
        assert (waited["agent"], waited["status"], waited["result"]) == (started["agent"], "completed", "worked")
        assert at_last["statuses"] == {"completed": 1}


def test_an_agent_remembers_when_it_gets_a_follow_up(tmp_path: Path, *, stream: bool, store: bool) -> None:
    seen: list[str] = []

    def answer(text: str) -> str:
        seen.append(text)
        return f"answer to {text}"

    steps: list[Step] = [
        lambda _: does("spawn_agent", prompt="first", wait=False),
        lambda told: does("wait_agent", agents=[agent(told)]),
        lambda told: does("followup_task", agent=agent(told), prompt="second"),
        lambda told: does("followup_task", agent=agent(told), prompt="third", wait=False),
        lambda told: does("wait_agent", agents=[agent(told)]),
    ]
    with asked(tmp_path, steps, answer, stream=stream, store=store) as (_, told):
        assert seen == ["first", "second", "third"]
        assert {one["agent"] for one in told} == {told[0]["agent"]}
        assert told[2]["result"] == "answer to second"
        assert told[4]["result"] == "answer to third"


def test_an_agent_is_interrupted_and_goes_on(tmp_path: Path, *, stream: bool, store: bool) -> None:
    steps: list[Step] = [
        lambda _: does("spawn_agent", prompt="work", wait=False),
        lambda told: does("followup_task", agent=agent(told), prompt="too early"),
        lambda told: does("interrupt_agent", agent=agent(told)),
        lambda told: does("followup_task", agent=agent(told), prompt="go on"),
    ]

    def answer(text: str) -> Turn | str:
        return "went on" if text == "go on" else turn("never", wait_for=Gate())

    with asked(tmp_path, steps, answer, stream=stream, store=store) as (_, told):
        assert "still at work" in str(told[1])
        assert told[2]["status"] == "cancelled"
        assert (told[3]["status"], told[3]["result"]) == ("completed", "went on")


def test_a_closed_agent_gets_nothing_more_to_do(tmp_path: Path, *, stream: bool, store: bool) -> None:
    steps: list[Step] = [
        lambda _: does("spawn_agent", prompt="work", wait=False),
        lambda told: does("close_agent", agent=agent(told)),
        lambda told: does("followup_task", agent=agent(told), prompt="more"),
    ]
    with asked(tmp_path, steps, lambda _: turn("never", wait_for=Gate()), stream=stream, store=store) as (_, told):
        assert told[1]["status"] == "cancelled"
        assert "is closed. Start another one." in str(told[2])


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        ("wait_agent", {"agents": ["x"]}),
        ("interrupt_agent", {"agent": "x"}),
        ("followup_task", {"agent": "x", "prompt": "more"}),
        ("close_agent", {"agent": "x"}),
    ],
)
def test_an_agent_that_there_is_not_is_an_error(
    tmp_path: Path, function: str, arguments: dict[str, Any], *, stream: bool, store: bool
) -> None:
    with asked(tmp_path, [lambda _: does(function, **arguments)], str, stream=stream, store=store) as (_, told):
        assert "There is no agent 'x' in this run" in told[0]
