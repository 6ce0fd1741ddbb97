"""The store on SQLite: one thread that writes with group commit, a few that read, no SQL toolkit in between."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from typing_extensions import override

from antwort.storage import statements
from antwort.storage.base import JournalEntry, Page, ResponseRecord, ResponseStore, StoredEvent
from antwort.storage.connections import Synchronous, config_errors, create_file, open_reader, open_writer
from antwort.storage.jobs import Readers, Writer
from antwort.storage.rows import encoded, entry_rows, event_rows, record_row
from antwort.storage.upgrade import MIGRATIONS, Migrations, prepare

__all__ = ["SqliteStore"]

READERS = 2


class SqliteStore(ResponseStore):
    """Keeps everything in one SQLite file.

    What a call has stored when it returns survives the death of the process; with `synchronous="full"` also that of
    the machine. It may be used from several event loops, one after the other. Values are encoded before a call waits,
    so that a caller may change them meanwhile.
    """

    def __init__(self, writer: Writer, readers: Readers) -> None:
        self._writer = writer
        self._readers = readers

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
        return cls(Writer(writer), Readers(readers))

    @override
    async def create(self, record: ResponseRecord, entries: Sequence[JournalEntry] = ()) -> None:
        row = record_row(record)
        rows = entry_rows(record.tenant, record.id, entries)
        await self._writer.run(lambda database: statements.create(database, row, rows))

    @override
    async def append(
        self, tenant: str, response_id: str, epoch: int, entries: Sequence[JournalEntry], *, start: int
    ) -> None:
        rows = entry_rows(tenant, response_id, entries, start)
        await self._writer.run(lambda database: statements.append(database, tenant, response_id, epoch, entries=rows))

    @override
    async def update(
        self,
        record: ResponseRecord,
        *,
        entries: Sequence[JournalEntry] = (),
        start: int = 0,
        events: Sequence[StoredEvent] = (),
    ) -> None:
        change = (record.status, encoded(record.body), encoded(record.extra), record.id, record.tenant, record.epoch)
        rows = entry_rows(record.tenant, record.id, entries, start)
        sent = event_rows(record.tenant, record.id, events)
        await self._writer.run(lambda database: statements.update(database, change, rows, sent))

    @override
    async def add_events(self, tenant: str, response_id: str, epoch: int, events: Sequence[StoredEvent]) -> None:
        rows = event_rows(tenant, response_id, events)
        await self._writer.run(lambda database: statements.append(database, tenant, response_id, epoch, events=rows))

    @override
    async def get(self, tenant: str, response_id: str) -> ResponseRecord | None:
        return await self._readers.run(lambda database: statements.get(database, tenant, response_id))

    @override
    async def journal(self, tenant: str, response_id: str) -> list[JournalEntry]:
        return await self._readers.run(lambda database: statements.journal(database, tenant, response_id))

    @override
    async def history(self, tenant: str, response_id: str) -> list[JournalEntry] | None:
        """Return the entries of a response and of all before it, oldest first; None if the response is not there.

        Where a response in between was deleted, the others remain.
        """
        return await self._readers.run(lambda database: statements.history(database, tenant, response_id))

    @override
    async def events(self, tenant: str, response_id: str, *, after: int = -1, limit: int = 1000) -> list[StoredEvent]:
        return await self._readers.run(lambda database: statements.events(database, tenant, response_id, after, limit))

    @override
    async def list_responses(
        self, tenant: str, *, limit: int, after: str | None = None, before: str | None = None, order: str = "desc"
    ) -> Page:
        """Return records by creation time; `after` and `before` are response ids.

        Raise NotFoundError for an unknown one. With `before` alone the page is the one right before it.
        """
        ascending = order == "asc"
        return await self._readers.run(
            lambda database: statements.page(
                database, tenant, limit=limit, after=after, before=before, ascending=ascending
            )
        )

    @override
    async def delete(self, tenant: str, response_id: str) -> bool:
        return await self._writer.run(lambda database: statements.delete(database, tenant, response_id))

    @override
    async def find_item(self, tenant: str, item_id: str) -> JournalEntry | None:
        return await self._readers.run(lambda database: statements.find_item(database, tenant, item_id))

    @override
    async def claim(self, tenant: str, response_id: str) -> ResponseRecord | None:
        return await self._writer.run(lambda database: statements.claim(database, tenant, response_id))

    @override
    async def unfinished(self) -> list[tuple[str, str]]:
        return await self._readers.run(statements.unfinished)

    @override
    async def request_cancel(self, tenant: str, response_id: str) -> ResponseRecord | None:
        return await self._writer.run(lambda database: statements.request_cancel(database, tenant, response_id))

    @override
    async def close(self) -> None:
        # The last connection to close writes the log into the file, which readers cannot.
        await self._readers.close()
        await self._writer.close()
