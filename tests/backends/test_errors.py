"""What a server says went wrong, and what our client is told."""

import json
import math
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from antwort.backends.errors import (
    BROKEN,
    DEADLINE,
    DISCONNECTED,
    FAILED,
    TIMEOUT,
    UNAUTHORIZED,
    UNAVAILABLE,
    UNREACHABLE,
    UNSUITABLE,
    excerpt,
    may_pass,
    reply_error,
    reported_error,
    speaks_of_the_server,
    worth_another_backend,
    worth_another_try,
)
from antwort.errors import (
    APIError,
    BadGatewayError,
    BadRequestError,
    GatewayTimeoutError,
    InternalServerError,
    NotFoundError,
    PayloadTooLargeError,
    RateLimitError,
    ServiceUnavailableError,
)


def error(status: int, body: Any = None, headers: dict[str, str] | None = None) -> APIError:
    raw = body if isinstance(body, bytes) else json.dumps(body or {"error": {"message": "boom"}}).encode()
    return reply_error("local", "llama", status, headers or {}, raw)


@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [
        (400, BadRequestError, None),
        (422, BadRequestError, None),
        (401, BadGatewayError, UNAUTHORIZED),
        (403, BadGatewayError, UNAUTHORIZED),
        (402, BadGatewayError, UNSUITABLE),
        (405, BadGatewayError, UNSUITABLE),
        (408, GatewayTimeoutError, TIMEOUT),
        (413, PayloadTooLargeError, "request_too_large"),
        (429, RateLimitError, "rate_limit_exceeded"),
        (500, BadGatewayError, FAILED),
        (501, BadGatewayError, FAILED),
        (502, BadGatewayError, UNAVAILABLE),
        (503, ServiceUnavailableError, UNAVAILABLE),
        (529, ServiceUnavailableError, UNAVAILABLE),
        (504, GatewayTimeoutError, TIMEOUT),
        (302, BadGatewayError, UNSUITABLE),
        (204, BadGatewayError, UNSUITABLE),
    ],
)
def test_a_status_becomes_the_right_error_that_names_the_backend(
    status: int, kind: type[APIError], code: str | None
) -> None:
    found = error(status)
    assert type(found) is kind
    assert found.code == code
    assert "'local'" in found.message


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"error": {"message": "boom", "type": "x", "param": None, "code": None}}, "boom"),
        ({"object": "error", "message": "boom", "type": "BadRequestError", "param": None, "code": 400}, "boom"),
        ({"error": "boom"}, "boom"),
        ({"detail": "boom"}, "boom"),
        ({"detail": [{"loc": ["body", "n"], "msg": "too big"}, {"msg": "bad"}]}, "body.n: too big; bad"),
        ({"message": "boom\n  twice"}, "boom twice"),
        ([{"error": {"code": 400, "message": "boom", "status": "INVALID_ARGUMENT"}}], "boom"),
        ({"strange": 1}, '{"strange":1}'),
        (b"plain words", "plain words"),
        (b"<html><head><title>400 Bad\nRequest</title></head><body>x</body></html>", "400 Bad Request"),
        (b"<html><style>p {}</style><body><p>No</p> <b>way</b></body></html>", "No way"),
        (b"", "(empty)"),
        (b"x" * 900, "x" * 500 + "…"),
    ],
)
def test_the_message_is_found_in_every_shape(body: Any, message: str) -> None:
    assert error(400, body).message == f"The backend 'local' refused the request: {message}"


