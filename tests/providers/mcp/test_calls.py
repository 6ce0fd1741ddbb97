"""Calls of the tools of MCP servers, through the shipped server, with the official SDK."""

import json
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from openai.types.responses import Response
from tests.http.sdk import Served, create, done, outputs
from tests.providers.mcp.stage import ERAS, TOKEN, mcp_tool, nowhere, running_server, staged

from antwort import Context
from antwort.testing import call, turn
from antwort.types import JSON

BOTH_WAYS = pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
ALL_ERAS = pytest.mark.parametrize("era", ERAS)
ADD = call("add", a=1, b=2)


def items(response: Response) -> list[JSON]:
    output: Any = response.to_dict()["output"]
    return list(output)


def types(response: Response) -> list[str]:
    return [item["type"] for item in items(response)]


def offered(stage: Served, number: int = -1) -> list[str]:
    """Return the names of what a model was offered."""
    return [tool["name"] for tool in stage.requests[number].tools or ()]


@BOTH_WAYS
@ALL_ERAS
@pytest.mark.parametrize("events", [False, True], ids=["as-json", "as-events"])
def test_a_tool_of_a_server_is_called(tmp_path: Path, *, stream: bool, era: str, events: bool) -> None:
    with running_server(era=era, events=events) as server, staged(tmp_path, [turn(calls=[ADD]), "3."]) as stage:
        response = create(stage, stream, input="1 + 2?", tools=[mcp_tool(server)])
        assert types(response) == ["mcp_list_tools", "mcp_call", "message"]
        listed, called, _ = items(response)
        assert [tool["name"] for tool in listed["tools"]] == ["add", "forget", "fail", "picture", "point", "much"]
        assert listed["id"].startswith("mcpl_")
        assert called["id"].startswith("mcp_")
        shown = {name: called[name] for name in ("server_label", "name", "output", "error", "status")}
        expected = {"server_label": "calc", "name": "add", "output": "3", "error": None, "status": "completed"}
        assert shown == expected
        assert json.loads(called["arguments"]) == {"a": 1, "b": 2}
        assert outputs(stage) == ["3"]
        assert server.calls == [(1, 2)]
        assert set(offered(stage, 0)) >= {"add", "forget"}
        assert ("initialize" in server.methods) is (era == "greeted")


def test_the_events_are_those_of_the_api(tmp_path: Path) -> None:
    steps = [turn(calls=[ADD]), turn(calls=[call("fail")]), "3."]
    with running_server() as server, staged(tmp_path, steps) as stage:
        stream = stage.stream(model="scripted", input="1 + 2?", tools=[mcp_tool(server)])
        of_items = [event["type"] for event in stream.events if "mcp" in event["type"]]
        assert of_items == [
            "response.mcp_list_tools.in_progress",
            "response.mcp_list_tools.completed",
            *(f"response.mcp_call{step}" for step in (".in_progress", "_arguments.delta", "_arguments.done")),
            "response.mcp_call.completed",
            *(f"response.mcp_call{step}" for step in (".in_progress", "_arguments.delta", "_arguments.done")),
            "response.mcp_call.failed",
        ]
        added = next(event for event in stream.events if event["type"] == "response.output_item.added")
        assert (added["output_index"], added["item"]["type"], added["item"]["tools"]) == (0, "mcp_list_tools", [])
        assert not [event for event in stream.events if "function_call_arguments" in event["type"]]


@BOTH_WAYS
def test_a_failure_of_a_tool_is_told_and_the_response_goes_on(tmp_path: Path, *, stream: bool) -> None:
    with running_server() as server, staged(tmp_path, [turn(calls=[call("fail")]), "It failed."]) as stage:
        response = create(stage, stream, input="Fail!", tools=[mcp_tool(server)])
        failed = items(response)[1]
        assert (failed["status"], failed["output"]) == ("failed", None)
        assert failed["error"]["type"] == "mcp_tool_execution_error"
        assert "It is out of order." in str(failed["error"]["content"])
        assert "It is out of order." in outputs(stage)[0]
        assert response.output_text == "It failed."


