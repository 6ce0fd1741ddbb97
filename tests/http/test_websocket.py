"""Responses over a WebSocket: the same events, one request after the other, and a memory of its own."""

import json
from pathlib import Path
from typing import Any

import pytest
from openai.types.responses.responses_server_event import ResponsesServerEvent
from pydantic import TypeAdapter
from tests.http.sdk import CLIENT_TOOL, done, served
from tests.http.sockets import socket
from tests.support.postgres import on_one_store
from websockets.frames import Frame, Opcode

from antwort.server.sockets.connection import TEXTS
from antwort.server.sockets.protocol import WebSocketProtocol, framed
from antwort.testing import Gate, Turn, call, fail, turn

pytestmark = on_one_store()

SERVER_EVENT: TypeAdapter[Any] = TypeAdapter(ResponsesServerEvent)


def said(request: Any) -> list[str]:
    """Return the texts that a model was asked with."""
    return [part["text"] for item in request.items if item["type"] == "message" for part in item["content"]]


def test_the_events_are_those_of_a_stream_without_an_end_mark(tmp_path: Path) -> None:
    steps: list[Turn | str] = [turn(["Hel", "lo"], reasoning=["Hm"])] * 2
    with served(tmp_path, steps) as stage, socket(stage) as client:
        streamed = stage.stream(model="scripted", input="Hi")
        answered = client.ask()
        assert answered.types == streamed.types
        assert answered.text == "Hello"
        client.send(type="nothing")
        assert client.refusal()["status"] == 400  # no [DONE] came before it


def test_every_event_is_one_the_sdk_knows(tmp_path: Path) -> None:
    steps: list[Turn | str] = [turn(["a"], calls=[call("get_weather", city="Rome")]), turn(error=fail(503))]
    with served(tmp_path, steps) as stage, socket(stage) as client:
        events = client.ask(tools=[CLIENT_TOOL], stream_id="lane").events
        client.create()
        for event in [*events, client.refusal()]:
            SERVER_EVENT.validate_python(event)


def test_turns_on_one_connection_continue_each_other(tmp_path: Path) -> None:
    with served(tmp_path, ["One", "Two", "Three"]) as stage, socket(stage) as client:
        first = client.ask("a")
        second = client.ask("b", previous_response_id=first.response["id"])
        client.ask("c", previous_response_id=second.response["id"])
        assert said(stage.requests[2]) == ["a", "One", "b", "Two", "c"]
        assert second.response["previous_response_id"] == first.response["id"]


def test_requests_that_come_meanwhile_wait_and_are_answered_in_order(tmp_path: Path) -> None:
    gate = Gate()
    with served(tmp_path, [turn("One", wait_for=gate), "Two", "Three"]) as stage, socket(stage) as client:
        for text in "abc":
            client.create(text)
        client.send(type="nonsense")
        gate.wait_reached()
        assert len(stage.requests) == 1
        gate.open()
        assert [client.answer().text for _ in range(3)] == ["One", "Two", "Three"]
        assert client.refusal()["error"]["code"] == "unknown_type"
        assert [said(request) for request in stage.requests] == [["a"], ["b"], ["c"]]


def test_two_connections_are_answered_at_the_same_time(tmp_path: Path) -> None:
    gate = Gate()
    with served(tmp_path, [turn("One", wait_for=gate), "Two"]) as stage, socket(stage) as one, socket(stage) as other:
        one.create()
        gate.wait_reached()
        assert other.ask().text == "Two"
        gate.open()
        assert one.answer().text == "One"


def test_fields_that_only_mean_something_over_http_are_ignored(tmp_path: Path) -> None:
    with served(tmp_path, ["One", "Two"]) as stage, socket(stage) as client:
        for stream in (True, False):
            client.create(stream=stream, stream_options={"include_obfuscation": False}, background=False)
            assert client.answer().response["status"] == "completed"


def test_a_model_that_thinks_for_long_does_not_keep_the_beginning_back(tmp_path: Path) -> None:
    gate = Gate()
    with served(tmp_path, [turn("One", wait_for=gate)]) as stage, socket(stage) as client:
        client.create()
        assert client.receive()["type"] == "response.created"
        gate.open()
        while client.receive()["type"] != "response.completed":
            pass


