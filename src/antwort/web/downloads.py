"""Files that are sent as they are: to be kept by whoever asks, never shown as pages of this server."""

import asyncio
import mimetypes
from collections.abc import AsyncIterator
from typing import BinaryIO

from starlette.responses import Response, StreamingResponse

_PIECE = 1 << 18
_ANY = "application/octet-stream"


def file_response(file: BinaryIO, name: str) -> Response:
    """Send an open file, which is closed then; its media type is guessed by its name.

    Nobody has looked at it: a browser saves it whatever it is, and lets it do nothing.
    """
    headers = {
        "content-type": media_type(name),
        "content-disposition": "attachment",
        "content-security-policy": "sandbox",
        "x-content-type-options": "nosniff",
    }
    return StreamingResponse(_content(file), headers=headers)


def media_type(name: str) -> str:
    """Return the media type of a file with a name, as far as that tells."""
    guessed, encoding = mimetypes.guess_type(f"./{name}")  # what looks like a URL is none
    return _ANY if guessed is None or encoding is not None else guessed


async def _content(file: BinaryIO) -> AsyncIterator[bytes]:
    with file:
        while piece := await asyncio.to_thread(file.read, _PIECE):
            yield piece
