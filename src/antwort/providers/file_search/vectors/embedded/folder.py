"""The folder of the embedded database: its name, and the lock of the process that owns it."""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

_PAUSE = 0.02
_IN_PLACE = "in-place.lock"
"""Who copies the folder has a lock on this file: the files are changed in place."""


def ensure_folder_name(folder: Path, name: str) -> str:
    """Return the name that is kept in a folder; if there is none, it gets this one. OSError if that cannot be done."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Locked, so that one process writes it; an empty one is what a machine left that lost its power meanwhile.
    with open(folder / "place", "a+", opener=_open) as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        handle.seek(0)
        if found := handle.read():
            return found
        handle.write(name)
        handle.flush()
        os.fsync(handle.fileno())
        return name


def _open(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


class FolderLock:
    """The lock of a folder. It is given back when the process ends."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "lock"
        self._handle = -1

    def take(self, seconds: float) -> bool:
        """Take it; return False if another process does not give it back within these seconds."""
        end = time.monotonic() + seconds
        while not self._try():
            if time.monotonic() >= end:
                return False
            time.sleep(_PAUSE)
        return True

    def is_held(self) -> bool:
        """Tell whether it is still that of the folder: if somebody removed it, another process may have a new one."""
        try:
            return os.path.samestat(os.fstat(self._handle), self._file.stat())
        except OSError:
            return False

    def _try(self) -> bool:
        self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._handle = os.open(self._file, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._handle)
            return False
        if not self.is_held():  # removed since it was opened
            os.close(self._handle)
            return False
        return True


class InPlace:
    """The lock of who changes files in place: who makes a backup keeps it for a moment, to copy them."""

    def __init__(self, folder: Path) -> None:
        flags = os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
        self._handle = os.open(folder / _IN_PLACE, flags, 0o600)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Wait until nobody copies the files, and let nobody do so meanwhile."""
        fcntl.flock(self._handle, fcntl.LOCK_SH)
        try:
            yield
        finally:
            fcntl.flock(self._handle, fcntl.LOCK_UN)
