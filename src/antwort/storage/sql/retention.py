"""The statements on what is old, over all tenants, and on how much a tenant has; each function one transaction.

Old responses are found by walking up their numbers, which follow the order of storing: no index is needed for it.
"""

from antwort.storage.base import ACTIVE, OldResponse
from antwort.storage.sql import keeping
from antwort.storage.sql.database import Database

__all__ = ["count_events", "delete_unused", "drop_events", "forget_places", "unused", "usage", "walk"]

_WALK = """
    SELECT number, tenant, id, created_at, status, background FROM responses WHERE number > ? ORDER BY number LIMIT ?"""
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
]


def walk(database: Database, after: int, limit: int) -> list[OldResponse]:
    """Return responses in the order in which they were stored."""
    rows = database.execute(_WALK, (after, limit)).fetchall()
    return [
        OldResponse(number, tenant, name, created_at, active=status in ACTIVE, background=bool(background))
        for number, tenant, name, created_at, status, background in rows
    ]


def count_events(database: Database, tenant: str, response_id: str) -> int:
    """Count the events of a response."""
    return int(database.execute(_COUNT_EVENTS, (response_id, tenant)).fetchone()[0])


def drop_events(database: Database, tenant: str, response_id: str, most: int) -> int:
    """Delete the first events of a response and return how many."""
    return database.execute(_DROP_EVENTS, {"id": response_id, "tenant": tenant, "most": most}).rowcount


def unused(database: Database, before: int, after: tuple[int, str], limit: int) -> list[tuple[str, str, int]]:
    """Return tenant, id and last use of conversations that were not used since a moment, the longest unused first.

    Those that a background response is going on in are left out.
    """
    return database.execute(_UNUSED, (before, after[0], *after, limit)).fetchall()


def delete_unused(database: Database, tenant: str, conversation_id: str, before: int) -> bool:
    """Delete a conversation with its items, unless it was used meanwhile or a background response goes on in it."""
    return database.execute(_DELETE_UNUSED, (conversation_id, tenant, before)).rowcount > 0


def forget_places(database: Database, now: int) -> int:
    """Delete the places of what providers deleted long ago, some at a time; return how many."""
    return keeping.forget_places(database, now)


def usage(database: Database, tenant: str) -> int:
    """Return how many bytes a tenant has stored."""
    return sum(int(database.execute(statement, (tenant,)).fetchone()[0]) for statement in _USAGE)
