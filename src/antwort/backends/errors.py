"""Failures of model servers: the codes they carry, what follows from them, and how what a server reports is read."""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from antwort.context.http_client import retry_after
from antwort.errors import (
    APIError,
    BadGatewayError,
    BadRequestError,
    GatewayTimeoutError,
    NotFoundError,
    PayloadTooLargeError,
    RateLimitError,
    ServiceUnavailableError,
)
from antwort.lazy_imports import compiled_on_use

UNREACHABLE = "backend_unreachable"
"""No connection came about; nothing was asked."""
TIMEOUT = "backend_timeout"
"""It was asked, and did not answer, or not go on, in time."""
DISCONNECTED = "backend_disconnected"
"""The connection ended before the answer did."""
BROKEN = "backend_broken"
"""It answered something that is not an answer."""
UNAVAILABLE = "backend_unavailable"
"""It says that it cannot answer now, or is known to be away and is not asked."""
FAILED = "backend_error"
"""It failed at this request; likely it would again."""
UNAUTHORIZED = "backend_unauthorized"
"""It does not take the operator's key."""
UNSUITABLE = "backend_unsuitable"
"""It is not the server the configuration takes it for."""
BUSY = "backend_busy"
"""All connections to it are in use; it was not asked."""
DEADLINE = "deadline_exceeded"
"""The request's own deadline passed; nobody's fault."""


class StalledError(GatewayTimeoutError):
    """504: an answer was under way and did not go on in time."""

    default_code = TIMEOUT


class BrokenOffError(BadGatewayError):
    """502: the connection ended in the middle of an answer."""

    default_code = DISCONNECTED


class OddAnswerError(BadGatewayError):
    """502: an answer that whoever reads it was not made for; the log has that already, with where it failed."""

    default_code = BROKEN


_SERVER_ERRORS = (BadGatewayError, ServiceUnavailableError, GatewayTimeoutError)
_AWAY = frozenset({UNREACHABLE, TIMEOUT, DISCONNECTED, UNAVAILABLE})
_NOT_AGAIN = frozenset({FAILED, UNAUTHORIZED, UNSUITABLE, DEADLINE, TIMEOUT, BUSY})


def worth_another_try(error: APIError) -> bool:
    """Tell whether the same request may well succeed a moment later.

    Not after a timeout: the model may be at work on it still, and would begin the same work once more.
    """
    return isinstance(error, RateLimitError) or (isinstance(error, _SERVER_ERRORS) and error.code not in _NOT_AGAIN)


def worth_another_backend(error: APIError) -> bool:
    """Tell whether another server could do better. An answer that is under way is not begun anew because of time."""
    if isinstance(error, StalledError):
        return False
    return isinstance(error, (*_SERVER_ERRORS, RateLimitError)) and error.code != DEADLINE


def speaks_of_the_server(error: APIError) -> bool:
    """Tell whether a failure may come from the server itself being away or ill, whoever asks and whatever for.

    It does not prove it: what one request does to a server is told apart by asking it something harmless.
    """
    return isinstance(error, _SERVER_ERRORS) and error.code in _AWAY


def worth_a_line(error: APIError, *, broke_off: bool) -> bool:
    """Tell whether the log has a line for each response that fails so: in the middle of an answer, or before.

    If a server is away or has no connection left, there may be thousands in a second: the log has one for all of them.
    """
    if isinstance(error, OddAnswerError):
        return False
    if broke_off:  # nobody has told that it is not tried again: an answer that has begun never is
        return error.status >= 500 or isinstance(error, RateLimitError)
    return error.status >= 500 and error.code not in {UNAVAILABLE, BUSY}


def may_pass(error: APIError) -> bool:
    """Tell whether the model server is away or busy for now, so that asking again later is worth it.

    So it is if it cannot be reached, does not answer in time, says that it is not available (or is known to be away),
    cut its answer off, or takes no more requests at the moment. A request that it refuses, fails at or answers with
    nonsense would end the same way later, and a deadline that passed stays passed.
    """
    return isinstance(error, RateLimitError) or error.code == BUSY or speaks_of_the_server(error)


