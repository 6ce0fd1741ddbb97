"""Proxies: which one the environment names for a server, and the way through it."""

import asyncio
import base64
import ssl
from collections.abc import Callable
from typing import TypeVar, cast
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from msgspec import Struct
from typing_extensions import override

from antwort.errors import ConfigError

P = TypeVar("P", bound=asyncio.Protocol)

_MAX_HEAD = 16 * 1024
"""Bytes of what a proxy says before it lets us through."""


class ProxyError(OSError):
    """A proxy does not let us through."""


class Proxy(Struct, frozen=True):
    """An HTTP proxy."""

    host: str
    port: int
    tls: bool
    authorization: str | None

    @classmethod
    def for_url(cls, parts: SplitResult) -> "Proxy | None":
        """Return the proxy that the environment names for a URL (`HTTPS_PROXY`, `NO_PROXY`, …)."""
        host = parts.hostname or ""
        if proxy_bypass(host if parts.port is None else f"{host}:{parts.port}"):
            return None
        named = getproxies().get(parts.scheme)
        if named is None:
            return None
        wrong = ConfigError(f"{parts.scheme.upper()}_PROXY must be the URL of an HTTP proxy, such as http://proxy:3128")
        try:
            found = urlsplit(named)
            port = found.port
        except ValueError:
            raise wrong from None
        if found.scheme not in {"http", "https"} or not found.hostname:
            raise wrong
        tls = found.scheme == "https"
        return cls(found.hostname, port or (443 if tls else 80), tls, _authorization(found))

    @property
    def headers(self) -> dict[str, str]:
        """What is sent to the proxy itself."""
        return {} if self.authorization is None else {"proxy-authorization": self.authorization}

    async def open(self, make: Callable[[], P], host: str, port: int, context: ssl.SSLContext | None) -> P:
        """Connect a protocol to a server; without TLS to the proxy itself, which is to be asked for whole URLs."""
        loop = asyncio.get_running_loop()
        own = await asyncio.to_thread(ssl.create_default_context) if self.tls else None
        try:
            if context is None:
                _, direct = await loop.create_connection(make, self.host, self.port, ssl=own)
                return direct
            transport, tunnel = await loop.create_connection(_Tunnel, self.host, self.port, ssl=own)
        except OSError as error:
            raise ProxyError(str(error)) from error
        try:
            await tunnel.ask(f"[{host}]:{port}" if ":" in host else f"{host}:{port}", self.headers)
            protocol = make()
            secured = await loop.start_tls(transport, protocol, context, server_hostname=host)
        except BaseException:
            transport.abort()
            raise
        if secured is None:  # closed in the very moment
            raise ProxyError("closed")
        protocol.connection_made(secured)
        return protocol


class _Tunnel(asyncio.Protocol):
    """Asks a proxy for a way through."""

    def __init__(self) -> None:
        self._received = b""
        self._answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    @override
    def data_received(self, data: bytes) -> None:
        if self._answer.done():
            return
        self._received += data
        if b"\r\n\r\n" in self._received:
            self._transport.pause_reading()  # what follows is for whoever comes next
            self._answer.set_result(self._received)
        elif len(self._received) > _MAX_HEAD:
            self._answer.set_exception(ProxyError("a head that does not end"))

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        if not self._answer.done():
            self._answer.set_exception(ProxyError(str(exc or "closed")))

    async def ask(self, address: str, headers: dict[str, str]) -> None:
        """Ask for the way to an address, a host and its port; ProxyError if there is none."""
        lines = "".join(f"{name}: {value}\r\n" for name, value in {"host": address, **headers}.items())
        self._transport.write(f"CONNECT {address} HTTP/1.1\r\n{lines}\r\n".encode("latin-1"))
        version, _, rest = (await self._answer).partition(b" ")
        if not version.startswith(b"HTTP/1.") or not rest.startswith(b"2"):
            raise ProxyError(f"the proxy says {rest[:3].decode(errors='replace')}")


def _authorization(parts: SplitResult) -> str | None:
    if parts.username is None:
        return None
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return f"Basic {base64.b64encode(pair.encode()).decode()}"