WRONG: list[tuple[Any, str, str | None]] = [
    ("{", "invalid_json", None),
    ("[1]", "invalid_type", None),
    ('"x"', "invalid_type", None),
    ('{"type": "\\ud83d"', "invalid_json", None),
    ('{"a":' + "[" * 100_000, "invalid_json", None),
    (b"\x00\x01", "invalid_frame", None),
    (b'{"type": "response.create"}', "invalid_frame", None),
    ({}, "unknown_type", "type"),
    ({"type": 7}, "unknown_type", "type"),
    ({"type": "response.cancel"}, "missing_required_parameter", "response_id"),
    ({"type": "response.cancel", "response_id": 7}, "missing_required_parameter", "response_id"),
    ({"type": "response.canel"}, "unknown_type", "type"),
    (
        {"type": "response.steer", "previous_response_id": "resp_1", "input": "Stop"},
        "steering_not_supported",
        "type",
    ),
    ({"type": "response.create", "input": "a", "inptu": "b"}, "unknown_parameter", "inptu"),
    ({"type": "response.create", "input": "a", "temperature": "hot"}, "invalid_type", "temperature"),
    ({"type": "response.create", "input": "a", "background": True}, "unsupported_parameter", "background"),
    ({"type": "response.create", "input": "a", "generate": "no"}, "invalid_value", "generate"),
    ({"type": "response.create", "input": "a", "stream_id": ""}, "invalid_value", "stream_id"),
    ({"type": "response.create", "input": "a", "stream_id": "a b"}, "invalid_value", "stream_id"),
    ({"type": "response.create", "input": "a", "stream_id": 3}, "invalid_value", "stream_id"),
    ({"type": "response.create"}, "missing_required_parameter", "input"),
]


def test_what_is_wrong_is_told_and_the_connection_stays_usable(tmp_path: Path) -> None:
    with served(tmp_path, ["Fine"]) as stage, socket(stage) as client:
        for frame, code, param in WRONG:
            client.connection.send(json.dumps(frame) if isinstance(frame, dict) else frame)
            refusal = client.refusal()
            assert (refusal["status"], refusal["error"]["code"], refusal["error"]["param"]) == (400, code, param)
            assert refusal["error"]["type"] == "invalid_request_error"
        assert client.ask().text == "Fine"


# --- lanes -----------------------------------------------------------------------------------------------------------


def test_a_lane_is_named_in_every_event_of_its_answers(tmp_path: Path) -> None:
    with served(tmp_path, ["One", "Two", turn(error=fail(500))]) as stage, socket(stage) as client:
        one, two = client.ask(stream_id="lane-1"), client.ask()
        assert {event["stream_id"] for event in one.events} == {"lane-1"}
        assert not any("stream_id" in event for event in two.events)
        client.create(stream_id="lane-2")
        assert client.refusal()["stream_id"] == "lane-2"


def test_each_lane_remembers_its_latest_response(tmp_path: Path) -> None:
    with served(tmp_path, ["One", "Two", "Three", "Four"]) as stage, socket(stage) as client:
        one = client.ask("a", store=False, stream_id="x").response["id"]
        two = client.ask("b", store=False, stream_id="y").response["id"]
        client.ask("c", store=False, stream_id="x", previous_response_id=one)
        client.ask("d", store=False, stream_id="y", previous_response_id=two)
        assert said(stage.requests[2]) == ["a", "One", "c"]
        assert said(stage.requests[3]) == ["b", "Two", "d"]


# --- failures --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_failure_before_the_first_event_is_an_error_with_its_status(tmp_path: Path, status: int) -> None:
    with served(tmp_path, [turn(error=fail(status)), "Fine"]) as stage, socket(stage) as client:
        client.create()
        refusal = client.refusal()
        assert refusal["status"] == status
        assert "sequence_number" not in refusal
        assert client.ask().text == "Fine"


