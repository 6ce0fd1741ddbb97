"""What the tracing exporters of the Agents SDKs send: traces, and spans of agents that run in a client's process."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Annotated, Any, TypeAlias, TypeVar

import msgspec
from msgspec import Meta, Struct

from antwort.errors import BadRequestError
from antwort.types import JSON
from antwort.wire.field_errors import beyond_limit, field_error, no_json, read_document

MOST_ITEMS = 1_000
"""Traces and spans of one request."""
LONGEST_TEXT = 100_000
"""Characters of a text of a span; what is longer is cut when it is stored."""
_MOST_TEXT = 500_000
"""Characters of all texts of a span."""
_MOST_VALUES = 5_000
"""Values of a span: what comes after them is left out."""
_DEEPEST = 50
_LONGEST_KEY = 256
_LEFT_OUT = "…"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)

TraceId: TypeAlias = Annotated[str, Meta(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9_.:-]+(?!\n)$")]
"""It is a part of paths."""
GroupName: TypeAlias = Annotated[str, Meta(max_length=256, pattern=r"^[^\x00]*$")]
"""PostgreSQL keeps no NUL."""
Moment: TypeAlias = Annotated[str, Meta(max_length=64)]


class SentTrace(Struct, tag="trace", tag_field="object", kw_only=True):
    """One run of a workflow in the client's process."""

    id: TraceId
    workflow_name: Annotated[str, Meta(max_length=256, description="What it is called.")] = "Agent workflow"
    group_id: Annotated[GroupName | None, Meta(description="What it belongs to, such as a conversation.")] = None
    metadata: Annotated[JSON | None, Meta(description="What the client notes of it.")] = None


class SentSpan(Struct, tag="trace.span", tag_field="object", kw_only=True):
    """Something that was done in it: a turn of a model, a call of a function, a handoff."""

    id: TraceId
    trace_id: TraceId
    parent_id: Annotated[TraceId | None, Meta(description="The span within which it was done.")] = None
    started_at: Annotated[Moment | None, Meta(description="As in ISO 8601.")] = None
    ended_at: Annotated[Moment | None, Meta(description="As in ISO 8601; null if it is not over.")] = None
    span_data: Annotated[JSON, Meta(description="Its `type`, and what there is to say of such a one.")] = {}
    error: Annotated[JSON | None, Meta(description="What went wrong, with a `message`.")] = None
    metadata: JSON | None = None

    @property
    def began(self) -> int | None:
        """When it began, in milliseconds since 1970."""
        return None if self.started_at is None else _milliseconds(self.started_at)

    @property
    def ended(self) -> int | None:
        """When it ended, in milliseconds since 1970."""
        return None if self.ended_at is None else _milliseconds(self.ended_at)


SentItem: TypeAlias = SentTrace | SentSpan


class IngestTraces(Struct):
    """What an exporter sends at a time: traces and spans in any order."""

    data: Annotated[Sequence[SentItem], Meta(max_length=MOST_ITEMS, description="Traces and spans.")]


class _Raw(Struct):
    data: list[msgspec.Raw]


_whole, _item = msgspec.json.Decoder(_Raw), msgspec.json.Decoder(SentItem)
T = TypeVar("T")


def read_traces(body: bytes) -> list[SentItem]:
    """Read what an exporter has sent; BadRequestError with the first field that does not fit.

    Texts that are too long are cut and values that are too many left out: an exporter cannot send less of a span.
    """
    found = [_read(raw, f"data[{number}]") for number, raw in enumerate(_raws(body))]
    for number, item in enumerate(found):
        cut = _Cut()
        item.metadata = cut.shown(item.metadata)
        if isinstance(item, SentSpan):
            for name in ("started_at", "ended_at"):
                _check_moment(getattr(item, name), f"data[{number}].{name}")
            item.error, item.span_data = cut.shown(item.error), cut.shown(item.span_data)
    return found


def _raws(body: bytes) -> Sequence[msgspec.Raw]:
    try:
        found = _whole.decode(body).data
    except msgspec.ValidationError as error:
        raise field_error(str(error), IngestTraces, partial(read_document, body)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise no_json(body, error) from None
    if len(found) > MOST_ITEMS:
        raise beyond_limit("data", "array", above=True, bound=MOST_ITEMS, given=len(found))
    return found


def _read(raw: msgspec.Raw, param: str) -> SentItem:
    """Read one item: one by one, so that no step keeps other threads waiting."""
    try:
        item: SentItem = _item.decode(raw)
    except msgspec.ValidationError as error:
        raise field_error(str(error), SentItem, partial(read_document, bytes(raw)), param) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise no_json(bytes(raw), error, param) from None
    return item


def _check_moment(text: str | None, param: str) -> None:
    try:
        if text is not None:
            _milliseconds(text)
    except ValueError:
        raise BadRequestError(
            f"Invalid value for '{param}': it must be a time as in ISO 8601, such as 2026-01-31T12:00:00+00:00.",
            param=param,
            code="invalid_value",
        ) from None


def _milliseconds(text: str) -> int:
    moment = datetime.fromisoformat(text)
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH) // _MILLISECOND


class _Cut:
    """Cuts a span to what is kept of it."""

    def __init__(self) -> None:
        self._texts = _MOST_TEXT
        self._values = _MOST_VALUES

    def shown(self, value: Any, depth: int = _DEEPEST) -> Any:
        """Return a JSON value as it is kept."""
        self._values -= 1
        if isinstance(value, str):
            return self._text(value)
        if not isinstance(value, dict | list):
            return value
        if not depth or self._values < 0:
            return _LEFT_OUT
        if isinstance(value, dict):
            return {name[:_LONGEST_KEY]: self.shown(each, depth - 1) for name, each in self._some(value.items())}
        return [self.shown(each, depth - 1) for each in self._some(value)]

    def _some(self, values: Iterable[T]) -> Iterable[T]:
        """Yield values as long as there may be more."""
        for value in values:
            if self._values <= 0:
                return
            yield value

    def _text(self, text: str) -> str:
        longest = min(LONGEST_TEXT, max(self._texts, 0))
        self._texts -= len(text)
        return (
            text if len(text) <= longest else f"{text[:longest]}{_LEFT_OUT} ({len(text) - longest:,} characters more)"
        )
