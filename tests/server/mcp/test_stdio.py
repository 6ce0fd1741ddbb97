"""`antwort mcp`: the functions over standard streams, for clients that start the server themselves."""

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from mcp import StdioServerParameters
from mcp.client import Client
from tests.server.mcp.stage import call, request, texts
from typing_extensions import override

from antwort.context import Context
from antwort.server.mcp.messages import RpcMessage
from antwort.server.mcp.methods import McpMethods, RpcCaller, Tell
from antwort.server.mcp.stdio import StdioServer
from antwort.types import JSON

PLUGIN = """
import subprocess, sys
from antwort.provider import Context, Progress, Provider, function


class Noisy(Provider):
    @function
    async def loud(self, ctx: Context) -> str:
        \"""Print something.\"""
        print("this is no message")
        subprocess.run([sys.executable, "-c", "print('nor is this')"], check=True)
        ctx.emit(Progress("half", 0.5))
        return f"{ctx.tenant}: said it, and read {sys.stdin.read()!r}"
"""


def command(folder: Path, *options: str) -> list[str]:
    (folder / "plugins").mkdir(exist_ok=True)
    (folder / "plugins" / "noisy.py").write_text(PLUGIN)
    places = ["--data-dir", str(folder / "data"), "--plugins-dir", str(folder / "plugins")]
    return [sys.executable, "-m", "antwort", "mcp", "--no-probe", *places, *options]


async def test_the_official_client_starts_it_and_calls(tmp_path: Path) -> None:
    program, *arguments = command(tmp_path, "--tenant", "acme")
    told: list[tuple[float, float | None, str | None]] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, total, message))

    async with Client(StdioServerParameters(command=program, args=arguments)) as client:
        tools = {tool.name for tool in (await client.list_tools()).tools}
        result = await client.call_tool("loud", progress_callback=note)
        added = await client.call_tool("calculate", {"expression": "2 + 3"})

    assert tools >= {"loud", "calculate"}
    assert texts(result) == ["acme: said it, and read ''"]
    assert texts(added) == ["5"]
    assert told == [(0.5, 1, "half")]


class Broken(McpMethods):
    """Answers nothing."""

    def __init__(self) -> None:
        """Need nothing."""

    @override
    async def answer(self, message: RpcMessage, caller: RpcCaller, tell: Tell) -> JSON:
        raise LookupError("a slip of the pen")


async def test_what_goes_wrong_within_is_told_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    source, target = io.BytesIO(b"\n".join(json.dumps(call("loud", n)).encode() for n in (1, 2))), io.BytesIO()
    await StdioServer(Broken(), Context("acme"), (source, target), max_bytes=1_000_000).serve()
    answers = [json.loads(line) for line in target.getvalue().splitlines()]
    assert {(answer["id"], answer["error"]["code"]) for answer in answers} == {(1, -32603), (2, -32603)}
    assert "a slip of the pen" in caplog.text
    assert "slip" not in target.getvalue().decode()


def test_nothing_but_messages_is_written_and_what_is_none_is_answered(tmp_path: Path) -> None:
    stateless: JSON = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    unknown = {**stateless, "io.modelcontextprotocol/protocolVersion": "2099-01-01"}
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    messages = [
        request("initialize", 5, **hello),
        call("loud", 1),
        request("server/discover", 2, _meta=stateless),
        request("tools/list", 3, _meta=unknown),
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        request("tools/nothing", 4),
    ]
    as_long_as_can_be = "[" + "1" * (2**20 - 1)
    lines = [as_long_as_can_be, *map(json.dumps, messages), "{", "", '{"long": "' + "x" * 2_000_000 + '"}']
    (tmp_path / "antwort.yaml").write_text("server: {max_body_bytes: 1MiB}\n")
    with subprocess.Popen(
        [*command(tmp_path), "--config", str(tmp_path / "antwort.yaml")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write("\n".join([*lines, ""]).encode())
        server.stdin.flush()
        answers = [json.loads(server.stdout.readline()) for _ in range(8)]
        rest, logged = server.communicate(timeout=120)

    assert (rest, server.returncode) == (b"", 0)
    found = {answer["id"]: answer for answer in answers if answer["id"] is not None}
    codes = sorted(answer["error"]["code"] for answer in answers if answer["id"] is None)
    assert b"this is no message" in logged
    assert b"nor is this" in logged
    assert found[2]["result"]["supportedVersions"][0] == "2026-07-28"
    assert (found[3]["error"]["code"], found[4]["error"]["code"]) == (-32022, -32601)
    assert found[5]["result"]["protocolVersion"] == "2025-06-18"
    assert codes == [-32700, -32600, -32600]
