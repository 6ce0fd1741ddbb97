"""The memory that processes hold, counted from outside where no control group counts it.

What cannot be seen to be empty counts as full: a pipe, a socket, a part of memory that is shared.
"""

import contextlib
import os
import stat
from pathlib import Path

from antwort.sandbox.usage import descendants

_PIPE = 16 * os.sysconf("SC_PAGESIZE")
"""Bytes that a pipe holds at most."""
_SOCKET = Path("/proc/sys/net/core/wmem_default")
"""Where the kernel tells how many bytes wait in a socket at most, to which nobody can give a larger buffer."""
_INODE = 1 << 10
"""Bytes of the kernel for a file in memory, however small it is."""
_UNSEEN_FILES = 128
"""How many open files count for a process that shows none."""
_NAMELESS = ("/dev/zero", "/memfd:", "/SYSV")
"""How the names of shared memory begin that is no file of the sandbox."""
_IN_MEMORY = ("tmp", "dev/shm")


def memory_usage(process: int) -> int:
    """Return the bytes of memory that a process and all that it has started hold, files that they read aside."""
    held = _Held()
    for one in descendants(process):
        held.look_at(one, shows_files=one != process)  # the first is the sandbox's own, and closed
    return held.size()


class _Held:
    """What was found so far; what several processes share counts once."""

    def __init__(self) -> None:
        self._private = 0
        self._shared: dict[tuple[str, str], int] = {}
        self._pipes: set[int] = set()
        self._sockets = 0
        self._files: dict[int, int] = {}
        """Bytes of the file systems in memory, by their devices."""
        self._networks: set[int] = set()

    def size(self) -> int:
        """Return the sum."""
        kept = sum(self._shared.values()) + sum(self._files.values())
        waiting = self._sockets * int(_SOCKET.read_text()) if self._sockets else 0
        return self._private + kept + waiting + _PIPE * len(self._pipes)

    def look_at(self, process: int, *, shows_files: bool = True) -> None:
        """Add what a process holds. Any of its threads tells, but not one that has ended, as the first may have."""
        with contextlib.suppress(OSError):  # it is gone
            for thread in Path(f"/proc/{process}/task").iterdir():
                if self._add_memory(thread):
                    if shows_files:
                        self._add_open_files(thread)
                        self._add_surroundings(thread)
                    return

    def _add_memory(self, thread: Path) -> bool:
        """Add the memory of a thread; False if it has none any more."""
        lines = dict(line.split(":", 1) for line in (thread / "status").read_text().splitlines() if ":" in line)
        if "RssAnon" not in lines:
            return False
        self._private += sum(int(lines[name].split()[0]) << 10 for name in ("RssAnon", "VmPTE"))
        for line in _lines(thread / "maps"):
            place, _, offset, _, number, *name = line.split(maxsplit=5)
            if name and name[0].startswith(_NAMELESS):
                first, last = (int(address, 16) for address in place.split("-"))
                key = number, offset
                self._shared[key] = max(self._shared.get(key, 0), last - first)
        return True

    def _add_open_files(self, thread: Path) -> None:
        try:
            with os.scandir(thread / "fd") as files:
                for file in files:
                    with contextlib.suppress(OSError):
                        about = file.stat()
                        if stat.S_ISFIFO(about.st_mode):
                            self._pipes.add(about.st_ino)
        except PermissionError:
            self._private += _UNSEEN_FILES * _PIPE

    def _add_surroundings(self, thread: Path) -> None:
        """Add what waits in sockets, and files in memory, unless they are the server's own."""
        with contextlib.suppress(OSError):
            network = (thread / "ns" / "net").stat().st_ino
            if network not in self._networks and network != Path("/proc/self/ns/net").stat().st_ino:
                self._networks.add(network)
                self._sockets += (thread / "net" / "unix").read_bytes().count(b"\n") - 1
        for name in _IN_MEMORY:
            with contextlib.suppress(OSError):
                place = thread / "root" / name
                device = place.stat().st_dev
                if device not in self._files and device != Path("/", name).stat().st_dev:
                    about = os.statvfs(place)
                    used = (about.f_blocks - about.f_bfree) * about.f_frsize
                    self._files[device] = used + (about.f_files - about.f_ffree) * _INODE


def _lines(file: Path) -> list[str]:
    """Return what a file says; nothing if it may not be read, as of the sandbox's first process."""
    try:
        return file.read_text(errors="replace").splitlines()
    except PermissionError:
        return []
