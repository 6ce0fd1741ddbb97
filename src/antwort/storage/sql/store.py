"""The store on any SQL database."""

import contextlib
import time
from collections.abc import AsyncIterator
from typing import ClassVar

from antwort.concurrency.peers import Letters
from antwort.storage.base import Records
from antwort.storage.sql.client_traces import TraceStore
from antwort.storage.sql.conversations import ConversationStore
from antwort.storage.sql.database import Database, ReadRunner, WriteRunner, reads
from antwort.storage.sql.files import SqlFiles
from antwort.storage.sql.questions import QuestionStore
from antwort.storage.sql.records import SqlRecords
from antwort.storage.sql.responses import ResponseStore
from antwort.storage.sql.retention import Retention
from antwort.storage.sql.rows import KEPT
from antwort.storage.sql.values import SqlValues
from antwort.storage.sql.workers import WorkerStore

# A statement that reads no table would be answered by a database whose tables cannot be read.
_PING = "SELECT 1 FROM responses WHERE id = ''"
# The version changes each time: a row that stays the same is not written.
_TRY_WRITE = f"""
    INSERT INTO records (owner, kind, {KEPT}) VALUES ('', 'try_write', 'try_write', '', ?, ?, '', 1)
    ON CONFLICT (owner, kind, tenant, id) DO UPDATE SET created_at = excluded.created_at, value = excluded.value,
        version = records.version % 1000000 + 1"""  # noqa: S608


class Store(ResponseStore):
    """All that is kept: responses, conversations, questions, variables, what is known of files, records of providers.

    It may be used from several event loops, one after the other. Values are encoded, or copied, before a call
    waits, so that a caller may change them meanwhile.
    """

    is_shared: ClassVar[bool] = False
    """Whether several servers may use the database at the same time."""

    def __init__(self, writer: WriteRunner, reader: ReadRunner) -> None:
        super().__init__(writer, reader)
        self.client_traces = TraceStore(writer, reader)
        self.conversations = ConversationStore(writer, reader)
        self.files = SqlFiles(writer, reader)
        self.questions = QuestionStore(writer, reader)
        self.retention = Retention(writer, reader)
        self.values = SqlValues(writer, reader)
        self.workers = WorkerStore(writer, reader)

    def records(self, owner: str) -> Records:
        """Return the records of a provider."""
        return SqlRecords(owner, self._writer, self._reader)

    @reads
    def ping(self, database: Database) -> None:
        """Read a little of what is stored; raise StoreUnavailableError if that cannot be done now."""
        read_a_little(database)

    async def try_write(self) -> None:
        """Write a little and commit it; raise StoreUnavailableError if that cannot be done now."""
        row = (int(time.time()), self.trial)
        await self._writer.run(lambda database: database.execute(_TRY_WRITE, row), "")

    @property
    def trial(self) -> str:
        """The JSON that is written to see whether that can be done."""
        return "{}"

    @contextlib.asynccontextmanager
    async def letters(self) -> AsyncIterator[Letters | None]:
        """Exchange letters with the workers of other servers on the database, as long as the block lasts; or None."""
        yield None

    async def close(self) -> None:
        """Finish pending writes and let go of the database."""
        await self._reader.close()
        await self._writer.close()


def read_a_little(database: Database) -> None:
    """Read from a table, to see whether it can be read."""
    database.execute(_PING).fetchone()
