import sys

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from antwort.errors import ConfigError
from antwort.observability import NoTracer, Redactor, Tracer, tracer
from antwort.observability.otel import OtelTracer


class Recorder:
    """An OpenTelemetry set-up of its own; the process's provider is not touched."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def spans(self) -> dict[str, ReadableSpan]:
        return {span.name: span for span in self._exporter.get_finished_spans()}


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


def test_without_tracing_spans_are_one_shared_object_that_does_nothing() -> None:
    off = NoTracer()
    with off.span("outer", {"a": 1}) as outer, off.span("inner") as inner:
        outer.set("key", "value")
        outer.fail("message")
    assert outer is inner
    assert vars(outer) == {}


def test_without_tracing_exceptions_pass_through() -> None:
    with pytest.raises(KeyError), NoTracer().span("work", {}):
        raise KeyError("x")


def test_a_span_carries_name_and_attributes(recorder: Recorder) -> None:
    on: Tracer = OtelTracer(recorder.provider)
    with on.span("function calculate", {"function": "calculate", "attempt": 1, "cached": False}) as span:
        span.set("seconds", 0.5)
    finished = recorder.spans()["function calculate"]
    assert dict(finished.attributes or {}) == {
        "function": "calculate",
        "attempt": 1,
        "cached": False,
        "seconds": 0.5,
    }
    assert finished.status.status_code is StatusCode.UNSET


def test_a_span_inside_another_is_its_child(recorder: Recorder) -> None:
    on = OtelTracer(recorder.provider)
    with on.span("outer"), on.span("inner"):
        pass
    outer, inner = recorder.spans()["outer"], recorder.spans()["inner"]
    assert inner.parent is not None
    assert outer.context is not None
    assert inner.parent.span_id == outer.context.span_id
    assert outer.parent is None


def test_a_span_can_be_marked_as_failed(recorder: Recorder) -> None:
    with OtelTracer(recorder.provider).span("work") as span:
        span.fail("no result")
    status = recorder.spans()["work"].status
    assert (status.status_code, status.description) == (StatusCode.ERROR, "no result")


def test_an_exception_fails_the_span_and_passes_through(recorder: Recorder) -> None:
    with pytest.raises(ValueError, match="broken"), OtelTracer(recorder.provider).span("work"):
        raise ValueError("broken")
    finished = recorder.spans()["work"]
    assert (finished.status.status_code, finished.status.description) == (StatusCode.ERROR, "ValueError: broken")
    assert (finished.attributes or {})["error.type"] == "ValueError"


def test_secrets_do_not_reach_a_trace(recorder: Recorder) -> None:
    on = OtelTracer(recorder.provider, redactor=Redactor(["correct-horse"]))
    with pytest.raises(ValueError, match="hunter2"), on.span("work", {"url": "http://me:hunter2@host/"}) as span:
        span.set("header", "Bearer abcdefgh")
        raise ValueError("password=hunter2 correct-horse")
    finished = recorder.spans()["work"]
    assert dict(finished.attributes or {}) == {
        "url": "http://me:***@host/",
        "header": "Bearer ***",
        "error.type": "ValueError",
    }
    assert finished.status.description == "ValueError: password=*** ***"
    assert finished.events == ()


def test_the_tracer_is_chosen_by_configuration() -> None:
    assert isinstance(tracer(enabled=False), NoTracer)
    assert isinstance(tracer(enabled=True), OtelTracer)


def test_tracing_without_opentelemetry_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "antwort.observability.otel", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ConfigError, match=r"^observability.tracing: .*pip install 'antwort\[otel\]'"):
        tracer(enabled=True)
    assert isinstance(tracer(enabled=False), NoTracer)


CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_spans_belong_to_the_trace_of_the_caller(recorder: Recorder) -> None:
    on = OtelTracer(recorder.provider)
    headers = [(b"traceparent", CALLER.encode()), (b"tracestate", b"a=1"), (b"tracestate", b"b=2")]
    with on.joining([(b"host", b"example.com"), *headers]), on.span("work"):
        sent = on.headers()
    found = recorder.spans()["work"]
    assert found.context is not None
    assert found.parent is not None
    assert f"{found.context.trace_id:032x}" == "0af7651916cd43dd8448eb211c80319c"
    assert f"{found.parent.span_id:016x}" == "b7ad6b7169203331"
    assert sent == {
        "traceparent": f"00-0af7651916cd43dd8448eb211c80319c-{found.context.span_id:016x}-01",
        "tracestate": "a=1,b=2",
    }


@pytest.mark.parametrize("given", [b"", b"00-zz-b7ad6b7169203331-01", b"\xff", b"00-0-0-00"])
def test_a_trace_that_is_none_is_not_joined(recorder: Recorder, given: bytes) -> None:
    on = OtelTracer(recorder.provider)
    with on.joining([(b"traceparent", given)]), on.span("work"):
        pass
    assert recorder.spans()["work"].parent is None


def test_whoever_instruments_the_process_has_the_say(recorder: Recorder) -> None:
    on = OtelTracer(recorder.provider)
    with on.span("request"), on.joining([(b"traceparent", CALLER.encode())]), on.span("work"):
        pass
    request, work = recorder.spans()["request"], recorder.spans()["work"]
    assert request.context is not None
    assert work.parent is not None
    assert work.parent.span_id == request.context.span_id


def test_a_trace_ends_with_its_block_and_baggage_does_not_travel(recorder: Recorder) -> None:
    on = OtelTracer(recorder.provider)
    with on.joining([(b"traceparent", CALLER.encode()), (b"baggage", b"user=secret")]):
        assert on.headers() == {"traceparent": CALLER}
    assert on.headers() == {}
    with NoTracer().joining([(b"traceparent", CALLER.encode())]):
        assert NoTracer().headers() == {}
