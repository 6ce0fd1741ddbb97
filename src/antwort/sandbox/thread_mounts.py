"""Mounts that only one thread sees, and what it starts. No program is needed to make them, which would take its time.

They are for root.
"""

import contextlib
import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

_FOLDERS, _MOUNTS = 0x200, 0x20000
"""CLONE_FS and CLONE_NEWNS: whose current folder is shared by other threads cannot have mounts of his own."""
_BIND, _ALL, _PRIVATE = 0x1000, 0x4000, 0x40000
_OPEN_TREE, _MOVE_MOUNT = 428, 429
_HERE, _COPY, _ITSELF = -100, 0x80001, 4
"""AT_FDCWD; OPEN_TREE_CLONE, to be closed in what is executed; MOVE_MOUNT_F_EMPTY_PATH."""


@contextlib.contextmanager
def copied(folder: Path, space: int | None) -> Iterator[int]:
    """Have an open copy of the mount of a folder, if need be of that in another namespace, which is open.

    Nothing else of that namespace is seen by who shows it: what sets up a sandbox copies all mounts that it sees.
    OSError if that cannot be done.
    """
    copy = _copied(folder) if space is None else _copied_there(folder, space)
    try:
        yield copy
    finally:
        os.close(copy)


def _copied_there(folder: Path, space: int) -> int:
    own = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    try:
        _checked(_libc().unshare(_FOLDERS))
        _checked(_libc().setns(space, _MOUNTS))
        try:
            return _copied(folder)
        finally:
            _checked(_libc().setns(own, _MOUNTS))
    finally:
        os.close(own)


def _copied(folder: Path) -> int:
    return _checked(_libc().syscall(_OPEN_TREE, _HERE, os.fsencode(folder), _COPY))


def mount_apart() -> None:
    """Let this thread have mounts of its own, copies of those that it sees; OSError if it may not.

    They go with the thread and all that it has started.
    """
    _checked(_libc().unshare(_MOUNTS))
    _mount(Path("none"), Path("/"), _ALL | _PRIVATE)


def show_copy(copy: int, target: Path) -> None:
    """Have an open copy of a mount at a place; OSError if that cannot be done."""
    _checked(_libc().syscall(_MOVE_MOUNT, copy, b"", _HERE, os.fsencode(target), _ITSELF))


def show(source: Path, target: Path) -> None:
    """Have a file or folder at another place, too; OSError if that cannot be done."""
    _mount(source, target, _BIND)


def mount_memory(target: Path) -> None:
    """Have an empty folder in memory at a place, that everybody can enter; OSError if that cannot be done."""
    _mount(Path("antwort"), target, 0, b"tmpfs", b"mode=755")


def _mount(source: Path, target: Path, flags: int, kind: bytes | None = None, options: bytes | None = None) -> None:
    _checked(_libc().mount(os.fsencode(source), os.fsencode(target), kind, ctypes.c_ulong(flags), options))


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _checked(result: int) -> int:
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result
