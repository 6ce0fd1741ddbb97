"""Files that come in forms, read as they come."""

import re
from collections import deque
from collections.abc import AsyncIterator, Mapping
from urllib.parse import unquote_to_bytes

from msgspec import Struct
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import Request

from antwort.errors import BadRequestError, UnsupportedMediaTypeError
from antwort.lazy_imports import compiled_on_use

_HEADER_BYTES = 16 * 1024
"""Bytes of the headers of one part."""
_OTHER_BYTES = 64 * 1024
"""Bytes of all fields but the file."""
_QUOTED = compiled_on_use(rb'"(?:\\.|[^"\\])*"')
_EXTENDED_NAME = compiled_on_use(rb";\s*filename\*\s*=\s*utf-8'[^';]*'([^;\s]+)", re.IGNORECASE)


class Upload(Struct, frozen=True):
    """A file that is being uploaded."""

    filename: str
    """What the client calls it; nobody has checked it."""
    chunks: AsyncIterator[bytes]
    """Its content, as it comes; whoever reads it limits it."""
    fields: Mapping[str, str]
    """The other fields of the form: those before the file, and when all of the content was read those behind it."""


async def open_upload(request: Request, field: str, *, instead: str | None = None) -> Upload:
    """Return the file in a field of a form; BadRequestError if the form is none, or does not have it.

    A form that has the field `instead` and no file is an upload without a name and without content. Forms of web pages
    need credentials in a header: browsers let a page of any site send a form to any server.
    """
    kind, options = parse_options_header(request.headers.get("content-type"))
    boundary = options.get(b"boundary")
    if kind != b"multipart/form-data" or not boundary:
        raise UnsupportedMediaTypeError("Send the file as a form (content-type: multipart/form-data).")
    if "origin" in request.headers and "authorization" not in request.headers:
        raise UnsupportedMediaTypeError("Web pages must send credentials in the header Authorization to upload files.")
    form = _Form(boundary, field)
    pieces = request.stream()
    before = 0
    async for piece in pieces:
        form.read(piece)
        if form.filename is not None:
            return Upload(form.filename, _content(form, pieces), form.fields)
        before += len(piece)
        if before > _OTHER_BYTES:
            break
    if instead is not None and form.fields.get(instead):
        return Upload("", _content(form, pieces), form.fields)
    raise BadRequestError(f"The form has no file in its field '{field}'.", param=field)


async def _content(form: "_Form", pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    while True:
        while form.content:
            yield form.content.popleft()
        if form.is_whole:
            break
        piece = await anext(pieces, b"")
        if not piece:
            raise BadRequestError("The form has no end.")
        form.read(piece)
    async for piece in pieces:  # the answer comes when the body has come
        form.read(piece)


class _Form:
    """A form, as far as it has come."""

    def __init__(self, boundary: bytes, field: str) -> None:
        self._wanted = field.encode()
        self._name = b""
        self._value = b""
        self._headers: dict[bytes, bytes] = {}
        self._size = 0
        self._text = bytearray()
        self._within = False
        self._field: str | None = None
        self._other_bytes = 0
        self.fields: dict[str, str] = {}
        self.filename: str | None = None
        self.content: deque[bytes] = deque()
        self.is_whole = False
        try:
            self._parser = MultipartParser(
                boundary,
                {
                    "on_part_begin": self._begin,
                    "on_header_field": self._header_name,
                    "on_header_value": self._header_value,
                    "on_header_end": self._header_end,
                    "on_headers_finished": self._headers_end,
                    "on_part_data": self._data,
                    "on_part_end": self._end,
                },
            )
        except FormParserError as error:  # such as a boundary that is too long
            raise BadRequestError(f"The form cannot be read: {error}") from error

    def read(self, piece: bytes) -> None:
        """Take a piece."""
        try:
            self._parser.write(piece)
        except FormParserError as error:
            raise BadRequestError(f"The form cannot be read: {error}") from error

    def _begin(self) -> None:
        self._headers, self._size, self._field = {}, 0, None
        self._text = bytearray()

    def _header_name(self, data: bytes, start: int, end: int) -> None:
        self._name += self._counted(data[start:end])

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += self._counted(data[start:end])

    def _counted(self, data: bytes) -> bytes:
        self._size += len(data)
        if self._size > _HEADER_BYTES:
            raise BadRequestError("A part of the form has too many headers.")
        return data

    def _header_end(self) -> None:
        self._headers[self._name.lower()] = self._value
        self._name = self._value = b""

    def _headers_end(self) -> None:
        disposition = self._headers.get(b"content-disposition", b"")
        _, options = parse_options_header(disposition)
        name = _file_name(disposition, options)
        if self.filename is None and options.get(b"name") == self._wanted and name is not None:
            self.filename = name.decode(errors="replace")
            self._within = True
        elif name is None:
            self._field = options.get(b"name", b"").decode(errors="replace")

    def _data(self, data: bytes, start: int, end: int) -> None:
        if self._within:
            self.content.append(data[start:end])
            return
        self._other_bytes += end - start
        if self._other_bytes > _OTHER_BYTES:
            raise BadRequestError("The fields beside the file are too long.")
        if self._field is not None:
            self._text += data[start:end]

    def _end(self) -> None:
        if self._within:
            self._within = False
            self.is_whole = True
        elif self._field is not None:
            self.fields[self._field] = self._text.decode(errors="replace")


def _file_name(disposition: bytes, options: Mapping[bytes, bytes]) -> bytes | None:
    """Return the name of the file in a part. One that is spelt out in UTF-8 goes before one that is made ASCII.

    .NET sends both if a name is not ASCII, some others only the first.
    """
    extended = _EXTENDED_NAME.search(_QUOTED.sub(b'""', disposition)) if b"*" in disposition else None
    return options.get(b"filename") if extended is None else unquote_to_bytes(extended[1])
