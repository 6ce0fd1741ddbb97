"""`kill -9` while programs wait and while they call: they go on, and what was done is not done again."""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from tests.providers.programs.stage import program
from tests.runs.processes import ServerProcess

from antwort.testing import ScriptServer, lint_response, lint_stream, turn
from antwort.types import JSON

PATIENCE = 60.0
INTERPRETERS = pytest.mark.parametrize("interpreter", ["monty", "sandbox"])
ASKING = """
before = [await charge(order=str(i)) for i in range(3)]
answer = await ask_user(question="Go on?")
after = [await charge(order=answer)]
print(before, after)
"""
MANY = """
import asyncio

async def one(i):
    try:
        return await charge(order=str(i))
    except RuntimeError as error:
        return str(error)

results = await asyncio.gather(*[one(i) for i in range(100)])
done = [r for r in results if r.startswith("charged")]
lost = [r for r in results if "interrupted" in r]
print(len(done), len(lost))
"""


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it does not come about"
        time.sleep(0.01)


def begun(server: ServerProcess) -> str:
    asked = {"model": "steady", "input": "Go!", "background": True, "tools": [{"type": "programmatic_tool_calling"}]}
    found = httpx.post(f"{server.url}/v1/responses", json=asked, timeout=PATIENCE)
    assert found.status_code == 200, found.text
    return str(found.json()["id"])


def ended(server: ServerProcess, response_id: str) -> JSON:
    """Wait for the end; return the response, which its stream tells in the same way."""

    def is_over() -> bool:
        found = httpx.get(f"{server.url}/v1/responses/{response_id}", timeout=PATIENCE).json()
        return found["status"] not in {"queued", "in_progress"}

    until(is_over)
    response: JSON = httpx.get(f"{server.url}/v1/responses/{response_id}", timeout=PATIENCE).json()
    stream = httpx.get(f"{server.url}/v1/responses/{response_id}", params={"stream": True}, timeout=PATIENCE)
    assert lint_response(response) == lint_stream(stream.content).response
    return response


def questions(server: ServerProcess) -> list[JSON]:
    found: list[JSON] = httpx.get(f"{server.url}/v1/questions?status=open", timeout=PATIENCE).json()["data"]
    return found


def printed(response: JSON) -> str:
    [result] = [item["result"] for item in response["output"] if item["type"] == "program_output"]
    return str(result)


@contextlib.contextmanager
def running_program(folder: Path, code: str, interpreter: str) -> Iterator[tuple[ServerProcess, str]]:
    """Give a server with a run of a program, to be killed and started again by whoever gets it."""
    with ScriptServer([program(code), turn("Done.")]) as model:
        own = {"enabled": True, "settings": {"interpreter": interpreter}}
        server = ServerProcess(folder, model.url, providers={"programs": own, "user": {"enabled": True}})
        try:
            server.start()
            yield server, begun(server)
        finally:
            server.kill()
    assert server.errors == ""


@INTERPRETERS
def test_a_program_that_waits_in_a_question_goes_on_after_a_kill(tmp_path: Path, interpreter: str) -> None:
    with running_program(tmp_path, ASKING, interpreter) as (server, response_id):
        until(lambda: len(questions(server)) == 1)
        server.kill()
        server.start()
        [question] = questions(server)
        answered = {"answer": "yes"}
        httpx.post(f"{server.url}/v1/questions/{question['id']}/answer", json=answered).raise_for_status()
        response = ended(server, response_id)
        assert printed(response) == "['charged 0', 'charged 1', 'charged 2'] ['charged yes']"
        assert [item["type"] for item in response["output"]] == [
            "program",
            "function_call",
            "program_output",
            "message",
        ]
        assert sorted(server.executions().values()) == [1] * 4


@INTERPRETERS
def test_a_program_in_the_middle_of_calls_goes_on_after_kills(tmp_path: Path, interpreter: str) -> None:
    with running_program(tmp_path, MANY, interpreter) as (server, response_id):
        until(lambda: len(server.executions()) >= 20)
        server.kill()
        server.start()
        until(lambda: len(server.executions()) >= 60)
        server.kill()
        server.start()
        done, lost = map(int, printed(ended(server, response_id)).split())
        executions = server.executions()
        assert done + lost == 100
        assert 0 <= lost <= 2 * 16
        assert set(executions.values()) == {1}
        assert len(executions) >= done
