"""The official SDK, strict: creating, streaming and fetching responses."""

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import NotFoundError
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import BaseModel
from tests.http.sdk import CLIENT_TOOL, Served, create, served
from tests.support.postgres import on_one_store

from antwort.testing import Gate, call, lint_response, matching, turn
from antwort.types import JSON
from antwort.wire.responses import InputTokensDetails, OutputTokensDetails, Usage

HELLO = turn(["Hel", "lo", "!"], usage=(12, 3))
ON_ONE_STORE = on_one_store()


class Sum(BaseModel):
    """A structured answer."""

    steps: list[str]
    total: int


@pytest.fixture(params=["in process", "over http"])
def hello(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Served]:
    """Serve a model that says one thing."""
    with served(tmp_path, [HELLO], over_http=request.param == "over http") as stage:
        yield stage


@pytest.fixture
def two_turns(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path, ["First.", "Second."]) as stage:
        yield stage


def deltas(events: list[ResponseStreamEvent]) -> str:
    return "".join(event.delta for event in events if event.type == "response.output_text.delta")


# --- creating --------------------------------------------------------------------------------------------------------


def test_create_answers_a_string(hello: Served) -> None:
    response = hello.client().responses.create(model="scripted", input="Say hello.")
    assert response.status == "completed"
    assert response.output_text == "Hello!"
    assert response.model == "scripted"
    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.output_tokens, response.usage.total_tokens) == (12, 3, 15)
    assert [item.get("role") for item in hello.requests[0].items] == ["user"]
    lint_response(hello.request("GET", f"/responses/{response.id}").json())


async def test_the_asynchronous_client_creates_and_streams(tmp_path: Path) -> None:
    with served(tmp_path, [HELLO, HELLO]) as stage:
        async with stage.async_client() as client:
            response = await client.responses.create(model="scripted", input="Say hello.")
            stream = await client.responses.create(model="scripted", input="Say hello.", stream=True)
            events = [event async for event in stream]
    assert response.output_text == deltas(events) == "Hello!"


async def test_the_asynchronous_client_does_all_the_rest(tmp_path: Path) -> None:
    gate = Gate()
    steps = [turn(Sum(steps=[], total=3).model_dump_json()), turn(calls=[call("get_weather", city="Bonn")])]
    steps += [turn("It rains."), turn(["Hel", gate, "lo"])]
    with served(tmp_path, steps) as stage:
        async with stage.async_client() as client:
            parsed = await client.responses.parse(model="scripted", input="1 + 2?", text_format=Sum)
            assert parsed.output_parsed == Sum(steps=[], total=3)
            first = await client.responses.create(model="scripted", input="Rain?", tools=[CLIENT_TOOL])
            (called,) = first.output
            assert called.type == "function_call"
            result: Any = {"type": "function_call_output", "call_id": called.call_id, "output": "wet"}
            second = await client.responses.create(
                model="scripted", input=[result], previous_response_id=first.id, tools=[CLIENT_TOOL]
            )
            assert await client.responses.retrieve(second.id) == second
            items = [item.type async for item in client.responses.input_items.list(second.id)]
            assert items == ["function_call_output"]
            await client.responses.delete(second.id)
            with pytest.raises(NotFoundError):
                await client.responses.retrieve(second.id)
            run = await client.responses.create(model="scripted", input="Hi", background=True)
            await gate.reached()
            assert (await client.responses.cancel(run.id)).status == "cancelled"
            await gate.abandoned()


def test_create_streams(hello: Served) -> None:
    events = list(hello.client().responses.create(model="scripted", input="Say hello.", stream=True))
    assert [event.type.removeprefix("response.") for event in events] == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert deltas(events) == "Hello!"
    assert events[-1].type == "response.completed"
    stored = hello.client().responses.retrieve(events[-1].response.id)
    assert stored == events[-1].response


def test_a_stream_without_the_sdk_keeps_every_rule(hello: Served) -> None:
    stream = hello.stream(model="scripted", input="Say hello.")
    assert stream.text == "Hello!"
    assert stream.response["usage"]["total_tokens"] == 15


def test_the_stream_helper_gives_the_final_response(hello: Served) -> None:
    with hello.client().responses.stream(model="scripted", input="Say hello.") as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert kinds.count("response.output_text.delta") == 3
    assert final.output_text == "Hello!"
    assert hello.client().responses.retrieve(final.id).output_text == "Hello!"


