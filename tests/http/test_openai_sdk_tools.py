"""The official SDK, strict: functions of the client, of the server, and of both in one turn."""

import asyncio
import json
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from openai import BadRequestError, NotFoundError, pydantic_function_tool
from openai.types.responses import Response, ResponseFunctionToolCall
from pydantic import BaseModel
from tests.http.sdk import CLIENT_TOOL, Served, create, done, served
from tests.support.postgres import on_one_store

from antwort.provider import Context, Hosted, Provider, Source, ToolResult, function
from antwort.testing import Gate, call, lint_response, lint_stream, matching, turn
from antwort.types import JSON

pytestmark = on_one_store()

WEATHER = call("get_weather", city="Bonn", call_id="call_w")
BOTH_WAYS = pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])


def _describe(arguments: Mapping[str, Any]) -> JSON:
    return {"action": {"type": "search", "query": arguments.get("query", ""), "queries": [arguments.get("query", "")]}}


class Search(Provider):
    """A provider whose function has a wire face of the OpenAI API."""

    name = "search"

    def __init__(self) -> None:
        super().__init__()
        self.options: list[Any] = []

    @function(
        hosted=Hosted(
            types=("web_search", "web_search_preview"),
            item="web_search_call",
            describe=_describe,
            phases=("in_progress", "searching"),
        )
    )
    async def look_up(self, ctx: Context, query: str) -> ToolResult:
        """Look something up."""
        self.options.append(dict(ctx.options))
        number = ctx.sources.add(Source("Bonn", url="https://example.org/bonn"))
        return ToolResult(f"[{number}] {query} is on the Rhine.")


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def calls_of(response: Response) -> list[ResponseFunctionToolCall]:
    return [item for item in response.output if item.type == "function_call"]


def output(call_id: str, text: str) -> Any:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def items_of(stage: Served, number: int) -> list[tuple[str, str]]:
    """Return what the model read in a request: the type of each item and what identifies it."""
    return [(item["type"], item.get("call_id") or item.get("role") or "") for item in stage.requests[number].items]


# --- functions of the client -----------------------------------------------------------------------------------------


@BOTH_WAYS
@pytest.mark.parametrize("over_http", [False, True])
def test_a_function_of_the_client_makes_a_round_trip(tmp_path: Path, stream: bool, over_http: bool) -> None:
    steps = [turn("Let me see.", calls=[WEATHER]), turn("It rains.", expect=matching(last="wet"))]
    with served(tmp_path, steps, over_http=over_http) as stage:
        first = create(stage, stream, input="Rain in Bonn?", tools=[CLIENT_TOOL])
        (called,) = calls_of(first)
        assert first.status == "completed"
        assert first.output_text == "Let me see."
        assert (called.name, called.call_id, called.status) == ("get_weather", "call_w", "completed")
        assert json.loads(called.arguments) == {"city": "Bonn"}
        second = create(
            stage, stream, input=[output("call_w", "wet")], tools=[CLIENT_TOOL], previous_response_id=first.id
        )
    assert second.output_text == "It rains."
    assert items_of(stage, 1)[-2:] == [("function_call", "call_w"), ("function_call_output", "call_w")]
    assert first.tools[0].to_dict() == CLIENT_TOOL


@BOTH_WAYS
def test_several_calls_of_one_turn_come_together_and_are_answered_together(tmp_path: Path, stream: bool) -> None:
    calls = [call("get_weather", city=city, call_id=f"call_{city}") for city in ("Bonn", "Rome", "Oslo")]
    steps = [turn(calls=calls), turn("Mixed.")]
    with served(tmp_path, steps, over_http=True) as stage:
        first = create(stage, stream, input="Weather?", tools=[CLIENT_TOOL])
        assert [one.call_id for one in calls_of(first)] == ["call_Bonn", "call_Rome", "call_Oslo"]
        outputs = [output(one.call_id, "fine") for one in reversed(calls_of(first))]
        create(stage, stream, input=outputs, tools=[CLIENT_TOOL], previous_response_id=first.id)
    user, assistant, *results = stage.bodies[1]["messages"]
    assert user["role"] == "user"
    assert [one["id"] for one in assistant["tool_calls"]] == ["call_Bonn", "call_Rome", "call_Oslo"]
    assert [one["role"] for one in results] == ["tool", "tool", "tool"]