def test_arguments_that_a_server_refuses_are_told_to_the_model(tmp_path: Path) -> None:
    with running_server() as server, staged(tmp_path, [turn(calls=[call("add", a="x")]), "No."]) as stage:
        response = create(stage, False, input="Add!", tools=[mcp_tool(server)])
        assert items(response)[1]["status"] == "failed"
        assert "error" in outputs(stage)[0].lower()


def test_structured_content_and_images_are_read(tmp_path: Path) -> None:
    steps = [turn(calls=[call("point"), call("picture", call_id="call_p")]), "Seen."]
    with running_server() as server, staged(tmp_path, steps) as stage:
        response = create(stage, False, input="Look!", tools=[mcp_tool(server)])
        point, picture = items(response)[1:3]
        assert json.loads(point["output"]) == {"x": 1, "y": 2}
        assert picture["output"].startswith("[image/png, ")


def test_a_long_result_is_cut_or_kept_as_that_of_any_function(tmp_path: Path) -> None:
    steps = [turn(calls=[call("much", size=10_000_000)]), "Much."]
    with running_server() as server, staged(tmp_path, steps) as stage:
        response = create(stage, False, input="Say much!", tools=[mcp_tool(server)])
        assert items(response)[1]["status"] == "completed"
        assert len(outputs(stage)[0]) < 200_000
        assert len(items(response)[1]["output"]) < 200_000


def test_two_servers_have_a_tool_of_the_same_name(tmp_path: Path) -> None:
    steps = [turn(calls=[call("one__add", a=1, b=2), call("two__add", a=3, b=4, call_id="call_2")]), "3 and 7."]
    with running_server() as one, running_server() as two, staged(tmp_path, steps) as stage:
        response = create(stage, False, input="Add!", tools=[mcp_tool(one, "one"), mcp_tool(two, "two")])
        assert types(response) == ["mcp_list_tools", "mcp_list_tools", "mcp_call", "mcp_call", "message"]
        first, second = items(response)[2:4]
        assert [(item["server_label"], item["name"], item["output"]) for item in (first, second)] == [
            ("one", "add", "3"),
            ("two", "add", "7"),
        ]
        assert (one.calls, two.calls) == ([(1, 2)], [(3, 4)])


@pytest.mark.parametrize(
    ("allowed", "names"),
    [
        (["add", "point"], ["add", "point"]),
        (["*"], ["add", "forget", "fail", "picture", "point", "much"]),
        ([], []),
        ({"tool_names": ["forget"]}, ["forget"]),
        ({"read_only": True}, ["add"]),
    ],
)
def test_only_the_allowed_tools_are_listed_and_offered(tmp_path: Path, allowed: Any, names: list[str]) -> None:
    with running_server() as server, staged(tmp_path, ["Hi."]) as stage:
        response = create(stage, False, input="Hi", tools=[mcp_tool(server, allowed_tools=allowed)])
        assert [tool["name"] for tool in items(response)[0]["tools"]] == names
        assert [name for name in offered(stage) if name in {"add", "forget", "fail", "point"}] == [
            name for name in names if name in {"add", "forget", "fail", "point"}
        ]


@pytest.mark.parametrize("way", ["chained", "sent back", "conversation"])
def test_a_server_is_asked_for_its_tools_once(tmp_path: Path, way: str) -> None:
    steps = ["Hi.", turn(calls=[ADD]), "3.", turn(calls=[call("forget", what="it", call_id="call_2")]), "Gone."]
    with running_server() as server, staged(tmp_path, steps) as stage:
        fields: JSON = {}
        if way == "conversation":
            fields["conversation"] = stage.client().conversations.create().id
        first = create(stage, False, input="Hi", tools=[mcp_tool(server)], **fields)
        assert types(first) == ["mcp_list_tools", "message"]
        question: Any = "1 + 2?"
        if way == "chained":
            fields["previous_response_id"] = first.id
        elif way == "sent back":
            question = [{"role": "user", "content": "Hi"}, *items(first), {"role": "user", "content": question}]
        second = create(stage, False, input=question, tools=[mcp_tool(server)], **fields)
        assert types(second) == ["mcp_call", "message"]
        if way == "chained":
            fields["previous_response_id"] = second.id
        elif way == "sent back":
            question = [*question, *items(second), {"role": "user", "content": "Forget it."}]
        third = create(stage, False, input=question, tools=[mcp_tool(server)], **fields)
        assert types(third) == ["mcp_call", "message"]
        assert server.methods.count("tools/list") == 1
        assert server.calls == [(1, 2), "it"]
        read = [item for item in stage.requests[-1].items if item["type"].startswith("function_call")]
        assert [item.get("name") for item in read if item["type"] == "function_call"] == ["add", "forget"]


