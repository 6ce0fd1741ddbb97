"""Messages of a WebSocket: what clients send, and events as they are sent to them."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from starlette.types import Message

from antwort.errors import APIError, BadRequestError
from antwort.server.http.sse import GRACE
from antwort.web.bodies import check_values
from antwort.wire.field_errors import no_json
from antwort.wire.requests import CreateResponse, decode_create

Fields = dict[str, msgspec.Raw]
SendMessages = Callable[[list[bytes]], Awaitable[None]]
_decode = msgspec.json.Decoder(Fields).decode
_encode = msgspec.json.Encoder().encode
_LANE = re.compile(r"[A-Za-z0-9_.-]{1,256}")
_OF_HTTP = ("stream", "stream_options")
"""Fields that mean nothing here: events are all there is. Clients send them all the same."""


class ClientMessage(msgspec.Struct):
    """What a client has sent: a request for a response, the end of one, or the reason why it is neither."""

    size: int
    create: CreateResponse | None = None
    generate: bool = True
    """Whether the model is to be asked; otherwise the request is only made ready to be continued."""
    lane: str | None = None
    """What the client calls `stream_id`: each event of the answer carries it."""
    previous: str | None = None
    cancels: str | None = None
    """The response that is to end as it is."""
    error: APIError | None = None


def read_message(event: Message, max_values: int) -> ClientMessage:
    """Read a message. Whatever is wrong with it is an error in the message, to be told in its turn."""
    text: str | None = event.get("text")
    if text is None:
        error = BadRequestError("Send text frames with JSON, not binary frames.", code="invalid_frame")
        return ClientMessage(len(event.get("bytes") or b""), error=error)
    message = ClientMessage(len(text))
    try:
        check_values(text, max_values)
        _read(text, message)
    except APIError as error:
        message.error = error
    return message


def _read(text: str, message: ClientMessage) -> None:
    fields = _fields(text)
    message.lane = _lane(fields)
    message.previous = _value(fields.get("previous_response_id"), str)
    kind = _value(fields.pop("type", None), str)
    if kind == "response.cancel":
        message.cancels = _cancelled(fields)
        return
    if kind != "response.create":
        raise _unknown_type(kind)
    message.generate = _generate(fields)
    for name in _OF_HTTP:
        fields.pop(name, None)
    create = decode_create(_encode(fields))
    _check_possible(create)
    message.create = create


def _fields(text: str) -> Fields:
    """Return the fields of a frame."""
    try:
        return _decode(text)
    except msgspec.ValidationError as error:
        raise BadRequestError(f"A frame must be a JSON object: {error}.", code="invalid_type") from None
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise no_json(text, error, "The frame") from None


def _unknown_type(kind: str | None) -> BadRequestError:
    """Return the error for a frame whose type is none of those taken."""
    if kind == "response.steer":
        return BadRequestError(
            "Steering is not supported by this server. Send what you have to say with the next 'response.create'.",
            param="type",
            code="steering_not_supported",
        )
    if kind == "response.inject":
        return BadRequestError(
            "Nothing can be injected into a response here: what its sub-agents call is executed by the server. Send "
            "the outputs of your own functions with the next 'response.create'.",
            param="type",
            code="inject_not_supported",
        )
    named = "no type" if kind is None else f"the type '{kind[:64]}'"
    return BadRequestError(
        f"The frame has {named}; those taken are 'response.create' and 'response.cancel'.",
        param="type",
        code="unknown_type",
    )


def _check_possible(create: CreateResponse) -> None:
    """Refuse what only a request over HTTP can ask for."""
    if create.background:
        raise BadRequestError(
            "'background' is not possible on a WebSocket. Create the response with POST /v1/responses.",
            param="background",
            code="unsupported_parameter",
        )
    if create.multi_agent is not None and create.multi_agent.enabled:
        raise BadRequestError(
            "'multi_agent' is not possible on a WebSocket: nothing can be injected into a response here. Create the "
            "response with POST /v1/responses, or name the functions for sub-agents in 'tools'.",
            param="multi_agent",
            code="unsupported_parameter",
        )


def _value(raw: msgspec.Raw | None, kind: Any) -> Any:
    """Return a field if it is of a type, else None."""
    if raw is None:
        return None
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.MsgspecError, UnicodeError):
        return None


def _lane(fields: Fields) -> str | None:
    raw = fields.pop("stream_id", None)
    if raw is None or bytes(raw) == b"null":
        return None
    lane: str | None = _value(raw, str)
    if lane is None or not _LANE.fullmatch(lane):
        raise BadRequestError(
            "Invalid value for 'stream_id': it must be 1 to 256 letters, digits, underscores, hyphens or periods.",
            param="stream_id",
            code="invalid_value",
        )
    return lane


def _cancelled(fields: Fields) -> str:
    response_id: str | None = _value(fields.get("response_id"), str)
    if response_id is None:
        raise BadRequestError(
            "A frame of the type 'response.cancel' needs a 'response_id': the response to cancel.",
            param="response_id",
            code="missing_required_parameter",
        )
    return response_id


def _generate(fields: Fields) -> bool:
    raw = fields.pop("generate", None)
    value = True if raw is None or bytes(raw) == b"null" else _value(raw, bool)
    if not isinstance(value, bool):
        raise BadRequestError(
            "Invalid value for 'generate': use true or false.", param="generate", code="invalid_value"
        )
    return value


def error_message(error: APIError, lane: str | None) -> bytes:
    """Return an error as a message: the envelope with the status that HTTP would have."""
    code = error.code or error.type  # the contract wants one
    body: dict[str, Any] = {"type": "error", "status": error.status}
    body["error"] = {**error.envelope()["error"], "code": code}
    if error.headers:
        body["error"]["headers"] = error.headers
    if lane is not None:
        body["stream_id"] = lane
    return _encode(body)


class MessageStream:
    """The sink of a response on a WebSocket: one message for each event, in order, sent when the loop says so."""

    def __init__(self, send: SendMessages, lane: str | None) -> None:
        self._send = send
        self._messages: list[bytes] = []
        self._sending = asyncio.Lock()
        self._tail = b"" if lane is None else b',"stream_id":%s' % _encode(lane)
        self._now = asyncio.get_running_loop().time
        self._begun = self._now()
        self._beating = False
        self.started = False

    def put(self, kind: str, *events: bytes) -> None:
        """Take events of one type."""
        tail = self._tail
        if kind == "error":  # on a WebSocket it has a status, even in the middle of a response
            status = 429 if msgspec.json.decode(events[0])["code"] == "rate_limit_exceeded" else 500
            tail += b',"status":%d' % status
        self._messages += [b"%s%s}" % (data[:-1], tail) for data in events] if tail else events

    async def flush(self) -> None:
        """Send what was taken; wait while the client does not read."""
        async with self._sending:
            messages, self._messages = self._messages, []
            if messages:
                self.started = True
                await self._send(messages)

    def is_due(self, silence: float) -> bool:  # noqa: ARG002 - pings are the signs of life here
        """Tell whether the beginning is to be told, although the model has said nothing yet."""
        return not self.started and not self._beating and self._now() - self._begun >= GRACE

    async def beat(self) -> None:
        """Tell the beginning."""
        self._beating = True
        try:
            await self.flush()
        finally:
            self._beating = False