async def test_the_asynchronous_stream_helper_does_too(tmp_path: Path) -> None:
    with served(tmp_path, [HELLO]) as stage:
        async with stage.async_client() as client, client.responses.stream(model="scripted", input="Hi") as stream:
            kinds = [event.type async for event in stream]
            final = await stream.get_final_response()
    assert kinds[-1] == "response.completed"
    assert final.output_text == "Hello!"


@pytest.mark.parametrize("over_http", [False, True])
def test_parse_returns_a_model(tmp_path: Path, over_http: bool) -> None:
    answer = Sum(steps=["1 + 2"], total=3)
    with served(tmp_path, [turn(answer.model_dump_json())], over_http=over_http) as stage:
        response = stage.client().responses.parse(model="scripted", input="1 + 2?", text_format=Sum)
    assert response.output_parsed == answer
    asked = stage.requests[0].text_format
    assert asked is not None
    if over_http:
        form = stage.bodies[0]["response_format"]
        assert (form["type"], form["json_schema"]["name"]) == ("json_schema", "Sum")
        assert form["json_schema"]["strict"] is True
        assert form["json_schema"]["schema"]["required"] == ["steps", "total"]
    else:
        assert (asked["type"], asked["name"], asked["strict"]) == ("json_schema", "Sum", True)


def test_the_stream_helper_parses_too(tmp_path: Path) -> None:
    answer = Sum(steps=[], total=3)
    with (
        served(tmp_path, [turn(answer.model_dump_json())]) as stage,
        stage.client().responses.stream(model="scripted", input="1 + 2?", text_format=Sum) as stream,
    ):
        assert stream.get_final_response().output_parsed == answer


# --- keeping ---------------------------------------------------------------------------------------------------------


def test_retrieve_gives_what_create_gave(hello: Served) -> None:
    client = hello.client()
    created = client.responses.create(model="scripted", input="Hi", metadata={"topic": "greeting"})
    assert client.responses.retrieve(created.id) == created
    assert created.metadata == {"topic": "greeting"}


def test_a_foreground_response_can_be_streamed_afterwards(hello: Served) -> None:
    client = hello.client()
    created = client.responses.create(model="scripted", input="Hi")
    events = list(client.responses.retrieve(created.id, stream=True))
    assert deltas(events) == "Hello!"
    assert events[-1].type == "response.completed"
    assert events[-1].response == created
    later = list(client.responses.retrieve(created.id, stream=True, starting_after=3))
    assert later == events[4:]
    hello.resume(created.id)
    assert hello.resume(created.id, 3).events[0]["sequence_number"] == 4


def test_delete_removes_a_response(hello: Served) -> None:
    client = hello.client()
    created = client.responses.create(model="scripted", input="Hi")
    client.responses.delete(created.id)
    for again in (client.responses.retrieve, client.responses.delete):
        with pytest.raises(NotFoundError) as error:
            again(created.id)
        assert created.id in error.value.message
    assert hello.request("DELETE", f"/responses/{created.id}").status_code == 404


def test_what_is_not_to_be_stored_is_not(hello: Served) -> None:
    client = hello.client()
    created = client.responses.create(model="scripted", input="Hi", store=False)
    assert created.output_text == "Hello!"
    with pytest.raises(NotFoundError):
        client.responses.retrieve(created.id)


def test_input_items_are_listed_in_pages(hello: Served) -> None:
    client = hello.client()
    given: Any = [{"role": "user", "content": f"Line {number}."} for number in range(5)]
    created = client.responses.create(model="scripted", input=given)
    ascending = client.responses.input_items.list(created.id, order="asc", limit=2)
    first = ascending.data
    assert ascending.has_more
    assert [_text(item) for item in first] == ["Line 0.", "Line 1."]
    rest = client.responses.input_items.list(created.id, order="asc", after=str(first[-1].id))
    assert [_text(item) for item in rest.data] == ["Line 2.", "Line 3.", "Line 4."]
    assert not rest.has_more
    # The SDK pages by itself, the last item first.
    assert [_text(item) for item in client.responses.input_items.list(created.id, limit=2)] == [
        f"Line {number}." for number in (4, 3, 2, 1, 0)
    ]