@pytest.mark.parametrize(("status", "told", "code"), [(429, 429, "rate_limit_exceeded"), (503, 500, "server_error")])
def test_a_failure_in_the_middle_is_an_error_event_and_a_failed_response(
    tmp_path: Path, status: int, told: int, code: str
) -> None:
    with served(tmp_path, [turn(["Hel", "lo"], error=fail(status, after=1)), "Fine"]) as stage, socket(stage) as client:
        client.create()
        events = [client.receive()]
        while events[-1]["type"] != "response.failed":
            events.append(client.receive())
        error = events[-2]
        assert (error["type"], error["status"], error["error"]["code"]) == ("error", told, code)
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        assert client.ask().text == "Fine"


def test_an_unknown_model_is_refused_as_over_http(tmp_path: Path) -> None:
    with served(tmp_path, [], over_http=True, backend={"models": ["scripted"]}) as stage, socket(stage) as client:
        client.send(type="response.create", model="nobody", input="Hi")
        refusal = client.refusal()
        assert (refusal["status"], refusal["error"]["code"]) == (404, "model_not_found")


# --- warming up ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("store", [True, False])
def test_a_request_that_generates_nothing_can_be_continued(tmp_path: Path, store: bool) -> None:
    with served(tmp_path, ["Fine"]) as stage, socket(stage) as client:
        warm = client.ask("Remember this", instructions="Be brief", generate=False, store=store)
        assert warm.types == ["response.created", "response.in_progress", "response.completed"]
        assert warm.response["output"] == []
        assert not stage.requests
        found = stage.request("GET", f"/responses/{warm.response['id']}")
        assert found.status_code == (200 if store else 404)
        assert client.ask("Now", previous_response_id=warm.response["id"], store=store).text == "Fine"
        assert said(stage.requests[0]) == ["Remember this", "Now"]


def test_a_request_that_generates_nothing_is_checked_all_the_same(tmp_path: Path) -> None:
    with served(tmp_path, []) as stage, socket(stage) as client:
        client.create(generate=False, previous_response_id="resp_unknown")
        assert client.refusal()["error"]["code"] == "previous_response_not_found"


# --- memory ----------------------------------------------------------------------------------------------------------


def test_what_is_not_stored_can_be_continued_on_its_connection_and_nowhere_else(tmp_path: Path) -> None:
    with served(tmp_path, ["One", "Two"]) as stage, socket(stage) as client:
        first = client.ask("a", store=False).response["id"]
        with socket(stage) as other:
            other.create("b", previous_response_id=first)
            refusal = other.refusal()
        assert (refusal["status"], refusal["error"]["code"]) == (400, "previous_response_not_found")
        assert refusal["error"]["param"] == "previous_response_id"
        assert stage.request("GET", f"/responses/{first}").status_code == 404
        body = {"model": "scripted", "input": "b", "previous_response_id": first}
        assert stage.request("POST", "/responses", json=body).json()["error"]["code"] == "previous_response_not_found"
        client.ask("b", store=False, previous_response_id=first)
        assert said(stage.requests[1]) == ["a", "One", "b"]


def test_only_the_latest_response_is_remembered(tmp_path: Path) -> None:
    with served(tmp_path, ["One", "Two", "Three"]) as stage, socket(stage) as client:
        first = client.ask(store=False).response["id"]
        client.ask(store=False)
        client.create(previous_response_id=first)
        assert client.refusal()["error"]["code"] == "previous_response_not_found"
        assert client.ask().text == "Three"


def test_a_stored_response_takes_the_place_of_one_that_is_not(tmp_path: Path) -> None:
    with served(tmp_path, ["One", "Two"]) as stage, socket(stage) as client:
        first = client.ask(store=False).response["id"]
        client.ask(store=True)
        client.create(previous_response_id=first)
        assert client.refusal()["error"]["code"] == "previous_response_not_found"


