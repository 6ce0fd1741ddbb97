"""Other programs, started without holding anybody up."""

import asyncio
import contextlib
import os
import subprocess
from collections.abc import Mapping, Sequence
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

        starting = asyncio.ensure_future(asyncio.to_thread(spawned))
        try:
            own = cls(await asyncio.shield(starting))
        except asyncio.CancelledError:
            await undisturbed(_end_started(starting))
            raise
        try:
            await own._connect()
        except BaseException:
            try:
                await undisturbed(asyncio.to_thread(_end, own._process))
            finally:
                own.close()
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
    """Return what reads from a pipe, and what closes it."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    return reader, transport


async def _end_started(starting: "asyncio.Future[subprocess.Popen[bytes]]") -> None:
    """End a process that is being started."""
    with contextlib.suppress(OSError, ValueError):
        await asyncio.to_thread(_end, await starting)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End a process that nobody wants any more."""
    with process:
        process.kill()