def _text(item: Any) -> str:
    (part,) = item.content
    assert part.type == "input_text"
    return str(part.text)


def test_responses_are_listed_with_cursors(tmp_path: Path) -> None:
    with served(tmp_path, [str(number) for number in range(5)]) as stage:
        client = stage.client()
        ids = [client.responses.create(model="scripted", input="Hi").id for _ in range(5)]
        newest = stage.request("GET", "/responses", params={"limit": 2}).json()
        older = stage.request("GET", "/responses", params={"limit": 2, "after": newest["last_id"]}).json()
        last = stage.request("GET", "/responses", params={"limit": 2, "after": older["last_id"]}).json()
        back = stage.request("GET", "/responses", params={"limit": 2, "before": older["first_id"]}).json()
        oldest = stage.request("GET", "/responses", params={"order": "asc", "limit": 1}).json()
        unknown = stage.request("GET", "/responses", params={"after": "resp_nowhere"})
    assert [one["id"] for one in newest["data"]] == [ids[4], ids[3]]
    assert [one["id"] for one in older["data"]] == [ids[2], ids[1]]
    assert [one["id"] for one in last["data"]] == [ids[0]]
    assert [one["id"] for one in back["data"]] == [ids[4], ids[3]]
    assert [one["id"] for one in oldest["data"]] == [ids[0]]
    assert (newest["has_more"], older["has_more"], last["has_more"]) == (True, True, False)
    assert newest["object"] == "list"
    assert all(Response.model_validate(lint_response(one), strict=True) for one in newest["data"])
    assert unknown.status_code == 400
    assert unknown.json()["error"]["param"] == "after"


# --- what came before ------------------------------------------------------------------------------------------------


def test_a_follow_up_knows_what_was_said_but_not_the_instructions(two_turns: Served) -> None:
    client = two_turns.client()
    first = client.responses.create(model="scripted", input="One?", instructions="Be brief.")
    second = client.responses.create(model="scripted", input="Two?", previous_response_id=first.id)
    assert first.instructions == "Be brief."
    assert second.instructions is None
    assert second.previous_response_id == first.id
    asked = two_turns.requests[1]
    assert asked.instructions is None
    assert [(item["role"], item["content"][0]["text"]) for item in asked.items] == [
        ("user", "One?"),
        ("assistant", "First."),
        ("user", "Two?"),
    ]


def test_a_streamed_response_can_be_followed_up(two_turns: Served) -> None:
    client = two_turns.client()
    with client.responses.stream(model="scripted", input="One?") as stream:
        first = stream.get_final_response()
    second = client.responses.create(model="scripted", input="Two?", previous_response_id=first.id)
    assert second.output_text == "Second."
    assert len(two_turns.requests[1].items) == 3


def test_the_output_of_one_response_is_input_of_the_next(two_turns: Served) -> None:
    client = two_turns.client()
    first = client.responses.create(model="scripted", input="One?", store=False)
    given: Any = [{"role": "user", "content": "One?"}, *first.output, {"role": "user", "content": "Two?"}]
    client.responses.create(model="scripted", input=given, store=False)
    assert [item["role"] for item in two_turns.requests[1].items] == ["user", "assistant", "user"]


def test_an_item_can_be_referred_to(two_turns: Served) -> None:
    client = two_turns.client()
    first = client.responses.create(model="scripted", input="One?")
    reference = {"type": "item_reference", "id": first.output[0].id}
    given: Any = [reference, {"role": "user", "content": "Two?"}]
    client.responses.create(model="scripted", input=given)
    assert two_turns.requests[1].items[0]["content"][0]["text"] == "First."


# --- what goes in ----------------------------------------------------------------------------------------------------


@ON_ONE_STORE
def test_every_role_reaches_the_model(hello: Served) -> None:
    given: Any = [
        {"role": "system", "content": "Rule one."},
        {"role": "developer", "content": [{"type": "input_text", "text": "Rule two."}]},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello?"},
        {"type": "message", "role": "user", "content": "Again."},
    ]
    hello.client().responses.create(model="scripted", input=given, instructions="Rule zero.")
    said = str(hello.bodies[0]["messages"] if hasattr(hello.model, "url") else hello.requests[0])
    assert all(word in said for word in ("Rule zero.", "Rule one.", "Rule two.", "Hi", "Hello?", "Again."))


