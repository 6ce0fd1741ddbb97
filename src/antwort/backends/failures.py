"""What the failures of model servers have in common: the codes they carry, and what follows from them."""

from antwort.errors import (
    APIError,
    BadGatewayError,
    GatewayTimeoutError,
    RateLimitError,
    ServiceUnavailableError,
)

__all__ = [
    "BROKEN",
    "DEADLINE",
    "DISCONNECTED",
    "FAILED",
    "TIMEOUT",
    "UNAUTHORIZED",
    "UNAVAILABLE",
    "UNREACHABLE",
    "UNSUITABLE",
    "StalledError",
    "may_pass",
    "speaks_of_the_server",
    "worth_another_backend",
    "worth_another_try",
]

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
DEADLINE = "deadline_exceeded"
"""The request's own deadline passed; nobody's fault."""


class StalledError(GatewayTimeoutError):
    """504: an answer was under way and did not go on in time."""

    default_code = TIMEOUT


_SERVER_ERRORS = (BadGatewayError, ServiceUnavailableError, GatewayTimeoutError)
_AWAY = frozenset({UNREACHABLE, TIMEOUT, DISCONNECTED, UNAVAILABLE})
_NOT_AGAIN = frozenset({FAILED, UNAUTHORIZED, UNSUITABLE, DEADLINE, TIMEOUT})


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


def may_pass(error: APIError) -> bool:
    """Tell whether the model server is away or busy for now, so that asking again later is worth it.

    So it is if it cannot be reached, does not answer in time, says that it is not available (or is known to be away),
    cut its answer off, or takes no more requests at the moment. A request that it refuses, fails at or answers with
    nonsense would end the same way later, and a deadline that passed stays passed.
    """
    return isinstance(error, RateLimitError) or speaks_of_the_server(error)
