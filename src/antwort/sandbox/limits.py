"""What a process in the sandbox may use, and how it ended."""

from typing import Literal

from msgspec import Struct

Ending = Literal["exit", "time", "memory", "disk", "output", "killed"]
"""Why a process ended: by itself, because a limit was reached, or because it was closed."""

MEBIBYTE = 1 << 20
NICENESS = 5
"""How far commands stand back: those that compute without end do not keep the server from answering others."""
STRETCH = 0.25
"""Seconds of processor time after which a command, with all that it has started, stands back further."""
LEAST = 12
"""How far it stands back then: commands that have just begun do not wait for it, and it does not stand still either."""


class SandboxLimits(Struct, frozen=True):
    """What one process and all that it starts may use together, unless it says otherwise."""

    seconds: float = 60.0
    """Of the clock, for `run`. A process that was opened lives until it is closed."""
    cpu_seconds: int | None = None
    """Of one processor, for all processes together; None is no limit but the clock. The kernel holds each to it."""
    cpus: float = 1.0
    """How many processors at a time; without control groups rounded up."""
    memory: int = 512 * MEBIBYTE
    processes: int = 64
    """Threads count too."""
    open_files: int = 256
    """For each process."""
    file_bytes: int = 128 * MEBIBYTE
    """Of one file."""
    disk_bytes: int = 512 * MEBIBYTE
    """Of all files in the folder. They are counted while it runs, so a quick writer gets a little further."""
    disk_files: int = 20_000
    """Files in the folder, counted in the same way."""
    scratch_bytes: int = 64 * MEBIBYTE
    """Of files in `/tmp` and `/dev/shm`, in each of them; they are in memory."""
    output_bytes: int = 4 * MEBIBYTE
    """Of what `run` keeps of the output and the errors, together; whoever writes more is ended."""
    niceness: int = LEAST
    """How far it stands back when it has computed for a while."""


class Finished(Struct, frozen=True):
    """What `run` returns."""

    ending: Ending
    exit_code: int | None
    """What the process said when it ended by itself; 128 and the signal if one ended it."""
    stdout: bytes
    stderr: bytes
    seconds: float
