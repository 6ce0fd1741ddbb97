"""Reading a body up to a limit, which also holds for what comes out of a compressed one."""

import zlib

import aiohttp

from antwort.http_client import TooLargeError, UnreachableError

__all__ = ["ACCEPTED", "read_body"]

ACCEPTED = "gzip, deflate"
_CHUNK = 64 * 1024


async def read_body(response: aiohttp.ClientResponse, whose: str, limit: int) -> bytes:
    """Return the body of an answer as it was before its compression; errors say `whose` answer it is."""
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding in {"", "identity"}:
        return await _read(response, whose, limit)
    if encoding not in {"gzip", "x-gzip", "deflate"}:
        raise UnreachableError(f"The answer of {whose} is compressed in a way that was not asked for.")
    return _unpacked(await _read(response, whose, limit), whose, limit)


async def _read(response: aiohttp.ClientResponse, whose: str, limit: int) -> bytes:
    if (response.content_length or 0) > limit:
        raise _too_large(whose, limit)
    body = bytearray()
    async for chunk in response.content.iter_chunked(_CHUNK):
        body += chunk
        if len(body) > limit:
            raise _too_large(whose, limit)
    return bytes(body)


def _unpacked(packed: bytes, whose: str, limit: int) -> bytes:
    # `deflate` should have a zlib header; some servers send it bare.
    bare = packed[:1] not in {b"\x1f", b"\x78"}
    unpacker = zlib.decompressobj(-zlib.MAX_WBITS if bare else zlib.MAX_WBITS | 32)
    try:
        body = unpacker.decompress(packed, limit + 1)
    except zlib.error:
        raise UnreachableError(f"The answer of {whose} is broken: it cannot be decompressed.") from None
    if len(body) > limit:
        raise _too_large(whose, limit)
    if not unpacker.eof:
        raise UnreachableError(f"The answer of {whose} broke off.")
    return body


def _too_large(whose: str, limit: int) -> TooLargeError:
    return TooLargeError(f"The answer of {whose} is larger than the {limit:,} bytes that are read.")
