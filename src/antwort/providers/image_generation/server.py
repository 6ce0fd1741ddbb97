"""The image server: what it is asked, how its answers are read, and what is said of its failures."""

import asyncio
import binascii
import contextlib
import logging
import re
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
    HttpClient,
    Image,
    OutboundError,
    OutboundTimeoutError,
    TooLargeError,
    UnreachableError,
)
from antwort.providers.image_generation.settings import ImageGenerationSettings

logger = logging.getLogger(__name__)

OnPartial = Callable[["Picture"], Awaitable[None]]
"""Gets a picture that is not finished yet."""
_LONGEST_REASON = 300
"""Characters of a server's words that the model reads."""
_LONGEST_PROMPT = 32_000
"""Characters of a prompt as the server has written it anew."""
_BESIDES = 1024**2
"""Bytes of an answer besides its pictures."""
_AT_ONCE = 1024**2
"""Characters of a picture that are decoded at once: nobody else runs meanwhile."""
_FOREIGN = re.compile(r"[^A-Za-z0-9+/=]+")
"""What does not belong to base64."""
_LIKE = re.compile(r"[a-zA-Z0-9._-]{1,40}")


class ImageServerError(FunctionError):
    """There is no picture; the text is for the model, and says no address."""


class _LateError(ImageServerError):
    """The picture was not there in time."""

    status = "timeout"


class Picture(msgspec.Struct, frozen=True):
    """A picture as the server has made it."""

    base64: str
    image: Image
    like: Mapping[str, str]
    """What the server says about it: format, quality, size, background."""
    index: int = 0
    """Of one that is not finished."""
    revised_prompt: str | None = None


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
        """Return a picture; ImageServerError says why there is none."""
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
        return await _whole(answer, self._settings.max_bytes)

    async def examine(self, http: HttpClient) -> list[str]:
        """Return what is wrong with the server, as far as a look at its models tells: not all have a list of them."""
        try:
            answer = await http.call("GET", f"{self._base}/models", headers=self._authorization(), time_limit=10)
        except OutboundError as error:
            return [f"url: the image server at {self._base} cannot be asked: {error}"]
        if answer.status in {401, 403}:
            return [f"api_key: the image server at {self._base} refuses it ({answer.status})"]
        return []

    def _authorization(self) -> dict[str, str]:
        key = self._settings.api_key
        return {} if key is None else {"authorization": f"Bearer {key.get_secret_value()}"}

    async def _ask(self, ctx: Context, order: Order, on_partial: OnPartial) -> "tuple[HttpAnswer, _Events]":
        own, fields = self._settings, order.fields
        if order.partial_images:
            fields = {**fields, "stream": True, "partial_images": order.partial_images}
        headers = {"accept": "application/json, text/event-stream", **self._authorization()}
        if order.images:
            path, (body, headers["content-type"]) = "edits", _form(fields, order.images, order.mask)
        else:
            path, body, headers["content-type"] = "generations", msgspec.json.encode(fields), "application/json"
        events = _Events(on_partial, order.partial_images, own.max_bytes)
        try:
            answer = await ctx.http.call(
                "POST",
                f"{self._base}/images/{path}",
                headers=headers,
                body=body,
                time_limit=own.timeout,
                max_bytes=(order.partial_images + 1) * _encoded_size(own.max_bytes) + _BESIDES,
                on_piece=events.take if order.partial_images else None,
            )
        except OutboundError as error:
            logger.warning("The image server failed: %s", error)
            raise _unanswered(error) from None
        return answer, events


class _Events:
    """Reads the events of an answer while it comes: so many pictures as were asked for, none larger than it may be."""

    def __init__(self, on_partial: OnPartial, partial_images: int, max_bytes: int) -> None:
        self._on_partial = on_partial
        self._left = partial_images
        """How many more pictures on the way are wanted."""
        self._max_bytes = max_bytes
        self._rest = bytearray()
        self._last: Picture | None = None
        self._failure: ImageServerError | None = None

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
        if len(self._rest) > _encoded_size(self._max_bytes) + _BESIDES:
            raise _too_large()

    async def _take_data(self, data: bytes) -> None:
        try:
            event: Any = msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return  # such as [DONE]
        if not isinstance(event, dict):
            return
        kind = str(event.get("type"))
        if kind.endswith(".partial_image"):
            if self._left > 0:
                self._left -= 1
                with contextlib.suppress(ImageServerError):  # the one that is finished may come yet
                    await self._on_partial(await _picture(event, event, self._max_bytes))
        elif kind.endswith(".completed"):
            try:
                self._last = await _picture(event, event, self._max_bytes)
            except ImageServerError as error:
                self._failure = error
        elif event.get("error") is not None or kind == "error":
            self._failure = ImageServerError(f"The image server made no picture. {_reason(event)}".strip())

    def picture(self) -> Picture:
        """Return the picture that was finished; an ImageServerError if none was."""
        if self._last is None:
            raise self._failure or ImageServerError("The image server made no picture. Its answer broke off.")
        return self._last


