"""What `openai-agents` traces, exported to the shipped server by its own exporter."""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from tests.clients.node_scripts import NodeFunctions
from tests.clients.stage import KEY, Stage
from tests.http.sdk import Served
from tests.support.postgres import on_one_store

from antwort.lazy_imports import imported_on_use
from antwort.testing import call, turn
from antwort.types import JSON

if TYPE_CHECKING:
    import agents
    from agents import tracing
    from agents.tracing import processors, provider
    from tests.clients import openai_agents as script
else:
    agents = imported_on_use("agents")
    tracing = imported_on_use("agents.tracing")
    processors = imported_on_use("agents.tracing.processors")
    provider = imported_on_use("agents.tracing.provider")
    script = imported_on_use("tests.clients.openai_agents")

pytestmark = on_one_store()

BONN = call("get_weather", city="Bonn", call_id="call_1")
KINDS = ("agent", "handoff", "function")


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A trace provider of the test's own, in the place of the one of the process."""
    monkeypatch.setenv("OPENAI_AGENTS_DISABLE_TRACING", "0")
    own = provider.DefaultTraceProvider()
    monkeypatch.setattr("agents.tracing.setup.GLOBAL_TRACE_PROVIDER", own)
    yield own
    own.shutdown()


@contextlib.contextmanager
def exported(traces: Any, stage: Served) -> Iterator[None]:
    """Have the server get what is traced in the block, all of it by its end."""
    exporter: Any = processors.BackendSpanExporter(api_key=KEY, endpoint=f"{stage.server.url}/v1/traces/ingest")
    processor: Any = processors.BatchTraceProcessor(exporter)
    traces.set_processors([processor])
    yield
    processor.force_flush()
    processor.shutdown()
    exporter.close()


def fetched(stage: Served, path: str) -> JSON:
    found = stage.request("GET", path, headers={"authorization": f"Bearer {KEY}"})
    assert found.status_code == 200, found.text
    body: JSON = found.json()
    return body


def within(span: JSON, kind: str) -> list[JSON]:
    """Return all spans of a kind in a span, itself included."""
    inner = [found for one in span["spans"] for found in within(one, kind)]
    return [span, *inner] if span["type"] == kind else inner


async def test_a_run_with_a_function_is_a_tree_with_the_responses_of_the_server(traces: Any, stage: Stage) -> None:
    with stage(turn(calls=[BONN], usage=(10, 5)), turn("Sunny.", usage=(20, 5))) as served:
        async with served.async_client(KEY) as client:
            with (
                exported(traces, served),
                tracing.trace("Weather", group_id="chat-7", metadata={"user": "ada"}) as begun,
            ):
                run = await script.tool_loop(client)
        [listed] = fetched(served, "/traces?group_id=chat-7")["data"]
        assert (listed["id"], listed["name"], listed["metadata"]) == (begun.trace_id, "Weather", {"user": "ada"})
        found = fetched(served, f"/traces/{begun.trace_id}")
        assert (found["failures"], found["failed_spans"]) == ([], 0)
        [top] = found["spans"]
        [agent] = within(top, "agent")
        assert (agent["name"], agent["data"]["tools"]) == ("Assistant", ["get_weather"])
        [function] = within(top, "function")
        assert (function["name"], function["data"]["output"]) == ("get_weather", "Sunny in Bonn.")
        assert function["data"]["input"] == '{"city": "Bonn"}'
        responses = [span["response"] for span in within(top, "response")]
        assert [one["id"] for one in responses] == [one.response_id for one in run.raw_responses]
        assert responses[1]["id"] == run.last_response_id
        assert [one["turns"][0]["input_tokens"] for one in responses] == [10, 20]


async def test_what_went_wrong_in_the_client_and_on_the_server_is_told_together(traces: Any, stage: Stage) -> None:
    @agents.function_tool
    def explode() -> str:
        """Explode."""
        raise ZeroDivisionError("division by zero")

    @agents.output_guardrail
    async def polite(_ctx: Any, _agent: Any, _output: Any) -> agents.GuardrailFunctionOutput:
        return agents.GuardrailFunctionOutput(output_info=None, tripwire_triggered=True)

    steps = [
        turn(calls=[call("explode", call_id="call_1"), call("calculate", expression="1/0")]),
        turn(calls=[call("transfer_to_german", call_id="call_3")]),
        turn("Verdammt."),
    ]
    with stage(*steps, agents={"accountant": {"model": "scripted", "functions": ["calculate"]}}) as served:
        async with served.async_client(KEY) as client:
            model = script.model(client, "accountant")
            german = agents.Agent[None](name="German", model=model, output_guardrails=[polite])
            boss = agents.Agent[None](name="Boss", model=model, tools=[explode], handoffs=[german])
            with exported(traces, served), pytest.raises(agents.OutputGuardrailTripwireTriggered):
                await agents.Runner.run(boss, "Compute!")
        [listed] = fetched(served, "/traces?failed=true")["data"]
        found = fetched(served, f"/traces/{listed['id']}")
        [top] = found["spans"]
        assert [one["name"] for one in within(top, "agent")] == ["Boss", "German"]
        [handoff] = within(top, "handoff")
        assert (handoff["data"]["from_agent"], handoff["name"]) == ("Boss", "German")
        [guardrail] = within(top, "guardrail")
        assert (guardrail["name"], guardrail["data"]["triggered"]) == ("polite", True)
        [function] = within(top, "function")
        assert function["error"]["data"]["tool_name"] == "explode"
        failed = {failure["name"]: failure for failure in found["failures"]}
        assert failed["explode"]["failure"] is None
        assert failed["calculate"]["failure"]["kind"] == "call"
        assert failed["calculate"]["type"] == "response"


async def test_a_long_run_comes_in_many_parts(traces: Any, stage: Stage) -> None:
    with stage() as served:
        with exported(traces, served), tracing.trace("Long") as begun, tracing.agent_span("Worker"):
            for number in range(700):
                with tracing.function_span(f"step_{number}", input="x" * 1000, output="y" * 1000):
                    pass
        found = fetched(served, f"/traces/{begun.trace_id}")
        [worker] = found["spans"]
        assert (found["span_count"], len(worker["spans"])) == (701, 700)
        assert {one["name"] for one in worker["spans"]} == {f"step_{number}" for number in range(700)}
        assert max(len(one["data"]["input"]) for one in worker["spans"]) == 1000
        assert sum(len(str(one["data"])) for one in worker["spans"]) < 3_000_000


async def test_the_sdk_for_javascript_sends_its_traces_alike(stage: Stage) -> None:
    steps = [turn(calls=[call("transfer_to_Weatherman", call_id="call_0")]), turn(calls=[BONN]), turn("Sunny.")]
    with stage(*steps) as served, NodeFunctions.started() as functions:
        made = await functions.run("agents.mjs", "traced", served)
        found = fetched(served, f"/traces/{made['trace']}")
        assert (found["name"], found["failures"], made["answer"]) == ("Weather", [], "Sunny.")
        names = {kind: [one["name"] for top in found["spans"] for one in within(top, kind)] for kind in KINDS}
        assert names == {"agent": ["Boss", "Weatherman"], "handoff": ["Weatherman"], "function": ["get_weather"]}
        [function] = [one for top in found["spans"] for one in within(top, "function")]
        assert function["data"]["output"] == "Sunny in Bonn."
        responses = [one["response"]["id"] for top in found["spans"] for one in within(top, "response")]
        assert responses == made["responses"]
