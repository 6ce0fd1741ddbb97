"""A server that is a program of this machine: messages are lines of its input and output."""

import asyncio
import logging
from collections.abc import Callable, Mapping

from typing_extensions import override

from antwort.provider import JSON, SingleFlight, one_line
from antwort.providers.mcp.errors import McpError, McpHttpError, McpProtocolError
from antwort.providers.mcp.exchange import MessageExchange
from antwort.providers.mcp.peer import McpPeer, ServerTime, opened_in
from antwort.providers.mcp.program import ServerProgram, StartedProgram, UnstartedError
from antwort.providers.mcp.waiting import Within

logger = logging.getLogger(__name__)

_PATIENCE = 30.0
"""Seconds for a program to start and to answer a greeting."""
_GRACE = 2.0
"""Seconds for it to end by itself when its input has ended."""
_PIECE = 64 * 1024
_MOST_LINES = 200
"""Lines that a program may log, from its start on."""
_MOST_UNREAD = 8 * 1024**2
"""Bytes that may wait for a program to read them; one for which more wait has given up reading."""
_LONGEST_LINE = 500
_SEEN = "In its sandbox it sees only what `sandbox.readable` names, beside the system."


class ChildServer(McpPeer):
    """Asks a program, which is started when it is asked first, and again when it has ended."""

    def __init__(self, program: ServerProgram) -> None:
        self._program = program
        self._starting = SingleFlight(self._start)
        self._running: _Running | None = None
        self._unstarted = ""

    @property
    def cause(self) -> str:
        """Why it cannot be asked, as far as is known: for its operator alone, as it tells what is on this machine."""
        if self._running is None:
            return self._unstarted
        words = self._running.last_words and f"It said: {self._running.last_words}"
        return words if self._program.confinement is None else f"{words} {_SEEN}".lstrip()

    @override
    async def asks_within(self) -> bool:
        return True

    @override
    async def close(self) -> None:
        await self._starting.close()
        if self._running is not None:
            await self._running.end()

    @override
    async def _ask_greeted(
        self, method: str, params: JSON, headers: Mapping[str, str], seconds: float, *, within: Within | None = None
    ) -> JSON:
        time = ServerTime(seconds)
        if self._running is None or self._running.is_over:
            await opened_in(time, self._starting.outcome())  # which goes on beside: the next one may find it there
        if self._running is None:
            raise _gone()
        return await self._running.ask(method, params, time.left(), within)

    async def _start(self) -> None:
        if self._running is not None:
            await self._running.end()
        try:
            started = await StartedProgram.start(self._program)
        except UnstartedError as error:
            if error.cause != self._unstarted:
                logger.warning("MCP server %s cannot be started: %s", self._program.label, error.cause or error)
            self._running, self._unstarted = None, error.cause
            raise
        self._unstarted = ""
        self._running = _Running(self._program, started, self.note)
        try:
            await self._running.greet(_PATIENCE)
        except BaseException:
            await self._running.end()
            raise


class _Running(MessageExchange):
    """A program that runs, until it ends."""

    def __init__(
        self, program: ServerProgram, process: StartedProgram, on_notification: Callable[[object], None]
    ) -> None:
        super().__init__(on_notification, _gone)
        self._program = program
        self._process = process
        self._noted = 0
        self.last_words = ""
        loop = asyncio.get_running_loop()
        self._reading = loop.create_task(self._read())
        self._logging = loop.create_task(self._log())
        self._watching = loop.create_task(self._watch())

    async def end(self) -> None:
        """End the program: by itself if it does, when it has no input any more."""
        self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), _GRACE)
        except TimeoutError:
            self._process.kill()
        await asyncio.wait([self._watching])

    async def _watch(self) -> None:
        """Wait for the program to end: what it has started ends with it, or would keep its pipes open."""
        limit = await self._process.wait()
        if limit is not None:
            logger.warning("MCP server %s was ended, since it has reached a limit: %s", self._program.label, limit)
        self._process.kill()
        await asyncio.wait([self._reading, self._logging], timeout=_GRACE)
        await self._process.close()
        await asyncio.wait([self._reading, self._logging])

    @override
    def note_noise(self) -> None:
        self._note("a line that is no message")

    @override
    async def write(self, message: bytes) -> None:
        self.put(message)
        try:
            await self._process.stdin.drain()
        except OSError:
            self.give_up(_gone())

    @override
    def put(self, message: bytes) -> None:
        if self.is_over:
            return
        if self._process.stdin.transport.get_write_buffer_size() > _MOST_UNREAD:
            self.give_up(McpHttpError("The program of the server does not read what it is asked."))
            self._process.kill()
            return
        self._process.stdin.write(message + b"\n")

    async def _read(self) -> None:
        """Take what the program says, line by line, until it ends."""
        rest = bytearray()
        problem: McpError = _gone()
        try:
            while piece := await self._process.stdout.read(_PIECE):
                *lines, last = piece.split(b"\n")
                for line in lines:
                    rest += line
                    await self.take(bytes(rest))
                    rest.clear()
                rest += last
                if len(rest) > self._program.max_bytes:
                    raise McpProtocolError("The answer of the server is larger than it may be.")
        except (McpError, OSError) as error:
            problem = error if isinstance(error, McpError) else problem
            self._process.kill()
        finally:
            self.give_up(problem)

    async def _log(self) -> None:
        """Log what the program says of itself, as far as that is little."""
        rest = b""
        while piece := await self._process.stderr.read(_PIECE):
            *lines, rest = (rest + piece).split(b"\n")
            rest = rest[:_LONGEST_LINE]
            for line in lines[: max(0, _MOST_LINES - self._noted)]:
                self._note(_words(line))
            self.last_words = next(filter(None, map(_words, reversed(lines[-_MOST_LINES:]))), self.last_words)

    def _note(self, text: str) -> None:
        if self._noted < _MOST_LINES:
            self._noted += 1
            logger.info("MCP server %s: %s", self._program.label, text)


def _gone() -> McpHttpError:
    return McpHttpError("The program of the server has ended.")


def _words(line: bytes) -> str:
    return one_line(line[:_LONGEST_LINE].decode(errors="replace"))
