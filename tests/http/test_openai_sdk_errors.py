"""The official SDK, strict: every error is the exception it should be, and says what is wrong."""

import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import (
    APIError,
    APIStatusError,
    AuthenticationError,
    BadRequestError,
    InternalServerError,
    NotFoundError,
    OpenAI,
    RateLimitError,
)
from pydantic import SecretStr
from tests.http.sdk import create, done, served
from tests.support.postgres import on_one_store

from antwort.config import ApiKeyConfig, AuthConfig
from antwort.testing import Gate, call, fail, lint_stream, raw, turn

pytestmark = on_one_store()


BOTH_WAYS = pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
KEYS = AuthConfig(
    api_keys=[
        ApiKeyConfig(id="a", key=SecretStr("secret-a"), tenant="acme"),
        ApiKeyConfig(id="b", key=SecretStr("secret-b"), tenant="other"),
    ]
)


def parts(error: APIStatusError) -> tuple[str | None, str | None, str | None]:
    """Return type, param and code."""
    return error.type, error.param, error.code


# --- not found -------------------------------------------------------------------------------------------------------

ACTIONS: dict[str, Callable[[OpenAI, str], object]] = {
    "retrieve": lambda client, name: client.responses.retrieve(name),
    "stream": lambda client, name: client.responses.retrieve(name, stream=True),
    "delete": lambda client, name: client.responses.delete(name),
    "cancel": lambda client, name: client.responses.cancel(name),
    "input_items": lambda client, name: client.responses.input_items.list(name),
}


@pytest.mark.parametrize("action", ACTIONS)
def test_a_response_that_is_not_there_is_not_found(tmp_path: Path, action: str) -> None:
    with served(tmp_path, []) as stage, pytest.raises(NotFoundError) as error:
        ACTIONS[action](stage.client(), "resp_nowhere")
    assert "'resp_nowhere' not found" in error.value.message
    assert parts(error.value) == ("invalid_request_error", None, None)
    assert error.value.request_id


@pytest.mark.parametrize("action", ACTIONS)
def test_a_response_of_another_tenant_is_not_found_either(tmp_path: Path, action: str) -> None:
    with served(tmp_path, ["Hi"], auth=KEYS) as stage:
        owner = stage.client("secret-a")
        response = owner.responses.create(model="scripted", input="Hi")
        with pytest.raises(NotFoundError):
            ACTIONS[action](stage.client("secret-b"), response.id)
        with pytest.raises(BadRequestError, match="not found"):
            stage.client("secret-b").responses.create(input="Hi", previous_response_id=response.id)
        listed = stage.request("GET", "/responses", headers={"authorization": "Bearer secret-b"}).json()["data"]
        assert owner.responses.retrieve(response.id) == response
    assert listed == []


def test_a_model_that_nobody_has_is_not_found(tmp_path: Path) -> None:
    backend = {"models": ["scripted"]}
    with served(tmp_path, [], over_http=True, backend=backend) as stage, pytest.raises(NotFoundError) as error:
        stage.client().responses.create(model="scriptd", input="Hi")
    assert parts(error.value) == ("invalid_request_error", "model", "model_not_found")
    assert "'scripted'" in error.value.message


@BOTH_WAYS
def test_a_backend_that_is_alone_says_itself_which_models_it_lacks(tmp_path: Path, stream: bool) -> None:
    steps = [turn("Hi"), turn(error=fail(404, 'model "some/thing:else" not found, try pulling it first'))]
    with served(tmp_path, steps, over_http=True) as stage:
        client = stage.client()
        assert client.responses.create(model="any", input="Hi").output_text == "Hi"
        with pytest.raises(NotFoundError) as error:
            client.responses.create(model="some/thing:else", input="Hi", stream=stream)
        assert [body["model"] for body in stage.bodies] == ["any", "some/thing:else"]
    assert parts(error.value) == ("invalid_request_error", "model", "model_not_found")
    assert "try pulling it first" in error.value.message


@BOTH_WAYS
def test_a_previous_response_that_is_not_there_is_a_bad_request(tmp_path: Path, stream: bool) -> None:
    with served(tmp_path, []) as stage, pytest.raises(BadRequestError) as error:
        create(stage, stream, input="Hi", previous_response_id="resp_nowhere")
    assert parts(error.value) == (
        "invalid_request_error",
        "previous_response_id",
        "previous_response_not_found",
    )