@pytest.mark.parametrize("forgotten", ["before the list", "before the call"])
def test_a_server_that_has_forgotten_its_session_is_greeted_again(tmp_path: Path, forgotten: str) -> None:
    steps = [turn(calls=[ADD]), "3.", turn(calls=[ADD]), "3."]
    with running_server(era="greeted") as server, staged(tmp_path, steps) as stage:
        tools = [mcp_tool(server)]
        first = create(stage, False, input="1 + 2?", tools=tools)
        session = {name: server.headers[-1][name] for name in ("mcp-session-id", "mcp-protocol-version")}
        assert httpx.delete(server.url, headers=session).status_code == 200
        fields: Any = {"previous_response_id": first.id} if forgotten == "before the call" else {}
        second = create(stage, False, input="Again?", tools=tools, **fields)
        assert [types(second)[-2], items(second)[-2]["output"]] == ["mcp_call", "3"]
        assert server.calls == [(1, 2), (1, 2)]
        assert server.methods.count("initialize") == 2


def test_what_a_server_is_told_is_told_to_nobody_else(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    secret, steps = "another-secret-of-the-client", [turn(calls=[ADD]), "3."]
    with running_server(token=TOKEN) as server, staged(tmp_path, steps) as stage:
        tool = mcp_tool(server, authorization=TOKEN, headers={"X-Key": secret})
        response = create(stage, True, input="1 + 2?", tools=[tool])
        assert types(response) == ["mcp_list_tools", "mcp_call", "message"]
        assert {headers["x-key"] for headers in server.headers} == {secret}
        fetched = stage.request("GET", f"/responses/{response.id}").text
        tapes = b"".join(chunk for tape in stage.tapes for chunk in tape.chunks).decode()
        stored = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()).decode(errors="replace")
        for text in (fetched, tapes, stored, caplog.text):
            assert TOKEN not in text
            assert secret not in text


@pytest.mark.parametrize("secret", [{"authorization": TOKEN}, {"headers": {"X-Key": TOKEN}}])
def test_items_bring_no_credentials_since_they_are_stored_as_they_are(tmp_path: Path, secret: Any) -> None:
    with running_server() as server, staged(tmp_path, [turn(calls=[ADD]), "3."]) as stage:
        tools = {"type": "additional_tools", "role": "developer", "tools": [mcp_tool(server)]}
        question = {"role": "user", "content": "1 + 2?"}
        response = create(stage, False, input=[tools, question])
        assert types(response) == ["mcp_list_tools", "mcp_call", "message"]
        given: Any = {**tools, "tools": [mcp_tool(server, **secret)]}
        with pytest.raises(openai.BadRequestError) as refused:
            create(stage, False, input=[given, question])
        assert refused.value.param == f"input[0].tools[0].{next(iter(secret))}"
        with pytest.raises(openai.BadRequestError):
            stage.client().conversations.create(items=[given])


async def wonder(ctx: Context) -> str:
    """Ask an agent that has no functions."""
    return (await ctx.agents.ask("What?")).text


@pytest.mark.parametrize("way", ["agent", "ignored"])
def test_credentials_are_sealed_of_tools_that_a_stored_response_does_not_have(tmp_path: Path, way: str) -> None:
    steps = [turn(calls=[call("wonder")]), "It is so.", "Yes."] if way == "agent" else ["Yes."]
    engine = {"unavailable_tools": "ignore"} if way == "ignored" else {}
    off: JSON = {"mcp": {"enabled": way == "agent"}}
    with (
        running_server(token=TOKEN) as server,
        staged(tmp_path, steps, section=off, functions=[wonder], engine=engine) as stage,
    ):
        tools = [mcp_tool(server, authorization=TOKEN), {"type": "function", "name": "wonder"}]
        begun = stage.client().responses.create(model="scripted", input="?", tools=tools, background=True)
        assert done(stage, begun.id)["status"] == "completed"
        stored = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
        assert TOKEN.encode() not in stored


