"""`/v1/traces`: what the tracing exporters of the Agents SDKs send, with the server's responses where they belong."""

from collections.abc import Iterable, Sequence
from typing import Annotated

from msgspec import Meta, Struct
from pydantic import Field
from starlette.requests import Request

from antwort.concurrency.large_work import MUCH
from antwort.context import Context
from antwort.context.context import TRACES_READ, TRACES_WRITE
from antwort.engine.engine import Engine
from antwort.errors import NotFoundError
from antwort.lazy_imports import compiled_on_use
from antwort.runs.limits import TenantLimits
from antwort.server.api.description import examples
from antwort.server.api.run_stories import MOST_RESPONSES, RunReader, TracedFailure, TracedResponse, failures_of
from antwort.server.api.runs import Moment, Name
from antwort.server.api.shown_texts import LONGEST, Texts
from antwort.server.api.traces import MaxLength
from antwort.storage.sql.client_traces import ListedTrace, StoredSpan, TraceFilter
from antwort.types import JSON
from antwort.web.parameters import After, Before, Limit, Order, check_query, unknown_cursor
from antwort.web.requests import named_headers, require_json
from antwort.web.routes import Route
from antwort.wire.client_traces import IngestTraces, SentSpan, read_traces

_TOGETHER = 20
"""Spans that are read at a time."""
_MOST_VALUES = 200_000
"""Values of what is told of all spans together."""
_DEEPEST = 50
"""How deep spans are told within each other: those further below stand beside one another."""

_LONGEST_NAME = 256
_RESPONSE_ID = compiled_on_use(r"resp_[A-Za-z0-9_-]{1,128}")
_ALWAYS = ("type", "name", "response_id")
"""What is told of a span whatever else there is."""

TraceName = Annotated[str, Field(min_length=1, max_length=128)]


class IngestedTraces(Struct, kw_only=True):
    """What has come."""

    object: str = "traces.ingested"
    traces: int
    spans: int


class DeletedTrace(Struct, kw_only=True):
    """A trace that is gone."""

    id: str
    object: str = "client_trace.deleted"
    deleted: bool = True


class ClientTraceInfo(Struct, kw_only=True):
    """A trace of agents that run in a client's process, without its spans."""

    id: Annotated[str, Meta(description="As the client has called it.")]
    object: str = "client_trace"
    created_at: Annotated[int, Meta(description="When the first of it has come, in seconds since 1970.")]
    name: Annotated[str | None, Meta(description="What its workflow is called; null if only spans have come so far.")]
    group_id: Annotated[str | None, Meta(description="What it belongs to, such as a conversation.")]
    metadata: JSON | None
    started_at: Annotated[float | None, Meta(description="When its first span began, in seconds since 1970.")]
    ended_at: Annotated[float | None, Meta(description="When its last span ended, as far as that has come.")]
    span_count: int
    failed_spans: Annotated[int, Meta(description="Spans in which something went wrong.")]


class ClientTraceList(Struct, kw_only=True):
    """A page of traces."""

    object: str = "list"
    data: Sequence[ClientTraceInfo]
    first_id: str | None
    last_id: str | None
    has_more: bool


class TracedSpan(Struct, kw_only=True):
    """Something that was done in the client's process, with all that was done within it."""

    id: str
    type: Annotated[str, Meta(description="Such as agent, response, generation, function, handoff, guardrail, custom.")]
    name: Annotated[str | None, Meta(description="Of the agent, the function, the guardrail, if it has one.")]
    started_at: Annotated[float | None, Meta(description="Seconds since 1970.")]
    seconds: Annotated[float | None, Meta(description="How long it took; null if it is not over.")]
    data: Annotated[JSON, Meta(description="What the SDK says of it; little if the trace has too much to tell.")]
    error: JSON | None
    response: Annotated[
        TracedResponse | None,
        Meta(description="The response of this server that it is, if it is one, as in its trace."),
    ]
    spans: list["TracedSpan"]


class SpanFailure(Struct, kw_only=True):
    """Something that did not work."""

    span_id: str
    type: str
    name: str | None
    message: str
    failure: Annotated[TracedFailure | None, Meta(description="What it was, if it was in a response of this server.")]


class ClientTraceDetails(ClientTraceInfo, kw_only=True):
    """A trace of agents that run in a client's process, as a tree."""

    failures: Annotated[Sequence[SpanFailure], Meta(description="All that did not work, in the order of telling.")]
    spans: Annotated[Sequence[TracedSpan], Meta(description="Those that are within no other.")]


