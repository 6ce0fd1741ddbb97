"""The events of messages on the wire: their types, their order, and what comes when nothing is said."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.http.messages import ASK, TOOL, events
from tests.http.sdk import served
from tests.support.postgres import on_one_store

from antwort.testing import Gate, call, turn

pytestmark = on_one_store()


def kinds(found: list[Any]) -> list[str]:
    return [event["type"] for event in found]


def test_a_text_has_its_events(tmp_path: Path) -> None:
    with served(tmp_path, [turn(["Hel", 'lo "\\ü'])]) as stage:
        found = events(stage)
    assert kinds(found) == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    begun = found[0]["message"]
    assert (begun["content"], begun["stop_reason"], begun["role"]) == ([], None, "assistant")
    assert found[1]["content_block"] == {"type": "text", "text": ""}
    assert [event["delta"]["text"] for event in found[2:4]] == ["Hel", 'lo "\\ü']
    assert found[5]["delta"] == {"stop_reason": "end_turn", "stop_sequence": None}
    assert (found[5]["usage"]["input_tokens"], found[5]["usage"]["output_tokens"]) == (10, 5)


@pytest.mark.parametrize("over_http", [False, True])
def test_thoughts_text_and_calls_are_blocks_one_after_the_other(tmp_path: Path, over_http: bool) -> None:
    calls = [call("get_weather", ['{"ci', 'ty": "Bo', 'nn"}']), call("get_weather", {"city": "Rome"}), call("f", "{}")]
    said = turn(["Let me ", "look."], reasoning=["Tea", "?"], calls=calls)
    with served(tmp_path, [said], over_http=over_http) as stage:
        found = events(stage, tools=[TOOL, {**TOOL, "name": "f"}])
    begun = [event["content_block"] for event in found if event["type"] == "content_block_start"]
    assert [block["type"] for block in begun] == ["thinking", "text", "tool_use", "tool_use", "tool_use"]
    deltas: dict[int, list[Any]] = {}
    for event in found:
        if event["type"] == "content_block_delta":
            deltas.setdefault(event["index"], []).append(event["delta"])
    assert [one["type"] for one in deltas[0]] == ["thinking_delta", "thinking_delta", "signature_delta"]
    assert "".join(one["text"] for one in deltas[1]) == "Let me look."
    asked = [json.loads("".join(one["partial_json"] for one in deltas[index])) for index in (2, 3, 4)]
    assert asked == [{"city": "Bonn"}, {"city": "Rome"}, {}]
    assert begun[2]["input"] == {}
    assert found[-2]["delta"]["stop_reason"] == "tool_use"


def test_arguments_that_are_cut_off_end_the_block(tmp_path: Path) -> None:
    cut = turn(calls=[call("get_weather", ['{"ci', 'ty": "Bo'])], finish="length")
    with served(tmp_path, [cut]) as stage:
        found = events(stage, tools=[TOOL])
    assert kinds(found)[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert found[-2]["delta"]["stop_reason"] == "max_tokens"


def test_an_empty_answer_has_no_blocks(tmp_path: Path) -> None:
    with served(tmp_path, [turn("")]) as stage:
        assert kinds(events(stage)) == ["message_start", "message_delta", "message_stop"]


def test_a_stream_says_that_it_lives_by_pings(tmp_path: Path) -> None:
    gate = Gate()
    body = {**ASK, "stream": True}
    with served(tmp_path, [turn(["One", gate, "two"])], engine={"heartbeat": 1}) as stage:
        url = f"{stage.server.url}/v1/messages"
        with httpx.stream("POST", url, json=body, timeout=60) as answer:
            read = ""
            for piece in answer.iter_text():
                read += piece
                if 'event: ping\ndata: {"type":"ping"}\n\n' in read:
                    gate.open()
    assert read.index("One") < read.index("event: ping") < read.index("two")
    assert read.endswith('event: message_stop\ndata: {"type":"message_stop"}\n\n')
