"""`/v1/responses/{id}/trace`: the story of a run, over its agents, questions and continuations."""

from pathlib import Path
from typing import Any

from pydantic import SecretStr
from tests.http.sdk import Served, done, served
from tests.providers.programs.stage import TOOL, program, served_programs

from antwort.config import ApiKeyConfig, AuthConfig
from antwort.errors import FunctionError
from antwort.providers.sub_agents import SubAgentsProvider
from antwort.testing import Turn, call, fail, turn
from antwort.types import JSON

SPAWN, SPLIT, CRASH, ADD, ASK = [
    {"type": "function", "name": name} for name in ("spawn_agent", "split", "crash", "add", "ask_user")
]
LEAK = "api_key=sk-proj-0123456789abcdef Out of tune."
USER = {"user": {"enabled": True}}


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def split(a: int) -> int:
    """Split a number."""
    raise FunctionError(f"{a} cannot be split.")


async def crash() -> str:
    """Crash."""
    raise ZeroDivisionError("division by zero, api_key=sk-proj-abcdefghijklmnopqrstuvwxyz0123456789")


def answered(stage: Served, **fields: Any) -> str:
    found = stage.request("POST", "/responses", json={"input": "Go!", **fields})
    assert found.status_code == 200, found.text
    return str(found.json()["id"])


def traced(stage: Served, name: str, **query: Any) -> JSON:
    found = stage.request("GET", f"/responses/{name}/trace", params=query)
    assert found.status_code == 200, found.text
    body: JSON = found.json()
    return body


def text(turn_: JSON) -> str:
    return "".join(part["text"] for item in turn_["items"] for part in item.get("content", ()))


def test_agents_turns_and_calls_are_told_with_what_has_failed(tmp_path: Path) -> None:
    steps: list[Turn | str] = [
        turn(calls=[call("spawn_agent", prompt="Count!"), call("split", a=7), call("crash")]),
        turn(calls=[call("add", a=1, b=2)]),
        "It is 3.",
        "Done.",
    ]
    with served(tmp_path, steps, providers=[SubAgentsProvider()], functions=[add, split, crash]) as stage:
        root = answered(stage, tools=[SPAWN, ADD, SPLIT, CRASH], instructions="Be brief.")
        story = traced(stage, root)
        [response] = story["responses"]
        assert (story["id"], story["status"], response["id"]) == (root, "completed", root)
        assert (response["instructions"], response["input"][0]["content"][0]["text"]) == ("Be brief.", "Go!")
        first, second = response["turns"]
        assert [one["number"] for one in (first, second)] == [1, 2]
        assert (first["finish_reason"], second["finish_reason"], text(second)) == ("tool_calls", "stop", "Done.")
        assert (first["input_tokens"], first["output_tokens"], first["error"]) == (10, 5, None)
        assert response["created_at"] <= first["began_at"] <= second["began_at"]
        spawned, refused, crashed = first["calls"]
        assert [one["name"] for one in first["calls"]] == ["spawn_agent", "split", "crash"]
        assert (refused["status"], refused["output"]) == ("error", "7 cannot be split.")
        assert refused["seconds"] >= 0
        assert crashed["output"] == "crash failed: ZeroDivisionError: division by zero, api_key=***"
        [child] = spawned["agents"]
        assert (child["depth"], child["input"][0]["content"][0]["text"]) == (1, "Count!")
        [[added], []] = [one["calls"] for one in child["turns"]]
        assert (added["arguments"], added["output"], added["status"]) == ('{"a": 1, "b": 2}', "3", "success")
        assert response["agents"] == []
        told = [(one["kind"], one["name"], one["turn"], one["message"]) for one in story["failures"]]
        assert told == [("call", "split", 1, "7 cannot be split."), ("call", "crash", 1, crashed["output"])]
        assert traced(stage, child["id"]) == story


def test_a_model_that_fails_is_told_with_its_error(tmp_path: Path) -> None:
    steps: list[Turn | str] = [
        turn(calls=[call("add", a=1, b=2)]),
        turn(error=fail(400, LEAK)),
    ]
    with served(tmp_path, steps, functions=[add]) as stage:
        name = str(
            stage.request("POST", "/responses", json={"input": "Hi", "background": True, "tools": [ADD]}).json()["id"]
        )
        done(stage, name)
        story = traced(stage, name)
        first, second = story["responses"][0]["turns"]
        assert first["error"] is None
        assert second["error"].endswith("api_key=*** Out of tune.")
        assert [(one["kind"], one["status"]) for one in story["failures"]] == [
            ("turn", "error"),
            ("response", "failed"),
        ]
        assert all(one["message"].endswith("api_key=*** Out of tune.") for one in story["failures"])


