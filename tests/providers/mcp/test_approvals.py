"""Calls of the tools of MCP servers that wait for an approval."""

from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types.responses import Response
from tests.http.sdk import create, done, outputs
from tests.providers.mcp.stage import TOKEN, mcp_tool, running_server, staged
from tests.providers.user.stage import answer, asked, begun

from antwort.testing import call, turn
from antwort.types import JSON

FORGET = call("forget", what="it", call_id="call_1")
ASKING: JSON = {"require_approval": None}
USER: JSON = {"user": {"enabled": True}}


def items(response: Response) -> list[JSON]:
    output: Any = response.to_dict()["output"]
    return list(output)


def types(response: Response) -> list[str]:
    return [item["type"] for item in items(response)]


def verdict(request: JSON, approve: bool) -> Any:
    return {"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": approve}


@pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
@pytest.mark.parametrize("approve", [True, False])
@pytest.mark.parametrize("way", ["chained", "conversation"])
def test_a_call_is_made_once_after_a_yes(tmp_path: Path, *, stream: bool, approve: bool, way: str) -> None:
    with running_server() as server, staged(tmp_path, [turn(calls=[FORGET]), "Done."]) as stage:
        tools, fields = [mcp_tool(server, **ASKING)], dict[str, Any]()
        if way == "conversation":
            fields["conversation"] = stage.client().conversations.create().id
        first = create(stage, stream, input="Forget it!", tools=tools, **fields)
        assert (first.status, types(first)) == ("completed", ["mcp_list_tools", "mcp_approval_request"])
        request = items(first)[1]
        assert (request["server_label"], request["name"]) == ("calc", "forget")
        assert server.calls == []
        if way == "chained":
            fields["previous_response_id"] = first.id
        second = create(stage, stream, input=[verdict(request, approve)], tools=tools, **fields)
        assert types(second) == (["mcp_call", "message"] if approve else ["message"])
        assert server.calls == (["it"] if approve else [])
        if approve:
            assert items(second)[0]["approval_request_id"] == request["id"]
            assert outputs(stage) == ["it is forgotten"]
        else:
            assert "does not want" in outputs(stage)[0]
        assert len(stage.requests) == 2


@pytest.mark.parametrize(
    ("said", "waits"),
    [
        (None, True),
        ("always", True),
        ("never", False),
        ({"never": {"tool_names": ["forget"]}}, False),
        ({"never": {"read_only": True}}, True),
        ({"always": {"tool_names": ["add"]}}, True),
        ({"always": {"tool_names": ["forget"]}, "never": {"tool_names": ["add"]}}, True),
    ],
)
def test_a_request_says_which_calls_wait(tmp_path: Path, said: Any, waits: bool) -> None:
    steps = [turn(calls=[FORGET]), *([] if waits else ["Done."])]
    with running_server() as server, staged(tmp_path, steps) as stage:
        response = create(stage, False, input="Forget it!", tools=[mcp_tool(server, require_approval=said)])
        assert ("mcp_approval_request" in types(response)) is waits


def test_the_operator_says_what_holds_where_a_request_says_nothing(tmp_path: Path) -> None:
    steps = [turn(calls=[FORGET]), "Done."]
    with running_server() as server, staged(tmp_path, steps, settings={"require_approval": "never"}) as stage:
        response = create(stage, False, input="Forget it!", tools=[mcp_tool(server, **ASKING)])
        assert types(response) == ["mcp_list_tools", "mcp_call", "message"]


def test_calls_of_others_are_made_meanwhile(tmp_path: Path) -> None:
    steps = [turn(calls=[FORGET, call("add", a=1, b=2, call_id="call_2")]), "Done."]
    with running_server() as one, running_server() as two, staged(tmp_path, steps) as stage:
        asking = mcp_tool(one, "one", allowed_tools=["forget"], **ASKING)
        tools = [asking, mcp_tool(two, "two", allowed_tools=["add"])]
        first = create(stage, False, input="Go!", tools=tools)
        assert types(first)[2:] == ["mcp_approval_request", "mcp_call"]
        second = create(
            stage, False, input=[verdict(items(first)[2], True)], tools=tools, previous_response_id=first.id
        )
        assert types(second) == ["mcp_call", "message"]
        assert (one.calls, two.calls) == (["it"], [(1, 2)])


def test_a_call_of_a_server_that_is_not_named_again_is_not_made(tmp_path: Path) -> None:
    with running_server() as server, staged(tmp_path, [turn(calls=[FORGET]), "Well."]) as stage:
        first = create(stage, False, input="Forget it!", tools=[mcp_tool(server, **ASKING)])
        said = [verdict(items(first)[1], True)]
        create(stage, False, input=said, previous_response_id=first.id)
        assert server.calls == []
        assert "no such function" in outputs(stage)[0]


@pytest.mark.parametrize("approve", [True, False])
def test_a_background_run_waits_with_its_credentials_sealed(tmp_path: Path, approve: bool) -> None:
    steps = [turn(calls=[FORGET]), "Done."]
    with running_server(token=TOKEN) as server, staged(tmp_path, steps, section=USER) as stage:
        response_id = begun(stage, tools=[mcp_tool(server, authorization=TOKEN, **ASKING)])
        [question] = asked(stage)
        assert (question["body"]["server_label"], question["body"]["name"]) == ("calc", "forget")
        stored = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
        assert TOKEN.encode() not in stored
        answer(stage, question, approve=approve)
        response = done(stage, response_id)
        kinds = [item["type"] for item in response["output"]]
        assert kinds == ["mcp_list_tools", "mcp_approval_request", *(["mcp_call"] if approve else []), "message"]
        assert server.calls == (["it"] if approve else [])
        # A tool whose call was approved may have changed meanwhile.
        assert server.methods.count("tools/list") == 2
        assert stage.resume(response_id).response["output"] == response["output"]


def test_a_verdict_on_what_nobody_has_asked_is_refused(tmp_path: Path) -> None:
    with running_server() as server, staged(tmp_path, [turn(calls=[FORGET])]) as stage:
        first = create(stage, False, input="Forget it!", tools=[mcp_tool(server, **ASKING)])
        with pytest.raises(openai.BadRequestError, match="mcpr_0"):
            said = [verdict({"id": "mcpr_0"}, True)]
            create(stage, False, input=said, tools=[mcp_tool(server)], previous_response_id=first.id)
        assert server.calls == []
