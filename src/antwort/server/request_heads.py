"""What the head of a request says, and how one is written; who sends it, and to whom."""

import asyncio
import functools
import urllib.parse

import httptools


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


def wants_websocket(headers: list[tuple[bytes, bytes]]) -> bool:
    """Tell whether the protocol that a client offers is that of WebSockets."""
    last = dict(headers)
    offers = map(bytes.strip, last.get(b"connection", b"").lower().split(b","))
    return b"upgrade" in offers and last.get(b"upgrade", b"").lower() == b"websocket"


def ends_of(transport: asyncio.Transport) -> tuple[tuple[str, int] | None, tuple[str, int] | None]:
    """Return the address of the server and that of the client; None if the client is gone already."""
    sock = transport.get_extra_info("socket")
    try:
        return sock.getsockname()[:2], sock.getpeername()[:2]
    except OSError:
        return None, None
