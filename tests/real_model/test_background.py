"""Responses that a real model makes in the background: polled, resumed, cancelled."""

from typing import Any

from openai import OpenAI
from openai.types.responses import Response
from tests.real_model.llama_server import MODEL
from tests.real_model.stage import Stage

STORY = "Tell me a very long story about a dragon, a princess and a knight."


def done(client: OpenAI, response: Response) -> Response:
    """Wait until a response is over, as clients do: by asking."""
    while response.status in {"queued", "in_progress"}:
        response = client.responses.retrieve(response.id)
    return response


def test_a_response_is_queued_and_completes(client: OpenAI) -> None:
    queued = client.responses.create(
        model=MODEL, input="Name three fruits.", temperature=0, max_output_tokens=40, background=True
    )
    assert (queued.status, queued.output) == ("queued", [])
    finished = done(client, queued)
    assert finished.status in {"completed", "incomplete"}
    assert finished.output_text
    assert finished.usage is not None
    assert finished.usage.output_tokens > 0


def test_a_stream_is_resumed_where_it_was_left(client: OpenAI) -> None:
    fields: Any = {"model": MODEL, "input": STORY, "temperature": 0, "max_output_tokens": 60}
    seen = []
    with client.responses.create(**fields, background=True, stream=True) as stream:
        for event in stream:
            seen.append(event)
            if event.type == "response.output_text.delta":
                break
    created = seen[0]
    assert created.type == "response.created"
    rest = list(client.responses.retrieve(created.response.id, stream=True, starting_after=seen[-1].sequence_number))
    whole = list(client.responses.retrieve(created.response.id, stream=True))
    assert [*seen, *rest] == whole
    last = whole[-1]
    assert last.type in {"response.completed", "response.incomplete"}
    text = "".join(event.delta for event in whole if event.type == "response.output_text.delta")
    assert text == client.responses.retrieve(created.response.id).output_text


def test_cancelling_a_response_stops_the_model(client: OpenAI, stage: Stage) -> None:
    earlier = stage.stopped()
    with client.responses.create(model=MODEL, input=STORY, background=True, stream=True) as stream:
        created = next(iter(stream))
        assert created.type == "response.created"
        assert any(event.type == "response.output_text.delta" for event in stream)
    assert client.responses.cancel(created.response.id).status == "cancelled"
    assert stage.stops_writing(earlier)
    assert client.responses.retrieve(created.response.id).status == "cancelled"


def test_a_client_that_leaves_a_stream_stops_the_model(client: OpenAI, stage: Stage) -> None:
    earlier = stage.stopped()
    with client.responses.create(model=MODEL, input=STORY, stream=True, store=False) as stream:
        assert any(event.type == "response.output_text.delta" for event in stream)
    assert stage.stops_writing(earlier)
