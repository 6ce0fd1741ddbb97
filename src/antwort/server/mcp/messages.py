"""Messages of the Model Context Protocol: JSON-RPC, its errors, and the two eras of versions.

From 2026-07-28 on each request says what its sender is and can; before, both sides introduce themselves first.
"""

from typing import Any

import msgspec
from typing_extensions import override

import antwort
from antwort.errors import AntwortError
from antwort.types import JSON

STATELESS = "2026-07-28"
GREETED = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""Versions whose clients introduce themselves, the newest first."""
UNNAMED = "2025-03-26"
"""The version of whoever names none: the last one whose clients need not."""
IDENTITY: JSON = {"name": "antwort", "version": antwort.__version__}
META = "io.modelcontextprotocol/"
PROGRESS_TOKEN = "progressToken"  # noqa: S105 - a name of the protocol

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
CANCELLED = -32000
RESOURCE_NOT_FOUND = -32002
"""Of versions before 2026-07-28."""
HEADER_MISMATCH = -32020
MISSING_CAPABILITY = -32021
UNSUPPORTED_VERSION = -32022
_STATUSES = {METHOD_NOT_FOUND: 404, INTERNAL_ERROR: 200, CANCELLED: 200}


class RpcError(AntwortError):
    """What a request is answered with that cannot be served."""

    def __init__(self, code: int, message: str, data: JSON | None = None, *, status: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data
        self.status = _STATUSES.get(code, 400) if status is None else status
        """Of an answer over HTTP in the stateless era, and wherever no request could be read."""

    @override
    def __str__(self) -> str:
        return str(self.args[0])

    def answer(self, number: str | int | None) -> JSON:
        """Return it as the answer to a request."""
        error: JSON = {"code": self.code, "message": str(self)}
        if self.data is not None:
            error["data"] = self.data
        return {"jsonrpc": "2.0", "id": number, "error": error}


class RpcMessage(msgspec.Struct, frozen=True):
    """A message: a request, or a notification, which has no number."""

    method: str
    params: JSON
    number: str | int | None = None

    @property
    def meta(self) -> JSON:
        """What its sender says beside the parameters."""
        found = self.params.get("_meta")
        return found if isinstance(found, dict) else {}

    @property
    def progress_token(self) -> str | int | None:
        """What progress is told with; None if nobody wants to know."""
        token = self.meta.get(PROGRESS_TOKEN)
        return token if isinstance(token, str | int) and not isinstance(token, bool) else None

    def answer(self, result: JSON) -> JSON:
        """Return a result as the answer to it."""
        return {"jsonrpc": "2.0", "id": self.number, "result": result}


def decoded(body: bytes | bytearray) -> Any:
    """Return what a body says; an RpcError if it is no JSON."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise RpcError(PARSE_ERROR, "The message is not JSON.") from None


def read_message(value: Any) -> RpcMessage | None:
    """Return a message; None for an answer to something that was asked. An RpcError if it is neither."""
    if not isinstance(value, dict) or value.get("jsonrpc") != "2.0":
        raise RpcError(INVALID_REQUEST, "Send one message of JSON-RPC 2.0.")
    method, params, number = value.get("method"), value.get("params"), value.get("id")
    if method is None and ("result" in value or "error" in value):
        return None
    if not isinstance(method, str):
        raise RpcError(INVALID_REQUEST, "The message has no 'method'.")
    if "id" in value and (isinstance(number, bool) or not isinstance(number, str | int)):
        raise RpcError(INVALID_REQUEST, "The 'id' of a request is a text or a whole number.")
    if params is not None and not isinstance(params, dict):
        raise RpcError(INVALID_PARAMS, "'params' is an object.")
    return RpcMessage(method, params or {}, number)


def number_of(value: Any) -> str | int | None:
    """Return the number of what may be no request."""
    number = value.get("id") if isinstance(value, dict) else None
    return number if isinstance(number, str | int) and not isinstance(number, bool) else None


def unsupported(version: object) -> RpcError:
    """Return the error for a version that is not spoken here."""
    known = [STATELESS, *GREETED]
    message = f"The version '{str(version)[:40]}' of the protocol is not spoken here; {', '.join(known)} are."
    return RpcError(UNSUPPORTED_VERSION, message, {"supported": known, "requested": str(version)[:40]})


def cannot_ask(name: str) -> RpcError:
    """Return the error for a call that waits for somebody whom its client cannot ask."""
    message = f"A call of '{name}' waits for the user, and this client says of itself no 'elicitation'."
    return RpcError(MISSING_CAPABILITY, message, {"requiredCapabilities": {"elicitation": {"form": {}}}})


def notification(method: str, params: JSON) -> JSON:
    """Return a notification."""
    return {"jsonrpc": "2.0", "method": method, "params": params}
