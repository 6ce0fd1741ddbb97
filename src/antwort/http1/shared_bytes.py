"""Bytes that many requests have in common, which the system can send without copying them each time.

A thousand definitions of functions, a quarter of a megabyte at the end of each request, make a whole request some
13 % dearer if they are copied to the socket.
"""

import contextlib
import os

WORTHWHILE = 64 * 1024
"""Bytes of which to copy them costs more than to have them sent from a file."""
MOST_FILES = 32
"""Files of one client at a time: requests can bring definitions of their own, and connections need the handles."""


class MemoryFiles:
    """The files in memory that the requests of one client have led to, as many as it may have."""

    def __init__(self) -> None:
        self._handles: set[int] = set()

    def make(self, content: bytes) -> int | None:
        """Make a file and return its handle; None if there are enough, or the system has no room for it."""
        if len(self._handles) >= MOST_FILES or not hasattr(os, "memfd_create"):
            return None
        with contextlib.suppress(OSError):  # there are too many open files, or there is no room
            handle = os.memfd_create("antwort")
            try:
                os.write(handle, content)
            except OSError:
                os.close(handle)
                raise
            self._handles.add(handle)
            return handle
        return None

    def close(self, handle: int) -> None:
        """Close a file."""
        self._handles.discard(handle)  # first: closed, its number may be another's
        os.close(handle)


class SharedBytes(bytes):
    """Bytes, and a file in memory that has them from their second use on: many are used once only.

    The file is one of the client that first uses them a second time; it lasts as long as the bytes do.
    """

    _file: int | None = None
    _files: MemoryFiles | None = None
    """Whose the file is."""
    _used = False

    def send(self, socket: int, *, after: bytes, most: int, files: MemoryFiles) -> int:
        """Let a socket take as much as it can of other bytes and then of these, up to so many; return how much it took.

        Nothing is raised: what is left is to be sent in the usual way, which meets the same trouble.
        """
        file = self._file if self._file is not None else self._make_file(files)
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

    def _make_file(self, files: MemoryFiles) -> int | None:
        """Make the file, if it is time for it."""
        if self._used and (file := files.make(self)) is not None:
            self._file, self._files = file, files
        self._used = True
        return self._file

    def __del__(self) -> None:
        if self._file is not None and self._files is not None:
            self._files.close(self._file)
