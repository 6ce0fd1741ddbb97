"""The memory that processes hold, counted from outside where no control group counts it.

What cannot be seen to be empty counts as full: a pipe, a socket, a part of memory that is shared. What the kernel keeps
for processes counts, too, each kind by what it takes at most.
"""

# ruff: noqa: PTH116, PTH208 - it is done every few milliseconds, and paths as objects take as long as all the rest

import contextlib
import os
import stat
from pathlib import Path

from antwort.sandbox.limits import MEBIBYTE
from antwort.sandbox.usage import descendants, read_all

SHARED = 2 * MEBIBYTE
"""Bytes that shared memory without a file has at most, and counts for: nobody sees how much of it was written."""
_PIPE = 16 * os.sysconf("SC_PAGESIZE")
"""Bytes that a pipe holds at most."""
_SOCKET = Path("/proc/sys/net/core/wmem_default")
"""Where the kernel tells how many bytes wait in a socket at most, to which nobody can give a larger buffer."""
_INODE = 1 << 10
"""Bytes of the kernel for a file in memory, however small it is."""
_THREAD, _TERMINAL, _FILTER, _FILE = 32 << 10, 48 << 10, 128 << 10, 1 << 10
"""Bytes of the kernel for a thread, a pair of terminals, a filter of system calls and an open file."""
_ENTRY = 512
"""Bytes of the kernel for a part of the memory of a process, a lock of a file, a file that is waited for."""
_UNSEEN_FILES = 128
"""How many open files count for a process that shows none."""
_NAMELESS = (b"/dev/zero", b"/memfd:", b"/SYSV")
"""How the names of shared memory begin that is no file of the sandbox."""
_IN_MEMORY = ("tmp", "dev/shm")
_UNBOUNDED = 1 << 62
_SETTING_OUT = 5
"""Hundredths of a second that who is about to become the command computes at most."""


def memory_usage(process: int, *, closed: bool = False) -> int:
    """Return the bytes of memory that a process and all that it has started hold, files that they read aside.

    If others are `closed` to nobody but who wants to hide, and one is closed, that is more than anybody may have.
    """
    held = _Held(process, closed=closed)
    for one in descendants(process):
        held.look_at(one)
    return held.size()


def uncounted_usage(process: int) -> int:
    """Return the bytes that the kernel keeps for processes without counting them to a group: locks and terminals."""
    held = _Held(process)
    for one in descendants(process):
        held.look_at_files(one)
    return held.uncounted()