def test_backends_are_told_that_were_asked_with_each_try(tmp_path: Path) -> None:
    steps = [turn(error=fail(503, "Later.")), turn(calls=[call("add", a=1, b=2)]), turn("Done.")]
    backend: JSON = {"retries": 1}
    with served(tmp_path, steps, functions=[add], over_http=True, backend=backend) as stage:
        story = traced(stage, answered(stage, tools=[ADD]))
        assert [one["backends"] for one in story["responses"][0]["turns"]] == [["main", "main"], ["main"]]


def test_calls_of_programs_are_told_below_them(tmp_path: Path) -> None:
    code = "await add(a=1)\nawait fail()"
    with served_programs(tmp_path, [program(code), "It failed."]) as stage:
        name = answered(stage, tools=[TOOL, ADD, {"type": "function", "name": "fail"}])
        [[ran], []] = [one["calls"] for one in traced(stage, name)["responses"][0]["turns"]]
        assert [(one["name"], one["status"]) for one in ran["calls"]] == [("add", "success"), ("fail", "error")]
        assert [one["call_id"] for one in ran["calls"]] == [f"{ran['call_id']}.0", f"{ran['call_id']}.1"]


def test_a_run_goes_on_over_the_responses_that_bring_answers(tmp_path: Path) -> None:
    asking = turn(calls=[call("ask_user", question="Which colour?", call_id="call_1")])
    with served(tmp_path, [asking, "Blue it is.", "Something else."], section=USER) as stage:
        first = answered(stage, tools=[ASK])
        said = [{"type": "function_call_output", "call_id": "call_1", "output": "Blue."}]
        second = answered(stage, input=said, previous_response_id=first, tools=[ASK])
        later = answered(stage, previous_response_id=second)
        story = traced(stage, first)
        assert [one["id"] for one in story["responses"]] == [first, second]
        assert traced(stage, second) == story
        [[asked]] = [one["calls"] for one in story["responses"][0]["turns"]]
        question = asked["question"]
        assert (asked["state"], asked["status"], asked["output"]) == ("ended", "success", None)
        assert (question["kind"], question["status"], question["answered_by"]) == ("question", "answered", second)
        assert (question["asked"]["question"], question["answer"]) == ("Which colour?", {"text": "Blue."})
        assert text(story["responses"][1]["turns"][-1]) == "Blue it is."
        assert [one["id"] for one in traced(stage, later)["responses"]] == [later]


def test_what_was_approved_by_the_next_response_waits_no_longer(tmp_path: Path) -> None:
    steps: list[Turn | str] = [turn(calls=[call("split", a=7)]), "It cannot be split."]
    agents = {"boss": {"functions": ["split"], "approval": "always"}}
    with served(tmp_path, steps, functions=[split], agents=agents) as stage:
        asked = stage.request("POST", "/responses", json={"input": "Split!", "agent": "boss"}).json()
        [request] = [item for item in asked["output"] if item["type"] == "mcp_approval_request"]
        [waiting] = traced(stage, asked["id"])["responses"][0]["turns"][0]["calls"]
        assert (waiting["state"], waiting["status"]) == ("waiting", None)
        yes = [{"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": True}]
        second = answered(stage, input=yes, previous_response_id=asked["id"], agent="boss")
        story = traced(stage, second)
        [first] = story["responses"][0]["turns"][0]["calls"]
        assert (first["state"], first["status"], first["output"]) == ("ended", "error", None)
        assert [(one["response_id"], one["message"]) for one in story["failures"]] == [(second, "7 cannot be split.")]


def test_a_run_that_has_waited_says_how_long(tmp_path: Path) -> None:
    asking = turn(calls=[call("ask_user", question="Which?")])
    with served(tmp_path, [asking, "Blue."], section=USER) as stage:
        accepted = stage.request("POST", "/responses", json={"input": "Hi", "background": True, "tools": [ASK]})
        name = str(accepted.json()["id"])
        while not (asked := stage.request("GET", "/questions").json()["data"]):
            pass
        waiting = traced(stage, name)
        [[call_]] = [one["calls"] for one in waiting["responses"][0]["turns"]]
        assert (call_["state"], call_["output"], call_["question"]["status"]) == ("waiting", None, "open")
        stage.request("POST", f"/questions/{asked[0]['id']}/answer", json={"answer": "blue"})
        done(stage, name)
        [[ended], []] = [one["calls"] for one in traced(stage, name)["responses"][0]["turns"]]
        assert (ended["state"], ended["question"]["answer"]) == ("ended", {"text": "blue"})
        assert 0 <= ended["waited_seconds"] <= ended["seconds"] + 1


