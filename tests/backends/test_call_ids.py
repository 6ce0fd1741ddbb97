"""Model servers that give one id to several calls: every call is executed, and every result finds its call."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.backends.conftest import ModelServer, delta, event, reply, stream
from tests.backends.test_responses_answer import added, arguments, end, message, text
from tests.backends.test_responses_answer import call as an_item
from tests.backends.test_responses_answer import done as an_end

from antwort import Antwort
from antwort.config import Config
from antwort.testing import Dialect, ScriptServer, Turn, call, lint_response, lint_stream, running, turn
from antwort.testing.script import Call
from antwort.types import JSON

NUMBERS = range(1, 6)
SAME = [call("square", number=number, call_id="c") for number in NUMBERS]
BOTH_WAYS = pytest.mark.parametrize("streamed", [False, True], ids=["json", "stream"])
TOOL: JSON = {
    "type": "function",
    "name": "ask",
    "parameters": {"type": "object", "properties": {"number": {"type": "integer"}}},
}


class Squares:
    """A function that takes notes. It is not idempotent, so that no call stands for another."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    async def square(self, number: int) -> str:
        """Square a number."""
        self.seen.append(number)
        return str(number * number)


def app_before(url: str, tmp_path: Path, squares: Squares, **backend: Any) -> Antwort:
    """Return an app with the function, before a model server."""
    backends: Any = {"main": {"url": url, "retries": 0, "any_model": True, **backend}}
    return Antwort(Config(data_dir=tmp_path, backends=backends, providers={}), functions=[squares.square])


def create(url: str, streamed: bool, **body: Any) -> JSON:
    """Make a response, which is linted."""
    answer = httpx.post(f"{url}/v1/responses", json={**body, "stream": streamed}, timeout=60)
    assert answer.status_code == 200, answer.text
    if streamed:
        return lint_stream(answer.content).response
    response: JSON = answer.json()
    lint_response(response)
    return response


def pairs(messages: list[JSON]) -> list[tuple[str, str]]:
    """Return arguments and output of each call of a conversation, by the ids that part them."""
    calls = [call for message in messages for call in message.get("tool_calls") or ()]
    outputs = [message for message in messages if message["role"] == "tool"]
    ids = [call["id"] for call in calls]
    assert len(set(ids)) == len(ids), "an id occurs twice"
    assert sorted(ids) == sorted(output["tool_call_id"] for output in outputs)
    found = {output["tool_call_id"]: output["content"] for output in outputs}
    return [(call["function"]["arguments"], found[call["id"]]) for call in calls]


EXPECTED = [(f'{{"number": {number}}}', str(number * number)) for number in NUMBERS]
DIALECTS = {
    "numbered": Dialect(),
    "unnumbered": Dialect(call_index=False),
    "whole": Dialect(whole_calls=True),
    "whole-unnumbered": Dialect(whole_calls=True, call_index=False),
}


@BOTH_WAYS
@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
def test_parallel_calls_with_one_id_are_all_executed(tmp_path: Path, dialect: Dialect, streamed: bool) -> None:
    squares = Squares()
    with (
        ScriptServer([turn(calls=SAME, dialect=dialect), turn("Done.")]) as server,
        running(app_before(server.url, tmp_path, squares)) as served,
    ):
        assert create(served.url, streamed, input="Square them")["status"] == "completed"
    assert sorted(squares.seen) == list(NUMBERS)
    assert pairs(server.requests[1]["messages"]) == EXPECTED


def index_zero(calls: list[Call]) -> Turn:
    """Return a turn as some servers stream it: each call whole, with the same index and the same id."""
    chunks = [
        {
            "index": 0,
            "id": one.call_id,
            "type": "function",
            "function": {"name": one.name, "arguments": one.arguments[0]},
        }
        for one in calls
    ]
    body = b"".join(delta(tool_calls=[chunk]) for chunk in chunks) + delta("tool_calls") + event(b"[DONE]")
    return Turn(raw=(body,), headers={"content-type": "text/event-stream"})


def test_calls_with_one_id_and_one_index_are_all_executed(tmp_path: Path) -> None:
    squares = Squares()
    with (
        ScriptServer([index_zero(SAME), turn("Done.")]) as server,
        running(app_before(server.url, tmp_path, squares)) as served,
    ):
        create(served.url, True, input="Square them")
    assert sorted(squares.seen) == list(NUMBERS)
    assert pairs(server.requests[1]["messages"]) == EXPECTED


def test_calls_with_one_id_and_no_arguments_are_all_executed(tmp_path: Path) -> None:
    seen: list[int] = []

    async def knock() -> str:
        """Knock."""
        seen.append(1)
        return "come in"

    function = {"index": 0, "id": "c", "type": "function", "function": {"name": "knock", "arguments": ""}}
    unnumbered = {name: value for name, value in function.items() if name != "index"}
    with ScriptServer(
        [
            Turn(
                raw=(delta(tool_calls=[function] * 3) + delta("tool_calls") + event(b"[DONE]"),),
                headers={"content-type": "text/event-stream"},
            ),
            Turn(
                raw=(delta(tool_calls=[unnumbered] * 3) + delta("tool_calls") + event(b"[DONE]"),),
                headers={"content-type": "text/event-stream"},
            ),
            turn("Done."),
        ]
    ) as server:
        backends: Any = {"main": {"url": server.url, "retries": 0}}
        app = Antwort(Config(data_dir=tmp_path, backends=backends, providers={}), functions=[knock])
        with running(app) as served:
            create(served.url, True, input="Knock")
    assert len(seen) == 6
    assert pairs(server.requests[2]["messages"]) == [("{}", "come in")] * 6


