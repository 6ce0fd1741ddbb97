"""The statements on responses, each function one transaction or a part of one.

Every statement names the tenant. The drivers compile a text once and keep it, as long as the text is the same.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from antwort.errors import NotFoundError
from antwort.storage.base import (
    ACTIVE,
    FencedError,
    JournalEntry,
    ListedResponse,
    Page,
    ResponseRecord,
    StoredEvent,
)
from antwort.storage.sql import conversations
from antwort.storage.sql.database import LOCK, Database, Row, snapshot
from antwort.storage.sql.rows import ENTRY, RECORD, decoded, encoded, entry_of, record_of

__all__ = [
    "append",
    "claim",
    "create",
    "delete",
    "events",
    "find_item",
    "get",
    "history",
    "journal",
    "note",
    "page",
    "ping",
    "unfinished",
    "update",
]

_INSERT_RESPONSE = f"INSERT INTO responses ({RECORD}) VALUES ({', '.join('?' * 13)})"  # noqa: S608
_UPDATE_RESPONSE = """
    UPDATE responses SET status = ?, body = ?, extra = ? WHERE id = ? AND tenant = ? AND epoch = ?"""
_PUT_ENTRY = f"""
    INSERT INTO entries (response_id, position, tenant, item_id, {ENTRY}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (response_id, position) DO UPDATE SET item_id = excluded.item_id, direction = excluded.direction,
        item = excluded.item, visible = excluded.visible, call = excluded.call"""  # noqa: S608
_INSERT_EVENT = "INSERT INTO events (response_id, sequence, tenant, type, data) VALUES (?, ?, ?, ?, ?)"
_EPOCH = f"SELECT epoch FROM responses WHERE id = ? AND tenant = ? {LOCK}"  # noqa: S608
_EXTRA = f"SELECT extra FROM responses WHERE id = ? AND tenant = ? AND epoch = ? {LOCK}"  # noqa: S608
_NOTE = "UPDATE responses SET extra = ? WHERE id = ? AND tenant = ? AND epoch = ?"
_STATUS = f"SELECT status FROM responses WHERE id = ? AND tenant = ? {LOCK}"  # noqa: S608
_GET = f"SELECT {RECORD} FROM responses WHERE id = ? AND tenant = ?"  # noqa: S608
_JOURNAL = f"SELECT {ENTRY} FROM entries WHERE response_id = ? AND tenant = ? ORDER BY position"  # noqa: S608
# A response comes after the one it continues, so that following ever smaller numbers comes to an end. The empty
# text keeps SQLite from searching all entries of the tenant by the index on items.
_HISTORY = f"""
    WITH RECURSIVE chain (number, id, previous) AS (
        SELECT number, id, previous_response_id FROM responses WHERE id = :id AND tenant = :tenant
        UNION ALL
        SELECT earlier.number, earlier.id, earlier.previous_response_id
        FROM chain JOIN responses AS earlier
            ON earlier.id = chain.previous AND earlier.tenant = :tenant AND earlier.number < chain.number
    )
    SELECT {ENTRY} FROM chain LEFT JOIN entries ON entries.response_id = chain.id AND entries.tenant || '' = :tenant
    ORDER BY chain.number, entries.position"""  # noqa: S608
_EVENTS = """
    SELECT sequence, type, data FROM events WHERE response_id = ? AND tenant = ? AND sequence > ?
    ORDER BY sequence LIMIT ?"""
_DELETE = "DELETE FROM responses WHERE id = ? AND tenant = ?"
_RELINK = """
    UPDATE responses SET previous_response_id = (
        SELECT previous_response_id FROM responses WHERE id = :id AND tenant = :tenant
    ) WHERE tenant = :tenant AND previous_response_id = :id"""
# What the server wrote wins over what a client sent back under the same id, and the newest over older ones.
_FIND_ITEM = f"""
    SELECT {ENTRY} FROM entries JOIN responses ON responses.id = entries.response_id
    WHERE entries.tenant = ? AND entries.item_id = ?
    ORDER BY entries.direction DESC, responses.number DESC, entries.position DESC LIMIT 1"""  # noqa: S608
_CLAIM = """
    UPDATE responses SET epoch = epoch + 1
    WHERE id = ? AND tenant = ? AND status IN ('queued', 'in_progress')"""
_UNFINISHED = """
    SELECT tenant, id FROM responses WHERE background AND status IN ('queued', 'in_progress')
    ORDER BY created_at, number"""
_PLACE = "SELECT created_at, number FROM responses WHERE id = ? AND tenant = ?"
_FIRST, _LAST = (-(2**63), 0), (2**63 - 1, 2**63 - 1)
_BETWEEN = """
    FROM responses WHERE tenant = ? AND (created_at, number) > (?, ?) AND (created_at, number) < (?, ?)"""
_UPWARDS = f"{_BETWEEN} ORDER BY created_at, number LIMIT ?"
_DOWNWARDS = f"{_BETWEEN} ORDER BY created_at DESC, number DESC LIMIT ?"
_ASCENDING = f"SELECT {RECORD} {_UPWARDS}"
_DESCENDING = f"SELECT {RECORD} {_DOWNWARDS}"
# The output of all responses of such a page, in one statement however many there are. The empty text as above.
_SHOWN = "AND tenant || '' = ? AND direction = 'output' AND visible ORDER BY response_id, position"
_OUTPUT_ASCENDING = f"""
    SELECT response_id, {ENTRY} FROM entries WHERE response_id IN (SELECT id {_UPWARDS}) {_SHOWN}"""  # noqa: S608
_OUTPUT_DESCENDING = f"""
    SELECT response_id, {ENTRY} FROM entries WHERE response_id IN (SELECT id {_DOWNWARDS}) {_SHOWN}"""  # noqa: S608
# A statement that reads no table would be answered by a database whose tables cannot be read.
_PING = "SELECT 1 FROM responses WHERE id = ''"


def create(database: Database, record: Row, entries: Sequence[Row], said: Sequence[Row] = ()) -> None:
    """Insert a response and its first entries; add what is said to its conversation."""
    database.execute(_INSERT_RESPONSE, record)
    if entries:
        database.executemany(_PUT_ENTRY, entries)
    if said:
        _say(database, said)


def append(
    database: Database,
    tenant: str,
    response_id: str,
    epoch: int,
    *,
    entries: Sequence[Row] = (),
    events: Sequence[Row] = (),
) -> None:
    """Put entries at their positions and add events, if the epoch is the current one."""
    row = database.execute(_EPOCH, (response_id, tenant)).fetchone()
    if row is None or row[0] != epoch:
        raise FencedError(f"epoch {epoch} of {response_id} is over")
    _put(database, entries, events)


def update(
    database: Database,
    change: Row,
    entries: Sequence[Row] = (),
    events: Sequence[Row] = (),
    said: Sequence[Row] = (),
) -> None:
    """Change status, body and extra of a response with entries and events, if the epoch is the current one.

    What is said is added to its conversation, unless the response was over before: an end may be stored again.
    """
    if said:
        row = database.execute(_STATUS, change[3:5]).fetchone()
        said = said if row is not None and row[0] in ACTIVE else ()
    if database.execute(_UPDATE_RESPONSE, change).rowcount == 0:
        raise FencedError(f"epoch {change[5]} of {change[3]} is over")
    _put(database, entries, events)
    if said:
        _say(database, said)


def note(database: Database, tenant: str, response_id: str, epoch: int, extra: Mapping[str, Any]) -> None:
    """Add to the extra of a response, if the epoch is the current one."""
    row = database.execute(_EXTRA, (response_id, tenant, epoch)).fetchone()
    if row is None:
        raise FencedError(f"epoch {epoch} of {response_id} is over")
    database.execute(_NOTE, (encoded({**decoded(row[0]), **extra}), response_id, tenant, epoch))


def _put(database: Database, entries: Sequence[Row], events: Sequence[Row]) -> None:
    if entries:
        database.executemany(_PUT_ENTRY, entries)
    if events:
        database.executemany(_INSERT_EVENT, events)


def _say(database: Database, said: Sequence[Row]) -> None:
    """Add items to the conversation that they name, if it is there."""
    conversation_id, tenant, *_ = said[0]
    conversations.add(database, tenant, conversation_id, said)


def get(database: Database, tenant: str, response_id: str) -> ResponseRecord | None:
    """Return a response, None if there is none."""
    row = database.execute(_GET, (response_id, tenant)).fetchone()
    return None if row is None else record_of(row)


def journal(database: Database, tenant: str, response_id: str) -> list[JournalEntry]:
    """Return the entries of a response."""
    return [entry_of(row) for row in database.execute(_JOURNAL, (response_id, tenant)).fetchall()]


def history(database: Database, tenant: str, response_id: str) -> list[JournalEntry] | None:
    """Return the entries of a response and of all before it, None if there is no such response."""
    rows = database.execute(_HISTORY, {"id": response_id, "tenant": tenant}).fetchall()
    # A response without entries gives one row of nothing.
    return [entry_of(row) for row in rows if row[0] is not None] if rows else None


def events(database: Database, tenant: str, response_id: str, after: int, limit: int) -> list[StoredEvent]:
    """Return events after a sequence number."""
    rows = database.execute(_EVENTS, (response_id, tenant, after, limit)).fetchall()
    return [StoredEvent(*row) for row in rows]


def delete(database: Database, tenant: str, response_id: str) -> bool:
    """Delete a response with all that belongs to it; those that continue it continue the one before it."""
    if database.execute(_EPOCH, (response_id, tenant)).fetchone() is None:
        return False
    database.execute(_RELINK, {"id": response_id, "tenant": tenant})
    database.execute(_DELETE, (response_id, tenant))
    return True


def find_item(database: Database, tenant: str, item_id: str) -> JournalEntry | None:
    """Return an item of any response or conversation by its id."""
    with snapshot(database):
        row = database.execute(_FIND_ITEM, (tenant, item_id)).fetchone()
        if row is not None and row[0] == "output":
            return entry_of(row)
        said = conversations.find_item(database, tenant, item_id)
    if row is None or (said is not None and said.direction == "output"):
        return said
    return entry_of(row)


def claim(database: Database, tenant: str, response_id: str) -> ResponseRecord | None:
    """Raise the epoch of a response that is not over and return it; None if it is over or unknown."""
    claimed = database.execute(_CLAIM, (response_id, tenant)).rowcount
    return get(database, tenant, response_id) if claimed else None


def unfinished(database: Database) -> list[tuple[str, str]]:
    """Return tenant and id of every background response that is not over, oldest first."""
    return database.execute(_UNFINISHED).fetchall()


def page(
    database: Database, tenant: str, *, limit: int, after: str | None, before: str | None, ascending: bool
) -> Page:
    """Return responses in order: those right after `after`, or those right before `before`, or the first.

    However many they are, the number of statements is the same.
    """
    with snapshot(database):
        start = None if after is None else _place(database, tenant, after, "after")
        end = None if before is None else _place(database, tenant, before, "before")
        low, high = (start, end) if ascending else (end, start)
        backwards = start is None and end is not None
        upwards = ascending != backwards
        records, output = (_ASCENDING, _OUTPUT_ASCENDING) if upwards else (_DESCENDING, _OUTPUT_DESCENDING)
        bounds = (tenant, *(low or _FIRST), *(high or _LAST))
        rows = database.execute(records, (*bounds, limit + 1)).fetchall()
        items = database.execute(output, (*bounds, limit, tenant)).fetchall()
    found = {record.id: ListedResponse(record, []) for record in map(record_of, rows[:limit])}
    for response_id, *entry in items:
        found[response_id].output.append(entry_of(entry).item)
    listed = list(found.values())
    if backwards:
        listed.reverse()
    return Page(listed, has_more=len(rows) > limit)


def ping(database: Database) -> None:
    """Read a little."""
    database.execute(_PING).fetchone()


def _place(database: Database, tenant: str, response_id: str, param: str) -> tuple[int, int]:
    place: tuple[int, int] | None = database.execute(_PLACE, (response_id, tenant)).fetchone()
    if place is None:
        raise NotFoundError(
            f"There is no response '{response_id}' to list from; if it was deleted, list again without '{param}'.",
            param=param,
        )
    return place
