"""Other programs, started without holding anybody up.

Who closes what: `pipes` says it of pipes. A program gets the descriptors that it is to inherit, and nothing else; those
stay whose they were. A `ProcessHandle` closes its own descriptor, on the thread of the loop.
"""

import asyncio
import contextlib
import errno
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias

from antwort.concurrency.pipes import ReadingEnd, reader_of, writer_of
from antwort.concurrency.undisturbed import in_any_case

Stream: TypeAlias = Literal["stdin", "stdout", "stderr"]
ALL_STREAMS: tuple[Stream, ...] = ("stdin", "stdout", "stderr")
_TIED_BY_SHELL = '[ "$PPID" = "$1" ] || exit 1; niceness=$2; shift 2; exec nice -n "$niceness" "$@"'
_TIED_BY_PYTHON = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    number = signal.Signals["SIG" + sys.argv[1]]
    ctypes.CDLL(None).prctl(1, number, 0, 0, 0)  # PR_SET_PDEATHSIG, which stays set for what is executed
if os.getppid() != int(sys.argv[2]):
    os._exit(1)  # it ended before the kernel was told
os.nice(int(sys.argv[3]))
os.execvp(sys.argv[4], sys.argv[4:])
"""


@dataclass(frozen=True)
class _Started:
    """A program that was started, and our ends of its pipes as long as nobody has taken them."""

    process: "subprocess.Popen[bytes]"
    ends: dict[Stream, int] = field(default_factory=dict)

    def abandon(self) -> None:
        """Close what nobody has taken, and end the program."""
        _close_all(self.ends)
        self.process.kill()


class ChildProcess:
    """A program with pipes to it. Whoever has started it ends it, waits for it, and closes it.

    Loops that start programs by themselves may copy the memory map of this process to do so: the more a server has in
    memory, the longer all of its clients wait. This happens on a thread, where the kernel copies nothing. The thread is
    the program's own and waits for its end: what asks the kernel to be ended with its parent is ended with the thread
    that has started it.
    """

    def __init__(self) -> None:
        self._spawned: _Started
        self._ended = asyncio.Event()
        self._readers: list[ReadingEnd] = []
        self.stdin: asyncio.StreamWriter
        self.stdout: asyncio.StreamReader
        self.stderr: asyncio.StreamReader
        self.returncode: int | None = None
        """What it said when it ended, or minus the signal that ended it; None before that was noticed."""

    @classmethod
    async def start(
        cls,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        inherited: Sequence[int] = (),
        piped: Collection[Stream] = ALL_STREAMS,
        start_new_session: bool = False,
        within: AbstractContextManager[object] | None = None,
        end: "Callable[[ChildProcess], Awaitable[None]] | None" = None,
    ) -> Self:
        """Start a program that has nothing of this process but the open files it is to inherit.

        Where there is no pipe, the input is empty, and outputs are those of this process, as is the environment if none
        is given. It is started `within` what its thread enters and leaves, which starts nothing else. If nobody wants
        it any more before it is returned, it is killed, or has its `end` made. OSError or ValueError if it cannot be
        started.
        """

        def spawn(streams: Mapping[Stream, int]) -> "subprocess.Popen[bytes]":
            with within or contextlib.nullcontext():
                return subprocess.Popen(  # noqa: S603 - the command is the caller's, and goes through no shell
                    arguments,
                    stdin=streams.get("stdin", subprocess.DEVNULL),
                    stdout=streams.get("stdout"),
                    stderr=streams.get("stderr"),
                    pass_fds=inherited,
                    env=environment,
                    cwd=cwd,
                    start_new_session=start_new_session,
                )

        starting = asyncio.ensure_future(cls()._start(partial(_spawned, spawn, piped)))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            unwanted = _end_started(starting, end or _kill)
            await in_any_case(unwanted, "a program that nobody wants any more goes on")
            raise

    @property
    def pid(self) -> int:
        """Its number; nobody else gets it before `returncode` is known."""
        return self._spawned.process.pid

    async def wait(self) -> int:
        """Wait for its end and return its code. Its pipes may still have something to read."""
        await self._ended.wait()
        return self._spawned.process.returncode

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal, unless it has ended."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def close(self) -> None:
        """Close the pipes; whoever reads from them is at their end."""
        for reader in self._readers:
            reader.close()
        if hasattr(self, "stdin"):
            self.stdin.transport.abort()

    async def _start(self, spawn: Callable[[], _Started]) -> Self:
        loop = asyncio.get_running_loop()
        started: asyncio.Future[None] = loop.create_future()
        thread = threading.Thread(
            target=self._live, args=(spawn, loop, started), name="antwort-child-process", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:  # the system gives no more threads
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from error
        await started
        return self

    def _live(
        self, spawn: Callable[[], _Started], loop: asyncio.AbstractEventLoop, started: "asyncio.Future[None]"
    ) -> None:
        """Start the program and wait for its end, on its thread; tell the loop of both."""
        try:
            spawned = spawn()
        except Exception as error:  # noqa: BLE001 - it is raised where the program was wanted
            _tell(loop, _fail, started, error)
            return
        if _tell(loop, self._take, spawned, started):
            os.waitid(os.P_PID, spawned.process.pid, os.WEXITED | os.WNOWAIT)  # its number stays its own
            if _tell(loop, self._end):
                return
        spawned.abandon()  # the loop is closed
        spawned.process.wait()

    def _take(self, spawned: _Started, started: "asyncio.Future[None]") -> None:
        """Take over a program and its pipes."""
        self._spawned = spawned
        if started.done():  # nobody wants it any more
            spawned.abandon()
            return
        ends = spawned.ends
        try:
            if "stdin" in ends:
                self.stdin = writer_of(ends.pop("stdin"))
            if "stdout" in ends:
                self.stdout = self._reader(ends.pop("stdout"))
            if "stderr" in ends:
                self.stderr = self._reader(ends.pop("stderr"))
        except OSError as error:
            self.close()
            spawned.abandon()
            started.set_exception(error)
        else:
            started.set_result(None)

    def _reader(self, descriptor: int) -> asyncio.StreamReader:
        reader, end = reader_of(descriptor)
        self._readers.append(end)
        return reader

    def _end(self) -> None:
        self.returncode = self._spawned.process.poll()
        self._ended.set()


def tied(command: Sequence[str], *, niceness: int = 0, by: Literal["KILL", "TERM"] = "KILL") -> list[str]:
    """Return how a command is started that ends when this process ends, in whatever way, and however busy it is.

    With a niceness, it stands back by so much behind whoever else wants a processor, as does what it starts. A signal
    that it can hear lets it finish what it is at.

    The kernel ends it, with the thread that has started it: a `ChildProcess` has one that lives as long. What it has
    started itself has to see to that itself.
    """
    setpriv = shutil.which("setpriv") or ""
    if Path(setpriv).resolve().name == "setpriv":  # that of BusyBox does not know the option
        how = [setpriv, "--pdeathsig", by, "sh", "-c", _TIED_BY_SHELL, "sh"]  # a tenth of the time of the other
    else:
        how = [sys.executable, "-I", "-S", "-c", _TIED_BY_PYTHON, by]
    return [*how, str(os.getpid()), str(niceness), *command]


class ProcessHandle:
    """A process of which one knows the number: it is never another that has got the same number since.

    ProcessLookupError if there is none. Whoever has made it closes it.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._loop = asyncio.get_running_loop()
        self._gone = asyncio.Event()
        self._descriptor = os.pidfd_open(pid)
        try:
            self._loop.add_reader(self._descriptor, self._notice)
        except BaseException:
            os.close(self._descriptor)
            raise

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal, unless it is gone."""
        if self._descriptor >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._descriptor, number)

    async def wait(self) -> None:
        """Wait until it is gone, or this is closed."""
        await self._gone.wait()

    def close(self) -> None:
        """Close the handle; whoever waits does not wait any longer."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            self._loop.remove_reader(descriptor)
            os.close(descriptor)
        self._gone.set()

    def _notice(self) -> None:
        self._loop.remove_reader(self._descriptor)  # it is readable for ever
        self._gone.set()