def test_a_round_trip_works_without_anything_stored(tmp_path: Path) -> None:
    with served(tmp_path, [turn(calls=[WEATHER]), turn("It rains.")]) as stage:
        client = stage.client()
        history: Any = [{"role": "user", "content": "Rain in Bonn?"}]
        first = client.responses.create(model="scripted", input=history, tools=[CLIENT_TOOL], store=False)
        history += [*first.output, output("call_w", "wet")]
        second = client.responses.create(model="scripted", input=history, tools=[CLIENT_TOOL], store=False)
    assert second.output_text == "It rains."
    assert [kind for kind, _ in items_of(stage, 1)] == ["message", "function_call", "function_call_output"]


def test_arguments_stream_in_pieces_that_amount_to_the_whole(tmp_path: Path) -> None:
    pieces = ['{"ci', 'ty": "B', 'onn"}']
    with served(tmp_path, [turn(calls=[call("get_weather", pieces)])]) as stage:
        events = list(stage.client().responses.create(model="scripted", input="?", tools=[CLIENT_TOOL], stream=True))
    deltas = [event.delta for event in events if event.type == "response.function_call_arguments.delta"]
    finished = [event for event in events if event.type == "response.function_call_arguments.done"]
    assert deltas == pieces
    assert [event.arguments for event in finished] == ["".join(pieces)]
    assert finished[0].to_dict()["name"] == "get_weather"


class Weather(BaseModel):
    """Tell the weather."""

    city: str


def test_parse_reads_the_arguments_of_calls(tmp_path: Path) -> None:
    tool = pydantic_function_tool(Weather)["function"]
    given: Any = {"type": "function", **tool}
    with served(tmp_path, [turn(calls=[call("Weather", city="Bonn")])]) as stage:
        response = stage.client().responses.parse(model="scripted", input="?", tools=[given])
    (called,) = [item for item in response.output if item.type == "function_call"]
    assert called.arguments == '{"city": "Bonn"}'


@BOTH_WAYS
def test_an_output_without_its_call_is_refused(tmp_path: Path, stream: bool) -> None:
    with served(tmp_path, ["Hi"]) as stage:
        first = create(stage, stream, input="Hi")
        with pytest.raises(BadRequestError) as error:
            create(stage, stream, input=[output("call_forged", "x")], previous_response_id=first.id)
    assert "call_forged" in error.value.message
    assert error.value.param == "input"


def test_a_call_that_is_not_answered_is_refused(tmp_path: Path) -> None:
    with served(tmp_path, [turn(calls=[WEATHER])]) as stage:
        first = create(stage, False, input="Rain?", tools=[CLIENT_TOOL])
        with pytest.raises(BadRequestError, match="call_w"):
            create(stage, False, input="Well?", tools=[CLIENT_TOOL], previous_response_id=first.id)


def test_answering_a_call_twice_makes_two_branches(tmp_path: Path) -> None:
    with served(tmp_path, [turn(calls=[WEATHER]), turn("It rains."), turn("It snows.")]) as stage:
        first = create(stage, False, input="Rain?", tools=[CLIENT_TOOL])
        answers = [
            create(stage, False, input=[output("call_w", word)], previous_response_id=first.id).output_text
            for word in ("rain", "snow")
        ]
    assert answers == ["It rains.", "It snows."]
    assert stage.requests[2].items[-1]["output"] == "snow"


# --- functions of the server -----------------------------------------------------------------------------------------


@BOTH_WAYS
@pytest.mark.parametrize("over_http", [False, True])
def test_a_registered_function_is_offered_and_executed(tmp_path: Path, stream: bool, over_http: bool) -> None:
    steps = [
        turn(calls=[call("add", a=1, b=2)], expect=matching(tools=["add"])),
        turn("It is 3.", expect=matching(last={"type": "function_call_output", "output": "3"})),
    ]
    with served(tmp_path, steps, over_http=over_http, functions=[add]) as stage:
        response = create(stage, stream, input="1 + 2?")
    assert response.output_text == "It is 3."
    assert [item.type for item in response.output] == ["message"]
    assert response.tools == []