# --- what a server reports -------------------------------------------------------------------------------------------

_SHOWN = 500
_RETRY_AFTER = 1.0
"""Seconds to wait for a server that takes no more requests and does not say until when."""

_TITLE = compiled_on_use(r"<title[^>]*>(.*?)</title>", re.IGNORECASE | re.DOTALL)
_UNSEEN = compiled_on_use(r"<(script|style)\b.*?</\1\s*>|<[^>]*>", re.IGNORECASE | re.DOTALL)
_TOO_LONG = compiled_on_use(
    r"context[ _]?(length|window|size|limit)"  # OpenAI, vLLM, llama.cpp, Ollama, LM Studio, LiteLLM's class, SGLang
    r"|max(imum|_)? ?(context|sequence|seq|prompt|model)[ _]len"  # and vLLM's `max_model_len`
    r"|prompt is too long|input is too long|too many input tokens"  # Anthropic, Bedrock
    r"|input token count .{0,40}exceeds|exceeds? the maximum number of tokens"  # Gemini
    r"|`inputs` tokens \+ `max_new_tokens` must be|`inputs` must have less than \d+ tokens",  # TGI
    re.IGNORECASE,
)
_STATUS_BY_WORD = (
    (429, ("rate_limit", "ratelimit", "too_many_requests", "quota")),
    (404, ("not_found", "notfound")),
    (503, ("overloaded", "unavailable")),
    (504, ("timeout",)),
    (401, ("authentication", "permission", "invalid_api_key")),
    (400, ("invalid", "badrequest", "bad_request", "context_length", "context_size", "validation")),
)

_OTHERS: dict[int, tuple[type[APIError], str | None, str]] = {
    408: (GatewayTimeoutError, TIMEOUT, "ran out of time"),
    413: (PayloadTooLargeError, None, "takes no request as large as this"),
    502: (BadGatewayError, UNAVAILABLE, "failed"),
    503: (ServiceUnavailableError, UNAVAILABLE, "is not available"),
    504: (GatewayTimeoutError, TIMEOUT, "ran out of time"),
    529: (ServiceUnavailableError, UNAVAILABLE, "is not available"),
}


class _Report(msgspec.Struct, frozen=True):
    """What a server says went wrong."""

    message: str
    code: str = ""
    type: str = ""
    param: str | None = None
    is_json: bool = True

    @property
    def status(self) -> int:
        """The HTTP status the report stands for; 500 if it does not say."""
        if len(self.code) == 3 and self.code.isdecimal() and 400 <= int(self.code) < 600:
            return int(self.code)
        words = f"{self.code} {self.type}".lower()
        return next((status for status, marks in _STATUS_BY_WORD if any(mark in words for mark in marks)), 500)

    @property
    def is_too_long(self) -> bool:
        """Tell whether the conversation does not fit into the model's context."""
        return bool(_TOO_LONG.search(f"{self.code} {self.type} {self.message}"))


def excerpt(body: bytes) -> str:
    """Return the gist of a body that is not what it should be, in one line; of HTML its title or words."""
    text = body[: 16 * 1024].decode(errors="replace")
    if title := _TITLE.search(text):
        text = title.group(1)
    elif text.lstrip().startswith("<"):
        text = _UNSEEN.sub(" ", text)
    return _one_line(text) or "(empty)"


def reply_error(backend: str, model: str, status: int, headers: Mapping[str, str], body: bytes) -> APIError:
    """Return the error for an answer with another status than 200."""
    if 300 <= status < 400:
        return BadGatewayError(
            f"The backend '{backend}' answers with a redirect, which is not followed; check its url.", code=UNSUITABLE
        )
    return _error(backend, model, status, _parsed(body), retry_after(headers))


