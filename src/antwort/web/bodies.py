"""Bodies of requests: what they claim to be, their bytes, and how many values they may hold."""

from collections.abc import Mapping

from starlette.requests import ClientDisconnect
from starlette.types import Receive

from antwort.errors import BadRequestError, UnsupportedMediaTypeError

_JSON = frozenset({b"application/json", b"text/json"})


def require_json(headers: Mapping[bytes, bytes]) -> None:
    """Refuse a body that does not claim to be JSON; one that claims nothing is taken from programs, not from web pages.

    Browsers let a page of any site send forms, plain text and bodies without a type to any server, without asking it
    first. They send the page's origin along. A body that was encoded, such as by gzip, is refused as well: nobody here
    decodes one, and what a small one becomes would have to be bounded.
    """
    claimed = headers.get(b"content-type")
    if claimed is not None and claimed not in _JSON:
        _check_media_type(claimed)
    if b"content-encoding" in headers:
        _check_encoding(headers[b"content-encoding"])
    if claimed is None and b"origin" in headers:
        raise UnsupportedMediaTypeError("Web pages must say that they send JSON (content-type: application/json).")


def _check_media_type(value: bytes) -> None:
    kind = value.partition(b";")[0].strip().lower()
    if kind not in _JSON and not kind.endswith(b"+json"):
        shown = kind.decode("latin-1")
        raise UnsupportedMediaTypeError(f"Send JSON (content-type: application/json), not '{shown}'.")


def _check_encoding(value: bytes) -> None:
    encoding = value.strip().lower()
    if encoding not in {b"", b"identity"}:
        shown = encoding.decode("latin-1")
        raise UnsupportedMediaTypeError(
            f"Send the body as it is, without the header Content-Encoding: '{shown}' is not decoded here.",
            headers={"accept-encoding": "identity"},
        )


async def read_body(receive: Receive) -> bytes | bytearray:
    """Read a whole body; ClientDisconnect if the client leaves before its end.

    One that comes in pieces is put together as they come: to keep them until the end would take twice the memory.
    """
    message = await receive()
    first: bytes = message.get("body", b"")
    if message["type"] == "http.request" and not message.get("more_body", False):
        return first
    body = bytearray(first)
    while message["type"] == "http.request" and message.get("more_body", False):
        message = await receive()
        body += message.get("body", b"")
    if message["type"] == "http.disconnect":
        raise ClientDisconnect
    return body


_MARKS = (b",", b"{", b"[")
_UNMARKED = bytes({*range(256)} - {*b',{["'})
_PORTION = 64 * 1024
"""Bytes that are looked at in one step."""


class ValueCount:
    """Counts the values of a JSON text as its pieces come, without reading them: by what begins and parts them.

    What stands within strings does not count: a long text may have any number of commas.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._count = 0
        self._within = False
        self._escaped = False

    def take(self, piece: bytes) -> None:
        """Count the next piece; BadRequestError if it has one value too many."""
        if self._escaped and piece:
            piece = piece[1:]
            self._escaped = False
        if b"\\" in piece:
            piece = piece.replace(rb"\\", b"")
            self._escaped = piece.endswith(b"\\")
            piece = piece.replace(rb"\"", b"")
        # Of a string without marks two quotes are left, and then nothing: there may be many thousands.
        parts = piece.translate(None, _UNMARKED).replace(b'""', b"").split(b'"')
        outside = b"".join(parts[self._within :: 2])
        self._within ^= len(parts) % 2 == 0
        self._count += sum(map(outside.count, _MARKS))
        if self._count > self._limit:
            raise BadRequestError(
                f"The request has more than {self._limit:,} JSON values (server.max_values).", code="too_many_values"
            )


def check_values(text: str, limit: int) -> None:
    """Count the values of a whole JSON text; BadRequestError if there are too many."""
    if len(text) <= limit:  # each takes a character
        return
    values = ValueCount(limit)
    for start in range(0, len(text), _PORTION):
        values.take(text[start : start + _PORTION].encode(errors="replace"))
