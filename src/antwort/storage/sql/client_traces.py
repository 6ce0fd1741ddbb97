"""Traces of agents that run in the process of a client, with their spans.

They are rows of `records` that belong to the server itself: one for each trace, and one for each span, whose
parent is its trace. The id of a span says its trace too, so that nobody changes a span of another trace.
"""

import time
from collections.abc import Iterable, Sequence
from hashlib import blake2b

import msgspec
from msgspec import Struct, field

from antwort.errors import BadRequestError, NotFoundError
from antwort.storage.base import Page
from antwort.storage.sql.database import LOCK, Database, Row, Transactions, deletes, reads, snapshot, writes
from antwort.storage.sql.rows import KEPT, encoded
from antwort.types import JSON
from antwort.wire.client_traces import SentItem, SentSpan, SentTrace

MOST_SPANS = 10_000
"""Spans of one trace."""
_DELETED_TOGETHER = 500
"""Spans that one transaction deletes at most."""
_TOGETHER = 100
"""Spans that are looked for with one statement."""
_TRACE, _SPAN = "trace", "span"
_KIND = "owner = '' AND kind = ? AND tenant = ?"
_INSERT = f"INSERT INTO records (owner, kind, {KEPT}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608
_BEGIN = f"{_INSERT} ON CONFLICT (owner, kind, tenant, id) DO NOTHING"
_PUT = f"{_INSERT} ON CONFLICT (owner, kind, tenant, id) DO UPDATE SET value = excluded.value"
_GET = f"SELECT number, created_at, value FROM records WHERE {_KIND} AND id = ?"  # noqa: S608
_UPDATE = f"UPDATE records SET value = ? WHERE {_KIND} AND id = ?"  # noqa: S608
_BELOW = f"{_KIND} AND parent = ? AND deleted_at IS NULL"
_SPANS = f"SELECT number, value FROM records WHERE {_BELOW} AND number > ? ORDER BY number LIMIT ?"  # noqa: S608
_DELETE_SPANS = f"""
    DELETE FROM records WHERE number IN
    (SELECT number FROM records WHERE {_BELOW} ORDER BY number LIMIT ?)"""  # noqa: S608
_DELETE = f"DELETE FROM records WHERE {_KIND} AND id = ?"  # noqa: S608
_OLDEST = """
    SELECT number, tenant, id, created_at FROM records
    WHERE owner = '' AND kind = ? AND deleted_at IS NULL AND number > ? ORDER BY number LIMIT ?"""
_LAST = 2**63 - 1
_OF_LENGTH = len('"of":"0123456789abcdef",')
_NAME_AT = len('{"failed":0,') + _OF_LENGTH + 1
"""Where the name of a trace begins in the text."""


class StoredSpan(Struct, omit_defaults=True):
    """A span as it is kept. Moments are milliseconds since 1970."""

    id: str
    parent_id: str | None = None
    began: int | None = None
    ended: int | None = None
    data: JSON = {}
    error: JSON | None = None
    metadata: JSON | None = None


class StoredTrace(Struct):
    """A trace as it is kept, without its spans. Lists look for the first three at their places in the text."""

    failed: int = 0
    """1 if something went wrong in it, else 0."""
    of: str = field(default_factory=lambda: _digest(None))
    """A digest of its group, always as long."""
    name: str | None = None
    """None if only spans of it have come so far."""
    group: str | None = None
    metadata: JSON | None = None
    began: int | None = None
    ended: int | None = None
    spans: int = 0
    failed_spans: int = 0


class ListedTrace(Struct):
    """A trace with its id, and when it came."""

    id: str
    created_at: int
    trace: StoredTrace


class TraceFilter(Struct, frozen=True, kw_only=True):
    """Which traces a list has; what is not given fits all."""

    name: str | None = None
    group: str | None = None
    failed: bool | None = None
    created_after: int | None = None
    created_before: int | None = None


_trace, _span = msgspec.json.Decoder(StoredTrace).decode, msgspec.json.Decoder(StoredSpan).decode


