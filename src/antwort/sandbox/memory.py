"""The memory that processes hold, counted from outside where no control group counts it.

What cannot be seen to be empty counts as full: a pipe, a socket, a part of memory that is shared. What the kernel keeps
for processes counts, too, each kind by what it takes at most.
"""

# ruff: noqa: PTH116, PTH208 - it is done every few milliseconds, and paths as objects take as long as all the rest

import contextlib
import os
import stat
import time
from collections.abc import Callable, Iterator
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
"""Bytes of the kernel for a part of the memory of a process, or a lock of a file."""
_WAITED_FOR = 4 << 10
"""What a file counts that is waited for: more than it takes, since it takes long to look at many, and more come."""
_UNSEEN_FILES = 128
"""How many open files count for a process that shows none."""
_NAMELESS = (b"/dev/zero", b"/memfd:", b"/SYSV")
"""How the names of shared memory begin that is no file of the sandbox."""
_PRIVATE = (b"RssAnon", b"VmSwap", b"VmPTE")
"""What a process has for itself, in kibibytes: a process can have its memory swapped out, also to compressed memory."""
_IN_MEMORY = ("tmp", "dev/shm")
_UNBOUNDED = 1 << 62
_SETTING_OUT = 5
"""Hundredths of a second that who is about to become the command computes at most."""
_GLANCE = 0.01
"""Seconds of a look after which several processes are glanced at again: meanwhile they go on taking."""
_FEW = 4
"""Processes that are looked at as quickly as glanced at."""
_ROUNDS = 8
"""How often processes are looked for that were started while others were looked at."""


def memory_usage(process: int, *, closed: bool = False, most: int | None = None) -> int:
    """Return the bytes of memory that a process and all that it has started hold, files that they read aside.

    If others are `closed` to nobody but who wants to hide, and one is closed, that is more than anybody may have. If
    several have more than `most` at a glance, it is not looked at what they hold besides: that takes long.
    """
    with _processes(process, closed=closed) as (first, processes):
        if most is not None and (glanced := _glance(first, processes())) > most:
            return glanced
        held, glance_at = _HeldMemory(first, closed=closed), time.monotonic() + _GLANCE
        looked_at: set[str] = set()
        for _ in range(_ROUNDS):
            places = [place for place in processes() if place not in looked_at]
            looked_at.update(places)
            # Who was told and is gone may have handed all that he had to one whom he has started, and who was not told.
            still_there = []
            for place in places:
                still_there.append(held.look_at(place))
                if most is not None and (size := held.size()) > most:
                    return size
                if most is not None and time.monotonic() > glance_at:
                    if (glanced := _glance(first, processes())) > most:
                        return glanced
                    glance_at = time.monotonic() + _GLANCE
            if all(still_there):
                break
        return held.size()


def _glance(first: str, places: list[str]) -> int:
    """Return what is quickly seen of several processes: private memory, sockets, files in memory."""
    if len(places) <= _FEW:
        return 0
    held = _HeldMemory(first)
    for place in places:
        with contextlib.suppress(OSError):
            held.look_at_private(read_all(f"{place}/status"))
            if place != first:
                held.look_at_surroundings(place)
    return held.size()


@contextlib.contextmanager
def _processes(process: int, *, closed: bool) -> Iterator[tuple[str, Callable[[], list[str]]]]:
    """Have the place in `/proc` of a process, and what tells those of it and all that it has started.

    In a sandbox, where others are `closed` to nobody, its own `/proc` tells: there one cannot wander between parents.
    """
    if closed and (inside := _own_proc(process)) is not None:
        try:
            own = f"/proc/self/fd/{inside}"
            yield f"{own}/1", lambda: [f"{own}/{name}" for name in os.listdir(inside) if name.isdigit()]
        finally:
            os.close(inside)
    else:
        yield f"/proc/{process}", lambda: [f"/proc/{one}" for one in descendants(process)]


