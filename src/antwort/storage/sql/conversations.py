"""Conversations and their items. Every statement names the tenant."""

import time
from collections.abc import Sequence
from typing import NamedTuple

from antwort.errors import BadRequestError, NotFoundError
from antwort.storage.base import ConversationRecord, JournalEntry, Page
from antwort.storage.sql.database import (
    LOCK,
    Database,
    Row,
    Transactions,
    deletes,
    reads,
    snapshot,
    writes,
    writes_once,
)
from antwort.storage.sql.pages import Listed, list_window
from antwort.storage.sql.rows import (
    CONVERSATION,
    ENTRY,
    conversation_of,
    conversation_row,
    encoded,
    entry_of,
    item_rows,
    renamed,
)

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
    SELECT used_at, removed, number, {ENTRY} FROM conversations LEFT JOIN conversation_items
        ON conversation_items.conversation_id = conversations.id AND number > ?
    WHERE conversations.id = ? AND conversations.tenant = ? ORDER BY number"""  # noqa: S608
_COUNT_REMOVED = "UPDATE conversations SET removed = removed + 1 WHERE id = ? AND tenant = ?"
_POSITION = "SELECT number FROM conversation_items WHERE conversation_id = ? AND tenant = ? AND item_id = ?"
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
_LISTED = Listed(
    "conversation",
    "SELECT created_at, id FROM conversations WHERE id = ? AND tenant = ?",
    (-(2**63), ""),
    (2**63 - 1, ""),
)
_BETWEEN = f"""
    SELECT {CONVERSATION} FROM conversations
    WHERE tenant = ? AND (created_at, id) > (?, ?) AND (created_at, id) < (?, ?)"""  # noqa: S608
_UPWARDS = f"{_BETWEEN} ORDER BY created_at, id LIMIT ?"
_DOWNWARDS = f"{_BETWEEN} ORDER BY created_at DESC, id DESC LIMIT ?"
_FIND_ITEM = f"""
    SELECT {ENTRY} FROM conversation_items WHERE tenant = ? AND item_id = ?
    ORDER BY direction DESC, number DESC LIMIT 1"""  # noqa: S608


class ConversationState(NamedTuple):
    """How far the items of a conversation are known: how many were deleted, and the number of the last one."""

    removed: int
    last: int


EMPTY = ConversationState(0, 0)


class LaterItems(NamedTuple):
    """Items of a conversation that came after some state, and the state with them."""

    entries: list[JournalEntry]
    after: ConversationState
    reached: ConversationState


class ConversationStore(Transactions):
    """Keeps conversations and their items. Each method is one transaction."""

    async def create(self, record: ConversationRecord, entries: Sequence[JournalEntry] = ()) -> None:
        """Store a new conversation with its first items."""
        items = item_rows(record.tenant, record.id, entries)
        await self._create(record.tenant, record.id, conversation_row(record), items)

    @writes
    def _create(
        self, database: Database, _tenant: str, _conversation_id: str, record: Row, items: Sequence[Row]
    ) -> None:
        database.execute(_INSERT, (*record, _now()))
        _insert(database, items, set())

    @reads
    def get(self, database: Database, tenant: str, conversation_id: str) -> ConversationRecord | None:
        """Return a conversation of the tenant, None if there is none."""
        return _get(database, tenant, conversation_id)

    @reads
    def list_conversations(
        self,
        database: Database,
        tenant: str,
        *,
        limit: int,
        after: str | None = None,
        before: str | None = None,
        order: str = "desc",
    ) -> Page:
        """Return conversations of the tenant by creation time; `after` and `before` are ids, as in lists of responses.

        Raise NotFoundError for an unknown one.
        """
        with snapshot(database):
            window = list_window(database, _LISTED, tenant, after=after, before=before, order=order)
            statement = _UPWARDS if window.upwards else _DOWNWARDS
            rows = database.execute(statement, (*window.bounds, limit + 1)).fetchall()
        return window.page([conversation_of(row) for row in rows[:limit]], has_more=len(rows) > limit)

    async def update(self, tenant: str, conversation_id: str, metadata: dict[str, str]) -> ConversationRecord | None:
        """Replace the metadata and return the conversation, None if there is none."""
        return await self._update(tenant, conversation_id, encoded(metadata))

    @writes
    def _update(
        self, database: Database, tenant: str, conversation_id: str, metadata: str
    ) -> ConversationRecord | None:
        changed = database.execute(_UPDATE, (metadata, _now(), conversation_id, tenant)).rowcount
        return _get(database, tenant, conversation_id) if changed else None

    @deletes
    def delete(self, database: Database, tenant: str, conversation_id: str) -> bool:
        """Delete a conversation with its items; False if there was none."""
        return database.execute(_DELETE, (conversation_id, tenant)).rowcount > 0

    async def add(
        self, tenant: str, conversation_id: str, entries: Sequence[JournalEntry], *, renaming: bool = True
    ) -> list[JournalEntry] | None:
        """Append items and return them as they are stored; None if there is no such conversation.

        An item whose id is in the conversation already gets a new one. Without `renaming` it is a BadRequestError, and
        nothing is stored.
        """
        return await self._add(tenant, conversation_id, item_rows(tenant, conversation_id, entries), renaming=renaming)

    @writes_once
    def _add(
        self, database: Database, tenant: str, conversation_id: str, items: Sequence[Row], *, renaming: bool
    ) -> list[JournalEntry] | None:
        rows = add_items(database, tenant, conversation_id, items, renaming=renaming)
        return None if rows is None else [entry_of(row[3:]) for row in rows]

    async def history(self, tenant: str, conversation_id: str) -> list[JournalEntry] | None:
        """Return all items in order, None if there is no such conversation. It counts as a use of the conversation."""
        found = await self.since(tenant, conversation_id)
        return None if found is None else found.entries

    async def since(self, tenant: str, conversation_id: str, state: ConversationState = EMPTY) -> LaterItems | None:
        """Return the items that came after a state; all of them if some before it were deleted.

        None if there is no such conversation. It counts as a use of the conversation.
        """
        found = await self._since(tenant, conversation_id, state)
        if found is None:
            return None
        later, used_just_now = found
        # Whoever goes on with it adds to it only at the end: until then it must not be too old.
        return later if used_just_now or await self._use(tenant, conversation_id) else None

    @reads
    def _since(
        self, database: Database, tenant: str, conversation_id: str, state: ConversationState
    ) -> tuple[LaterItems, bool] | None:
        """Return items, and whether the last use was just now."""
        rows = database.execute(_HISTORY, (state.last, conversation_id, tenant)).fetchall()
        if rows and state.last and rows[0][1] != state.removed:
            state = EMPTY
            rows = database.execute(_HISTORY, (state.last, conversation_id, tenant)).fetchall()
        if not rows:
            return None
        used_at, removed, last = rows[-1][:3]
        reached = ConversationState(removed, state.last if last is None else last)
        # A conversation without such items gives one row of nothing.
        entries = [entry_of(row[3:]) for row in rows if row[2] is not None]
        return LaterItems(entries, after=state, reached=reached), used_at > _now() - JUST_NOW

    @writes
    def _use(self, database: Database, tenant: str, conversation_id: str) -> bool:
        """Take note that a conversation is used now; False if there is no such conversation."""
        return database.execute(_USE, (_now(), conversation_id, tenant)).rowcount > 0

    @reads
    def items(
        self,
        database: Database,
        tenant: str,
        conversation_id: str,
        *,
        limit: int,
        after: str | None = None,
        order: str = "desc",
    ) -> Page | None:
        """Return the visible items by their order, None if there is no such conversation.

        `after` is an item id, an unknown one is a NotFoundError.
        """
        ascending = order == "asc"
        with snapshot(database):
            if _get(database, tenant, conversation_id) is None:
                return None
            position = _FIRST if ascending else _LAST
            if after is not None:
                row = database.execute(_POSITION, (conversation_id, tenant, after)).fetchone()
                if row is None:
                    raise NotFoundError(
                        f"No item found with id '{after}'; if it was deleted, list again without 'after'.",
                        param="after",
                    )
                position = row[0]
            statement = _ASCENDING if ascending else _DESCENDING
            rows = database.execute(statement, (conversation_id, tenant, position, limit + 1)).fetchall()
        return Page([entry_of(row) for row in rows[:limit]], has_more=len(rows) > limit)

    @reads
    def item(self, database: Database, tenant: str, conversation_id: str, item_id: str) -> JournalEntry | None:
        """Return one item, None if it is not there."""
        row = database.execute(_ITEM, (conversation_id, tenant, item_id)).fetchone()
        return None if row is None else entry_of(row)

    @deletes
    def remove(self, database: Database, tenant: str, conversation_id: str, item_id: str) -> bool:
        """Delete an item; False if it was not there."""
        if database.execute(_HOLD, (conversation_id, tenant)).fetchone() is None:
            return False
        removed = database.execute(_REMOVE, (conversation_id, tenant, item_id)).rowcount > 0
        if removed:
            database.execute(_COUNT_REMOVED, (conversation_id, tenant))
        return removed


def add_items(
    database: Database, tenant: str, conversation_id: str, items: Sequence[Row], *, renaming: bool = True
) -> list[Row] | None:
    """Append items and return them; None if there is no such conversation.

    Those whose ids are taken get new ones or, without `renaming`, are a BadRequestError.
    """
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
    return _insert(database, items, taken, renaming=renaming)


def find_item(database: Database, tenant: str, item_id: str) -> JournalEntry | None:
    """Return an item of any conversation: one the server wrote before one a client sent, and the newest of those."""
    row = database.execute(_FIND_ITEM, (tenant, item_id)).fetchone()
    return None if row is None else entry_of(row)


def _get(database: Database, tenant: str, conversation_id: str) -> ConversationRecord | None:
    row = database.execute(_GET, (conversation_id, tenant)).fetchone()
    return None if row is None else conversation_of(row)


def already_there(item_id: str) -> BadRequestError:
    """Return the error for an item that a conversation has already."""
    return BadRequestError(
        f"Item already in conversation: '{item_id}'.", param="items", code="item_already_in_conversation"
    )


def _insert(database: Database, items: Sequence[Row], taken: set[str], *, renaming: bool = True) -> list[Row]:
    rows = []
    for item_row in items:
        if item_row[2] in taken and not renaming:
            raise already_there(item_row[2])
        row = renamed(item_row) if item_row[2] in taken else item_row
        taken.add(row[2])
        rows.append(row)
    database.insert(_ADD, rows)
    return rows


def _now() -> int:
    return int(time.time())