@ON_ONE_STORE
def test_an_image_reaches_the_model_server(tmp_path: Path) -> None:
    picture = "data:image/png;base64," + base64.b64encode(b"\x89PNG").decode()
    content = [{"type": "input_text", "text": "What is it?"}, {"type": "input_image", "image_url": picture}]
    given: Any = [{"role": "user", "content": content}]
    given[0]["content"][1]["detail"] = "low"
    with served(tmp_path, ["A dot."], over_http=True) as stage:
        client = stage.client()
        response = client.responses.create(model="scripted", input=given)
        kept = client.responses.input_items.list(response.id, include=["message.input_image.image_url"]).data
    assert stage.bodies[0]["messages"][-1]["content"] == [
        {"type": "text", "text": "What is it?"},
        {"type": "image_url", "image_url": {"url": picture, "detail": "low"}},
    ]
    assert kept[0].type == "message"
    assert kept[0].content[1].type == "input_image"
    assert kept[0].content[1].image_url == picture


@ON_ONE_STORE
def test_an_image_without_detail_comes_back_with_one_as_strict_clients_want_it(tmp_path: Path) -> None:
    picture = "data:image/png;base64," + base64.b64encode(b"\x89PNG").decode()
    given: Any = [{"role": "user", "content": [{"type": "input_image", "image_url": picture}]}]
    with served(tmp_path, ["A dot."]) as stage:
        client = stage.client()
        response = client.responses.create(model="scripted", input=given)
        kept = client.responses.input_items.list(response.id).data[0]
    assert kept.type == "message"
    assert kept.content[0].type == "input_image"
    assert kept.content[0].detail == "auto"


@ON_ONE_STORE
def test_a_text_file_reaches_the_model_server_as_text(tmp_path: Path) -> None:
    data = "data:text/plain;base64," + base64.b64encode("Zeile eins: äöü".encode()).decode()
    content = [{"type": "input_file", "filename": "notes.txt", "file_data": data}]
    given: Any = [{"role": "user", "content": content}]
    with served(tmp_path, ["Read."], over_http=True) as stage:
        stage.client().responses.create(model="scripted", input=given)
    sent = str(stage.bodies[0]["messages"][-1]["content"])
    assert "notes.txt" in sent
    assert "Zeile eins: äöü" in sent


@ON_ONE_STORE
@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "Application/JSON;charset=UTF-8"])
def test_a_content_type_with_a_charset_is_fine(hello: Served, kind: str) -> None:
    body = '{"model": "scripted", "input": "Grüß dich"}'.encode()
    found = hello.request("POST", "/responses", content=body, headers={"content-type": kind})
    assert found.status_code == 200
    assert lint_response(found.json())["status"] == "completed"


# --- what comes out --------------------------------------------------------------------------------------------------


@ON_ONE_STORE
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("over_http", [False, True])
def test_thoughts_travel_in_both_directions(tmp_path: Path, stream: bool, over_http: bool) -> None:
    steps = [turn(reasoning=["Ask ", "outside."], calls=[call("get_weather", city="Bonn")]), turn("It rains.")]
    with served(tmp_path, steps, over_http=over_http) as stage:
        question: Any = {"role": "user", "content": "Rain in Bonn?"}
        first = create(stage, stream, input=[question], tools=[CLIENT_TOOL], reasoning={"effort": "low"})
        thought, called = first.output
        assert thought.type == "reasoning"
        assert thought.content is not None
        assert [part.text for part in thought.content] == ["Ask outside."]
        assert called.type == "function_call"
        assert first.reasoning is not None
        assert first.reasoning.effort == "low"
        result = {"type": "function_call_output", "call_id": called.call_id, "output": "wet"}
        create(stage, stream, input=[question, thought, called, result], tools=[CLIENT_TOOL])
    assert stage.requests[0].effort == "low"
    if over_http:
        assert stage.bodies[1]["messages"][1]["reasoning_content"] == "Ask outside."
    else:
        assert stage.requests[1].items[1]["content"] == [{"type": "reasoning_text", "text": "Ask outside."}]


