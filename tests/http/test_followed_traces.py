"""`/v1/responses/{id}/trace?stream=true`: a run is followed while it goes on, wherever somebody works on it."""

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
from tests.http.sdk import Served, done, served
from tests.support.postgres import on_one_store

from antwort.providers.sub_agents import SubAgentsProvider
from antwort.testing import Gate, Turn, call, turn
from antwort.types import JSON

SPAWN, ADD, ASK = [{"type": "function", "name": name} for name in ("spawn_agent", "add", "ask_user")]


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def begun(stage: Served, **fields: Any) -> str:
    found = stage.request("POST", "/responses", json={"input": "Go!", "background": True, **fields})
    assert found.status_code == 200, found.text
    return str(found.json()["id"])


@contextlib.contextmanager
def following(stage: Served, name: str) -> Iterator[Iterator[JSON]]:
    """Follow a run; what is given are its events, each as soon as it has come."""
    url = f"{stage.server.url}/v1/responses/{name}/trace"
    with httpx.stream("GET", url, params={"stream": "true"}, timeout=60) as answer:
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        yield events(answer.iter_lines())


def events(lines: Iterator[str]) -> Iterator[JSON]:
    for line in lines:
        if line.startswith("data: {"):
            yield json.loads(line.removeprefix("data: "))
        elif line == "data: [DONE]":
            return
    raise AssertionError("the stream broke off")


class Rebuilt:
    """The story of a run, put together from events as a reader does it."""

    def __init__(self, found: list[JSON]) -> None:
        self.story: JSON = {}
        self._responses: dict[str, JSON] = {}
        self._turns: dict[tuple[str, int], JSON] = {}
        self._calls: dict[tuple[str, str], JSON] = {}
        takes: dict[str, Callable[[JSON], None]] = {
            "trace.whole": self._whole,
            "trace.response": self._response,
            "trace.turn": self._turn,
            "trace.call": self._call,
            "trace.done": lambda event: self.story.update(status=event["status"], failures=event["failures"]),
        }
        for number, event in enumerate(found):
            assert event["sequence_number"] == number
            takes[event["type"]](event)

    def _whole(self, event: JSON) -> None:
        self.story = event["trace"]
        for response in self.story["responses"]:
            self._know(response)

    def _know(self, response: JSON) -> None:
        self._responses[response["id"]] = response
        for agent in response["agents"]:
            self._know(agent)
        for each in response["turns"]:
            self._turns[response["id"], each["number"]] = each
            for one in each["calls"]:
                self._know_call(response["id"], one)

    def _know_call(self, name: str, one: JSON) -> None:
        self._calls[name, one["call_id"]] = one
        for made in one["calls"]:
            self._know_call(name, made)
        for agent in one["agents"]:
            self._know(agent)

    def _response(self, event: JSON) -> None:
        new, parent = event["response"], event["parent_id"]
        if new["id"] not in self._responses:
            self._responses[new["id"]] = {"turns": [], "agents": []}
            if parent is None:
                holder = self.story["responses"]
            elif event["call_id"] is None:
                holder = self._responses[parent]["agents"]
            else:
                holder = self._calls[parent, event["call_id"]]["agents"]
            holder.append(self._responses[new["id"]])
        self._responses[new["id"]].update(new)

    def _turn(self, event: JSON) -> None:
        key = event["response_id"], event["turn"]["number"]
        if key not in self._turns:
            self._turns[key] = {"calls": []}
            self._responses[key[0]]["turns"].append(self._turns[key])
        self._turns[key].update(event["turn"])

    def _call(self, event: JSON) -> None:
        name, parent, key = event["response_id"], event["parent_call_id"], event["call"]["call_id"]
        if (name, key) not in self._calls:
            self._calls[name, key] = {"calls": [], "agents": []}
            holder = self._turns[name, event["turn"]] if parent is None else self._calls[name, parent]
            holder["calls"].append(self._calls[name, key])
        self._calls[name, key].update(event["call"])


