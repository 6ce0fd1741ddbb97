"""What a running process uses of disk and memory, counted from outside."""

import contextlib
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec import Struct

from antwort.sandbox.limits import MEBIBYTE, SandboxLimits
from antwort.sandbox.trees import make_accessible

_BLOCK = 512
_PART = 1 << 16
_RESERVE = 64 * MEBIBYTE
"""Bytes of the disk that nobody gets, whatever the limit."""
_LENIENCE = 2
"""How many times its limit a folder may have that was found too full: enough to be cleaned up."""
_MEMORY = ("/dev/zero", "/dev/shm/", "/memfd:", "/SYSV", "/tmp/", "/init ")  # noqa: S108 - the sandbox's own
"""How the names of mapped files begin that are not on the disk; the last is that of its first process."""


class DiskUsage(Struct, frozen=True):
    """What is in a folder."""

    size: int = 0
    """Bytes that it takes on the disk."""
    files: int = 0
    """Files and folders in it; more than were to be counted if there are more."""


def disk_usage(folder: Path, most_files: int) -> DiskUsage:
    """Count what is in a folder, links as links, a file with several names once; stop when there is clearly too much.

    It may change meanwhile: what is gone counts nothing. What lies too deep to be looked at counts as too much.
    A folder that its owner has closed to himself is opened: he may be at work in a folder within it.
    """
    size = files = 0
    named: set[int] = set()
    waiting = [str(folder)]
    while waiting and files <= most_files:
        place = waiting.pop()
        try:
            try:
                found = _counted(place, most_files - files, named)
            except PermissionError:
                make_accessible(place, folder)
                found = _counted(place, most_files - files, named)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            return DiskUsage(size, most_files + 1)
        size, files = size + found.size, files + found.files
        waiting += found.folders
    return DiskUsage(size, files)


class _Folder(DiskUsage, frozen=True):
    """What is in a folder, but for that which is in folders in it."""

    folders: list[str] = []


def _counted(place: str, most_files: int, named: set[int]) -> _Folder:
    """Count what is in one folder; the numbers of files that have several names are added to `named`."""
    size = files = 0
    folders = []
    with os.scandir(place) as entries:
        for entry in entries:
            files += 1
            with contextlib.suppress(FileNotFoundError):  # the others are still there
                about = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(about.st_mode):
                    folders.append(entry.path)
                if about.st_ino not in named:
                    size += about.st_blocks * _BLOCK
                if about.st_nlink > 1:
                    named.add(about.st_ino)
            if files > most_files:
                break
    return _Folder(size, files, folders)


def descendants(process: int) -> Iterator[int]:
    """Yield a process and all that it has started."""
    waiting = [process]
    while waiting:
        one = waiting.pop()
        yield one
        with contextlib.suppress(OSError), os.scandir(f"/proc/{one}/task") as tasks:
            for task in tasks:
                with contextlib.suppress(OSError):  # other threads have not ended
                    waiting += map(int, read_all(f"{task.path}/children").split())


