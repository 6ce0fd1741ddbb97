"""Streams that show what sub-agents say and do, to whoever asks for it."""

import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai.types.beta import BetaResponseOutputItemDoneEvent, BetaResponseTextDeltaEvent
from tests.http.sdk import Served, done, served
from tests.http.sockets import socket
from tests.support.postgres import on_one_store

from antwort.testing import Gate, LintedStream, Turn, call, fail, lint_stream, turn
from antwort.types import JSON

pytestmark = on_one_store()

SHOWN = {"antwort-show-agents": "1"}
TOOLS: Any = [{"type": "function", "name": name} for name in ("spawn_agent", "spawn_many", "calculate")]
SECTION = {"sub_agents": {"enabled": True}, "basics": {"enabled": True}}
NESTED: list[Turn | str] = [
    turn("Let me see.", calls=[call("spawn_agent", prompt="Count.")]),
    turn("I ask another one.", calls=[call("spawn_agent", prompt="Count for me.")]),
    turn(["One, ", "two."]),
    "They are two.",
    "Two it is.",
]


def stage(tmp_path: Path, steps: list[Turn | str], **options: Any) -> Any:
    run = {"max_depth": 4, "max_in_flight": 4}
    return served(tmp_path, steps, section=SECTION, engine={"run": run, "heartbeat": 5}, **options)


def streamed(app: Served, *, shown: str = "1", **fields: Any) -> bytes:
    headers = {"antwort-show-agents": shown} if shown else {}
    body = {"model": "scripted", "input": "How many?", "tools": TOOLS, "stream": True, **fields}
    found = app.request("POST", "/responses", json=body, headers=headers)
    assert found.status_code == 200, found.text
    return found.content


def names(stream: LintedStream) -> list[str]:
    """Return the agents of a stream in the order in which they have said something."""
    told = [event["agent"]["agent_name"] for event in stream.events if event["type"] == "response.output_text.delta"]
    return list(dict.fromkeys(told))


def said(stream: LintedStream) -> dict[str, str]:
    """Return what each agent has said."""
    texts: dict[str, str] = {}
    for event in stream.events:
        if event["type"] == "response.output_text.delta":
            name = event["agent"]["agent_name"]
            texts[name] = texts.get(name, "") + event["delta"]
    return texts


@pytest.mark.parametrize("background", [False, True])
def test_each_event_names_its_agent_and_sub_agents_stand_below_those_that_started_them(
    tmp_path: Path, *, background: bool
) -> None:
    with stage(tmp_path, NESTED) as app:
        stream = lint_stream(streamed(app, background=background))
        root, child, grandchild = names(stream)
        assert root == "/root"
        assert re.fullmatch(r"/root/agent_[0-9a-f]{8}", child)
        assert re.fullmatch(rf"{child}/agent_[0-9a-f]{{8}}", grandchild)
        assert said(stream) == {
            root: "Let me see.Two it is.",
            child: "I ask another one.They are two.",
            grandchild: "One, two.",
        }
        for event in stream.events:
            if "item" in event:
                assert event["item"]["agent"] == event["agent"]
        texts = [item["content"][0]["text"] for item in stream.response["output"]]
        assert texts == ["Let me see.", "Two it is."]
        tree = app.request("GET", f"/responses/{stream.response['id']}/agents").json()["data"]
        told = {event["agent"]["response_id"] for event in stream.events if "agent" in event}
        assert told == {agent["response_id"] for agent in tree}


def test_the_types_of_the_beta_read_them(tmp_path: Path) -> None:
    with stage(tmp_path, NESTED) as app:
        events = list(
            app.client().beta.responses.create(
                model="scripted", input="How many?", tools=TOOLS, stream=True, extra_headers=SHOWN
            )
        )
        deltas = [event for event in events if isinstance(event, BetaResponseTextDeltaEvent)]
        assert [event.agent.agent_name.count("/") for event in deltas if event.agent] == [1, 2, 3, 3, 2, 1]
        items = [event for event in events if isinstance(event, BetaResponseOutputItemDoneEvent)]
        assert len({event.output_index for event in items}) == len(items) == 5


def test_clients_that_put_streams_together_take_them(tmp_path: Path) -> None:
    with (
        stage(tmp_path, NESTED) as app,
        app.client(strict=False).responses.stream(
            model="scripted", input="How many?", tools=TOOLS, extra_headers=SHOWN
        ) as stream,
    ):
        assert [event.type for event in stream][-1] == "response.completed"
        assert stream.get_final_response().output_text == "Let me see.Two it is."


