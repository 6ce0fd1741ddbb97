"""Mounts that only one thread sees, and what it starts. No program is needed to make them, which would take its time.

They are for root.
"""

import ctypes
import os
from pathlib import Path

_FOLDERS, _MOUNTS = 0x200, 0x20000
"""CLONE_FS and CLONE_NEWNS: whose current folder is shared by other threads cannot have mounts of his own."""
_BIND, _ALL, _PRIVATE = 0x1000, 0x4000, 0x40000


def mount_apart(space: int | None = None) -> None:
    """Let this thread have mounts of its own: copies of those in a namespace that is open, or of those that it sees.

    They go with the thread and all that it has started. OSError if it may not.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    _check(libc.unshare(_FOLDERS))
    if space is not None:
        _check(libc.setns(space, _MOUNTS))
    _check(libc.unshare(_MOUNTS))
    _mount(Path("none"), Path("/"), _ALL | _PRIVATE)


def show(source: Path, target: Path) -> None:
    """Have a file or folder at another place, too; OSError if that cannot be done."""
    _mount(source, target, _BIND)


def mount_memory(target: Path) -> None:
    """Have an empty folder in memory at a place, that everybody can enter; OSError if that cannot be done."""
    _mount(Path("antwort"), target, 0, b"tmpfs", b"mode=755")


def _mount(source: Path, target: Path, flags: int, kind: bytes | None = None, options: bytes | None = None) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    _check(libc.mount(os.fsencode(source), os.fsencode(target), kind, ctypes.c_ulong(flags), options))


def _check(result: int) -> None:
    if result != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
