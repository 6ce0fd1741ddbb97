"""Functions that a model finds before it is offered them, through the shipped server, with the official SDK."""

import json
from pathlib import Path
from typing import Any

import pytest
from openai.types.responses import (
    Response,
    ResponseFunctionToolCall,
    ResponseToolSearchCall,
    ResponseToolSearchOutputItem,
)
from tests.http.sdk import Served, create, done, outputs, served

from antwort.functions import FunctionSpec
from antwort.provider import Context, Provider, function
from antwort.testing import call, turn
from antwort.types import JSON

BOTH_WAYS = pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
HOSTED: Any = {"type": "tool_search"}
CLIENT: Any = {"type": "tool_search", "execution": "client"}
SHOP = (
    ("list_open_orders", "List the open orders of a customer.", "customer_id"),
    ("refund_payment", "Give a customer his money back.", "payment_id"),
    ("forecast", "Tell the weather of the next days.", "city"),
)
QUIET = {"tool_search": {"above": None}}
ALL_BYTES = 4096


def client_function(name: str, description: str, parameter: str, **fields: Any) -> Any:
    schema = {"type": "object", "properties": {parameter: {"type": "string"}}, "required": [parameter]}
    return {"type": "function", "name": name, "description": description, "parameters": schema, **fields}


DEFERRED = [client_function(*one, defer_loading=True) for one in SHOP]
PLAIN = client_function("say", "Say something.", "text")
SPACE: Any = {"type": "namespace", "name": "crm", "description": "Customers.", "tools": DEFERRED[:2]}


def thousand(count: int = 1000, **options: Any) -> list[FunctionSpec]:
    """Return so many functions, of which one tells the weather."""

    def made(number: int) -> FunctionSpec:
        name, about = f"desk_{number}", f"Move the papers of desk {number} to the archive."
        if number == count // 2:
            name, about = "weather_forecast", "Tell the weather of the next days in a city."
        schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
        return FunctionSpec(name, about, schema, handler=lambda city: f"Sun in {city}.", **options)

    return [made(number) for number in range(count)]


def offered(stage: Served, number: int = -1) -> list[str]:
    return [tool["name"] for tool in stage.requests[number].tools or ()]


def items(response: Response) -> list[JSON]:
    output: Any = response.to_dict()["output"]
    return list(output)


def types(response: Response) -> list[str]:
    return [item["type"] for item in items(response)]


@BOTH_WAYS
def test_a_deferred_function_of_the_client_is_found_and_called(tmp_path: Path, *, stream: bool) -> None:
    steps: Any = [turn(calls=[call("tool_search", query="open orders")]), turn(calls=[call("list_open_orders")])]
    with served(tmp_path, steps) as stage:
        response = create(stage, stream, input="Which?", tools=[PLAIN, *DEFERRED, HOSTED])
    search, found, made = response.output
    assert isinstance(search, ResponseToolSearchCall)
    assert isinstance(found, ResponseToolSearchOutputItem)
    assert (search.execution, search.status, search.arguments) == ("server", "completed", {"query": "open orders"})
    assert (found.execution, found.status, found.call_id) == ("server", "completed", search.call_id)
    assert (search.id[:4], found.id[:5]) == ("tsc_", "tsco_")
    assert [tool.to_dict() for tool in found.tools] == [DEFERRED[0]]
    assert isinstance(made, ResponseFunctionToolCall)
    assert made.name == "list_open_orders"
    assert offered(stage, 0) == ["say", "tool_search"]
    assert offered(stage, 1) == ["say", "tool_search", "list_open_orders"]
    assert outputs(stage) == ["These tools can be called now: list_open_orders."]
    assert [tool.type for tool in response.tools] == ["function"] * 4 + ["tool_search"]


def test_the_events_are_those_of_items(tmp_path: Path) -> None:
    steps: Any = [turn(calls=[call("tool_search", query="refund")]), "Good."]
    with served(tmp_path, steps) as stage:
        stream = stage.stream(model="scripted", input="Which?", tools=[*DEFERRED, HOSTED])
    told = [event["type"] for event in stream.events if event.get("item", {}).get("type", "").startswith("tool_")]
    assert told == ["response.output_item.added", "response.output_item.done"] * 2
    assert not any("tool_search" in event["type"] for event in stream.events)


