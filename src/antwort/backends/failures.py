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
    "FAILED",
    "TIMEOUT",
    "UNAUTHORIZED",
    "UNAVAILABLE",
    "UNREACHABLE",
    "UNSUITABLE",
    "counts_against",
    "worth_another_backend",
    "worth_another_try",
]

UNREACHABLE = "backend_unreachable"
"""No connection came about."""
TIMEOUT = "backend_timeout"
"""It did not answer, or not go on, in time."""
BROKEN = "backend_broken"
"""It answered something that is not an answer."""
UNAVAILABLE = "backend_unavailable"
"""It says that it cannot answer now, or failed so often that it is not asked."""
FAILED = "backend_error"
"""It failed at this request; likely it would again."""
UNAUTHORIZED = "backend_unauthorized"
"""It does not take the operator's key."""
UNSUITABLE = "backend_unsuitable"
"""It is not the server the configuration takes it for."""
DEADLINE = "deadline_exceeded"
"""The request's own deadline passed; nobody's fault."""

_SERVER_ERRORS = (BadGatewayError, ServiceUnavailableError, GatewayTimeoutError)


def worth_another_try(error: APIError) -> bool:
    """Tell whether the same request may well succeed a moment later."""
    if isinstance(error, RateLimitError):
        return True
    return isinstance(error, _SERVER_ERRORS) and error.code not in {FAILED, UNAUTHORIZED, UNSUITABLE, DEADLINE}


def worth_another_backend(error: APIError) -> bool:
    """Tell whether another server could do better."""
    return isinstance(error, (*_SERVER_ERRORS, RateLimitError)) and error.code != DEADLINE


def counts_against(error: APIError) -> bool:
    """Tell whether the failure speaks of an ill server: not a busy one, nor a wrong configuration."""
    return isinstance(error, _SERVER_ERRORS) and error.code not in {UNAUTHORIZED, UNSUITABLE, DEADLINE}
