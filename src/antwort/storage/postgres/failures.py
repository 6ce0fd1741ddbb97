"""What an error of PostgreSQL means: to be done again, the caller's fault, or the database's."""

import logging

import psycopg

from antwort.errors import BadRequestError, ConflictError
from antwort.storage.base import StoreFullError, StoreUnavailableError

logger = logging.getLogger(__name__)

_FULL = "53100"
_PASSING = {"40001", "40P01"}
"""Two transactions were in each other's way: a serialization failure, a deadlock."""
_UNAVAILABLE = {
    "25006": "it is read-only",
    "42501": "access is denied",
    "42P01": "its tables are missing",
    _FULL: "the disk is full",
    "53200": "there is no memory left",
    "55P03": "another process holds it",
    "57014": "it takes too long",
    "58030": "the disk does not answer",
    "XX001": "it is damaged",
    "XX002": "it is damaged",
}
_UNSTORABLE = {
    "22021": "Text that holds a NUL character cannot be stored.",
    "54000": "An id is too long to be stored.",
}


def is_passing(error: psycopg.Error) -> bool:
    """Tell whether a transaction may well succeed when it is done again."""
    return error.sqlstate in _PASSING


def report(error: Exception) -> Exception:
    """Log what concerns the operator of an error, and return what the caller shall see."""
    if not isinstance(error, psycopg.Error):
        return error
    if isinstance(error, psycopg.IntegrityError):
        return ConflictError("This is stored already.")
    state = error.sqlstate or ""
    if isinstance(error, psycopg.DataError) and not state:  # found by the driver
        state = "22021"
    if state in _UNSTORABLE:
        return BadRequestError(_UNSTORABLE[state])
    reason = _UNAVAILABLE.get(state)
    if reason is None and isinstance(error, psycopg.OperationalError):  # of the server or its machine, not of ours
        reason = "the server reports a failure"
    return error if reason is None else report_unavailable(reason, error)


def report_unavailable(reason: str, error: Exception | None) -> StoreUnavailableError:
    """Log that the database cannot be used now, and return the error for it."""
    cause = str(error).strip().splitlines()[:1] if error is not None else []
    logger.error("the database cannot be used: %s%s", reason, f" ({cause[0]})" if cause else "")
    kind = StoreFullError if isinstance(error, psycopg.Error) and error.sqlstate == _FULL else StoreUnavailableError
    return kind(f"The database cannot be used now: {reason}.")
