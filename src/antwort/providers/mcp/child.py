"""A server that is a program of this machine: messages are lines of its input and output."""

import asyncio
import contextlib
import logging
import os
import shutil
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from typing_extensions import override

from antwort.provider import JSON, ChildProcess, SingleFlight, one_line, tied
from antwort.providers.mcp.errors import McpError, McpHttpError, McpProtocolError
from antwort.providers.mcp.exchange import MessageExchange
from antwort.providers.mcp.peer import McpPeer, ServerTime, opened_in
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
_INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "TZ", "USER")
"""What a program has of our environment: no secrets of ours."""


class ServerProgram(Struct, frozen=True):
    """How a server is started."""

    label: str
    command: Sequence[str]
    environment: Mapping[str, str]
    folder: Path | None
    max_bytes: int


class ChildServer(McpPeer):
    """Asks a program, which is started when it is asked first, and again when it has ended."""

    def __init__(self, program: ServerProgram) -> None:
        self._program = program
        self._starting = SingleFlight(self._start)
        self._running: _Running | None = None
        self._is_missing = False

    @property
    def cause(self) -> str:
        """Why it cannot be asked, as far as is known: for its operator alone, as it tells what is on this machine."""
        if self._is_missing:
            return f"There is no '{self._program.command[0]}' that can be run; install it, or give its path."
        words = "" if self._running is None else self._running.last_words
        return words and f"It said: {words}"

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
        program = self._program
        own = {name: value for name in _INHERITED if (value := os.environ.get(name)) is not None}
        environment = {**own, **program.environment}
        if not await asyncio.to_thread(_is_there, program.command[0], environment, program.folder):
            self._running, self._is_missing = None, True
            raise McpHttpError("The program of the server cannot be found.")
        self._is_missing = False
        try:
            process = await ChildProcess.start(
                tied(program.command),
                environment=environment,
                cwd=program.folder,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise McpHttpError(f"The program of the server cannot be started: {error}") from None
        self._running = _Running(program, process, self.note)
        try:
            await self._running.greet(_PATIENCE)
        except BaseException:
            await self._running.end()
            raise


class _Running(MessageExchange):
    """A program that runs, until it ends."""

    def __init__(
        self, program: ServerProgram, process: ChildProcess, on_notification: Callable[[object], None]
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
            _kill_group(self._process)
        await asyncio.wait([self._watching])

    async def _watch(self) -> None:
        """Wait for the program to end: what it has started ends with it, or would keep its pipes open."""
        await self._process.wait()
        _kill_group(self._process)
        await asyncio.wait([self._reading, self._logging], timeout=_GRACE)
        self._process.close()
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
            _kill_group(self._process)
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
            _kill_group(self._process)
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


def _is_there(command: str, environment: Mapping[str, str], folder: Path | None) -> bool:
    """Tell whether a program can be found: else what begins it would say so, and name itself."""
    where = command if "/" not in command or folder is None else str(folder / command)
    return shutil.which(where, path=environment.get("PATH")) is not None


def _gone() -> McpHttpError:
    return McpHttpError("The program of the server has ended.")


def _words(line: bytes) -> str:
    return one_line(line[:_LONGEST_LINE].decode(errors="replace"))


def _kill_group(process: ChildProcess) -> None:
    """Kill a program, and what it has started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
