"""Bytes that many requests have in common, which the system can send without copying them each time."""

import contextlib
import os
from typing import ClassVar

WORTHWHILE = 64 * 1024
"""Bytes of which to copy them costs more than to have them sent from a file."""
MOST_FILES = 32
"""Files at a time: every client can bring definitions of its own, and connections need the handles."""


class KeptBytes(bytes):
    """Bytes, and a file in memory that has them from their second use on: many are used once only."""

    _files: ClassVar[set[int]] = set()
    """Those of all together, as the handles of a process are."""
    _file: int | None = None
    _used = False

    def send(self, socket: int, *, after: bytes, most: int) -> int:
        """Let a socket take as much as it can of other bytes and then of these, up to so many; return how much it took.

        Nothing is raised: what is left is to be sent in the usual way, which meets the same trouble.
        """
        file = self._file if self._file is not None else self._keep()
        if file is None:
            return 0
        taken = 0
        try:
            taken = os.write(socket, after)
            if taken == len(after):
                taken += os.sendfile(socket, file, 0, min(len(self), most))
        except OSError:  # it takes no more, or is broken
            return taken
        return taken

    def _keep(self) -> int | None:
        """Make the file, if it is time for it and there is room."""
        if self._used and len(self._files) < MOST_FILES and hasattr(os, "memfd_create"):
            with contextlib.suppress(OSError):  # there are too many open files, or there is no room
                file = os.memfd_create("antwort")
                try:
                    os.write(file, self)
                except OSError:
                    os.close(file)
                    raise
                self._file = file
                self._files.add(file)
        self._used = True
        return self._file

    def __del__(self) -> None:
        if self._file is not None:
            self._files.discard(self._file)  # first: closed, its number may be another's
            os.close(self._file)
