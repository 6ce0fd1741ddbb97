"""Every error antwort raises on purpose, in one tree with three audiences.

AntwortError
├── ConfigError                  the operator: start-up stops, exit code 2, one line with the cure
│   └── DefinitionError          the author of a function or provider: what is wrong with the definition
├── StateError                   the author of a program: an app used before its start, or started twice
├── FunctionError                the model: becomes an error result it can act on, never a failed response
│   ├── UnknownFunctionError
│   ├── FunctionDeniedError      the calling agent may not use it
│   ├── InvalidArgumentsError
│   ├── FunctionTimeoutError
│   └── FunctionUnavailableError disabled, or not started
└── APIError                     the client: the OpenAI error envelope with the right status
    ├── BadRequestError          400
    ├── AuthenticationError      401
    ├── PermissionDeniedError    403
    ├── NotFoundError            404
    ├── MethodNotAllowedError    405
    ├── RequestTimeoutError      408
    ├── ConflictError            409
    ├── PayloadTooLargeError     413
    ├── PathTooLongError         414
    ├── UnsupportedMediaTypeError 415
    ├── RateLimitError           429
    ├── HeadersTooLargeError     431
    ├── InternalServerError      500
    ├── UnknownCodingError       501
    ├── BadGatewayError          502
    ├── ServiceUnavailableError  503
    └── GatewayTimeoutError      504

Anything else that escapes is a bug: the client sees an `InternalServerError` with the request id, the log has the
traceback.
"""

import contextlib
import importlib
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar

from typing_extensions import override

_A_DAY = 24 * 3600.0
_LONGEST_NAME = 200
"""Characters of a name that may be a slip: to compare takes long, and what clients send may be of any length."""
_LONGEST_MESSAGE = 10_000
"""Characters of an error that a client is told: it may repeat what the client has sent."""
_LONGEST_PARAM = 500


class AntwortError(Exception):
    """The root of the tree."""


# --- the operator and the author -------------------------------------------------------------------------------------


class ConfigError(AntwortError):
    """The configuration cannot be used. Raised while loading or starting; the CLI prints one line and exits with 2.

    `where` names the place as the operator knows it: a file and line, an environment variable, a flag.
    `problems` holds every error found at once, this one first, for `antwort check`.
    """

    def __init__(self, message: str, *, where: str | None = None, problems: Iterable["ConfigError"] = ()) -> None:
        self.message = " ".join(message.split())
        self.where = where
        super().__init__(self.message if where is None else f"{where}: {self.message}")
        self.problems: tuple[ConfigError, ...] = tuple(problems) or (self,)


class DefinitionError(ConfigError):
    """A function or provider is not defined well enough to be offered to a model. Raised when it is registered."""


class StateError(AntwortError, RuntimeError):
    """An app is used before it was started or after it was closed, or is started a second time."""


# --- the model -------------------------------------------------------------------------------------------------------


class FunctionError(AntwortError):
    """Raise it in a handler to tell the model what went wrong; the text reaches the model as an error result."""

    status: ClassVar[str] = "error"


class UnknownFunctionError(FunctionError):
    """No function of that name is offered."""

    status = "unknown"


class FunctionDeniedError(FunctionError):
    """The function exists, but not for the agent that called it."""

    status = "denied"


class InvalidArgumentsError(FunctionError):
    """The arguments do not fit the function's parameters."""

    status = "invalid_arguments"


class FunctionTimeoutError(FunctionError):
    """The function did not finish in its time."""

    status = "timeout"


class FunctionUnavailableError(FunctionError):
    """The function cannot run now: it is disabled, or its provider is not started."""

    status = "unavailable"


# --- the client ------------------------------------------------------------------------------------------------------


class APIError(AntwortError):
    """An HTTP error. Subclasses fix the status; `param` names the offending field, `code` a machine-readable cause."""

    status: int = 500
    type: str = "server_error"
    default_code: ClassVar[str | None] = None

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        message = _shortened(message, _LONGEST_MESSAGE)
        super().__init__(message)
        self.message = message
        self.param = param and _shortened(param, _LONGEST_PARAM)
        self.code = code or self.default_code
        self.headers = dict(headers or {})

    @property
    def asked_pause(self) -> float:
        """Seconds that whoever gets it is asked to wait before another try; 0 if it does not say."""
        seconds = self.headers.get("retry-after", "")
        return float(seconds) if seconds.isdecimal() else 0.0

    def envelope(self) -> dict[str, dict[str, str | None]]:
        """Return the body OpenAI clients expect."""
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}


