"""What a running process uses of disk and memory, counted from outside."""

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from antwort.sandbox.limits import MEBIBYTE, SandboxLimits

_BLOCK = 512
_RESERVE = 64 * MEBIBYTE
"""Bytes of the disk that nobody gets, whatever the limit."""
_LENIENCE = 2
"""How many times its limit a folder may have that was found too full: enough to be cleaned up."""


class DiskUsage(Struct, frozen=True):
    """What is in a folder."""

    size: int = 0
    """Bytes that it takes on the disk."""
    files: int = 0
    """Files and folders in it; more than were to be counted if there are more."""


def disk_usage(folder: Path, most_files: int) -> DiskUsage:
    """Count what is in a folder, links as links; stop when it is clear that there is too much.

    It may change meanwhile: what is gone counts nothing. What lies too deep to be looked at counts as too much.
    """
    size = files = 0
    waiting = [str(folder)]
    while waiting and files <= most_files:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    files += 1
                    about = entry.stat(follow_symlinks=False)
                    size += about.st_blocks * _BLOCK
                    if stat.S_ISDIR(about.st_mode):
                        waiting.append(entry.path)
                    if files > most_files:
                        break
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            continue  # it is gone, or closed by its owner, so that nobody can write into it either
        except OSError:
            return DiskUsage(size, most_files + 1)
    return DiskUsage(size, files)


def descendants(process: int) -> Iterator[int]:
    """Yield a process and all that it has started."""
    waiting = [process]
    while waiting:
        one = waiting.pop()
        yield one
        with contextlib.suppress(OSError):
            for task in os.scandir(f"/proc/{one}/task"):
                waiting += map(int, Path(task.path, "children").read_text().split())


def is_stopped(process: int) -> bool:
    """Tell whether a process does nothing: it was stopped, or it is gone."""
    try:
        state = Path("/proc", str(process), "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state in "TtZX"


def memory_usage(process: int) -> int:
    """Return the bytes of memory that a process and all that it has started hold, files that they read aside."""
    total = 0
    for one in descendants(process):
        with contextlib.suppress(OSError):
            for line in Path("/proc", str(one), "status").read_text().splitlines():
                if line.startswith(("RssAnon:", "RssShmem:")):
                    total += int(line.split()[1]) * 1024
    return total


def _unlinked_bytes(process: int, device: int) -> int:
    """Return the bytes on a disk of files that processes hold open although they have no name any more."""
    held: dict[int, int] = {}
    for one in descendants(process):
        with contextlib.suppress(OSError):
            for file in os.scandir(f"/proc/{one}/fd"):
                with contextlib.suppress(OSError):
                    about = file.stat()
                    if about.st_nlink == 0 and about.st_dev == device and stat.S_ISREG(about.st_mode):
                        held[about.st_ino] = about.st_blocks * _BLOCK
    return sum(held.values())


class Room(Struct, frozen=True):
    """How much a process may have in its folder."""

    folder: Path
    size: int
    files: int

    @classmethod
    def of(cls, folder: Path, limits: SandboxLimits) -> "Room":
        """Return the limits, or what is there already if that is more: whoever cleans up must be able to."""
        used = disk_usage(folder, _LENIENCE * limits.disk_files)
        size = min(max(limits.disk_bytes, used.size), _LENIENCE * limits.disk_bytes)
        return cls(folder, size, min(max(limits.disk_files, used.files), _LENIENCE * limits.disk_files))

    def is_exceeded(self, process: int) -> bool:
        """Tell whether there is more, with files that have no name any more but are held open by the processes."""
        used = disk_usage(self.folder, self.files)
        if used.files > self.files or used.size > self.size:
            return True
        disk = os.statvfs(self.folder)
        if disk.f_bavail * disk.f_frsize < _RESERVE:
            return True
        return used.size + _unlinked_bytes(process, self.folder.stat().st_dev) > self.size