def test_a_run_is_followed_from_its_whole_story_to_its_end(tmp_path: Path) -> None:
    spawned, counted, last = Gate(), Gate(), Gate()
    steps = [
        turn(calls=[call("spawn_agent", prompt="Count!")]),
        turn(calls=[call("add", a=1, b=2)], wait_for=spawned),
        turn("It is 3.", wait_for=counted),
        turn("Done.", wait_for=last),
    ]
    with served(tmp_path, steps, providers=[SubAgentsProvider()], functions=[add]) as stage:
        name = begun(stage, tools=[SPAWN, ADD])
        spawned.wait_reached()
        with following(stage, name) as coming:
            found = [next(coming)]
            assert (found[0]["type"], found[0]["trace"]["status"]) == ("trace.whole", "in_progress")
            [call_] = found[0]["trace"]["responses"][0]["turns"][0]["calls"]
            assert (call_["name"], call_["state"]) == ("spawn_agent", "begun")
            spawned.open()
            while not any(event["type"] == "trace.call" and event["call"]["name"] == "add" for event in found):
                found.append(next(coming))
            counted.open()
            last.wait_reached()
            last.open()
            found += coming
        assert [event["type"] for event in found].count("trace.whole") == 1
        assert found[-1]["type"] == "trace.done"
        alone = stage.request("GET", f"/responses/{name}/trace").json()
        assert Rebuilt(found).story == alone
        child = alone["responses"][0]["turns"][0]["calls"][0]["agents"][0]["id"]
        for each in (name, child):  # who comes later is told the whole of it
            with following(stage, each) as coming:
                whole, end = coming
            assert whole["trace"] == alone
            assert (end["type"], end["status"], end["failures"]) == ("trace.done", "completed", [])


def test_a_run_that_waits_is_followed_until_it_is_answered(tmp_path: Path) -> None:
    steps: list[Turn | str] = [turn(calls=[call("ask_user", question="Which colour?")]), "Blue it is."]
    with served(tmp_path, steps, section={"user": {"enabled": True}}) as stage:
        name = begun(stage, tools=[ASK])
        with following(stage, name) as coming:
            found = [next(coming)]
            while "Which colour?" not in json.dumps(found):
                found.append(next(coming))
            while not (open_ := stage.request("GET", "/questions", params={"status": "open"}).json()["data"]):
                pass
            answer = stage.request("POST", f"/questions/{open_[0]['id']}/answer", json={"answer": "Blue"})
            assert answer.status_code == 200, answer.text
            found += coming
        story = Rebuilt(found).story
        assert story == stage.request("GET", f"/responses/{name}/trace").json()
        assert story["responses"][0]["turns"][0]["calls"][0]["question"]["answer"] == {"text": "Blue"}


def test_one_that_is_deleted_meanwhile_ends(tmp_path: Path) -> None:
    gate = Gate()
    with served(tmp_path, [turn("Hi.", wait_for=gate)]) as stage:
        name = begun(stage)
        gate.wait_reached()
        with following(stage, name) as coming:
            assert next(coming)["type"] == "trace.whole"
            assert stage.request("DELETE", f"/responses/{name}").is_success
            *_, end = coming
        assert (end["type"], end["status"], end["failures"]) == ("trace.done", "deleted", [])
        assert stage.request("GET", f"/responses/{name}/trace", params={"stream": "true"}).status_code == 404


def test_a_server_that_stops_sends_its_readers_away(tmp_path: Path) -> None:
    gate = Gate()
    with served(tmp_path, [turn("Hi.", wait_for=gate)]) as stage:
        name = begun(stage)
        gate.wait_reached()
        url = f"{stage.server.url}/v1/responses/{name}/trace?stream=true"
        with httpx.stream("GET", url, timeout=60) as answer:
            lines = answer.iter_lines()
            while not next(lines).startswith("data: {"):
                pass
            stage.server.app.stopping()
            assert "data: [DONE]" not in [*lines]
        gate.open()
        done(stage, name)


@on_one_store()
def test_a_run_is_followed_on_another_server_than_the_one_that_works_on_it(tmp_path: Path, postgres_url: str) -> None:
    gate = Gate()
    shared: JSON = {"storage": {"url": postgres_url}, "encryption": {"key": "of-all-servers-0123456789-0123456789"}}
    steps = [turn(calls=[call("add", a=1, b=2)]), turn("3.", wait_for=gate)]
    with (
        served(tmp_path, steps, functions=[add], **shared) as stage,
        served(tmp_path, [], functions=[add], **shared) as other,
    ):
        name = begun(stage, tools=[ADD])
        gate.wait_reached()
        with following(other, name) as coming:
            found = [next(coming)]
            gate.open()
            found += coming
        assert Rebuilt(found).story == stage.request("GET", f"/responses/{name}/trace").json()