def test_texts_are_cut_where_it_is_asked(tmp_path: Path) -> None:
    with served(tmp_path, ["x" * 50]) as stage:
        name = answered(stage, input="y" * 3000)
        [response] = traced(stage, name)["responses"]
        assert response["input"][0]["content"][0]["text"] == f"{'y' * 2000}… (1,000 characters more)"
        assert text(response["turns"][0]) == "x" * 50
        [response] = traced(stage, name, max_length=10)["responses"]
        assert text(response["turns"][0]) == f"{'x' * 10}… (40 characters more)"
        [response] = traced(stage, name, max_length=1_000_000)["responses"]
        assert response["input"][0]["content"][0]["text"] == "y" * 3000
        for wrong in (-1, 1_000_001, "all"):
            found = stage.request("GET", f"/responses/{name}/trace", params={"max_length": wrong})
            assert (found.status_code, found.json()["error"]["param"]) == (400, "max_length")


def test_half_of_a_secret_is_never_shown(tmp_path: Path) -> None:
    secret = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789"
    with served(tmp_path, ["Hello."]) as stage:
        name = answered(stage, input=f"The key is {secret}, " + "y" * 5000)
        for most in (0, 14, 16, 20, 30, 60):
            [response] = traced(stage, name, max_length=most)["responses"]
            shown = response["input"][0]["content"][0]["text"].partition("…")[0]
            assert f"The key is sk-***, {'y' * most}".startswith(shown)
            assert len(shown) == most


def test_values_of_secret_names_are_masked_and_what_is_nested_too_deep_is_left_out(tmp_path: Path) -> None:
    deep: JSON = {"password": "correct horse"}
    for _ in range(400):
        deep = {"items": deep}
    schema = {"password": "correct horse", "deep": deep, "properties": {"token": {"type": "string"}}}
    tool = {"name": "sail", "input_schema": schema}
    listed = {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "sea", "tools": [tool]}
    with served(tmp_path, ["Hello."]) as stage:
        name = answered(stage, input=[listed, {"role": "user", "content": "Hi"}])
        [response] = traced(stage, name)["responses"]
        shown = response["input"][0]["tools"][0]["input_schema"]
        assert (shown["password"], shown["properties"]) == ("***", {"token": {"type": "string"}})
        assert "correct horse" not in str(response)
        assert str(shown["deep"]).count("items") < 100


def test_only_its_tenant_and_who_may_read_traces_sees_one(tmp_path: Path) -> None:
    keys = [
        ApiKeyConfig(id=name, key=SecretStr(name * 20), tenant=tenant, scopes=scopes)
        for name, tenant, scopes in (
            ("a", "one", ["*"]),
            ("b", "two", ["*"]),
            ("c", "one", ["responses:read", "runs:read"]),
        )
    ]
    with served(tmp_path, ["Hello."], auth=AuthConfig(api_keys=keys)) as stage:
        ask = {key: {"headers": {"authorization": f"Bearer {key * 20}"}} for key in "abc"}
        name = stage.request("POST", "/responses", json={"input": "Hi"}, **ask["a"]).json()["id"]
        path = f"/responses/{name}/trace"
        assert [stage.request("GET", path, **ask[key]).status_code for key in "abc"] == [200, 404, 403]
        assert stage.request("GET", "/responses/resp_none/trace", **ask["a"]).status_code == 404


def test_a_response_that_is_not_stored_has_none(tmp_path: Path) -> None:
    with served(tmp_path, ["Hello."]) as stage:
        name = answered(stage, store=False)
        assert stage.request("GET", f"/responses/{name}/trace").status_code == 404


def test_a_trace_of_very_much_is_not_as_much(tmp_path: Path) -> None:
    steps: list[Turn | str] = [turn(calls=[call("add", a=number, b="x" * 900_000) for number in range(4)]), "Done."]
    with served(tmp_path, steps, functions=[add]) as stage:
        name = answered(stage, tools=[ADD])
        calls = traced(stage, name, max_length=1_000_000)["responses"][0]["turns"][0]["calls"]
        assert [len(one["arguments"]) > 900_000 for one in calls] == [True, True, False, False]
        assert calls[-1]["arguments"].startswith('{"a": 3')
        assert calls[-1]["arguments"].endswith(" characters more)")
        assert len(calls[-1]["arguments"]) < 200
