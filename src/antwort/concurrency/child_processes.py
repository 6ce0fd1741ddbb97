"""Other programs, started without holding anybody up."""

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Self

from antwort.concurrency.undisturbed import undisturbed


class ChildProcess:
    """A program with pipes to it. Whoever has started it ends it, waits for it, and closes it.

    Loops that start programs by themselves may copy the memory map of this process to do so: the more a server has in
    memory, the longer all of its clients wait. This happens on a thread, where the kernel copies nothing.
    """

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process
        self._handle = os.pidfd_open(process.pid)
        self._ended = asyncio.Event()
        self._pipes: list[asyncio.BaseTransport] = []
        self.stdin: asyncio.StreamWriter
        self.stdout: asyncio.StreamReader
        self.stderr: asyncio.StreamReader
        self.returncode: int | None = None
        """What it said when it ended, or minus the signal that ended it; None before that was noticed."""
        asyncio.get_running_loop().add_reader(self._handle, self._end)

    @classmethod
    async def start(
        cls,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str],
        cwd: Path,
        inherited: Sequence[int] = (),
        start_new_session: bool = False,
    ) -> Self:
        """Start a program that has nothing of this process but the open files it is to inherit.

        OSError or ValueError if that cannot be done.
        """

        def spawned() -> "subprocess.Popen[bytes]":
            return subprocess.Popen(  # noqa: S603 - the command is the caller's, and goes through no shell
                arguments,
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=inherited,
                env=environment,
                cwd=cwd,
                start_new_session=start_new_session,
            )

        starting = asyncio.ensure_future(cls._started(spawned))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            await undisturbed(_end_started(starting))
            raise

    @classmethod
    async def _started(cls, spawned: Callable[[], "subprocess.Popen[bytes]"]) -> Self:
        own = cls(await asyncio.to_thread(spawned))
        try:
            await own._connect()
        except BaseException:
            own.close()
            await undisturbed(asyncio.to_thread(_end, own._process))
            raise
        return own

    @property
    def pid(self) -> int:
        """Its number; nobody else gets it before `returncode` is known."""
        return self._process.pid

    async def wait(self) -> int:
        """Wait for its end and return its code. Its pipes may still have something to read."""
        await self._ended.wait()
        return self._process.returncode

    def close(self) -> None:
        """Close the pipes; whoever reads from them is at their end."""
        for pipe in self._pipes:
            pipe.close()
        self._forget()

    async def _connect(self) -> None:
        process = self._process
        assert process.stdin is not None  # noqa: S101 - it was started with pipes
        assert process.stdout is not None  # noqa: S101
        assert process.stderr is not None  # noqa: S101
        loop = asyncio.get_running_loop()
        protocol = asyncio.StreamReaderProtocol(asyncio.StreamReader())
        writing, _ = await loop.connect_write_pipe(lambda: protocol, process.stdin)
        self.stdin = asyncio.StreamWriter(writing, protocol, None, loop)
        self._pipes.append(writing)
        self.stdout, self.stderr = await self._reader(process.stdout), await self._reader(process.stderr)

    async def _reader(self, pipe: IO[bytes]) -> asyncio.StreamReader:
        reader, transport = await pipe_reader(pipe)
        self._pipes.append(transport)
        return reader

    def _end(self) -> None:
        self.returncode = self._process.poll()
        self._forget()
        self._ended.set()

    def _forget(self) -> None:
        if self._handle >= 0:
            asyncio.get_running_loop().remove_reader(self._handle)
            os.close(self._handle)
            self._handle = -1


async def pipe_reader(pipe: IO[bytes]) -> tuple[asyncio.StreamReader, asyncio.BaseTransport]:
    """Return what reads from a pipe, and what closes it.

    Whoever is cancelled does not cut it off: uvloop would close the pipe then, and its file, which does not know of it,
    would close whatever has got the same number by then.
    """
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    connecting = asyncio.ensure_future(loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe))
    try:
        transport, _ = await asyncio.shield(connecting)
    except asyncio.CancelledError:
        connecting.add_done_callback(_close_connected)
        raise
    return reader, transport


def _close_connected(connecting: "asyncio.Future[tuple[asyncio.ReadTransport, asyncio.StreamReaderProtocol]]") -> None:
    if not connecting.cancelled() and connecting.exception() is None:
        connecting.result()[0].close()


async def _end_started(starting: Awaitable[ChildProcess]) -> None:
    """End a process that is being started, and that nobody wants any more."""
    with contextlib.suppress(OSError, ValueError):
        child = await starting
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGKILL)
        await child.wait()
        child.close()


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End a process whose pipes are closed."""
    process.kill()
    process.wait()
