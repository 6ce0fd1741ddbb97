"""MCP servers as users of `pydantic-ai` name them: `MCPServerTool`, by a URL or as a connector, streamed or not."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.providers.mcp.stage import running_server, staged

from antwort.lazy_imports import imported_on_use
from antwort.testing import call, turn
from antwort.types import JSON

if TYPE_CHECKING:
    from tests.clients import pydantic_agents as script
else:
    script = imported_on_use("tests.clients.pydantic_agents")

FORGET = call("forget", what="it", call_id="call_1")


@pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
@pytest.mark.parametrize("way", ["url", "connector"])
async def test_an_agent_names_a_server(tmp_path: Path, *, stream: bool, way: str) -> None:
    with running_server() as server:
        settings: JSON = {"require_approval": "never"}  # it says nothing of approvals
        if way == "connector":
            settings["servers"] = {"connector_gmail": {"url": server.url}}
        with staged(tmp_path, [turn(calls=[FORGET]), "Done."], settings=settings) as stage:
            url = server.url if way == "url" else "x-openai-connector:connector_gmail"
            async with stage.async_client() as client:
                output, kinds = await script.mcp_server(client, url, "calc", stream=stream)
        assert output == "Done."
        assert kinds.count("builtin-tool-call") == kinds.count("builtin-tool-return") == 2  # the list, and the call
        assert server.calls == ["it"]