def test_calls_of_a_stored_response_are_shown_to_whoever_asks_for_them_later(tmp_path: Path) -> None:
    steps = [turn(calls=[call("add", a=1, b=2)]), turn("3")]
    with served(tmp_path, steps, functions=[add]) as stage:
        response = create(stage, False, input="?")
        assert [item.type for item in response.output] == ["message"]
        path, header = f"/responses/{response.id}", {"antwort-show-calls": "1"}
        plain = stage.request("GET", path).json()["output"]
        whole = stage.request("GET", path, headers=header).json()["output"]
        streamed = stage.request("GET", path, headers=header, params={"stream": "true"}).text
    assert [item["type"] for item in plain] == ["message"]
    made, said = whole
    assert (made["type"], made["status"], made["name"]) == ("antwort:function_call", "completed", "add")
    assert (made["output"], said["type"]) == ("3", "message")
    assert "antwort:function_call" in streamed


@BOTH_WAYS
def test_calls_are_shown_to_whoever_asks(tmp_path: Path, stream: bool) -> None:
    steps = [turn(calls=[call("add", a=1, b=2)]), turn("It is 3.")]
    with served(tmp_path, steps, functions=[add]) as stage:
        given = {"model": "scripted", "input": "1 + 2?", "stream": stream}
        found = stage.request("POST", "/responses", json=given, headers={"antwort-show-calls": "true"})
        body = lint_stream(found.content).response if stream else lint_response(found.json())
        assert stage.request("GET", f"/responses/{body['id']}").json() == body
    shown_call, message = body["output"]
    assert message["type"] == "message"
    assert (shown_call["type"], shown_call["status"]) == ("antwort:function_call", "completed")
    assert (shown_call["name"], shown_call["output"], shown_call["content"]) == ("add", "3", [])


@BOTH_WAYS
@pytest.mark.parametrize("kind", ["web_search", "web_search_preview"])
def test_a_hosted_tool_has_an_item_phases_and_citations(tmp_path: Path, stream: bool, kind: str) -> None:
    provider = Search()
    steps = [turn(calls=[call("look_up", query="Bonn")]), turn(["Bonn is on ", "the Rhine [1]."])]
    tool: Any = {"type": kind, "search_context_size": "low"}
    with served(tmp_path, steps, providers=[provider]) as stage:
        response = create(stage, stream, input="Where is Bonn?", tools=[tool])
        assert stage.client().responses.retrieve(response.id) == response
    search, message = response.output
    assert search.type == "web_search_call"
    assert search.status == "completed"
    assert search.action.type == "search"
    assert message.type == "message"
    part = message.content[0]
    assert part.type == "output_text"
    (citation,) = part.annotations
    assert citation.type == "url_citation"
    assert (citation.url, citation.title) == ("https://example.org/bonn", "Bonn")
    assert provider.options[0]["search_context_size"] == "low"
    assert response.tools[0].type == kind


def test_the_phases_of_a_hosted_tool_come_in_order(tmp_path: Path) -> None:
    steps = [turn(calls=[call("look_up", query="Bonn")]), turn("There.")]
    with served(tmp_path, steps, providers=[Search()]) as stage:
        stream = stage.stream(model="scripted", input="Where?", tools=[{"type": "web_search"}])
    assert [kind.removeprefix("response.") for kind in stream.types[2:7]] == [
        "output_item.added",
        "web_search_call.in_progress",
        "web_search_call.searching",
        "web_search_call.completed",
        "output_item.done",
    ]
    assert not any("function_call" in kind for kind in stream.types)


