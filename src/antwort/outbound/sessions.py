"""Connections to the world outside, by aiohttp, which is loaded when somebody first needs it: most servers never do."""

import ssl
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError
from yarl import URL

from antwort.config import OutboundConfig
from antwort.http_client import HttpAnswer, TooLargeError, UnreachableError
from antwort.outbound.addresses import NotConnectedError, capitalized

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_CONNECT = 5.0
"""Seconds to connect to one address."""
_CHUNK = 64 * 1024
_FAILURES = (aiohttp.ClientError, OSError, HttpProcessingError, UnicodeError)


class Sessions:
    """A session for pages, whose connections are not kept: nobody else should get them; and one for services."""

    def __init__(self, settings: OutboundConfig, tls: ssl.SSLContext | bool) -> None:
        self._settings = settings
        self._tls = tls
        self._sessions: dict[bool, aiohttp.ClientSession] = {}

    async def get(
        self, target: URL, address: str, *, host: str, headers: Mapping[str, str], whose: str, max_bytes: int
    ) -> tuple[HttpAnswer, str | None]:
        """Get a page from an address of its host; also return where it redirects to, if it does."""
        # The connection goes to the address that was checked; the name stays in Host, SNI and certificate.
        asked = self._session(pooled=False).get(
            target.with_host(address),
            headers={**headers, "host": target.raw_authority},
            allow_redirects=False,
            server_hostname=host if target.scheme == "https" else None,
        )
        try:
            with _failures(whose):
                async with asked as response:
                    location = response.headers.get("location")
                    if response.status in _REDIRECTS and location is not None:
                        return HttpAnswer(str(target), response.status, {}, b""), location
                    return await _answer(response, str(target), whose, max_bytes), None
        except aiohttp.ConnectionTimeoutError as error:
            raise not_connected(whose) from error

    async def request(
        self,
        method: str,
        target: URL,
        *,
        url: str,
        params: Mapping[str, str] | None,
        headers: Mapping[str, str],
        body: bytes | None,
        whose: str,
        max_bytes: int,
    ) -> HttpAnswer:
        """Ask a service."""
        with _failures(whose):
            async with self._session(pooled=True).request(
                method, target, params=params, headers=headers, data=body, allow_redirects=False
            ) as response:
                return await _answer(response, url, whose, max_bytes)

    async def close(self) -> None:
        """Close every connection."""
        sessions, self._sessions = list(self._sessions.values()), {}
        for session in sessions:
            await session.close()

    def _session(self, *, pooled: bool) -> aiohttp.ClientSession:
        session = self._sessions.get(pooled)
        if session is None:
            connector = aiohttp.TCPConnector(
                limit=self._settings.max_connections, force_close=not pooled, ssl=self._tls
            )
            session = self._sessions[pooled] = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT),
            )
        return session


@contextmanager
def _failures(whom: str) -> Iterator[None]:
    """Turn what goes wrong inside into errors of ours, but for time that is up, which is the caller's."""
    try:
        yield
    except TimeoutError:
        raise
    except _FAILURES as error:
        raise _unreachable(whom, error) from error


def _unreachable(whom: str, error: Exception) -> UnreachableError:
    """Say what went wrong, without any address."""
    kind = NotConnectedError if isinstance(error, aiohttp.ClientConnectorError) else UnreachableError
    if isinstance(error, ssl.SSLCertVerificationError):
        return kind(f"The certificate of {whom} is not valid.")
    if isinstance(error, aiohttp.ClientSSLError | ssl.SSLError):
        return kind(f"No secure connection to {whom} is possible.")
    if kind is NotConnectedError:
        return not_connected(whom)
    return kind(f"{capitalized(whom)} broke off, or did not answer in HTTP.")


def not_connected(whom: str) -> NotConnectedError:
    """Return the error for somebody to whom no connection came about."""
    return NotConnectedError(f"{capitalized(whom)} cannot be reached.")


async def _answer(response: aiohttp.ClientResponse, url: str, whose: str, max_bytes: int) -> HttpAnswer:
    body = await _read_body(response, whose, max_bytes)
    headers = {name.lower(): value for name, value in response.headers.items()}
    return HttpAnswer(url, response.status, headers, body)


# --- bodies, read up to a limit, which also holds for what comes out of a compressed one ------------------------------


async def _read_body(response: aiohttp.ClientResponse, whose: str, limit: int) -> bytes:
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
