"""MCP servers as users of `langchain-openai` name them: a tool of the model, with approvals and without."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from langchain_core.messages import BaseMessage, HumanMessage
from langchain_openai import ChatOpenAI
from pydantic import SecretStr
from tests.http.sdk import Recording, Served
from tests.providers.mcp.stage import mcp_tool, running_server, staged

from antwort.testing import call, turn

FORGET = call("forget", what="it", call_id="call_1")


@pytest.fixture
def http() -> Iterator[httpx2.Client]:
    """Give connections, which are closed after the test."""
    with httpx2.Client(transport=Recording([])) as client:
        yield client


def chat(served: Served, http: httpx2.Client) -> ChatOpenAI:
    return ChatOpenAI(
        model="scripted",
        base_url=f"{served.server.url}/v1",
        api_key=SecretStr("none"),
        use_responses_api=True,
        output_version="responses/v1",
        max_retries=0,
        http_client=http,
    )


def parts(message: BaseMessage) -> list[dict[str, Any]]:
    return [part for part in message.content if isinstance(part, dict)]


@pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
def test_a_tool_is_called(tmp_path: Path, http: httpx2.Client, *, stream: bool) -> None:
    with running_server() as server, staged(tmp_path, [turn(calls=[FORGET]), "Done."]) as stage:
        model = chat(stage, http).bind_tools([mcp_tool(server)])
        if stream:
            found = [part for chunk in model.stream("Forget it!") for part in parts(chunk)]
        else:
            found = parts(model.invoke("Forget it!"))
        assert "".join(part["text"] for part in found if part.get("text")) == "Done."
        assert {"mcp_list_tools", "mcp_call"} <= {part["type"] for part in found}
    assert server.calls == ["it"]


@pytest.mark.parametrize("approve", [True, False])
def test_a_call_waits_for_an_approval(tmp_path: Path, http: httpx2.Client, *, approve: bool) -> None:
    with running_server() as server, staged(tmp_path, [turn(calls=[FORGET]), "Done."]) as stage:
        model = chat(stage, http).bind_tools([mcp_tool(server, require_approval="always")])
        first = model.invoke("Forget it!")
        [request] = [
            part for part in first.content if isinstance(part, dict) and part["type"] == "mcp_approval_request"
        ]
        assert server.calls == []
        answer: Any = {"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": approve}
        second = model.invoke([HumanMessage([answer])], previous_response_id=first.response_metadata["id"])
        assert second.text == "Done."
    assert server.calls == (["it"] if approve else [])