@BOTH_WAYS
def test_ids_that_come_again_in_later_turns_and_responses_are_made_unique(tmp_path: Path, streamed: bool) -> None:
    squares = Squares()
    steps = [turn(calls=[one]) for one in SAME[:2]]
    with (
        ScriptServer([*steps, turn("Two."), turn(calls=SAME[2:]), turn("Five.")]) as server,
        running(app_before(server.url, tmp_path, squares)) as served,
    ):
        first = create(served.url, streamed, input="Square 1 and 2")
        create(served.url, streamed, input="And the others", previous_response_id=first["id"])
    assert sorted(squares.seen) == list(NUMBERS)
    assert pairs(server.requests[-1]["messages"]) == EXPECTED


@BOTH_WAYS
def test_an_id_of_the_input_is_not_given_to_another_call(tmp_path: Path, streamed: bool) -> None:
    squares = Squares()
    before = [
        {"type": "function_call", "call_id": "c", "name": "square", "arguments": '{"number": 9}'},
        {"type": "function_call_output", "call_id": "c", "output": "81"},
        {"role": "user", "content": "And the others"},
    ]
    with (
        ScriptServer([turn(calls=SAME), turn("Done.")]) as server,
        running(app_before(server.url, tmp_path, squares)) as served,
    ):
        create(served.url, streamed, input=before)
    assert pairs(server.requests[1]["messages"]) == [('{"number": 9}', "81"), *EXPECTED]


@BOTH_WAYS
def test_a_client_gets_an_id_of_its_own_for_each_call(tmp_path: Path, streamed: bool) -> None:
    asked = [call("ask", number=number, call_id="c") for number in NUMBERS]
    with (
        ScriptServer([turn(calls=asked), turn("Done.")]) as server,
        running(app_before(server.url, tmp_path, Squares())) as served,
    ):
        first = create(served.url, streamed, input="Ask", tools=[TOOL])
        results = [
            {
                "type": "function_call_output",
                "call_id": item["call_id"],
                "output": str(json.loads(item["arguments"])["number"] ** 2),
            }
            for item in first["output"]
        ]
        assert len(results) == len(NUMBERS)
        create(served.url, streamed, input=results, tools=[TOOL], previous_response_id=first["id"])
    assert pairs(server.requests[1]["messages"]) == EXPECTED


def numbered(index: int | None, number: int) -> list[JSON]:
    """Return the events of a call, whose id is that of all others; without an index they tell no place."""
    item, whole = an_item("c", "square"), an_item("c", "square", f'{{"number": {number}}}')
    events = [added(index or 0, item), arguments(index or 0, whole["arguments"]), an_end(index or 0, whole)]
    if index is None:
        for one in events:
            del one["output_index"]
    return events


@pytest.mark.parametrize("way", ["json", "stream", "stream-at-one-place", "stream-without-places"])
async def test_a_server_of_the_responses_api_may_repeat_ids(server: ModelServer, tmp_path: Path, way: str) -> None:
    squares = Squares()
    streamed = way != "json"
    wholes = [an_item("c", "square", f'{{"number": {number}}}') for number in NUMBERS]
    place = {"stream-at-one-place": 0, "stream-without-places": None}
    events = [one for number in NUMBERS for one in numbered(place.get(way, number), number)]
    if streamed:
        server.scripts.append(stream(*(event(one) for one in events), event(end(output=wholes))))
        server.scripts.append(stream(event(text("Done.")), event(end())))
    else:
        server.scripts.append(reply(end(output=wholes)["response"]))
        server.scripts.append(reply(end(output=[message("Done.")])["response"]))
    with running(app_before(server.url, tmp_path, squares, api="responses")) as served:
        await asyncio.to_thread(create, served.url, streamed, input="Square them", model="m")
    assert sorted(squares.seen) == list(NUMBERS)
    sent = [exchange for exchange in server.exchanges if exchange.method == "POST"][1].json()["input"]
    calls = {item["call_id"]: item["arguments"] for item in sent if item["type"] == "function_call"}
    outputs = {item["call_id"]: item["output"] for item in sent if item["type"] == "function_call_output"}
    assert [(calls[call_id], outputs[call_id]) for call_id in calls] == EXPECTED


async def test_calls_without_places_that_end_later_are_told_apart_by_their_ids(
    server: ModelServer, tmp_path: Path
) -> None:
    squares = Squares()
    items = [an_item(f"c{number}", "square", f'{{"number": {number}}}') for number in NUMBERS]
    begun: list[JSON] = []
    for item in items:
        begun.append({"type": "response.output_item.added", "item": {**item, "arguments": ""}})
        begun.append({"type": "response.function_call_arguments.delta", "delta": item["arguments"][:5]})
    ended = [{"type": "response.output_item.done", "item": item} for item in items]
    server.scripts.append(stream(*(event(one) for one in [*begun, *ended, end(output=items)])))
    server.scripts.append(stream(event(text("Done.")), event(end())))
    with running(app_before(server.url, tmp_path, squares, api="responses")) as served:
        await asyncio.to_thread(create, served.url, True, input="Square them", model="m")
    assert sorted(squares.seen) == list(NUMBERS)
