"""Agents keep to their own: nobody waits for, stops or continues those of others, and nothing that waits is lost."""

import asyncio
import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.providers.sub_agents.brain import Brain, prompt, texts
from tests.providers.sub_agents.stage import TOOLS, does
from tests.providers.user.stage import patience

from antwort import Antwort, Context
from antwort.backends.base import ModelRequest
from antwort.config import Config
from antwort.functions import FunctionSpec
from antwort.providers.sub_agents import SubAgentsProvider
from antwort.providers.user import User
from antwort.providers.variables import VariablesProvider
from antwort.testing import Gate, Turn, call, running, turn
from antwort.types import JSON

Step = Callable[[list[str]], Turn | str]
"""What an agent says, by what its calls have returned so far."""
Steps = Sequence[Step | Turn | str]


class Server:
    """A served app, whose agents take the steps that stand for their prompts."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.told: dict[str, list[str]] = {}
        """What the calls of the agents have returned."""

    def request(self, method: str, path: str, status: int = 200, **options: Any) -> Any:
        """Send a request and return the body."""
        found = httpx.request(method, f"{self._url}/v1{path}", timeout=60, **options)
        assert found.status_code == status, found.text
        return found.json()

    def begin(self, **fields: Any) -> str:
        """Begin a run in the background, or make a response in the foreground; return its id."""
        tools = [*TOOLS, *fields.pop("tools", ())]
        body = {"model": "m", "input": "root", "tools": tools, "background": True, **fields}
        return str(self.request("POST", "/responses", json=body)["id"])

    def questions(self, status: str = "open") -> list[JSON]:
        """Return questions."""
        return list(self.request("GET", f"/questions?status={status}&order=asc")["data"])

    def asked(self, number: int = 1) -> list[JSON]:
        """Wait until questions are open."""
        for _ in patience():
            if len(found := self.questions()) >= number:
                return found
        raise AssertionError("nobody asks")

    def answer(self, question: JSON, status: int = 200, **body: Any) -> None:
        """Answer a question."""
        self.request("POST", f"/questions/{question['id']}/answer", status, json=body)

    def ended(self, response_id: str) -> JSON:
        """Wait for the end of a response."""
        for _ in patience():
            found: JSON = self.request("GET", f"/responses/{response_id}")
            if found["status"] not in {"queued", "in_progress"}:
                return found
        raise AssertionError("it does not end")

    def agents(self, response_id: str) -> list[JSON]:
        """Return the tree of a run."""
        return list(self.request("GET", f"/responses/{response_id}/agents")["data"])


@contextlib.contextmanager
def server(folder: Path, steps: dict[str, Steps], functions: Sequence[Any] = (), **config: Any) -> Iterator[Server]:
    """Serve an app; `steps` has what agents say, by the words that their prompts begin with."""
    made: list[Server] = []

    def decide(request: ModelRequest) -> Turn | str:
        told = texts(request)
        name = prompt(request).split()[0]
        made[0].told[name] = told
        step = steps[name][len(told)] if len(told) < len(steps[name]) else "Done."
        return step(told) if callable(step) else step

    app = Antwort(
        Config(data_dir=folder, providers={}, **config),
        backend=Brain(decide),
        providers=[SubAgentsProvider(), User(), VariablesProvider()],
        functions=functions,
    )
    with running(app) as found:
        made.append(Server(found.url))
        yield made[0]


def started(told: list[str], number: int = 0) -> str:
    """Return the agent that a call has started."""
    return str(json.loads(told[number])["agent"])


START = does("spawn_agent", prompt="child", wait=False)
WAIT: Step = lambda told: does("wait_agent", agents=[started(told)])  # noqa: E731


@pytest.fixture
def danger() -> FunctionSpec:
    async def delete(what: str) -> str:
        """Delete something."""
        return f"{what} is deleted"

    return FunctionSpec.of(delete, {"approval": "always"})


# --- whose agents they are -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("store", [True, False])
@pytest.mark.parametrize("function", ["wait_agent", "interrupt_agent", "close_agent", "followup_task"])
def test_an_agent_has_no_say_over_those_of_others(tmp_path: Path, function: str, *, store: bool) -> None:
    gate, ids = Gate(), list[str]()

    def attack(_: list[str]) -> Turn:
        arguments: JSON = {"agents": ids} if function == "wait_agent" else {"agent": ids[0]}
        return does(function, **arguments, **({"prompt": "child more"} if function == "followup_task" else {}))

    def spawn(told: list[str]) -> Turn:
        ids.append(started(told))
        return does("spawn_agent", prompt="attacker")

    def release(told: list[str]) -> Turn:
        gate.open()
        return WAIT(told)  # type: ignore[return-value]

    steps: dict[str, Steps] = {
        "root": [START, spawn, release],
        "child": [turn("worked", wait_for=gate)],
        "attacker": [does("list_agents"), attack],
    }
    with server(tmp_path, steps) as app:
        app.begin(background=False, store=store)
        listed, refused = app.told["attacker"]
        assert json.loads(listed)["agents"] == []
        assert f"There is no agent '{ids[0]}' in this run that is yours" in refused
        assert json.loads(app.told["root"][2])["result"] == "worked"


def test_an_agent_that_waits_for_itself_is_told_so(tmp_path: Path) -> None:
    ids: list[str] = []

    def child(told: list[str]) -> Turn | str:
        return does("wait_agent", agents=ids) if not told and ids else "idle"

    def follow(told: list[str]) -> Turn:
        ids.append(started(told))
        return does("followup_task", agent=ids[0], prompt="child again", wait=False)

    steps: dict[str, Steps] = {"root": [START, WAIT, follow, WAIT], "child": [child, child]}
    with server(tmp_path, steps) as app:
        assert app.ended(app.begin())["status"] == "completed"
        assert json.loads(app.told["root"][3])["result"] == "idle"


def test_a_run_lists_each_agent_once_in_all_its_responses(tmp_path: Path) -> None:
    steps: dict[str, Steps] = {
        "root": [
            START,
            WAIT,
            lambda told: does("followup_task", agent=started(told), prompt="child more"),
            does("ask_user", question="Go on?"),
            does("list_agents"),
        ],
        "child": ["worked"],
    }
    with server(tmp_path, steps) as app:
        run = app.begin()
        app.answer(app.asked()[0], answer="Yes.")
        app.ended(run)
        [agent] = json.loads(app.told["root"][4])["agents"]
        assert (agent["agent"], agent["status"]) == (started(app.told["root"]), "completed")


def test_a_closed_agent_stays_closed_after_a_pause(tmp_path: Path) -> None:
    steps: dict[str, Steps] = {
        "root": [
            START,
            WAIT,
            lambda told: does("close_agent", agent=started(told)),
            does("ask_user", question="Go on?"),
            lambda told: does("followup_task", agent=started(told), prompt="child more"),
        ],
        "child": ["worked"],
    }
    with server(tmp_path, steps) as app:
        run = app.begin()
        app.answer(app.asked()[0], answer="Yes.")
        app.ended(run)
        assert "is closed" in app.told["root"][4]


# --- what waits ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("approve", [True, False])
def test_whoever_waits_for_an_agent_waits_for_its_approval(
    tmp_path: Path, danger: FunctionSpec, *, approve: bool
) -> None:
    steps: dict[str, Steps] = {"root": [START, WAIT], "child": [does("delete", what="it"), lambda told: told[0]]}
    with server(tmp_path, steps, [danger]) as app:
        run = app.begin()
        app.answer(app.asked()[0], approve=approve)
        assert app.ended(run)["status"] == "completed"
        assert [agent["status"] for agent in app.agents(run)] == ["completed", "completed"]
        result = json.loads(app.told["root"][1])["result"]
        assert result == "it is deleted" if approve else "does not want" in result


def test_an_agent_nobody_waits_for_goes_on_when_it_is_answered(tmp_path: Path, danger: FunctionSpec) -> None:
    steps: dict[str, Steps] = {
        "root": [START, does("ask_user", question="Go on?"), WAIT],
        "child": [does("delete", what="it"), lambda told: told[0]],
    }
    with server(tmp_path, steps, [danger]) as app:
        run = app.begin()
        questions = {question["kind"]: question for question in app.asked(2)}
        app.answer(questions["approval"], approve=True)
        for _ in patience():
            if app.agents(run)[1]["status"] == "completed":
                break
        app.answer(questions["question"], answer="Yes.")
        app.ended(run)
        assert json.loads(app.told["root"][2])["result"] == "it is deleted"


def test_a_question_is_seen_while_other_agents_still_work(tmp_path: Path) -> None:
    gate = Gate()
    steps: dict[str, Steps] = {
        "root": [START, does("ask_user", question="Go on?"), WAIT],
        "child": [turn("worked", wait_for=gate)],
    }
    with server(tmp_path, steps) as app:
        run = app.begin()
        app.answer(app.asked()[0], answer="Yes.")
        assert app.agents(run)[1]["status"] == "in_progress"
        gate.open()
        app.ended(run)
        assert app.told["root"][1] == "Yes."
        assert json.loads(app.told["root"][2])["result"] == "worked"


@pytest.mark.parametrize("early", [0, 0.005])
def test_questions_of_agents_that_end_with_their_run_are_withdrawn(
    tmp_path: Path, danger: FunctionSpec, early: float
) -> None:
    gate = Gate()

    async def linger(ctx: Context) -> str:
        """Take until the deadline, or nearly."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(gate.wait(), (ctx.remaining() or 0) - early if early else None)
        return "done"

    both = turn(calls=[call("spawn_agent", prompt="child"), call("linger")])
    steps: dict[str, Steps] = {"root": [both], "child": [does("delete", what="it")]}
    with server(tmp_path, steps, [danger, linger], engine={"deadline": 3}) as app:
        run = app.begin()
        [question] = app.asked()
        assert app.ended(run)["incomplete_details"] == {"reason": "deadline"}
        for _ in patience():
            if not app.questions():
                break
        app.answer(question, 409, approve=True)
        gate.open()


