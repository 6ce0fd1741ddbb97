"""Files that somebody changes in place: they are copied while nobody does, as they are at one moment."""

import contextlib
import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from antwort.errors import ConfigError

LOCK = "in-place.lock"
"""A file of this name in a folder says that files in it are changed in place, by whoever has a lock on it, shared with
others who do so. Who wants them to stand still has it for himself."""
_DEPTH = 2
"""Folders below that of all providers in which it is looked for; further below are files of strangers."""
_PATIENCE = 60.0
_PAUSE = 0.005
_PIECE = 1 << 20


def folders_in_place(providers: Path) -> list[Path]:
    """Return the folders of providers in which files are changed in place."""
    patterns = ["/".join([*["*"] * depth, LOCK]) for depth in range(1, _DEPTH + 1)]
    return sorted(path.parent for pattern in patterns for path in providers.glob(pattern) if _is_file(path))


def _is_file(path: Path) -> bool:
    return stat.S_ISREG(path.stat(follow_symlinks=False).st_mode)


@contextlib.contextmanager
def standing_still(folders: Iterable[Path]) -> Iterator[None]:
    """Have nobody change anything in some folders; ConfigError if somebody does not come to an end."""
    with contextlib.ExitStack() as held:
        for folder in folders:
            handle = os.open(folder / LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            held.callback(os.close, handle)
            _lock(handle, folder)
        yield


def _lock(handle: int, folder: Path) -> None:
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end:
                raise ConfigError(
                    f"Somebody has been writing here for {_PATIENCE:.0f} seconds without a pause. Try again, or stop "
                    "the server.",
                    where=str(folder),
                ) from None
            time.sleep(_PAUSE)
        else:
            return


FilledPart = tuple[int, int]
"""Where something is in a file, and how many bytes."""


def copy_sparsely(source: Path, target: Path) -> None:
    """Copy a file, without the holes in it: as little is read and written as there is."""
    with source.open("rb", buffering=0) as there, target.open("xb") as here:
        os.fchmod(here.fileno(), 0o600)
        size = os.fstat(there.fileno()).st_size
        here.truncate(size)
        for start, left in filled_parts(there.fileno(), size):
            there.seek(start)
            here.seek(start)
            while left and (piece := there.read(min(_PIECE, left))):
                here.write(piece)
                left -= len(piece)  # noqa: PLW2901 - as far as it is copied


def filled_parts(descriptor: int, size: int) -> Iterator[FilledPart]:
    """Yield where something is in a file that may have holes."""
    at = 0
    while at < size:
        try:
            start = os.lseek(descriptor, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            return  # there is nothing more
        at = min(os.lseek(descriptor, start, os.SEEK_HOLE), size)
        if start < at:
            yield start, at - start
