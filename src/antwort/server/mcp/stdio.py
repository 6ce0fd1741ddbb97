"""The functions of the server over standard streams: one message a line, for clients that start it themselves."""

import asyncio
import logging
import os
import threading
from collections.abc import Callable
from typing import Any, BinaryIO

import msgspec

from antwort.context import Context
from antwort.server.mcp.headers import check_envelope
from antwort.server.mcp.messages import (
    GREETED,
    INTERNAL_ERROR,
    INVALID_REQUEST,
    META,
    STATELESS,
    RpcError,
    RpcMessage,
    decoded,
    number_of,
    read_message,
    unsupported,
)
from antwort.server.mcp.methods import McpMethods, RpcCaller
from antwort.types import JSON

logger = logging.getLogger(__name__)

_SESSION = "stdio"
_MOST_WAITING = 100
"""Messages that are answered at the same time; further lines wait."""
_LEAVING = 2.0
"""Seconds that calls under way have when their client has closed its side."""


def taken_streams() -> tuple[BinaryIO, BinaryIO]:
    """Return standard input and output, and give everybody else nothing to read, and standard error to write to.

    What functions print, and the programs that they start, would else be taken for messages.
    """
    source, target = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb", buffering=0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return source, target


class StdioServer:
    """Answers the messages of one client, several at a time, until there are no more."""

    def __init__(
        self, methods: McpMethods, ctx: Context, streams: tuple[BinaryIO, BinaryIO], *, max_bytes: int
    ) -> None:
        self._methods = methods
        self._ctx = ctx
        self._source, self._target = streams
        self._max_bytes = max_bytes
        self._version = GREETED[0]
        self._lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._room = threading.Semaphore(_MOST_WAITING)
        self._tasks: set[asyncio.Task[None]] = set()
        self._writing = asyncio.Lock()
        self._outgoing: list[bytes] = []

    async def serve(self) -> None:
        """Serve until the client closes its side, or reads no more; what is under way then has a moment."""
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._read, args=(loop.call_soon_threadsafe,), name="stdin", daemon=True).start()
        try:
            while (line := await self._lines.get()) is not None:
                task = loop.create_task(self._take(line))
                self._tasks.add(task)
                task.add_done_callback(self._over)
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=_LEAVING)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _over(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._room.release()
        if not task.cancelled() and task.exception() is not None:
            logger.info("The client reads no more: %s", task.exception())
            self._lines.put_nowait(None)

    def _read(self, call: Callable[..., object]) -> None:
        """Read lines, on a thread of its own: nothing else can wait for any kind of input."""
        while line := self._line():
            self._room.acquire()
            try:
                call(self._lines.put_nowait, line)
            except RuntimeError:  # the loop is gone
                return
        call(self._lines.put_nowait, None)

    def _line(self) -> bytes:
        """Return the next line; of one that is too long, as much as tells that it is. Nothing at the end."""
        line = self._source.readline(self._max_bytes + 1)
        if len(line) > self._max_bytes and not line.endswith(b"\n"):
            while (rest := self._source.readline(self._max_bytes)) and not rest.endswith(b"\n"):
                pass
        return line

    async def _take(self, line: bytes) -> None:
        if not line.strip():
            return
        value: Any = None
        try:
            value = self._decoded(line)
            message = read_message(value)
            if message is None:
                return
            caller = self._caller(message)
            if message.number is None:
                self._methods.take(message, caller)
                return
            answer = message.answer(await self._methods.answer(message, caller, self._tell))
            if message.method == "initialize":
                self._version = answer["result"]["protocolVersion"]
        except RpcError as error:
            answer = error.answer(number_of(value))
        except Exception:
            logger.exception("a message of the client could not be answered")
            wrong = RpcError(INTERNAL_ERROR, "The server could not answer; its log says why.")
            answer = wrong.answer(number_of(value))
        await self._write(answer)

    def _decoded(self, line: bytes) -> Any:
        if len(line) > self._max_bytes:
            raise RpcError(INVALID_REQUEST, f"The message is longer than {self._max_bytes:,} bytes.")
        return decoded(line)

    def _caller(self, message: RpcMessage) -> RpcCaller:
        said = message.meta.get(f"{META}protocolVersion")
        if said is None or message.number is None:
            return RpcCaller(self._ctx, self._version, _SESSION)
        check_envelope(message)
        if said != STATELESS:
            raise unsupported(said)
        return RpcCaller(self._ctx, STATELESS, _SESSION)

    def _tell(self, message: JSON) -> None:
        self._outgoing.append(msgspec.json.encode(message))
        task = asyncio.ensure_future(self._flush())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _write(self, message: JSON) -> None:
        self._outgoing.append(msgspec.json.encode(message))
        await self._flush()

    async def _flush(self) -> None:
        """Write what waits, in the order in which it was said."""
        async with self._writing:
            lines, self._outgoing = self._outgoing, []
            if lines:
                await asyncio.to_thread(self._write_all, b"\n".join([*lines, b""]))

    def _write_all(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[self._target.write(rest) :]
