"""Between what is kept and the rows it is kept in."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from antwort.storage.base import JournalEntry, ResponseRecord, StoredEvent

__all__ = ["ENTRY", "RECORD", "encoded", "entry_of", "entry_rows", "event_rows", "record_of", "record_row"]

RECORD = "id, tenant, created_at, status, model, body, request, previous_response_id, background, epoch, subject, extra"
"""The columns of a record, in the order of its fields."""
ENTRY = "direction, item, visible, call"
"""The columns of an entry, in the order of its fields."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def encoded(value: Any) -> str:
    """Return a value as JSON."""
    return _encode(value).decode()


def record_row(record: ResponseRecord) -> tuple[Any, ...]:
    """Return the values of `RECORD`."""
    return (
        record.id,
        record.tenant,
        record.created_at,
        record.status,
        record.model,
        encoded(record.body),
        encoded(record.request),
        record.previous_response_id,
        record.background,
        record.epoch,
        record.subject,
        encoded(record.extra),
    )


def record_of(row: Sequence[Any]) -> ResponseRecord:
    """Return the record in a row of `RECORD`."""
    id_, tenant, created_at, status, model, body, request, previous, background, epoch, subject, extra = row
    return ResponseRecord(
        id_,
        tenant,
        created_at,
        status,
        model,
        _decode(body),
        _decode(request),
        previous,
        bool(background),
        epoch,
        subject,
        _decode(extra),
    )


def entry_rows(tenant: str, response_id: str, entries: Iterable[JournalEntry], start: int = 0) -> list[tuple[Any, ...]]:
    """Return response id, position, tenant, item id and the values of `ENTRY` for each entry."""
    return [
        (
            response_id,
            position,
            tenant,
            entry.id,
            entry.direction,
            encoded(entry.item),
            entry.visible,
            None if entry.call is None else encoded(entry.call),
        )
        for position, entry in enumerate(entries, start)
    ]


def entry_of(row: Sequence[Any]) -> JournalEntry:
    """Return the entry in a row of `ENTRY`."""
    direction, item, visible, call = row
    return JournalEntry(direction, _decode(item), bool(visible), None if call is None else _decode(call))


def event_rows(tenant: str, response_id: str, events: Iterable[StoredEvent]) -> list[tuple[Any, ...]]:
    """Return response id, sequence, tenant, type and data of each event."""
    return [(response_id, event.sequence, tenant, event.type, event.data) for event in events]
