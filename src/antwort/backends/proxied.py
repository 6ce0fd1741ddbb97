"""HTTP to a model server behind a proxy: the general client, which is loaded only where there is one."""

import asyncio
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError

from antwort.backends.http1 import (
    ClosedError,
    ConnectTimeoutError,
    ProtocolError,
    ProxyError,
    Unpacker,
    wait_for_slot,
)
from antwort.backends.limits import AnswerLimits
from antwort.concurrency.slots import Slots


class ProxiedReply:
    """An answer that came through aiohttp; it has a slot until it is ended."""

    def __init__(self, response: aiohttp.ClientResponse, slots: Slots) -> None:
        self._response = response
        self._slots = slots
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers
        self._unpacker = Unpacker.of(response.headers)

    @property
    def is_read(self) -> bool:
        """Whether it has ended, and all of it was read."""
        return (self._unpacker is None or not self._unpacker.rest) and self._response.content.at_eof()

    def whole(self, most: int) -> bytes | None:  # noqa: ARG002 - it is read in pieces
        """Return nothing, as nobody knows."""
        return None

    async def chunk(self) -> bytes:
        """Return what arrived since the last call, or wait for it; empty at the end."""
        unpacker = self._unpacker
        while True:
            with _failures():
                data = (unpacker and unpacker.rest) or await self._response.content.readany()
            if not data or unpacker is None:
                return data
            try:
                plain = unpacker.piece(data)
            except ValueError as error:
                raise ProtocolError(str(error)) from None
            if plain:
                await asyncio.sleep(0)  # there may be much more of it at once
                return plain

    def limit_silence(self, seconds: float) -> None:
        """Let the server be silent for so long from now on."""
        connection = self._response.connection
        if connection is not None and connection.protocol is not None:
            connection.protocol.read_timeout = seconds
            connection.protocol.start_timeout()

    def abort(self) -> None:
        """End it, once; a connection whose answer was not read to its end is closed."""
        self._response.close()
        self._slots.release()


class ProxiedClient:
    """Connections to one server through a proxy. What goes wrong is raised as the direct client would.

    It has as many as there are slots, and waits for one as long as the direct client would.
    """

    def __init__(
        self, proxy: str, headers: Mapping[str, str], limits: AnswerLimits, *, slots: Slots, patience: float | None
    ) -> None:
        self._proxy = proxy
        self._headers = {"accept-encoding": "identity", **headers}
        self._limits = limits
        self._slots = slots
        self._patience = patience
        self._session: aiohttp.ClientSession | None = None

    async def exchange(
        self,
        method: str,
        url: str,
        body: bytes | None,
        headers: Mapping[str, str],
        *,
        connect_timeout: float,
        silence: float | None,
    ) -> ProxiedReply:
        """Send a request, and return the answer as soon as its head is there."""
        # `connect` includes what the proxy does before it lets us through, which may take as long as the answer.
        timeout = aiohttp.ClientTimeout(connect=silence, sock_connect=connect_timeout, sock_read=silence)
        await wait_for_slot(self._slots, self._patience)
        try:
            with _failures():
                response = await self._open().request(
                    method, url, data=body, headers=headers, timeout=timeout, allow_redirects=False
                )
        except BaseException:
            self._slots.release()
            raise
        return ProxiedReply(response, self._slots)

    async def close(self) -> None:
        """Close all connections; a later call opens new ones."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),  # the slots are its limit
                cookie_jar=aiohttp.DummyCookieJar(),
                headers=self._headers,
                proxy=self._proxy,
                auto_decompress=False,  # not without a limit
                max_line_size=self._limits.header_bytes,
                max_field_size=self._limits.header_bytes,
            )
        return self._session


@contextmanager
def _failures() -> Iterator[None]:
    """Turn errors of aiohttp into those of the direct client."""
    try:
        yield
    except aiohttp.ConnectionTimeoutError as error:
        raise ConnectTimeoutError from error
    except TimeoutError:
        raise
    except (aiohttp.ClientProxyConnectionError, aiohttp.ClientHttpProxyError) as error:
        raise ProxyError(str(error)) from error
    except aiohttp.ClientConnectorDNSError as error:
        raise socket.gaierror(str(error)) from error
    except (aiohttp.ClientConnectorCertificateError, aiohttp.ClientConnectorSSLError):
        raise  # they are the errors of TLS that the direct client raises, too
    except aiohttp.ClientConnectorError as error:
        raise OSError(error.errno, str(error)) from error
    except (aiohttp.ClientPayloadError, aiohttp.ServerDisconnectedError) as error:
        raise ClosedError(str(error)) from error
    except (aiohttp.ClientError, HttpProcessingError) as error:
        raise ProtocolError(str(error)) from error
