"""A server that is asked to stop, and what is left of what it was doing."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.runs.embedded import events_of, text_of
from tests.runs.processes import ServerProcess

from antwort.testing import Gate, ScriptServer, lint_response, lint_stream, turn
from antwort.types import JSON

PATIENCE = 60.0


def client_of(server: ServerProcess) -> httpx.Client:
    return httpx.Client(base_url=f"{server.url}/v1", timeout=PATIENCE)


def read_until(coming: Iterator[bytes], mark: bytes) -> bytes:
    """Read a stream until it has said something."""
    seen = b""
    while mark not in seen or not seen.endswith(b"\n\n"):
        seen += next(coming)
    return seen


def test_a_background_run_goes_on_at_the_next_start_and_its_readers_with_it(tmp_path: Path) -> None:
    gate = Gate()
    with ScriptServer([turn(["Half an ", gate, "answer."]), turn(["A whole answer."])]) as model:
        server = ServerProcess(tmp_path, model.url, shutdown_timeout=60)
        server.start()
        try:
            body = {"input": "Answer.", "background": True, "stream": True}
            with client_of(server) as client, client.stream("POST", "/responses", json=body) as response:
                coming = response.iter_raw()
                seen = read_until(coming, b"output_text.delta")
                gate.wait_reached()
                # Its readers do not keep the server from stopping: it would wait for them as long as it may.
                assert server.terminate() == 0
                seen += b"".join(coming)
            assert b"[DONE]" not in seen
            events = events_of(seen)
            server.start()
            with client_of(server) as client:
                url, last = f"/responses/{events[0]['response']['id']}", events[-1]["sequence_number"]
                rest = client.get(url, params={"stream": True, "starting_after": last}).content
                stream = lint_stream(seen + rest)
                assert [text_of(item) for item in stream.response["output"]] == ["A whole answer."]
                assert client.get(url).json() == stream.response
            assert server.terminate() == 0
        finally:
            server.kill()
    assert server.errors == ""


def test_a_foreground_answer_is_finished_before_the_server_stops(tmp_path: Path) -> None:
    gate = Gate()
    with ScriptServer([turn(["A whole ", gate, "answer."])]) as model:
        server = ServerProcess(tmp_path, model.url, shutdown_timeout=60)
        server.start()
        try:
            body = {"input": "Answer.", "stream": True}
            with client_of(server) as client, client.stream("POST", "/responses", json=body) as response:
                coming = response.iter_raw()
                seen = read_until(coming, b"output_text.delta")
                server.ask_to_stop()
                gate.open()
                stream = lint_stream(seen + b"".join(coming))
            assert stream.text == "A whole answer."
            assert server.exit_code() == 0
            server.start()
            with client_of(server) as client:
                assert client.get(f"/responses/{stream.response['id']}").json() == stream.response
        finally:
            server.kill()


@pytest.mark.parametrize("streamed", [True, False])
def test_a_foreground_answer_that_takes_too_long_is_stored_as_it_is_told(tmp_path: Path, streamed: bool) -> None:
    gate = Gate()
    with ScriptServer([turn(["Half an ", gate, "answer."])]) as model:
        server = ServerProcess(tmp_path, model.url, shutdown_timeout=1)
        server.start()
        try:
            told = asyncio.run(stop_while(server, gate, {"input": "Answer.", "stream": streamed}))
            server.start()
            with client_of(server) as client:
                (response,) = client.get("/responses").json()["data"]
                assert lint_response(response)["status"] == ("failed" if streamed else "cancelled")
                assert told is None or told == response
                written = [(item["status"], text_of(item)) for item in response["output"]]
                assert written == ([("incomplete", "Half an ")] if streamed else [])
            assert "Traceback" not in server.errors
            assert server.errors.count("POST /v1/responses was cut off: the server is stopping") == streamed
        finally:
            server.kill()
    assert model.cancelled == [1]


async def stop_while(server: ServerProcess, gate: Gate, body: JSON) -> JSON | None:
    """Ask for an answer that does not come, and stop the server meanwhile; return what a stream ends with."""
    async with httpx.AsyncClient(base_url=f"{server.url}/v1", timeout=PATIENCE) as client:
        asking = asyncio.ensure_future(client.post("/responses", json=body))
        await gate.reached()
        assert await asyncio.to_thread(server.terminate) == 0
        answer = await asking
        if body["stream"]:
            stream = lint_stream(answer.content)
            assert stream.types[-2:] == ["error", "response.failed"]
            assert stream.events[-2]["message"] == "The server is stopping. Try again."
            assert stream.response["error"]["message"] == "The server is stopping. Try again."
            return stream.response
        error = answer.json()["error"]
        assert (answer.status_code, error["message"]) == (503, "The server is stopping. Try again.")
        return None
