"""What is known of files. Every statement names the tenant, but for housekeeping.

A row is there before the bytes of its file and goes after them, so whatever a crash leaves has a row that names it.
Ids sort by the time of their making, so lists go on from any id, that of a file which was deleted meanwhile, too.
"""

from collections.abc import Sequence

from antwort.storage.base import FileRecord
from antwort.storage.sql.database import LOCK, Database, Row, Transactions, deletes, reads, snapshot, writes

_COLUMNS = "id, tenant, filename, purpose, bytes, sha256, created_at, expires_at, part_of, status"
_INSERT = f"INSERT INTO stored_files ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608
_ROW = "SELECT 1 FROM stored_files WHERE id = ? AND tenant = ?"
_THERE = "status = 'uploaded' AND (expires_at IS NULL OR expires_at > ?)"
_GET = f"SELECT {_COLUMNS} FROM stored_files WHERE id = ? AND tenant = ? AND part_of = ? AND {_THERE}"  # noqa: S608
_FINISH = """
    UPDATE stored_files SET bytes = ?, sha256 = ?, purpose = ?, expires_at = ?, status = 'uploaded'
    WHERE id = ? AND tenant = ? AND status IN ('writing', 'uploaded')"""
_MARK = "UPDATE stored_files SET status = 'deleting' WHERE id = ? AND tenant = ? AND status IN ('uploaded', 'deleting')"
_REMOVE = "DELETE FROM stored_files WHERE id = ? AND tenant = ? AND status <> 'uploaded'"
_BYTES = f"SELECT bytes FROM stored_files WHERE id = ? AND tenant = ? {LOCK}"  # noqa: S608
_COUNT = """
    INSERT INTO file_usage (tenant, bytes) VALUES (?, ?)
    ON CONFLICT (tenant) DO UPDATE SET bytes = file_usage.bytes + excluded.bytes"""
_USAGE = "SELECT bytes FROM file_usage WHERE tenant = ?"
_PARTS = "SELECT coalesce(sum(bytes), 0) FROM stored_files WHERE tenant = ? AND part_of = ?"
# The first condition of these is that of the index, word for word: few rows are read.
_MARK_ABANDONED = """
    UPDATE stored_files SET status = 'deleting' WHERE status <> 'uploaded' AND status = 'writing' AND created_at < ?"""
_LEFT_OVER = f"""
    SELECT {_COLUMNS} FROM stored_files WHERE status <> 'uploaded' AND status = 'deleting' AND id > ?
    ORDER BY id LIMIT ?"""  # noqa: S608
_MARK_EXPIRED = "UPDATE stored_files SET status = 'deleting' WHERE expires_at <= ? AND status = 'uploaded'"


class SqlFiles(Transactions):
    """The rows of files. Each method is one transaction, which may be repeated."""

    async def begin(self, record: FileRecord) -> None:
        """Keep that a file is about to be written: nobody sees it until it is finished."""
        await self._begin(record.tenant, record.id, _row(record))

    @writes
    def _begin(self, database: Database, tenant: str, file_id: str, row: Row) -> None:
        if database.execute(_ROW, (file_id, tenant)).fetchone() is None:
            database.execute(_INSERT, row)

    async def finish(self, record: FileRecord) -> bool:
        """Take note that the bytes are in their place; False if the file is being deleted, or gone."""
        known = (record.bytes, record.sha256, record.purpose, record.expires_at)
        return await self._finish(record.tenant, record.id, known)

    @writes
    def _finish(self, database: Database, tenant: str, file_id: str, known: Row) -> bool:
        before = database.execute(_BYTES, (file_id, tenant)).fetchone()
        if before is None or not database.execute(_FINISH, (*known, file_id, tenant)).rowcount:
            return False
        _count(database, tenant, known[0] - before[0])
        return True

    @reads
    def get(self, database: Database, tenant: str, file_id: str, part_of: str, now: int) -> FileRecord | None:
        """Return a file that is there; those that have expired are not."""
        if "\x00" in file_id:
            return None  # PostgreSQL cannot even be asked for it
        row = database.execute(_GET, (file_id, tenant, part_of, now)).fetchone()
        return None if row is None else _record(row)

    @reads
    def list(
        self,
        database: Database,
        tenant: str,
        *,
        part_of: str,
        purpose: str | None,
        after: str | None,
        limit: int,
        newest_first: bool,
        now: int,
    ) -> Sequence[FileRecord]:
        """Return files in the order of their making."""
        conditions, values = [f"tenant = ? AND part_of = ? AND {_THERE}"], [tenant, part_of, now]
        if purpose is not None:
            conditions.append("purpose = ?")
            values.append(purpose)
        if after is not None:
            conditions.append("id < ?" if newest_first else "id > ?")
            values.append(after)
        order = "DESC" if newest_first else "ASC"
        rows = database.execute(
            f"SELECT {_COLUMNS} FROM stored_files WHERE {' AND '.join(conditions)} ORDER BY id {order} LIMIT ?",  # noqa: S608
            (*values, limit),
        ).fetchall()
        return [_record(row) for row in rows]

    @reads
    def usage(self, database: Database, tenant: str, but_parts_of: str = "") -> int:
        """Return how many bytes the files of a tenant have, but the parts of something."""
        with snapshot(database):
            row = database.execute(_USAGE, (tenant,)).fetchone()
            parts = database.execute(_PARTS, (tenant, but_parts_of)).fetchone() if but_parts_of else (0,)
        return 0 if row is None else int(row[0]) - int(parts[0])

    @deletes
    def mark(self, database: Database, tenant: str, file_id: str) -> None:
        """Take note that a file is being deleted: nobody sees it any more."""
        database.execute(_MARK, (file_id, tenant))

    @deletes
    def remove(self, database: Database, tenant: str, file_id: str) -> None:
        """Forget a file whose bytes are gone, or never were there."""
        before = database.execute(_BYTES, (file_id, tenant)).fetchone()
        if before is not None and database.execute(_REMOVE, (file_id, tenant)).rowcount:
            _count(database, tenant, -before[0])

    async def mark_left_over(self, *, now: int, abandoned: int) -> None:
        """Mark, of all tenants, what has expired, and what is being written since before `abandoned`."""

        def mark(database: Database) -> None:
            database.execute(_MARK_EXPIRED, (now,))
            database.execute(_MARK_ABANDONED, (abandoned,))

        await self._writer.run(mark, "", frees=True)

    @reads
    def left_over(self, database: Database, after: str, limit: int) -> Sequence[FileRecord]:
        """Return what is being deleted, of all tenants, by id."""
        return [_record(row) for row in database.execute(_LEFT_OVER, (after, limit)).fetchall()]


def _count(database: Database, tenant: str, more: int) -> None:
    """Keep what a tenant has, in the transaction that changes it: whoever changes it at the same time waits."""
    if more:
        database.execute(_COUNT, (tenant, more))


def _row(record: FileRecord) -> Row:
    return (
        record.id,
        record.tenant,
        record.filename,
        record.purpose,
        record.bytes,
        record.sha256,
        record.created_at,
        record.expires_at,
        record.part_of,
        record.status,
    )


def _record(row: Row) -> FileRecord:
    return FileRecord(**dict(zip(FileRecord.__struct_fields__, row, strict=True)))
