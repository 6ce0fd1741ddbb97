"""Spans and metrics of responses and model turns, by OpenTelemetry's conventions for generative AI."""

import time
from contextlib import AbstractContextManager

from antwort.backends.base import ModelRequest
from antwort.engine.output.emitter import Emitter
from antwort.engine.plan import Plan
from antwort.observability import Metrics, Span, Tracer
from antwort.observability.quick_metrics import HistogramSeries
from antwort.observability.spans import Attribute
from antwort.storage.base import TurnRecord
from antwort.wire.responses import ResponseObject, Usage


def open_agent_span(tracer: Tracer, plan: Plan) -> AbstractContextManager[Span]:
    """Open the span of a response."""
    response = plan.response
    name = plan.ctx.agent.name
    attributes: dict[str, Attribute] = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": name,
        "gen_ai.agent.id": plan.ctx.agent_id or response.id,
        "gen_ai.request.model": response.model,
        "antwort.response.id": response.id,
        "antwort.tenant": plan.ctx.tenant,
        "antwort.background": response.background,
    }
    if plan.conversation is not None:
        attributes["gen_ai.conversation.id"] = plan.conversation
    return tracer.span(f"invoke_agent {name}", attributes)


def record_end(span: Span, response: ResponseObject) -> None:
    """Tell how a response ended."""
    span.set("antwort.response.status", response.status)
    if response.usage is not None:
        span.set("gen_ai.usage.input_tokens", response.usage.input_tokens)
        span.set("gen_ai.usage.output_tokens", response.usage.output_tokens)


def open_turn_span(tracer: Tracer, plan: Plan) -> AbstractContextManager[Span]:
    """Open the span of a model turn."""
    model = plan.response.model
    attributes: dict[str, Attribute] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": model,
        "antwort.response.id": plan.response.id,
    }
    if plan.max_output_tokens is not None:
        attributes["gen_ai.request.max_tokens"] = plan.max_output_tokens
    if plan.create.temperature is not None:
        attributes["gen_ai.request.temperature"] = plan.create.temperature
    if plan.create.top_p is not None:
        attributes["gen_ai.request.top_p"] = plan.create.top_p
    return tracer.span(f"chat {model}", attributes)


def record_answer(span: Span, emitter: Emitter) -> None:
    """Tell what a turn has used, and why it ended."""
    if emitter.finish_reason is not None:
        span.set("gen_ai.response.finish_reasons", [emitter.finish_reason])
    if emitter.turn_usage is not None:
        span.set("gen_ai.usage.input_tokens", emitter.turn_usage.input_tokens)
        span.set("gen_ai.usage.output_tokens", emitter.turn_usage.output_tokens)


def note_turn(turn: TurnRecord | None, emitter: Emitter, started: float, asked: ModelRequest | None) -> None:
    """Note in a turn what came of it, if anybody will know it; when it began by `perf_counter`."""
    if turn is None:
        return
    turn.took = int((time.perf_counter() - started) * 1000)
    if emitter.first_piece_at is not None:
        turn.first = int((emitter.first_piece_at - started) * 1000)
    if emitter.turn_usage is not None:
        usage = emitter.turn_usage
        turn.read, turn.written = usage.input_tokens, usage.output_tokens
        turn.cached = usage.input_tokens_details.cached_tokens
    turn.finish = emitter.finish_reason
    if asked is not None:
        turn.tried = asked.tried


MODELS = 100
"""Models that get a label of their own; a server that takes any name must not make any number of time series."""
ENDS = ("completed", "incomplete", "failed", "cancelled")
"""How responses end. All are on the page from the start: a rate needs the zero before the first."""
TOKENS = (1, 4, 16, 64, 256, 1024, 4096, 16_384, 65_536, 262_144, 1_048_576, 4_194_304)


_Children = tuple[HistogramSeries, HistogramSeries, HistogramSeries, HistogramSeries]


class TurnMetrics:
    """Totals model turns. The model is a label once it has answered, and only the first hundred are."""

    def __init__(self, metrics: Metrics) -> None:
        labels = ["gen_ai_request_model"]
        self._tokens = metrics.quick_histogram(
            "gen_ai_client_token_usage", "Tokens of a model turn.", [*labels, "gen_ai_token_type"], buckets=TOKENS
        )
        self._duration = metrics.quick_histogram(
            "gen_ai_client_operation_duration_seconds", "Duration of a model turn.", [*labels, "error_type"]
        )
        self._first = metrics.quick_histogram(
            "gen_ai_server_time_to_first_token_seconds", "Time until a model turn gives its first piece.", labels
        )
        self._children: dict[str, _Children] = {}
        responses = metrics.quick_counter("antwort_responses_total", "Responses by how they ended.", ["status"])
        self._responses = {status: responses.labels(status) for status in ENDS}

    def count_turn(self, model: str, started: float, first: float | None, usage: Usage | None) -> None:
        """Count a turn that was answered just now; when it began, and gave its first piece, by `perf_counter`."""
        duration, first_token, read, written = self._children.get(model) or self._children_of(model)
        duration.observe(time.perf_counter() - started)
        if first is not None:
            first_token.observe(first - started)
        if usage is not None:
            read.observe(usage.input_tokens)
            written.observe(usage.output_tokens)

    def _children_of(self, model: str) -> _Children:
        """Return what totals the turns of a model that is new here."""
        if len(self._children) >= MODELS:
            model = "other"
        if model not in self._children:
            self._children[model] = (
                self._duration.labels(model, ""),
                self._first.labels(model),
                self._tokens.labels(model, "input"),
                self._tokens.labels(model, "output"),
            )
        return self._children[model]

    def count_failed_turn(self, seconds: float, error: BaseException) -> None:
        """Count a turn that was not."""
        self._duration.labels("", type(error).__name__).observe(seconds)

    def count_response(self, status: str) -> None:
        """Count a response that has ended."""
        self._responses[status].inc()