@ON_ONE_STORE
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("over_http", [False, True])
def test_log_probabilities_come_when_asked_for(tmp_path: Path, stream: bool, over_http: bool) -> None:
    steps = [turn(["Yes", "."], logprobs=True), turn(["Yes", "."], logprobs=True)]
    with served(tmp_path, steps, over_http=over_http) as stage:
        asked = create(stage, stream, input="Well?", include=["message.output_text.logprobs"], top_logprobs=2)
        not_asked = create(stage, stream, input="Well?")
    assert asked.top_logprobs == 2
    assert [entry.token for entry in _logprobs(asked)] == ["Yes", "."]
    assert [entry.logprob for entry in _logprobs(asked)] == [-0.25, -0.25]
    assert _logprobs(not_asked) == []
    assert stage.requests[0].top_logprobs == 2


def _logprobs(response: Response) -> list[Any]:
    message = response.output[0]
    assert message.type == "message"
    part = message.content[0]
    assert part.type == "output_text"
    return list(part.logprobs or [])


@ON_ONE_STORE
@pytest.mark.parametrize("stream", [False, True])
def test_a_refusal_is_a_part_of_its_own(tmp_path: Path, stream: bool) -> None:
    with served(tmp_path, [turn(refusal=["I would ", "rather not."])]) as stage:
        response = create(stage, stream, input="Do it.")
    message = response.output[0]
    assert message.type == "message"
    assert message.content[0].type == "refusal"
    assert message.content[0].refusal == "I would rather not."
    assert response.output_text == ""


@ON_ONE_STORE
def test_usage_has_its_details_and_is_summed_over_turns(tmp_path: Path) -> None:
    def usage(given: int, cached: int, written: int, thought: int) -> Usage:
        return Usage(
            input_tokens=given,
            input_tokens_details=InputTokensDetails(cached_tokens=cached),
            output_tokens=written,
            output_tokens_details=OutputTokensDetails(reasoning_tokens=thought),
            total_tokens=given + written,
        )

    async def ping() -> str:
        """Answer."""
        return "pong"

    steps = [turn(calls=[call("ping")], usage=usage(10, 4, 3, 1)), turn("pong", usage=usage(20, 8, 5, 2))]
    with served(tmp_path, steps, functions=[ping]) as stage:
        found = stage.client().responses.create(model="scripted", input="Ping!").usage
    assert found is not None
    assert (found.input_tokens, found.output_tokens, found.total_tokens) == (30, 8, 38)
    assert (found.input_tokens_details.cached_tokens, found.output_tokens_details.reasoning_tokens) == (12, 3)


@ON_ONE_STORE
def test_a_model_server_that_reports_no_usage_is_fine(tmp_path: Path) -> None:
    with served(tmp_path, [turn("Hi", usage=None)], over_http=True) as stage:
        response = stage.client().responses.create(model="scripted", input="Hi")
    assert response.usage is not None
    assert response.usage.input_tokens > 0  # it is estimated
    assert 0 < response.usage.output_tokens < 20


@ON_ONE_STORE
@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_is_too_long_is_incomplete(tmp_path: Path, stream: bool) -> None:
    with served(tmp_path, [turn(["Once upon", " a time"], finish="length")]) as stage:
        response = create(stage, stream, input="Tell.", max_output_tokens=16)
    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"
    assert response.max_output_tokens == 16
    assert stage.requests[0].max_output_tokens == 16
    message = response.output[0]
    assert message.type == "message"
    assert message.status == "incomplete"
    assert response.output_text == "Once upon a time"


@ON_ONE_STORE
def test_filtered_content_is_incomplete_for_that_reason(tmp_path: Path) -> None:
    with served(tmp_path, [turn("Bad", finish="content_filter")], over_http=True) as stage:
        response = stage.client().responses.create(model="scripted", input="Tell.")
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "content_filter"


