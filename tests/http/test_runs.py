"""`/v1/runs`: responses as work, without what was said in them; and their second tries."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr
from tests.http.sdk import Served, done, served

from antwort.config import ApiKeyConfig, AuthConfig, ObservabilityConfig
from antwort.errors import FunctionError
from antwort.providers.sub_agents import SubAgentsProvider
from antwort.testing import Gate, Turn, call, fail, turn
from antwort.types import JSON

SPAWN: Any = {"type": "function", "name": "spawn_agent"}
ADD: Any = {"type": "function", "name": "add"}
SPLIT: Any = {"type": "function", "name": "split"}


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def split(a: int) -> int:
    """Split a number."""
    raise FunctionError(f"The secret number {a} cannot be split.")


def begun(stage: Served, *, wait: bool = True, **fields: Any) -> str:
    """Begin a response in the background; return its id, when it is over or at once."""
    body = {"input": "Hi", "background": True, **fields}
    name = str(stage.request("POST", "/responses", json=body).json()["id"])
    if wait:
        done(stage, name)
    return name


def listed(stage: Served, **query: Any) -> JSON:
    found = stage.request("GET", "/runs", params=query)
    assert found.status_code == 200, found.text
    body: JSON = found.json()
    return body


def in_background(stage: Served, **query: Any) -> JSON:
    return listed(stage, background=True, **query)


def ids(page: JSON) -> list[str]:
    return [run["id"] for run in page["data"]]


def retried(stage: Served, name: str, **options: Any) -> httpx.Response:
    return stage.request("POST", f"/runs/{name}/retry", **options)


def message(answer: httpx.Response) -> str:
    return str(answer.json()["error"]["message"])


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.open()


def test_runs_are_listed_by_what_they_are(tmp_path: Path) -> None:
    steps: list[Turn | str] = [
        "Plain.",
        turn(calls=[call("split", a=7)]),
        "I cannot.",
        turn(calls=[call("spawn_agent", prompt="Add!")]),
        turn(calls=[call("add", a=1, b=2)]),
        "3.",
        "Three.",
    ]
    with served(tmp_path, steps, providers=[SubAgentsProvider()], functions=[add, split]) as stage:
        plain = str(stage.request("POST", "/responses", json={"input": "Hi"}).json()["id"])
        broken = str(stage.request("POST", "/responses", json={"input": "Hi", "tools": [SPLIT]}).json()["id"])
        tree = begun(stage, tools=[SPAWN, ADD])
        assert ids(listed(stage)) == [tree, broken, plain]
        assert ids(listed(stage, background=True)) == [tree]
        assert ids(listed(stage, background=False)) == [broken, plain]
        assert ids(listed(stage, failed=True)) == [broken]
        assert ids(listed(stage, failed=False)) == [tree, plain]
        assert ids(listed(stage, function="add")) == [tree]  # an agent below it has called it
        assert ids(listed(stage, function="split", status="completed")) == [broken]
        assert ids(listed(stage, function="Split")) == ids(listed(stage, function="call_1")) == []
        assert ids(listed(stage, function="spl%")) == ids(listed(stage, function="s_lit")) == []
        assert ids(listed(stage, agent="nobody")) == []
        began = listed(stage)["data"][0]["created_at"]
        assert ids(listed(stage, created_after=began)) == ids(listed(stage, created_before=began - 60)) == []
        assert ids(listed(stage, created_after=began - 60, created_before=began + 60, limit=1)) == [tree]
        assert [run["failed_calls"] for run in listed(stage)["data"]] == [0, 1, 0]
        for wrong in ({"function": ""}, {"agent": "a" * 300}, {"created_after": "now"}, {"failed": "perhaps"}):
            assert stage.request("GET", "/runs", params=wrong).status_code == 400


def test_a_run_is_of_an_agent_only_if_that_agent_has_answered(tmp_path: Path) -> None:
    alike = {"type": "function", "name": "sail", "parameters": {"type": "object", "agent": "boss"}}
    agents = {"boss": {"instructions": "Lead."}, "boss_2": {"instructions": "Help."}}
    with served(tmp_path, ["Hello.", "Aye.", "Aye."], agents=agents) as stage:
        body = {"input": "Hi", "metadata": {"agent": "boss"}, "tools": [alike]}
        assert stage.request("POST", "/responses", json=body).status_code == 200
        lead = str(stage.request("POST", "/responses", json={"input": "Hi", "agent": "boss"}).json()["id"])
        help_ = begun(stage, agent="boss_2", metadata={"agent": "boss"})
        assert ids(listed(stage, agent="boss")) == [lead]
        assert ids(listed(stage, agent="boss_2")) == [help_]
        assert ids(listed(stage, agent="BOSS")) == []
        assert ids(listed(stage, agent="boss_")) == ids(listed(stage, agent='boss"}')) == []


def test_what_failed_below_a_run_is_told_of_it(tmp_path: Path) -> None:
    steps: list[Turn | str] = [
        turn(calls=[call("spawn_agent", prompt="Split!")]),
        turn(calls=[call("split", a=7)]),
        "It cannot be split.",
        "Nothing came of it.",
        turn(calls=[call("spawn_agent", prompt="Hello!")]),
        turn(error=fail(400, "No.")),
        "It did not answer.",
    ]
    with served(tmp_path, steps, providers=[SubAgentsProvider()], functions=[split]) as stage:
        first, second = begun(stage, tools=[SPAWN, SPLIT]), begun(stage, tools=[SPAWN])
        assert ids(listed(stage, failed=True)) == [second, first]
        assert ids(listed(stage, failed=False)) == []
        found = {run["id"]: run for run in listed(stage)["data"]}
        assert (found[first]["failed_calls"], found[first]["failed_agents"]) == (0, 1)
        assert found[second]["failed_agents"] == 1
        for name in (first, second):
            shown = stage.request("GET", f"/runs/{name}").json()
            assert (shown["status"], shown["failed_agents"]) == ("completed", 1)
            assert shown["ended_at"] == shown["completed_at"]


@pytest.mark.parametrize("stream", [False, True])
def test_one_whose_model_failed_before_it_began_is_among_those_that_failed(tmp_path: Path, *, stream: bool) -> None:
    steps = [turn(error=fail(503, "Away.")), turn(error=fail(400, "No.")), turn(error=fail(503, "Away."))]
    with served(tmp_path, steps, over_http=True) as stage:
        body = {"model": "scripted", "input": "Hi", "stream": stream}
        assert stage.request("POST", "/responses", json=body).status_code == 503
        assert stage.request("POST", "/responses", json=body).status_code == 400  # the request's fault
        assert stage.request("POST", "/responses", json={**body, "store": False}).status_code == 503
        [run] = listed(stage, failed=True)["data"]
        assert (run["status"], run["completed_at"]) == ("failed", None)
        assert run["created_at"] <= run["ended_at"]
        assert "Away." in run["error"]["message"]
        told = stage.request("GET", f"/responses/{run['id']}/trace").json()
        assert [(one["kind"], one["status"]) for one in told["failures"]] == [("turn", "error"), ("response", "failed")]


def test_an_administrator_sees_the_runs_of_others_and_the_audit_log_is_told(tmp_path: Path) -> None:
    keys = [
        ApiKeyConfig(id=name, key=SecretStr(f"{name}-0123456789"), tenant=tenant, scopes=scopes)
        for name, tenant, scopes in (
            ("ada", "a", ["*"]),
            ("operator", "ops", ["runs:read", "admin"]),
            ("viewer", "ops", ["runs:read"]),
        )
    ]
    audit = tmp_path / "audit.jsonl"
    sections: JSON = {"auth": AuthConfig(api_keys=keys), "observability": ObservabilityConfig(audit_file=audit)}
    with served(tmp_path, ["Hi."], **sections) as stage:
        ada, operator, viewer = ({"authorization": f"Bearer {key.id}-0123456789"} for key in keys)
        name = stage.request("POST", "/responses", json={"input": "Hi"}, headers=ada).json()["id"]
        of_a = {"tenant": "a"}
        found = stage.request("GET", "/runs", params=of_a, headers=operator)
        assert ids(found.json()) == [name]
        assert stage.request("GET", f"/runs/{name}", params=of_a, headers=operator).json()["id"] == name
        assert ids(stage.request("GET", "/runs", headers=operator).json()) == []
        assert stage.request("GET", f"/runs/{name}", headers=operator).status_code == 404
        assert ids(stage.request("GET", "/runs", params={"tenant": "nobody"}, headers=operator).json()) == []
        for path in ("/runs", f"/runs/{name}"):
            refused = stage.request("GET", path, params=of_a, headers=viewer)
            assert (refused.status_code, refused.json()["error"]["param"]) == (403, "tenant")
            assert stage.request("GET", path, params=of_a, headers=ada).status_code == 200  # one's own
        assert stage.request("POST", f"/runs/{name}/retry", params=of_a, headers=operator).status_code in {400, 403}
    told = [json.loads(line) for line in audit.read_text().splitlines()]
    looked = [(each["event"], each["tenant"], each["of_tenant"]) for each in told if "of_tenant" in each]
    assert looked == [("runs.listed", "ops", "a"), ("run.read", "ops", "a"), ("runs.listed", "ops", "nobody")]


def test_background_responses_are_listed_by_status_and_others_are_not(tmp_path: Path, gate: Gate) -> None:
    steps: list[Turn | str] = ["One.", turn(error=fail(400, "No.")), "In front.", turn("Later.", wait_for=gate)]
    with served(tmp_path, steps) as stage:
        first, second = begun(stage), begun(stage)
        stage.request("POST", "/responses", json={"input": "Hi"})
        unstored = begun(stage, wait=False, store=False)
        gate.wait_reached()
        assert ids(in_background(stage)) == [second, first]
        assert ids(in_background(stage, order="asc")) == [first, second]
        assert ids(in_background(stage, status="completed")) == [first]
        assert ids(in_background(stage, status="failed")) == [second]
        assert ids(in_background(stage, status="cancelled")) == []
        page = in_background(stage, limit=1)
        assert (ids(page), page["first_id"], page["last_id"], page["has_more"]) == ([second], second, second, True)
        page = in_background(stage, limit=1, after=second)
        assert (ids(page), page["has_more"]) == ([first], False)
        assert ids(in_background(stage, before=first)) == [second]
        assert ids(in_background(stage, status="completed", after=second)) == [first]
        [failed] = in_background(stage, status="failed")["data"]
        assert failed["error"]["message"].endswith("No.")
        assert (failed["background"], failed["waiting"]) == (True, False)
        assert failed["completed_at"] is None or failed["completed_at"] >= failed["created_at"]
        for wrong in ({"status": "lost"}, {"after": "resp_none"}, {"limit": 0}, {"state": "failed"}):
            assert stage.request("GET", "/runs", params=wrong).status_code == 400
        assert stage.request("GET", f"/runs/{unstored}").json()["status"] == "in_progress"


def test_a_run_is_shown_with_its_agents_and_calls_and_without_what_was_said(tmp_path: Path) -> None:
    steps: list[Turn | str] = [
        turn(calls=[call("spawn_agent", prompt="Count the secret!"), call("split", a=7)]),
        turn(calls=[call("add", a=1, b=2)]),
        "It is a secret 3.",
        "Done.",
    ]
    with served(tmp_path, steps, providers=[SubAgentsProvider()], functions=[add, split]) as stage:
        root = begun(stage, input="A secret!", tools=[SPAWN, ADD, SPLIT], instructions="Tell no secret.")
        found = stage.request("GET", f"/runs/{root}")
        body = found.json()
        top, child = body["agents"]
        assert (top["response_id"], top["parent_id"], child["parent_id"], child["depth"]) == (root, None, root, 1)
        told = [(one["response_id"], one["name"], one["state"], one["status"]) for one in body["calls"]]
        assert told == [
            (root, "spawn_agent", "ended", "success"),
            (root, "split", "ended", "error"),
            (child["response_id"], "add", "ended", "success"),
        ]
        assert "secret" not in found.text
        of_child = stage.request("GET", f"/runs/{child['response_id']}").json()
        assert of_child == body
        assert ids(listed(stage)) == [root]
        assert stage.request("GET", "/runs/resp_none").status_code == 404


def test_a_run_that_waits_says_for_what(tmp_path: Path) -> None:
    steps: list[Turn | str] = [turn(calls=[call("ask_user", question="Which?")]), "Blue."]
    with served(tmp_path, steps, section={"user": {"enabled": True}}) as stage:
        name = begun(stage, wait=False, tools=[{"type": "function", "name": "ask_user"}])
        while not (asked := stage.request("GET", "/questions").json()["data"]):
            pass
        while not (found := stage.request("GET", f"/runs/{name}").json())["waiting"]:
            pass
        [waiting] = found["calls"]
        assert (waiting["state"], waiting["status"], waiting["question_id"]) == ("waiting", None, asked[0]["id"])
        assert waiting["waiting_since"] >= found["created_at"]
        stage.request("POST", f"/questions/{asked[0]['id']}/answer", json={"answer": "blue"})
        done(stage, name)
        [ended] = stage.request("GET", f"/runs/{name}").json()["calls"]
        assert (ended["state"], ended["status"], ended["question_id"]) == ("ended", "success", None)


def test_what_has_failed_is_tried_again_as_it_was_asked(tmp_path: Path) -> None:
    steps: list[Turn | str] = ["Before.", turn(error=fail(400, "No.")), turn(calls=[call("add", a=1, b=2)]), "Three."]
    with served(tmp_path, steps, functions=[add]) as stage:
        before = begun(stage)
        fields: Any = {"input": "Add!", "instructions": "Be brief.", "temperature": 0.5, "metadata": {"topic": "sums"}}
        failed = begun(stage, previous_response_id=before, tools=[ADD], stream=False, **fields)
        answer = retried(stage, failed)
        assert answer.status_code == 200, answer.text
        accepted = answer.json()
        assert (accepted["status"], accepted["background"]) == ("queued", True)
        assert accepted["metadata"] == {"topic": "sums", "retry_of": failed}
        assert accepted["id"] not in {before, failed}
        finished = done(stage, accepted["id"])
        assert (finished["status"], finished["previous_response_id"]) == ("completed", before)
        assert (finished["instructions"], finished["temperature"]) == ("Be brief.", 0.5)
        assert [item["content"] for item in stage.requests[-1].items if item.get("role") == "user"][-1:] != []
        assert stage.request("GET", f"/responses/{failed}").json()["status"] == "failed"
        [newest, *_] = listed(stage)["data"]
        assert (newest["id"], newest["retry_of"]) == (accepted["id"], failed)


def test_one_that_was_cancelled_is_tried_again_and_so_is_a_second_try(tmp_path: Path, gate: Gate) -> None:
    with served(tmp_path, [turn("Slow.", wait_for=gate), turn(error=fail(400, "No.")), "Hello."]) as stage:
        name = begun(stage, wait=False)
        gate.wait_reached()
        assert message(retried(stage, name)) == "The response is in_progress: cancel it first."
        stage.request("POST", f"/responses/{name}/cancel")
        second = retried(stage, name).json()["id"]
        assert done(stage, second)["status"] == "failed"
        third = retried(stage, second).json()
        assert third["metadata"] == {"retry_of": second}
        assert done(stage, third["id"])["status"] == "completed"


def test_the_link_is_left_out_where_there_is_no_room_for_it(tmp_path: Path) -> None:
    metadata = {f"key{number}": "value" for number in range(16)}
    with served(tmp_path, [turn(error=fail(400, "No.")), "Hello."]) as stage:
        again = retried(stage, begun(stage, metadata=metadata)).json()
        assert again["metadata"] == metadata
        assert done(stage, again["id"])["status"] == "completed"


def test_what_cannot_be_tried_again_is_told(tmp_path: Path) -> None:
    steps: list[Turn | str] = [
        turn(calls=[call("spawn_agent", prompt="Count!")]),
        turn(error=fail(400, "No.")),
        "Well.",
        "In front.",
    ]
    with served(tmp_path, steps, providers=[SubAgentsProvider()]) as stage:
        completed = begun(stage, tools=[SPAWN])
        _, child = stage.request("GET", f"/runs/{completed}").json()["agents"]
        front = stage.request("POST", "/responses", json={"input": "Hi"}).json()["id"]
        for name, told in (
            (completed, "The response is completed"),
            (child["response_id"], "the response of a sub-agent"),
            (front, "Only background responses"),
        ):
            answer = retried(stage, name)
            assert (answer.status_code, told in message(answer)) == (409, True), answer.text
        assert retried(stage, "resp_none").status_code == 404


def test_runs_are_of_their_tenant(tmp_path: Path) -> None:
    keys = [ApiKeyConfig(id=name, key=SecretStr(f"key-of-{name}"), tenant=name) for name in ("one", "two")]
    ours, theirs = ({"authorization": f"Bearer key-of-{name}"} for name in ("one", "two"))
    with served(tmp_path, [turn(error=fail(400, "No."))], auth=AuthConfig(api_keys=keys)) as stage:
        body = {"input": "Hi", "background": True}
        name = stage.request("POST", "/responses", json=body, headers=ours).json()["id"]
        while stage.request("GET", f"/runs/{name}", headers=ours).json()["status"] != "failed":
            pass
        assert stage.request("GET", "/runs", headers=theirs).json()["data"] == []
        assert stage.request("GET", "/runs", params={"after": name}, headers=theirs).status_code == 400
        assert stage.request("GET", f"/runs/{name}", headers=theirs).status_code == 404
        assert retried(stage, name, headers=theirs).status_code == 404
        assert [one["id"] for one in stage.request("GET", "/runs", headers=ours).json()["data"]] == [name]