async def _whole(answer: HttpAnswer, max_bytes: int) -> Picture:
    """Return the picture of an answer that is JSON."""
    body: Any = {}
    found: Any = {}
    with contextlib.suppress(ValueError, LookupError, TypeError):
        body = answer.json()
        found = body["data"][0]
    return await _picture(found, body, max_bytes)


async def _picture(found: Any, around: Any, max_bytes: int) -> Picture:
    """Return a picture that an answer has, with what is said around it; an ImageServerError if it is none."""
    encoded = found.get("b64_json") if isinstance(found, dict) else None
    if isinstance(encoded, str) and len(encoded) > _encoded_size(max_bytes):
        raise _too_large()
    try:
        data = await decoded(encoded) if isinstance(encoded, str) else b""
    except (binascii.Error, ValueError):
        data = b""
    if not isinstance(encoded, str) or not data:
        logger.warning("The answer of the image server has no picture as `b64_json`.")
        raise ImageServerError("The answer of the image server has no picture in it.")
    try:
        image = Image.of(data)
    except FunctionError:
        raise ImageServerError("What the image server has made is no picture in PNG, JPEG, GIF or WebP.") from None
    like = {name: value for name, value in around.items() if isinstance(value, str) and _LIKE.fullmatch(value)}
    index, revised = found.get("partial_image_index"), found.get("revised_prompt")
    return Picture(
        encoded,
        image,
        like,
        index if type(index) is int and 0 <= index < 100 else 0,
        revised[:_LONGEST_PROMPT] if isinstance(revised, str) else None,
    )


async def decoded(encoded: str, *, strict: bool = True) -> bytes:
    """Return what is written in base64, decoded on a thread if it is much; a ValueError if it is none.

    What does not belong to it, such as ends of lines, is passed over unless it is `strict`.
    """
    if len(encoded) <= _AT_ONCE:
        return b64decode(encoded, validate=strict)
    return await asyncio.to_thread(_in_pieces, encoded, strict)


def _in_pieces(encoded: str, strict: bool) -> bytes:
    """Decode in pieces, so that other threads have their turns."""
    pieces, rest = list[bytes](), ""
    for start in range(0, len(encoded), _AT_ONCE):
        piece = encoded[start : start + _AT_ONCE]
        if not strict:
            piece = rest + _FOREIGN.sub("", piece)
            whole = len(piece) - len(piece) % 4
            piece, rest = piece[:whole], piece[whole:]
        pieces.append(b64decode(piece, validate=strict))
    return b"".join([*pieces, b64decode(rest)])


def _encoded_size(size: int) -> int:
    """Return how many characters so many bytes have in base64."""
    return (size + 2) // 3 * 4


def _too_large() -> ImageServerError:
    return ImageServerError("The picture is larger than it may be. Ask for a smaller one.")


def _is_about_streams(answer: HttpAnswer) -> bool:
    reason = answer.text().lower()
    return "stream" in reason or "partial_images" in reason


def _refusal(answer: HttpAnswer) -> ImageServerError:
    """Return the error for an answer that is none."""
    logger.warning("The image server answered %d: %s", answer.status, answer.text()[:_LONGEST_REASON])
    if answer.status in {401, 403}:
        return ImageServerError("The image server refuses the key. Its operator must check 'api_key'.")
    if answer.status == 429:
        return ImageServerError("The image server gets too many requests. Try again later.")
    if answer.status in {400, 404, 422}:
        try:
            return ImageServerError(f"The image server refuses to make this picture. {_reason(answer.json())}".strip())
        except ValueError:
            return ImageServerError("The image server refuses to make this picture.")
    return ImageServerError(f"The image server failed with status {answer.status}.")


def _reason(body: Any) -> str:
    error = (body.get("error") or body) if isinstance(body, Mapping) else None
    message = error.get("message") if isinstance(error, Mapping) else error
    return message[:_LONGEST_REASON] if isinstance(message, str) else ""


def _unanswered(error: OutboundError) -> ImageServerError:
    match error:
        case OutboundTimeoutError():
            return _LateError("The image server did not answer in time.")
        case TooLargeError():
            return _too_large()
        case UnreachableError():
            return ImageServerError("The image server cannot be reached. Go on without pictures.")
    return ImageServerError("The answer of the image server cannot be used.")


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