def test_what_was_deleted_cannot_be_followed_up(tmp_path: Path) -> None:
    with served(tmp_path, ["Hi"]) as stage:
        first = create(stage, False, input="Hi")
        stage.client().responses.delete(first.id)
        with pytest.raises(BadRequestError) as error:
            create(stage, False, input="Hi", previous_response_id=first.id)
    assert error.value.code == "previous_response_not_found"


def test_an_item_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    with served(tmp_path, []) as stage, pytest.raises(NotFoundError) as error:
        create(stage, False, input=[{"type": "item_reference", "id": "msg_nowhere"}])
    assert parts(error.value) == ("invalid_request_error", "input", None)


# --- bad requests ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"extra_body": {"tempature": 1}}, "tempature", "unknown_parameter"),
        ({"temperature": 3}, "temperature", "decimal_above_max_value"),
        ({"top_logprobs": 21}, "top_logprobs", "integer_above_max_value"),
        ({"max_output_tokens": 1}, "max_output_tokens", "integer_below_min_value"),
        ({"metadata": {"a": "x" * 513}}, "metadata.a", "string_above_max_length"),
        ({"truncation": "sometimes"}, "truncation", "invalid_value"),
        ({"include": ["nothing.at.all"]}, "include", "invalid_value"),
        ({"input": [{"role": "robot", "content": "Hi"}]}, "input[0].role", "invalid_value"),
        ({"input": [{"role": "user", "content": [{"type": "input_text"}]}]}, "input[0].content[0].text", None),
        ({"input": [{"content": "Hi"}]}, "input[0].type", "missing_required_parameter"),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type", None),
        ({"text": {"format": {"type": "json_schema", "name": "x"}}}, "text.format.schema", None),
        ({"tools": [{"type": "function", "name": "no spaces"}]}, "tools[0].name", None),
        ({"moderation": {"model": "guard"}}, "moderation", "unsupported_parameter"),
        ({"conversation": {}}, "conversation.id", "missing_required_parameter"),
        (
            {"conversation": "conv_1", "previous_response_id": "resp_1"},
            "conversation",
            "mutually_exclusive_parameters",
        ),
        ({"extra_body": {"agent": "nobody"}}, "agent", None),
    ],
)
@BOTH_WAYS
def test_a_request_that_cannot_be_served_is_a_bad_request(
    tmp_path: Path, fields: dict[str, Any], param: str, code: str | None, stream: bool
) -> None:
    with served(tmp_path, []) as stage, pytest.raises(BadRequestError) as error:
        create(stage, stream, **{"input": "Hi", **fields})
    assert error.value.type == "invalid_request_error"
    assert error.value.param == param
    if code is not None:
        assert error.value.code == code


def test_a_request_without_input_is_a_bad_request(tmp_path: Path) -> None:
    with served(tmp_path, []) as stage, pytest.raises(BadRequestError) as error:
        stage.client().responses.create(model="scripted")
    assert parts(error.value) == ("invalid_request_error", "input", "missing_required_parameter")


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"x"', b'{"input": "\xff"}'])
def test_a_body_that_is_not_an_object_is_a_bad_request(tmp_path: Path, body: bytes) -> None:
    with served(tmp_path, []) as stage:
        found = stage.request("POST", "/responses", content=body, headers={"content-type": "application/json"})
    assert found.status_code == 400
    assert found.json()["error"]["type"] == "invalid_request_error"