def read_all(path: str) -> bytes:
    """Return what a file of the kernel says, which is often asked for."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = []
        while part := os.read(file, _PART):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(file)


def is_stopped(process: int) -> bool:
    """Tell whether a process does nothing: it was stopped, or it is gone."""
    try:
        state = Path("/proc", str(process), "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state in "TtZX"


def processor_time(process: int) -> float:
    """Return the seconds that a process and all that it has started, and waited for, have computed."""
    return sum(map(_ticks, descendants(process))) / os.sysconf("SC_CLK_TCK")


def _ticks(process: int) -> int:
    """Return what one process has computed, with what it has started and waited for."""
    try:
        fields = Path("/proc", str(process), "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return sum(map(int, fields[11:15]))


def _threads(process: int) -> list[Path]:
    try:
        with os.scandir(f"/proc/{process}/task") as tasks:
            return [Path(task.path) for task in tasks]
    except OSError:
        return []


class _Nameless(Struct):
    """Files that processes hold although they have no name any more."""

    sizes: dict[int, int] = {}
    """Bytes on the disk of those that are open, by their numbers."""
    unseen: int = 0
    """How many may be held in other ways, so that nobody can see how large they are."""

    def look_at(self, process: int, device: int) -> None:
        """Add those of a process. Each thread may have open files of its own, and outlive the first."""
        threads = _threads(process)
        for thread in threads:
            with contextlib.suppress(OSError), os.scandir(thread / "fd") as files:
                for file in files:
                    with contextlib.suppress(OSError):
                        self._add(file.stat(), thread / "fdinfo" / file.name, device)
        mapped = next(filter(None, map(_mapped, threads)), [])
        nameless = {line[4] for line in mapped if line[-1].endswith(" (deleted)") and not line[5].startswith(_MEMORY)}
        self.unseen += len(nameless - {str(number) for number in self.sizes})

    def _add(self, about: os.stat_result, details: Path, device: int) -> None:
        if stat.S_ISSOCK(about.st_mode):
            for line in details.read_text().splitlines():
                if line.startswith("scm_fds:"):
                    self.unseen += int(line.split()[1])
        elif stat.S_ISREG(about.st_mode) and about.st_nlink == 0 and about.st_dev == device:
            self.sizes[about.st_ino] = about.st_blocks * _BLOCK


def _mapped(thread: Path) -> list[list[str]]:
    """Return what is in the memory of a thread: lines of parts, the fifth a file's number and the sixth its name."""
    try:
        return [line.split(maxsplit=5) for line in (thread / "maps").read_text(errors="replace").splitlines()]
    except OSError:
        return []


class BoundedRoom(Struct, frozen=True):
    """What a process may have in a folder with a file system of its own: the kernel lets nobody write more.

    Only the number of files may be more than it should, as the file system rounds it up, which tells if there are few.
    """

    folder: Path
    files: int
    count: Callable[[Path], int]

    def is_exceeded(self, process: int) -> bool:  # noqa: ARG002 - it does not matter who has written it
        """Tell whether there are more files; FileNotFoundError if the folder is gone."""
        self.folder.stat()
        return self.count(self.folder) > self.files + self.files // 10


class FolderRoom(Struct, frozen=True):
    """How much a process may have in its folder."""

    folder: Path
    size: int
    files: int
    file_size: int
    """Bytes that one file may have."""
    free: int
    """Bytes that were free on the disk, and that were used in the folder, before it started."""
    used: int

    @classmethod
    def of(cls, folder: Path, limits: SandboxLimits) -> "FolderRoom":
        """Return the limits, or what is there already if that is more: whoever cleans up must be able to."""
        used = disk_usage(folder, _LENIENCE * limits.disk_files)
        size = min(max(limits.disk_bytes, used.size), _LENIENCE * limits.disk_bytes)
        files = min(max(limits.disk_files, used.files), _LENIENCE * limits.disk_files)
        return cls(folder, size, files, limits.file_bytes, _free(folder), used.size)

    def cut_back(self) -> bool:
        """Delete the newest files as long as there is more, when nobody writes any more; tell whether there was."""
        used = disk_usage(self.folder, _LENIENCE * self.files)
        if used.files <= self.files and used.size <= self.size:
            return False
        found = []
        for place, _, names in os.walk(self.folder):
            for name in names:
                about = Path(place, name).lstat()
                found.append((about.st_ctime_ns, about.st_blocks * _BLOCK, Path(place, name)))
        size, files = sum(part for _, part, _ in found), len(found)
        for _, part, path in sorted(found, reverse=True):
            if size <= self.size and files <= self.files:
                break
            path.unlink()
            size, files = size - part, files - 1
        return True

    def is_exceeded(self, process: int) -> bool:
        """Tell whether there is more, with files that have no name any more but are held by the processes."""
        used = disk_usage(self.folder, self.files)
        if used.files > self.files or used.size > self.size:
            return True
        free = _free(self.folder)
        if free < _RESERVE:
            return True
        nameless, device = _Nameless(), self.folder.stat().st_dev
        for one in descendants(process):
            nameless.look_at(one, device)
        known = used.size + sum(nameless.sizes.values())
        # Nobody knows how large the unseen are: at most as large as files may be, and as what the disk has lost since.
        lost = max(0, self.free - free - (known - self.used))
        return known + min(nameless.unseen * self.file_size, lost) > self.size


def _free(folder: Path) -> int:
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize
