"""The transport of 2024-11-05: a stream of events with all that a server says, and an address for what it is told."""

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Protocol
from urllib.parse import urljoin, urlsplit

from typing_extensions import override

from antwort.provider import JSON, HttpAnswer, OutboundError, SingleFlight
from antwort.providers.mcp.errors import McpError, McpHttpError, McpProtocolError
from antwort.providers.mcp.exchange import MessageExchange
from antwort.providers.mcp.messages import StreamedEvents
from antwort.providers.mcp.waiting import Within

_PATIENCE = 10.0
"""Seconds for a server to say where it is to be told something, and to take what it is told."""
_IDLE = 60.0
"""Seconds after which a stream is closed that nobody needs: it is a connection, and a session of the server."""


class SendRequest(Protocol):
    """Sends a request to the server, with the credentials of whoever has named it."""

    async def __call__(
        self,
        method: str,
        url: str,
        body: bytes | None,
        seconds: float,
        *,
        on_piece: Callable[[bytes], Awaitable[None]] | None = None,
    ) -> HttpAnswer:
        """Return the answer; an OutboundError if there is none."""


class SseServer:
    """Asks a server over such a stream, which is opened when it is needed, and again when it has ended."""

    def __init__(self, url: str, send: SendRequest, on_notification: Callable[[object], None]) -> None:
        self._url = url
        self._send = send
        self._on_notification = on_notification
        self._opening = SingleFlight(self._open)
        self._stream: _EventStream | None = None
        self._idle: asyncio.TimerHandle | None = None

    async def open(self) -> None:
        """Open the stream unless it is open; McpError says why it cannot be."""
        if self._stream is None or self._stream.is_over:
            await self._opening.outcome()

    async def ask(self, method: str, params: JSON, seconds: float, within: Within | None) -> JSON:
        """Return the result of a request."""
        if self._idle is not None:
            self._idle.cancel()
        try:
            await self.open()
            if self._stream is None:
                raise _gone()
            return await self._stream.ask(method, params, seconds, within)
        finally:
            self._idle = asyncio.get_running_loop().call_later(_IDLE, self._rest)

    async def close(self) -> None:
        """Close the stream."""
        if self._idle is not None:
            self._idle.cancel()
        await self._opening.close()
        if self._stream is not None:
            await self._stream.close()

    async def _open(self) -> None:
        if self._stream is not None:
            await self._stream.close()
        stream = self._stream = _EventStream(self._url, self._send, self._on_notification)
        try:
            await stream.find_address()
            await stream.greet(_PATIENCE)
        except BaseException:
            await stream.close()
            raise

    def _rest(self) -> None:
        """Let go of a stream that nobody needs."""
        if self._stream is not None and not self._stream.is_busy:
            self._stream.give_up(_gone())


class _EventStream(MessageExchange):
    """One stream, until it ends."""

    def __init__(self, url: str, send: SendRequest, on_notification: Callable[[object], None]) -> None:
        super().__init__(on_notification, _gone)
        self._url = url
        self._send = send
        loop = asyncio.get_running_loop()
        self._address: asyncio.Future[str] = loop.create_future()
        self._events = StreamedEvents()
        self._telling: set[asyncio.Task[None]] = set()
        self._reading = loop.create_task(self._read())

    @property
    def is_busy(self) -> bool:
        """Whether anything is asked."""
        return bool(self._asked)

    async def find_address(self) -> None:
        """Wait until the server has said where it is to be told something."""
        try:
            await asyncio.wait_for(asyncio.shield(self._address), _PATIENCE)
        except TimeoutError:
            raise McpProtocolError("The server does not say where it is to be asked.") from None

    async def close(self) -> None:
        """End the stream, and whatever is told meanwhile."""
        self.give_up(_gone())
        await asyncio.wait([self._reading, *self._telling])

    @override
    def give_up(self, problem: McpError) -> None:
        super().give_up(problem)
        if not self._address.done():
            self._address.set_exception(problem)
            self._address.exception()  # nobody may wait for it
        for task in (self._reading, *self._telling):
            if task is not asyncio.current_task():
                task.cancel()

    @override
    async def write(self, message: bytes) -> None:
        try:
            answer = await self._send("POST", await self._address, message, _PATIENCE)
        except OutboundError as error:
            raise McpHttpError(str(error)) from None
        if answer.status >= 300:
            raise McpHttpError(f"The server answered with the status {answer.status}.", answer.status)

    @override
    def put(self, message: bytes) -> None:
        if not self.is_over:
            task = asyncio.get_running_loop().create_task(self._tell(message))
            self._telling.add(task)
            task.add_done_callback(self._telling.discard)

    async def _tell(self, message: bytes) -> None:
        try:
            await self.write(message)
        except McpError as error:
            self.give_up(error)

    async def _read(self) -> None:
        problem: McpError = _gone()
        try:
            answer = await self._send("GET", self._url, None, math.inf, on_piece=self._take_piece)
            if answer.status != 200:
                problem = McpHttpError(f"The server answered with the status {answer.status}.", answer.status)
        except McpError as error:
            problem = error
        except OutboundError as error:
            problem = McpHttpError(str(error))
        finally:
            self.give_up(problem)

    async def _take_piece(self, piece: bytes) -> None:
        async for kind, data in self._events.of(piece):
            if kind == "endpoint":
                self._take_address(data.decode(errors="replace"))
            elif data.strip():
                await self.take(data)

    def _take_address(self, said: str) -> None:
        """Take the address that is to be told something: at the server itself, and nowhere else."""
        if self._address.done():
            return
        address = _joined(self._url, said)
        if address is None:
            raise McpProtocolError("The server wants others to be told what is for it.")
        self._address.set_result(address)


def _joined(url: str, said: str) -> str | None:
    """Return an address that a server names; None if it is another's."""
    try:
        address = urljoin(url, said)
        return address if _origin(address) == _origin(url) else None
    except ValueError:
        return None


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port


def _gone() -> McpHttpError:
    return McpHttpError("The stream of the server has ended.")