def test_param_and_code_are_passed_on() -> None:
    found = error(400, {"error": {"message": "boom", "param": "top_p", "code": "out_of_range"}})
    assert (found.param, found.code) == ("top_p", "out_of_range")
    assert error(400, {"error": {"message": "boom", "param": 3, "code": 400}}).code is None


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_key_is_not_the_clients_fault_and_is_not_shown(status: int) -> None:
    found = error(status, {"error": {"message": "Incorrect API key provided: sk-secret", "code": "invalid_api_key"}})
    assert found.status == 502
    assert "api_key" in found.message
    assert "sk-secret" not in found.message


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ({"error": {"message": "The model `llama` does not exist.", "code": 404}}, NotFoundError),
        ({"error": {"message": "nope", "code": "model_not_found"}}, NotFoundError),
        ({"error": {"message": 'model "llama" not found, try pulling it first'}}, NotFoundError),
        ({"detail": "Not Found"}, BadGatewayError),
        (b"<html><title>No model here</title></html>", BadGatewayError),
    ],
)
def test_a_missing_model_is_told_from_a_missing_endpoint(body: Any, kind: type[APIError]) -> None:
    found = error(404, body)
    assert type(found) is kind
    if kind is NotFoundError:
        assert (found.code, found.param) == ("model_not_found", "model")
        assert "'llama'" in found.message
    else:
        assert "check its url" in found.message


@pytest.mark.parametrize(
    ("status", "report"),
    [
        (400, {"code": "context_length_exceeded", "message": "too much"}),
        (400, {"message": "This model's maximum context length is 4096 tokens."}),
        (400, {"type": "exceed_context_size_error", "message": "too much", "n_ctx": 4096}),
        (413, {"message": "prompt is too long: 210000 tokens > 200000 maximum"}),
        (500, {"message": "the request exceeds the available context size"}),
        (400, {"message": "Your input exceeds the context window of this model.", "type": "invalid_request_error"}),
        (400, {"message": "The prompt (length 9) is longer than the maximum model length of 8.", "code": 400}),
        (400, {"message": "request (9 tokens) exceeds the available context size (8 tokens)", "code": 400}),
        (400, {"message": "the input length exceeds the context length"}),
        (400, {"message": "litellm.ContextWindowExceededError: BadRequestError: too much", "code": "400"}),
        (422, {"message": "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens"}),
        (422, {"message": "Input validation error: `inputs` must have less than 1024 tokens. Given: 1500"}),
        (400, {"message": "The input token count (9) exceeds the maximum number of tokens allowed (8)."}),
        (400, {"message": "The model is loaded with context length of only 4096 tokens, which is not enough."}),
        (400, {"message": "The input (5000 tokens) is longer than the model's context length (4096 tokens)."}),
        (400, {"message": "input length and `max_tokens` exceed context limit: 5000 + 100 > 4096"}),
        (400, {"message": "Input is too long for requested model."}),
    ],
)
def test_a_conversation_that_is_too_long_is_told_by_its_code(status: int, report: dict[str, Any]) -> None:
    found = error(status, {"error": report})
    assert isinstance(found, BadRequestError)
    assert (found.code, found.param) == ("context_length_exceeded", "input")
    assert str(report["message"]) in found.message
    told = reported_error("local", report)
    if report.get("code") in {400, "400", "context_length_exceeded"}:
        assert (told.code, told.param) == ("context_length_exceeded", "input")


@pytest.mark.parametrize(
    "body",
    [
        {"error": "the input length exceeds the context length"},
        {
            "error": "Input validation error: `inputs` must have less than 8 tokens. Given: 9",
            "error_type": "validation",
        },
        {"detail": '{"error":{"type":"exceed_context_size_error","message":"too much"}}'},
        {"object": "error", "message": "This model's maximum context length is 8 tokens.", "code": 400},
    ],
)
def test_a_conversation_that_is_too_long_is_told_whatever_the_envelope(body: dict[str, Any]) -> None:
    assert error(400, body).code == "context_length_exceeded"


def test_a_full_window_is_told_with_what_sets_it() -> None:
    body = b'{"error": {"message": "prompt too long; exceeded max context length by 12 tokens"}}'
    found = reply_error("local", "m", 400, {}, body)
    assert "exceeded max context length by 12 tokens. Send less, or 'truncation': 'auto'." in found.message
    assert "backends.local.context_window" in found.message
    assert "num_ctx" in found.message