@BOTH_WAYS
def test_a_turn_may_call_the_server_and_the_client(tmp_path: Path, stream: bool) -> None:
    steps = [
        turn("Both.", calls=[call("add", a=1, b=2, call_id="call_a"), WEATHER]),
        turn("3 and wet."),
    ]
    with served(tmp_path, steps, functions=[add]) as stage:
        first = create(stage, stream, input="?", tools=[CLIENT_TOOL])
        assert first.status == "completed"
        assert [one.call_id for one in calls_of(first)] == ["call_w"]
        second = create(
            stage, stream, input=[output("call_w", "wet")], tools=[CLIENT_TOOL], previous_response_id=first.id
        )
    assert second.output_text == "3 and wet."
    read = items_of(stage, 1)
    assert sorted(read[2:]) == [
        ("function_call", "call_a"),
        ("function_call", "call_w"),
        ("function_call_output", "call_a"),
        ("function_call_output", "call_w"),
    ]
    results = {item["call_id"]: item["output"] for item in stage.requests[1].items if "output" in item}
    assert results == {"call_a": "3", "call_w": "wet"}


def test_a_mixed_turn_is_one_message_to_the_model_server(tmp_path: Path) -> None:
    steps = [turn("Both.", calls=[WEATHER, call("add", a=1, b=2, call_id="call_a")]), turn("3 and wet.")]
    with served(tmp_path, steps, over_http=True, functions=[add]) as stage:
        first = create(stage, False, input="?", tools=[CLIENT_TOOL])
        create(stage, False, input=[output("call_w", "wet")], tools=[CLIENT_TOOL], previous_response_id=first.id)
    _, assistant, *results = stage.bodies[1]["messages"]
    assert assistant["content"] == "Both."
    assert sorted(one["id"] for one in assistant["tool_calls"]) == ["call_a", "call_w"]
    assert sorted(one["tool_call_id"] for one in results) == ["call_a", "call_w"]


def test_a_function_that_fails_is_a_result_for_the_model(tmp_path: Path) -> None:
    async def broken() -> str:
        """Break."""
        raise ValueError("no luck")

    steps = [turn(calls=[call("broken"), call("nothing"), call("add", a="x", b=1)]), turn("Sorry.")]
    with served(tmp_path, steps, functions=[broken, add]) as stage:
        response = create(stage, False, input="Go.")
    assert response.status == "completed"
    results = [item["output"] for item in stage.requests[1].items if item["type"] == "function_call_output"]
    assert len(results) == 3
    assert "There is no function 'nothing'" in results[1]


def test_the_client_s_function_hides_ours_of_the_same_name(tmp_path: Path) -> None:
    tool: Any = {"type": "function", "name": "add", "parameters": {"type": "object", "properties": {}}, "strict": False}
    with served(tmp_path, [turn(calls=[call("add")])], functions=[add]) as stage:
        response = create(stage, False, input="?", tools=[tool])
    assert [one.name for one in calls_of(response)] == ["add"]


def test_a_function_named_without_parameters_is_ours(tmp_path: Path) -> None:
    tool: Any = {"type": "function", "name": "add"}
    with served(tmp_path, [turn(calls=[call("add", a=1, b=2)]), turn("3")], functions=[add]) as stage:
        response = create(stage, False, input="?", tools=[tool])
    assert response.output_text == "3"
    assert response.tools[0].type == "function"
    assert response.tools[0].description == "Add two numbers."


def test_who_asks_for_what_a_provider_has_that_is_not_enabled_is_told_which_and_how(tmp_path: Path) -> None:
    cure = "`providers.file_search.enabled: true` in antwort.yaml, docs/configuration.md#providers"
    with served(tmp_path, [], section={"basics": {"enabled": True}}) as stage:
        tool = stage.request("POST", "/responses", json={"input": "?", "tools": [{"type": "file_search"}]})
        with pytest.raises(NotFoundError) as whole:
            stage.client().vector_stores.list()
        below = stage.request("POST", "/vector_stores/vs_1/files", json={})
        beside = stage.request("GET", "/vector_storeys")
    assert (tool.status_code, cure in tool.text) == (400, True)
    assert (whole.value.code, cure in whole.value.message) == ("provider_not_enabled", True)
    assert (below.status_code, cure in below.text) == (404, True)
    assert (beside.status_code, "enable" in beside.text) == (404, False)