class ClientTraceEndpoints:
    """The endpoints of traces that clients send."""

    def __init__(self, engine: Engine, limits: TenantLimits, runs: RunReader) -> None:
        self._traces = engine.store.client_traces
        self._large_work = engine.large_work
        self._limits = limits
        self._runs = runs

    def routes(self) -> list[Route]:
        """Return the routes."""
        one = "/v1/traces/{trace_id}"
        return [
            Route(
                "POST",
                "/v1/traces/ingest",
                self.ingest,
                scope=TRACES_WRITE,
                body=IngestTraces,
                examples=examples.INGEST_TRACES,
            ),
            Route("GET", "/v1/traces", self.list, scope=TRACES_READ, examples=examples.LIST_TRACES),
            Route("GET", one, self.retrieve, scope=TRACES_READ, examples=examples.RETRIEVE_TRACE),
            Route("DELETE", one, self.delete, scope=TRACES_WRITE, examples=examples.DELETE_TRACE),
        ]

    async def ingest(self, ctx: Context, request: Request) -> IngestedTraces:
        """Keep traces and spans of agents that run elsewhere, as the exporters of the Agents SDKs send them.

        They may come in any order, spans before their trace, and again: a span that is over stays as it is. Long texts
        are cut. Either all that is sent is kept or, after an error, nothing of it.
        """
        check_query(request, ())
        require_json(named_headers(request.scope))
        body = await request.body()
        items = await self._large_work.run_if(len(body) >= MUCH, read_traces, body)
        del body
        await self._limits.check_room(ctx.tenant)
        await self._traces.put(ctx.tenant, items)
        spans = sum(isinstance(item, SentSpan) for item in items)
        return IngestedTraces(traces=len(items) - spans, spans=spans)

    async def list(
        self,
        ctx: Context,
        *,
        name: Name | None = None,
        group_id: Name | None = None,
        failed: bool | None = None,
        created_after: Moment | None = None,
        created_before: Moment | None = None,
        limit: Limit = 20,
        after: After = None,
        before: Before = None,
        order: Order = "desc",
    ) -> ClientTraceList:
        """List traces of agents that run elsewhere, the last that has come first.

        Args:
            name: Only those whose workflow is called so.
            group_id: Only those of this group.
            failed: Only those in which something went wrong, or only the others.
            created_after: Only those of which the first has come after this moment, in seconds since 1970.
            created_before: Only those of which the first has come before this moment.
        """
        wanted = TraceFilter(
            name=name, group=group_id, failed=failed, created_after=created_after, created_before=created_before
        )
        with unknown_cursor():
            page = await self._traces.page(
                ctx.tenant, wanted=wanted, limit=limit, after=after, before=before, order=order
            )
        texts = Texts(self._runs.redactor, LONGEST)
        found = [ClientTraceInfo(**_info(listed, texts)) for listed in page.data]
        first, last = (found[0].id, found[-1].id) if found else (None, None)
        return ClientTraceList(data=found, first_id=first, last_id=last, has_more=page.has_more)

    async def retrieve(
        self, ctx: Context, trace_id: TraceName, *, max_length: MaxLength = LONGEST
    ) -> ClientTraceDetails:
        """Return what agents elsewhere did: agents, turns of models, calls, handoffs, guardrails, as a tree.

        A turn that this server has answered, and still keeps, has its response, with the functions that it has called
        and the agents below it. What looks like a secret is masked as it is in the logs.
        """
        listed = await self._traces.get(ctx.tenant, trace_id)
        if listed is None:
            raise _not_found(trace_id)
        texts = Texts(self._runs.redactor, max_length)
        told, after = _ToldSpans(texts), 0
        while some := await self._traces.spans(ctx.tenant, trace_id, after=after, limit=_TOGETHER):
            after = some[-1][0]
            # They are cut at once: together, those of a trace may be more than fits into memory.
            await self._large_work.run(told.add, [span for _, span in some])
        left = MOST_RESPONSES
        for response_id, span in told.responses.items():
            if left > 0:
                span.response, count = await self._runs.response(ctx.tenant, response_id, texts, left)
                left -= max(count, 1)
        return await self._large_work.run(_details, _info(listed, texts), told)

    async def delete(self, ctx: Context, trace_id: TraceName) -> DeletedTrace:
        """Delete a trace with its spans; responses of this server stay."""
        if not await self._traces.delete(ctx.tenant, trace_id):
            raise _not_found(trace_id)
        return DeletedTrace(id=trace_id)


def _not_found(trace_id: str) -> NotFoundError:
    return NotFoundError(f"No trace found with id '{trace_id}'.", param="trace_id")