def _own_proc(first: int) -> int | None:
    """Open the `/proc` of a sandbox, by the first that shows it; None if none does, as when it is about to begin."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for one in read_all(f"/proc/{first}/task/{first}/children").split():
            with contextlib.suppress(OSError):
                return os.open(f"/proc/{int(one)}/root/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    return None


def files_in_memory(process: int) -> int:
    """Return the bytes of files that processes in a sandbox have in memory; 0 if none of them shows any."""
    for one in descendants(process):
        held = _HeldMemory(f"/proc/{process}")
        with contextlib.suppress(OSError):
            if one != process:  # the sandbox's own, and closed
                held.look_at_surroundings(f"/proc/{one}")
                return held.in_memory
    return 0


def uncounted_usage(process: int) -> int:
    """Return the bytes that the kernel keeps for processes without counting them to a group: locks and terminals."""
    held = _HeldMemory(f"/proc/{process}")
    for one in descendants(process):
        held.look_at_files(one)
    return held.uncounted()


class _HeldMemory:
    """What was found so far; what several processes share counts once."""

    def __init__(self, first: str, *, closed: bool = False) -> None:
        self._first = first
        self._closed = closed
        self._private = 0
        self._entries = 0
        self._shared: dict[tuple[bytes, bytes], int] = {}
        self._pipes: set[int] = set()
        self._sockets = self._terminals = 0
        self.in_memory = 0
        """Bytes of files that are in memory."""
        self._has_surroundings = False

    def size(self) -> int:
        """Return the sum."""
        waiting = self._sockets * int(_SOCKET.read_text()) if self._sockets else 0
        shared = sum(max(SHARED, size) for size in self._shared.values())
        return self._private + shared + self.in_memory + waiting + _PIPE * len(self._pipes) + self.uncounted()

    def uncounted(self) -> int:
        """Return what no control group counts."""
        return _ENTRY * self._entries + _TERMINAL * self._terminals

    def look_at(self, process: str) -> bool:
        """Add what a process holds, by its place in `/proc`; tell whether it was still there.

        Any of its threads tells, but not one that has ended, as the first may have.
        """
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it is gone
            status = read_all(f"{process}/status")
            place = process
            if b"\nRssAnon:" not in status:
                for thread in os.listdir(f"{process}/task"):
                    place = f"{process}/task/{thread}"
                    status = read_all(f"{place}/status")
                    if b"\nRssAnon:" in status:
                        break
                else:
                    return False
            self.look_at_private(status)
            if process == self._first:  # the sandbox's own, and closed
                return True
            try:
                self._add_mappings(place)
                self._add_open_files(place)
                self.look_at_surroundings(place)
            except PermissionError:
                if b"\nRssAnon:" in read_all(f"{place}/status"):  # who ends has no memory any more, and shows nothing
                    self._add_unseen(process, status)
            return True
        return False

    def look_at_private(self, status: bytes) -> None:
        """Add what a process has for itself, by its status."""
        self._private += sum(_number(status, name) for name in _PRIVATE) << 10
        self._private += _THREAD * _number(status, b"Threads")
        self._private += _FILTER * max(0, _number(status, b"Seccomp_filters") - 1)

    def look_at_files(self, process: int) -> None:
        """Add what a process holds by open files, if it shows them."""
        place = f"/proc/{process}"
        if place != self._first:
            with contextlib.suppress(OSError):
                self._add_open_files(place)
                self.look_at_surroundings(place)

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
                    self._entries += details.count(b"\nlock:")
                    self._private += _WAITED_FOR * details.count(b"\ntfd:")

    def look_at_surroundings(self, place: str) -> None:
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
                self.in_memory += (about.f_blocks - about.f_bfree) * about.f_frsize
                self.in_memory += (about.f_files - about.f_ffree) * _INODE

    def _add_unseen(self, process: str, status: bytes) -> None:
        """Count a process that shows nothing as one that has much, unless it is about to become the command."""
        if not self._closed:
            self._private += _UNSEEN_FILES * _PIPE
            return
        fields = read_all(f"{process}/stat").rpartition(b")")[2].split()
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
