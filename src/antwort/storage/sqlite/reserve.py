"""Room on the disk of a database that is taken before somebody else takes it.

On a full disk nothing can be written, and to delete is to write: the log grows first. A file that is only there to be
given up makes room for that.
"""

import errno
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

logger = logging.getLogger(__name__)


class DiskReserve:
    """A file beside a database. Several processes may share it: who finds it given up has less room, no more."""

    def __init__(self, database: Path, size: int) -> None:
        self._path = database.with_name(f"{database.name}-reserve")
        self._size = size
        self._told = False

    def make(self) -> bool:
        """Take the room, if it is not taken yet; return whether it is. One that is not wanted any more is removed."""
        try:
            if not self._size:
                self._path.unlink(missing_ok=True)
                return True
            self._take()
        except OSError as error:
            if not self._told:  # once, not with every write
                self._told = True
                logger.warning("there is no room for the reserve of %d bytes: %s", self._size, error.strerror)
            return False
        self._told = False
        return True

    def _take(self) -> None:
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if os.fstat(descriptor).st_size != self._size:
                os.ftruncate(descriptor, 0)
                try:
                    os.posix_fallocate(descriptor, 0, self._size)
                except OSError:
                    os.ftruncate(descriptor, 0)  # a part of it would be taken for all of it
                    raise
        finally:
            os.close(descriptor)

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Give the room up for a while, and take it again if that can be."""
        with suppress(OSError):
            os.truncate(self._path, 0)
        try:
            yield
        finally:
            self.make()


def is_full(error: BaseException | None) -> bool:
    """Tell whether an error of the system says that there is no room on a disk."""
    return isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}
