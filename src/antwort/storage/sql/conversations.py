"""The statements on conversations, each function one transaction or a part of one. Every statement names the tenant."""

import time
from collections.abc import Sequence

from antwort.errors import NotFoundError
from antwort.storage.base import ConversationRecord, JournalEntry, Page
from antwort.storage.sql.database import LOCK, Database, Row, snapshot
from antwort.storage.sql.rows import CONVERSATION, ENTRY, conversation_of, entry_of, renamed

__all__ = ["add", "create", "delete", "find_item", "get", "history", "item", "page", "remove", "update", "use"]

_AT_ONCE = (20, 1000)
"""Ids that are looked for in one statement: of few items, and of many."""

JUST_NOW = 10
"""Seconds for which a use need not be noted again."""

_INSERT = f"INSERT INTO conversations ({CONVERSATION}, used_at) VALUES (?, ?, ?, ?, ?)"  # noqa: S608
_GET = f"SELECT {CONVERSATION} FROM conversations WHERE id = ? AND tenant = ?"  # noqa: S608
# Whoever adds waits for others that add, so that the items of each stand together.
_HOLD = f"SELECT id FROM conversations WHERE id = ? AND tenant = ? {LOCK}"  # noqa: S608
_UPDATE = "UPDATE conversations SET metadata = ?, used_at = ? WHERE id = ? AND tenant = ?"
_USE = "UPDATE conversations SET used_at = ? WHERE id = ? AND tenant = ?"
_DELETE = "DELETE FROM conversations WHERE id = ? AND tenant = ?"
_ADD = f"""
    INSERT INTO conversation_items (conversation_id, tenant, item_id, {ENTRY}) VALUES (?, ?, ?, ?, ?, ?, ?)"""  # noqa: S608
_TAKEN = {
    size: f"""
    SELECT item_id FROM conversation_items
    WHERE conversation_id = ? AND tenant = ? AND item_id IN ({", ".join("?" * size)})"""  # noqa: S608
    for size in _AT_ONCE
}
_HISTORY = f"""
    SELECT used_at, {ENTRY} FROM conversations LEFT JOIN conversation_items
        ON conversation_items.conversation_id = conversations.id
    WHERE conversations.id = ? AND conversations.tenant = ? ORDER BY number"""  # noqa: S608
_PLACE = "SELECT number FROM conversation_items WHERE conversation_id = ? AND tenant = ? AND item_id = ?"
_FIRST, _LAST = 0, 2**63 - 1
_ASCENDING = f"""
    SELECT {ENTRY} FROM conversation_items
    WHERE conversation_id = ? AND tenant = ? AND visible AND number > ? ORDER BY number LIMIT ?"""  # noqa: S608
_DESCENDING = f"""
    SELECT {ENTRY} FROM conversation_items
    WHERE conversation_id = ? AND tenant = ? AND visible AND number < ? ORDER BY number DESC LIMIT ?"""  # noqa: S608
_ITEM = f"""
    SELECT {ENTRY} FROM conversation_items WHERE conversation_id = ? AND tenant = ? AND item_id = ?"""  # noqa: S608
_REMOVE = "DELETE FROM conversation_items WHERE conversation_id = ? AND tenant = ? AND item_id = ?"
_FIND_ITEM = f"""
    SELECT {ENTRY} FROM conversation_items WHERE tenant = ? AND item_id = ?
    ORDER BY direction DESC, number DESC LIMIT 1"""  # noqa: S608


def create(database: Database, record: Row, items: Sequence[Row]) -> None:
    """Insert a conversation and its first items."""
    database.execute(_INSERT, (*record, _now()))
    _insert(database, items, set())


def get(database: Database, tenant: str, conversation_id: str) -> ConversationRecord | None:
    """Return a conversation, None if there is none."""
    row = database.execute(_GET, (conversation_id, tenant)).fetchone()
    return None if row is None else conversation_of(row)