class BadRequestError(APIError):
    """400: the request cannot be understood or is not valid."""

    status = 400
    type = "invalid_request_error"


class AuthenticationError(APIError):
    """401: no credentials, or credentials that are not accepted."""

    status = 401
    type = "invalid_request_error"
    default_code = "invalid_api_key"

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message, code=code, headers={"www-authenticate": "Bearer"})


class PermissionDeniedError(APIError):
    """403: known, but not allowed."""

    status = 403
    type = "invalid_request_error"
    default_code = "insufficient_permissions"


class NotFoundError(APIError):
    """404: it does not exist, or not for this tenant; the two are never told apart."""

    status = 404
    type = "invalid_request_error"


class MethodNotAllowedError(APIError):
    """405: the path exists, the method does not."""

    status = 405
    type = "invalid_request_error"
    default_code = "method_not_allowed"


class RequestTimeoutError(APIError):
    """408: the request has not come in time."""

    status = 408
    type = "invalid_request_error"
    default_code = "request_timeout"


class ConflictError(APIError):
    """409: the state does not allow it (any more)."""

    status = 409
    type = "invalid_request_error"
    default_code = "conflict"


class PayloadTooLargeError(APIError):
    """413: the body is larger than the server takes."""

    status = 413
    type = "invalid_request_error"
    default_code = "request_too_large"


class PathTooLongError(APIError):
    """414: the path with its query is too long."""

    status = 414
    type = "invalid_request_error"
    default_code = "path_too_long"


class UnsupportedMediaTypeError(APIError):
    """415: the body is not of a type the endpoint reads."""

    status = 415
    type = "invalid_request_error"
    default_code = "unsupported_media_type"


class RateLimitError(APIError):
    """429: too many requests; `retry_after` seconds from now one will be taken. With None, trying again is in vain."""

    status = 429
    type = "rate_limit_error"
    default_code = "rate_limit_exceeded"

    def __init__(
        self,
        message: str,
        *,
        retry_after: float | None,
        headers: Mapping[str, str] | None = None,
        code: str | None = None,
    ) -> None:
        if retry_after is not None and not math.isfinite(retry_after):
            retry_after = _A_DAY
        if retry_after is None:  # SDKs try a 429 again unless this tells them not to
            told = {"x-should-retry": "false"}
        else:
            told = {"retry-after": str(max(1, math.ceil(retry_after)))}
        super().__init__(message, code=code, headers={**(headers or {}), **told})
        self.retry_after = retry_after

    @property
    @override
    def asked_pause(self) -> float:
        return self.retry_after or 0.0


class HeadersTooLargeError(APIError):
    """431: the headers are too many or too large."""

    status = 431
    type = "invalid_request_error"
    default_code = "headers_too_large"


class InternalServerError(APIError):
    """500: a bug of ours or of a provider."""


class UnknownCodingError(APIError):
    """501: the body is sent in a transfer coding that the server does not know."""

    status = 501
    type = "invalid_request_error"
    default_code = "unknown_transfer_coding"


class BadGatewayError(APIError):
    """502: a server behind us answered wrongly."""

    status = 502


class ServiceUnavailableError(APIError):
    """503: a server behind us cannot be reached, or we are stopping."""

    status = 503


class GatewayTimeoutError(APIError):
    """504: a server behind us did not answer in time."""

    status = 504


@contextlib.contextmanager
def as_function_errors() -> Iterator[None]:
    """Tell the model what is refused in the words for clients: an APIError becomes a FunctionError."""
    try:
        yield
    except APIError as error:
        raise FunctionError(error.message) from error


def near_names(name: str, known: Iterable[str], *, most: int = 1, likeness: float = 0.6) -> list[str]:
    """Return the known names nearest to a mistyped one; none for one that is longer than names are."""
    if len(name) > _LONGEST_NAME:
        return []
    difflib = importlib.import_module("difflib")  # few mistype a name
    near: list[str] = difflib.get_close_matches(name, list(known), n=most, cutoff=likeness)
    return near


def did_you_mean(name: str, known: Iterable[str], *, likeness: float = 0.6) -> str:
    """Return `; did you mean 'x'?` for the known name nearest to a mistyped one, or an empty string."""
    near = near_names(name, known, likeness=likeness)
    return f"; did you mean '{near[0]}'?" if near else ""


def _shortened(text: str, most: int) -> str:
    """Return a text without its middle, if it is too long."""
    return text if len(text) <= most else f"{text[: most // 2]}…{text[-(most // 2) :]}"
