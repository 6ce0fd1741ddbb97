"""OpenAI's `shell` in responses that are made in the background: cancelled, killed in the middle, parked."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.http.sdk import done, served
from tests.providers.workspace.stage import SHELL, calling, staged
from tests.runs.embedded import events_of
from tests.runs.processes import ServerProcess

from antwort.engine.window import INTERRUPTED
from antwort.testing import ScriptServer, lint_response, lint_stream
from antwort.types import JSON

LONG = ("shell", {"command": "sleep 60"})
ENABLED: JSON = {"workspace": {"enabled": True}, "user": {"enabled": True}}


def until_called(url: str, response_id: str, number: int) -> None:
    """Wait until readers of a run were told of so many commands."""
    seen = b""
    with httpx.stream("GET", f"{url}/v1/responses/{response_id}", params={"stream": True}, timeout=60) as answer:
        for data in answer.iter_raw():
            seen += data
            if seen.count(b"event: response.shell_call_command.done\n") == number:
                return
    raise AssertionError(f"the stream ended before that: {events_of(seen)}")


def test_it_is_cancelled(tmp_path: Path) -> None:
    first, second, _ = calling(("shell", {"command": "echo one"}), LONG)
    with staged(tmp_path, [first, second]) as stage:
        client = stage.client()
        response = client.responses.create(model="m", input="Go.", tools=[SHELL], background=True)
        until_called(stage.server.url, response.id, 2)
        cancelled = client.responses.cancel(response.id)
        assert cancelled.status == "cancelled"
        assert [item.type for item in cancelled.output] == ["shell_call", "shell_call_output", "shell_call"]
        stage.resume(response.id, cancelled=True)


def test_it_goes_on_when_what_it_has_asked_is_answered(tmp_path: Path) -> None:
    steps = calling(("shell", {"command": "echo one"}), ("ask_user", {"question": "Go on?"}))
    with served(tmp_path, steps, section=ENABLED) as stage:
        ask_user = {"type": "function", "name": "ask_user"}
        create = {"model": "m", "input": "Go.", "tools": [SHELL, ask_user], "background": True}
        response_id = stage.request("POST", "/responses", json=create).json()["id"]
        while not (questions := stage.request("GET", "/questions").json()["data"]):
            pass
        stage.request("POST", f"/questions/{questions[0]['id']}/answer", json={"answer": "yes"}).raise_for_status()
        response = done(stage, response_id)
        assert lint_response(response) == stage.resume(response_id).response
    types = [item["type"] for item in response["output"]]
    assert [kind for kind in types if kind != "function_call"] == ["shell_call", "shell_call_output", "message"]


@pytest.fixture
def model() -> Iterator[ScriptServer]:
    steps = calling(("shell", {"command": "echo one > a"}), LONG, ("shell", {"command": "cat a"}))
    with ScriptServer(steps, models=("steady",)) as server:
        yield server


def test_it_is_taken_up_again_after_kill_9(tmp_path: Path, model: ScriptServer) -> None:
    server = ServerProcess(tmp_path, model.url, providers=ENABLED)
    server.start()
    try:
        create = {"model": "steady", "input": "Go.", "tools": [SHELL], "background": True}
        response_id = httpx.post(f"{server.url}/v1/responses", json=create).json()["id"]
        until_called(server.url, response_id, 2)
        server.kill()
        server.start()
        answer = httpx.get(f"{server.url}/v1/responses/{response_id}", params={"stream": True}, timeout=60)
        response = lint_response(httpx.get(f"{server.url}/v1/responses/{response_id}").json())
    finally:
        server.kill()
    assert lint_stream(answer.content).response == response
    assert response["status"] == "completed"
    assert [message["content"] for message in model.requests[-1]["messages"] if message["role"] == "tool"] == [
        "[no output]",
        INTERRUPTED,
        "one",
    ]
    assert server.errors == ""