class _Held:
    """What was found so far; what several processes share counts once."""

    def __init__(self, first: int, *, closed: bool = False) -> None:
        self._first = first
        self._closed = closed
        self._private = 0
        self._entries = 0
        self._shared: dict[tuple[bytes, bytes], int] = {}
        self._pipes: set[int] = set()
        self._sockets = self._terminals = 0
        self._in_memory = 0
        self._has_surroundings = False

    def size(self) -> int:
        """Return the sum."""
        waiting = self._sockets * int(_SOCKET.read_text()) if self._sockets else 0
        shared = sum(max(SHARED, size) for size in self._shared.values())
        return self._private + shared + self._in_memory + waiting + _PIPE * len(self._pipes) + self.uncounted()

    def uncounted(self) -> int:
        """Return what no control group counts."""
        return _ENTRY * self._entries + _TERMINAL * self._terminals

    def look_at(self, process: int) -> None:
        """Add what a process holds. Any of its threads tells, but not one that has ended, as the first may have."""
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it is gone
            status = read_all(f"/proc/{process}/status")
            place = f"/proc/{process}"
            if b"\nRssAnon:" not in status:
                for thread in os.listdir(f"/proc/{process}/task"):
                    place = f"/proc/{process}/task/{thread}"
                    status = read_all(f"{place}/status")
                    if b"\nRssAnon:" in status:
                        break
                else:
                    return
            self._private += (_number(status, b"RssAnon") + _number(status, b"VmPTE")) << 10
            self._private += _THREAD * _number(status, b"Threads")
            self._private += _FILTER * max(0, _number(status, b"Seccomp_filters") - 1)
            if process == self._first:  # the sandbox's own, and closed
                return
            try:
                self._add_mappings(place)
                self._add_open_files(place)
                self._add_surroundings(place)
            except PermissionError:
                if b"\nRssAnon:" in read_all(f"{place}/status"):  # who ends has no memory any more, and shows nothing
                    self._add_unseen(process, status)

    def look_at_files(self, process: int) -> None:
        """Add what a process holds by open files, if it shows them."""
        if process != self._first:
            with contextlib.suppress(OSError):
                self._add_open_files(f"/proc/{process}")
                self._add_surroundings(f"/proc/{process}")

    def _add_mappings(self, place: str) -> None:
        data = read_all(f"{place}/maps")
        self._private += _ENTRY * data.count(b"\n")
        if not any(name in data for name in _NAMELESS):
            return
        for line in data.splitlines():
            where, _, offset, _, number, *name = line.split(maxsplit=5)
            if name and name[0].startswith(_NAMELESS):
                first, last = (int(address, 16) for address in where.split(b"-"))
                self._shared[number, offset] = max(self._shared.get((number, offset), 0), last - first)

    def _add_open_files(self, place: str) -> None:
        names = os.listdir(f"{place}/fd")
        self._private += _FILE * len(names)
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                about = os.stat(f"{place}/fd/{name}")
                kind = stat.S_IFMT(about.st_mode)
                if kind == stat.S_IFIFO:
                    self._pipes.add(about.st_ino)
                elif kind in {stat.S_IFREG, 0}:  # which may have locks, or wait for many others
                    details = read_all(f"{place}/fdinfo/{name}")
                    self._entries += details.count(b"\nlock:") + details.count(b"\ntfd:")

    def _add_surroundings(self, place: str) -> None:
        """Add what waits in sockets, terminals, and files in memory, unless they are the server's own."""
        if self._has_surroundings:  # all are in the same
            return
        self._has_surroundings = True
        if os.stat(f"{place}/ns/net").st_ino != os.stat("/proc/self/ns/net").st_ino:
            self._sockets = read_all(f"{place}/net/unix").count(b"\n") - 1
        if _is_other(f"{place}/root/dev/pts", "/dev/pts"):
            self._terminals = len(os.listdir(f"{place}/root/dev/pts")) - 1
        for name in _IN_MEMORY:
            if _is_other(f"{place}/root/{name}", f"/{name}"):
                about = os.statvfs(f"{place}/root/{name}")
                self._in_memory += (about.f_blocks - about.f_bfree) * about.f_frsize
                self._in_memory += (about.f_files - about.f_ffree) * _INODE

    def _add_unseen(self, process: int, status: bytes) -> None:
        """Count a process that shows nothing as one that has much, unless it is about to become the command."""
        if not self._closed:
            self._private += _UNSEEN_FILES * _PIPE
            return
        fields = read_all(f"/proc/{process}/stat").rpartition(b")")[2].split()
        is_second = status.partition(b"\nNSpid:")[2].partition(b"\n")[0].split()[-1:] == [b"2"]
        if not is_second or int(fields[11]) + int(fields[12]) >= _SETTING_OUT:
            self._private += _UNBOUNDED


def _number(status: bytes, name: bytes) -> int:
    """Return a number of the status of a process; 0 if it is not there."""
    start = status.find(b"\n" + name + b":")
    return 0 if start < 0 else int(status[start + len(name) + 2 : status.find(b"\n", start + 1)].split()[0])


def _is_other(place: str, own: str) -> bool:
    """Tell whether there is something in a place that is not the server's own."""
    with contextlib.suppress(FileNotFoundError):
        device = os.stat(place).st_dev
        with contextlib.suppress(FileNotFoundError):
            return device != os.stat(own).st_dev
        return True
    return False
