"""Programs of the operator that misbehave: neither the server nor other calls may wait for them."""

import asyncio
import contextlib
import logging
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from antwort.providers.mcp.child import ChildServer
from antwort.providers.mcp.errors import McpError
from antwort.providers.mcp.program import ServerProgram
from antwort.types import JSON

CODE = """
import json, os, subprocess, sys, time

def say(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

for line in sys.stdin:
    asked = json.loads(line)
    method, number = asked["method"], asked.get("id")
    if method == "initialize":
        say(id=number, result={"protocolVersion": "2025-06-18"})
    elif method == "leave":
        child = subprocess.Popen(["sleep", "1000"])
        say(method="notifications/message", params={})
        say(id=number, result={"pid": child.pid})
        sys.exit()
    elif method == "noise":
        print("noise\\n" * 5000, flush=True)
        say(id=number, result={})
    elif method == "pings":
        for ping in range(5_000):
            say(id=f"p{ping}", method="ping")
        say(id=number, result={})
        time.sleep(1000)
    elif method == "late":
        late = number
    elif method == "settle":
        say(id=late, result={})
        say(id=number, result={})
    elif method == "question":
        say(id="q", method="elicitation/create", params={"message": "Which?", "requestedSchema": {}})
        answer = json.loads(next(line for line in sys.stdin if '"q"' in line))
        say(id=number, result=answer["result"])
    elif method == "deaf":
        time.sleep(1000)
"""


@contextlib.asynccontextmanager
async def server(tmp_path: Path) -> AsyncIterator[ChildServer]:
    file = tmp_path / "server.py"
    file.write_text(CODE)
    program = ServerProgram("shop", [sys.executable, "-I", "-S", str(file)], {}, None, 1_000_000)
    child = ChildServer(program)
    try:
        async with asyncio.timeout(100):
            yield child
    finally:
        async with asyncio.timeout(100):
            await child.close()


async def ask(child: ChildServer, method: str, seconds: float = 60, **params: str) -> JSON:
    return await child._ask_greeted(method, params, {}, seconds)


def is_alive(pid: int) -> bool:
    """Tell whether a process has anything left: nobody may have asked for its end yet."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes() != b""
    except FileNotFoundError:
        return False


async def test_a_program_that_does_not_read_costs_no_more_than_the_time_of_its_call(tmp_path: Path) -> None:
    async with server(tmp_path) as child:
        assert await ask(child, "noise") == {}  # it runs, so that it hears of all that follows
        with pytest.raises(McpError, match="did not answer within"):
            await ask(child, "deaf", 0.02)
        for _ in range(10):
            with pytest.raises(McpError, match="did not answer within"):
                await ask(child, "deaf", 0.02, much="x" * 900_000)
        assert await ask(child, "noise") == {}


async def test_what_a_program_leaves_behind_ends_with_it(tmp_path: Path) -> None:
    async with server(tmp_path) as child:
        pid = (await ask(child, "leave"))["pid"]
        with contextlib.suppress(McpError):  # it may still reach the one that ends
            await ask(child, "noise")
        assert await ask(child, "noise") == {}
    assert not is_alive(pid)


async def test_lines_that_are_no_messages_do_not_fill_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with server(tmp_path) as child:
        await ask(child, "noise")
        await ask(child, "noise")
    assert 0 < sum("no message" in record.getMessage() for record in caplog.records) <= 200


async def test_a_program_that_asks_and_does_not_read_is_answered_so_much_and_no_more(tmp_path: Path) -> None:
    async with server(tmp_path) as child:
        await ask(child, "pings")
        assert child._running is not None
        assert len(child._running._answering) <= 100


async def test_nobody_is_asked_for_a_call_that_was_given_up_before(tmp_path: Path) -> None:
    async def user(_params: JSON) -> JSON:
        return {"action": "accept", "content": {}}

    async def asked() -> str:
        answer = await child._ask_greeted("question", {}, {}, 60, within=user)
        return str(answer["action"])

    async with server(tmp_path) as child:
        assert await asked() == "accept"
        with pytest.raises(McpError, match="did not answer within"):
            await ask(child, "late", 0.02)
        assert await asked() == "decline"
        await ask(child, "settle")
        assert await asked() == "accept"
