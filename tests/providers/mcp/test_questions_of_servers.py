"""Tools of MCP servers that ask the user something: their questions are questions of the run."""

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from mcp.server.mcpserver import Elicit, ElicitationResult, MCPServer, Resolve
from pydantic import BaseModel
from starlette.types import Send
from tests.http.sdk import create, done, outputs
from tests.providers.mcp.stage import ERAS, McpServer, mcp_tool, on_socket, running_server, staged
from tests.providers.mcp.test_approvals import items, types, verdict
from tests.providers.mcp.test_hostile_servers import PLAIN, ask_for_ever, listing, reply, server
from tests.providers.user.stage import answer, asked, begun

from antwort.testing import call, turn
from antwort.types import JSON

USER: JSON = {"user": {"enabled": True}}
BOOK = call("book", city="Ulm", call_id="call_1")
ASK_USER: Any = {"type": "function", "name": "ask_user"}


class Seat(BaseModel):
    seats: int
    window: bool
    meal: Literal["fish", "rice"]


def ask_for_seat(city: str) -> Elicit[Seat]:
    return Elicit(f"Which seat to {city}?", Seat)


def clerk(calls: list[Any]) -> MCPServer:
    """Return a server whose tool wants to know something before it does anything."""
    made = MCPServer("clerk")

    @made.tool()
    def book(city: str, seat: Annotated[ElicitationResult[Seat], Resolve(ask_for_seat)]) -> str:
        """Book a journey."""
        if seat.action != "accept":
            return f"nothing: {seat.action}"
        calls.append((city, seat.data))
        return f"{city}: {seat.data.seats}, {seat.data.window}, {seat.data.meal}"

    return made


@pytest.fixture(params=ERAS)
def booking(request: pytest.FixtureRequest) -> Any:
    calls: list[Any] = []
    with running_server(clerk(calls), era=request.param, events=True) as server:
        server.calls = calls
        yield server


def told(question: JSON) -> str:
    """Return what is asked in the last line of a question."""
    return str(question["body"]["question"]).splitlines()[1]


ANSWERS = {"Seats": "2", "Window": "yes", "Meal": "rice"}


def test_a_question_of_a_server_parks_the_run_until_it_is_answered(tmp_path: Path, booking: McpServer) -> None:
    with staged(tmp_path, [turn(calls=[BOOK]), "Booked."], section=USER) as stage:
        response_id = begun(stage, tools=[mcp_tool(booking, "clerk")])
        found = asked(stage, 3)
        assert [told(question) for question in found] == list(ANSWERS)
        assert found[0]["body"]["question"].startswith("The MCP server 'clerk' asks: Which seat to Ulm?")
        assert found[2]["body"]["choices"] == ["fish", "rice", "decline"]
        assert booking.calls == []
        for question in found:
            answer(stage, question, answer=ANSWERS[told(question)])
        response = done(stage, response_id)
        assert [item["type"] for item in response["output"] if item["type"] != "function_call"] == [
            "mcp_list_tools",
            "mcp_call",
            "message",
        ]
        [made] = [item for item in response["output"] if item["type"] == "mcp_call"]
        assert (made["status"], made["output"]) == ("completed", "Ulm: 2, True, rice")
        assert len(booking.calls) == 1


@pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
def test_a_question_is_answered_by_the_response_that_follows(
    tmp_path: Path, booking: McpServer, *, stream: bool
) -> None:
    with staged(tmp_path, [turn(calls=[BOOK]), "Booked."], section=USER) as stage:
        tools = [mcp_tool(booking, "clerk"), ASK_USER]
        first = create(stage, stream, input="Book!", tools=tools)
        waiting = [item for item in items(first) if item["type"] == "function_call"]
        assert [item["name"] for item in waiting] == ["ask_user"] * 3
        said: Any = [
            {
                "type": "function_call_output",
                "call_id": item["call_id"],
                "output": ANSWERS[json.loads(item["arguments"])["question"].splitlines()[1]],
            }
            for item in waiting
        ]
        second = create(stage, stream, input=said, tools=tools, previous_response_id=first.id)
        assert types(second) == ["mcp_call", "message"]
        assert items(second)[0]["output"] == "Ulm: 2, True, rice"
        assert outputs(stage) == ["Ulm: 2, True, rice"]
        assert len(booking.calls) == 1


@pytest.mark.parametrize("way", ["not stored", "no provider", "declined", "withdrawn"])
def test_a_user_who_says_nothing_has_declined(tmp_path: Path, booking: McpServer, way: str) -> None:
    section: JSON = {} if way == "no provider" else USER
    expected = "nothing: cancel" if way == "withdrawn" else "nothing: decline"
    with staged(tmp_path, [turn(calls=[BOOK]), "Not booked."], section=section) as stage:
        tools = [mcp_tool(booking, "clerk"), *([ASK_USER] if way != "no provider" else [])]
        if way in {"not stored", "no provider"}:
            create(stage, False, input="Book!", tools=tools, store=way != "not stored")
        else:
            response_id = begun(stage, tools=tools)
            for question in asked(stage, 3):
                if way == "declined":
                    answer(stage, question, answer="decline" if told(question) == "Meal" else ANSWERS[told(question)])
                else:
                    assert stage.request("POST", f"/questions/{question['id']}/cancel").status_code == 200
            done(stage, response_id)
        assert outputs(stage) == [expected]
        assert booking.calls == []