def test_a_namespace_is_found_function_by_function(tmp_path: Path) -> None:
    steps: Any = [turn(calls=[call("tool_search", query="money back")]), turn(calls=[call("crm__refund_payment")])]
    with served(tmp_path, steps) as stage:
        response = create(stage, False, input="Which?", tools=[SPACE, HOSTED])
    _, found, made = items(response)
    assert found["tools"] == [{**SPACE, "tools": [DEFERRED[1]]}]
    assert (made["name"], made["namespace"]) == ("refund_payment", "crm")
    assert offered(stage, 0) == ["tool_search"]
    assert "- crm (2): Customers." in stage.requests[0].tools[0]["description"]
    assert offered(stage, 1) == ["tool_search", "crm__refund_payment"]


@pytest.mark.parametrize("how", ["previous", "conversation", "stateless"])
def test_what_was_found_stays_found_where_the_history_says_so(tmp_path: Path, how: str) -> None:
    steps: Any = [turn(calls=[call("tool_search", query="forecast")]), "Found.", "Again.", "Anew."]
    with served(tmp_path, steps, functions=thousand()) as stage:
        client: Any = stage.client()
        place: Any = {"conversation": client.conversations.create().id} if how == "conversation" else {}
        first = client.responses.create(model="scripted", input="Find.", **place)
        history: Any = "Go on."
        if how == "stateless":
            place = {"store": False}
            history = [{"role": "user", "content": "Find."}, *items(first), {"role": "user", "content": "Go on."}]
        elif how == "previous":
            place = {"previous_response_id": first.id}
        client.responses.create(model="scripted", input=history, **place)
        client.responses.create(model="scripted", input="Other.")
    assert offered(stage, 0) == offered(stage, 3)  # another agent's find is its own
    assert offered(stage, 1) == offered(stage, 2) == [*offered(stage, 0), "weather_forecast"]
    assert [tool["name"] for tool in stage.requests[1].tools] == offered(stage, 1)


def test_a_thousand_registered_functions_cost_less_than_four_kilobytes(tmp_path: Path) -> None:
    steps: Any = [
        turn(calls=[call("tool_search", query="what will the weather be like")]),
        turn(calls=[call("weather_forecast", city="Ulm")]),
        "Sun.",
    ]
    with served(tmp_path, steps, functions=thousand(), over_http=True, backend={"models": ["scripted"]}) as stage:
        response = create(stage, False, input="Rain tomorrow?")
    first, second, third = stage.bodies
    assert len(json.dumps(first["tools"])) < ALL_BYTES
    assert [tool["function"]["name"] for tool in first["tools"]][-1] == "tool_search"
    assert second["tools"][: len(first["tools"])] == first["tools"]  # what the model server has read stays the same
    assert second["tools"][len(first["tools"])]["function"]["name"] == "weather_forecast"
    assert third["tools"] == second["tools"]
    assert third["messages"][-1]["content"] == "Sun in Ulm."
    assert types(response) == ["tool_search_call", "tool_search_output", "message"]
    tool = items(response)[1]["tools"][0]
    assert (tool["name"], tool["defer_loading"], tool["parameters"]["required"]) == ("weather_forecast", True, ["city"])


def test_all_are_offered_at_once_where_no_number_is_too_many(tmp_path: Path) -> None:
    with served(tmp_path, ["Hi."], functions=thousand(), engine=QUIET) as stage:
        create(stage, False, input="Hi.")
    assert len(offered(stage)) >= 1000
    assert "tool_search" not in offered(stage)


def test_a_function_can_say_that_it_is_found(tmp_path: Path) -> None:
    @function(offer="deferred")
    async def forget(what: str) -> str:
        """Forget something."""
        return what

    steps: Any = [
        turn(calls=[call("tool_search", query="forget it")]),
        turn(calls=[call("forget", what="tea")]),
        "Done.",
    ]
    with served(tmp_path, steps, functions=[forget]) as stage:
        create(stage, False, input="Forget the tea.")
        named = [{"type": "function", "name": "forget"}]
        assert outputs(stage)[-1] == "tea"
    assert "forget" not in offered(stage, 0)
    assert offered(stage, 1) == [*offered(stage, 0), "forget"]
    with served(tmp_path / "named", ["Hi."], functions=[forget]) as stage:
        create(stage, False, input="Hi.", tools=named)
    assert "forget" in offered(stage)
    assert "tool_search" not in offered(stage)


