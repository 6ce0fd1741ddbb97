"""R is worth comparing with only if it does the whole translation."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from benchmarks.gateway import Bench, Target, Workload

OPENING = [
    "response.created",
    "response.in_progress",
    "response.output_item.added",
    "response.content_part.added",
]
CLOSING = [
    "response.output_text.done",
    "response.content_part.done",
    "response.output_item.done",
    "response.completed",
]


@pytest.fixture
def url(bench: Bench, reference: Target) -> Iterator[str]:
    with bench.server(reference) as server:
        assert server is not None
        yield f"http://127.0.0.1:{server.port}/v1/responses"


def events(text: str) -> list[dict[str, Any]]:
    """Return the events of a stream that ends as it should, each of which names its type twice."""
    *frames, done, rest = text.split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    found = []
    for frame in frames:
        name, data = frame.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        found.append(event)
    return found


@pytest.mark.parametrize("model", ["burst-30", "paced-30"])
def test_a_stream_has_its_events_in_order(url: str, model: str) -> None:
    found = events(httpx.post(url, json={"model": model, "input": "Hello", "stream": True}).text)
    assert [event["type"] for event in found] == [*OPENING, *["response.output_text.delta"] * 30, *CLOSING]
    assert [event["sequence_number"] for event in found] == list(range(38))
    text = "".join(f" word{number}" for number in range(1, 31))
    assert "".join(event["delta"] for event in found[4:-4]) == text
    assert found[-4]["text"] == text
    response = found[-1]["response"]
    assert (response["status"], response["output"]) == ("completed", [found[-2]["item"]])
    assert response["usage"]["total_tokens"] == 42


def test_a_whole_response_carries_text_and_usage(url: str) -> None:
    response = httpx.post(url, json={"model": "json", "input": "Hello"}).json()
    (item,) = response["output"]
    assert (response["object"], response["status"], response["usage"]["total_tokens"]) == ("response", "completed", 32)
    assert item["content"][0]["text"].startswith("The capital of France is Paris.")


def test_an_error_of_the_backend_is_not_taken_for_an_answer(url: str) -> None:
    assert httpx.post(url, json={"model": "unknown", "input": "Hello", "stream": True}).status_code == 502


def test_requests_side_by_side_are_all_answered_in_full(bench: Bench, reference: Target) -> None:
    body = {"model": "burst-300", "input": "Hello", "stream": True}
    with bench.server(reference) as server:
        assert server is not None
        report = bench.run(server, reference, Workload("burst", body, requests=20, bar=1, events=300))
    assert (report["requests"], report["events"]) == (20, 20 * (4 + 300 + 4 + 1))
