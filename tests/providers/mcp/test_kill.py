"""`kill -9` around calls of MCP servers: what they have done is not done again, and what they ask is not forgotten."""

import contextlib
import os
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
from mcp.server.mcpserver import MCPServer
from mcp.types import ToolAnnotations
from tests.providers.mcp.stage import McpServer, running_server
from tests.providers.mcp.test_questions_of_servers import ANSWERS, BOOK, clerk, told
from tests.providers.programs.test_kill import ended, questions, until
from tests.runs.processes import ServerProcess

from antwort.testing import ScriptServer, Turn, call, turn
from antwort.types import JSON

ROUNDS = 100 if os.environ.get("ANTWORT_TEST_FULL") else 4
CALLS = 6
MCP: Any = {"type": "mcp", "server_label": "bank"}


class Bank:
    """A server that notes what it does, and whose later calls of a round wait until somebody opens it."""

    def __init__(self) -> None:
        self.paid: list[str] = []
        self.noted: list[str] = []
        self.gate = threading.Event()

    def server(self) -> MCPServer:
        made = MCPServer("bank")

        @made.tool()
        def pay(order: str, waits: bool) -> str:
            """Pay for an order."""
            self.paid.append(order)
            if waits:
                self.gate.wait(60)
            return f"paid {order}"

        @made.tool(annotations=ToolAnnotations(idempotent_hint=True))
        def note(order: str) -> str:
            """Note an order."""
            self.noted.append(order)
            self.gate.wait(60)
            return f"noted {order}"

        return made


@contextlib.contextmanager
def killable(folder: Path, steps: list[Any], mcp: McpServer) -> Iterator[ServerProcess]:
    """Give a server that knows an MCP server, to be killed and started again by whoever gets it."""
    own = {"enabled": True, "settings": {"servers": {"bank": {"url": mcp.url}}}}
    with ScriptServer(steps) as model:
        server = ServerProcess(folder, model.url, providers={"mcp": own, "user": {"enabled": True}})
        try:
            server.start()
            yield server
        finally:
            server.kill()
    assert server.errors == ""


def begun(server: ServerProcess) -> str:
    asked = {"model": "steady", "input": "Go!", "background": True, "tools": [MCP]}
    found = httpx.post(f"{server.url}/v1/responses", json=asked, timeout=60)
    assert found.status_code == 200, found.text
    return str(found.json()["id"])


def paying(number: int) -> Turn:
    """Return a turn with calls of which some are over and some are under way when the server is killed."""
    calls = [
        call("pay", order=f"{number}-{i}", waits=i >= number % CALLS, call_id=f"call_{number}_{i}")
        for i in range(CALLS)
    ]
    return turn(calls=[*calls, call("note", order=str(number), call_id=f"call_{number}_n")])


def test_nothing_is_done_twice_however_often_the_server_is_killed(tmp_path: Path) -> None:
    bank = Bank()
    steps = [step for number in range(ROUNDS) for step in (paying(number), turn("Done."))]
    with running_server(bank.server()) as mcp, killable(tmp_path, steps, mcp) as server:
        for number in range(ROUNDS):
            bank.gate.clear()
            response_id = begun(server)
            until(lambda: len(bank.paid) == (number + 1) * CALLS and str(number) in bank.noted)  # noqa: B023
            server.kill()
            server.start()
            bank.gate.set()
            made = [item for item in ended(server, response_id)["output"] if item["type"] == "mcp_call"]
            assert len(made) == CALLS + 1
            check_outcomes(made)
    assert set(Counter(bank.paid).values()) == {1}
    assert set(Counter(bank.noted).values()) == {2}


def check_outcomes(made: list[JSON]) -> None:
    """Check that each call has an outcome, or nobody knows it."""
    for item in made:
        if item["status"] == "completed":
            assert item["output"].startswith(("paid ", "noted "))
        else:
            assert item["name"] == "pay"
            assert "Nobody knows what came of it" in item["error"]["message"]


def test_a_question_of_a_server_is_answered_after_a_kill(tmp_path: Path) -> None:
    calls: list[Any] = []
    steps = [turn(calls=[BOOK]), turn("Booked.")]
    with running_server(clerk(calls)) as mcp, killable(tmp_path, steps, mcp) as server:
        response_id = begun(server)
        until(lambda: len(questions(server)) == 3)
        server.kill()
        server.start()
        for question in questions(server):
            answered = {"answer": ANSWERS[told(question)]}
            httpx.post(f"{server.url}/v1/questions/{question['id']}/answer", json=answered).raise_for_status()
        [made] = [item for item in ended(server, response_id)["output"] if item["type"] == "mcp_call"]
        assert (made["status"], made["output"]) == ("completed", "Ulm: 2, True, rice")
        assert len(calls) == 1
