"""The client: one guarded way for URLs that strangers name, one plain way for those of the operator."""

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from typing_extensions import override

import antwort
from antwort.config import OutboundConfig
from antwort.context.http_client import (
    BlockedError,
    HttpAnswer,
    HttpClient,
    OutboundError,
    OutboundTimeoutError,
    UnreachableError,
)
from antwort.http1.proxies import Proxy
from antwort.lazy_imports import imported_on_use
from antwort.outbound.addresses import (
    Allowed,
    NotConnectedError,
    capitalized,
    check_port,
    is_public,
    may_be_near,
    printable,
    read_url,
)
from antwort.outbound.connections import GuestRequest, OutboundConnections

if TYPE_CHECKING:
    import yarl
else:  # most servers never ask for one
    yarl = imported_on_use("yarl")

logger = logging.getLogger(__name__)

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""From a host and port to addresses; raises OSError if there are none."""

_MAX_REDIRECTS = 5
_MAX_ADDRESSES = 4
"""Addresses of one host that are tried, one after the other."""
_CHECKED_FOR = 30.0
"""Seconds for which addresses are used again that were checked."""
_MOST_CHECKED = 1000
_SERVICE = "the service"
"""What errors call a server that the operator configured: its name and address are not for models."""
_ACCEPTED = "gzip, deflate"


class Outbound(HttpClient):
    """Sends requests to the world outside. It belongs to one event loop; close it there.

    A guarded request resolves the host once, checks every address, and connects to the very address that was checked;
    each redirect goes the same way. No cookie is kept. No proxy is used, but that of the environment for services if
    `proxies` says so.
    """

    def __init__(
        self,
        settings: OutboundConfig | None = None,
        *,
        resolve: Resolve | None = None,
        tls: ssl.SSLContext | None = None,
        proxies: bool = False,
    ) -> None:
        self._settings = settings or OutboundConfig()
        self._allowed = Allowed(self._settings.allow)
        self._resolve = resolve or _resolve
        self._proxies = proxies
        self._connections = OutboundConnections(self._settings.max_connections, tls)
        self._checked_guests: dict[tuple[str, int], tuple[float, Sequence[str]]] = {}
        """Addresses that were found to be reachable lately: requests go to these, and to no others."""

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
        sent, most = _headers(headers), max_bytes or int(self._settings.max_bytes)
        async with self._in_time(_quoted(str(target.raw_host)), time_limit):
            for _ in range(_MAX_REDIRECTS + 1):
                if admit is not None and not admit(str(target.raw_host)):
                    raise BlockedError(f"Pages of '{printable(str(target.raw_host))}' may not be opened here.")
                answer, location = await self._fetch_once(target, sent, most)
                if location is None:
                    return answer
                target = read_url(_joined(target, location))
        raise UnreachableError(f"'{printable(url)}' redirects more than {_MAX_REDIRECTS} times.")

    async def check(self, url: str) -> None:
        """Raise an OutboundError unless a model server may be given a URL that a stranger names.

        What it resolves to here and now is what is checked; nobody is asked for it. Where the environment has a proxy
        for it, names of the world outside may mean nothing here: then only what the name itself says is checked.
        """
        if self._settings.model_urls == "none":
            raise BlockedError("URLs are not taken here; send the content itself, as a data URL.")
        target = read_url(url)
        host, port = _host_and_port(target)
        if self._settings.model_urls == "public" and not self._allowed.host(host, port):
            if Proxy.for_url(urlsplit(url)) is not None:
                check_port(host, port, self._allowed, self._settings.low_ports)
                self._check_addresses(host, port, [host] if may_be_near(host) else [])
                return
            async with self._in_time(_quoted(host), None):
                await self._checked(host, port)

    async def _fetch_once(
        self, target: "yarl.URL", headers: Mapping[str, str], max_bytes: int
    ) -> tuple[HttpAnswer, str | None]:
        """Get one URL; also return where it redirects to, if it does."""
        host, port = _host_and_port(target)
        addresses = await self._checked(host, port)
        failure = UnreachableError(f"{_quoted(host)} cannot be reached.")
        for address in addresses[:_MAX_ADDRESSES]:
            try:
                return await self._connections.get(
                    target, address, host=host, headers=headers, whose=_quoted(host), max_bytes=max_bytes
                )
            except NotConnectedError as error:
                failure = error
        raise failure

    async def _checked(self, host: str, port: int) -> Sequence[str]:
        """Return the addresses of a host, all of which may be reached."""
        check_port(host, port, self._allowed, self._settings.low_ports)
        try:
            addresses = await self._resolve(host, port)
        except (OSError, UnicodeError):
            addresses = ()
        if not addresses:
            raise UnreachableError(f"There is no host '{printable(host)}'.")
        self._check_addresses(host, port, addresses)
        return addresses

    def _check_addresses(self, host: str, port: int, addresses: Sequence[str]) -> None:
        """Raise BlockedError unless all addresses of a host may be reached."""
        if not self._allowed.host(host, port):
            for address in addresses:
                if not is_public(address) and not self._allowed.address(address):
                    hint = "The operator can allow it: outbound.allow."
                    raise BlockedError(f"'{printable(host)}' may not be reached: it is not public. {hint}")

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
        on_piece: Callable[[bytes], Awaitable[None]] | None = None,
        guarded: bool = False,
        on_head: Callable[[Mapping[str, str]], None] | None = None,
        tenant: str = "",
        standing: bool = False,
    ) -> HttpAnswer:
        most = max_bytes or int(self._settings.max_bytes)
        if guarded:
            target = read_url(url)
            target = target.extend_query(params) if params else target
            asked = GuestRequest(method, target, _headers(headers), body, most, on_piece, on_head, tenant)
            async with self._in_time(_quoted(str(target.raw_host)), time_limit):
                return await self._call_guest(asked)
        try:
            target = yarl.URL(url)
            final_url = url if target.raw_user is None else str(target.with_user(None))
            if params:
                target = target.extend_query(params)
            host = str(target.raw_host)
        except ValueError:
            raise BlockedError("The address of the service is not a URL.") from None
        try:
            async with self._in_time(_SERVICE, time_limit):
                return await self._connections.request(
                    method,
                    target,
                    url=final_url,
                    headers=_headers(headers),
                    body=body,
                    whose=_SERVICE,
                    max_bytes=most,
                    proxy=Proxy.for_url(urlsplit(url)) if self._proxies else None,
                    on_piece=on_piece,
                    on_head=on_head,
                    tenant=tenant,
                    standing=standing,
                )
        except OutboundError as error:
            logger.info("%s %s: %s", method, host, error)
            raise

    async def close(self) -> None:
        """Close every connection."""
        await self._connections.close()

    async def _call_guest(self, asked: GuestRequest) -> HttpAnswer:
        """Send a request to one of the addresses of a host, all of which may be reached."""
        host, port = _host_and_port(asked.target)
        whose, now = _quoted(host), asyncio.get_running_loop().time()
        checked_at, addresses = self._checked_guests.get((host, port), (-_CHECKED_FOR, ()))
        if now - checked_at >= _CHECKED_FOR:
            addresses = await self._checked(host, port)
            while len(self._checked_guests) >= _MOST_CHECKED:
                del self._checked_guests[next(iter(self._checked_guests))]
            self._checked_guests[host, port] = now, addresses
        failure = UnreachableError(f"{whose} cannot be reached.")
        for address in addresses[:_MAX_ADDRESSES]:
            try:
                return await self._connections.call_guest(asked, address, host=host, whose=whose)
            except NotConnectedError as error:
                failure = error
        self._checked_guests.pop((host, port), None)
        raise failure

    @asynccontextmanager
    async def _in_time(self, whom: str, time_limit: float | None) -> AsyncIterator[None]:
        """Turn what goes wrong inside into errors of ours, and end it in time."""
        limit = time_limit or self._settings.timeout
        try:
            async with asyncio.timeout(limit):
                yield
        except TimeoutError:
            raise OutboundTimeoutError(f"{capitalized(whom)} did not answer within {limit:g} seconds.") from None
        except (OSError, UnicodeError) as error:
            raise UnreachableError(f"{capitalized(whom)} broke off, or did not answer in HTTP.") from error


async def _resolve(host: str, port: int) -> Sequence[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in found))


def _host_and_port(target: "yarl.URL") -> tuple[str, int]:
    """Return the host and port of a URL."""
    return str(target.raw_host).lower().rstrip("."), int(target.port or 0)


def _joined(base: "yarl.URL", location: str) -> str:
    """Return where a redirect leads, unread: whoever uses it checks it."""
    try:
        return str(base.join(yarl.URL(location)))
    except ValueError:
        raise BlockedError("The page redirects to something that is not a URL.") from None


def _quoted(host: str) -> str:
    return f"'{printable(host)}'"


def _headers(headers: Mapping[str, str] | None) -> dict[str, str]:
    own = {"user-agent": f"antwort/{antwort.__version__}", "accept-encoding": _ACCEPTED}
    return own | {name.lower(): value for name, value in (headers or {}).items()}
