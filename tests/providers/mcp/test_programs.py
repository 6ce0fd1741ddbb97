"""MCP servers of the operator that are programs of this machine."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.http.sdk import create, outputs
from tests.providers.mcp.stage import staged
from tests.providers.mcp.test_approvals import items, types

from antwort.testing import call, turn
from antwort.types import JSON

TOOL: Any = {"type": "mcp", "server_label": "shop"}
SDK = """
from mcp.server.mcpserver import MCPServer

server = MCPServer("shop")


@server.tool()
def price(what: str) -> str:
    "Tell a price."
    return f"{what}: 3"


server.run("stdio")
"""
PLAIN = """
import json, os, sys, time

SCHEMA = {"type": "object", "properties": {"what": {"type": "string"}}}
print("a line that is no message", flush=True)
for number in range(1000):
    print("starting", number, file=sys.stderr)
sys.stderr.flush()
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    if asked["method"] == "initialize":
        result = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}}
    elif asked["method"] == "tools/list":
        result = {"tools": [{"name": "act", "inputSchema": SCHEMA}]}
    else:
        what = asked["params"]["arguments"].get("what")
        if what == "die":
            os._exit(1)
        if what == "hang":
            continue
        text = "x" * 3_000_000 if what == "much" else f"{os.getpid()} {os.environ.get('KEY')} {os.environ.get('OTHER')}"
        result = {"content": [{"type": "text", "text": text}]}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""


def program(folder: Path, code: str, **fields: Any) -> JSON:
    """Return the settings of a server that is a program."""
    file = folder / "server.py"
    file.write_text(code)
    return {"servers": {"shop": {"command": [sys.executable, str(file)], **fields}}}


def act(*wanted: str) -> list[Any]:
    """Return steps in which a model makes calls, one after the other."""
    calls = [turn(calls=[call("act", what=what, call_id=f"call_{n}")]) for n, what in enumerate(wanted)]
    return [*calls, "Done."]


def test_a_program_of_the_sdk_is_a_server(tmp_path: Path) -> None:
    steps = [turn(calls=[call("price", what="tea")]), "Three."]
    with staged(tmp_path, steps, settings=program(tmp_path, SDK)) as stage:
        response = create(stage, False, input="How much is tea?", tools=[TOOL])
        assert types(response) == ["mcp_list_tools", "mcp_call", "message"]
        assert outputs(stage) == ["tea: 3"]


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_program_that_dies_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTHER", "a-secret-of-the-server")
    settings = {**program(tmp_path, PLAIN, env={"KEY": "k"}), "timeout": 0.5, "max_bytes": 1_000_000}
    steps = act("tell", "tell again", "die", "tell once more", "hang", "much", "tell")
    with staged(tmp_path, steps, settings=settings) as stage:
        response = create(stage, False, input="Go!", tools=[TOOL])
        made = [item for item in items(response) if item["type"] == "mcp_call"]
        first, second, died, third, hung, much, last = made
        assert first["output"].split()[1:] == ["k", "None"]
        assert second["output"] == first["output"]
        assert died["error"] == {"type": "http_error", "code": 0, "message": "The program of the server has ended."}
        assert third["output"].split()[0] != first["output"].split()[0]
        assert "did not answer within" in hung["error"]["message"]
        assert "larger than it may be" in much["error"]["message"]
        pid = int(last["output"].split()[0])
        assert is_there(pid)
    assert not is_there(pid)
    assert "a-secret-of-the-server" not in json.dumps(items(response)) + caplog.text


def test_a_program_that_takes_long_to_start_has_the_time_of_a_list(tmp_path: Path) -> None:
    settings = {**program(tmp_path, "import time\ntime.sleep(1000)"), "list_timeout": 0.5}
    with staged(tmp_path, ["Well."], settings=settings) as stage:
        response = create(stage, False, input="Hi", tools=[TOOL])
        assert items(response)[0]["error"] == "The server did not answer within 0.5 seconds."


def test_a_program_that_cannot_be_started_costs_its_own_tools(tmp_path: Path) -> None:
    settings = {"servers": {"shop": {"command": [str(tmp_path / "nothing")]}}}
    with staged(tmp_path, ["Well."], settings=settings) as stage:
        response = create(stage, False, input="Hi", tools=[TOOL])
        assert items(response)[0]["tools"] == []
        assert items(response)[0]["error"] == "The program of the server cannot be found."