@pytest.mark.parametrize(
    "message", ["max_tokens must be at least 1", "the context must be an object", "no tokens left"]
)
def test_other_refusals_are_not_taken_for_conversations_that_are_too_long(message: str) -> None:
    assert error(400, {"error": {"message": message}}).code is None


@pytest.mark.parametrize(("sent", "kept"), [("7", "7"), ("0.2", "1"), ("2.5", "3"), ("soon", "1"), (None, "1")])
def test_the_time_to_wait_is_passed_on(sent: str | None, kept: str) -> None:
    found = error(429, headers={} if sent is None else {"retry-after": sent})
    assert found.headers["retry-after"] == kept


def test_the_time_to_wait_may_be_a_date() -> None:
    then = datetime.now(UTC) + timedelta(hours=1)
    found = error(503, headers={"retry-after": format_datetime(then, usegmt=True)})
    assert 3500 < int(found.headers["retry-after"]) <= 3600


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    "sent",
    [
        "9" * 400,
        "1" + "0" * 400 + ".5",
        "99999999",
        "Fri, 31 Dec 9999 23:59:59 -2300",
        "Fri, 31 Dec 9999 23:59:59 GMT",
        "Mon, 01 Jan 0001 00:00:00 +2300",
        "Mon, 01 Jan 99999999999 00:00:00 GMT",
        "inf",
        "nan",
        "1e999",
    ],
)
def test_no_time_to_wait_is_longer_than_a_day(status: int, sent: str) -> None:
    assert 1 <= int(error(status, headers={"retry-after": sent}).headers.get("retry-after", "1")) <= 24 * 3600


@pytest.mark.parametrize("seconds", [math.inf, -math.inf, math.nan])
def test_a_time_to_wait_that_is_no_number_is_a_day(seconds: float) -> None:
    found = RateLimitError("x", retry_after=seconds)
    assert (found.retry_after, found.headers["retry-after"]) == (86400.0, "86400")


@pytest.mark.parametrize("body", [{"detail": [{"msg": "boom", "loc": 7}]}, {"message": "boom", "code": "4" * 5000}])
def test_an_odd_report_is_an_error_of_the_server_all_the_same(body: Any) -> None:
    assert "boom" in error(500, body).message
    assert "boom" in reported_error("local", body).message


def test_an_excerpt_of_anything_is_one_line() -> None:
    assert excerpt(b"a\n\xff\tb") == "a \ufffd b"


@pytest.mark.parametrize(
    ("failure", "again", "elsewhere", "of_the_server", "passes"),
    [
        (ServiceUnavailableError("x", code=UNREACHABLE), True, True, True, True),
        (GatewayTimeoutError("x", code=UNREACHABLE), True, True, True, True),
        (BadGatewayError("x", code=UNAVAILABLE), True, True, True, True),
        (ServiceUnavailableError("x", code=UNAVAILABLE), True, True, True, True),
        (BadGatewayError("x", code=DISCONNECTED), True, True, True, True),
        (GatewayTimeoutError("x", code=TIMEOUT), False, True, True, True),
        (RateLimitError("x", retry_after=1), True, True, False, True),
        (ServiceUnavailableError("x"), True, True, False, False),
        (BadGatewayError("x", code=BROKEN), True, True, False, False),
        (BadGatewayError("x", code=FAILED), False, True, False, False),
        (BadGatewayError("x", code=UNAUTHORIZED), False, True, False, False),
        (BadGatewayError("x", code=UNSUITABLE), False, True, False, False),
        (GatewayTimeoutError("x", code=DEADLINE), False, False, False, False),
        (BadRequestError("x"), False, False, False, False),
        (NotFoundError("x"), False, False, False, False),
        (InternalServerError("x"), False, False, False, False),
    ],
)
def test_what_follows_from_a_failure(
    failure: APIError, again: bool, elsewhere: bool, of_the_server: bool, passes: bool
) -> None:
    assert worth_another_try(failure) is again
    assert worth_another_backend(failure) is elsewhere
    assert speaks_of_the_server(failure) is of_the_server
    assert may_pass(failure) is passes
