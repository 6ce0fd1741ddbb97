"""The conformance suites of the protocol, with antwort as the client: what does not pass is listed in the docs.

A suite starts a server for each scenario, and a program that is to use it. Here that program only tells the test, which
has a model call the tools of that server in a response, and answers what they ask.
"""

import contextlib
import json
import re
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI
from tests.clients.node_scripts import FOLDER, NODE
from tests.providers.mcp.stage import mcp_tool
from tests.providers.sub_agents.brain import Brain, prompt
from typing_extensions import override

from antwort import Antwort
from antwort.backends import ModelRequest
from antwort.config import Config
from antwort.testing import Turn, call, running, turn
from antwort.types import JSON

PAGE = Path(__file__).parents[3] / "docs" / "mcp.md"
PROGRAM = Path(__file__).with_name("play_scenario.py")
SUITES = {
    "2025-11-25": ("conformance-2025", ["--suite", "core", "--spec-version", "2025-11-25"]),
    "2025-11-25, newer": ("@modelcontextprotocol/conformance", ["--requirements", "2025-11-25"]),
    "2026-07-28": ("@modelcontextprotocol/conformance", ["--requirements", "2026-07-28"]),
}
UNPLAYED = ("auth/", "elicitation-sep1034-client-defaults")
"""They wait for what never comes: a browser, or a stream that nobody opens."""
ASK_USER: Any = {"type": "function", "name": "ask_user"}
ANY: dict[str, Any] = {"string": "x", "number": 1, "integer": 1, "boolean": True}


def decide(request: ModelRequest) -> Turn | str:
    """Call the tools with what the suite wants, or each of them with anything."""
    if request.items[-1].get("role") != "user":
        return "Done."
    tools = {tool["name"]: tool["parameters"] for tool in request.tools if tool["name"] != "ask_user"}
    wanted = json.loads(prompt(request)).get("toolCalls")
    if wanted is None:
        wanted = [{"name": name, "arguments": _filled(schema, tools)} for name, schema in tools.items()]
    calls = [call(one["name"], one["arguments"]) for one in wanted]
    return turn(calls=calls) if calls else "There is nothing to call."


def _filled(schema: JSON, tools: dict[str, JSON]) -> JSON:
    """Return arguments that a tool needs; one that wants a schema is given that of the first tool."""
    needed = {name: schema["properties"][name] for name in schema.get("required", ())}
    first = next(iter(tools.values()))
    return {name: first if name == "schema" else ANY.get(part.get("type"), "x") for name, part in needed.items()}


class Players(socketserver.ThreadingTCPServer):
    """Plays scenarios, several at a time."""

    daemon_threads = True

    def __init__(self, client: OpenAI) -> None:
        super().__init__(("127.0.0.1", 0), _Player)
        self.client = client


class _Player(socketserver.StreamRequestHandler):
    server: Players

    @override
    def handle(self) -> None:
        scenario, url, context = self.rfile.read().decode().split("\n", 2)
        if scenario.startswith(UNPLAYED):
            return
        tools = [mcp_tool(url, "suite"), ASK_USER]
        create = partial(self.server.client.responses.create, model="scripted", tools=tools)
        response = create(input=context or "{}")
        while asked := [item for item in response.output if item.type == "function_call"]:
            said: Any = [{"type": "function_call_output", "call_id": one.call_id, "output": "skip"} for one in asked]
            response = create(input=said, previous_response_id=response.id)


@contextlib.contextmanager
def playing(folder: Path) -> Iterator[int]:
    """Serve an app, and who plays scenarios with it; give the port of the latter."""
    section = {"mcp": {"enabled": True}, "user": {"enabled": True}}
    allowed = {"allow": ["localhost", "127.0.0.1", "::1"]}
    config = Config.model_validate({"data_dir": folder, "providers": section, "outbound": allowed})
    with (
        running(Antwort(config, backend=Brain(decide))) as server,
        OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=120) as client,
        Players(client) as players,
    ):
        thread = threading.Thread(target=players.serve_forever, args=[0.05])
        thread.start()
        try:
            yield int(players.server_address[1])
        finally:
            players.shutdown()
            thread.join()


def listed() -> list[str]:
    """Return the scenarios that the docs list, as patterns."""
    table = PAGE.read_text().partition("## Conformance")[2]
    rows = re.findall(r"^\| (`.*`) \| .* \|$", table, re.MULTILINE)
    return [name for names in rows for name in re.findall(r"`([a-z0-9/*-]+)`", names)]


def problems(results: Path) -> dict[str, list[str]]:
    """Return what was found wrong in each scenario. How late something was says more of the machine than of antwort."""
    failed = dict[str, list[str]]()
    for file in results.rglob("checks.json"):
        name = re.sub(r"-\d{4}-\d\d-\d\dT.*", "", str(file.parent.relative_to(results)))
        wrong = [one for one in json.loads(file.read_text()) if one["status"] in {"FAILURE", "WARNING"}]
        said = [one.get("errorMessage") or one["description"] for one in wrong]
        failed[name] = [words for words in said if not re.search(r"reconnected (slightly|very) late", words)]
    return failed


@pytest.mark.parametrize("suite", SUITES)
def test_what_does_not_pass_is_listed(tmp_path: Path, suite: str) -> None:
    package, options = SUITES[suite]
    program = FOLDER / "node_modules" / package / "dist" / "index.js"
    with playing(tmp_path / "data") as port:
        command = f"{sys.executable} -SIE {PROGRAM} {port}"
        done = subprocess.run(
            [str(NODE), str(program), "client", "--command", command, "--timeout", "120000", "-o", "results", *options],
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    failed = problems(tmp_path / "results")
    assert len(failed) > 3, (done.stdout, done.stderr)
    expected = {name for name in failed if any(fnmatch(name, one) for one in listed())}
    assert {name for name, found in failed.items() if found} == expected, failed
