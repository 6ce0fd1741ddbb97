"""What a request has: what the pipeline leaves in its ASGI scope, its body, and files that come in forms."""

import re
from collections import deque
from collections.abc import AsyncIterator, Mapping
from urllib.parse import unquote_to_bytes

from msgspec import Struct
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope

from antwort.context import Context
from antwort.context.context import EITHER, EVERYTHING
from antwort.errors import AuthenticationError, BadRequestError, PermissionDeniedError, UnsupportedMediaTypeError
from antwort.lazy_imports import compiled_on_use

# --- what the pipeline leaves in the scope ---------------------------------------------------------------------------


CONTEXT = "antwort.context"
"""The key of the ASGI scope under which authentication leaves the context."""
PRINCIPAL = "antwort.principal"
"""The key of the ASGI scope for who has authenticated, whose requests are counted."""
DENIED = "antwort.denied"
"""The key of the ASGI scope for the error with which a caller is refused, until the audit log has it."""
REQUEST_ID = "antwort.request_id"
"""The key of the ASGI scope that holds the request id."""
ROUTE = "antwort.route"
"""The key of the ASGI scope under which routing leaves the pattern it matched, for metrics."""
HEADERS = "antwort.headers"
"""The key of the ASGI scope that holds the headers by name, once somebody has asked for them."""
EXCHANGE = "antwort.exchange"
"""The key of the ASGI scope for the exchange, for who wants to be told when the client leaves; only our server has one.

It also says that the server takes an answer as one message.
"""
WHOLE_BODY = "antwort.whole_body"
"""A key of `http.response.start`: the whole body, so that no other message follows; only for our own server.

It adds the Content-Length itself.
"""
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


def named_headers(scope: Scope) -> Mapping[bytes, bytes]:
    """Return the headers of a request by name, the last of several; made once, as one after the other asks for them."""
    named: Mapping[bytes, bytes] | None = scope.get(HEADERS)
    if named is None:
        named = scope[HEADERS] = dict(scope["headers"])
    return named


def authenticated(scope: Scope) -> Context:
    """Return the context of a request; AuthenticationError if it has none."""
    context = scope.get(CONTEXT)
    if not isinstance(context, Context):
        raise AuthenticationError("Missing credentials. Send 'Authorization: Bearer <API key>'.")
    return context


def method_label(method: str) -> str:
    """Return a method as a label of metrics: what clients invent must not become a time series."""
    return method if method in _METHODS else "OTHER"


def authorize(context: Context | None, scopes: str | None) -> None:
    """Raise PermissionDeniedError unless the caller's credentials carry every scope a route needs, parted by blanks.

    Where several are parted by `|`, one of them is enough.
    """
    if scopes is None or (context is not None and EVERYTHING in context.scopes):
        return
    for needed in scopes.split():
        scope, *others = needed.split(EITHER)
        if context is None:
            raise PermissionDeniedError(f"The credentials lack the scope '{scope}'.")
        if not any(map(context.grants, others)):
            context.require(scope)


# --- bodies ----------------------------------------------------------------------------------------------------------


_JSON = frozenset({b"application/json", b"text/json"})
_UNASKED = frozenset({b"", b"text/plain", b"application/x-www-form-urlencoded", b"multipart/form-data"})
"""What pages may send to other sites before those are asked."""


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


def check_page(headers: Mapping[bytes, bytes]) -> None:
    """Refuse a POST that browsers let a page of any site send without asking the server first.

    Many routes read no body, so the type that they would refuse is looked at for all. What has a header that pages
    cannot set unasked, credentials or another type, a browser has asked about, or it comes from the server's own page.
    """
    if b"origin" not in headers or b"authorization" in headers:
        return
    kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if kind in _UNASKED:
        raise UnsupportedMediaTypeError(
            "Web pages must say that they send JSON (content-type: application/json), even if they send nothing, or"
            " send credentials in the header Authorization."
        )


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


# --- files in forms --------------------------------------------------------------------------------------------------


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
