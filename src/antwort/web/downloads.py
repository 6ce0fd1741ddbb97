"""Files that are sent as they are: to be kept by whoever asks, never shown as pages of this server."""

import asyncio
import mimetypes
from collections.abc import AsyncIterable, AsyncIterator
from typing import BinaryIO
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.responses import Response, StreamingResponse

from antwort.lazy_imports import compiled_on_use

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