@BOTH_WAYS
def test_refused_credentials_are_a_401_that_names_the_label(tmp_path: Path, *, stream: bool) -> None:
    with running_server(token=TOKEN) as server, staged(tmp_path, []) as stage:
        with pytest.raises(openai.AuthenticationError, match="'calc'") as error:
            create(stage, stream, input="1 + 2?", tools=[mcp_tool(server, authorization="wrong")])
        assert error.value.param == "tools[0].authorization"


def test_a_server_that_is_down_costs_its_own_tools_only(tmp_path: Path) -> None:
    steps = [turn(calls=[ADD]), "3."]
    with running_server() as server, staged(tmp_path, steps) as stage:
        down = mcp_tool(nowhere(), "down")
        response = create(stage, True, input="1 + 2?", tools=[down, mcp_tool(server)])
        assert types(response) == ["mcp_list_tools", "mcp_list_tools", "mcp_call", "message"]
        first, second = items(response)[:2]
        assert first["tools"] == []
        assert "cannot be reached" in first["error"]
        assert second["error"] is None


def test_a_choice_names_a_server_or_one_of_its_tools(tmp_path: Path) -> None:
    with running_server() as server, staged(tmp_path, [turn(calls=[ADD]), "3."] * 2) as stage:
        choice: Any = {"type": "mcp", "server_label": "calc", "name": "add"}
        response = create(stage, False, input="1 + 2?", tools=[mcp_tool(server)], tool_choice=choice)
        assert stage.requests[0].allowed == frozenset({"add"})
        assert response.to_dict()["tool_choice"] == choice
        create(stage, False, input="?", tools=[mcp_tool(server)], tool_choice={"type": "mcp", "server_label": "calc"})
        assert stage.requests[2].allowed == frozenset({"add", "forget", "fail", "picture", "point", "much"})
        assert [request.tool_choice for request in stage.requests[2:]] == ["required", "auto"]
        with pytest.raises(openai.BadRequestError, match="'there'"):
            wrong: Any = {"type": "mcp", "server_label": "there"}
            create(stage, False, input="?", tools=[mcp_tool(server)], tool_choice=wrong)


def test_the_limits_of_calls_count_them(tmp_path: Path) -> None:
    steps = [turn(calls=[ADD]), turn(calls=[call("forget", what="it", call_id="call_2")]), "3."]
    with running_server() as server, staged(tmp_path, steps) as stage:
        response = create(stage, False, input="1 + 2?", tools=[mcp_tool(server)], max_tool_calls=1)
        assert [kind for kind in types(response) if kind == "mcp_call"] == ["mcp_call"]
        assert server.calls == [(1, 2)]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"server_url": None}, "server_url"),
        ({"server_url": "ftp://example.org"}, "server_url"),
        ({"server_url": "http://169.254.169.254/mcp"}, "server_url"),
        ({"server_url": None, "connector_id": "connector_gmail"}, "connector_id"),
        ({"server_label": ""}, "server_label"),
        ({"headers": {"AUTHORIZATION": "Bearer x"}}, "headers"),
        ({"headers": {"X": "a\r\nb"}}, "headers"),
        ({"authorization": "a\nb"}, "authorization"),
        ({"tunnel_id": "t"}, "tunnel_id"),
    ],
)
def test_what_cannot_be_done_is_refused(tmp_path: Path, fields: JSON, param: str) -> None:
    with staged(tmp_path, []) as stage, pytest.raises(openai.BadRequestError) as error:
        create(stage, False, input="Hi", tools=[mcp_tool("http://127.0.0.1:9/mcp", **fields)])
    assert error.value.param == f"tools[0].{param}"


def test_two_tools_with_a_label_are_refused(tmp_path: Path) -> None:
    with (
        staged(tmp_path, []) as stage,
        pytest.raises(openai.BadRequestError, match="two tools with the") as error,
    ):
        create(stage, False, input="Hi", tools=[mcp_tool("http://127.0.0.1:9/")] * 2)
    assert error.value.param == "tools[1].server_label"
