"""Responses that are cancelled on their WebSocket, as voice agents do whenever their user begins to speak."""

import asyncio
import json
import threading
from pathlib import Path

import pytest
from tests.http.sdk import done, served
from tests.http.sockets import Socket, socket
from tests.http.test_websocket import said
from tests.support.postgres import on_one_store

from antwort.server.http.sse import DONE, frame
from antwort.testing import Gate, LintedStream, Turn, call, lint_stream, turn
from antwort.types import JSON

pytestmark = on_one_store()


def interrupt(client: Socket, gate: Gate) -> LintedStream:
    """Cancel the response that the gate holds; return its events, which keep every rule of a stream."""
    first = client.receive()
    gate.wait_reached()
    client.send(type="response.cancel", response_id=first["response"]["id"])
    events: list[JSON] = [first]
    while events[-1]["type"] != "response.incomplete":
        events.append(client.receive())
    return lint_stream(b"".join([*(frame(event["type"], json.dumps(event).encode()) for event in events), DONE]))


def test_a_cancelled_response_ends_as_it_is_and_the_next_one_is_answered(tmp_path: Path) -> None:
    gate = Gate()
    with served(tmp_path, [turn(["Hel", gate, "lo"]), "Two"]) as stage, socket(stage) as client:
        client.create("a")
        stream = interrupt(client, gate)
        gate.wait_abandoned()
        assert stream.response["status"] == "incomplete"
        assert stream.response["incomplete_details"] == {"reason": "cancelled"}
        assert stream.text == "Hel"
        assert done(stage, stream.response["id"])["status"] == "incomplete"
        assert client.ask("b", previous_response_id=stream.response["id"]).text == "Two"
        assert said(stage.requests[1]) == ["a", "Hel", "b"]


def test_one_that_is_not_stored_can_be_continued_on_its_connection(tmp_path: Path) -> None:
    gate = Gate()
    with served(tmp_path, [turn(["Hel", gate, "lo"]), "Two"]) as stage, socket(stage) as client:
        client.create("a", store=False)
        stream = interrupt(client, gate)
        assert client.ask("b", previous_response_id=stream.response["id"], store=False).text == "Two"
        assert said(stage.requests[1]) == ["a", "Hel", "b"]


def test_requests_that_wait_are_answered_after_it(tmp_path: Path) -> None:
    gate = Gate()
    with served(tmp_path, [turn(["Hel", gate, "lo"]), "Two", "Three"]) as stage, socket(stage) as client:
        for text in ("a", "b", "c"):
            client.create(text)
        interrupt(client, gate)
        assert [client.answer().text, client.answer().text] == ["Two", "Three"]


@pytest.mark.parametrize("lane", [None, "voice"])
def test_one_that_is_over_or_unknown_stays_as_it_is_without_a_word(tmp_path: Path, lane: str | None) -> None:
    lanes = {} if lane is None else {"stream_id": lane}
    with served(tmp_path, ["One", "Two"]) as stage, socket(stage) as client:
        first = client.ask(**lanes)
        for response_id in (first.response["id"], first.response["id"], "resp_0"):
            client.send(type="response.cancel", response_id=response_id, **lanes)
        assert client.ask(**lanes).text == "Two"  # an error in between would be taken for its answer
        assert done(stage, first.response["id"])["status"] == "completed"


def test_cancelling_twice_ends_it_once(tmp_path: Path) -> None:
    gate = Gate()
    with served(tmp_path, [turn(["Hel", gate, "lo"]), "Two"]) as stage, socket(stage) as client:
        client.create()
        first = client.receive()
        gate.wait_reached()
        for _ in range(3):
            client.send(type="response.cancel", response_id=first["response"]["id"])
        while client.receive()["type"] != "response.incomplete":
            pass
        assert client.ask().text == "Two"


def test_a_function_of_the_server_is_stopped(tmp_path: Path) -> None:
    began, stopped = threading.Event(), threading.Event()

    async def dawdle() -> None:
        """Take for ever."""
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    steps: list[Turn | str] = [turn(calls=[call("dawdle")]), "Two"]
    with served(tmp_path, steps, functions=[dawdle]) as stage, socket(stage) as client:
        client.create(tools=[{"type": "function", "name": "dawdle"}])
        first = client.receive()
        assert began.wait(20)
        client.send(type="response.cancel", response_id=first["response"]["id"])
        while client.receive()["type"] != "response.incomplete":
            pass
        assert stopped.is_set()
        assert client.ask().text == "Two"


def test_a_client_that_cancels_and_leaves_is_gone(tmp_path: Path) -> None:
    gate = Gate()
    with served(tmp_path, [turn(["Hel", gate, "lo"])]) as stage:
        with socket(stage) as client:
            client.create()
            client.create()
            response_id = client.receive()["response"]["id"]
            gate.wait_reached()
            client.send(type="response.cancel", response_id=response_id)
        gate.wait_abandoned()
        assert done(stage, response_id)["status"] == "incomplete"