def test_a_file_that_cannot_be_read_is_a_bad_request(tmp_path: Path) -> None:
    pdf = {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0xLjcK"}
    given: Any = [{"role": "user", "content": [pdf]}]
    with served(tmp_path, [], over_http=True) as stage, pytest.raises(BadRequestError) as error:
        create(stage, False, input=given)
    assert "'a.pdf'" in error.value.message
    assert error.value.code == "unsupported_file"


# --- credentials and limits ------------------------------------------------------------------------------------------


@BOTH_WAYS
def test_a_wrong_key_is_an_authentication_error(tmp_path: Path, stream: bool) -> None:
    with served(tmp_path, [], auth=KEYS) as stage, pytest.raises(AuthenticationError) as error:
        stage.client("secret-wrong").responses.create(model="scripted", input="Hi", stream=stream)
    assert parts(error.value) == ("invalid_request_error", None, "invalid_api_key")
    assert "secret-wrong" not in error.value.message


def test_too_many_requests_are_a_rate_limit_error(tmp_path: Path) -> None:
    limits = {"per_key": {"requests_per_minute": 1}}
    with served(tmp_path, ["Hi"], auth=KEYS, limits=limits) as stage:
        client = stage.client("secret-a")
        client.responses.create(model="scripted", input="Hi")
        with pytest.raises(RateLimitError) as error:
            client.responses.create(model="scripted", input="Hi")
    assert parts(error.value) == ("rate_limit_error", None, "rate_limit_exceeded")
    assert 1 <= int(error.value.response.headers["retry-after"]) <= 60


# --- the model server ------------------------------------------------------------------------------------------------


@BOTH_WAYS
def test_a_rate_limit_of_the_backend_is_passed_on(tmp_path: Path, stream: bool) -> None:
    failure = fail(429, "Slow down.", headers={"retry-after": "17"})
    with served(tmp_path, [turn(error=failure)], over_http=True) as stage, pytest.raises(RateLimitError) as error:
        create(stage, stream, input="Hi")
    assert parts(error.value) == ("rate_limit_error", None, "rate_limit_exceeded")
    assert error.value.response.headers["retry-after"] == "17"
    assert "'main'" in error.value.message
    assert "Slow down." in error.value.message


@pytest.mark.parametrize(
    ("given", "status", "code"),
    [
        (500, 502, "backend_error"),
        (502, 502, "backend_unavailable"),
        (503, 503, "backend_unavailable"),
        (504, 504, "backend_timeout"),
        (401, 502, "backend_unauthorized"),
        (403, 502, "backend_unauthorized"),
    ],
)
@BOTH_WAYS
def test_a_backend_that_fails_is_an_internal_server_error(
    tmp_path: Path, given: int, status: int, code: str, stream: bool
) -> None:
    step = turn(error=fail(given, "Oh."))
    with served(tmp_path, [step], over_http=True) as stage, pytest.raises(InternalServerError) as error:
        create(stage, stream, input="Hi")
    assert error.value.status_code == status
    assert parts(error.value) == ("server_error", None, code)
    assert "'main'" in error.value.message


@BOTH_WAYS
def test_a_backend_that_refuses_the_request_is_a_bad_request(tmp_path: Path, stream: bool) -> None:
    failure = fail(400, "temperature is too high", code="too_hot")
    with served(tmp_path, [turn(error=failure)], over_http=True) as stage, pytest.raises(BadRequestError) as error:
        create(stage, stream, input="Hi")
    assert "temperature is too high" in error.value.message
    assert error.value.code == "too_hot"


def test_a_conversation_that_is_too_long_is_a_bad_request(tmp_path: Path) -> None:
    failure = fail(400, "This model's maximum context length is 10 tokens.")
    with served(tmp_path, [turn(error=failure)], over_http=True) as stage, pytest.raises(BadRequestError) as error:
        create(stage, False, input="Hi")
    assert parts(error.value) == ("invalid_request_error", "input", "context_length_exceeded")


@BOTH_WAYS
def test_a_backend_that_is_not_there_is_503(tmp_path: Path, stream: bool) -> None:
    with socket.socket() as taken:  # bound and not listening: connections are refused
        taken.bind(("127.0.0.1", 0))
        backend = {"url": f"http://127.0.0.1:{taken.getsockname()[1]}/v1"}
        with (
            served(tmp_path, [], over_http=True, backend=backend) as stage,
            pytest.raises(InternalServerError) as error,
        ):
            create(stage, stream, input="Hi")
    assert (error.value.status_code, error.value.code) == (503, "backend_unreachable")
    assert "'main'" in error.value.message


def test_a_backend_whose_stream_does_not_begin_is_504(tmp_path: Path) -> None:
    step, backend = turn("never", hang_after=0), {"first_byte_timeout": 0.2}
    with (
        served(tmp_path, [step], over_http=True, backend=backend) as stage,
        pytest.raises(InternalServerError) as error,
    ):
        create(stage, True, input="Hi")
    assert (error.value.status_code, error.value.code) == (504, "backend_timeout")
    assert "0.2 s (`backends.main.first_byte_timeout`)" in error.value.message


def test_a_model_that_takes_long_is_asked_once_and_waited_for_if_the_client_does_not_stream(tmp_path: Path) -> None:
    gate = Gate()
    steps = [turn("At last.", wait_for=gate), turn("never", hang_after=0)]
    backend = {"first_byte_timeout": 0.01, "retries": 2}
    with served(tmp_path, steps, over_http=True, backend=backend) as stage, ThreadPoolExecutor(1) as pool:
        slow = pool.submit(create, stage, False, input="Hi")
        gate.wait_reached()
        with pytest.raises(InternalServerError):  # a stream must begin in time: by then, it was up for both
            create(stage, True, input="Hi")
        gate.open()
        assert slow.result().output_text == "At last."


@BOTH_WAYS
def test_a_backend_that_talks_nonsense_is_502(tmp_path: Path, stream: bool) -> None:
    step = raw(b"<html>Welcome!</html>", headers={"content-type": "text/html"})
    with served(tmp_path, [step], over_http=True) as stage, pytest.raises(InternalServerError) as error:
        create(stage, stream, input="Hi")
    assert error.value.status_code == 502
    assert "'main'" in error.value.message


@pytest.mark.parametrize("end", [b"data: [DONE]\n\n", b""], ids=["done", "no done"])
def test_an_answer_whose_stream_does_not_say_that_it_ended_is_incomplete(tmp_path: Path, end: bytes) -> None:
    said = b'data: {"choices": [{"delta": {"content": "Half an ans"}}]}\n\n'
    step = raw(said + end, headers={"content-type": "text/event-stream"})
    with served(tmp_path, [step], over_http=True) as stage:
        stream = stage.stream(model="scripted", input="Hi")
        stored = stage.request("GET", f"/responses/{stream.response['id']}").json()
    for answer in (stream.response, stored):
        assert (answer["status"], answer["incomplete_details"]) == ("incomplete", {"reason": "unfinished"})
        assert [item["status"] for item in answer["output"]] == ["incomplete"]
    assert stream.text == "Half an ans"


@pytest.mark.parametrize("over_http", [False, True])
def test_an_error_in_the_middle_of_a_stream_is_raised_and_stored(tmp_path: Path, over_http: bool) -> None:
    gates = [Gate(), Gate()]
    steps = [turn(["Hel", gate, "lo"], error=fail(503, "Overheated.", after=2)) for gate in gates]
    with served(tmp_path, steps, over_http=over_http) as stage:
        client = stage.client()
        events = client.responses.create(model="scripted", input="Hi", stream=True)
        next(event for event in events if event.type == "response.output_text.delta")
        gates[0].open()
        with pytest.raises(APIError) as error:
            list(events)
        body = {"model": "scripted", "input": "Hi", "stream": True}
        with httpx.stream("POST", f"{stage.server.url}/v1/responses", json=body) as response:
            chunks = response.iter_raw()
            first = next(chunks)
            gates[1].open()
            linted = lint_stream([first, *chunks])
        failed = client.responses.retrieve(linted.response["id"])
    assert "Overheated." in error.value.message
    assert linted.types[-2:] == ["error", "response.failed"]
    assert failed.status == "failed"
    assert failed.error is not None
    assert failed.error.code == "server_error"
    assert "Overheated." in failed.error.message
    assert failed.output_text == "Hello"


def test_an_error_after_a_function_has_run_is_raised_and_stored(tmp_path: Path) -> None:
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    steps = [turn("Adding.", calls=[call("add", a=1, b=2)]), turn(error=fail(503, "Overheated."))]
    with served(tmp_path, steps, over_http=True, functions=[add]) as stage:
        with pytest.raises(InternalServerError) as error:
            create(stage, False, input="1 + 2?")
        (stored,) = stage.request("GET", "/responses").json()["data"]
        failed = done(stage, stored["id"])
    assert error.value.status_code == 503
    assert failed["status"] == "failed"
    assert failed["output"][0]["content"][0]["text"] == "Adding."
    assert failed["usage"]["total_tokens"] == 15


def test_unknown_paths_and_methods_are_in_the_envelope(tmp_path: Path) -> None:
    with served(tmp_path, []) as stage:
        for method, path, status in (("GET", "/nothing", 404), ("PUT", "/responses", 405), ("POST", "/models", 405)):
            found = stage.request(method, path)
            assert found.status_code == status
            assert set(found.json()["error"]) == {"message", "type", "param", "code"}
        with pytest.raises(NotFoundError) as error:
            stage.client().files.list()
    assert error.value.type == "invalid_request_error"
