"""The spans of a response: the agent, its model turns, the functions they call."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from antwort import Antwort
from antwort.config import Config
from antwort.errors import APIError
from antwort.testing import ScriptedBackend, Turn, call, fail, turn


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def spans_of(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, steps: list[Turn | str], **options: Any
) -> list[ReadableSpan]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr("opentelemetry.trace.get_tracer_provider", lambda: provider)
    model = ScriptedBackend(steps)
    app = Antwort(
        Config(data_dir=tmp_path, providers={}, observability={"tracing": True}),  # type: ignore[arg-type]
        backend=model,
        functions=[add],
    )
    async with app:
        try:
            await app.run("1+2?", **options)
        except APIError:
            await asyncio.sleep(0)
    return list(exporter.get_finished_spans())


async def test_a_response_has_a_span_around_its_turns_and_calls(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    steps: list[Turn | str] = [turn(calls=[call("add", a=1, b=2)], usage=(7, 3)), turn("3", usage=(9, 1))]
    found = await spans_of(monkeypatch, tmp_path, steps, temperature=0.5)
    assert [span.name for span in found] == ["chat scripted", "execute_tool add", "chat scripted", "invoke_agent root"]
    root = found[-1]
    assert root.context is not None
    assert all(span.parent is not None and span.parent.span_id == root.context.span_id for span in found[:-1])
    attributes = dict(root.attributes or {})
    assert attributes["gen_ai.operation.name"] == "invoke_agent"
    assert attributes["antwort.response.status"] == "completed"
    assert (attributes["gen_ai.usage.input_tokens"], attributes["gen_ai.usage.output_tokens"]) == (16, 4)
    first = dict(found[0].attributes or {})
    assert first["gen_ai.response.finish_reasons"] == ("tool_calls",)
    assert first["gen_ai.request.temperature"] == 0.5
    assert "1+2?" not in str([dict(span.attributes or {}) for span in found])


async def test_a_failure_is_told_by_the_spans(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = await spans_of(monkeypatch, tmp_path, [turn(error=fail(500, "Broken."))])
    assert [span.status.status_code for span in found] == [StatusCode.ERROR, StatusCode.ERROR]