def test_a_function_that_was_not_found_can_be_called_all_the_same_and_is_offered_then(tmp_path: Path) -> None:
    steps: Any = [turn(calls=[call("weather_forecast", city="Ulm")]), "Sun."]
    with served(tmp_path, steps, functions=thousand()) as stage:
        create(stage, False, input="Rain?")
        assert outputs(stage) == ["Sun in Ulm."]
    assert offered(stage, 1) == [*offered(stage, 0), "weather_forecast"]


def test_whoever_calls_what_there_is_not_reads_how_to_find_what_there_is(tmp_path: Path) -> None:
    steps: Any = [turn(calls=[call("wether")]), turn(calls=[call("tool_search", query="xyzzy")]), "No."]
    with served(tmp_path, steps, functions=thousand()) as stage:
        create(stage, False, input="Rain?")
    first, second = outputs(stage)
    assert "tool_search finds 1,000 others" in first
    assert "desk_1" not in first
    assert second.startswith("Nothing was found for 'xyzzy'.")


@pytest.mark.parametrize("arguments", ['{"query": ["refund"]}', '"refund"', "refund", '{"q": "refund"}'])
def test_a_search_is_understood_however_it_is_written(tmp_path: Path, arguments: str) -> None:
    with served(tmp_path, [turn(calls=[call("tool_search", arguments)]), "Good."]) as stage:
        create(stage, False, input="Find.", tools=[*DEFERRED, HOSTED])
        assert outputs(stage) == ["These tools can be called now: refund_payment."]


@pytest.mark.parametrize("arguments", ["{}", '{"query": ""}', '{"query": 7}', "[]"])
def test_a_search_for_nothing_says_what_is_missing(tmp_path: Path, arguments: str) -> None:
    with served(tmp_path, [turn(calls=[call("tool_search", arguments)]), "Good."]) as stage:
        response = create(stage, False, input="Find.", tools=[*DEFERRED, HOSTED])
        assert outputs(stage) == ['Say what is to be done: {"query": "…"}.']
    assert [item["status"] for item in items(response)[:2]] == ["incomplete"] * 2
    assert items(response)[1]["tools"] == []


def test_a_client_that_searches_finds_its_own_functions(tmp_path: Path) -> None:
    steps: Any = [
        turn(calls=[call("tool_search", query="refund")]),
        turn(calls=[call("refund_payment", payment_id="1")]),
    ]
    with served(tmp_path, steps) as stage:
        client: Any = stage.client()
        asked = client.responses.create(model="scripted", input="Which?", tools=[*DEFERRED, CLIENT]).output[-1]
        assert (asked.type, asked.execution) == ("tool_search_call", "client")
        output = {"type": "tool_search_output", "call_id": asked.call_id, "execution": "client", "tools": [DEFERRED[1]]}
        history = [{"role": "user", "content": "Which?"}, asked.to_dict(), output]
        made = client.responses.create(model="scripted", input=history, tools=[*DEFERRED, CLIENT]).output[-1]
        assert made.name == "refund_payment"
    assert offered(stage, 0) == ["tool_search"]
    assert offered(stage, 1) == ["tool_search", "refund_payment"]


def test_what_a_client_finds_that_the_request_does_not_have_is_offered_though_it_says_deferred(tmp_path: Path) -> None:
    search = {"type": "tool_search_call", "call_id": "call_1", "execution": "client", "arguments": {"query": "x"}}
    output = {"type": "tool_search_output", "call_id": "call_1", "execution": "client", "tools": [DEFERRED[1], SPACE]}
    with served(tmp_path, ["Hi."]) as stage:
        client: Any = stage.client()
        client.responses.create(model="scripted", input=[search, output], tools=[CLIENT])
    assert offered(stage) == ["tool_search", "refund_payment", "crm__list_open_orders", "crm__refund_payment"]


