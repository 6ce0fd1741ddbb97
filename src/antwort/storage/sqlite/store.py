"""The store on SQLite: one thread that writes with group commit, a few that read, no SQL toolkit in between."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self, TypeAlias

from typing_extensions import override

from antwort.config.defaults import STORAGE
from antwort.storage.base import StoreUnavailableError
from antwort.storage.schema.revisions import MIGRATIONS, Migrations
from antwort.storage.sql.database import Database, ReadRunner, WriteRunner
from antwort.storage.sql.store import Store, read_a_little
from antwort.storage.sql.transactions import reads
from antwort.storage.sqlite.connection import (
    SqliteDatabase,
    Synchronous,
    config_errors,
    create_file,
    found_disk_full,
    open_reader,
    open_writer,
)
from antwort.storage.sqlite.maintenance import prepare
from antwort.storage.sqlite.reserve import DiskReserve
from antwort.storage.sqlite.room import empty_log
from antwort.storage.sqlite.threads import SqliteReaders, SqliteWriter

READERS = 2

_Connections: TypeAlias = tuple[SqliteDatabase, Sequence[SqliteDatabase]]
"""The one that writes, and those that read."""


class SqliteStore(Store):
    """Keeps everything in one SQLite file.

    What a call has stored when it returns survives the death of the process; with `synchronous="full"` also that of
    the machine.
    """

    def __init__(self, writer: WriteRunner, reader: ReadRunner, path: Path) -> None:
        super().__init__(writer, reader)
        self._path = path.absolute()

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        synchronous: Synchronous = STORAGE.synchronous,
        busy_timeout: float = STORAGE.busy_timeout,
        reserve: int = 0,
        migrations: Migrations = MIGRATIONS,
    ) -> Self:
        """Open a database, new or old; raise ConfigError if it cannot be used. This blocks for some milliseconds.

        `reserve` is how many bytes of the disk are kept for deletions, if it is full. They help here, too.
        """

        def connections() -> _Connections:
            prepare(path, migrations=migrations)
            return _connections(path, synchronous, busy_timeout)

        room = DiskReserve(path, reserve)
        with config_errors(path):
            create_file(path)
            writer, readers = _opened(room, connections)
        room.make()
        # The readers are closed first: the last connection to close writes the log into the file, which they cannot.
        return cls(SqliteWriter(writer, room), SqliteReaders(readers), path)

    @override
    @reads
    def ping(self, database: Database) -> None:
        try:
            # Connections that are open do not notice that the file is gone: they go on, and all is lost when they end.
            self._path.stat()
        except OSError as error:
            raise StoreUnavailableError("The database cannot be used now: its file is gone.") from error
        read_a_little(database)


def _opened(room: DiskReserve, connections: Callable[[], _Connections]) -> _Connections:
    """Open connections; on a full disk in as much of the reserve as it takes, and empty the log then."""
    parts, is_short = room.parts(), False
    while True:
        try:
            opened = connections()
        except Exception as error:
            if not found_disk_full(error.__cause__ or error):
                raise
            is_short = True
            if next(parts, None) is None:
                room.make()
                raise
            continue
        while is_short and not empty_log(opened[0]) and next(parts, None) is not None:
            pass
        return opened


def _connections(path: Path, synchronous: Synchronous, busy_timeout: float) -> _Connections:
    """Open the connection that writes, and those that read."""
    with ExitStack() as opened:
        writer = open_writer(path, synchronous, busy_timeout)
        opened.callback(writer.close)
        readers = []
        for _ in range(READERS):
            readers.append(open_reader(path, busy_timeout))
            opened.callback(readers[-1].close)
        opened.pop_all()
    return writer, readers