def update(database: Database, tenant: str, conversation_id: str, metadata: str) -> ConversationRecord | None:
    """Replace the metadata and return the conversation, None if there is none."""
    changed = database.execute(_UPDATE, (metadata, _now(), conversation_id, tenant)).rowcount
    return get(database, tenant, conversation_id) if changed else None


def delete(database: Database, tenant: str, conversation_id: str) -> bool:
    """Delete a conversation with its items."""
    return database.execute(_DELETE, (conversation_id, tenant)).rowcount > 0


def add(database: Database, tenant: str, conversation_id: str, items: Sequence[Row]) -> list[JournalEntry] | None:
    """Append items, with new ids where theirs are taken, and return them; None if there is no such conversation."""
    if database.execute(_HOLD, (conversation_id, tenant)).fetchone() is None:
        return None
    database.execute(_USE, (_now(), conversation_id, tenant))
    taken: set[str] = set()
    few, many = _AT_ONCE
    size = few if len(items) <= few else many
    for start in range(0, len(items), size):
        ids = [row[2] for row in items[start : start + size]]
        ids += ids[:1] * (size - len(ids))
        taken |= {found for (found,) in database.execute(_TAKEN[size], (conversation_id, tenant, *ids)).fetchall()}
    return [entry_of(row[3:]) for row in _insert(database, items, taken)]


def _now() -> int:
    return int(time.time())


def _insert(database: Database, items: Sequence[Row], taken: set[str]) -> list[Row]:
    rows = []
    for item_row in items:
        row = renamed(item_row) if item_row[2] in taken else item_row
        taken.add(row[2])
        rows.append(row)
    if rows:
        database.executemany(_ADD, rows)
    return rows


def history(database: Database, tenant: str, conversation_id: str) -> tuple[list[JournalEntry], bool] | None:
    """Return all items in order, and whether the last use was just now; None if there is no such conversation."""
    rows = database.execute(_HISTORY, (conversation_id, tenant)).fetchall()
    if not rows:
        return None
    used_at = rows[0][0]
    # A conversation without items gives one row of nothing.
    entries = [entry_of(row[1:]) for row in rows if row[1] is not None]
    return entries, used_at is not None and used_at > _now() - JUST_NOW


def use(database: Database, tenant: str, conversation_id: str) -> bool:
    """Take note that a conversation is used now; False if there is no such conversation."""
    return database.execute(_USE, (_now(), conversation_id, tenant)).rowcount > 0


def page(
    database: Database, tenant: str, conversation_id: str, *, limit: int, after: str | None, ascending: bool
) -> Page | None:
    """Return visible items in order: those right after `after`, or the first; None without such a conversation."""
    with snapshot(database):
        if get(database, tenant, conversation_id) is None:
            return None
        place = _FIRST if ascending else _LAST
        if after is not None:
            row = database.execute(_PLACE, (conversation_id, tenant, after)).fetchone()
            if row is None:
                raise NotFoundError(
                    f"There is no item '{after}' to list from; if it was deleted, list again without 'after'.",
                    param="after",
                )
            place = row[0]
        statement = _ASCENDING if ascending else _DESCENDING
        rows = database.execute(statement, (conversation_id, tenant, place, limit + 1)).fetchall()
    return Page([entry_of(row) for row in rows[:limit]], has_more=len(rows) > limit)


def item(database: Database, tenant: str, conversation_id: str, item_id: str) -> JournalEntry | None:
    """Return one item, None if it is not there."""
    row = database.execute(_ITEM, (conversation_id, tenant, item_id)).fetchone()
    return None if row is None else entry_of(row)


def remove(database: Database, tenant: str, conversation_id: str, item_id: str) -> bool:
    """Delete an item."""
    return database.execute(_REMOVE, (conversation_id, tenant, item_id)).rowcount > 0


def find_item(database: Database, tenant: str, item_id: str) -> JournalEntry | None:
    """Return an item of any conversation: one the server wrote before one a client sent, and the newest of those."""
    row = database.execute(_FIND_ITEM, (tenant, item_id)).fetchone()
    return None if row is None else entry_of(row)
