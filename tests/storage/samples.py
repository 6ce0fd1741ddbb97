"""What the tests store."""

from typing import Any

from antwort.storage import JournalEntry, ResponseRecord, StoredEvent

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


def entry(item_id: str, text: str = "Hello", **changes: Any) -> JournalEntry:
    item = {"id": item_id, "type": "message", "content": [{"type": "output_text", "text": text}]}
    return JournalEntry(**{"direction": "output", "item": item, **changes})


def event(sequence: int) -> StoredEvent:
    return StoredEvent(sequence, "response.output_text.delta", b'{"sequence_number":%d}' % sequence)