def normal(raw: bytes) -> list[JSON]:
    """Return the events of a stream with what differs from one run to the next made equal."""
    seen: dict[str, str] = {}
    text = re.sub(
        r'"(\w+)_[0-9a-f]{48}"', lambda found: seen.setdefault(found[0], f'"{found[1]}_{len(seen)}"'), raw.decode()
    )
    text = re.sub(r'"(created_at|completed_at)":\d+', r'"\1":0', text)
    return [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: {")]


def test_without_the_header_a_stream_is_what_it_was(tmp_path: Path) -> None:
    with stage(tmp_path, [*NESTED, *NESTED, *NESTED]) as app:
        plain, off = streamed(app, shown=""), streamed(app, shown="0")
        assert b"agent_name" not in plain
        assert normal(plain) == normal(off)
        shown = normal(streamed(app))
    own = [event for event in shown if event.pop("agent")["agent_name"] == "/root"]
    indexes: dict[int, int] = {}
    for number, event in enumerate(own):
        event["sequence_number"] = number
        event.get("item", {}).pop("agent", None)
        if "output_index" in event:
            event["output_index"] = indexes.setdefault(event["output_index"], len(indexes))
    assert [event["type"] for event in own] == [event["type"] for event in normal(plain)]
    assert [sorted(event) for event in own] == [sorted(event) for event in normal(plain)]
    assert [event.get("output_index") for event in own] == [event.get("output_index") for event in normal(plain)]


@pytest.mark.parametrize("background", [False, True])
def test_sub_agents_that_work_at_the_same_time_are_told_as_they_speak(tmp_path: Path, *, background: bool) -> None:
    gates = [Gate(), Gate()]
    steps: list[Turn | str] = [
        turn(calls=[call("spawn_many", configs=[{"prompt": "A"}, {"prompt": "B"}])]),
        *[turn(["Half, ", gate, "whole."]) for gate in gates],
        "Both.",
    ]
    with stage(tmp_path, steps) as app:
        body = {"model": "scripted", "input": "Go!", "tools": TOOLS, "stream": True, "background": background}
        raw = b""
        url = f"{app.server.url}/v1/responses"
        with httpx.stream("POST", url, json=body, headers=SHOWN, timeout=60) as answer:
            pieces = answer.iter_raw()
            while raw.count(b'"delta":"Half, "') < 2:
                assert raw.count(b"keep-alive") < 8, "nothing is told of them"
                raw += next(pieces)
            assert b"response.completed" not in raw
            for gate in gates:
                gate.open()
            raw += b"".join(pieces)
        stream = lint_stream(raw)
        assert sorted(said(stream).values()) == ["Both.", "Half, whole.", "Half, whole."]
        if background:
            again = app.request("GET", f"/responses/{stream.response['id']}", params={"stream": True})
            assert again.content == raw


def test_a_sub_agent_that_fails_is_no_error_of_the_stream(tmp_path: Path) -> None:
    steps: list[Turn | str] = [
        turn(calls=[call("spawn_agent", prompt="Count.")]),
        turn(["One, ", "two."], error=fail(500, after=1)),
        "Well.",
    ]
    with stage(tmp_path, steps) as app:
        stream = lint_stream(streamed(app))
        assert "error" not in stream.types
        assert stream.response["status"] == "completed"
        assert list(said(stream).values()) == ["One, ", "Well."]


def test_calls_of_sub_agents_are_shown_to_whoever_asks_for_calls(tmp_path: Path) -> None:
    steps: list[Turn | str] = [
        turn(calls=[call("spawn_agent", prompt="Count.")]),
        turn(calls=[call("calculate", expression="6 * 7")]),
        "It is 42.",
        "Well.",
    ]
    with stage(tmp_path, steps) as app:
        body = {"model": "scripted", "input": "Go!", "tools": TOOLS, "stream": True}
        headers = {**SHOWN, "antwort-show-calls": "1"}
        stream = lint_stream(app.request("POST", "/responses", json=body, headers=headers).content)
        ended = [event for event in stream.events if event["type"] == "response.output_item.done"]
        calls = [(event["item"].get("name"), event["agent"]["agent_name"].count("/")) for event in ended]
        assert calls == [("calculate", 2), (None, 2), ("spawn_agent", 1), (None, 1)]
        assert ended[0]["item"]["output"] == "42"


def test_a_response_that_is_not_streamed_shows_none_of_it(tmp_path: Path) -> None:
    with stage(tmp_path, NESTED) as app:
        body = {"model": "scripted", "input": "How many?", "tools": TOOLS}
        response = app.request("POST", "/responses", json=body, headers=SHOWN).json()
        assert [set(item) & {"agent"} for item in response["output"]] == [set(), set()]


def test_what_was_told_of_sub_agents_stays_told_when_a_response_is_cancelled(tmp_path: Path) -> None:
    gate = Gate()
    steps: list[Turn | str] = [
        turn(calls=[call("spawn_agent", prompt="Count.")]),
        turn(["One, ", gate, "two."]),
    ]
    with stage(tmp_path, steps) as app:
        body = {"model": "scripted", "input": "Go!", "tools": TOOLS, "background": True}
        response_id = app.request("POST", "/responses", json=body, headers=SHOWN).json()["id"]
        gate.wait_reached()
        app.client().responses.cancel(response_id)
        gate.open()
        assert done(app, response_id)["output"] == []
        stream = app.resume(response_id, cancelled=True)
        assert all(event["agent"]["agent_name"] != "/root" for event in stream.events if "item" in event)


# --- WebSockets ------------------------------------------------------------------------------------------------------


def test_a_connection_that_asks_for_them_is_told_of_sub_agents(tmp_path: Path) -> None:
    with stage(tmp_path, NESTED) as app, socket(app, headers=SHOWN) as connection:
        stream = connection.ask("How many?", tools=TOOLS)
        assert list(said(stream).values()) == [
            "Let me see.Two it is.",
            "I ask another one.They are two.",
            "One, two.",
        ]


def test_the_beta_is_refused_on_a_connection_which_stays_open(tmp_path: Path) -> None:
    with stage(tmp_path, ["Hello."]) as app, app.client().beta.responses.connect() as connection:
        connection.response.create(model="scripted", input="Hi", multi_agent={"enabled": True})
        refusal: Any = connection.recv()
        assert (refusal.status, refusal.error.param, refusal.error.code) == (
            400,
            "multi_agent",
            "unsupported_parameter",
        )
        assert "POST /v1/responses" in refusal.error.message
        connection.response.inject(input=[], response_id="resp_1")
        refusal = connection.recv()
        assert (refusal.status, refusal.error.param, refusal.error.code) == (400, "type", "inject_not_supported")
        assert "response.create" in refusal.error.message
        connection.response.create(model="scripted", input="Hi")
        event: Any = connection.recv()
        while event.type != "response.completed":
            event = connection.recv()
