"""What may go away under a server for longer than any of its deadlines: the disk, the database, the model."""

import contextlib
import resource
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from tests.runs.processes import ServerProcess
from tests.runs.steady_model import ModelProcess
from tests.support.postgres import PostgresServer

from antwort.types import JSON

__all__ = ["DatabaseAway", "DiskFull", "FileLocked", "ModelFrozen", "ModelGone", "Outage"]


class Outage(Protocol):
    """Something that goes away and comes back."""

    sections: JSON
    """Settings that make the server's own deadlines short."""
    of_store: bool

    def begin(self, server: ServerProcess) -> None:
        """Let it go away."""

    def end(self, server: ServerProcess) -> None:
        """Let it come back."""


class FileLocked:
    """Another process holds the SQLite file."""

    of_store = True

    def __init__(self) -> None:
        self.sections: JSON = {"storage": {"busy_timeout": 0.1}}
        self._other: sqlite3.Connection | None = None

    def begin(self, server: ServerProcess) -> None:
        """Hold it."""
        file = server.data_dir / "antwort.db"
        self._other = sqlite3.connect(file, isolation_level=None, timeout=60, check_same_thread=False)
        self._other.execute("BEGIN IMMEDIATE")

    def end(self, server: ServerProcess) -> None:
        """Let go."""
        if self._other is not None:
            self._other.close()


class DiskFull:
    """There is no room left where the SQLite file is: a small disk in memory, or, where none can be mounted, a limit.

    Both are real: the kernel refuses what SQLite writes.
    """

    of_store = True
    size, limit = 48 * 1024**2, 128 * 1024

    def __init__(self, folder: Path, *, mounted: bool) -> None:
        self.sections: JSON = {}
        self._ballast = folder / "ballast"
        self._mounted = mounted

    @classmethod
    @contextlib.contextmanager
    def on(cls, folder: Path) -> Iterator["DiskFull"]:
        """Put a small disk at a folder."""
        folder.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={cls.size}", "tmpfs", str(folder)]
        mounted = subprocess.run(mount, check=False, capture_output=True).returncode == 0
        try:
            yield cls(folder, mounted=mounted)
        finally:
            if mounted:
                subprocess.run(["umount", str(folder)], check=True)

    def begin(self, server: ServerProcess) -> None:
        """Fill it."""
        # A log that was emptied keeps its room, and would take what is written for a while.
        with contextlib.closing(sqlite3.connect(server.data_dir / "antwort.db", timeout=60)) as database:
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        if not self._mounted:
            resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (self.limit, resource.RLIM_INFINITY))
            return
        with contextlib.suppress(OSError), self._ballast.open("wb", buffering=0) as file:
            for block in (1024**2, 4096, 1):
                with contextlib.suppress(OSError):
                    while True:
                        file.write(bytes(block))

    def end(self, server: ServerProcess) -> None:
        """Make room."""
        if self._mounted:
            self._ballast.unlink()
        else:
            resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


class DatabaseAway:
    """PostgreSQL has ended, as in a crash."""

    of_store = True

    def __init__(self, server: PostgresServer, url: str) -> None:
        self.sections: JSON = {"storage": {"url": url, "reconnect": 0.2}}
        self._server = server

    def begin(self, server: ServerProcess) -> None:
        """Stop it."""
        self._server.stop("immediate")

    def end(self, server: ServerProcess) -> None:
        """Start it."""
        self._server.start()


class ModelGone:
    """The model server is killed, and started again later."""

    of_store = False

    def __init__(self, model: ModelProcess) -> None:
        self.sections: JSON = {}
        self._model = model

    def begin(self, server: ServerProcess) -> None:
        """Kill it."""
        self._model.kill()

    def end(self, server: ServerProcess) -> None:
        """Start it."""
        self._model.start()


class ModelFrozen:
    """The model server stands still: connections come about, and nothing is answered."""

    of_store = False

    def __init__(self, model: ModelProcess) -> None:
        self.sections: JSON = {}
        self._model = model

    def begin(self, server: ServerProcess) -> None:
        """Freeze it."""
        self._model.freeze()

    def end(self, server: ServerProcess) -> None:
        """Thaw it."""
        self._model.thaw()
