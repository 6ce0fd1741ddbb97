"""The image server: what it is asked, how its answers are read, and what is said of its failures."""

import binascii
import contextlib
import logging
import secrets
from base64 import b64decode
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from antwort.provider import (
    JSON,
    Context,
    FunctionError,
    HttpAnswer,
    OutboundError,
    OutboundTimeoutError,
    TooLargeError,
    UnreachableError,
)
from antwort.providers.image_generation.settings import ImageGenerationSettings

logger = logging.getLogger(__name__)

OnPartial = Callable[[JSON], Awaitable[None]]
"""Gets a picture that is not finished yet, as the server sends it."""
_MOST_PICTURES = 4
"""Pictures that one answer has: up to three that are not finished, and the one that is."""
_LONGEST_REASON = 300
"""Characters of a server's words that the model reads."""


class ImageError(FunctionError):
    """There is no picture; the text is for the model, and says no address."""


class _LateError(ImageError):
    """The picture was not there in time."""

    status = "timeout"


class Picture(msgspec.Struct, frozen=True):
    """A picture as the server has made it."""

    base64: str
    like: JSON
    """What the server says about it: format, quality, size, background."""
    revised_prompt: str | None = None

    @property
    def data(self) -> bytes:
        """Its bytes."""
        return b64decode(self.base64)


class InputFile(msgspec.Struct, frozen=True):
    """A picture that another is made from."""

    data: bytes
    media_type: str


class Order(msgspec.Struct, frozen=True):
    """A picture that is wanted: a new one, or one that is made from others."""

    fields: JSON
    images: Sequence[InputFile] = ()
    mask: InputFile | None = None
    partial_images: int = 0
    """How many pictures are wanted on the way."""


class ImageServer:
    """Asks for pictures, and for those on the way where the server streams."""

    def __init__(self, settings: ImageGenerationSettings) -> None:
        self._settings = settings
        self._base = settings.url.rstrip("/")
        self._streams = True
        """Whether it is known not to refuse to stream."""

    async def make(self, ctx: Context, order: Order, on_partial: OnPartial) -> Picture:
        """Return a picture; ImageError says why there is none."""
        if not self._streams:
            order = replace(order, partial_images=0)
        answer, events = await self._ask(ctx, order, on_partial)
        if order.partial_images and answer.status in {400, 404, 422} and _is_about_streams(answer):
            logger.info("The image server does not stream; it is asked for whole pictures from now on.")
            self._streams = False
            answer, events = await self._ask(ctx, replace(order, partial_images=0), on_partial)
        if answer.status != 200:
            raise _refusal(answer)
        if answer.content_type == "text/event-stream":
            return events.picture()
        return _whole(answer)

    async def _ask(self, ctx: Context, order: Order, on_partial: OnPartial) -> "tuple[HttpAnswer, _Events]":
        own, fields = self._settings, order.fields
        if order.partial_images:
            fields = {**fields, "stream": True, "partial_images": order.partial_images}
        headers = {"accept": "application/json, text/event-stream"}
        if own.api_key is not None:
            headers["authorization"] = f"Bearer {own.api_key.get_secret_value()}"
        if order.images:
            path, (body, headers["content-type"]) = "edits", _form(fields, order.images, order.mask)
        else:
            path, body, headers["content-type"] = "generations", msgspec.json.encode(fields), "application/json"
        events = _Events(on_partial)
        try:
            answer = await ctx.http.call(
                "POST",
                f"{self._base}/images/{path}",
                headers=headers,
                body=body,
                time_limit=own.timeout,
                max_bytes=_MOST_PICTURES * own.max_bytes * 3 // 2,
                on_piece=events.take if order.partial_images else None,
            )
        except OutboundError as error:
            logger.warning("The image server failed: %s", error)
            raise _unanswered(error) from None
        return answer, events


