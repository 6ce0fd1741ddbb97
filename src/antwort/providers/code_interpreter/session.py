"""A session: one interpreter that executes code call by call, and keeps its variables."""

import asyncio
import codecs
import contextlib
import json
import secrets
from pathlib import Path
from typing import Literal

from msgspec import Struct

from antwort.provider import Sandbox, SandboxLimits, SandboxProcess, SandboxPython

_DRIVER, *_HELPERS = (Path(__file__).with_name(f"{name}.py") for name in ("driver", "notebook_lines", "event_loop"))
_PIECE = 1 << 16
_GRACE = 2.0
"""Seconds that code has to end after it was interrupted."""
_ENVIRONMENT = {
    "MPLBACKEND": "Agg",
    "MPLCONFIGDIR": "/tmp/.matplotlib",  # noqa: S108 - the sandbox's own
    "PIP_RETRIES": "0",  # there is nobody to be reached
    "XDG_CACHE_HOME": "/tmp/.cache",  # noqa: S108
}

Stop = Literal["time", "output"]
"""Why code was interrupted."""


class CodeOutcome(Struct, frozen=True):
    """What came of a call."""

    logs: str
    """What it wrote: output, errors and tracebacks."""
    stopped: Stop | None = None
    ending: str | None = None
    """Why the session has ended, if it has."""
    exit_code: int | None = None
    """What the interpreter said when it has ended; 128 and the signal if one ended it."""
    starved: bool = False
    """Whether a process was ended because there was no memory left."""
    left_out: int = 0
    """Bytes that were written by what a call has left running that was stopped."""
    is_full: bool = False
    """Whether nothing more can be written to the container."""

    @property
    def has_failed(self) -> bool:
        """Tell whether the code was not executed to its end, or not with all that it has started."""
        return self.starved or self.stopped is not None or self.ending is not None


class Session:
    """A running interpreter. Between calls all its processes are stopped."""

    def __init__(self, process: SandboxProcess, closing: contextlib.AsyncExitStack) -> None:
        self._process = process
        self._closing = closing
        self._stopped = False
        """Whether the last call was."""
        self._early = b""
        """What was written after the end of the last call."""
        self._memory_kills = 0

    @classmethod
    async def start(cls, sandbox: Sandbox, python: SandboxPython, folder: Path, limits: SandboxLimits) -> "Session":
        """Start an interpreter; FunctionUnavailableError if it does not start."""
        closing = contextlib.AsyncExitStack()
        texts = await asyncio.to_thread(lambda: [path.read_text() for path in (_DRIVER, *_HELPERS)])
        command = [python.path, "-I", "-B", "-c", *texts]
        opened = sandbox.open(command, folder, limits=limits, readonly=python.readonly, environment=_ENVIRONMENT)
        return cls(await closing.enter_async_context(opened), closing)

    @property
    def is_alive(self) -> bool:
        """Tell whether it can take a call."""
        return self._process.ending is None

    async def execute(self, code: str, *, seconds: float, most: int) -> CodeOutcome:
        """Execute code for at most some seconds, and return at most so many bytes of what it wrote.

        Whoever leaves before the end ends the session: nobody knows where it stands.
        """
        mark = secrets.token_hex(16)
        try:
            await self._process.resume()
            asked = {"code": code, "mark": mark, "stopped": self._stopped}
            await self._process.write(json.dumps(asked).encode() + b"\n")
            written = Written(b"\0%s\0" % mark.encode(), most, heard=not self._stopped)
            written.add(self._early)
            stopped = await self._read(written, seconds)
        except BaseException:
            self._process.kill()
            raise
        self._stopped, self._early = stopped is not None, written.rest
        if not written.is_whole:
            return await self._ended(written, stopped)
        await self._process.pause()
        await self._process.check()  # quick code can write much before anybody looks
        ending = None if self._process.ending is None else await self._process.wait()
        starved = self._process.memory_kills > self._memory_kills
        self._memory_kills = self._process.memory_kills
        return CodeOutcome(written.end(), stopped, ending, starved=starved, left_out=written.left_out)

    async def _ended(self, written: "Written", stopped: Stop | None) -> CodeOutcome:
        """Return what came of a call with which the session has ended."""
        ending, logs = await self._end(stopped), written.end()
        starved = await self._process.count_memory_kills() > self._memory_kills
        if self._process.memory_kills and ending in {"exit", "memory"}:  # an earlier call may have had some, too
            ending = "memory" if starved else "exit"
        if not logs and ending == "exit":
            logs = (await self._process.stderr.read(_PIECE)).decode(errors="replace")
        return CodeOutcome(logs, stopped, ending, self._process.exit_code, starved=starved, left_out=written.left_out)

    async def _end(self, stopped: Stop | None) -> str:
        """Return why the session ended; one that goes on although it says nothing any more is ended."""
        if stopped is None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_GRACE):
                    return await self._process.wait()
        self._process.kill("time" if stopped == "time" else "killed")
        return await self._process.wait()

    async def _read(self, written: "Written", seconds: float) -> Stop | None:
        """Read to the end of the call, or of the process; return why it was interrupted, if it was."""
        stopped: Stop | None = None
        left = asyncio.get_running_loop().time() + seconds
        with contextlib.suppress(TimeoutError):
            while not written.is_whole:
                try:
                    async with asyncio.timeout_at(left):
                        piece = await self._process.stdout.read(_PIECE)
                except TimeoutError:
                    if stopped is not None:
                        raise
                    stopped = "time"
                else:
                    if not piece:
                        break
                    if not written.add(piece) or stopped is not None:
                        continue
                    stopped = "output"
                self._process.interrupt()
                left = asyncio.get_running_loop().time() + _GRACE
        return stopped

    async def close(self) -> None:
        """End the interpreter, with all that it has started."""
        await self._closing.aclose()