class TraceStore(Transactions):
    """Keeps what exporters send."""

    async def put(self, tenant: str, items: Iterable[SentItem]) -> None:
        """Keep traces and spans: all of them, or none; BadRequestError if a trace would have too many spans.

        What comes again changes nothing, but for a span that was not over yet, and what is said of a trace.
        """
        of_traces: dict[str, tuple[SentTrace | None, dict[str, SentSpan]]] = {}
        for item in items:
            name = item.id if isinstance(item, SentTrace) else item.trace_id
            said, spans = of_traces.get(name, (None, {}))
            if isinstance(item, SentTrace):
                said = item
            elif item.id not in spans or spans[item.id].ended_at is None:
                spans[item.id] = item
            of_traces[name] = said, spans
        if of_traces:
            # In one order, so that nobody waits for a trace of somebody who waits for one of his.
            await self._put(tenant, _order(tenant), sorted(of_traces.items()))

    @writes
    def _put(
        self,
        database: Database,
        tenant: str,
        _name: str,
        traces: Sequence[tuple[str, tuple[SentTrace | None, dict[str, SentSpan]]]],
    ) -> None:
        for trace_id, (said, spans) in traces:
            database.execute(_BEGIN, _row(tenant, trace_id, StoredTrace()))
            _, _, value = database.execute(f"{_GET} {LOCK}", (_TRACE, tenant, trace_id)).fetchone()
            trace = _trace(value)
            if said is not None:
                trace.name, trace.group, trace.metadata = said.workflow_name, said.group_id, said.metadata
                trace.of = _digest(said.group_id)
            known = dict(_known(database, tenant, trace_id, spans))
            fresh = [
                StoredSpan(one.id, one.parent_id, one.began, one.ended, one.span_data, one.error, one.metadata)
                for one in spans.values()
                if one.id not in known or (known[one.id].ended is None and one.ended is not None)
            ]
            _add(trace, trace_id, fresh, known)
            rows = [_row(tenant, trace_id, one) for one in fresh]
            database.insert(_PUT, rows)
            if (text := encoded(trace)) != value:
                database.execute(_UPDATE, (text, _TRACE, tenant, trace_id))

    @reads
    def get(self, database: Database, tenant: str, trace_id: str) -> ListedTrace | None:
        """Return a trace without its spans, None if there is none."""
        row = database.execute(_GET, (_TRACE, tenant, trace_id)).fetchone()
        return None if row is None else ListedTrace(trace_id, row[1], _trace(row[2]))

    @reads
    def spans(
        self, database: Database, tenant: str, trace_id: str, *, after: int = 0, limit: int
    ) -> list[tuple[int, StoredSpan]]:
        """Return spans of a trace as they came, each with a number to go on from."""
        rows = database.execute(_SPANS, (_SPAN, tenant, trace_id, after, limit)).fetchall()
        return [(number, _span(value)) for number, value in rows]

    @reads
    def page(
        self,
        database: Database,
        tenant: str,
        *,
        wanted: TraceFilter,
        limit: int,
        after: str | None = None,
        before: str | None = None,
        order: str = "desc",
    ) -> Page:
        """Return `ListedTrace`s in the order in which they came; `after` and `before` are ids of traces.

        A NotFoundError if one is unknown.
        """
        conditions, values = _conditions(wanted)
        ascending = order == "asc"
        with snapshot(database):
            start = None if after is None else _position(database, tenant, after, "after")
            end = None if before is None else _position(database, tenant, before, "before")
            low, high = (start, end) if ascending else (end, start)
            backwards = start is None and end is not None
            direction = "ASC" if ascending != backwards else "DESC"
            rows = database.execute(
                f"SELECT id, created_at, value FROM records WHERE {_BELOW} "  # noqa: S608
                f"AND number > ? AND number < ?{conditions} ORDER BY number {direction} LIMIT ?",
                (_TRACE, tenant, "", low or 0, high or _LAST, *values, limit + 1),
            ).fetchall()
        found = [ListedTrace(name, created_at, _trace(value)) for name, created_at, value in rows[:limit]]
        return Page(found[::-1] if backwards else found, has_more=len(rows) > limit)

    async def delete(self, tenant: str, trace_id: str) -> bool:
        """Delete a trace with its spans, in parts: there may be very many; False if there was none."""
        while await self._delete_spans(tenant, _order(tenant), trace_id) == _DELETED_TOGETHER:
            pass
        return await self._delete(tenant, _order(tenant), trace_id)

    @deletes
    def _delete_spans(self, database: Database, tenant: str, _name: str, trace_id: str) -> int:
        return database.execute(_DELETE_SPANS, (_SPAN, tenant, trace_id, _DELETED_TOGETHER)).rowcount

    @deletes
    def _delete(self, database: Database, tenant: str, _name: str, trace_id: str) -> bool:
        if database.execute(f"{_GET} {LOCK}", (_TRACE, tenant, trace_id)).fetchone() is None:
            return False
        database.execute(_DELETE_SPANS, (_SPAN, tenant, trace_id, MOST_SPANS))  # those that have come meanwhile
        return database.execute(_DELETE, (_TRACE, tenant, trace_id)).rowcount > 0

    @reads
    def oldest(self, database: Database, after: int, limit: int) -> Sequence[tuple[int, str, str, int]]:
        """Return number, tenant, id and creation of traces of all tenants, oldest first: for housekeeping."""
        return [
            (row[0], row[1], row[2], row[3]) for row in database.execute(_OLDEST, (_TRACE, after, limit)).fetchall()
        ]