def test_a_stored_response_that_continues_one_that_is_not_keeps_all_on_its_connection(tmp_path: Path) -> None:
    with served(tmp_path, ["One", "Two", "Three"]) as stage, socket(stage) as client:
        first = client.ask("a", store=False).response["id"]
        second = client.ask("b", previous_response_id=first).response["id"]
        client.ask("c", previous_response_id=second)
        assert said(stage.requests[2]) == ["a", "One", "b", "Two", "c"]


def test_a_stored_response_takes_along_what_it_continues_and_nobody_stores(tmp_path: Path) -> None:
    with served(tmp_path, ["One", "Two", "Three"]) as stage:
        with socket(stage) as one:
            first = one.ask("1", store=False).response["id"]
            second = one.ask("2", previous_response_id=first).response["id"]
        with socket(stage) as other:
            other.ask("3", previous_response_id=second)
        listed = stage.request("GET", f"/responses/{second}/input_items", params={"order": "asc"}).json()
        assert [item["content"][0]["text"] for item in listed["data"]] == ["1", "One", "2"]
        shown = stage.request("GET", f"/responses/{second}").json()
        assert [item["content"][0]["text"] for item in shown["output"]] == ["Two"]
    assert [item["content"][0]["text"] for item in stage.requests[2].items] == ["1", "One", "2", "Two", "3"]


def test_stored_responses_are_continued_after_a_new_connection(tmp_path: Path) -> None:
    with served(tmp_path, ["One", "Two", "Three"]) as stage:
        with socket(stage) as client:
            first = client.ask("a").response["id"]
        with socket(stage) as client:
            second = client.ask("b", previous_response_id=first).response["id"]
            client.ask("c", previous_response_id=first)  # an earlier one: another branch
        assert stage.request("GET", f"/responses/{second}").json()["previous_response_id"] == first
        assert said(stage.requests[1]) == ["a", "One", "b"]
        assert said(stage.requests[2]) == ["a", "One", "c"]


def test_a_deleted_response_is_not_remembered_either(tmp_path: Path) -> None:
    with served(tmp_path, ["One"]) as stage, socket(stage) as client:
        first = client.ask().response["id"]
        assert stage.request("DELETE", f"/responses/{first}").status_code == 200
        client.create(previous_response_id=first)
        assert client.refusal()["error"]["code"] == "previous_response_not_found"


@pytest.mark.parametrize(
    "wrong",
    [
        {"text": [{"type": "function_call_output", "call_id": "call_unknown", "output": "1"}]},
        {"temperature": 9},
        {"background": True},
        {"model": 7},
    ],
)
def test_a_continuation_that_is_refused_forgets_what_it_continues(tmp_path: Path, wrong: Any) -> None:
    with served(tmp_path, ["One"]) as stage, socket(stage) as client:
        first = client.ask(store=False).response["id"]
        client.send(
            **{
                "type": "response.create",
                "previous_response_id": first,
                "input": wrong.get("text", "b"),
                **{name: value for name, value in wrong.items() if name != "text"},
            }
        )
        assert client.refusal()["status"] == 400
        client.create("b", previous_response_id=first)
        assert client.refusal()["error"]["code"] == "previous_response_not_found"


@pytest.mark.parametrize("failing", [turn(error=fail(503)), turn(["Hel", "lo"], error=fail(503, after=1))])
def test_a_continuation_that_fails_forgets_what_it_continues(tmp_path: Path, failing: Any) -> None:
    with served(tmp_path, ["One", failing]) as stage, socket(stage) as client:
        first = client.ask(store=False).response["id"]
        client.create("b", store=False, previous_response_id=first)
        while client.receive()["type"] not in {"response.failed", "error"}:
            pass
        client.create("b", previous_response_id=first)
        while (event := client.receive())["type"] != "error":
            assert event["type"] == "response.failed"
        assert event["error"]["code"] == "previous_response_not_found"


def test_a_failure_that_names_another_response_forgets_nothing(tmp_path: Path) -> None:
    with served(tmp_path, ["One", "Two"]) as stage, socket(stage) as client:
        first = client.ask(store=False).response["id"]
        client.create(previous_response_id="resp_unknown")
        assert client.refusal()["error"]["code"] == "previous_response_not_found"
        client.send(type="nonsense")
        client.refusal()
        assert client.ask(store=False, previous_response_id=first).text == "Two"


