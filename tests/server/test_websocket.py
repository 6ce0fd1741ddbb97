"""WebSocket connections: who is let in, how long they last, what they may ask, and how they end."""

import base64
import json
import os
import socket as sockets
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from tests.http.sdk import Served, served
from tests.http.sockets import address, socket
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin, Subprotocol

from antwort.provider import Context
from antwort.server.sockets.connection import Connection
from antwort.testing import Gate, Turn, call, turn
from antwort.types import JSON

KEYS = {"api_keys": [{"id": name, "key": f"secret-{name}", "tenant": name} for name in ("a", "b")]}
PATIENCE = 60.0
PAUSE = 0.005
"""Seconds between two looks: who looks all the time keeps the server, which is in this process, from its work."""


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def refused(stage: Served, path: str = "/v1/responses", **options: Any) -> tuple[int, Any, Any]:
    """Try to connect; return the status, the error and the headers of the answer."""
    with pytest.raises(InvalidStatus) as found:
        connect(address(stage, path), proxy=None, open_timeout=PATIENCE, **options)
    response = found.value.response
    assert response.headers["content-type"] == "application/json"
    body = json.loads(response.body or b"")
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "param", "code"}
    return response.status_code, body["error"], response.headers


def only_connection(stage: Served) -> Connection:
    """Return the connection that is open, or will be in a moment: a client knows before the server is done with it."""
    websockets = stage.server.app._websockets
    assert websockets is not None
    deadline = time.monotonic() + PATIENCE
    while not (found := list(websockets._open)):
        assert time.monotonic() < deadline, "there is no connection"
        time.sleep(PAUSE)
    (connection,) = found
    return connection


def in_server(stage: Served, work: Any) -> None:
    """Do something on the loop of the server, and wait for it."""
    happened = threading.Event()

    def run() -> None:
        work()
        happened.set()

    stage.server.loop.call_soon_threadsafe(run)
    assert happened.wait(PATIENCE)


# --- the handshake ---------------------------------------------------------------------------------------------------


def test_a_handshake_without_good_credentials_is_refused_in_the_envelope(tmp_path: Path) -> None:
    wrong: list[dict[str, str]] = [{}, bearer("wrong"), {"authorization": "Bearer"}, {"x-api-key": "nobody"}]
    with served(tmp_path, [], auth=KEYS) as stage:
        for headers in wrong:
            status, error, answered = refused(stage, additional_headers={**headers, "x-request-id": "mine-1"})
            assert (status, error["code"]) == (401, "invalid_api_key")
            assert answered["www-authenticate"] == "Bearer"
            assert answered["x-request-id"] == "mine-1"


def test_credentials_come_in_the_headers_that_http_knows(tmp_path: Path) -> None:
    good = [bearer("secret-a"), {"x-api-key": "secret-a"}, {"api-key": "secret-a"}]
    with served(tmp_path, ["Hi"] * len(good), auth=KEYS) as stage:
        for headers in good:
            with socket(stage, headers) as client:
                assert client.ask().text == "Hi"


def test_a_browser_sends_its_key_as_a_subprotocol(tmp_path: Path) -> None:
    key = Subprotocol("openai-insecure-api-key.secret-a")
    with served(tmp_path, ["Hi"], auth=KEYS) as stage:
        with socket(stage, subprotocols=[Subprotocol("realtime"), key]) as client:
            assert client.connection.subprotocol == "realtime"
            assert client.ask().text == "Hi"
        with socket(stage, subprotocols=[key]) as client:
            assert client.connection.subprotocol == key
        wrong = Subprotocol("openai-insecure-api-key.wrong")
        assert refused(stage, subprotocols=[wrong])[0] == 401
        # The headers count if both are there.
        assert refused(stage, subprotocols=[key], additional_headers=bearer("wrong"))[0] == 401


def test_responses_belong_to_the_tenant_of_the_connection(tmp_path: Path) -> None:
    with served(tmp_path, ["Hi"], auth=KEYS) as stage:
        with socket(stage, bearer("secret-a")) as client:
            first = client.ask().response["id"]
        with socket(stage, bearer("secret-b")) as client:
            client.create(previous_response_id=first)
            assert client.refusal()["error"]["code"] == "previous_response_not_found"
        owned = stage.request("GET", f"/responses/{first}", headers=bearer("secret-a"))
        assert owned.status_code == 200


def test_credentials_that_are_taken_back_are_refused_on_an_open_connection(tmp_path: Path) -> None:
    with served(tmp_path, ["Hi"], auth=KEYS) as stage, socket(stage, bearer("secret-a")) as client:
        assert client.ask().text == "Hi"
        chain = stage.server.app.chain
        in_server(stage, lambda: setattr(chain, "authenticators", ()))
        client.create()
        assert client.refusal()["status"] == 401


