"""Room on the disk of a database that is taken before somebody else takes it.

On a full disk nothing can be written, and to delete is to write: the log grows first. A file that is only there to be
given up makes room for that.
"""

import errno
import logging
import os
from collections.abc import Iterator
from pathlib import Path

logger = logging.getLogger(__name__)

_PART = 1024**2
"""Bytes that are given up first: few deletions write more."""


class DiskReserve:
    """A file beside a database. Several processes may share it: who finds it given up has less room, no more."""

    def __init__(self, database: Path, size: int) -> None:
        self._path = database.with_name(f"{database.name}-reserve")
        self._size = size
        self._has_warned = False

    def make(self) -> bool:
        """Take the room, if it is not taken yet; return whether it is. One that is not wanted any more is removed."""
        try:
            if not self._size:
                self._path.unlink(missing_ok=True)
                return True
            self._take()
        except OSError as error:
            if not self._has_warned:  # once, not with every write
                self._has_warned = True
                logger.warning("there is no room for the reserve of %d bytes: %s", self._size, error.strerror)
            return False
        self._has_warned = False
        return True

    def _take(self) -> None:
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            taken = os.fstat(descriptor).st_size
            if taken > self._size:
                os.ftruncate(descriptor, self._size)
            while taken < self._size:  # a part is better than nothing
                part = min(_PART, self._size - taken)
                try:
                    os.posix_fallocate(descriptor, taken, part)
                except OSError:
                    os.ftruncate(descriptor, taken)  # what is told of the size must be taken
                    raise
                taken += part
        finally:
            os.close(descriptor)

    def parts(self) -> Iterator[int]:
        """Give the room up, a small part first and then more and more; yield each time how much is left.

        Others on the disk may take what is given up, so it should not be more than is needed. `make` takes it again.
        """
        part = _PART
        while left := self._give_up(part):
            yield left
            part *= 2
        yield 0

    def _give_up(self, part: int) -> int:
        """Give a part up; return how much is left."""
        try:
            left = max(self._path.stat().st_size - part, 0)
            os.truncate(self._path, left)
        except OSError:  # there is none
            return 0
        return left


def is_full(error: BaseException | None) -> bool:
    """Tell whether an error of the system says that there is no room on a disk."""
    return isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}
