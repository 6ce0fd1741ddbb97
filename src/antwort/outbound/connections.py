"""Connections to the world outside, and what of an answer is read: every dimension of it ends somewhere."""

import asyncio
import base64
import ssl
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from msgspec import Struct

from antwort.concurrency.slots import Slots
from antwort.context.http_client import HttpAnswer, TooLargeError, UnreachableError
from antwort.http1.client import (
    MAX_HEAD,
    BusyError,
    ClosedError,
    ConnectTimeoutError,
    Http1Client,
    Http1Connection,
    ProtocolError,
    TooLongError,
)
from antwort.http1.proxies import Proxy
from antwort.outbound.addresses import NotConnectedError, capitalized

if TYPE_CHECKING:
    from yarl import URL

OnPiece = Callable[[bytes], Awaitable[None]]
"""Gets the pieces of a body as they come."""
OnHead = Callable[[Mapping[str, str]], None]
"""Gets the headers of an answer before its body."""
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_CONNECT = 5.0
"""Seconds to connect to one address."""
_FRAMED = 8
"""How many times more bytes than those of the content may come, so that it may be in small chunks, but not in endless
many."""
_SERVICES = 64
"""Services whose connections are kept; there are as many as the operator has configured."""
_GUESTS = 64
"""Servers that strangers name whose connections are kept."""
_STANDING = 16
"""Connections for answers without an end."""
_REPEATABLE = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})
"""Methods of requests that have done nothing more if they were read twice."""
_PACKED = frozenset({"gzip", "x-gzip", "deflate"})
_FORBIDDEN = ("\r", "\n", "\0")


class GuestRequest(Struct, frozen=True):
    """A request to a URL that a stranger names."""

    method: str
    target: "URL"
    headers: Mapping[str, str]
    body: bytes | None
    max_bytes: int
    on_piece: OnPiece | None = None
    on_head: OnHead | None = None
    tenant: str = ""


