"""Answers: values as JSON, errors in the envelope of the OpenAI API, and files as they are."""

import asyncio
import logging
import mimetypes
from collections.abc import AsyncIterable, AsyncIterator, Awaitable
from typing import Any, BinaryIO
from urllib.parse import quote

import msgspec
from pydantic_core import to_json, to_jsonable_python
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Message, Scope, Send

from antwort.concurrency.slots import QueueFullError
from antwort.errors import APIError, BadRequestError, InternalServerError, RateLimitError
from antwort.lazy_imports import compiled_on_use
from antwort.web.requests import EXCHANGE, WHOLE_BODY
from antwort.wire.messages.answers import MESSAGES, error_body, error_status

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


def error_response(error: APIError, path: str = "", request_id: str | None = None) -> Response:
    """Write an error in the OpenAI envelope or, on the paths of messages, in Anthropic's."""
    if path.startswith(MESSAGES):
        return JSONResponse(error_body(error, request_id), error_status(type(error), error.status), error.headers)
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


# --- files, sent as they are: to be kept by whoever asks, never shown as pages of this server ------------------------


_PIECE = 1 << 18
_ANY = "application/octet-stream"
_RANGE = compiled_on_use(r"bytes=([0-9]{0,20})-([0-9]{0,20})")


def file_response(file: BinaryIO, name: str) -> Response:
    """Send an open file, which is closed then; its media type is guessed by its name.

    Nobody has looked at it: a browser saves it whatever it is, and lets it do nothing.
    """
    return StreamingResponse(_content(file), headers=_headers(name))


def content_response(
    content: AsyncIterable[bytes], name: str, *, size: int, part: range | None = None, kind: str | None = None
) -> Response:
    """Send a content as `file_response` does a file, all of it or, with `part`, what was asked for.

    `kind` is its media type, where more is known of it than the name.
    """
    headers = {**_headers(name), "accept-ranges": "bytes", "content-length": str(size if part is None else len(part))}
    if kind is not None:
        headers["content-type"] = kind
    headers["content-disposition"] = f"attachment; filename*=UTF-8''{quote(name, safe='')}"
    if part is not None:
        headers["content-range"] = f"bytes {part.start}-{part.stop - 1}/{size}"
    return StreamingResponse(content, 200 if part is None else 206, headers)


def asked_range(header: str | None, size: int) -> range | None:
    """Return the bytes that a Range header asks for; None for all, since a form that is not known does not count.

    Starlette's HTTPException, a 416, if there are no such bytes.
    """
    found = None if header is None else _RANGE.fullmatch(header.strip())
    if found is None or not any(found.groups()):
        return None
    first, last = found.groups()
    start = int(first) if first else max(size - int(last), 0)
    stop = min(int(last) + 1, size) if first and last else size
    if start >= stop:
        raise HTTPException(416, f"There are {size:,} bytes, and none of those.", {"content-range": f"bytes */{size}"})
    return range(start, stop)


def _headers(name: str) -> dict[str, str]:
    return {
        "content-type": media_type(name),
        "content-disposition": "attachment",
        "content-security-policy": "sandbox",
        "x-content-type-options": "nosniff",
    }


def media_type(name: str) -> str:
    """Return the media type of a file with a name, as far as that tells."""
    guessed, encoding = mimetypes.guess_type(f"./{name}")  # what looks like a URL is none
    return _ANY if guessed is None or encoding is not None else guessed


async def _content(file: BinaryIO) -> AsyncIterator[bytes]:
    with file:
        while piece := await asyncio.to_thread(file.read, _PIECE):
            yield piece
