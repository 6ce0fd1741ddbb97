"""Answers: values as JSON, and errors in the envelope of the OpenAI API."""

import logging
from collections.abc import Awaitable
from typing import Any

import msgspec
from pydantic_core import to_json, to_jsonable_python
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response
from starlette.types import Message, Scope, Send

from antwort.concurrency.queues import QueueFullError
from antwort.errors import APIError, BadRequestError, InternalServerError, RateLimitError
from antwort.web.asgi_scope import EXCHANGE, WHOLE_BODY

logger = logging.getLogger(__name__)

# What strangers put into a field that takes anything, such as the schema of a function, may be more than msgspec knows.
_encode = msgspec.json.Encoder(enc_hook=to_jsonable_python).encode


def json_response(value: Any, status: int = 200) -> Response:
    """Write a handler's value: a Response as it is, None as 204, anything else as JSON; ValueError if there is none."""
    if isinstance(value, Response):
        return value
    if value is None or status == 204:
        return Response(status_code=204)
    if isinstance(value, msgspec.Struct):
        return Response(_encode(value), status, media_type="application/json")
    body = to_json(value)
    if b"NaN" in body or b"Infinity" in body:  # a number that JSON does not have, or only the word
        check_numbers(body)
    return Response(body, status, media_type="application/json")


def check_numbers(body: bytes) -> None:
    """Raise ValueError if there is a number that JSON does not have in what was written as JSON."""
    try:
        msgspec.json.decode(body)
    except msgspec.DecodeError:
        raise ValueError("the answer has a NaN or an infinite number in it, which JSON cannot express") from None


def error_response(error: APIError) -> Response:
    """Write an error in the OpenAI envelope."""
    return JSONResponse(error.envelope(), error.status, error.headers)


def as_api_error(error: BaseException, where: str, request_id: str | None = None) -> APIError:
    """Turn whatever a handler raised into what the client may see; the rest goes to the log."""
    if isinstance(error, APIError):
        return error
    if isinstance(error, QueueFullError):
        return RateLimitError(str(error), retry_after=1, code="queue_full")
    if isinstance(error, HTTPException):  # Starlette's own, which authors may know better than ours
        return _from_http(error)
    if isinstance(error, ClientDisconnect):
        left = BadRequestError("The client went away before the body was complete.")
        left.status = 499  # as proxies call it: nobody gets this answer, and it counts as none
        return left
    logger.error("%s failed", where, exc_info=error)
    hint = f" (request id {request_id})" if request_id else ""
    return InternalServerError(f"The server had an error while handling the request; its log has the details{hint}.")


def _from_http(error: HTTPException) -> APIError:
    api_error = APIError(error.detail, headers=error.headers)
    api_error.status = error.status_code
    if error.status_code < 500:
        api_error.type = BadRequestError.type
    return api_error


def send_struct(scope: Scope, send: Send, answer: msgspec.Struct) -> Awaitable[None]:
    """Answer with a struct, in plain ASGI."""
    return send_json(scope, send, _encode(answer))


def send_json(scope: Scope, send: Send, body: bytes) -> Awaitable[None]:
    """Answer with JSON that is written already: in one message, if the server knows such."""
    headers = [(b"content-type", b"application/json")]
    start: Message = {"type": "http.response.start", "status": 200, "headers": headers}
    if EXCHANGE not in scope:
        headers.append((b"content-length", b"%d" % len(body)))
        return _send_both(send, start, {"type": "http.response.body", "body": body})
    start[WHOLE_BODY] = body
    return send(start)


async def _send_both(send: Send, start: Message, body: Message) -> None:
    await send(start)
    await send(body)
