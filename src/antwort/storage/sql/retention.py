"""What is old, over all tenants, and how much a tenant has: for housekeeping only.

Old responses are found by walking up their numbers, which follow the order of storing: no index is needed for it.
"""

from collections.abc import Sequence

from antwort.storage.base import ACTIVE, OldResponse
from antwort.storage.sql.database import Database, Row, Transactions, deletes, reads
from antwort.storage.sql.records import forget_deleted

_WALK = """
    SELECT number, tenant, id, created_at, status, background FROM responses WHERE number > ? AND parent_id IS NULL
    ORDER BY number LIMIT ?"""
_UNSTORED = """
    SELECT number, tenant, id, created_at, status, background FROM responses
    WHERE unstored_at < ? AND parent_id IS NULL AND status NOT IN ('queued', 'in_progress')
    ORDER BY unstored_at LIMIT ?"""
_COUNT_EVENTS = "SELECT count(*) FROM events WHERE response_id = ? AND tenant = ?"
_DROP_EVENTS = """
    DELETE FROM events WHERE response_id = :id AND tenant = :tenant AND sequence IN
    (SELECT sequence FROM events WHERE response_id = :id ORDER BY sequence LIMIT :most)"""
# Background responses take as long as they take, and say what was said at their end. The condition is that of the index
# of unfinished ones, word for word, so few rows are read.
_NOBODY_IS_IN_IT = """
    id NOT IN (SELECT conversation_id FROM responses
    WHERE background AND status IN ('queued', 'in_progress') AND conversation_id IS NOT NULL)"""
_UNUSED = f"""
    SELECT tenant, id, used_at FROM conversations
    WHERE used_at < ? AND used_at >= ? AND (used_at, id) > (?, ?) AND {_NOBODY_IS_IN_IT}
    ORDER BY used_at, id LIMIT ?"""  # noqa: S608
_DELETE_UNUSED = f"DELETE FROM conversations WHERE id = ? AND tenant = ? AND used_at < ? AND {_NOBODY_IS_IN_IT}"  # noqa: S608


def _octets(*columns: str) -> str:
    # This is how SQLite counts bytes and not characters.
    return " + ".join(f"coalesce(length(CAST({column} AS BLOB)), 0)" for column in columns)


_USAGE = [
    f"SELECT coalesce(sum({_octets('body', 'request', 'extra')}), 0) FROM responses WHERE tenant = ?",  # noqa: S608
    f"SELECT coalesce(sum({_octets('item', 'call')}), 0) FROM entries WHERE tenant = ?",  # noqa: S608
    """SELECT coalesce(sum(length(data)), 0) FROM responses JOIN events ON events.response_id = responses.id
       WHERE responses.tenant = ? AND background""",
    f"SELECT coalesce(sum({_octets('item', 'call')}), 0) FROM conversation_items WHERE tenant = ?",  # noqa: S608
    f"SELECT coalesce(sum({_octets('value')}), 0) FROM records WHERE tenant = ?",  # noqa: S608
    "SELECT coalesce(sum(size), 0) FROM blobs WHERE tenant = ?",
    "SELECT coalesce(sum(bytes), 0) FROM stored_files WHERE tenant = ?",
]


def _old_response(row: Row) -> OldResponse:
    number, tenant, name, created_at, status, background = row
    return OldResponse(number, tenant, name, created_at, active=status in ACTIVE, background=bool(background))


class Retention(Transactions):
    """What is old, and how much there is. Each method is one transaction."""

    @reads
    def walk(self, database: Database, after: int, limit: int) -> Sequence[OldResponse]:
        """Return responses in the order of storing, those with a number above `after`."""
        return list(map(_old_response, database.execute(_WALK, (after, limit)).fetchall()))

    @reads
    def unstored(self, database: Database, before: int, limit: int) -> Sequence[OldResponse]:
        """Return responses that their clients want not stored and that were over before a moment."""
        return list(map(_old_response, database.execute(_UNSTORED, (before, limit)).fetchall()))

    @reads
    def count_events(self, database: Database, tenant: str, response_id: str) -> int:
        """Count the events of a response."""
        return int(database.execute(_COUNT_EVENTS, (response_id, tenant)).fetchone()[0])

    @deletes
    def drop_events(self, database: Database, tenant: str, response_id: str, most: int) -> int:
        """Delete the first events of a response, `most` at most; return how many."""
        return database.execute(_DROP_EVENTS, {"id": response_id, "tenant": tenant, "most": most}).rowcount

    @reads
    def unused(
        self, database: Database, before: int, after: tuple[int, str], limit: int
    ) -> Sequence[tuple[str, str, int]]:
        """Return tenant, id and last use of conversations last used before a moment, after (last use, id), in order.

        Those that a background response is going on in are left out.
        """
        return database.execute(_UNUSED, (before, after[0], *after, limit)).fetchall()

    @deletes
    def delete_unused(self, database: Database, tenant: str, conversation_id: str, before: int) -> bool:
        """Delete a conversation with its items; False if it is gone, was used since the moment, or is being used.

        It is used as long as a background response goes on in it.
        """
        return database.execute(_DELETE_UNUSED, (conversation_id, tenant, before)).rowcount > 0

    async def forget_deleted(self, now: int) -> int:
        """Delete for good some of what providers deleted over a day ago; return how many."""
        return await self._writer.run(lambda database: forget_deleted(database, now), "", frees=True)

    @reads
    def usage(self, database: Database, tenant: str) -> int:
        """Return how many bytes a tenant has stored: of responses, events, conversations, records, values, files."""
        return sum(int(database.execute(statement, (tenant,)).fetchone()[0]) for statement in _USAGE)
