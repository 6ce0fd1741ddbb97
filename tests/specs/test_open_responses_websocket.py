"""Open Responses 2026-04-24: WebSockets (1.10), and many requests at the same time (checklist 17)."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.http import sdk
from tests.http.sdk import CLIENT_TOOL, served
from tests.http.sockets import Socket, socket
from tests.specs.open_responses import ask, called_back, post, said, texts
from tests.support.postgres import on_one_store

from antwort.config import Config
from antwort.testing import Gate, Turn, call, fail, matching, turn
from antwort.types import JSON

pytestmark = on_one_store()

CODE_WORD = "Remember the code word: ember."


@pytest.fixture(autouse=True)
def _on_each_store(database_url: str) -> Iterator[None]:
    token = sdk.DATABASE.set(database_url)
    yield
    sdk.DATABASE.reset(token)


def refused(client: Socket, text: str | list[JSON] = "Go on", **fields: Any) -> tuple[int, str]:
    """Ask for a response that is refused; return the status and the code."""
    client.create(text, **fields)
    refusal = client.refusal()
    return refusal["status"], refusal["error"]["code"]


# --- frames ----------------------------------------------------------------------------------------------------------


def test_the_server_s_frames_are_the_events_of_a_stream_one_each(tmp_path: Path) -> None:
    step = turn(["Hel", "lo"], reasoning="Hm", calls=[call("get_weather", city="Bonn")])
    with served(tmp_path, [step, step]) as stage, socket(stage) as client:
        streamed = stage.stream(model="scripted", input="Hi", tools=[CLIENT_TOOL])
        answered = client.ask(tools=[CLIENT_TOOL])
    assert answered.types == streamed.types
    assert answered.text == streamed.text
    assert [set(event) for event in answered.events] == [set(event) for event in streamed.events]


def test_there_is_no_done_on_a_socket(tmp_path: Path) -> None:
    """Checklist 10."""
    with served(tmp_path, ["One", "Two", turn("Hal", finish="length")]) as stage, socket(stage) as client:
        for _ in range(3):
            client.create()
            while client.receive()["type"] not in {"response.completed", "response.incomplete"}:
                pass  # each frame is JSON
        client.send(type="nonsense")
        assert client.refusal()["error"]["code"] == "unknown_type"  # nothing came after the last event


@pytest.mark.parametrize("fields", [{"stream": True}, {"stream_options": {"include_obfuscation": True}}])
def test_fields_of_http_that_change_nothing_are_ignored(tmp_path: Path, fields: JSON) -> None:
    """Clients must not send them; some do on every frame."""
    with served(tmp_path, ["Fine"]) as stage, socket(stage) as client:
        assert client.ask(**fields).text == "Fine"


def test_background_is_refused_on_a_socket(tmp_path: Path) -> None:
    with served(tmp_path, []) as stage, socket(stage) as client:
        assert refused(client, background=True) == (400, "unsupported_parameter")


def test_an_error_has_a_status_and_a_code_and_the_socket_stays_usable(tmp_path: Path) -> None:
    steps: list[Turn | str] = [turn(error=fail(429)), turn(error=fail(503)), "Fine"]
    with served(tmp_path, steps) as stage, socket(stage) as client:
        client.connection.send("{")
        refusal = client.refusal()
        assert (refusal["status"], refusal["error"]["type"]) == (400, "invalid_request_error")
        assert refused(client, temperature=9) == (400, "decimal_above_max_value")
        assert refused(client)[0] == 429
        assert refused(client)[0] == 503
        assert client.ask().text == "Fine"


def test_a_response_that_fails_in_the_middle_ends_like_a_stream(tmp_path: Path) -> None:
    with served(tmp_path, [turn(["Hel", "lo"], error=fail(500, after=1)), "Fine"]) as stage, socket(stage) as client:
        client.create()
        types = []
        while "response.failed" not in types:
            types.append(client.receive()["type"])
        assert types[-2:] == ["error", "response.failed"]
        assert client.ask().text == "Fine"


# --- one at a time ---------------------------------------------------------------------------------------------------


def test_turns_on_one_connection_follow_each_other(tmp_path: Path) -> None:
    with served(tmp_path, ["first", "second"]) as stage, socket(stage) as client:
        answers = [client.ask(text, store=False) for text in ("One", "Two")]
    assert [answer.text for answer in answers] == ["first", "second"]
    assert [answer.events[0]["sequence_number"] for answer in answers] == [0, 0]
    assert [texts(stage, number) for number in range(2)] == [["One"], ["Two"]]


def test_one_response_is_in_flight_and_the_next_waits_its_turn(tmp_path: Path) -> None:
    gate = Gate()
    with served(tmp_path, [turn(["fir", gate, "st"]), "second"]) as stage, socket(stage) as client:
        client.create("One")
        client.create("Two")
        gate.wait_reached()
        assert len(stage.requests) == 1
        gate.open()
        assert [client.answer().text for _ in range(2)] == ["first", "second"]  # the linter would see them mixed


# --- the connection's own memory -------------------------------------------------------------------------------------


@pytest.mark.parametrize("store", [False, True])
def test_a_response_is_continued_on_its_connection_stored_or_not(tmp_path: Path, store: bool) -> None:
    with served(tmp_path, ["OK", "ember"]) as stage, socket(stage) as client:
        first = client.ask(CODE_WORD, store=store).response
        second = client.ask("Which?", store=store, previous_response_id=first["id"]).response
        assert second["previous_response_id"] == first["id"]
        assert texts(stage) == [CODE_WORD, "OK", "Which?"]
        kept = stage.request("GET", f"/responses/{second['id']}").status_code
        assert kept == (200 if store else 404)


def test_a_call_is_answered_on_the_connection_without_anything_stored(tmp_path: Path) -> None:
    steps: list[Turn | str] = [turn(calls=[call("get_weather", call_id="call_1")]), "Wet"]
    with served(tmp_path, steps) as stage, socket(stage) as client:
        first = client.ask("Rain?", store=False, tools=[CLIENT_TOOL]).response
        answer = client.ask([called_back("call_1")], store=False, previous_response_id=first["id"])
    assert answer.text == "Wet"


def test_what_is_not_stored_is_gone_on_a_new_connection_which_can_begin_again(tmp_path: Path) -> None:
    with served(tmp_path, ["OK", "recovered"]) as stage:
        with socket(stage) as client:
            first = client.ask(CODE_WORD, store=False).response["id"]
        with socket(stage) as client:
            missing = refused(client, store=False, previous_response_id=first)
            assert missing == (400, "previous_response_not_found")
            assert client.ask([said("user", "Again.")], store=False).text == "recovered"
    assert texts(stage) == ["Again."]


def test_what_is_stored_is_continued_on_a_new_connection_and_over_http(tmp_path: Path) -> None:
    with served(tmp_path, ["OK", "ember", "ember"]) as stage:
        with socket(stage) as client:
            first = client.ask(CODE_WORD).response["id"]
        with socket(stage) as client:
            assert client.ask("Which?", previous_response_id=first).text == "ember"
        ask(stage, "Which?", previous_response_id=first)
    assert texts(stage, 1) == texts(stage, 2) == [CODE_WORD, "OK", "Which?"]


def test_what_is_not_stored_cannot_be_read_from_another_socket_nor_over_http(tmp_path: Path) -> None:
    """Checklist 10."""
    with served(tmp_path, ["OK"]) as stage, socket(stage) as client, socket(stage) as other:
        first = client.ask(CODE_WORD, store=False).response["id"]
        assert refused(other, previous_response_id=first) == (400, "previous_response_not_found")
        assert stage.request("GET", f"/responses/{first}").status_code == 404
        assert post(stage, input="Hi", previous_response_id=first)[1]["error"]["code"] == "previous_response_not_found"


@pytest.mark.parametrize("store", [False, True])
def test_a_previous_response_nobody_knows_is_not_found(tmp_path: Path, store: bool) -> None:
    with served(tmp_path, []) as stage, socket(stage) as client:
        missing = refused(client, store=store, previous_response_id="resp_missing")
        assert missing == (400, "previous_response_not_found")


def test_a_continuation_that_is_refused_makes_the_connection_forget_it(tmp_path: Path) -> None:
    with served(tmp_path, ["OK", "fresh"]) as stage, socket(stage) as client:
        first = client.ask(CODE_WORD, store=False).response["id"]
        assert refused(client, [called_back("call_none")], store=False, previous_response_id=first)[0] == 400
        again = refused(client, "Go on", store=False, previous_response_id=first)
        assert again == (400, "previous_response_not_found")
        assert client.ask(store=False).text == "fresh"


@pytest.mark.parametrize("status", [429, 500])
def test_so_does_one_that_the_model_fails(tmp_path: Path, status: int) -> None:
    with served(tmp_path, ["OK", turn(error=fail(status))]) as stage, socket(stage) as client:
        first = client.ask(CODE_WORD, store=False).response["id"]
        assert refused(client, store=False, previous_response_id=first)[0] == status
        again = refused(client, store=False, previous_response_id=first)
        assert again == (400, "previous_response_not_found")


def test_what_compaction_gives_begins_a_new_chain_on_a_socket(tmp_path: Path) -> None:
    steps: list[Turn | str] = ["The code word is ember.", "ember", "Sure"]
    with served(tmp_path, steps) as stage, socket(stage) as client:
        _, window = post(stage, "/responses/compact", input=[said("user", CODE_WORD), said("assistant", "OK")])
        first = client.ask([*window["output"], said("user", "Which?")], store=False)
        assert first.response["previous_response_id"] is None
        assert client.ask("Sure?", store=False, previous_response_id=first.response["id"]).text == "Sure"
    assert "The code word is ember." in texts(stage)[0]
    assert texts(stage)[1:] == ["Which?", "ember", "Sure?"]


def test_a_connection_lasts_an_hour_and_says_so_at_its_end(tmp_path: Path) -> None:
    assert Config().server.websocket.max_minutes == 60
    with served(tmp_path, [], server={"websocket": {"max_minutes": 1e-5}}) as stage, socket(stage) as client:
        assert client.refusal()["error"]["code"] == "websocket_connection_limit_reached"
        client.end()


# --- many at once ----------------------------------------------------------------------------------------------------


def test_seventeen_requests_at_the_same_time_are_all_answered(tmp_path: Path) -> None:
    """Checklist 17: as many as the official suite sends at once, over HTTP and sockets; none waits for another."""
    gates = [Gate() for _ in range(17)]
    steps = [turn(f"Answer {n}", wait_for=gates[n], by=matching(last=f"Question {n}.")) for n in range(17)]

    def over_http(number: int) -> str:
        found = stage.stream(model="scripted", input=f"Question {number}.", store=bool(number % 3))
        return found.text

    def over_socket(number: int) -> str:
        with socket(stage) as client:
            return client.ask(f"Question {number}.", store=bool(number % 3)).text

    with served(tmp_path, steps) as stage, ThreadPoolExecutor(17) as pool:
        asked = [pool.submit(over_socket if number % 2 else over_http, number) for number in range(17)]
        for gate in gates:
            gate.wait_reached()  # all of them are under way now
        for gate in reversed(gates):
            gate.open()
        assert [one.result(60) for one in asked] == [f"Answer {number}" for number in range(17)]
