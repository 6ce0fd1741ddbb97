"""antwort in front of antwort: one speaks the Responses API to the other, which has the model."""

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.backends.conftest import Notes

from antwort import Antwort
from antwort.backends import ModelRequest
from antwort.backends.responses.backend import ResponsesBackend
from antwort.config import BackendConfig, Config
from antwort.testing import (
    Gate,
    ScriptedBackend,
    Turn,
    call,
    count_words,
    fail,
    lint_response,
    lint_stream,
    running,
    turn,
)
from antwort.types import JSON

TOOL: JSON = {
    "type": "function",
    "name": "get_weather",
    "description": "Tell the weather.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}


def double(number: int) -> int:
    """Double a number."""
    return 2 * number


@dataclass
class Cascade:
    url: str
    model: ScriptedBackend

    def ask(self, stream: bool, **fields: Any) -> JSON:
        """Create a response, one way or the other, and lint it."""
        body = {"model": "scripted", "store": False, "stream": stream, **fields}
        found = httpx.post(f"{self.url}/v1/responses", json=body, timeout=60)
        assert found.status_code == 200, found.text
        if not stream:
            lint_response(found.json())
            whole: JSON = found.json()
            return whole
        events = lint_stream(found.content).events
        final: JSON = events[-1]["response"]
        return final

    def refused(self, stream: bool, **fields: Any) -> tuple[int, JSON]:
        body = {"model": "scripted", "input": "Hi", "stream": stream, **fields}
        found = httpx.post(f"{self.url}/v1/responses", json=body, timeout=60)
        error: JSON = found.json()["error"]
        return found.status_code, error


@contextlib.contextmanager
def cascade(
    tmp_path: Path, steps: Iterable[Turn | str], *, functions: Iterable[Any] = (), **options: Any
) -> Iterator[Cascade]:
    with ScriptedBackend(steps, **options) as model:
        behind = Antwort(Config(data_dir=tmp_path / "behind", providers={}), backend=model)
        with running(behind) as upstream:
            backends = {"up": {"url": f"{upstream.url}/v1", "api": "responses", "retries": 0}}
            config = Config.model_validate({"data_dir": tmp_path / "front", "providers": {}, "backends": backends})
            with running(Antwort(config, functions=functions)) as front:
                yield Cascade(front.url, model)


def texts(response: JSON) -> list[str]:
    return [part["text"] for item in response["output"] if item["type"] == "message" for part in item["content"]]


both = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


@both
def test_text_usage_and_parameters_go_all_the_way(tmp_path: Path, stream: bool) -> None:
    with cascade(tmp_path, [turn(["Hel", "lo."], usage=(11, 3))]) as stage:
        response = stage.ask(
            stream,
            input=[
                {"role": "user", "content": "Hi"},
                {"role": "assistant", "content": "Yes?"},
                {"role": "user", "content": "So"},
            ],
            instructions="Be brief.",
            temperature=0.3,
            max_output_tokens=64,
            text={"format": {"type": "json_schema", "name": "x", "schema": {"type": "object"}}},
        )
        assert (response["status"], texts(response)) == ("completed", ["Hello."])
        assert (response["usage"]["input_tokens"], response["usage"]["output_tokens"]) == (11, 3)
    asked = stage.model.requests[0]
    assert (asked.instructions, asked.temperature, asked.max_output_tokens) == ("Be brief.", 0.3, 64)
    assert asked.stream is stream
    assert asked.text_format is not None
    assert asked.text_format["name"] == "x"
    assert [item["role"] for item in asked.items] == ["user", "assistant", "user"]


@both
def test_calls_of_the_client_come_back_and_are_answered(tmp_path: Path, stream: bool) -> None:
    calls = [call("get_weather", city="Oslo", call_id="a"), call("get_weather", city="Rome", call_id="b")]
    with cascade(tmp_path, [turn(calls=calls), "Cold and warm."]) as stage:
        first = stage.ask(stream, input="Weather?", tools=[TOOL])
        made = [item for item in first["output"] if item["type"] == "function_call"]
        assert [(item["call_id"], item["arguments"]) for item in made] == [
            ("a", '{"city": "Oslo"}'),
            ("b", '{"city": "Rome"}'),
        ]
        outputs = [{"type": "function_call_output", "call_id": name, "output": "1"} for name in ("a", "b")]
        history = [{"role": "user", "content": "Weather?"}, *first["output"], *outputs]
        assert texts(stage.ask(stream, input=history, tools=[TOOL])) == ["Cold and warm."]
    kinds = [item.get("type") for item in stage.model.requests[1].items]
    assert kinds == ["message", "function_call", "function_call", "function_call_output", "function_call_output"]


@both
def test_functions_of_the_server_in_front_run_there(tmp_path: Path, stream: bool) -> None:
    steps = [turn(calls=[call("double", number=21)]), turn(["It is ", "42."])]
    with cascade(tmp_path, steps, functions=[double]) as stage:
        assert texts(stage.ask(stream, input="Double 21", store=True)) == ["It is 42."]
    assert stage.model.requests[1].items[-1]["output"] == "42"
    assert [tool["name"] for tool in stage.model.requests[0].tools] == ["double"]


@both
def test_thoughts_go_through_with_their_sealed_form(tmp_path: Path, stream: bool) -> None:
    with cascade(tmp_path, [turn("Four.", reasoning=["Two and ", "two."])]) as stage:
        first = stage.ask(stream, input="2+2?", reasoning={"effort": "low"}, include=["reasoning.encrypted_content"])
    thought, said = first["output"]
    assert thought["summary"][0]["text"] == "Two and two."  # which is what a server behind is asked for
    assert thought["encrypted_content"]
    assert said["content"][0]["text"] == "Four."
    assert stage.model.requests[0].effort == "low"


@both
async def test_the_server_behind_opens_the_thoughts_it_sealed(tmp_path: Path, notes: Notes, stream: bool) -> None:
    steps: list[Turn | str] = [turn("Four.", reasoning="Two and two."), "Still four."]
    with ScriptedBackend(steps) as model:
        behind = Antwort(Config(data_dir=tmp_path, providers={}), backend=model)
        with running(behind) as upstream:
            backend = ResponsesBackend("up", BackendConfig(url=f"{upstream.url}/v1", api="responses"))
            question: JSON = {"role": "user", "content": "2+2?"}
            await backend.run(ModelRequest("scripted", [question], stream=stream), notes)
            kinds = [fed[0] for fed in notes.calls]
            assert kinds == ["reasoning", "opaque", "text", "usage", "finish"]
            thought: JSON = {"type": "reasoning", "summary": [], "encrypted_content": notes.said("opaque")}
            await backend.run(ModelRequest("scripted", [question, thought, question], stream=stream), Notes())
            await backend.close()
    given = model.requests[1].items[1]
    assert [part["text"] for part in given["content"]] == ["Two and two."]


@both
def test_thoughts_before_a_call_of_the_server_are_there_in_the_next_turn(tmp_path: Path, stream: bool) -> None:
    steps: list[Turn | str] = [turn(calls=[call("double", number=21)], reasoning="Let me see."), "It is 42."]
    with cascade(tmp_path, steps, functions=[double]) as stage:
        assert texts(stage.ask(stream, input="Double 21")) == ["It is 42."]
    given = [item for item in stage.model.requests[1].items if item.get("type") == "reasoning"]
    assert [part["text"] for item in given for part in item["content"]] == ["Let me see."]


@both
def test_an_answer_that_was_cut_says_so(tmp_path: Path, stream: bool) -> None:
    with cascade(tmp_path, [turn("Hel", finish="length")]) as stage:
        response = stage.ask(stream, input="Hi", max_output_tokens=16)
    assert (response["status"], response["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})


@both
@pytest.mark.parametrize(
    ("step", "status", "code"),
    [
        (fail(429, "Slow down."), 429, "rate_limit_exceeded"),
        (fail(503, "Loading."), 503, "backend_unavailable"),
        (fail(400, "Too long.", code="context_length_exceeded"), 400, "context_length_exceeded"),
    ],
)
def test_errors_before_the_answer_keep_their_meaning(
    tmp_path: Path, stream: bool, step: Any, status: int, code: str
) -> None:
    with cascade(tmp_path, [turn(error=step)]) as stage:
        found = stage.refused(stream)
    assert (found[0], found[1]["code"]) == (status, code)


def test_an_error_in_the_middle_ends_the_response(tmp_path: Path) -> None:
    gate = Gate()
    body = {"model": "scripted", "input": "Hi", "stream": True}
    received = b""
    with (
        cascade(tmp_path, [turn(["Hel", gate, "lo"], error=fail(500, "Boom.", after=2))]) as stage,
        httpx.stream("POST", f"{stage.url}/v1/responses", json=body, timeout=60) as found,
    ):
        for chunk in found.iter_bytes():
            received += chunk
            if b'"Hel"' in received:
                gate.open()
    response = lint_stream(received).events[-1]["response"]
    assert response["status"] == "failed"
    assert "Boom." in response["error"]["message"]


def test_a_conversation_that_is_too_long_is_told(tmp_path: Path) -> None:
    with cascade(tmp_path, [], context_window=2, tokenizer=count_words) as stage:
        status, error = stage.refused(False, input="one two three")
        assert (status, error["code"]) == (400, "context_length_exceeded")