def test_a_tool_nobody_serves_is_refused(tmp_path: Path) -> None:
    with served(tmp_path, [], providers=[Search()]) as stage, pytest.raises(BadRequestError) as error:
        create(stage, False, input="Draw.", tools=[{"type": "mcp", "server_label": "shop"}])
    assert (error.value.param, error.value.code) == ("tools[0].type", "unsupported_tool")
    assert "'mcp'" in error.value.message
    assert "web_search" in error.value.message


# --- choices ---------------------------------------------------------------------------------------------------------

ONE: Any = {"type": "function", "name": "get_weather"}
ALLOWED: Any = {"type": "allowed_tools", "mode": "auto", "tools": [ONE]}
MUST: Any = {"type": "allowed_tools", "mode": "required", "tools": [ONE]}
HOSTED: Any = {"type": "web_search_preview"}


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        ("auto", "auto"),
        ("none", "none"),
        ("required", "required"),
        (ONE, ONE),
        (ALLOWED, "auto"),
        (MUST, "required"),
        (HOSTED, {"type": "function", "name": "look_up"}),
    ],
    ids=["auto", "none", "required", "function", "allowed", "allowed-required", "hosted"],
)
@BOTH_WAYS
def test_every_form_of_tool_choice_is_understood_and_echoed(
    tmp_path: Path, choice: Any, sent: Any, stream: bool
) -> None:
    tools = [CLIENT_TOOL, {"type": "web_search_preview"}]
    with served(tmp_path, ["Fine."], providers=[Search()]) as stage:
        response = create(stage, stream, input="?", tools=tools, tool_choice=choice)
    echoed = response.tool_choice
    assert (echoed if isinstance(echoed, str) else echoed.to_dict()) == choice
    assert stage.requests[0].tool_choice == sent
    assert [tool["name"] for tool in stage.requests[0].tools] == ["get_weather", "look_up"]


@pytest.mark.parametrize(
    ("choice", "param"),
    [
        ({"type": "function", "name": "nothing"}, "tool_choice"),
        ({"type": "file_search"}, "tool_choice"),
        ({"type": "allowed_tools", "mode": "auto", "tools": []}, "tool_choice.tools"),
        (
            {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "x"}]},
            "tool_choice.tools[0]",
        ),
        ("perhaps", "tool_choice"),
    ],
)
def test_a_choice_that_cannot_be_is_refused(tmp_path: Path, choice: Any, param: str) -> None:
    with served(tmp_path, []) as stage, pytest.raises(BadRequestError) as error:
        create(stage, False, input="?", tools=[CLIENT_TOOL], tool_choice=choice)
    assert error.value.param == param


def test_what_was_required_is_relaxed_once_it_was_done(tmp_path: Path) -> None:
    steps = [turn(calls=[call("add", a=1, b=2)]), turn("3")]
    with served(tmp_path, steps, functions=[add]) as stage:
        response = create(stage, False, input="?", tool_choice="required")
    assert [request.tool_choice for request in stage.requests] == ["required", "auto"]
    assert response.tool_choice == "required"
    assert response.output_text == "3"


@BOTH_WAYS
def test_only_allowed_tools_are_executed(tmp_path: Path, stream: bool) -> None:
    ran: list[str] = []

    async def good() -> str:
        """Be allowed."""
        ran.append("good")
        return "done"

    async def bad() -> str:
        """Be forbidden."""
        ran.append("bad")
        return "done"

    tools: Any = [{"type": "function", "name": "good"}, {"type": "function", "name": "bad"}, CLIENT_TOOL]
    choice: Any = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "good"}]}
    steps = [turn(calls=[call("good"), call("bad"), WEATHER]), turn("Fine.")]
    with served(tmp_path, steps, functions=[good, bad]) as stage:
        response = create(stage, stream, input="?", tools=tools, tool_choice=choice)
    assert ran == ["good"]
    assert response.output_text == "Fine."
    assert calls_of(response) == []
    results = [item["output"] for item in stage.requests[1].items if item["type"] == "function_call_output"]
    assert results[0] == "done"
    assert all("may not be called" in result or "no function" in result for result in results[1:])
    # All tools stay visible, so that prompts can be cached.
    assert [tool["name"] for tool in stage.requests[1].tools] == ["good", "bad", "get_weather"]


