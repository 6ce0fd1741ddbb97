"""Traces over real sockets: they come with requests, and go on to model servers."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx
import pytest
from openai import OpenAI
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.support.postgres import on_one_store
from websockets.sync.client import connect

from antwort import Antwort
from antwort.config import Config
from antwort.testing import RunningApp, ScriptServer, call, running, turn
from antwort.types import JSON

pytestmark = on_one_store()

TRACE = "0af7651916cd43dd8448eb211c80319c"
CALLER = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01", "baggage": "user=secret"}


class Spans:
    """What a tracer provider of our own has collected."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    @property
    def all(self) -> Sequence[ReadableSpan]:
        """All spans that have ended."""
        return self._exporter.get_finished_spans()

    def named(self, name: str) -> ReadableSpan:
        """Return the span of a name; there is one."""
        [found] = [span for span in self._exporter.get_finished_spans() if span.name == name]
        return found


def of(span: ReadableSpan, attribute: str) -> str:
    """Return an attribute of a span."""
    return str((span.attributes or {})[attribute])


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Spans:
    spans = Spans()
    monkeypatch.setattr("opentelemetry.trace.get_tracer_provider", lambda: spans.provider)
    return spans


@contextlib.contextmanager
def served(
    model: ScriptServer, folder: Path, *, tracing: bool = True, providers: JSON | None = None
) -> Iterator[RunningApp]:
    config = Config.model_validate(
        {
            "data_dir": folder,
            "providers": providers or {},
            "backends": {"model": {"url": model.url, "models": ["scripted"]}},
            "observability": {"tracing": tracing},
        }
    )
    with running(Antwort(config)) as app:
        yield app


def calling(app: RunningApp) -> OpenAI:
    """Return a client whose requests belong to a trace."""
    return OpenAI(base_url=f"{app.url}/v1", api_key="none", default_headers=CALLER)


def check(spans: Spans, model: ScriptServer) -> None:
    """Check that the one response belongs to the caller's trace, and what the model server did to its turn."""
    root, chat = spans.named("invoke_agent root"), spans.named("chat scripted")
    assert root.parent is not None
    assert root.context is not None
    assert chat.context is not None
    assert (f"{root.context.trace_id:032x}", f"{root.parent.span_id:016x}") == (TRACE, "b7ad6b7169203331")
    [headers] = model.headers
    assert headers["traceparent"] == f"00-{TRACE}-{chat.context.span_id:016x}-01"
    assert "baggage" not in headers


@pytest.mark.parametrize("stream", [False, True])
def test_a_response_belongs_to_the_trace_of_its_request(spans: Spans, tmp_path: Path, *, stream: bool) -> None:
    with ScriptServer(["Hi."]) as model, served(model, tmp_path) as app, calling(app) as client:
        if stream:
            with client.responses.stream(model="scripted", input="Hi") as events:
                events.until_done()
        else:
            client.responses.create(model="scripted", input="Hi")
    check(spans, model)


def test_so_does_a_background_run_that_goes_on_after_its_request(spans: Spans, tmp_path: Path) -> None:
    with ScriptServer(["Hi."]) as model, served(model, tmp_path) as app, calling(app) as client:
        accepted = client.responses.create(model="scripted", input="Hi", background=True)
        with client.responses.retrieve(accepted.id, stream=True) as events:
            assert [event.type for event in events][-1] == "response.completed"
    check(spans, model)


def test_so_do_the_requests_on_a_websocket(spans: Spans, tmp_path: Path) -> None:
    with ScriptServer(["Hi."]) as model, served(model, tmp_path) as app:
        address = app.url.replace("http", "ws", 1) + "/v1/responses"
        with connect(address, additional_headers=CALLER) as socket:
            socket.send('{"type": "response.create", "model": "scripted", "input": "Hi"}')
            while "response.completed" not in str(socket.recv(20)):
                pass
    check(spans, model)


def test_what_is_passed_through_takes_the_trace_of_the_client_along(spans: Spans, tmp_path: Path) -> None:
    body = {"model": "scripted", "messages": [{"role": "user", "content": "Hi"}]}
    with ScriptServer(["Hi."]) as model, served(model, tmp_path) as app:
        httpx.post(f"{app.url}/v1/chat/completions", json=body, headers=CALLER).raise_for_status()
    [headers] = model.headers
    assert headers["traceparent"] == CALLER["traceparent"]
    assert "baggage" not in headers


def test_spans_have_the_ids_that_the_trace_tells(spans: Spans, tmp_path: Path) -> None:
    steps = [
        turn(calls=[call("spawn_agent", prompt="What is 6*7?")]),
        turn(calls=[call("calculate", expression="6*7")]),
    ]
    providers = {name: {"enabled": True} for name in ("basics", "sub_agents")}
    with ScriptServer([*steps, "42.", "It is 42."]) as model, served(model, tmp_path, providers=providers) as app:
        tools = [{"type": "function", "name": name} for name in ("spawn_agent", "calculate")]
        body = {"model": "scripted", "input": "Hi", "tools": tools}
        name = httpx.post(f"{app.url}/v1/responses", json=body, timeout=60).raise_for_status().json()["id"]
        [told] = httpx.get(f"{app.url}/v1/responses/{name}/trace").json()["responses"]
    [spawned] = told["turns"][0]["calls"]
    [child] = spawned["agents"]
    [made] = child["turns"][0]["calls"]
    agents = [span for span in spans.all if span.name.startswith("invoke_agent")]
    ids = {(of(span, "antwort.response.id"), of(span, "gen_ai.agent.id")) for span in agents}
    assert ids == {(each["id"], each["agent_id"]) for each in (told, child)}
    turns = [of(span, "antwort.response.id") for span in spans.all if span.name == "chat scripted"]
    assert sorted(turns) == sorted([told["id"]] * 2 + [child["id"]] * 2)
    for span_name, made_by, one in (("spawn_agent", told, spawned), ("calculate", child, made)):
        span = spans.named(f"execute_tool {span_name}")
        assert of(span, "gen_ai.tool.call.id") == one["call_id"]
        assert of(span, "gen_ai.agent.id") == made_by["agent_id"]


def test_without_tracing_nothing_is_told(tmp_path: Path) -> None:
    with ScriptServer(["Hi."]) as model, served(model, tmp_path, tracing=False) as app:
        httpx.post(
            f"{app.url}/v1/responses", json={"model": "scripted", "input": "Hi"}, headers=CALLER
        ).raise_for_status()
    assert "traceparent" not in model.headers[0]
