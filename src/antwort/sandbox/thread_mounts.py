"""Mounts that only one thread sees, and what it starts. No program is needed to make them, which would take its time.

They are for root.
"""

import contextlib
import ctypes
import errno
import functools
import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path

_FOLDERS, _MOUNTS = 0x200, 0x20000
"""CLONE_FS and CLONE_NEWNS: whose current folder is shared by other threads cannot have mounts of his own."""
_BIND, _ALL, _PRIVATE, _SLAVE = 0x1000, 0x4000, 0x40000, 0x80000
_OPEN_TREE, _MOVE_MOUNT, _SET_ATTRIBUTES = 428, 429, 442
_HERE, _COPY, _ITSELF = -100, 0x80001, 4
"""AT_FDCWD; OPEN_TREE_CLONE, to be closed in what is executed; MOVE_MOUNT_F_EMPTY_PATH."""
_PATIENCE, _PAUSE = 5.0, 0.001
_AT_ITSELF, _BELOW = 0x1000, 0x8000
"""AT_EMPTY_PATH, AT_RECURSIVE."""
READ_ONLY, NO_SET_UID, NO_DEVICES, NO_PROGRAMS = 1, 2, 4, 8
"""What can be kept from whoever uses a mount; the kernel lets nobody who has fewer rights take it back."""


@contextlib.contextmanager
def copied(folder: Path | str, space: int | None) -> Iterator[int]:
    """Have an open copy of the mount of a folder, if need be of that in another namespace, which is open.

    Nothing else of that namespace is seen by who shows it: what sets up a sandbox copies all mounts that it sees.
    OSError if that cannot be done.
    """
    copy = _copied(folder) if space is None else _copied_there(folder, space)
    try:
        yield copy
    finally:
        os.close(copy)


def _copied_there(folder: Path | str, space: int) -> int:
    own = own_space()
    try:
        _checked(_libc().unshare(_FOLDERS))
        _checked(_libc().setns(space, _MOUNTS))
        try:
            return _copied(folder)
        finally:
            _checked(_libc().setns(own, _MOUNTS))
    finally:
        os.close(own)


def _copied(folder: Path | str) -> int:
    return _checked(_libc().syscall(_OPEN_TREE, _HERE, os.fsencode(folder), _COPY))


def copied_with_all(place: str) -> int:
    """Return an open copy of a file or folder with all that is mounted below; OSError if that cannot be done."""
    return _checked(_libc().syscall(_OPEN_TREE, _HERE, os.fsencode(place), _COPY | _BELOW))


def restrict(copy: int, attributes: int) -> None:
    """Keep something from whoever uses an open copy of mounts, all of them; OSError if that cannot be done."""
    _restrict(copy, b"", _AT_ITSELF | _BELOW, attributes)


def restrict_below(place: str, attributes: int) -> None:
    """Keep something from whoever uses the mount at a place and those below; OSError if that cannot be done."""
    _restrict(_HERE, os.fsencode(place), _BELOW, attributes)


def restrict_place(place: str, attributes: int) -> None:
    """Keep something from whoever uses the mount at a place, but not those below; OSError if that cannot be done."""
    late = time.monotonic() + _PATIENCE
    while True:
        try:
            _restrict(_HERE, os.fsencode(place), 0, attributes)
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > late:
                raise
            time.sleep(_PAUSE)  # what was written here is open in a program that another thread is about to start
        else:
            return


def _restrict(start: int, path: bytes, flags: int, attributes: int) -> None:
    about = struct.pack("=4Q", attributes, 0, 0, 0)
    _checked(_libc().syscall(_SET_ATTRIBUTES, start, path, flags, about, len(about)))


@contextlib.contextmanager
def rooted(root: str) -> Iterator[None]:
    """Let this thread alone find all paths below a place, whatever links say; it needs mounts of its own.

    Everybody can enter the folders that it makes there.
    """
    outside = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    mask = os.umask(0o022)
    try:
        os.chroot(root)
        try:
            os.chdir("/")
            yield
        finally:
            os.fchdir(outside)
            os.chroot(".")
    finally:
        os.umask(mask)
        os.close(outside)


def mount_apart(*, like: int | None = None) -> None:
    """Let this thread have mounts of its own, copies of those that it sees; OSError if it may not.

    They go with the thread and all that it has started. They are copies of those in another namespace if it is given,
    which is open.
    """
    if like is not None:
        _checked(_libc().unshare(_FOLDERS))
        _checked(_libc().setns(like, _MOUNTS))
    _checked(_libc().unshare(_MOUNTS))
    _mount("none", "/", _ALL | _PRIVATE)


def is_at_root(place: str) -> bool:
    """Have this thread, with mounts of its own, see them from their root; tell if what is at a place is as before."""
    before, space = Path(place).stat().st_dev, own_space()
    try:
        _checked(_libc().setns(space, _MOUNTS))
    finally:
        os.close(space)
    return Path(place).stat().st_dev == before


def mount_for_others() -> None:
    """Let this thread have such mounts for others to copy: what is unmounted on the machine goes from there, too."""
    _checked(_libc().unshare(_MOUNTS))
    _mount("none", "/", _ALL | _SLAVE)


def keep_apart(place: str) -> None:
    """Have nothing of what is mounted on the machine later at a place or below; OSError if that cannot be done."""
    _mount("none", place, _ALL | _PRIVATE)


def own_space() -> int:
    """Return the namespace of mounts of this thread, open."""
    return os.open("/proc/thread-self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)


def show_copy(copy: int, target: str) -> None:
    """Have an open copy of a mount at a place; OSError if that cannot be done."""
    _checked(_libc().syscall(_MOVE_MOUNT, copy, b"", _HERE, os.fsencode(target), _ITSELF))


def show(source: Path, target: Path) -> None:
    """Have a file or folder at another place, too; OSError if that cannot be done."""
    _mount(str(source), str(target), _BIND)


def mount_memory(target: str, attributes: int = 0, options: str = "mode=755") -> None:
    """Have an empty folder in memory at a place, that everybody can enter; OSError if that cannot be done."""
    _mount("antwort", target, attributes, b"tmpfs", options.encode())


def mount_terminals(target: str) -> None:
    """Have terminals at a place that are nobody else's; OSError if that cannot be done."""
    flags = NO_SET_UID | NO_PROGRAMS
    _mount("devpts", target, flags, b"devpts", b"newinstance,ptmxmode=0666,mode=620")


def _mount(source: str, target: str, flags: int, kind: bytes | None = None, options: bytes | None = None) -> None:
    _checked(_libc().mount(os.fsencode(source), os.fsencode(target), kind, ctypes.c_ulong(flags), options))


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _checked(result: int) -> int:
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result
