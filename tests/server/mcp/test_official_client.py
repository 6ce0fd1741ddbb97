"""The official client of the protocol lists and calls the functions of the server, in either era."""

import asyncio
from collections.abc import Iterator

import pytest
from mcp.shared.exceptions import MCPError
from tests.server.mcp.stage import MODES, Face, serving, texts

import antwort


@pytest.fixture(scope="module")
def face(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Face]:
    many = [_numbered(number) for number in range(300)]
    with serving(tmp_path_factory.mktemp("data"), many) as face:
        yield face


def _numbered(number: int) -> object:
    def function() -> int:
        """Return a number."""
        return number

    function.__name__ = f"number_{number:03}"
    return function


@pytest.mark.parametrize("mode", MODES)
async def test_it_lists_the_functions_page_by_page(face: Face, mode: str) -> None:
    async with face.client(mode) as client:
        first = await client.list_tools()
        assert first.next_cursor is not None
        second = await client.list_tools(cursor=first.next_cursor)

    tools = {tool.name: tool for tool in [*first.tools, *second.tools]}
    assert second.next_cursor is None
    assert len(first.tools) == 200
    assert len(tools) == 309
    assert tools["add"].description == "Add two numbers."
    assert tools["add"].input_schema["required"] == ["a", "b"]
    assert tools["add"].output_schema is None
    assert tools["point"].output_schema is not None
    assert tools["point"].output_schema["properties"]["x"] == {"type": "integer"}
    if mode != "legacy":
        assert (first.cache_scope, first.ttl_ms > 0) == ("private", True)


@pytest.mark.parametrize("mode", MODES)
async def test_it_calls_them(face: Face, mode: str) -> None:
    async with face.client(mode) as client:
        assert client.protocol_version == ("2025-11-25" if mode == "legacy" else "2026-07-28")
        added = await client.call_tool("add", {"a": 2, "b": 3})
        made = await client.call_tool("point", {"x": 4})
        shown = await client.call_tool("picture")
        whose = await client.call_tool("whose")

    assert (texts(added), added.is_error) == (["5"], False)
    assert made.structured_content == {"x": 4, "y": 0}
    assert [part.type for part in shown.content] == ["text", "image"]
    assert texts(whose) == ["acme, acme"]


@pytest.mark.parametrize("mode", MODES[:2])
async def test_what_goes_wrong_is_for_the_model_to_read(face: Face, mode: str) -> None:
    async with face.client(mode) as client:
        failed = await client.call_tool("fail")
        wrong = await client.call_tool("add", {"a": "two"})
        long = await client.call_tool("much", {"size": 1_000_000})
        with pytest.raises(MCPError) as unknown:
            await client.call_tool("subtract", {"a": 2, "b": 3})
        with pytest.raises(MCPError) as lost:
            await client.list_tools(cursor="nobody")

    assert (texts(failed), failed.is_error) == (["It is out of order."], True)
    assert wrong.is_error
    assert "b: missing" in texts(wrong)[0]
    assert long.is_error
    assert "longer than what is given of it at once" in texts(long)[0]
    assert (unknown.value.error.code, unknown.value.error.message) == (-32602, "Unknown tool: subtract")
    assert lost.value.error.code == -32602


@pytest.mark.parametrize("mode", MODES[:2])
async def test_it_is_told_how_far_a_call_is(face: Face, mode: str) -> None:
    told: list[tuple[float, float | None, str | None]] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, total, message))

    async with face.client(mode) as client:
        result = await client.call_tool("count", {"to": 100}, progress_callback=note)

    assert texts(result) == ["counted to 100"]
    assert [told[0], told[-1]] == [(0, 1, "0 of 100"), (1, 1, "100 of 100")]
    assert told == sorted(told)


async def test_a_call_that_its_client_gives_up_is_cancelled(face: Face) -> None:
    face.began.clear()
    face.cancelled.clear()
    async with face.client(MODES[0]) as client:
        task = asyncio.create_task(client.call_tool("wait"))
        assert await asyncio.to_thread(face.began.wait, 30)
        task.cancel()
        assert await asyncio.to_thread(face.cancelled.wait, 30)


@pytest.mark.parametrize("mode", MODES[1:])
async def test_it_is_told_whom_it_talks_to(face: Face, mode: str) -> None:
    async with face.client(mode) as client:
        assert client.server_info is not None
        assert (client.server_info.name, client.server_info.version) == ("antwort", antwort.__version__)
        assert client.server_capabilities.tools is not None