@pytest.mark.parametrize(
    ("allowed", "taken", "refused_origins"),
    [
        (
            [],
            [None, "http://{host}"],
            ["https://evil.example", "http://localhost:1", "null", "not an origin", "https://{host}.evil.example"],
        ),
        (
            ["https://app.example"],
            [None, "https://app.example", "http://{host}"],
            ["https://evil.example", "http://app.example"],
        ),
        (["*"], ["https://anybody.example", "null"], []),
    ],
)
def test_pages_of_other_sites_may_not_connect(
    tmp_path: Path, allowed: list[str], taken: list[str | None], refused_origins: list[str]
) -> None:
    with served(tmp_path, [], server={"cors_origins": allowed}) as stage:
        host = urlsplit(stage.server.url).netloc
        for origin in taken:
            given = None if origin is None else Origin(origin.replace("{host}", host))
            with connect(address(stage), origin=given, proxy=None) as connection:
                assert connection.ping().wait(PATIENCE), origin
        for origin in refused_origins:
            status, error, _ = refused(stage, origin=Origin(origin.replace("{host}", host)))
            assert (status, error["code"]) == (403, "origin_not_allowed"), origin
            assert "server.cors_origins" in error["message"]


def test_other_paths_have_no_websocket(tmp_path: Path) -> None:
    with served(tmp_path, []) as stage:
        for path in ("/", "/v1/models", "/v1/responses/compact", "/v1/responses/resp_1"):
            status, error, _ = refused(stage, path)
            assert (status, error["code"]) == (404, None)
        assert stage.request("GET", "/responses").status_code == 200


def test_websockets_can_be_turned_off(tmp_path: Path) -> None:
    with served(tmp_path, [], server={"websocket": {"enabled": False}}) as stage:
        status, error, _ = refused(stage)
        assert status == 404
        assert "server.websocket.enabled" in error["message"]


def test_a_stopping_server_takes_no_connection(tmp_path: Path) -> None:
    with served(tmp_path, []) as stage:
        stage.server.app.state.phase = "stopping"
        status, error, _ = refused(stage)
        stage.server.app.state.phase = "running"
    assert (status, error["message"]) == (503, "The server is stopping.")


def test_refused_handshakes_are_in_the_audit_log_without_the_key(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    with served(tmp_path, [], auth=KEYS, observability={"audit_file": file}) as stage:
        refused(stage, additional_headers=bearer("secret-wrong"))
    (event,) = [json.loads(line) for line in file.read_text().splitlines()]
    assert (event["event"], event["method"], event["path"]) == ("request.refused", "WEBSOCKET", "/v1/responses")
    assert "secret-wrong" not in file.read_text()


def test_no_header_and_no_frame_reaches_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "uvicorn.error")
    caplog.set_level("DEBUG", "antwort")
    with served(tmp_path, ["Hi"], auth=KEYS) as stage, socket(stage, bearer("secret-a")) as client:
        client.ask("What nobody should read")
    assert "secret-a" not in caplog.text
    assert "nobody should read" not in caplog.text


