"""Who a worker is, for others on the same database: a data folder, and a number that nobody else in it has."""

import fcntl
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

_FOLDER = "folder"
"""The file with the name of the data folder."""


class WorkerIdentities:
    """The identities of one data folder: a file for each, locked by the process that has it, however that ends.

    So a server that is started again knows at once which runs were its own, and so do its neighbours in the folder.
    Where nothing can be written or locked an identity is a word drawn by chance, and others have to wait until they
    know that whoever had it is gone.
    """

    def __init__(self, data_dir: Path) -> None:
        self._folder = data_dir / "workers"
        self._handle: int | None = None
        self._own = ""

    @property
    def folder(self) -> str:
        """The data folder as others know it."""
        return self._own.rpartition("-")[0]

    def take(self, wanted: int = 0) -> str:
        """Take an identity that nobody has, if possible that of a number. This blocks."""
        self.release()
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            name = self._name()
            number, self._handle = next(self._free_from(wanted))
        except OSError:
            name, number = secrets.token_hex(8), wanted
        self._own = f"{name}-{number}"
        return self._own

    def left(self) -> set[str]:
        """Return the identities of the folder that somebody had and nobody has any more. This blocks."""
        found: set[str] = set()
        if self._handle is None:
            return found
        try:
            for path in self._folder.iterdir():
                name = f"{self.folder}-{path.name}"
                if path.name.isdecimal() and name != self._own and (handle := _locked(path)) is not None:
                    os.close(handle)
                    found.add(name)
        except OSError:  # the folder is gone: nothing is known of others
            return set()
        return found

    def release(self) -> None:
        """Give the identity back."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _name(self) -> str:
        """Return the name of the folder, which whoever comes first draws."""
        file = self._folder / _FOLDER
        drawn = file.with_name(f"{_FOLDER}-{secrets.token_hex(8)}")
        if not file.exists():
            drawn.write_text(secrets.token_hex(8))
            try:
                os.link(drawn, file)  # with what is in it, or not at all
            except FileExistsError:
                pass
            finally:
                drawn.unlink()
        return file.read_text().strip()

    def _free_from(self, wanted: int) -> Iterator[tuple[int, int]]:
        """Give numbers that nobody has, each locked, with its handle."""
        number = wanted
        while True:
            handle = _locked(self._folder / str(number))
            if handle is not None:
                yield number, handle
            number += 1


def _locked(path: Path) -> int | None:
    """Lock a file and return its handle; None if somebody has it."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        if isinstance(error, BlockingIOError):
            return None
        raise
    return handle
