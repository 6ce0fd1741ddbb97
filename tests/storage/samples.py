"""What the tests store."""

import sqlite3
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

from antwort.storage import JournalEntry, ResponseRecord, SqliteStore, StoredEvent
from antwort.storage.sql.responses import ResponseStore
from antwort.types import JSON

T = TypeVar("T")

TENANT = "acme"


def record(response_id: str = "resp_1", **changes: Any) -> ResponseRecord:
    fields: dict[str, Any] = {
        "id": response_id,
        "tenant": TENANT,
        "created_at": 1_700_000_000,
        "status": "in_progress",
        "model": "small",
        "body": {"id": response_id, "object": "response", "status": "in_progress", "completed_at": None, "output": []},
        "request": {"model": "small", "input": "Hello"},
        **changes,
    }
    return ResponseRecord(**fields)


def body_of(made: ResponseRecord) -> JSON:
    """Return the body of a record whose response is not being made any more."""
    assert isinstance(made.body, dict)
    return made.body


async def history(store: ResponseStore, tenant: str, response_id: str) -> list[JournalEntry] | None:
    """Return the entries of a response and of all before it, oldest first; None if the response is not there."""
    chain = await store.chain(tenant, response_id)
    if chain is None:
        return None
    journals = await store.journals(tenant, chain.ids)
    return [entry for name in chain.ids for entry in journals[name]]


def entry(item_id: str, text: str = "Hello", **changes: Any) -> JournalEntry:
    item = {"id": item_id, "type": "message", "content": [{"type": "output_text", "text": text}]}
    return JournalEntry(**{"direction": "output", "item": item, **changes})


def event(sequence: int) -> StoredEvent:
    return StoredEvent(sequence, "response.output_text.delta", b'{"sequence_number":%d}' % sequence)


def on_writer(store: SqliteStore, call: Callable[[sqlite3.Connection], T]) -> Awaitable[T]:
    """Let the thread that writes do something with its connection."""
    return store._writer.run(cast("Any", call), "")
