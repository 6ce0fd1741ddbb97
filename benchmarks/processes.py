"""Processes under measurement: started on a core of their own, watched from outside, ended whatever happens."""

import contextlib
import functools
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

from benchmarks.measure import BenchmarkError

LISTENING = "Listening on http://127.0.0.1:"
# Nothing of the caller's configuration may change what is measured, or lead traffic off this machine. What is installed
# has its bytecode, too: a server that may not keep it compiles all of itself at each start, which doubles its CPU time.
FOREIGN = ("ANTWORT_", "OPENAI_", "PYTHONDONTWRITEBYTECODE")


class ServerExitError(BenchmarkError):
    """A server ended before it listened."""

    def __init__(self, command: Sequence[str], code: int, log: str) -> None:
        super().__init__(f"`{' '.join(command)}` ended with code {code}:\n{log}")
        self.code = code


@dataclass(frozen=True, slots=True)
class Cores:
    """The core of the server, and the core of what it talks to."""

    server: int
    client: int

    @property
    def shared(self) -> bool:
        return self.server == self.client

    @contextlib.contextmanager
    def reserved(self) -> Iterator[None]:
        """Keep this process, and what it starts from now on, on the core of the clients."""
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {self.client})
        try:
            yield
        finally:
            os.sched_setaffinity(0, before)


def available_cores() -> Cores:
    allowed = sorted(os.sched_getaffinity(0))
    return Cores(server=allowed[0], client=allowed[-1])


class Server:
    """A server that listens on a port of 127.0.0.1."""

    def __init__(self, pid: int, port: int) -> None:
        self.pid = pid
        self.port = port

    def cpu_seconds(self) -> float:
        """Return the CPU time, user and system, that the process and all its descendants have used."""
        return sum(cpu_seconds(pid) for pid in self.processes())

    def resident_bytes(self) -> int:
        return sum(_resident_bytes(pid) for pid in self.processes())

    def processes(self) -> Iterator[int]:
        """Yield the process and all its descendants."""
        waiting = [self.pid]
        while waiting:
            pid = waiting.pop()
            yield pid
            for children in Path(f"/proc/{pid}/task").glob("*/children"):
                with contextlib.suppress(OSError):
                    waiting += map(int, children.read_text().split())


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process and of its children that have ended."""
    # The kernel's clock of a process counts in nanoseconds, /proc/<pid>/stat only in ticks of 10 ms.
    clock = (~pid << 3) | 2
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        reaped = (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")
        return time.clock_gettime(clock) + reaped
    except OSError:  # it has just ended, and counts among the reaped of its parent
        return 0.0


def _resident_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


@contextlib.contextmanager
def running(
    command: Sequence[str], *, core: int | None, cwd: Path | None = None, timeout: float = 60
) -> Iterator[Server]:
    """Start a server on a core, or on all, and wait until it says where it listens; end it, with what it started.

    It lies at the same addresses at each start, where that can be had.
    """
    with (
        TemporaryFile() as log,
        child(
            [*at_fixed_addresses(), *command], cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log
        ) as process,
    ):
        if core is not None:
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(process.pid, {core})
        deadline = time.monotonic() + timeout
        while (line := read_line(process, deadline)) is not None:
            if line.startswith(LISTENING):
                yield Server(process.pid, int(line.removeprefix(LISTENING)))
                return
        code = process.wait(timeout=10)
        log.seek(0)
        raise ServerExitError(command, code, log.read()[-2000:].decode(errors="replace").strip())


@functools.cache
def at_fixed_addresses() -> tuple[str, ...]:
    """Return the command that has the system lay a program out alike each time; none where that is not allowed.

    Where code and data happen to lie makes as much as a third of what the same request costs the same Python.
    """
    command = (shutil.which("setarch") or "", "--addr-no-randomize")
    allowed = command[0] and subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0
    return command if allowed else ()


@contextlib.contextmanager
def child(
    command: Sequence[str], *, cwd: Path | None = None, **streams: int | IO[bytes]
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process in a group of its own; end the group on the way out: gently, then by force."""
    options: dict[str, Any] = dict(streams)
    with subprocess.Popen(
        list(command), cwd=cwd, env=clean_environment(), start_new_session=True, **options
    ) as process:
        try:
            yield process
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=5)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def read_line(process: subprocess.Popen[bytes], deadline: float) -> str | None:
    """Return the next line a process prints, or None at the end of its output."""
    assert process.stdout is not None
    line = bytearray()
    while not line.endswith(b"\n"):
        if not select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
            raise BenchmarkError(f"`{process.args!r}` did not answer in time")
        byte = os.read(process.stdout.fileno(), 1)
        if not byte:
            return None
        line += byte
    return line.decode().rstrip()


def clean_environment() -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if not name.upper().startswith(FOREIGN) and not name.lower().endswith("_proxy")
    }