def test_an_agent_that_is_interrupted_asks_nothing_any_more(tmp_path: Path, danger: FunctionSpec) -> None:
    steps: dict[str, Steps] = {
        "root": [
            START,
            lambda told: does("wait_agent", agents=[started(told)], seconds=5),
            lambda told: does("interrupt_agent", agent=started(told)),
        ],
        "child": [does("delete", what="it")],
    }
    with server(tmp_path, steps, [danger]) as app:
        app.ended(app.begin())
        _, waited, interrupted = map(json.loads, app.told["root"])
        assert (waited["status"], waited["reason"]) == ("in_progress", "It waits for somebody.")
        assert interrupted["status"] == "cancelled"
        assert [question["status"] for question in app.questions("cancelled")] == ["cancelled"]


def test_a_function_that_waits_is_refused_where_nobody_can_answer(tmp_path: Path) -> None:
    async def choose_seat(ctx: Context) -> str:
        """Let the traveller choose a seat."""
        ctx.suspend({"question": "Which seat?"})

    spec = FunctionSpec.of(choose_seat, {"effect": "suspend", "attach": True})
    steps: dict[str, Steps] = {"root": [does("spawn_agent", prompt="child")], "child": [does("choose_seat")]}
    with server(tmp_path, steps, [spec]) as app:
        app.begin(background=False, tools=[{"type": "function", "name": "choose_seat"}])
        [refused] = app.told["child"]
        assert "nobody can be asked here" in refused
        assert app.questions() == []