def test_with_none_nothing_is_executed(tmp_path: Path) -> None:
    ran: list[str] = []

    async def tempting() -> str:
        """Tempt."""
        ran.append("tempting")
        return "done"

    with served(tmp_path, [turn(calls=[call("tempting")]), turn("No.")], functions=[tempting]) as stage:
        response = create(stage, False, input="?", tool_choice="none")
    assert ran == []
    assert response.output_text == "No."


# --- limits ----------------------------------------------------------------------------------------------------------


@BOTH_WAYS
def test_one_tool_call_is_enough_for_an_answer(tmp_path: Path, stream: bool) -> None:
    steps = [
        turn(calls=[call("add", a=1, b=2), call("add", a=3, b=4)]),
        turn("3, and I do not know.", expect=lambda request: not request.tools),
    ]
    with served(tmp_path, steps, functions=[add]) as stage:
        response = create(stage, stream, input="?", max_tool_calls=1)
    assert response.status == "completed"
    assert response.output_text == "3, and I do not know."
    results = [item["output"] for item in stage.requests[1].items if item["type"] == "function_call_output"]
    assert results[0] == "3"
    assert "limit" in results[1]


@BOTH_WAYS
def test_the_limit_of_turns_is_told_as_it_is(tmp_path: Path, stream: bool) -> None:
    steps = [turn(calls=[call("add", a=1, b=number)]) for number in range(2)]
    with served(tmp_path, steps, functions=[add], engine={"max_turns": 2}) as stage:
        body: JSON
        if stream:
            body = stage.stream(model="scripted", input="?").response
        else:
            body = lint_response(stage.request("POST", "/responses", json={"model": "scripted", "input": "?"}).json())
        stored = stage.client(strict=False).responses.retrieve(body["id"])
    assert (body["status"], body["incomplete_details"]) == ("incomplete", {"reason": "max_turns"})
    assert stored.status == "incomplete"
    assert stored.incomplete_details is not None
    assert stored.incomplete_details.to_dict() == {"reason": "max_turns"}


def test_output_tokens_are_limited_over_all_turns(tmp_path: Path) -> None:
    steps = [turn(calls=[call("add", a=1, b=2)], usage=(10, 30)), turn("3", usage=(20, 5))]
    with served(tmp_path, steps, functions=[add]) as stage:
        create(stage, False, input="?", max_output_tokens=100)
    assert [request.max_output_tokens for request in stage.requests] == [100, 70]


def _counting(count: Callable[[int], None]) -> Callable[..., Any]:
    running = 0

    async def work(number: int) -> int:
        """Work for a while."""
        nonlocal running
        running += 1
        count(running)
        for _ in range(50):
            await asyncio.sleep(0)
        running -= 1
        return number

    return work


def test_without_parallel_tool_calls_one_runs_after_the_other(tmp_path: Path) -> None:
    seen: list[int] = []
    steps = [turn(calls=[call("work", number=number) for number in range(4)]), turn("Done.")]
    with served(tmp_path, steps, functions=[_counting(seen.append)]) as stage:
        response = create(stage, False, input="?", parallel_tool_calls=False)
    assert seen == [1, 1, 1, 1]
    assert response.parallel_tool_calls is False
    assert stage.requests[0].parallel_tool_calls is False


def test_calls_of_one_turn_run_together_and_results_keep_their_order(tmp_path: Path) -> None:
    barrier: list[asyncio.Barrier] = []

    async def meet(number: int) -> int:
        """Wait for the others."""
        if not barrier:
            barrier.append(asyncio.Barrier(3))
        await barrier[0].wait()
        return number

    steps = [turn(calls=[call("meet", number=number) for number in range(3)]), turn("Done.")]
    with served(tmp_path, steps, functions=[meet]) as stage:
        create(stage, False, input="?")
    results = [item["output"] for item in stage.requests[1].items if item["type"] == "function_call_output"]
    assert results == ["0", "1", "2"]


