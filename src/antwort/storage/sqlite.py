"""The store on SQLite: one thread that writes with group commit, a few that read, no SQL toolkit in between."""

from contextlib import ExitStack
from pathlib import Path
from typing import Self

from antwort.storage.connections import Synchronous, config_errors, create_file, open_reader, open_writer
from antwort.storage.sql import SqlStore
from antwort.storage.sqlite_threads import SqliteReaders, SqliteWriter
from antwort.storage.upgrade import MIGRATIONS, Migrations, prepare

__all__ = ["SqliteStore"]

READERS = 2


class SqliteStore(SqlStore):
    """Keeps everything in one SQLite file.

    What a call has stored when it returns survives the death of the process; with `synchronous="full"` also that of
    the machine.
    """

    @classmethod
    def open(cls, path: Path, *, synchronous: Synchronous = "normal", migrations: Migrations = MIGRATIONS) -> Self:
        """Open a database, new or old; raise ConfigError if it cannot be used. This blocks for some milliseconds."""
        with config_errors(path), ExitStack() as opened:
            create_file(path)
            prepare(f"sqlite:///{path}", migrations=migrations)
            writer = open_writer(path, synchronous)
            opened.callback(writer.close)
            readers = []
            for _ in range(READERS):
                readers.append(open_reader(path))
                opened.callback(readers[-1].close)
            opened.pop_all()
        # The readers are closed first: the last connection to close writes the log into the file, which they cannot.
        return cls(SqliteWriter(writer), SqliteReaders(readers))
