"""The names of the events that thoughts come in: OpenAI's, or those of the release of Open Responses."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from antwort import Antwort
from antwort.config import Config, EngineConfig
from antwort.testing import ScriptedBackend, running, turn


def told(answer: httpx.Response) -> list[Any]:
    """Return the events of thoughts in a stream."""
    lines = (line for line in answer.text.splitlines() if line.startswith("data: {"))
    events = [json.loads(line.removeprefix("data: ")) for line in lines]
    names = [line.removeprefix("event: ") for line in answer.text.splitlines() if line.startswith("event: ")]
    assert names == [event["type"] for event in events]
    return [
        (event["type"], event.get("delta", event.get("text")))
        for event in events
        if event["type"].startswith("response.reasoning")
    ]


@pytest.mark.parametrize(
    ("names", "prefix"), [("openai", "response.reasoning_text"), ("open_responses", "response.reasoning")]
)
def test_events_of_thoughts_have_the_names_that_the_operator_wants(tmp_path: Path, names: Any, prefix: str) -> None:
    config = Config(data_dir=tmp_path, engine=EngineConfig(reasoning_events=names))
    body = {"input": "Hello", "stream": True}
    with (
        ScriptedBackend([turn("Hi", reasoning=["They ", "greet."])]) as model,
        running(Antwort(config, backend=model)) as server,
        httpx.Client(base_url=server.url, timeout=60) as client,
    ):
        streamed = told(client.post("/v1/responses", json=body))
        (stored,) = client.get("/v1/responses").json()["data"]
        again = told(client.get(f"/v1/responses/{stored['id']}", params={"stream": True}))
    done = (f"{prefix}.done", "They greet.")
    assert streamed == [(f"{prefix}.delta", "They "), (f"{prefix}.delta", "greet."), done]
    assert again == [(f"{prefix}.delta", "They greet."), done]
