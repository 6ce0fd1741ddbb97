"""Who works on a database that several servers share: each worker has a row, and raises its count while it lives."""

from collections.abc import Sequence

from msgspec import Struct

from antwort.storage.sql.database import Database, Transactions, deletes, reads, writes
from antwort.storage.sql.rows import decoded, encoded
from antwort.types import JSON

_JOIN = """
    INSERT INTO workers (id, instance, beats, about) VALUES (?, ?, 0, ?)
    ON CONFLICT (id) DO UPDATE SET instance = excluded.instance, beats = 0, about = excluded.about"""
_BEAT = "UPDATE workers SET beats = beats + 1 WHERE id = ? AND instance = ?"
_INSTANCE = "SELECT instance FROM workers WHERE id = ?"
_LEAVE = "UPDATE workers SET instance = '' WHERE id = ? AND instance = ?"
_FORGET = "DELETE FROM workers WHERE id = ? AND instance = ? AND beats = ?"
_ALL = "SELECT id, instance, beats, about FROM workers ORDER BY id"


class WorkerRow(Struct, frozen=True):
    """A worker, as the others see it."""

    id: str
    instance: str
    """Another word with each start, so that two with the same id learn of each other; empty if it has left."""
    beats: int
    """How often it has said that it lives."""
    about: JSON

    @property
    def folder(self) -> str:
        """The data folder that it has, which it may share with others."""
        return self.id.rpartition("-")[0]


class WorkerStore(Transactions):
    """Keeps who works on the database."""

    async def join(self, worker: str, instance: str, about: JSON) -> None:
        """Enter a worker; whoever was entered by this id before is so no longer."""
        await self._join("", worker, instance, encoded(about))

    @writes
    def _join(self, database: Database, _tenant: str, worker: str, instance: str, about: str) -> None:
        database.execute(_JOIN, (worker, instance, about))

    @writes
    def beat(self, database: Database, _tenant: str, worker: str, instance: str) -> str | None:
        """Say that a worker lives; return who is entered by its id: None if nobody is."""
        if database.execute(_BEAT, (worker, instance)).rowcount:
            return instance
        row = database.execute(_INSTANCE, (worker,)).fetchone()
        return None if row is None else str(row[0])

    @deletes
    def leave(self, database: Database, _tenant: str, worker: str, instance: str) -> None:
        """Say that a worker ends, and that others may go on with what it had; nothing if it was entered anew since."""
        database.execute(_LEAVE, (worker, instance))

    async def forget(self, row: WorkerRow) -> None:
        """Take out a worker that is as it was when it was read."""
        await self._forget("", row.id, row.instance, row.beats)

    @deletes
    def _forget(self, database: Database, _tenant: str, worker: str, instance: str, beats: int) -> None:
        database.execute(_FORGET, (worker, instance, beats))

    @reads
    def all(self, database: Database) -> Sequence[WorkerRow]:
        """Return all that are entered, those that have died included."""
        rows = database.execute(_ALL).fetchall()
        return [WorkerRow(name, instance, beats, decoded(about)) for name, instance, beats, about in rows]