def test_a_call_of_the_client_that_the_model_server_cuts_off_is_incomplete(tmp_path: Path) -> None:
    steps = [turn(calls=[call("look_up", ['{"word":', '"a"', "}"])], close_after=2)]
    tools = [{"type": "function", "name": "look_up", "parameters": {"type": "object"}}]
    with served(tmp_path, steps, over_http=True) as stage:
        body = {"model": "scripted", "input": "?", "stream": True, "tools": tools}
        response = lint_stream(stage.request("POST", "/responses", json=body).content).response
        assert stage.request("GET", f"/responses/{response['id']}").json() == response
    (item,) = response["output"]
    assert (response["status"], item["type"], item["status"]) == ("failed", "function_call", "incomplete")


# --- leaving ---------------------------------------------------------------------------------------------------------


def test_a_client_that_leaves_a_stream_cancels_the_run(tmp_path: Path) -> None:
    gate = Gate()
    with served(tmp_path, [turn(["Hel", gate, "lo"])]) as stage:
        with stage.client().responses.create(model="scripted", input="Hi", stream=True) as events:
            created = next(event.response.id for event in events if event.type == "response.created")
            next(event for event in events if event.type == "response.output_text.delta")
            gate.wait_reached()
        gate.wait_abandoned()
        response = done(stage, created)
    assert response["status"] == "cancelled"
    assert response["output"][0]["content"][0]["text"] == "Hel"
    assert stage.model.cancelled == [1]


@BOTH_WAYS
def test_leaving_stops_a_function_too(tmp_path: Path, stream: bool) -> None:
    gate = Gate()

    async def slow() -> str:
        """Take long."""
        await gate.wait()
        return "late"

    with served(tmp_path, [turn(calls=[call("slow")])], functions=[slow]) as stage:
        _leave_at(gate, stage, {"model": "scripted", "input": "Go.", "stream": stream})
        gate.wait_abandoned()
        (stored,) = stage.request("GET", "/responses").json()["data"]
        response = done(stage, stored["id"])
    assert response["status"] == "cancelled"
    assert response["output"] == []


def test_leaving_before_an_answer_cancels_the_run(tmp_path: Path) -> None:
    gate = Gate()
    with served(tmp_path, [turn("late", wait_for=gate)], over_http=True) as stage:
        _leave_at(gate, stage, {"model": "scripted", "input": "Go."})
        gate.wait_abandoned()
        while not (found := stage.request("GET", "/responses").json()["data"]):
            pass
    assert [response["status"] for response in found] == ["cancelled"]


def _leave_at(gate: Gate, stage: Served, given: JSON) -> None:
    """Ask for a response and close the connection when a gate is reached."""
    url = urlsplit(stage.server.url)
    body = json.dumps(given).encode()
    head = f"POST /v1/responses HTTP/1.1\r\nhost: {url.netloc}\r\ncontent-type: application/json\r\n"
    with socket.create_connection((url.hostname, url.port)) as client:
        client.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        gate.wait_reached()


@BOTH_WAYS
def test_a_forced_function_is_called_first_even_if_the_model_server_does_not_heed_it(
    tmp_path: Path, stream: bool
) -> None:
    steps = [
        turn(calls=[call("get_weather", city="Bonn")]),
        turn(calls=[call("add", a=1, b=2)]),
        turn(calls=[call("get_weather", city="Rome", call_id="c2")]),
    ]
    with served(tmp_path, steps, functions=[add]) as stage:
        choice: Any = {"type": "function", "name": "add"}
        response = create(stage, stream, input="Hi", tools=[CLIENT_TOOL, choice], tool_choice=choice)
    assert [one.call_id for one in calls_of(response)] == ["c2"]
    refused = stage.requests[1].items[-1]
    assert "may not be called" in refused["output"]
    assert [request.tool_choice for request in stage.requests] == [choice, choice, "auto"]


def test_tokens_are_counted_where_the_model_server_tells_none(tmp_path: Path) -> None:
    steps = [turn(calls=[call("add", a=1, b=2)], usage=None), turn("It is three, as one and two are.", usage=None)]
    with served(tmp_path, steps, over_http=True, functions=[add]) as stage:
        response = create(stage, False, input="What is one and two?")
    assert response.usage is not None
    assert response.usage.input_tokens > 10
    assert response.usage.output_tokens > 5
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens
