"""Trees always answer: an agent that hangs is an entry of the result, and at a limit what was found is said."""

from pathlib import Path
from typing import Any

import pytest
from tests.http.sdk import Served
from tests.providers.sub_agents.stage import TOOLS, ask, does, offered, output, stage

from antwort.testing import Gate, Turn, call, matching, turn

PROMPTS = [f"part {number}." for number in range(10)]


def parts(**hanging: Any) -> list[dict[str, Any]]:
    """Return the work of ten agents, of which the fourth hangs."""
    return [{"prompt": prompt, **(hanging if prompt == "part 3." else {})} for prompt in PROMPTS]


def ended(app: Served, **fields: Any) -> tuple[str, str, int]:
    """Ask the root agent; return why its response ended early, what it has said, and the tokens that all have used."""
    body = {"model": "scripted", "input": "Do it!", "tools": TOOLS, **fields}
    response = app.request("POST", "/responses", json=body).json()
    assert response["status"] == "incomplete"
    texts = [part["text"] for item in response["output"] if item["type"] == "message" for part in item["content"]]
    return response["incomplete_details"]["reason"], "".join(texts), response["usage"]["total_tokens"]


def script(gate: Gate, **hanging: Any) -> list[Turn | str]:
    answers = [
        turn(f"found in {prompt}", by=matching(last=prompt), wait_for=gate if prompt == "part 3." else None)
        for prompt in PROMPTS
    ]
    return [turn(calls=[call("spawn_many", {"configs": parts(**hanging)})]), *answers, "Nine parts are read."]


@pytest.mark.parametrize(
    ("engine", "hanging"),
    [
        ({}, {"timeout": 0.3}),
        ({"run": {"max_agent_time": 0.3}}, {}),
        ({"run": {"max_agent_time": 0.3}}, {"timeout": 1000}),
        ({"deadline": 5}, {}),
    ],
    ids=["argument", "setting", "the setting holds", "what is left to the root"],
)
def test_one_agent_of_ten_that_hangs_is_an_entry_of_the_result(
    tmp_path: Path, engine: dict[str, Any], hanging: dict[str, Any]
) -> None:
    gate = Gate()
    with stage(tmp_path, script(gate, **hanging), engine=engine) as app:
        response = ask(app, stream=False)
        assert (response.status, response.output_text) == ("completed", "Nine parts are read.")
        found = output(app)
        found = found if isinstance(found, dict) else {"statuses": {"completed": 9, "incomplete": 1}, "of": found}
        assert found["statuses"] == {"completed": 9, "incomplete": 1}
        assert "deadline" in str(found)
        gate.open()


def test_what_models_say_to_agents_is_streamed_so_that_it_has_to_begin_and_go_on_in_time(tmp_path: Path) -> None:
    steps: list[Turn | str] = [does("spawn_agent", prompt="A"), "B", does("call_llm", prompt="C"), "D", "Done."]
    with stage(tmp_path, steps) as app:
        ask(app, stream=False)
        assert [request.stream for request in app.requests] == [False, True, False, True, False]


@pytest.mark.parametrize("limit", ["tokens", "cost"])
def test_what_was_found_is_said_when_the_budget_is_spent(tmp_path: Path, limit: str) -> None:
    engine: dict[str, Any] = {"run": {"max_tokens": 1000}}
    if limit == "cost":
        engine = {"run": {"max_cost": 0.001}, "prices": {"scripted": {"input": 1, "output": 1}}}
    steps: list[Turn | str] = [
        turn(calls=[call("spawn_agent", {"prompt": "A"})], usage=(5, 5)),
        turn("found it", usage=(500, 480)),
        turn("It was found, as far as I got.", usage=(5, 5)),
    ]
    with stage(tmp_path, steps, engine=engine) as app:
        assert ended(app) == ("budget", "It was found, as far as I got.", 1000)
        assert offered(app, 2) == []


def test_an_agent_below_leaves_the_root_its_share(tmp_path: Path) -> None:
    steps: list[Turn | str] = [
        turn(calls=[call("spawn_agent", {"prompt": "A"})], usage=(5, 5)),
        turn("I have read half.", calls=[call("budget_remaining")], usage=(500, 480), by=matching(last="A")),
        turn("Half was read.", usage=(5, 5)),
    ]
    with stage(tmp_path, steps, engine={"run": {"max_tokens": 1000}}) as app:
        assert ended(app) == ("budget", "Half was read.", 1000)
        assert output(app)["reason"] == "budget"
        assert output(app)["result"] == "I have read half."


@pytest.mark.parametrize("limit", ["run", "response"])
def test_a_model_that_calls_on_after_the_last_call_is_asked_once_more(tmp_path: Path, limit: str) -> None:
    engine: dict[str, Any] = {"run": {"max_calls": 2}} if limit == "run" else {}
    fields: dict[str, Any] = {"max_tool_calls": 2} if limit == "response" else {}
    steps: list[Turn | str] = [turn(calls=[call("remember", text=str(number))]) for number in range(4)]
    with stage(tmp_path, steps, engine=engine) as app:
        reason, text, _ = ended(app, **fields)
        assert (reason, text) == ("max_tool_calls", "")
        assert len(app.requests) == 4
        assert offered(app, 3) == []
