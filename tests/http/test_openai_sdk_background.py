"""The official SDK, strict: responses that are made in the background."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import BadRequestError, NotFoundError, OpenAI
from openai.types.responses import Response, ResponseStreamEvent
from tests.http.sdk import CLIENT_TOOL, Served, done, served

from antwort.testing import Gate, call, fail, lint_stream, turn


def begun(client: OpenAI, **fields: Any) -> Response:
    """Begin a response in the background."""
    response: Response = client.responses.create(model="scripted", background=True, **{"input": "Hi", **fields})
    return response


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def held(tmp_path: Path, gate: Gate) -> Iterator[Served]:
    """Serve a model that stops in the middle of its answer until the gate is opened."""
    with served(tmp_path, [turn(["Hel", gate, "lo"])]) as stage:
        yield stage


@pytest.mark.parametrize("over_http", [False, True])
def test_a_response_is_queued_and_polled(tmp_path: Path, gate: Gate, over_http: bool) -> None:
    with served(tmp_path, [turn("Hello", wait_for=gate)], over_http=over_http) as stage:
        client = stage.client()
        response = begun(client)
        assert (response.status, response.background, response.output) == ("queued", True, [])
        gate.wait_reached()
        assert client.responses.retrieve(response.id).status == "in_progress"
        gate.open()
        done(stage, response.id)
        finished = client.responses.retrieve(response.id)
    assert (finished.status, finished.output_text) == ("completed", "Hello")
    assert finished.usage is not None
    assert finished.created_at == response.created_at


def test_a_background_response_can_be_followed_up_listed_and_deleted(tmp_path: Path) -> None:
    with served(tmp_path, ["First.", "Second."]) as stage:
        client = stage.client()
        first = begun(client, input="One?")
        done(stage, first.id)
        client.responses.create(model="scripted", input="Two?", previous_response_id=first.id)
        (item,) = client.responses.input_items.list(first.id).data
        client.responses.delete(first.id)
        with pytest.raises(NotFoundError):
            client.responses.retrieve(first.id, stream=True)
    assert item.type == "message"
    assert len(stage.requests[1].items) == 3


def test_a_background_response_streams(tmp_path: Path) -> None:
    steps = [turn("Adding.", reasoning="Hm.", calls=[call("add", a=1, b=2)]), turn(["It is", " 3."])]
    with served(tmp_path, steps, functions=[add]) as stage:
        client = stage.client()
        events = list(client.responses.create(model="scripted", input="1 + 2?", background=True, stream=True))
        assert [event.type for event in events[:3]] == ["response.created", "response.queued", "response.in_progress"]
        assert events[-1].type == "response.completed"
        final = events[-1].response
        assert client.responses.retrieve(final.id) == final
        again = list(client.responses.retrieve(final.id, stream=True))
        assert again == events
        whole = stage.resume(final.id)
        for number in range(len(events) - 1):
            rest = stage.resume(final.id, number, earlier=whole.events)
            assert rest.events == whole.events[number + 1 :]
    assert final.output_text == "Adding.It is 3."


def test_a_stream_is_resumed_while_it_runs(held: Served, gate: Gate) -> None:
    client = held.client()
    seen: list[ResponseStreamEvent] = []
    with client.responses.create(model="scripted", input="Hi", background=True, stream=True) as stream:
        for event in stream:
            seen.append(event)
            if event.type == "response.output_text.delta":
                break
    gate.wait_reached()  # the reader has left; the run goes on
    created = seen[0]
    assert created.type == "response.created"
    resumed = client.responses.retrieve(created.response.id, stream=True, starting_after=seen[2].sequence_number)
    first = next(iter(resumed))
    assert first == seen[3]
    gate.open()
    rest = [first, *resumed]
    assert seen[3:] == rest[: len(seen) - 3]
    assert rest[-1].type == "response.completed"
    assert rest[-1].response.output_text == "Hello"
    assert list(client.responses.retrieve(created.response.id, stream=True)) == [*seen[:3], *rest]


def test_two_readers_see_the_same_events(held: Served, gate: Gate) -> None:
    client = held.client()
    response = begun(client)
    streams = [client.responses.retrieve(response.id, stream=True) for _ in range(2)]
    firsts = [next(iter(stream)) for stream in streams]
    gate.wait_reached()
    gate.open()
    one, two = ([first, *stream] for first, stream in zip(firsts, streams, strict=True))
    assert one == two
    assert one[-1].type == "response.completed"


def test_resuming_after_the_end_gives_nothing_more(tmp_path: Path) -> None:
    with served(tmp_path, ["Hi"]) as stage:
        response = begun(stage.client())
        done(stage, response.id)
        last = stage.resume(response.id).events[-1]["sequence_number"]
        found = stage.request(
            "GET", f"/responses/{response.id}", params={"stream": "true", "starting_after": str(last)}
        )
    assert found.content == b"data: [DONE]\n\n"


def test_a_reader_that_leaves_does_not_stop_the_run(held: Served, gate: Gate) -> None:
    client = held.client()
    with client.responses.create(model="scripted", input="Hi", background=True, stream=True) as stream:
        created = next(event.response.id for event in stream if event.type == "response.created")
    gate.wait_reached()
    gate.open()
    assert done(held, created)["status"] == "completed"


# --- cancelling ------------------------------------------------------------------------------------------------------


def test_cancel_stops_the_run_for_good(held: Served, gate: Gate) -> None:
    client = held.client()
    response = begun(client)
    gate.wait_reached()
    cancelled = client.responses.cancel(response.id)
    assert cancelled.status == "cancelled"
    gate.wait_abandoned()
    assert client.responses.cancel(response.id).status == "cancelled"
    assert client.responses.retrieve(response.id).status == "cancelled"
    assert held.resume(response.id, cancelled=True).types[:3] == [
        "response.created",
        "response.queued",
        "response.in_progress",
    ]


def test_items_that_were_finished_before_are_kept(tmp_path: Path, gate: Gate) -> None:
    steps = [turn("Adding.", calls=[call("add", a=1, b=2)]), turn("never", wait_for=gate)]
    with served(tmp_path, steps, functions=[add]) as stage:
        client = stage.client()
        response = begun(client)
        gate.wait_reached()
        assert client.responses.cancel(response.id).output_text == "Adding."
        stage.resume(response.id, cancelled=True)


def test_a_reader_of_a_cancelled_run_comes_to_an_end(held: Served, gate: Gate) -> None:
    client = held.client()
    response = begun(client)
    gate.wait_reached()
    with httpx.stream("GET", f"{held.server.url}/v1/responses/{response.id}?stream=true", timeout=60) as found:
        chunks = found.iter_raw()
        first = next(chunks)
        client.responses.cancel(response.id)
        stream = lint_stream([first, *chunks], cancelled=True)
    assert stream.text == ""


def test_a_function_is_cancelled_too(tmp_path: Path, gate: Gate) -> None:
    async def slow() -> str:
        """Take long."""
        await gate.wait()
        return "late"

    with served(tmp_path, [turn(calls=[call("slow")])], functions=[slow]) as stage:
        client = stage.client()
        response = begun(client)
        gate.wait_reached()
        assert client.responses.cancel(response.id).status == "cancelled"
        gate.wait_abandoned()


def test_what_is_over_stays_as_it_is(tmp_path: Path) -> None:
    with served(tmp_path, ["Hi"]) as stage:
        client = stage.client()
        response = begun(client)
        done(stage, response.id)
        assert client.responses.cancel(response.id).status == "completed"


def test_a_foreground_response_cannot_be_cancelled(tmp_path: Path) -> None:
    with served(tmp_path, ["Hi"]) as stage:
        client = stage.client()
        response = client.responses.create(model="scripted", input="Hi")
        with pytest.raises(BadRequestError) as error:
            client.responses.cancel(response.id)
    assert "Cannot cancel a synchronous response." in error.value.message


# --- ends ------------------------------------------------------------------------------------------------------------


def test_a_run_ends_with_calls_for_the_client(tmp_path: Path) -> None:
    with served(tmp_path, [turn(calls=[call("get_weather", city="Bonn")]), turn("It rains.")]) as stage:
        client = stage.client()
        response = begun(client, tools=[CLIENT_TOOL])
        done(stage, response.id)
        (called,) = client.responses.retrieve(response.id).output
        assert called.type == "function_call"
        result: Any = {"type": "function_call_output", "call_id": called.call_id, "output": "wet"}
        second = begun(client, input=[result], previous_response_id=response.id)
        assert done(stage, second.id)["output"][0]["content"][0]["text"] == "It rains."


def test_a_run_that_fails_says_why(tmp_path: Path) -> None:
    steps, patience = [turn(error=fail(503, "Out of memory."))], {"outage_patience": 0}
    with served(tmp_path, steps, over_http=True, engine=patience) as stage:
        client = stage.client()
        response = begun(client)
        done(stage, response.id)
        failed = client.responses.retrieve(response.id)
        stream = stage.resume(response.id)
    assert failed.status == "failed"
    assert failed.error is not None
    assert failed.error.code == "server_error"
    assert "'main'" in failed.error.message
    assert "Out of memory." in failed.error.message
    assert stream.types[-2:] == ["error", "response.failed"]


def test_a_response_that_is_not_to_be_stored_can_be_fetched_streamed_and_cancelled(held: Served, gate: Gate) -> None:
    client = held.client()
    response = begun(client, store=False)
    assert (response.status, response.to_dict()["store"]) == ("queued", False)
    gate.wait_reached()
    assert client.responses.retrieve(response.id).status == "in_progress"
    gate.open()
    finished = done(held, response.id)
    assert (finished["status"], finished["store"]) == ("completed", False)
    stream = held.resume(response.id)
    assert stream.types[-1] == "response.completed"
    assert held.resume(response.id, after=2).response == finished
    assert client.responses.cancel(response.id).status == "completed"
    assert [item.type for item in client.responses.input_items.list(response.id).data] == ["message"]
    client.responses.delete(response.id)
    with pytest.raises(NotFoundError):
        client.responses.retrieve(response.id)


def test_a_response_that_is_not_to_be_stored_is_not_listed_and_nothing_comes_after_it(tmp_path: Path) -> None:
    with served(tmp_path, ["First.", "Second."]) as stage:
        client = stage.client()
        unstored = done(stage, begun(client, store=False).id)
        stored = client.responses.create(model="scripted", input="Hi")
        listed = stage.request("GET", "/responses").json()["data"]
        with pytest.raises(BadRequestError) as continued:
            client.responses.create(model="scripted", input="And?", previous_response_id=unstored["id"])
        reference: Any = {"type": "item_reference", "id": unstored["output"][0]["id"]}
        with pytest.raises(NotFoundError):
            client.responses.create(model="scripted", input=[reference])
    assert [response["id"] for response in listed] == [stored.id]
    assert (continued.value.param, continued.value.code) == ("previous_response_id", "previous_response_not_found")


@pytest.mark.parametrize("after", ["x", "-1", "1.5"])
def test_a_number_to_start_after_must_be_one(tmp_path: Path, after: str) -> None:
    with served(tmp_path, ["Hi"]) as stage:
        response = begun(stage.client())
        done(stage, response.id)
        found = stage.request("GET", f"/responses/{response.id}", params={"stream": "true", "starting_after": after})
    assert found.status_code == 400
    assert found.json()["error"]["param"] == "starting_after"