def test_a_client_that_searches_does_not_keep_ours_from_being_found(tmp_path: Path) -> None:
    steps: Any = [turn(calls=[call("hosted_tool_search", query="weather")]), "Sun."]
    with served(tmp_path, steps, functions=thousand()) as stage:
        response = create(stage, False, input="Rain?", tools=[CLIENT])
    assert types(response) == ["tool_search_call", "tool_search_output", "message"]
    assert [item["execution"] for item in items(response)[:2]] == ["server"] * 2
    assert {"tool_search", "hosted_tool_search"} <= {*offered(stage, 0)}
    assert offered(stage, 1) == [*offered(stage, 0), "weather_forecast"]


def test_a_chosen_function_is_offered_at_once(tmp_path: Path) -> None:
    tools = [*DEFERRED, HOSTED]
    one = {"type": "function", "name": "forecast"}
    some = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "refund_payment"}]}
    search = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "tool_search"}, one]}
    with served(tmp_path, ["Hi."] * 4) as stage:
        for choice in (one, some, search, "required"):
            create(stage, False, input="Hi.", tools=tools, tool_choice=choice)
    assert [offered(stage, number) for number in range(4)] == [
        ["tool_search", "forecast"],
        ["tool_search", "refund_payment"],
        ["tool_search"],
        ["tool_search"],
    ]
    assert [sorted(request.allowed or ()) for request in stage.requests] == [
        ["forecast"],
        ["refund_payment"],
        ["forecast", "tool_search"],
        [],
    ]


def test_an_approval_of_everything_does_not_hold_up_a_search(tmp_path: Path) -> None:
    steps: Any = [
        turn(calls=[call("tool_search", query="weather")]),
        turn(calls=[call("weather_forecast", city="Ulm")]),
    ]
    agents = {"clerk": {"approval": "always"}}
    with served(tmp_path, steps, functions=thousand(), agents=agents) as stage:
        response = create(stage, False, input="Rain?", extra_body={"agent": "clerk"})
    assert types(response) == ["tool_search_call", "tool_search_output", "mcp_approval_request"]


def test_searches_of_one_turn_that_another_server_has_made_each_have_their_output(tmp_path: Path) -> None:
    searches = [{"type": "tool_search_call", "execution": "server", "arguments": {"paths": [n]}} for n in ("a", "b")]
    found = [{"type": "tool_search_output", "execution": "server", "tools": [{**PLAIN, "name": n}]} for n in ("a", "b")]
    with served(tmp_path, ["Hi."], over_http=True) as stage:
        create(stage, False, input=[*searches, *found, {"role": "user", "content": "Hi."}])
    read = [entry["content"] for entry in stage.bodies[0]["messages"] if entry["role"] == "tool"]
    assert read == [f"These tools can be called now: {name}." for name in ("a", "b")]


def test_a_sub_agent_finds_for_itself(tmp_path: Path) -> None:
    steps: Any = [
        turn(calls=[call("tool_search", query="weather")]),
        turn(calls=[call("spawn_agent", prompt="Ask about the weather.")]),
        turn(calls=[call("tool_search", query="desk_7")]),
        "Nothing.",
        "Done.",
    ]
    section = {"sub_agents": {"enabled": True}}
    with served(tmp_path, steps, functions=thousand(), section=section, engine={"run": {"max_depth": 1}}) as stage:
        create(stage, False, input="Rain?", tools=[{"type": "function", "name": "spawn_agent"}])
    child, found = offered(stage, 2), offered(stage, 3)
    assert "weather_forecast" in offered(stage, 1)
    assert "weather_forecast" not in child
    assert "tool_search" in child
    assert found == [*child, "desk_7"]
    assert "desk_7" not in offered(stage, 4)
    assert offered(stage, 4) == offered(stage, 1)


def test_a_response_in_the_background_finds_too(tmp_path: Path) -> None:
    steps: Any = [
        turn(calls=[call("tool_search", query="weather")]),
        turn(calls=[call("weather_forecast", city="Ulm")]),
        ".",
    ]
    with served(tmp_path, steps, functions=thousand()) as stage:
        begun = stage.client().responses.create(model="scripted", input="Rain?", background=True)
        body = done(stage, begun.id)
        assert outputs(stage)[-1] == "Sun in Ulm."
    assert [item["type"] for item in body["output"]] == ["tool_search_call", "tool_search_output", "message"]