def reported_error(backend: str, value: Any) -> APIError:
    """Return the error for an error object in the place of an answer."""
    report = _report(value)
    return _error(backend, "", report.status, report, None)


def _error(backend: str, model: str, status: int, report: _Report, retry_after: float | None) -> APIError:
    if status in {400, 413, 422, 500} and report.is_too_long:
        return BadRequestError(
            f"The conversation is too long for the model: {report.message.rstrip('. ')}. Send less, or 'truncation': "
            f"'auto'. How much the model takes is set at its server (Ollama: num_ctx); what the server does not tell, "
            f"backends.{backend}.context_window does.",
            param="input",
            code="context_length_exceeded",
        )
    match status:
        case 400 | 422:
            code = report.code if report.code and not report.code.isdecimal() else None
            message = f"The backend '{backend}' refused the request: {report.message}"
            return BadRequestError(message, param=report.param, code=code)
        case 401 | 403:
            # Its message may hold parts of the key.
            message = f"The backend '{backend}' does not let this server in ({status}); check its api_key."
            return BadGatewayError(message, code=UNAUTHORIZED)
        case 404:
            return _not_found(backend, model, report)
        case 429:
            message = f"The backend '{backend}' takes no more requests at the moment: {report.message}"
            return RateLimitError(message, retry_after=_RETRY_AFTER if retry_after is None else retry_after)
    kind, code, phrase = _OTHERS.get(status) or (
        (BadGatewayError, FAILED, "failed") if status >= 500 else (BadGatewayError, UNSUITABLE, f"answered {status}")
    )
    headers = {} if retry_after is None else {"retry-after": str(max(1, round(retry_after)))}
    return kind(f"The backend '{backend}' {phrase}: {report.message}", code=code, headers=headers)


def no_list(backend: str, body: bytes) -> APIError:
    """Return the error for a list of models that is not found: whatever the server says, no model is."""
    return _no_endpoint(backend, _parsed(body))


def _no_endpoint(backend: str, report: _Report) -> APIError:
    return BadGatewayError(
        f"The backend '{backend}' has no such endpoint (404: {report.message}); check its url.", code=UNSUITABLE
    )


def _not_found(backend: str, model: str, report: _Report) -> APIError:
    if report.is_json and "model" in f"{report.code} {report.message}".lower():
        name = f"the model '{model}'" if model else "the model"
        return NotFoundError(
            f"The backend '{backend}' does not have {name}: {report.message}", param="model", code="model_not_found"
        )
    return _no_endpoint(backend, report)


def _parsed(body: bytes) -> _Report:
    try:
        return _report(msgspec.json.decode(body))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _Report(excerpt(body), is_json=False)


def _report(value: Any) -> _Report:
    """Read an error in any of the shapes: `{"error": {…}}`, `{"error": "…"}`, `{"detail": …}`, `{"message": …}`."""
    inner = value[0] if isinstance(value, list) and len(value) == 1 else value
    if isinstance(inner, dict) and inner.get("error"):
        inner = inner["error"]
    if not isinstance(inner, dict):
        return _Report(_one_line(_words(inner)))
    message = next((inner[key] for key in ("message", "detail", "msg", "error") if inner.get(key)), inner)
    param = inner.get("param")
    return _Report(
        _one_line(_words(message)),
        _name(inner.get("code")),
        _name(inner.get("type")),
        param if isinstance(param, str) else None,
    )


def _words(message: Any) -> str:
    """Return a message as text; lists are what web frameworks write about invalid fields."""
    if isinstance(message, str):
        return message
    if isinstance(message, list):
        return "; ".join(_words(entry) for entry in message)
    if isinstance(message, dict) and isinstance(message.get("msg"), str):
        steps = message.get("loc")
        path = ".".join(str(step) for step in steps) if isinstance(steps, list) else ""
        return f"{path}: {message['msg']}" if path else str(message["msg"])
    return msgspec.json.encode(message).decode()


def _name(value: Any) -> str:
    return str(value) if isinstance(value, str | int) else ""


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}…"
