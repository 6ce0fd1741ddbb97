"""How requests are read: what the head of one says, and how one is written; who sends it, and to whom."""

import asyncio
import functools
import urllib.parse

import httptools


def new_parser(protocol: asyncio.Protocol) -> httptools.HttpRequestParser:
    """Return a parser that calls the `on_…` methods of a protocol."""
    parser = httptools.HttpRequestParser(protocol)
    # A client may go on sending after its last request: that one is answered all the same.
    parser.set_dangerous_leniencies(lenient_data_after_close=True)
    return parser


@functools.lru_cache(maxsize=256)  # most requests are to a few URLs
def located(url: bytes) -> tuple[str, bytes, bytes]:
    """Return the path that a URL has, as it is meant and as it is written, and its query."""
    parsed = httptools.parse_url(url)
    path = parsed.path.decode("ascii")
    return urllib.parse.unquote(path) if "%" in path else path, parsed.path, parsed.query or b""


def written_head(method: bytes, url: bytes, version: str, headers: list[tuple[bytes, bytes]]) -> bytes:
    """Return the head of a request as clients write it."""
    first = b"%s %s HTTP/%s" % (method, url, version.encode())
    return b"\r\n".join([first, *(b"%s: %s" % header for header in headers), b"", b""])


def codings_of(headers: list[tuple[bytes, bytes]]) -> list[bytes]:
    """Return the transfer codings of a body in order; lines of one name are one list, as RFC 9110 has it."""
    return _tokens(headers, b"transfer-encoding")


def wants_websocket(headers: list[tuple[bytes, bytes]]) -> bool:
    """Tell whether the protocol that a client offers is that of WebSockets."""
    return b"upgrade" in _tokens(headers, b"connection") and _tokens(headers, b"upgrade") == [b"websocket"]


def _tokens(headers: list[tuple[bytes, bytes]], name: bytes) -> list[bytes]:
    """Return the elements of a header that is a list, in small letters; empty ones, which count for nothing, too."""
    values = b",".join(value for key, value in headers if key == name)
    return [token.strip(b" \t") for token in values.lower().split(b",")]


def ends_of(transport: asyncio.Transport) -> tuple[tuple[str, int] | None, tuple[str, int] | None]:
    """Return the address of the server and that of the client; None if the client is gone already."""
    sock = transport.get_extra_info("socket")
    try:
        return sock.getsockname()[:2], sock.getpeername()[:2]
    except OSError:
        return None, None
