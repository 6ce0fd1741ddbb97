"""The client: one guarded way for URLs that strangers name, one plain way for those of the operator."""

import asyncio
import logging
import socket
import ssl
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError
from typing_extensions import override
from yarl import URL

import antwort
from antwort.config import OutboundConfig
from antwort.http_client import (
    BlockedError,
    HttpAnswer,
    HttpClient,
    OutboundError,
    OutboundTimeoutError,
    TooLargeError,
    UnreachableError,
)
from antwort.outbound.addresses import Allowed, check_port, is_public, read_url, shown

logger = logging.getLogger(__name__)

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""From a host and port to addresses; raises OSError if there are none."""

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_MAX_REDIRECTS = 5
_MAX_ADDRESSES = 4
"""Addresses of one host that are tried, one after the other."""
_CONNECT = 5.0
"""Seconds to connect to one of them."""
_SERVICE = "the service"
"""What errors call a server that the operator configured: its name and address are not for models."""
_ACCEPTED = "gzip, deflate"
_CHUNK = 64 * 1024
_FAILURES = (aiohttp.ClientError, OSError, HttpProcessingError, UnicodeError)


class Outbound(HttpClient):
    """Sends requests to the world outside. It belongs to one event loop; close it there.

    A guarded request resolves the host once, checks every address, and connects to the very address that was checked;
    each redirect goes the same way. No proxy is used, no cookie kept.
    """

    def __init__(
        self,
        settings: OutboundConfig | None = None,
        *,
        resolve: Resolve | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._settings = settings or OutboundConfig()
        self._allowed = Allowed(self._settings.allow)
        self._resolve = resolve or _resolve
        self._tls: ssl.SSLContext | bool = tls or True
        self._sessions: dict[bool, aiohttp.ClientSession] = {}

    @override
    async def fetch(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        time_limit: float | None = None,
        max_bytes: int | None = None,
        admit: Callable[[str], bool] | None = None,
    ) -> HttpAnswer:
        target = read_url(url)
        async with self._in_time(_quoted(str(target.raw_host)), time_limit):
            for _ in range(_MAX_REDIRECTS + 1):
                if admit is not None and not admit(str(target.raw_host)):
                    raise BlockedError(f"Pages of '{shown(str(target.raw_host))}' may not be opened here.")
                answer, location = await self._fetch_once(target, headers or {}, max_bytes)
                if location is None:
                    return answer
                target = read_url(_joined(target, location))
        raise UnreachableError(f"'{shown(url)}' redirects more than {_MAX_REDIRECTS} times.")

    async def check(self, url: str) -> None:
        """Raise an OutboundError unless a model server may be given a URL that a stranger names.

        What it resolves to here and now is what is checked; nobody is asked for it.
        """
        if self._settings.model_urls == "none":
            raise BlockedError("URLs are not taken here; send the content itself, as a data URL.")
        target = read_url(url)
        host, port = _host_and_port(target)
        if self._settings.model_urls == "public" and not self._allowed.host(host, port):
            async with self._in_time(_quoted(host), None):
                await self._checked(host, port)

    async def _fetch_once(
        self, target: URL, headers: Mapping[str, str], max_bytes: int | None
    ) -> tuple[HttpAnswer, str | None]:
        """Get one URL; also return where it redirects to, if it does."""
        host, port = _host_and_port(target)
        failure: Exception | None = None
        for address in (await self._checked(host, port))[:_MAX_ADDRESSES]:
            try:
                # The connection goes to the address that was checked; the name stays in Host, SNI and certificate.
                async with self._session(pooled=False).get(
                    target.with_host(address),
                    headers={**self._headers(headers), "host": target.raw_authority},
                    allow_redirects=False,
                    server_hostname=host if target.scheme == "https" else None,
                ) as response:
                    location = response.headers.get("location")
                    if response.status in _REDIRECTS and location is not None:
                        return HttpAnswer(str(target), response.status, {}, b""), location
                    return await self._answer(response, str(target), _quoted(host), max_bytes), None
            except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
                failure = error
        raise _unreachable(_quoted(host), failure)

    async def _checked(self, host: str, port: int) -> Sequence[str]:
        """Return the addresses of a host, all of which may be reached."""
        check_port(host, port, self._allowed, self._settings.low_ports)
        try:
            addresses = await self._resolve(host, port)
        except (OSError, UnicodeError):
            addresses = ()
        if not addresses:
            raise UnreachableError(f"There is no host '{shown(host)}'.")
        if not self._allowed.host(host, port):
            for address in addresses:
                if not is_public(address) and not self._allowed.address(address):
                    hint = "The operator can allow it: outbound.allow."
                    raise BlockedError(f"'{shown(host)}' may not be reached: it is not public. {hint}")
        return addresses

    @override
    async def call(
        self,
        method: str,
        url: str,
        *,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        time_limit: float | None = None,
        max_bytes: int | None = None,
    ) -> HttpAnswer:
        try:
            target = URL(url)
            host = str(target.raw_host)
        except ValueError:
            raise BlockedError("The address of the service is not a URL.") from None
        sent = self._headers(headers or {})
        session = self._session(pooled=True)
        try:
            async with (
                self._in_time(_SERVICE, time_limit),
                session.request(
                    method, target, params=params, headers=sent, data=body, allow_redirects=False
                ) as response,
            ):
                return await self._answer(response, url, _SERVICE, max_bytes)
        except OutboundError as error:
            logger.info("%s %s: %s", method, host, error)
            raise

    async def close(self) -> None:
        """Close every connection."""
        sessions, self._sessions = list(self._sessions.values()), {}
        for session in sessions:
            await session.close()

    def _session(self, *, pooled: bool) -> aiohttp.ClientSession:
        """Return the session of a kind. Connections to pages are not kept: nobody else should get them."""
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

    def _headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        own = {"user-agent": f"antwort/{antwort.__version__}", "accept-encoding": _ACCEPTED}
        return own | {name.lower(): value for name, value in headers.items()}

    async def _answer(
        self, response: aiohttp.ClientResponse, url: str, whose: str, max_bytes: int | None
    ) -> HttpAnswer:
        body = await _read_body(response, whose, max_bytes or int(self._settings.max_bytes))
        headers = {name.lower(): value for name, value in response.headers.items()}
        return HttpAnswer(url, response.status, headers, body)

    @asynccontextmanager
    async def _in_time(self, whom: str, time_limit: float | None) -> AsyncIterator[None]:
        """Turn what goes wrong inside into errors of ours, and end it in time."""
        limit = time_limit or self._settings.timeout
        try:
            async with asyncio.timeout(limit):
                yield
        except TimeoutError:
            raise OutboundTimeoutError(f"{_first(whom)} did not answer within {limit:g} seconds.") from None
        except _FAILURES as error:
            raise _unreachable(whom, error) from error


async def _resolve(host: str, port: int) -> Sequence[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in found))


def _host_and_port(target: URL) -> tuple[str, int]:
    """Return the host and port of a URL."""
    return str(target.raw_host).lower().rstrip("."), int(target.port or 0)


def _joined(base: URL, location: str) -> str:
    """Return where a redirect leads, unread: whoever uses it checks it."""
    try:
        return str(base.join(URL(location)))
    except ValueError:
        raise BlockedError("The page redirects to something that is not a URL.") from None


def _quoted(host: str) -> str:
    return f"'{shown(host)}'"


def _first(words: str) -> str:
    """Return words as they stand at the beginning of a sentence."""
    return words[:1].upper() + words[1:]


def _unreachable(whom: str, error: Any) -> UnreachableError:
    """Say what went wrong, without any address."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError | ssl.SSLCertVerificationError):
        return UnreachableError(f"The certificate of {whom} is not valid.")
    if isinstance(error, aiohttp.ClientSSLError | ssl.SSLError):
        return UnreachableError(f"No secure connection to {whom} is possible.")
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError) or error is None:
        return UnreachableError(f"{_first(whom)} cannot be reached.")
    return UnreachableError(f"{_first(whom)} broke off, or did not answer in HTTP.")


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
