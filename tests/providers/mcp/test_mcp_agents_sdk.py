"""MCP servers as users of `openai-agents` name them: `HostedMCPTool`, streamed or not, with approvals and without."""

from pathlib import Path
from typing import Any

import pytest
from agents import (
    Agent,
    HostedMCPTool,
    MCPToolApprovalFunctionResult,
    MCPToolApprovalRequest,
    OpenAIResponsesModel,
    Runner,
    set_tracing_disabled,
)
from tests.providers.mcp.stage import mcp_tool, running_server, staged

from antwort.testing import call, turn

FORGET = call("forget", what="it", call_id="call_1")


@pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
@pytest.mark.parametrize("asks", [False, True], ids=["never", "always"])
@pytest.mark.parametrize("approve", [True, False])
async def test_a_hosted_tool_of_an_agent(tmp_path: Path, *, stream: bool, asks: bool, approve: bool) -> None:
    set_tracing_disabled(True)
    seen: list[str] = []

    def on_request(request: MCPToolApprovalRequest) -> MCPToolApprovalFunctionResult:
        seen.append(request.data.name)
        return {"approve": approve, "reason": "Because."}

    with running_server() as server, staged(tmp_path, [turn(calls=[FORGET]), "Done."]) as stage:
        config: Any = mcp_tool(server, require_approval="always" if asks else "never")
        tool = HostedMCPTool(tool_config=config, on_approval_request=on_request)
        async with stage.async_client() as client:
            model = OpenAIResponsesModel(model="scripted", openai_client=client)
            agent = Agent[None](name="Clerk", model=model, tools=[tool])
            if stream:
                run = Runner.run_streamed(agent, "Forget it!")
                events = [event async for event in run.stream_events()]
                kinds = [event.item.type for event in events if event.type == "run_item_stream_event"]
                assert "mcp_list_tools_item" in kinds
                assert run.final_output == "Done."
            else:
                assert (await Runner.run(agent, "Forget it!")).final_output == "Done."
        assert seen == (["forget"] if asks else [])
        assert server.calls == (["it"] if approve or not asks else [])
        # A tool whose call was approved may have changed meanwhile.
        assert server.methods.count("tools/list") == (2 if asks and approve else 1)