def test_two_searches_load_in_their_order_and_nothing_twice(tmp_path: Path) -> None:
    steps: Any = [
        turn(calls=[call("tool_search", query="forecast"), call("tool_search", query="refund_payment")]),
        turn(calls=[call("tool_search", query="refund_payment forecast")]),
        "Good.",
    ]
    with served(tmp_path, steps) as stage:
        response = create(stage, False, input="Find.", tools=[*DEFERRED, HOSTED])
        assert sorted(offered(stage, 1)[1:]) == ["forecast", "refund_payment"]
        assert offered(stage, 2) == offered(stage, 1)
    assert types(response).count("tool_search_output") == 3


def test_what_a_model_reads_of_what_there_is_has_an_end(tmp_path: Path) -> None:
    inner = client_function("run", "Run it.", "what", defer_loading=True)
    spaces = [
        {"type": "namespace", "name": f"space_{number}", "description": "\u202e" + "long " * 500, "tools": [inner]}
        for number in range(200)
    ]
    loose = [client_function(f"function_{number}", "x" * 5000, "what", defer_loading=True) for number in range(300)]
    with served(tmp_path, ["Hi.", "Hi."]) as stage:
        create(stage, False, input="Hi.", tools=[*spaces, *loose])
        create(stage, False, input="Hi.", tools=loose)
    grouped, named = (stage.requests[number].tools[0]["description"] for number in range(2))
    assert len(grouped) < 2500
    assert "\u202e" not in grouped
    assert "further groups" in grouped
    assert "- 300 functions" in grouped
    assert "function_0, function_1," in named
    assert len(named) < 2500
    assert " more" in named


def test_equal_searches_find_the_same_and_never_more_than_is_set(tmp_path: Path) -> None:
    steps: Any = [turn(calls=[call("tool_search", query="papers of a desk")]), "Good."] * 2
    with served(tmp_path, steps, functions=thousand(), engine={"tool_search": {"results": 3}}) as stage:
        found = [create(stage, False, input="Find.").output[1] for _ in range(2)]
    first, second = ([tool["name"] for tool in item.to_dict()["tools"]] for item in found)  # type: ignore[attr-defined]
    assert first == second == ["desk_0", "desk_1", "desk_2"]


class Desks(Provider):
    """Asks about desks."""

    name = "desks"

    @function(scope="user", effect="suspend", attach=True)
    async def ask(self, ctx: Context, what: str) -> str:
        """Ask the user."""
        return what


def test_functions_of_every_agent_are_found_but_not_what_belongs_to_the_run(tmp_path: Path) -> None:
    with served(tmp_path, ["Hi."], functions=thousand(200, scope="core"), providers=[Desks()]) as stage:
        done(stage, stage.client().responses.create(model="scripted", input="Hi.", background=True).id)
    assert offered(stage) == ["ask", "tool_search"]


def test_what_was_found_is_offered_after_a_run_was_parked(tmp_path: Path) -> None:
    steps: Any = [
        turn(calls=[call("tool_search", query="weather")]),
        turn(calls=[call("weather_forecast", city="Ulm")]),
        "Sun.",
    ]
    section = {"user": {"enabled": True}}
    with served(tmp_path, steps, functions=thousand(approval="always"), section=section) as stage:
        begun = stage.client().responses.create(model="scripted", input="Rain?", background=True)
        while not (questions := stage.request("GET", "/questions").json()["data"]):
            assert stage.request("GET", f"/responses/{begun.id}").json()["status"] in {"queued", "in_progress"}
        answered = stage.request("POST", f"/questions/{questions[0]['id']}/answer", json={"approve": True})
        assert answered.status_code == 200, answered.text
        body = done(stage, begun.id)
        assert outputs(stage)[-1] == "Sun in Ulm."
    assert body["status"] == "completed"
    assert offered(stage, 2) == offered(stage, 1) == [*offered(stage, 0), "weather_forecast"]