def _info(listed: ListedTrace, texts: Texts) -> JSON:
    """Return what is told of a trace."""
    trace = listed.trace
    return {
        "id": listed.id,
        "created_at": listed.created_at,
        "name": None if trace.name is None else texts.text(trace.name),
        "group_id": trace.group,
        "metadata": texts.shown(trace.metadata),
        "started_at": _seconds(trace.began),
        "ended_at": _seconds(trace.ended),
        "span_count": trace.spans,
        "failed_spans": trace.failed_spans,
    }


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


# --- the tree ---------------------------------------------------------------------------------------------------------


class _ToldSpans:
    """Spans as they are told, in the order in which they began, as far as that is known."""

    def __init__(self, texts: Texts) -> None:
        self._texts = texts
        self._values = _MOST_VALUES
        self.spans: dict[str, TracedSpan] = {}
        self.parents: dict[str, str | None] = {}
        self.responses: dict[str, TracedSpan] = {}
        """Those that are responses of a server, by their ids."""

    def add(self, spans: Iterable[StoredSpan]) -> None:
        """Tell of further spans."""
        for span in spans:
            self.spans[span.id] = told = self._told(span)
            self.parents[span.id] = span.parent_id
            name = span.data.get("response_id")
            if told.type == "response" and isinstance(name, str) and _RESPONSE_ID.fullmatch(name):
                self.responses.setdefault(name, told)

    def _told(self, span: StoredSpan) -> TracedSpan:
        data, error = span.data, span.error
        self._values -= _count(data) + _count(error)
        if self._values < 0:
            data = {key: data[key] for key in _ALWAYS if isinstance(data.get(key), str)}
            error = None if error is None else {"message": str(error.get("message", ""))}
        kind, name = _kind_and_name(span.data)
        return TracedSpan(
            id=span.id,
            type=kind[:_LONGEST_NAME],
            name=None if name is None else self._texts.redactor.text(name[:_LONGEST_NAME]),
            started_at=_seconds(span.began),
            seconds=None if span.began is None or span.ended is None else (span.ended - span.began) / 1000,
            data=self._texts.shown(data),
            error=self._texts.shown(error),
            response=None,
            spans=[],
        )


def _count(value: object) -> int:
    """Count the values in a JSON value, itself among them."""
    if isinstance(value, dict):
        return 1 + sum(map(_count, value.values()))
    return 1 + sum(map(_count, value)) if isinstance(value, list) else 1


def _kind_and_name(data: JSON) -> tuple[str, str | None]:
    """Return what a span is, and what it is called: what it says itself, or whom it leads to."""
    kind, inner = data.get("type"), data.get("data")
    names = [data.get(key) for key in ("name", "to_agent", "model", "server")]
    if kind == "custom" and isinstance(inner, dict) and "sdk_span_type" in inner:  # what the SDKs have no type for
        kind, names = inner["sdk_span_type"], [inner.get("agent_name"), inner.get("name")]
    return kind if isinstance(kind, str) else "custom", next((name for name in names if isinstance(name, str)), None)


def _details(info: JSON, told: _ToldSpans) -> ClientTraceDetails:
    """Put spans within each other, as they say; those whose parent is unknown, or is below them, are within none."""
    spans = dict(sorted(told.spans.items(), key=lambda pair: pair[1].started_at or 0))
    below: dict[str | None, list[str]] = {}
    for name in spans:
        parent = told.parents[name]
        below.setdefault(parent if parent in spans else None, []).append(name)
    roots, placed = list[TracedSpan](), set[str]()
    for first in (*below.get(None, ()), *spans):  # and then those in a circle
        if first not in placed:
            roots.append(spans[first])
            _place(first, spans, below, placed)
    return ClientTraceDetails(**info, failures=[each for root in roots for each in _failures(root)], spans=roots)


def _place(first: str, spans: dict[str, TracedSpan], below: dict[str | None, list[str]], placed: set[str]) -> None:
    """Put all below a span into it, or into what is as deep as may be."""
    placed.add(first)
    left = [(first, spans[first], 1)]
    while left:
        name, holder, depth = left.pop()
        for child in below.get(name, ()):
            if child not in placed:
                placed.add(child)
                holder.spans.append(spans[child])
                left.append((child, spans[child] if depth < _DEEPEST else holder, depth + 1))


def _failures(span: TracedSpan) -> Iterable[SpanFailure]:
    """Yield what did not work in a span, after what did not work within it."""
    for inner in span.spans:
        yield from _failures(inner)
    for failure in () if span.response is None else failures_of(span.response):
        yield SpanFailure(
            span_id=span.id, type=span.type, name=failure.name or span.name, message=failure.message, failure=failure
        )
    if span.error is not None:
        message = str(span.error.get("message") or "")
        yield SpanFailure(span_id=span.id, type=span.type, name=span.name, message=message, failure=None)