def _order(tenant: str) -> str:
    """Return under which name all of a tenant is written, in the order in which it comes."""
    return f"traces of {tenant}"


def _row(tenant: str, trace_id: str, value: StoredTrace | StoredSpan) -> Row:
    """Return the owner, the kind and the values of `KEPT`."""
    now, text = int(time.time()), encoded(value)
    if isinstance(value, StoredTrace):
        return ("", _TRACE, trace_id, tenant, now, text, "", 1)
    return ("", _SPAN, f"{trace_id} {value.id}", tenant, now, text, trace_id, 1)


def _known(database: Database, tenant: str, trace_id: str, spans: Iterable[str]) -> Iterable[tuple[str, StoredSpan]]:
    """Yield those of the spans that are kept already, by their ids."""
    names = [f"{trace_id} {name}" for name in spans]
    for start in range(0, len(names), _TOGETHER):
        some = names[start : start + _TOGETHER]
        places = ", ".join("?" * len(some))
        found = database.execute(
            f"SELECT value FROM records WHERE {_KIND} AND id IN ({places})",  # noqa: S608
            (_SPAN, tenant, *some),
        )
        for (value,) in found.fetchall():
            span = _span(value)
            yield span.id, span


def _add(trace: StoredTrace, trace_id: str, fresh: Sequence[StoredSpan], known: dict[str, StoredSpan]) -> None:
    """Count spans that are new, or over now."""
    for span in fresh:
        before = known.get(span.id)
        trace.spans += before is None
        trace.failed_spans += (span.error is not None) - (before is not None and before.error is not None)
        trace.began = min((one for one in (trace.began, span.began) if one is not None), default=None)
        trace.ended = max((one for one in (trace.ended, span.ended) if one is not None), default=None)
    trace.failed = int(trace.failed_spans > 0)
    if trace.spans > MOST_SPANS:
        raise BadRequestError(
            f"The trace '{trace_id}' would have more than {MOST_SPANS:,} spans; begin another one.",
            param="data",
            code="too_many_spans",
        )


def _digest(group: str | None) -> str:
    """Return what stands for a group at its place in the text."""
    return "0" * 16 if group is None else blake2b(group.encode(), digest_size=8).hexdigest()


def _conditions(wanted: TraceFilter) -> tuple[str, list[object]]:
    """Return what a filter asks of a trace, and the values for that: parts of the text at their places."""
    conditions, values = "", list[object]()
    failed = None if wanted.failed is None else f'{{"failed":{int(wanted.failed)},'
    of = None if wanted.group is None else f'"of":"{_digest(wanted.group)}",'
    name = None if wanted.name is None else f'"name":{encoded(wanted.name)},'
    for condition, value in (
        (f"substr(value, 1, {_NAME_AT - _OF_LENGTH - 1}) = ?", failed),
        (f"substr(value, {_NAME_AT - _OF_LENGTH}, {_OF_LENGTH}) = ?", of),
        (f"substr(value, {_NAME_AT}, {len(name or '')}) = ?", name),
        ("created_at > ?", wanted.created_after),
        ("created_at < ?", wanted.created_before),
    ):
        if value is not None:
            conditions += f" AND {condition}"
            values.append(value)
    return conditions, values


def _position(database: Database, tenant: str, trace_id: str, param: str) -> int:
    row = database.execute(_GET, (_TRACE, tenant, trace_id)).fetchone()
    if row is None:
        raise NotFoundError(
            f"There is no trace '{trace_id}' to list from; if it was deleted, list again without '{param}'.",
            param=param,
        )
    return int(row[0])