@ON_ONE_STORE
@pytest.mark.parametrize("stream", [False, True])
def test_what_a_request_says_is_echoed(tmp_path: Path, stream: bool) -> None:
    with served(tmp_path, ["Hi"]) as stage:
        response = create(
            stage,
            stream,
            input="Hi",
            instructions="Be brief.",
            truncation="auto",
            service_tier="flex",
            temperature=0.25,
            top_p=0.5,
            metadata={"a": "b"},
            parallel_tool_calls=False,
            max_tool_calls=7,
            max_output_tokens=99,
            prompt_cache_key="key",
            safety_identifier="user-1",
            text={"verbosity": "low"},
        )
        body: JSON = stage.request("GET", f"/responses/{response.id}").json()
    assert lint_response(body)["truncation"] == "auto"
    assert response.service_tier == "flex"
    assert (response.temperature, response.top_p) == (0.25, 0.5)
    assert (response.metadata, response.parallel_tool_calls) == ({"a": "b"}, False)
    assert (response.max_tool_calls, response.max_output_tokens) == (7, 99)
    assert (response.prompt_cache_key, response.safety_identifier) == ("key", "user-1")
    assert response.text is not None
    assert response.text.verbosity == "low"
    assert stage.requests[0].service_tier == "flex"


@ON_ONE_STORE
def test_what_a_request_leaves_out_is_filled_in(hello: Served) -> None:
    body = hello.request("POST", "/responses", json={"input": "Hi"}).json()
    lint_response(body)
    assert body["service_tier"] == "default"
    assert body["truncation"] == "disabled"
    assert (body["temperature"], body["top_p"], body["top_logprobs"]) == (1.0, 1.0, 0)
    assert (body["tools"], body["tool_choice"], body["parallel_tool_calls"]) == ([], "auto", True)
    assert (body["store"], body["background"], body["metadata"]) == (True, False, {})
    assert body["model"] == "scripted"


# --- agents ----------------------------------------------------------------------------------------------------------


@ON_ONE_STORE
def test_an_agent_is_chosen_by_name_or_as_a_model(tmp_path: Path) -> None:
    poet = {"instructions": "Rhyme.", "model": "verse-1", "max_output_tokens": 50, "temperature": 0.5}
    with served(tmp_path, ["Moon.", "June."], agents={"poet": poet}) as stage:
        client = stage.client()
        named = client.responses.create(input="Go.", instructions="In English.", extra_body={"agent": "poet"})
        aliased = client.responses.create(model="poet", input="Go.")
    assert (named.output_text, aliased.output_text) == ("Moon.", "June.")
    first, second = stage.requests
    assert first.instructions == "Rhyme.\n\nIn English."
    assert second.instructions == "Rhyme."
    assert [request.model for request in stage.requests] == ["verse-1", "verse-1"]
    assert [request.temperature for request in stage.requests] == [0.5, 0.5]
    assert [request.max_output_tokens for request in stage.requests] == [50, 50]
    assert named.instructions == "In English."
    assert named.model_extra == aliased.model_extra
    assert (named.model_extra or {})["agent"] == "poet"
    assert named.model == aliased.model == "verse-1"


@ON_ONE_STORE
def test_an_agent_without_a_model_of_its_own_uses_the_usual_one(tmp_path: Path) -> None:
    with served(tmp_path, ["Moon.", "June."], agents={"poet": {"instructions": "Rhyme."}}) as stage:
        client = stage.client()
        client.responses.create(model="poet", input="Go.")
        client.responses.create(model="other", input="Go.", extra_body={"agent": "poet"})
    assert [request.model for request in stage.requests] == ["scripted", "other"]


@ON_ONE_STORE
def test_an_agent_has_its_own_functions_and_limits(tmp_path: Path) -> None:
    async def ping() -> str:
        """Answer."""
        return "pong"

    async def secret() -> str:
        """Tell."""
        return "hush"

    agents = {"pinger": {"functions": ["ping"], "max_tool_calls": 1}}
    steps = [
        turn(calls=[call("ping")], expect=matching(tools=["ping"], without_tools=["secret"])),
        turn(calls=[call("ping", again=True)]),
        turn("pong", expect=lambda request: not request.tools),
    ]
    with served(tmp_path, steps, functions=[ping, secret], agents=agents) as stage:
        response = stage.client().responses.create(model="pinger", input="Ping!")
    assert response.output_text == "pong"


@ON_ONE_STORE
def test_models_are_listed_for_the_sdk(tmp_path: Path) -> None:
    with served(tmp_path, [], over_http=True, backend={"aliases": {"fast": "scripted"}}) as stage:
        client = stage.client()
        assert [model.id for model in client.models.list()] == ["scripted", "fast"]
        assert client.models.retrieve("fast").id == "fast"
        with pytest.raises(NotFoundError):
            client.models.retrieve("nothing")