class _Events:
    """Reads the events of an answer while it comes."""

    def __init__(self, on_partial: OnPartial) -> None:
        self._on_partial = on_partial
        self._rest = bytearray()
        self._last: JSON | None = None
        self._failure: str | None = None

    async def take(self, piece: bytes) -> None:
        """Take the next piece of the body."""
        searched = max(0, len(self._rest) - 1)
        self._rest += piece
        while (end := self._rest.find(b"\n", searched)) >= 0:
            line = bytes(self._rest[:end]).strip()
            del self._rest[: end + 1]
            searched = 0
            if line.startswith(b"data:"):
                await self._take_data(line[5:].strip())

    async def _take_data(self, data: bytes) -> None:
        try:
            event: Any = msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeError):
            return  # such as [DONE]
        if not isinstance(event, dict):
            return
        kind = str(event.get("type"))
        if kind.endswith(".partial_image") and _is_picture(event.get("b64_json")):
            await self._on_partial(event)
        elif kind.endswith(".completed"):
            self._last = event
        elif event.get("error") is not None or kind == "error":
            self._failure = _reason(event)

    def picture(self) -> Picture:
        """Return the picture that was finished; an ImageError if none was."""
        if self._last is None or not _is_picture(self._last.get("b64_json")):
            raise ImageError(f"The image server made no picture. {self._failure or 'Its answer broke off.'}")
        return Picture(self._last["b64_json"], self._last)


def _whole(answer: HttpAnswer) -> Picture:
    """Return the picture of an answer that is JSON."""
    body: Any = {}
    picture: Any = None
    revised: Any = None
    with contextlib.suppress(ValueError, LookupError, TypeError, AttributeError):
        body = answer.json()
        found = body["data"][0]
        picture, revised = found["b64_json"], found.get("revised_prompt")
    if not isinstance(picture, str) or not _is_picture(picture):
        logger.warning("The answer of the image server has no picture as `b64_json`.")
        raise ImageError("The answer of the image server has no picture in it.")
    return Picture(picture, body, revised if isinstance(revised, str) else None)


def _is_picture(value: Any) -> bool:
    if not isinstance(value, str) or not value:
        return False
    try:
        return bool(b64decode(value, validate=True))
    except (binascii.Error, ValueError):
        return False


def _is_about_streams(answer: HttpAnswer) -> bool:
    reason = answer.text().lower()
    return "stream" in reason or "partial_images" in reason


def _refusal(answer: HttpAnswer) -> ImageError:
    """Return the error for an answer that is none."""
    logger.warning("The image server answered %d: %s", answer.status, answer.text()[:_LONGEST_REASON])
    if answer.status in {401, 403}:
        return ImageError("The image server refuses the key. Its operator must check 'api_key'.")
    if answer.status == 429:
        return ImageError("The image server gets too many requests. Try again later.")
    if answer.status in {400, 404, 422}:
        try:
            return ImageError(f"The image server refuses to make this picture. {_reason(answer.json())}".strip())
        except ValueError:
            return ImageError("The image server refuses to make this picture.")
    return ImageError(f"The image server failed with status {answer.status}.")


def _reason(body: Any) -> str:
    error = body.get("error") if isinstance(body, Mapping) else None
    message = error.get("message") if isinstance(error, Mapping) else error
    return message[:_LONGEST_REASON] if isinstance(message, str) else ""


def _unanswered(error: OutboundError) -> ImageError:
    match error:
        case OutboundTimeoutError():
            return _LateError("The image server did not answer in time.")
        case TooLargeError():
            return ImageError("The picture is larger than it may be. Ask for a smaller one.")
        case UnreachableError():
            return ImageError("The image server cannot be reached. Go on without pictures.")
    return ImageError("The answer of the image server cannot be used.")


def _form(fields: JSON, images: Sequence[InputFile], mask: InputFile | None) -> tuple[bytes, str]:
    """Return the body of a form with files, and its media type."""
    mark = f"antwort{secrets.token_hex(16)}"
    name = "image" if len(images) == 1 else "image[]"
    files = [(name, f"image{index}", image) for index, image in enumerate(images)]
    if mask is not None:
        files.append(("mask", "mask", mask))
    parts = []
    for field, value in fields.items():
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        head = f'--{mark}\r\ncontent-disposition: form-data; name="{field}"\r\n\r\n'
        parts.append(f"{head}{text}\r\n".encode(errors="replace"))
    for field, filename, image in files:
        named = f"{filename}.{image.media_type.rpartition('/')[2]}"
        head = f'--{mark}\r\ncontent-disposition: form-data; name="{field}"; filename="{named}"\r\n'
        parts += [f"{head}content-type: {image.media_type}\r\n\r\n".encode(), image.data, b"\r\n"]
    return b"".join([*parts, f"--{mark}--\r\n".encode()]), f"multipart/form-data; boundary={mark}"