def test_the_memory_is_bounded(tmp_path: Path) -> None:
    steps: list[Turn | str] = ["One", "x" * 2000, "Three"]
    with served(tmp_path, steps, server={"websocket": {"memory": 1500}}) as stage, socket(stage) as client:
        first = client.ask(store=False).response["id"]
        second = client.ask(store=False, previous_response_id=first).response["id"]
        client.create(previous_response_id=second)
        assert client.refusal()["error"]["code"] == "previous_response_not_found"
        assert client.ask().text == "Three"


def test_a_call_of_the_clients_function_is_answered_on_the_connection(tmp_path: Path) -> None:
    steps: list[Turn | str] = [turn(calls=[call("get_weather", city="Rome")]), "Sunny"]
    with served(tmp_path, steps) as stage, socket(stage) as client:
        asked = client.ask("Weather?", store=False, tools=[CLIENT_TOOL]).response
        (made,) = asked["output"]
        output = {"type": "function_call_output", "call_id": made["call_id"], "output": "sun"}
        client.create([output], store=False, tools=[CLIENT_TOOL], previous_response_id=asked["id"])
        assert client.answer().text == "Sunny"
        assert [item["type"] for item in stage.requests[1].items] == [
            "message",
            "function_call",
            "function_call_output",
        ]


def test_functions_of_the_server_are_remembered_with_their_results(tmp_path: Path) -> None:
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    steps: list[Turn | str] = [turn(calls=[call("add", a=1, b=2)]), "It is 3", "Still 3"]
    with served(tmp_path, steps, functions=[add]) as stage, socket(stage) as client:
        first = client.ask("Add", store=False).response["id"]
        client.ask("Sure?", store=False, previous_response_id=first)
        kinds = [item["type"] for item in stage.requests[2].items]
        assert kinds == ["message", "function_call", "function_call_output", "message", "message"]


# --- leaving ---------------------------------------------------------------------------------------------------------


def test_the_response_is_cancelled_when_the_client_leaves(tmp_path: Path) -> None:
    gate = Gate()
    with served(tmp_path, [turn(["Hel", gate, "lo"])]) as stage:
        with socket(stage) as client:
            client.create()
            first = client.receive()
            gate.wait_reached()
        gate.wait_abandoned()
        assert done(stage, first["response"]["id"])["status"] == "cancelled"


def test_requests_that_wait_are_not_begun_when_the_client_leaves(tmp_path: Path) -> None:
    gate = Gate()
    with served(tmp_path, [turn("One", wait_for=gate)]) as stage:
        with socket(stage) as client:
            client.create()
            client.create()
            gate.wait_reached()
        gate.wait_abandoned()
        assert stage.request("GET", "/models").status_code == 200
    assert len(stage.requests) == 1


def test_events_that_come_together_leave_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writes: list[int] = []
    send = WebSocketProtocol.send

    async def counted(self: WebSocketProtocol, message: Any) -> None:
        writes.append(len(message.get(TEXTS, [0])))
        await send(self, message)

    monkeypatch.setattr(WebSocketProtocol, "send", counted)
    with served(tmp_path, [turn(["one ", "two ", "three"], burst=3)]) as stage, socket(stage) as client:
        kinds = client.ask("Count.").types
    assert kinds.count("response.output_text.delta") == 3
    assert max(writes) >= 3  # each event is a message of its own all the same
    assert sum(writes) > len(writes)


@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 65_535, 65_536, 200_000])
def test_texts_are_framed_as_the_library_does(size: int) -> None:
    text = b"x" * size
    assert b"".join(framed([text, b"{}"])) == b"".join(
        Frame(Opcode.TEXT, data).serialize(mask=False) for data in (text, b"{}")
    )


def test_a_long_text_arrives_in_one_frame(tmp_path: Path) -> None:
    pieces = ["short ", "x" * 70_000, " end"]
    with served(tmp_path, [turn(pieces)]) as stage, socket(stage) as client:
        assert client.ask().text == "".join(pieces)