def _spawned(spawn: "Callable[[Mapping[Stream, int]], subprocess.Popen[bytes]]", piped: Collection[Stream]) -> _Started:
    """Start a program with pipes."""
    own: dict[Stream, int] = {}
    theirs: dict[Stream, int] = {}
    try:
        for stream in piped:
            reading, writing = os.pipe()
            own[stream], theirs[stream] = (writing, reading) if stream == "stdin" else (reading, writing)
        return _Started(spawn(theirs), own)
    except BaseException:
        _close_all(own)
        raise
    finally:
        _close_all(theirs)


def _close_all(descriptors: dict[Stream, int]) -> None:
    while descriptors:
        os.close(descriptors.popitem()[1])


def _tell(loop: asyncio.AbstractEventLoop, callback: Callable[..., object], *args: Any) -> bool:
    """Have something called on a loop; False if it is closed."""
    try:
        loop.call_soon_threadsafe(callback, *args)
    except RuntimeError:
        return False
    return True


def _fail(started: "asyncio.Future[None]", error: Exception) -> None:
    if not started.done():
        started.set_exception(error)


async def _end_started(starting: Awaitable[ChildProcess], end: Callable[[ChildProcess], Awaitable[None]]) -> None:
    """End a process that is being started, and that nobody wants any more."""
    with contextlib.suppress(OSError, ValueError):
        child = await starting
        await end(child)
        await child.wait()
        child.close()


async def _kill(child: ChildProcess) -> None:
    child.send_signal(signal.SIGKILL)