def test_an_approval_comes_before_the_question(tmp_path: Path, booking: McpServer) -> None:
    with staged(tmp_path, [turn(calls=[BOOK]), "Not booked."], section=USER) as stage:
        tools = [mcp_tool(booking, "clerk", require_approval="always"), ASK_USER]
        first = create(stage, False, input="Book!", tools=tools)
        second = create(
            stage, False, input=[verdict(items(first)[-1], True)], tools=tools, previous_response_id=first.id
        )
        waiting = [item["call_id"] for item in items(second) if item["type"] == "function_call"]
        assert len(waiting) == 3
        said: Any = [{"type": "function_call_output", "call_id": name, "output": "decline"} for name in waiting]
        third = create(stage, False, input=said, tools=tools, previous_response_id=second.id)
        assert items(third)[0]["output"] == "nothing: decline"


def asking(params: JSON) -> Any:
    """Return a server that asks once, and then says what it was told."""

    async def act(message: JSON, send: Send) -> None:
        given = message["params"].get("inputResponses")
        if given is None:
            requests = {"q": {"method": "elicitation/create", "params": params}}
            result: JSON = {"resultType": "input_required", "inputRequests": requests, "requestState": "s"}
        else:
            assert message["params"]["requestState"] == "s"
            result = {"content": [{"type": "text", "text": json.dumps(given["q"])}]}
        await reply(send, {"jsonrpc": "2.0", "id": message["id"], "result": result})

    return server(listing(PLAIN), act)


@pytest.mark.parametrize(("said", "action"), [("done", "accept"), ("decline", "decline")])
def test_an_address_is_told_and_not_opened(tmp_path: Path, said: str, action: str) -> None:
    params = {"mode": "url", "message": "Sign in\u202e.", "url": "http://127.0.0.1:9/in", "elicitationId": "1"}
    with on_socket(asking(params)) as url, staged(tmp_path, [turn(calls=[call("act")]), "So."], section=USER) as stage:
        response_id = begun(stage, tools=[mcp_tool(url)])
        [question] = asked(stage)
        assert question["body"] == {
            "question": "The MCP server 'calc' asks: Sign in.\n"
            "It wants you to open this address yourself, which is not done here: http://127.0.0.1:9/in",
            "choices": ["done", "decline"],
        }
        answer(stage, question, answer=said)
        done(stage, response_id)
        assert json.loads(outputs(stage)[0])["action"] == action


FIELDS: JSON = {
    "name": {"type": "string", "default": "Ada"},
    "seats": {"type": "integer", "default": 2},
    "window": {"type": "boolean", "default": False},
    "meal": {"enum": ["fish", "rice"], "default": "rice"},
    "wrong": {"type": "integer", "default": "two"},
    "strange": {"enum": ["a"], "default": "b"},
    "hidden": {"type": "string", "default": "a\u202eb"},
}


def test_a_field_with_a_default_says_so_and_to_skip_it_is_to_answer_that(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": FIELDS, "required": ["seats"]}
    params = {"message": "Which?", "requestedSchema": schema}
    with on_socket(asking(params)) as url, staged(tmp_path, [turn(calls=[call("act")]), "So."], section=USER) as stage:
        response_id = begun(stage, tools=[mcp_tool(url)])
        found = {told(question): question for question in asked(stage, 7)}
        hints = {name: one["body"]["question"].splitlines()[2:] for name, one in found.items()}
        for question in found.values():
            answer(stage, question, answer="skip")
        done(stage, response_id)
        content = {"name": "Ada", "seats": 2, "window": False, "meal": "rice"}
        assert json.loads(outputs(stage)[0]) == {"action": "accept", "content": content}
    assert hints["name"] == ["(Answer 'skip' to say 'Ada', or 'decline' to say nothing.)"]
    assert hints["seats"] == ["(Answer 'skip' to say 2, or 'decline' to say nothing.)"]
    assert [hints["window"], hints["meal"]] == [["('skip' says 'no'.)"], ["('skip' says 'rice'.)"]]
    assert [hints["wrong"], hints["strange"]] == [["(Answer 'skip' or 'decline' to say nothing.)"], []]


def test_a_server_that_asks_and_asks_is_given_up(tmp_path: Path) -> None:
    rounds = 0
    with (
        on_socket(server(listing(PLAIN), ask_for_ever)) as url,
        staged(tmp_path, [turn(calls=[call("act")]), "It failed."], section=USER) as stage,
    ):
        response_id = begun(stage, tools=[mcp_tool(url)])
        while True:
            open_ones = asked(stage) if rounds < 7 else []
            if not open_ones:
                break
            rounds += 1
            answer(stage, open_ones[0], answer="yes")
        [made] = [item for item in done(stage, response_id)["output"] if item["type"] == "mcp_call"]
        assert "asks for more and more" in made["error"]["message"]
