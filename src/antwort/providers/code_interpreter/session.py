"""A session: one interpreter that executes code call by call, and keeps its variables."""

import asyncio
import contextlib
import json
import secrets
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct

from antwort.provider import FunctionUnavailableError, Sandbox, SandboxLimits, SandboxProcess

_DRIVER = Path(__file__).with_name("driver.py")
_PIECE = 1 << 16
_GRACE = 2.0
"""Seconds that code has to end after it was interrupted."""
_ENVIRONMENT = {
    "MPLBACKEND": "Agg",
    "MPLCONFIGDIR": "/tmp/.matplotlib",  # noqa: S108 - the sandbox's own
    "XDG_CACHE_HOME": "/tmp/.cache",  # noqa: S108
}

Stop = Literal["time", "output"]
"""Why code was interrupted."""


class Interpreter(Struct, frozen=True):
    """Which Python it is, and what else it needs to see."""

    python: str
    readonly: Sequence[Path] = ()

    @property
    def command(self) -> list[str]:
        """How a session is started."""
        return [self.python, "-I", "-B", "-c", _DRIVER.read_text()]


class Outcome(Struct, frozen=True):
    """What came of a call."""

    logs: str
    """What it wrote: output, errors and tracebacks."""
    stopped: Stop | None = None
    ending: str | None = None
    """Why the session has ended, if it has."""


class Session:
    """A running interpreter. Between calls all its processes are stopped."""

    def __init__(self, process: SandboxProcess, closing: contextlib.AsyncExitStack) -> None:
        self._process = process
        self._closing = closing

    @classmethod
    async def start(cls, sandbox: Sandbox, interpreter: Interpreter, folder: Path, limits: SandboxLimits) -> "Session":
        """Start an interpreter; FunctionUnavailableError if it does not start."""
        closing = contextlib.AsyncExitStack()
        command = await asyncio.to_thread(lambda: interpreter.command)
        opened = sandbox.open(command, folder, limits=limits, readonly=interpreter.readonly, environment=_ENVIRONMENT)
        return cls(await closing.enter_async_context(opened), closing)

    @property
    def is_alive(self) -> bool:
        """Tell whether it can take a call."""
        return self._process.ending is None

    async def execute(self, code: str, *, seconds: float, most: int) -> Outcome:
        """Execute code for at most some seconds, and return at most so many bytes of what it wrote.

        Whoever leaves before the end ends the session: nobody knows where it stands.
        """
        mark = secrets.token_hex(16)
        try:
            await self._process.resume()
            await self._process.write(json.dumps({"code": code, "mark": mark}).encode() + b"\n")
            written = _Written(b"\0%s\0" % mark.encode(), most)
            stopped = await self._read(written, seconds)
        except BaseException:
            self._process.kill()
            raise
        logs = written.text
        if not written.is_whole:
            ending = await self._end(stopped)
            if not logs and ending == "exit":
                logs = (await self._process.stderr.read(_PIECE)).decode(errors="replace")
            return Outcome(logs, stopped, ending)
        await self._process.pause()
        if await self._process.check() is not None:  # quick code can write much before anybody looks
            return Outcome(logs, stopped, await self._process.wait())
        return Outcome(logs, stopped)

    async def _end(self, stopped: Stop | None) -> str:
        """Return why the session ended; one that goes on although it says nothing any more is ended."""
        if stopped is None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_GRACE):
                    return await self._process.wait()
        self._process.kill("time" if stopped == "time" else "killed")
        return await self._process.wait()

    async def _read(self, written: "_Written", seconds: float) -> Stop | None:
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


class _Written:
    """What a call writes, up to a limit, and its end."""

    def __init__(self, mark: bytes, most: int) -> None:
        self._mark = mark
        self._most = most
        self._data = bytearray()
        self._tail = b""
        self._dropped = 0
        self.is_whole = False

    def add(self, piece: bytes) -> bool:
        """Take a piece; tell whether it is not the last, and there is too much already."""
        piece = self._tail + piece
        before, found, _ = piece.partition(self._mark)
        self.is_whole = bool(found)
        keep = 0 if found else min(len(before), len(self._mark) - 1)  # the mark may have come in part
        self._tail = before[len(before) - keep :]
        before = before[: len(before) - keep]
        room = self._most - len(self._data)
        self._data += before[:room]
        self._dropped += max(0, len(before) - room)
        return self._dropped > 0 and not self.is_whole

    @property
    def text(self) -> str:
        """What was kept."""
        whole = self._data if self.is_whole or self._dropped else self._data + self._tail
        return whole.decode(errors="replace").replace("\0", "�")


async def examined(sandbox: Sandbox, python: str) -> Interpreter:
    """Return the interpreter with what it needs to see; FunctionUnavailableError if it cannot be used."""
    readonly = await _places(python) if "/" in python else []
    probe = [python, "-I", "-c", "import sys; sys.exit(sys.version_info < (3, 8))"]
    done = await sandbox.run(probe, readonly=readonly)
    if done.exit_code != 0:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        why = lines[-1] if lines else "it is older than Python 3.8"
        raise FunctionUnavailableError(f"'{python}' cannot be used in the sandbox: {why[:300].rstrip('.')}.")
    return Interpreter(python, readonly)


async def _places(python: str) -> list[Path]:
    """Return the folders outside of the system that an interpreter lives in: those of its environment too."""
    code = "import json, sys; print(json.dumps([sys.prefix, sys.base_prefix, sys.executable]))"
    try:
        process = await asyncio.to_thread(
            subprocess.run,
            [python, "-I", "-c", code],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            check=False,
        )
    except OSError as error:
        raise FunctionUnavailableError(f"'{python}' cannot be started: {error.strerror}.") from error
    if process.returncode != 0:
        raise FunctionUnavailableError(f"'{python}' is no Python.")
    prefix, base, executable = (Path(path) for path in json.loads(process.stdout))
    found = {prefix, base, executable.resolve().parent.parent}
    return sorted(path for path in found if not path.is_relative_to("/usr"))