def test_a_text_that_is_not_utf_8_ends_the_connection_and_is_no_error_of_the_server(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with served(tmp_path, []) as stage, connect(address(stage), proxy=None) as connection:
        connection.send(b"\xff\xfe", text=True)
        with pytest.raises(ConnectionClosed) as found:
            connection.recv(20)
    assert found.value.rcvd is not None
    assert found.value.rcvd.code == 1007
    assert "Traceback" not in caplog.text


# --- limits ----------------------------------------------------------------------------------------------------------


def test_each_request_counts_and_so_does_the_handshake(tmp_path: Path) -> None:
    limits = {"per_key": {"requests_per_minute": 2}}
    with served(tmp_path, ["Hi"], auth=KEYS, limits=limits) as stage:
        with socket(stage, bearer("secret-a")) as client:
            shown = client.connection.response
            assert shown is not None
            assert shown.headers["x-ratelimit-remaining-requests"] == "1"
            assert client.ask().text == "Hi"
            client.create()
            refusal = client.refusal()
            assert (refusal["status"], refusal["error"]["code"]) == (429, "rate_limit_exceeded")
            assert refusal["error"]["type"] == "rate_limit_error"
            assert int(refusal["error"]["headers"]["retry-after"]) >= 1
        status, error, headers = refused(stage, additional_headers=bearer("secret-a"))
        assert (status, error["code"]) == (429, "rate_limit_exceeded")
        assert int(headers["retry-after"]) >= 1
        with socket(stage, bearer("secret-b")) as other:
            assert other.connection.ping().wait(PATIENCE)


def test_requests_that_are_refused_count_too(tmp_path: Path) -> None:
    limits = {"per_key": {"requests_per_minute": 3}}
    with served(tmp_path, [], auth=KEYS, limits=limits) as stage, socket(stage, bearer("secret-a")) as client:
        for status in (400, 400, 429):
            client.send(type="response.create", nothing="known")
            assert client.refusal()["status"] == status


def test_there_are_only_so_many_connections(tmp_path: Path) -> None:
    with served(tmp_path, ["Hi"], server={"websocket": {"max_connections": 1}}) as stage, socket(stage) as client:
        client.ask()
        with pytest.raises(InvalidStatus) as caught, socket(stage):
            pass
        assert caught.value.response.status_code == 503


def test_a_connection_does_not_last_for_ever(tmp_path: Path) -> None:
    with served(tmp_path, [], server={"websocket": {"max_minutes": 1e-5}}) as stage, socket(stage) as client:
        refusal = client.refusal()
        assert refusal["error"]["code"] == "websocket_connection_limit_reached"
        assert client.end() == 1001


def test_the_response_that_is_being_made_when_the_time_is_over_is_the_last_one(tmp_path: Path) -> None:
    gate = Gate()
    with served(tmp_path, [turn("One", wait_for=gate)]) as stage, socket(stage) as client:
        client.create()
        client.create()
        gate.wait_reached()
        connection = only_connection(stage)
        in_server(stage, lambda: setattr(connection, "_expires", 0.0))
        gate.open()
        assert client.answer().text == "One"
        assert client.refusal()["error"]["code"] == "websocket_connection_limit_reached"
        assert client.end() == 1001


def test_no_more_requests_wait_than_the_limit_allows(tmp_path: Path) -> None:
    gate = Gate()
    steps: list[Turn | str] = [turn("One", wait_for=gate), "Two", "Three"]
    with served(tmp_path, steps, server={"websocket": {"max_queue": 2}}) as stage, socket(stage) as client:
        client.create()
        gate.wait_reached()
        for number in range(4):
            client.create(stream_id=f"lane-{number}")
        refusals: list[JSON] = []
        while len(refusals) < 2:
            if (event := client.receive())["type"] == "error":
                refusals.append(event)
        assert [refusal["status"] for refusal in refusals] == [429, 429]
        assert [refusal["stream_id"] for refusal in refusals] == ["lane-2", "lane-3"]
        assert "server.websocket.max_queue" in refusals[0]["error"]["message"]
        gate.open()
        while client.receive()["type"] != "response.completed":
            pass
        assert [client.answer().text for _ in range(2)] == ["Two", "Three"]


def test_requests_that_wait_are_together_no_larger_than_one_may_be(tmp_path: Path) -> None:
    gate = Gate()
    steps: list[Turn | str] = [turn("One", wait_for=gate), "Two"]
    with served(tmp_path, steps, server={"max_body_bytes": 1000}) as stage, socket(stage) as client:
        client.create()
        gate.wait_reached()
        client.create("x" * 600)
        client.create("y" * 600)
        while (event := client.receive())["type"] != "error":
            pass
        assert event["status"] == 429
        gate.open()
        while client.receive()["type"] != "response.completed":
            pass
        assert client.answer().text == "Two"


def test_a_message_that_is_too_large_ends_the_connection(tmp_path: Path) -> None:
    limits = {"max_body_bytes": 1000}
    with served(tmp_path, ["Hi"], server=limits) as stage, socket(stage) as client, socket(stage) as other:
        client.create("x" * 1000)
        assert client.end() == 1009
        assert other.ask().text == "Hi"


def test_pings_are_answered(tmp_path: Path) -> None:
    gate = Gate()
    with served(tmp_path, [turn("One", wait_for=gate)]) as stage, socket(stage) as client:
        assert client.connection.ping().wait(PATIENCE)
        client.create()
        gate.wait_reached()
        assert client.connection.ping().wait(PATIENCE)
        gate.open()
        assert client.answer().text == "One"


def raw_handshake(stage: Served) -> sockets.socket:
    """Open a connection with a client that knows nothing but the handshake."""
    host, port = urlsplit(stage.server.url).netloc.split(":")
    raw = sockets.create_connection((host, int(port)), timeout=PATIENCE)
    key = base64.b64encode(os.urandom(16)).decode()
    head = (
        f"GET /v1/responses HTTP/1.1\r\nhost: {host}\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
        f"sec-websocket-version: 13\r\nsec-websocket-key: {key}\r\n\r\n"
    )
    raw.sendall(head.encode())
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += raw.recv(1)
    assert answer.startswith(b"HTTP/1.1 101")
    return raw


def test_a_client_that_answers_no_ping_is_cut_off(tmp_path: Path) -> None:
    with served(tmp_path, [], server={"websocket": {"ping": 0.05}}) as stage, raw_handshake(stage) as raw:
        received = b""
        while piece := raw.recv(1000):
            received += piece
    assert received[0] == 0x89  # a ping
    assert b"\x03\xf3" in received  # close, 1011


def masked(payload: bytes) -> bytes:
    return bytes([0x81, 0xFE]) + len(payload).to_bytes(2, "big") + bytes(4) + payload


def test_a_client_that_vanishes_cancels_its_response(tmp_path: Path) -> None:
    gate = Gate()
    with served(tmp_path, [turn("One", wait_for=gate)]) as stage:
        with raw_handshake(stage) as raw:
            frame = {"type": "response.create", "model": "scripted", "input": "Hi" + " " * 100}
            raw.sendall(masked(json.dumps(frame).encode()))
            gate.wait_reached()
        gate.wait_abandoned()


def test_a_client_that_does_not_read_pauses_the_model(tmp_path: Path) -> None:
    gate = Gate()
    deltas: list[Any] = ["x" * 100_000] * 400
    long = {"max_answer_length": 50_000_000}
    with served(tmp_path, [turn([*deltas, gate, "end"])], engine=long) as stage, raw_handshake(stage) as raw:
        frame = {"type": "response.create", "model": "scripted", "input": "Hi" + " " * 100, "store": False}
        raw.sendall(masked(json.dumps(frame).encode()))
        wait_until_paused(stage)
        assert "reached" not in repr(gate)  # 40 MB were not taken up by anybody
        received = 0
        while received < 40_000_000:
            received += len(raw.recv(1_000_000))
        gate.wait_reached()
        gate.open()
        raw.recv(1000)


def wait_until_paused(stage: Served) -> None:
    """Wait until the server has stopped writing to its only connection."""
    connection = only_connection(stage)
    protocol: Any = connection._send.__self__  # type: ignore[attr-defined]
    deadline = time.monotonic() + PATIENCE
    while protocol.writable.is_set():
        assert time.monotonic() < deadline, "the server writes on and on"
        time.sleep(PAUSE)


# --- the end ---------------------------------------------------------------------------------------------------------


def test_a_server_that_stops_lets_the_running_response_end_and_says_good_bye(tmp_path: Path) -> None:
    gate = Gate()
    with (
        served(tmp_path, [turn("One", wait_for=gate)]) as stage,
        socket(stage) as busy,
        socket(stage) as idle,
    ):
        busy.create()
        busy.create()
        gate.wait_reached()
        in_server(stage, stage.server.app.stopping)
        assert idle.end() == 1001
        gate.open()
        assert busy.answer().text == "One"
        assert busy.end() == 1001


def test_a_response_that_outlasts_the_stopping_server_is_cancelled_politely(tmp_path: Path) -> None:
    gate = Gate()
    with served(tmp_path, [turn(["Hel", gate, "lo"])]) as stage:
        client = connect(address(stage), proxy=None)
        client.send(json.dumps({"type": "response.create", "model": "scripted", "input": "Hi"}))
        gate.wait_reached()
    gate.wait_abandoned()
    with client, pytest.raises(ConnectionClosed) as closed:
        while True:
            client.recv(20)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1001


# --- what can be seen ------------------------------------------------------------------------------------------------


def metric(stage: Served, name: str) -> float:
    page = httpx.get(f"{stage.server.url}/metrics", timeout=PATIENCE).text
    (line,) = [line for line in page.splitlines() if line.startswith(name + " ")]
    return float(line.rpartition(" ")[2])


def test_connections_and_frames_are_counted(tmp_path: Path) -> None:
    with served(tmp_path, ["Hi"]) as stage:
        with socket(stage) as client:
            events = client.ask().events
            assert metric(stage, "antwort_websocket_connections") == 1
            assert metric(stage, 'antwort_websocket_frames_total{direction="received"}') == 1
            assert metric(stage, 'antwort_websocket_frames_total{direction="sent"}') == len(events)
        deadline = time.monotonic() + PATIENCE
        while metric(stage, "antwort_websocket_connections") and time.monotonic() < deadline:
            time.sleep(PAUSE)
        assert metric(stage, "antwort_websocket_connections") == 0


def test_a_connection_has_a_request_id_and_each_response_one_below_it(tmp_path: Path) -> None:
    seen: list[str | None] = []

    def look(ctx: Context) -> str:
        """Look around."""
        seen.append(ctx.request_id)
        return "nothing"

    steps: list[Turn | str] = [turn(calls=[call("look")]), "One", turn(calls=[call("look")]), "Two"]
    with served(tmp_path, steps, functions=[look]) as stage, socket(stage, {"x-request-id": "mine"}) as client:
        response = client.connection.response
        assert response is not None
        assert response.headers["x-request-id"] == "mine"
        client.ask()
        client.ask()
    assert seen == ["mine.1", "mine.2"]
