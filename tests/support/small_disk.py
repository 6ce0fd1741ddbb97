"""A real disk that is soon full: a file system in memory, which only processes that are started on it see.

It needs no rights where users may have namespaces, as the sandbox does.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_HOLD = 'mount -t tmpfs -o "size=$1" tmpfs "$2" && echo mounted && exec cat'


class SmallDisk:
    """A file system of few bytes on a folder."""

    def __init__(self, folder: Path, holder: "subprocess.Popen[str]", *, as_user: bool) -> None:
        self.folder = folder
        self.inside = Path(f"/proc/{holder.pid}/root{folder}")
        """The same folder, for us who are outside."""
        spaces = ["--user", "--preserve-credentials", "--mount"] if as_user else ["--mount"]
        self._enter = ["nsenter", "--target", str(holder.pid), *spaces, "--"]

    def command(self, *arguments: str) -> list[str]:
        """Return the command that runs something on the disk."""
        return [*self._enter, *arguments]

    def free(self) -> int:
        """Return how many bytes are left."""
        state = os.statvfs(self.inside)
        return state.f_bavail * state.f_frsize

    def fill(self, but: int = 0) -> Path:
        """Take all the room there is, or all but some bytes, and return the file that takes it."""
        filler = self.inside / "filler"
        with filler.open("ab", buffering=0) as file:
            while (left := self.free() - but) > 0:
                file.write(bytes(min(left, 1 << 20)))
        return filler


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[SmallDisk]:
    """Yield a disk of so many bytes on a folder."""
    for as_user in (False, True) if os.geteuid() == 0 else (True,):
        flags = ["--user", "--map-root-user", "--mount"] if as_user else ["--mount"]
        with subprocess.Popen(
            ["unshare", *flags, "sh", "-c", _HOLD, "sh", str(size), str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as holder:
            assert holder.stdout is not None
            if holder.stdout.readline() == "mounted\n":
                yield SmallDisk(folder, holder, as_user=as_user)
                return
    raise AssertionError("a file system in memory cannot be mounted here, not even in a namespace of our own")