class Written:
    """What a call writes, up to a limit, between its two marks.

    What stands before the first was written by what earlier calls have left running. It is `heard` or not.
    """

    def __init__(self, mark: bytes, most: int, *, heard: bool) -> None:
        self._mark = mark
        self._heard = heard
        self._has_begun = False
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._texts: list[str] = []
        self._room = most
        self._ends_line = True
        self._tail = b""
        self._dropped = 0
        self.left_out = 0
        """Bytes before the first mark that are not heard."""
        self.rest = b""
        """What came after the second mark."""
        self.is_whole = False

    def add(self, piece: bytes) -> bool:
        """Take a piece; tell whether it is not the last, and there is too much already."""
        piece = self._tail + piece
        if not self._has_begun:
            early, self._has_begun, piece = self._parted(piece)
            self._add_early(early)
        if self._has_begun:
            own, self.is_whole, self.rest = self._parted(piece)
            self._keep(own)
        return self._dropped > 0 and not self.is_whole

    def _parted(self, piece: bytes) -> tuple[bytes, bool, bytes]:
        """Return what stands before a mark, whether there is one, and what stands after it."""
        before, found, after = piece.partition(self._mark)
        unsure = 0 if found else min(len(before), len(self._mark) - 1)  # the mark may have come in part
        self._tail = before[len(before) - unsure :]
        return before[: len(before) - unsure], bool(found), after

    def _add_early(self, early: bytes) -> None:
        if not self._heard:
            self.left_out += len(early)
            return
        self._keep(early)
        if self._has_begun and not self._ends_line:
            self._keep(b"\n")

    def _keep(self, data: bytes) -> None:
        """Keep what there is room for, as text: much of it, if it is none, would take long at once."""
        kept = data[: self._room]
        self._room -= len(kept)
        self._dropped += len(data) - len(kept)
        if kept:
            self._texts.append(self._decoder.decode(kept).replace("\0", "�"))
            self._ends_line = kept.endswith(b"\n")

    def end(self) -> str:
        """Return what was kept, when nothing more comes."""
        if not (self.is_whole or self._dropped):
            self._keep(self._tail)
        self._texts.append(self._decoder.decode(b"", final=True))
        return "".join(self._texts)