class OutboundConnections:
    """Connections for pages, which are not kept: nobody else should get them; and those to services, which are.

    So are those to servers that strangers name, for whoever names the same: there are other slots for these.
    """

    def __init__(self, most: int, tls: ssl.SSLContext | None) -> None:
        self._tls = tls
        self._most = most
        self._page_slots = Slots(most)
        self._service_slots = Slots(most)
        self._standing_slots = Slots(_STANDING)
        self._services: dict[tuple[str, str, int, Proxy | None, bool], Http1Client] = {}
        self._guests: dict[tuple[str, str, int, str], Http1Client] = {}

    async def get(
        self, target: "URL", address: str, *, host: str, headers: Mapping[str, str], whose: str, max_bytes: int
    ) -> tuple[HttpAnswer, str | None]:
        """Get a page from an address of its host; also return where it redirects to, if it does."""
        # The connection goes to the address that was checked; the name stays in Host, SNI and certificate.
        client = Http1Client(
            address,
            int(target.port or 0),
            tls=target.scheme == "https",
            limit=self._most,
            context=await self._context(target),
            server_hostname=host,
            slots=self._page_slots,
        )
        message = _message("GET", target.raw_path_qs, {"host": target.raw_authority, **headers}, None)
        try:
            with _failures(whose):
                connection = await client.exchange(message, _CONNECT, None)
                try:
                    location = connection.headers.get("location")
                    if connection.status in _REDIRECTS and location is not None:
                        return HttpAnswer(str(target), connection.status, {}, b""), location
                    body = await _read(connection, whose, max_bytes)
                    return HttpAnswer(str(target), connection.status, connection.headers, body), None
                finally:
                    connection.abort()
        finally:
            await client.close()

    async def request(
        self,
        method: str,
        target: "URL",
        *,
        url: str,
        headers: Mapping[str, str],
        body: bytes | None,
        whose: str,
        max_bytes: int,
        proxy: Proxy | None,
        on_piece: OnPiece | None = None,
        on_head: OnHead | None = None,
        tenant: str = "",
        standing: bool = False,
    ) -> HttpAnswer:
        """Ask a service."""
        client = await self._service(target, proxy, standing=standing)
        path, fixed = target.raw_path_qs, {"host": target.host_port_subcomponent or ""}
        if proxy is not None and target.scheme == "http":
            path = f"http://{fixed['host']}{path}"
            fixed |= proxy.headers
        if target.user is not None:
            pair = f"{target.user}:{target.password or ''}"
            fixed["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        message = _message(method, path, {**fixed, **headers}, body)
        with _failures(whose):
            connection = await client.exchange(message, _CONNECT, None, tenant, repeatable=method in _REPEATABLE)
            try:
                if on_head is not None:
                    on_head(connection.headers)
                found = b"" if method == "HEAD" else await _read(connection, whose, max_bytes, on_piece)
                return HttpAnswer(url, connection.status, connection.headers, found)
            finally:
                connection.abort()

    async def call_guest(self, asked: GuestRequest, address: str, *, host: str, whose: str) -> HttpAnswer:
        """Send a request to an address of a host that a stranger names."""
        target = asked.target
        client = await self._guest(target, address, host)
        message = _message(
            asked.method, target.raw_path_qs, {"host": target.raw_authority, **asked.headers}, asked.body
        )
        with _failures(whose):
            repeatable = asked.method in _REPEATABLE
            connection = await client.exchange(message, _CONNECT, None, asked.tenant, repeatable=repeatable)
            try:
                if asked.on_head is not None:
                    asked.on_head(connection.headers)
                body = await _read(connection, whose, asked.max_bytes, asked.on_piece)
                return HttpAnswer(str(target), connection.status, connection.headers, body)
            finally:
                connection.abort()

    async def _guest(self, target: "URL", address: str, host: str) -> Http1Client:
        port = int(target.port or 0)
        key = (target.scheme, address, port, host)
        context = await self._context(target)
        client = self._guests.pop(key, None)
        if client is None:  # no server takes all slots: others are asked meanwhile
            client = Http1Client(
                address,
                port,
                tls=target.scheme == "https",
                limit=max(1, self._most // 4),
                patience=_CONNECT,
                context=context,
                server_hostname=host,
            )
        self._guests[key] = client
        while len(self._guests) > _GUESTS:  # those that are in use end by themselves
            await self._guests.pop(next(iter(self._guests))).close()
        return client

    async def close(self) -> None:
        """Close every connection."""
        clients = [*self._services.values(), *self._guests.values()]
        self._services, self._guests = {}, {}
        for client in clients:
            await client.close()

    async def _service(self, target: "URL", proxy: Proxy | None, *, standing: bool) -> Http1Client:
        host, port = str(target.raw_host), int(target.port or 0)
        key = (target.scheme, host, port, proxy, standing)
        context = await self._context(target)
        client = self._services.get(key)
        if client is None:  # nobody may wait from here on: another who asks would have one of its own
            client = self._services[key] = Http1Client(
                host,
                port,
                tls=target.scheme == "https",
                limit=self._most,
                context=context,
                slots=self._standing_slots if standing else self._service_slots,
                proxy=proxy,
            )
            while len(self._services) > _SERVICES:
                await self._services.pop(next(iter(self._services))).close()
        return client

    async def _context(self, target: "URL") -> ssl.SSLContext | None:
        """Return what secures connections; all authorities are read for it once, which takes long."""
        if target.scheme == "https" and self._tls is None:
            self._tls = await asyncio.to_thread(ssl.create_default_context)
        return self._tls


def _message(method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> bytes:
    """Write a request; ValueError for a header that would be more than one."""
    if body is not None or method not in {"GET", "HEAD", "DELETE"}:
        headers = {**headers, "content-length": str(len(body or b""))}
    for name, value in headers.items():
        if any(mark in text for mark in _FORBIDDEN for text in (name, value)):
            raise ValueError(f"the header '{name}' has a line break in it")
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode() + (body or b"")


async def _read(connection: Http1Connection, whose: str, limit: int, on_piece: OnPiece | None = None) -> bytes:
    """Return the body of an answer as it was before its compression, up to a limit that holds before and after it."""
    encoding = connection.headers.get("content-encoding", "").strip().lower()
    if encoding not in _PACKED | {"", "identity"}:
        raise UnreachableError(f"The answer of {whose} is compressed in a way that was not asked for.")
    declared = connection.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit:
        raise _too_large(whose, limit)
    body = bytearray()
    while part := await connection.chunk():
        body += part
        if len(body) > limit or connection.received > _FRAMED * limit + MAX_HEAD:
            body.clear()
            raise _too_large(whose, limit)
        if on_piece is not None:
            await on_piece(part)
    if connection.is_cut:
        raise UnreachableError(f"The answer of {whose} broke off.")
    return bytes(body)


@contextmanager
def _failures(whom: str) -> Iterator[None]:
    """Turn what goes wrong inside into errors of ours, but for time that is up, which is the caller's."""
    try:
        yield
    except ConnectTimeoutError as error:
        raise _not_connected(whom) from error
    except TimeoutError:
        raise
    except ssl.SSLCertVerificationError as error:
        raise NotConnectedError(f"The certificate of {whom} is not valid.") from error
    except ssl.SSLError as error:
        raise NotConnectedError(f"No secure connection to {whom} is possible.") from error
    except TooLongError as error:
        raise TooLargeError(f"The head of the answer of {whom} is too large: {error}.") from error
    except (ClosedError, ProtocolError) as error:
        raise UnreachableError(f"{capitalized(whom)} broke off, or did not answer in HTTP.") from error
    except (OSError, BusyError, UnicodeError) as error:
        raise _not_connected(whom) from error


def _not_connected(whom: str) -> NotConnectedError:
    return NotConnectedError(f"{capitalized(whom)} cannot be reached.")


def _too_large(whose: str, limit: int) -> TooLargeError:
    return TooLargeError(f"The answer of {whose} is larger than the {limit:,} bytes that are read.")
