"""The lines of batches: requests as they are read from a file, and what came of them as it is written into one."""

from collections.abc import Awaitable, Callable, Mapping
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import Struct
from typing_extensions import override

from antwort.errors import APIError, AuthenticationError, NotFoundError
from antwort.storage.batches import BatchError, Outcome
from antwort.types import JSON
from antwort.wire.ids import new_id
from antwort.wire.messages.answers import error_body

NO_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_REQUIRED = {"custom_id": str, "method": str, "url": str, "body": dict}
_MOST_ERRORS = 100
_LONGEST_NAME = 512
_MOST_MODELS = 1_000
"""Models that a file may name until they are looked up again."""
_FAILED = 400

CheckModel = Callable[[str], Awaitable[object]]
"""Raises a NotFoundError for a model that cannot be anywhere."""


class BatchLimits(Struct, frozen=True):
    """How much is done at a time, and how long somebody may be silent."""

    parallel: int = 4
    """Requests of all batches that a server has under way."""
    lines: int = 50_000
    line_bytes: int = 4 << 20
    every: float = 2.0
    """Seconds between two looks for batches, and between two signs of life."""
    lease: float = 10.0
    """Seconds without a sign of life after which a batch is taken over."""


class BatchRequest(Struct, frozen=True):
    """What is read of a line that was found to be right: the body is passed on as it is."""

    custom_id: str
    body: msgspec.Raw


class BatchLine(BatchRequest, frozen=True):
    """A request of a batch, and where it stands."""

    number: int


class Unmade(Struct, frozen=True):
    """Why a request was not made, and what it counts as."""

    outcome: Outcome
    code: str
    message: str


CANCELLED = Unmade("canceled", "batch_cancelled", "The batch was cancelled before this request was made.")
EXPIRED = Unmade("expired", "batch_expired", "The batch had expired before this request was made.")


# --- answers ----------------------------------------------------------------------------------------------------------


class AnswerLines:
    """What came of requests, as OpenAI writes it."""

    def made(self, line: BatchLine, request_id: str, status: int, body: JSON) -> JSON:
        """Return the line of an answer."""
        response = {"status_code": status, "request_id": request_id, "body": body}
        return {"id": new_id("batch_req"), "custom_id": line.custom_id, "response": response, "error": None}

    def unmade(self, line: BatchLine, why: Unmade) -> JSON:
        """Return the line of a request that was not made."""
        error = {"code": why.code, "message": why.message}
        return {"id": new_id("batch_req"), "custom_id": line.custom_id, "response": None, "error": error}

    def refused(self, error: APIError, request_id: str) -> JSON:
        """Return the body with which a request is refused."""
        del request_id  # it is in the line
        return error.envelope()


class MessageLines(AnswerLines):
    """What came of requests for messages, as Anthropic writes it."""

    @override
    def made(self, line: BatchLine, request_id: str, status: int, body: JSON) -> JSON:
        fine = status < _FAILED
        return _result(line, {"type": "succeeded", "message": body} if fine else {"type": "errored", "error": body})

    @override
    def unmade(self, line: BatchLine, why: Unmade) -> JSON:
        if why.outcome != "errored":
            return _result(line, {"type": why.outcome})
        return _result(line, {"type": "errored", "error": error_body(AuthenticationError(why.message))})

    @override
    def refused(self, error: APIError, request_id: str) -> JSON:
        return error_body(error, request_id)


def outcome_of(status: int) -> Outcome:
    """Return what a request with an answer counts as."""
    return "succeeded" if status < _FAILED else "errored"


def _result(line: BatchLine, result: JSON) -> JSON:
    return {"custom_id": line.custom_id, "result": result}


# --- requests ---------------------------------------------------------------------------------------------------------


def _digest(name: str) -> bytes:
    return blake2b(name.encode(), digest_size=16).digest()


class LineReader:
    """Reads the lines of a file of requests, and collects what is wrong with them."""

    def __init__(self, endpoint: str, check_model: CheckModel, limits: BatchLimits) -> None:
        self.names: set[bytes] = set()
        """Digests of the names: together they may be long."""
        self.errors: list[BatchError] = []
        self._endpoint = endpoint
        self._check_model = check_model
        self._limits = limits
        self._number = 0
        self._models: dict[bytes, str | None] = {}
        """What is wrong with models, by the digests of their names."""

    @property
    def is_full(self) -> bool:
        """Whether nothing more need be read."""
        return len(self.errors) >= _MOST_ERRORS or self.is_too_long

    @property
    def is_too_long(self) -> bool:
        """Whether there are too many requests, or far too many lines without one."""
        return len(self.names) > self._limits.lines or self._number > 2 * self._limits.lines

    async def take(self, line: bytes) -> None:
        """Read a line."""
        self._number += 1
        if not line.strip():
            return
        if len(line) > self._limits.line_bytes:
            self._refuse("invalid_request", f"The line has more than {self._limits.line_bytes:,} bytes.")
            return
        try:
            found = msgspec.json.decode(line)
        except NO_JSON:
            found = None
        if not isinstance(found, dict):
            self._refuse("invalid_json_line", "The line is not a JSON object.")
            return
        for name, kind in _REQUIRED.items():
            if not isinstance(found.get(name), kind):
                self._refuse("missing_required_parameter", f"Missing required parameter: '{name}'.", name)
                return
        if (problem := self._problem(found)) is not None:
            self._refuse(*problem)
            return
        model = found["body"].get("model")
        if isinstance(model, str) and (wrong := await self._wrong_model(model)) is not None:
            self._refuse("model_not_found", wrong, "body.model")
            return
        self.names.add(_digest(found["custom_id"]))

    def _problem(self, found: Mapping[str, Any]) -> list[str] | None:
        """Return the code, message and parameter of what is wrong with a request, if something is."""
        name, body = found["custom_id"], found["body"]
        url = f"The URL is not {self._endpoint}, the endpoint of the batch."
        length, twice = f"A custom_id has 1 to {_LONGEST_NAME} characters.", f"'{name[:64]}' names another line, too."
        checks = [
            (0 < len(name) <= _LONGEST_NAME, "invalid_request", length, "custom_id"),
            (_digest(name) not in self.names, "duplicate_custom_id", twice, "custom_id"),
            (found["method"] == "POST", "invalid_request", "The method of a request is POST.", "method"),
            (found["url"] == self._endpoint, "invalid_url", url, "url"),
            (not body.get("stream"), "streaming_unsupported", "Requests of a batch cannot be streamed.", "body.stream"),
            (
                not body.get("background"),
                "invalid_request",
                "A batch is in the background as it is.",
                "body.background",
            ),
        ]
        return next((problem for is_right, *problem in checks if not is_right), None)

    async def _wrong_model(self, model: str) -> str | None:
        name = _digest(model)
        if name not in self._models:
            if len(self._models) >= _MOST_MODELS:
                self._models.clear()
            self._models[name] = None
            try:
                await self._check_model(model)
            except NotFoundError as error:
                self._models[name] = error.message
            except APIError:  # nobody can tell now; whoever makes the request will
                pass
        return self._models[name]

    def _refuse(self, code: str, message: str, param: str | None = None) -> None:
        self.errors.append(BatchError(code, message, self._number, param))
