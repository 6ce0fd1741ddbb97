"""Spans that go to OpenTelemetry. Needs the extra `otel`; import it through `antwort.observability.tracer`."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from opentelemetry import context, trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from typing_extensions import override

from antwort.observability.redaction import Redactor, text_of
from antwort.observability.spans import Attribute, Span, Tracer

# Of all that travels beside requests only the trace does: a client's `baggage` is not for model servers.
_PROPAGATOR = TraceContextTextMapPropagator()
_FIELDS = frozenset(name.encode() for name in _PROPAGATOR.fields)


class OtelTracer(Tracer):
    """Opens spans at a tracer provider.

    Without one it takes the process's own, if something has set one up (such as `opentelemetry-instrument`), and else
    makes one that exports over OTLP to where the standard `OTEL_EXPORTER_OTLP_*` variables say.
    """

    enabled = True

    def __init__(self, provider: trace.TracerProvider | None = None, *, redactor: Redactor | None = None) -> None:
        self._own: TracerProvider | None = None
        if provider is None:
            provider = trace.get_tracer_provider()
            if isinstance(provider, trace.ProxyTracerProvider):  # nobody has set one up
                provider = self._own = TracerProvider(resource=Resource.create({"service.name": "antwort"}))
                self._own.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = trace.get_tracer("antwort", tracer_provider=provider)
        self._redactor = redactor or Redactor()

    @override
    def close(self) -> None:
        """Send what is left and stop the exporter, if it is ours."""
        if self._own is not None:
            self._own.shutdown()

    @override
    @contextmanager
    def span(self, name: str, attributes: Mapping[str, Attribute] | None = None) -> Iterator[Span]:
        # OpenTelemetry would record messages and tracebacks as they are; ours have their secrets masked.
        with self._tracer.start_as_current_span(name, record_exception=False, set_status_on_exception=False) as inner:
            span = _OtelSpan(inner, self._redactor)
            for key, value in (attributes or {}).items():
                span.set(key, value)
            try:
                yield span
            except BaseException as error:
                kind = type(error).__qualname__
                span.set("error.type", kind)
                span.fail(f"{kind}: {self._redactor.excerpt(text_of(error) or '')}")
                raise

    @override
    @contextmanager
    def joining(self, headers: Iterable[tuple[bytes, bytes]]) -> Iterator[None]:
        named: dict[str, list[str]] = {}
        for name, value in headers:
            if name in _FIELDS:
                named.setdefault(name.decode(), []).append(value.decode("latin-1"))
        if "traceparent" not in named or trace.get_current_span().get_span_context().is_valid:
            yield  # there is no trace to join, or whoever instruments this process has joined it
            return
        token = context.attach(_PROPAGATOR.extract(named, context.get_current()))
        try:
            yield
        finally:
            context.detach(token)

    @override
    def headers(self) -> Mapping[str, str]:
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier)
        return carrier


class _OtelSpan(Span):
    def __init__(self, inner: trace.Span, redactor: Redactor) -> None:
        self._inner = inner
        self._redactor = redactor

    @override
    def set(self, key: str, value: Attribute) -> None:
        if isinstance(value, str):
            value = self._redactor.text(value)
        elif isinstance(value, list):
            value = [self._redactor.text(part) for part in value]
        self._inner.set_attribute(key, value)

    @override
    def fail(self, message: str) -> None:
        self._inner.set_status(trace.Status(trace.StatusCode.ERROR, self._redactor.text(message)))
