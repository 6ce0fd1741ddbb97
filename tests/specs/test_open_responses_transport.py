"""Open Responses 2026-04-24: endpoints and transport (1.1), what a request may hold (1.2), and errors (1.7)."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.http import sdk
from tests.http.sdk import CLIENT_TOOL, Served, served
from tests.http.sockets import socket
from tests.specs.open_responses import ask, post, said, texts

from antwort import Antwort
from antwort.config import Config
from antwort.testing import ScriptedBackend, Turn, call, fail, lint_stream, turn
from antwort.types import JSON

PIXEL = "data:image/gif;base64,R0lGODlhAQABAAAAACH5BAEKAAEALAAAAAABAAEAAAICTAEAOw=="


@pytest.fixture
def on_each_store(database_url: str) -> Iterator[None]:
    token = sdk.DATABASE.set(database_url)
    yield
    sdk.DATABASE.reset(token)


STORED = pytest.mark.usefixtures("on_each_store")


def frames(body: bytes) -> list[list[str]]:
    """Return the lines of each frame of a stream."""
    assert body.endswith(b"\n\n")
    return [frame.split("\n") for frame in body.decode().removesuffix("\n\n").split("\n\n")]


def streamed(stage: Served, **fields: Any) -> bytes:
    found = stage.request("POST", "/responses", json={"model": "scripted", "input": "Hi", "stream": True, **fields})
    assert found.status_code == 200, found.text
    return found.content


# --- 1.1 endpoints and transport -------------------------------------------------------------------------------------


def test_an_answer_that_is_not_streamed_is_json(tmp_path: Path) -> None:
    with served(tmp_path, ["One", "Two"]) as stage:
        for fields in ({}, {"stream": False}):
            found = stage.request("POST", "/responses", json={"model": "scripted", "input": "Hi", **fields})
            assert found.headers["content-type"] == "application/json"


def test_a_stream_is_of_the_type_event_stream(tmp_path: Path) -> None:
    with served(tmp_path, ["One"]) as stage:
        found = stage.request("POST", "/responses", json={"input": "Hi", "stream": True})
        assert found.headers["content-type"].split(";")[0] == "text/event-stream"


def test_the_event_of_a_frame_is_the_type_in_its_body_and_data_is_one_json_object(tmp_path: Path) -> None:
    with served(tmp_path, [turn(["Hel", "lo\n\ndata: x"], reasoning="Hm", calls=[call("get_weather")])]) as stage:
        *events, _ = frames(streamed(stage, tools=[CLIENT_TOOL]))
        for event, data in events:
            assert event.removeprefix("event: ") == json.loads(data.removeprefix("data: "))["type"]


@STORED
@pytest.mark.parametrize(
    "step",
    [turn("Fine"), turn("Hal", finish="length"), turn(["Hel", "lo"], error=fail(500, after=1))],
    ids=["completed", "incomplete", "failed"],
)
def test_every_stream_ends_with_a_literal_done_and_has_it_once(tmp_path: Path, step: Turn) -> None:
    with served(tmp_path, [step]) as stage:
        body = streamed(stage)
        assert frames(body)[-1] == ["data: [DONE]"]
        assert body.count(b"[DONE]") == 1


def test_frames_have_no_id(tmp_path: Path) -> None:
    with served(tmp_path, ["Fine"]) as stage:
        assert not any(line.startswith("id:") for lines in frames(streamed(stage)) for line in lines)


async def test_no_frame_is_split_over_two_writes(tmp_path: Path) -> None:
    """Checklist 6; some readers take each piece they receive for whole."""
    body = json.dumps({"input": "Hi", "stream": True}).encode()
    writes: list[bytes] = []
    messages = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def send(message: Any) -> None:
        writes.extend(piece for piece in [message.get("body", b"")] if piece)

    async def receive() -> Any:
        if (message := next(messages, None)) is None:
            await asyncio.Event().wait()  # the client stays
        return message

    with ScriptedBackend([turn(["One ", "two ", "three"], burst=2)]) as model:
        app = Antwort(Config(data_dir=tmp_path, providers={}), backend=model)
        scope = {"type": "http", "method": "POST", "path": "/v1/responses", "query_string": b"", "root_path": ""}
        length = str(len(body)).encode()
        headers = [(b"host", b"localhost"), (b"content-type", b"application/json"), (b"content-length", length)]
        async with app:
            await app({**scope, "http_version": "1.1", "headers": headers, "client": ("127.0.0.1", 1)}, receive, send)
    assert len(writes) > 1
    assert lint_stream(writes, whole_writes=True).text == "One two three"


def test_responses_are_made_and_compacted_at_described_paths_and_over_a_socket(tmp_path: Path) -> None:
    with served(tmp_path, []) as stage:
        described = stage.request("GET", "/../openapi.json").json()["paths"]
        assert "post" in described["/v1/responses"]
        assert "post" in described["/v1/responses/compact"]
        with socket(stage) as client:
            assert client.connection.ping().wait(20)


def test_a_page_of_another_site_may_ask_if_it_is_allowed_to(tmp_path: Path) -> None:
    """Checklist 18: the tester of the specification is such a page."""
    origin = "https://www.openresponses.org"
    with served(tmp_path, ["Fine"], server={"cors_origins": [origin]}) as stage:
        wanted = {
            "access-control-request-method": "POST",
            "access-control-request-headers": "authorization,content-type",
        }
        preflight = stage.request("OPTIONS", "/responses", headers={"origin": origin, **wanted})
        assert preflight.status_code in {200, 204}
        assert preflight.headers["access-control-allow-origin"] == origin
        assert "POST" in preflight.headers["access-control-allow-methods"]
        allowed = preflight.headers["access-control-allow-headers"].lower()
        assert "authorization" in allowed
        assert "content-type" in allowed
        answer = stage.request("POST", "/responses", json={"input": "Hi"}, headers={"origin": origin})
        assert answer.headers["access-control-allow-origin"] == origin


# --- 1.2 the body ----------------------------------------------------------------------------------------------------

EVERYTHING: JSON = {
    "instructions": "Be brief.",
    "include": ["reasoning.encrypted_content", "message.output_text.logprobs"],
    "tools": [CLIENT_TOOL],
    "tool_choice": "auto",
    "metadata": {f"key{number}": "x" * 512 for number in range(16)},
    "text": {"format": {"type": "text"}, "verbosity": "low"},
    "temperature": 0.5,
    "top_p": 0.9,
    "presence_penalty": -2.0,
    "frequency_penalty": 2.0,
    "parallel_tool_calls": False,
    "stream_options": {"include_obfuscation": False},
    "background": False,
    "max_output_tokens": 16,
    "max_tool_calls": 1,
    "reasoning": {"effort": "low", "summary": "auto"},
    "safety_identifier": "s" * 64,
    "prompt_cache_key": "k" * 64,
    "truncation": "auto",
    "store": False,
    "service_tier": "flex",
    "top_logprobs": 20,
}


def test_every_parameter_of_the_contract_is_taken_and_repeated(tmp_path: Path) -> None:
    with served(tmp_path, ["Fine"]) as stage:
        answer = ask(stage, **EVERYTHING)
    repeated = set(EVERYTHING) - {"include", "stream_options"}
    assert {name: answer[name] for name in repeated} == {name: EVERYTHING[name] for name in repeated}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_output_tokens": 15}, "max_output_tokens"),
        ({"max_tool_calls": 0}, "max_tool_calls"),
        ({"top_logprobs": 21}, "top_logprobs"),
        ({"top_logprobs": -1}, "top_logprobs"),
        ({"metadata": {str(number): "" for number in range(17)}}, "metadata"),
        ({"metadata": {"a": "x" * 513}}, "metadata.a"),
        ({"metadata": {"a": 1}}, "metadata.a"),
        ({"truncation": "sometimes"}, "truncation"),
        ({"service_tier": "first class"}, "service_tier"),
        ({"text": {"verbosity": "endless"}}, "text.verbosity"),
        ({"include": ["everything"]}, "include"),
        ({"tools": [{"type": "function", "name": "two words"}]}, "tools[0].name"),
        ({"tools": [{"type": "function", "name": "x" * 129}]}, "tools[0].name"),
        ({"tools": [{"type": "function", "name": ""}]}, "tools[0].name"),
        ({"tools": [{"type": "acme:search"}]}, "tools[0].type"),
    ],
)
def test_what_the_contract_forbids_is_refused_and_named(tmp_path: Path, fields: JSON, param: str) -> None:
    with served(tmp_path, []) as stage:
        status, answer = post(stage, input="Hi", **fields)
    assert (status, answer["error"]["param"]) == (400, param)


def test_an_input_of_ten_mebibytes_is_taken_and_a_longer_one_refused(tmp_path: Path) -> None:
    with served(tmp_path, ["Fine"]) as stage:
        assert ask(stage, "x" * 10_485_760, store=False)["status"] == "completed"
        status, answer = post(stage, input="x" * 10_485_761)
        assert (status, answer["error"]["param"]) == (400, "input")


def test_a_body_larger_than_the_server_takes_is_refused(tmp_path: Path) -> None:
    with served(tmp_path, [], server={"max_body_bytes": 1000}) as stage:
        assert post(stage, input="x" * 1000)[0] == 413


@STORED
def test_an_input_is_needed_unless_something_came_before(tmp_path: Path) -> None:
    with served(tmp_path, ["One", "Two"]) as stage:
        empty: list[JSON] = [{}, {"input": None}]
        for body in empty:
            status, answer = post(stage, **body)
            assert (status, answer["error"]["param"]) == (400, "input")
        first = ask(stage)
        assert post(stage, input=None, previous_response_id=first["id"])[0] == 200


@STORED
@pytest.mark.parametrize("with_type", [True, False])
@pytest.mark.parametrize("role", ["user", "system", "developer", "assistant"])
def test_content_may_be_a_string_and_the_type_of_a_message_be_left_out(
    tmp_path: Path, role: str, with_type: bool
) -> None:
    message = said(role, "Hello there") | ({} if with_type else {"type": None})
    given = {name: value for name, value in message.items() if value is not None}
    with served(tmp_path, ["Fine"]) as stage:
        first = ask(stage, [given, {"role": "user", "content": "Go on"}])
        assert texts(stage) == ["Hello there", "Go on"]
        listed = stage.request("GET", f"/responses/{first['id']}/input_items").json()["data"]
        kind = "output_text" if role == "assistant" else "input_text"
        assert [part["type"] for item in listed for part in item["content"]] == ["input_text", kind]


def test_an_assistant_message_may_have_a_phase_and_no_id(tmp_path: Path) -> None:
    """Checklist 13."""
    with served(tmp_path, ["Fine"]) as stage:
        given = [said("assistant", "Hm") | {"phase": "commentary"}, said("assistant", "4") | {"phase": "final_answer"}]
        assert ask(stage, [*given, said("user", "Again")])["status"] == "completed"
        assert texts(stage) == ["Hm", "4", "Again"]


@pytest.mark.parametrize(
    ("role", "parts"),
    [
        ("user", [{"type": "input_text", "text": "Look"}, {"type": "input_image", "image_url": PIXEL}]),
        ("user", [{"type": "input_image", "image_url": PIXEL, "detail": "low"}]),
        ("user", [{"type": "input_file", "filename": "a.txt", "file_data": "data:text/plain;base64,SGk="}]),
        ("assistant", [{"type": "output_text", "text": "Said"}]),
        ("assistant", [{"type": "refusal", "refusal": "No"}]),
        ("system", [{"type": "input_text", "text": "Be kind"}]),
        ("developer", [{"type": "input_text", "text": "Be kind"}]),
    ],
)
@pytest.mark.parametrize("over_http", [False, True])
def test_every_content_part_of_a_message_is_taken(
    tmp_path: Path, role: str, parts: list[JSON], over_http: bool
) -> None:
    """Checklist 14: an image is no reason to refuse a request."""
    with served(tmp_path, ["Fine"], over_http=over_http) as stage:
        given = [{"type": "message", "role": role, "content": parts}, said("user", "Go on")]
        assert ask(stage, given)["status"] == "completed"


@pytest.mark.parametrize(
    "output",
    ["sunny", [{"type": "input_text", "text": "sunny"}], [{"type": "input_image", "image_url": PIXEL}]],
    ids=["string", "text", "image"],
)
def test_the_output_of_a_function_is_a_string_or_parts(tmp_path: Path, output: Any) -> None:
    window = [
        said("user", "Weather?"),
        {"type": "function_call", "call_id": "c", "name": "get_weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": output},
    ]
    with served(tmp_path, ["Fine"]) as stage:
        assert ask(stage, window, tools=[CLIENT_TOOL])["status"] == "completed"
        assert stage.requests[0].items[-1]["output"] == output


@STORED
def test_an_item_is_named_by_its_id(tmp_path: Path) -> None:
    with served(tmp_path, ["One", "Two"]) as stage:
        (message,) = ask(stage, "a")["output"]
        ask(stage, [{"type": "item_reference", "id": message["id"]}, said("user", "b")])
        assert texts(stage) == ["One", "b"]


# --- 1.7 errors ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "kind", "code", "steps", "path", "body"),
    [
        (400, "invalid_request_error", "decimal_above_max_value", [], "/responses", {"input": "Hi", "temperature": 3}),
        (400, "invalid_request_error", "unknown_parameter", [], "/responses", {"input": "Hi", "colour": "red"}),
        (
            400,
            "invalid_request_error",
            "previous_response_not_found",
            [],
            "/responses",
            {"input": "Hi", "previous_response_id": "resp_none"},
        ),
        (404, "invalid_request_error", "model_not_found", [], "/responses", {"input": "Hi", "model": "nobody"}),
        (404, "invalid_request_error", None, [], "/nothing", {}),
        (429, "rate_limit_error", "rate_limit_exceeded", [turn(error=fail(429))], "/responses", {"input": "Hi"}),
        # A model server that fails is told from a server that does: 502, as gateways say it.
        (502, "server_error", "backend_error", [turn(error=fail(500))], "/responses", {"input": "Hi"}),
    ],
)
def test_errors_are_envelopes_with_the_status_of_their_kind(
    tmp_path: Path, status: int, kind: str, code: str | None, steps: list[Turn], path: str, body: JSON
) -> None:
    with served(tmp_path, steps, over_http=True, backend={"models": ["scripted"]}) as stage:
        found, answer = post(stage, path, **body)
        if not steps:
            assert post(stage, path, **body, stream=True) == (found, answer)
    error = answer["error"]
    assert set(answer) == {"error"}
    assert set(error) == {"message", "type", "param", "code"}
    assert (found, error["type"], error["code"]) == (status, kind, code)
    assert isinstance(error["message"], str)
    assert error["message"]
