"""Approvals of calls in responses that nobody stores: the client carries the request."""

from pathlib import Path
from typing import Any

import openai
import pytest
from tests.http.sdk import create, outputs
from tests.providers.mcp.stage import mcp_tool, running_server, staged
from tests.providers.mcp.test_approvals import ASKING, FORGET, items, types, verdict

from antwort.testing import turn

ASKED: Any = {"role": "user", "content": "Forget it!"}


@pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
@pytest.mark.parametrize("approve", [True, False])
def test_a_client_carries_the_request_back(tmp_path: Path, *, stream: bool, approve: bool) -> None:
    with running_server() as server, staged(tmp_path, [turn(calls=[FORGET]), "Done.", "More."]) as stage:
        tools = [mcp_tool(server, **ASKING)]
        first = create(stage, stream, input=[ASKED], tools=tools, store=False)
        assert types(first) == ["mcp_list_tools", "mcp_approval_request"]
        history: list[Any] = [ASKED, *items(first), verdict(items(first)[1], approve)]
        second = create(stage, stream, input=history, tools=tools, store=False)
        assert types(second) == (["mcp_call", "message"] if approve else ["message"])
        assert server.calls == (["it"] if approve else [])
        said = "it is forgotten" if approve else "does not want"
        assert said in outputs(stage)[0]
        history = [*history, *items(second), {"role": "user", "content": "And now?"}]
        third = create(stage, stream, input=history, tools=tools, store=False)
        assert types(third) == ["message"]
        assert server.calls == (["it"] if approve else [])  # what was approved once is not made again
        # A tool whose call was approved may have changed meanwhile.
        assert server.methods.count("tools/list") == (2 if approve else 1)


@pytest.mark.parametrize("change", ["arguments", "name", "server_label", "id"])
def test_a_request_that_was_changed_is_none(tmp_path: Path, change: str) -> None:
    with running_server() as server, staged(tmp_path, [turn(calls=[FORGET])]) as stage:
        tools = [mcp_tool(server, **ASKING)]
        first = create(stage, False, input=[ASKED], tools=tools, store=False)
        forged = dict(items(first)[1])
        forged[change] = {"arguments": '{"what": "all"}', "name": "fail", "server_label": "x", "id": "mcpr_1"}[change]
        with pytest.raises(openai.BadRequestError):
            create(stage, False, input=[ASKED, forged, verdict(forged, True)], tools=tools, store=False)
        assert server.calls == []


def test_what_was_asked_without_being_stored_can_be_approved_in_a_stored_response(tmp_path: Path) -> None:
    with running_server() as server, staged(tmp_path, [turn(calls=[FORGET]), "Done.", "More."]) as stage:
        tools = [mcp_tool(server, **ASKING)]
        first = create(stage, False, input=[ASKED], tools=tools, store=False)
        request = items(first)[1]
        second = create(stage, False, input=[ASKED, request, verdict(request, True)], tools=tools)
        assert types(second) == ["mcp_list_tools", "mcp_call", "message"]
        create(stage, False, input="More?", tools=tools, previous_response_id=second.id)
        assert server.calls == ["it"]
