"""The client of fastmcp before `/mcp` and before `antwort mcp`."""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client
from fastmcp.client.elicitation import ElicitResult
from fastmcp.client.transports import StdioTransport, StreamableHttpTransport
from fastmcp.exceptions import ToolError
from mcp.shared.exceptions import MCPError
from tests.server.mcp.stage import Face, serving, texts

from antwort.provider import Context, function


@function(effect="suspend", attach=True)
async def ask(ctx: Context, question: str) -> str:
    """Ask the user."""
    ctx.suspend({"question": question, "choices": ["red", "blue"]})


@pytest.fixture(scope="module")
def face(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Face]:
    with serving(tmp_path_factory.mktemp("data"), [ask]) as face:
        yield face


def client(face: Face, key: str | None = "key-of-acme", **options: Any) -> Client[StreamableHttpTransport]:
    return Client(StreamableHttpTransport(f"{face.url}/mcp", auth=key), timeout=120, init_timeout=120, **options)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_it_lists_calls_and_is_told_how_far_a_call_is(face: Face, mode: str) -> None:
    told: list[tuple[float, float | None, str | None]] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, total, message))

    async with client(face, mode=mode) as fast:
        tools = {tool.name for tool in await fast.list_tools()}
        added = await fast.call_tool("add", {"a": 2, "b": 3})
        made = await fast.call_tool("point", {"x": 4})
        whose = await fast.call_tool("whose")
        await fast.call_tool("count", {"to": 100}, progress_handler=note)
        with pytest.raises(ToolError, match="out of order"):
            await fast.call_tool("fail")

    assert tools >= {"add", "ask", "respond"}
    assert (texts(added), texts(whose)) == (["5"], ["acme, acme"])
    assert made.structured_content == {"x": 4, "y": 0}
    assert [told[0], told[-1]] == [(0, 1, "0 of 100"), (1, 1, "100 of 100")]


async def test_a_call_that_it_gives_up_is_cancelled(face: Face) -> None:
    face.began.clear()
    face.cancelled.clear()
    async with client(face) as fast:
        task = asyncio.create_task(fast.call_tool("wait"))
        assert await asyncio.to_thread(face.began.wait, 120)
        task.cancel()
        assert await asyncio.to_thread(face.cancelled.wait, 120)


async def test_it_is_asked_and_the_call_goes_on(face: Face) -> None:
    asked: list[str] = []

    async def answer(message: str, kind: Any, _params: object, _context: object) -> ElicitResult[Any]:
        asked.append(message)
        return ElicitResult(action="accept", content={"answer": "red"})

    async with client(face, elicitation_handler=answer) as fast:
        assert texts(await fast.call_tool("ask", {"question": "Which colour?"})) == ["red"]
    assert asked == ["Which colour?"]


@pytest.mark.parametrize("key", [None, "key-of-talker", "key-of-nobody"])
async def test_it_is_refused_without_a_key_that_may_call(face: Face, key: str | None) -> None:
    with pytest.raises(MCPError, match="error response"):  # what it makes of a 401 and of a 403
        async with client(face, key) as fast:
            await fast.list_tools()


async def test_it_calls_for_the_tenant_of_its_key(face: Face) -> None:
    async with client(face, "key-of-other") as fast:
        assert texts(await fast.call_tool("whose")) == ["other, other"]


async def test_it_starts_antwort_mcp(tmp_path: Path) -> None:
    arguments = ["-m", "antwort", "mcp", "--no-probe", "--data-dir", str(tmp_path / "data")]
    async with Client(StdioTransport(sys.executable, arguments), timeout=120, init_timeout=120) as fast:
        assert "calculate" in {tool.name for tool in await fast.list_tools()}
        assert texts(await fast.call_tool("calculate", {"expression": "6*7"})) == ["42"]
