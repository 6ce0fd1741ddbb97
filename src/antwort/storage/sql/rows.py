"""Between what is kept and the rows it is kept in."""

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from itertools import chain, starmap
from typing import Any, get_args, overload

import msgspec
from typing_extensions import override

from antwort.concurrency.large_work import MUCH
from antwort.storage.base import ConversationRecord, JournalEntry, Kept, Mark, Question, ResponseRecord, StoredEvent
from antwort.storage.call_record import CallRecord
from antwort.storage.sql.database import FEW, Row
from antwort.types import JSON
from antwort.wire.ids import new_id
from antwort.wire.responses import ResponseObject

RECORD = (
    "id, tenant, created_at, status, model, body, request, previous_response_id, background, epoch, subject, extra, "
    "conversation_id, run_id, parent_id, parent_call_id, child_index, parked, unstored_at"
)
"""The columns of a record, in the order of its fields."""
ENTRY = "direction, item, visible, call"
"""The columns of an entry, in the order of its fields."""
CONVERSATION = "id, tenant, created_at, metadata"
"""The columns of a conversation, in the order of its fields."""
QUESTION = (
    "id, tenant, response_id, call_id, root_id, kind, body, created_at, expires_at, status, answer, answered_at, "
    "answered_by"
)
"""The columns of a question, in the order of its fields."""
KEPT = "id, tenant, created_at, value, parent, version"
"""The columns of what a provider keeps, in the order of its fields, but for the kind."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_decode_call = msgspec.json.Decoder(CallRecord).decode
_CALL = '{"call_id":'
_MARKS: tuple[Mark, ...] = get_args(Mark)


def encoded(value: Any) -> str:
    """Return a value as JSON."""
    return _encode(value).decode()


def decoded(text: str) -> Any:
    """Return the value in a JSON text."""
    return _decode(text)


def body_text(body: ResponseObject | JSON) -> str:
    """Return a response as JSON without its output, which is kept as entries."""
    return encoded(msgspec.structs.replace(body, output=[]) if isinstance(body, ResponseObject) else body)


def object_text(value: JSON) -> str:
    """Return an object as JSON; most of those that are stored are empty."""
    return encoded(value) if value else "{}"


def record_row(record: ResponseRecord) -> Row:
    """Return the values of `RECORD`."""
    return (
        record.id,
        record.tenant,
        record.created_at,
        record.status,
        record.model,
        body_text(record.body),
        object_text(record.request),
        record.previous_response_id,
        record.background,
        record.epoch,
        record.subject,
        object_text(record.extra),
        record.conversation_id,
        record.run_id,
        record.parent_id,
        record.parent_call_id,
        record.child_index,
        record.parked,
        record.unstored_at,
    )


def record_of(row: Sequence[Any]) -> ResponseRecord:
    """Return the record in a row of `RECORD`."""
    id_, tenant, created_at, status, model, body, request, previous, background, epoch, subject, extra, *rest = row
    said_in, run_id, parent_id, call_id, index, parked, unstored_at = rest
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
        said_in,
        run_id,
        parent_id,
        call_id,
        index,
        bool(parked),
        unstored_at,
    )


class LargeRows(Sequence[Row]):
    """Many rows, of much text. They are written where somebody looks at them first: on the thread that stores them."""

    def __init__(self, count: int, write: Callable[[], list[Row]]) -> None:
        self._count = count
        self._write = write

    @cached_property
    def _rows(self) -> list[Row]:
        return self._write()

    @override
    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> list[Row]: ...
    @override
    def __getitem__(self, index: int | slice) -> Row | list[Row]:
        return self._rows[index]


def entry_rows(
    tenant: str,
    response_id: str,
    entries: Sequence[JournalEntry],
    start: int = 0,
    again: Sequence[tuple[int, JournalEntry]] = (),
) -> Sequence[Row]:
    """Return response id, position, tenant, item id and the values of `ENTRY` for each entry, and for those of `again`.

    They say what the entries are now, whatever becomes of these before they are stored. Where there is much of it the
    event loop only copies it, and has others write it: texts are most of it, and are not copied.
    """
    if len(entries) + len(again) <= FEW:  # nearly always
        return [
            *[_row(tenant, response_id, position, entry) for position, entry in enumerate(entries, start)],
            *[_row(tenant, response_id, position, entry) for position, entry in again],
        ]
    rows, room = list[Row](), MUCH
    placed = chain(enumerate(entries, start), again)
    for position, entry in placed:
        *_, item, _, call = row = _row(tenant, response_id, position, entry)
        rows.append(row)
        room -= len(item) + len(call or "")
        if room < 0:
            break
    rest = [(position, _copy(entry)) for position, entry in placed]
    if not rest:
        return rows
    write = partial(_row, tenant, response_id)
    return LargeRows(len(rows) + len(rest), lambda: [*rows, *starmap(write, rest)])


def _row(tenant: str, response_id: str, position: int, entry: JournalEntry) -> Row:
    return (
        response_id,
        position,
        tenant,
        entry.id,
        entry.direction,
        encoded(entry.item),
        entry.visible,
        None if entry.is_plain else _encoded_call(entry),
    )


def _copy(entry: JournalEntry) -> JournalEntry:
    """Copy an entry with all in it that can change."""
    call = None if entry.call is None else msgspec.convert(msgspec.to_builtins(entry.call), CallRecord)
    item, sources = msgspec.to_builtins(entry.item), msgspec.to_builtins(entry.sources)
    return msgspec.structs.replace(entry, item=item, call=call, sources=sources)


def _encoded_call(entry: JournalEntry) -> str:
    """Return what the column `call` has: a call, or the mark or the sources of an item."""
    if entry.call is not None:
        return encoded(entry.call)
    marks = {} if entry.mark is None else {entry.mark: True}
    return encoded(marks if entry.sources is None else {**marks, "sources": entry.sources})


def entry_of(row: Sequence[Any]) -> JournalEntry:
    """Return the entry in a row of `ENTRY`."""
    direction, item, visible, call = row
    entry = JournalEntry(direction, _decode(item), bool(visible))
    if call is None:
        return entry
    if call.startswith(_CALL):
        entry.call = _decode_call(call)
        return entry
    noted = _decode(call)
    if "name" in noted:
        entry.call = msgspec.convert(noted, CallRecord)
    else:
        entry.mark, entry.sources = next((mark for mark in _MARKS if noted.get(mark)), None), noted.get("sources")
    return entry


def event_rows(tenant: str, response_id: str, events: Iterable[StoredEvent]) -> list[Row]:
    """Return response id, sequence, tenant, type and data of each event."""
    return [(response_id, event.sequence, tenant, event.type, event.data) for event in events]


def conversation_row(record: ConversationRecord) -> Row:
    """Return the values of `CONVERSATION`."""
    return (record.id, record.tenant, record.created_at, encoded(record.metadata))


def conversation_of(row: Sequence[Any]) -> ConversationRecord:
    """Return the conversation in a row of `CONVERSATION`."""
    id_, tenant, created_at, metadata = row
    return ConversationRecord(id_, tenant, created_at, _decode(metadata))


def item_rows(tenant: str, conversation_id: str, entries: Sequence[JournalEntry]) -> Sequence[Row]:
    """Return conversation id, tenant, item id and the values of `ENTRY` for each entry, as it is now."""
    rows = entry_rows(tenant, conversation_id, entries)
    if isinstance(rows, LargeRows):
        return LargeRows(len(rows), lambda: _items(rows))
    return _items(rows)


def _items(rows: Iterable[Row]) -> list[Row]:
    return [(conversation_id, tenant, *rest) for (conversation_id, _, tenant, *rest) in rows]


def kept_row(kept: Kept) -> Row:
    """Return the kind and the values of `KEPT`."""
    return (kept.kind, kept.id, kept.tenant, kept.created_at, encoded(kept.value), kept.parent, kept.version)


def kept_of(kind: str, row: Sequence[Any]) -> Kept:
    """Return what is kept in a row of `KEPT`."""
    id_, tenant, created_at, value, parent, version = row
    return Kept(id_, tenant, created_at, _decode(value), parent, version, kind)


def question_row(question: Question) -> Row:
    """Return the values of `QUESTION`."""
    return (
        question.id,
        question.tenant,
        question.response_id,
        question.call_id,
        question.root_id,
        question.kind,
        encoded(question.body),
        question.created_at,
        question.expires_at,
        question.status,
        None if question.answer is None else encoded(question.answer),
        question.answered_at,
        question.answered_by,
    )


def question_of(row: Sequence[Any]) -> Question:
    """Return the question in a row of `QUESTION`."""
    id_, tenant, response_id, call_id, root_id, kind, body, created_at, expires_at, status, answer, *answered = row
    return Question(
        id=id_,
        tenant=tenant,
        response_id=response_id,
        call_id=call_id,
        root_id=root_id,
        kind=kind,
        body=_decode(body),
        created_at=created_at,
        expires_at=expires_at,
        status=status,
        answer=None if answer is None else _decode(answer),
        answered_at=answered[0],
        answered_by=answered[1],
    )


def renamed(row: Row) -> Row:
    """Return a row of an item with a new id, of the same kind."""
    conversation_id, tenant, item_id, direction, item, *rest = row
    fresh = new_id(item_id.partition("_")[0])
    return (conversation_id, tenant, fresh, direction, encoded({**_decode(item), "id": fresh}), *rest)
