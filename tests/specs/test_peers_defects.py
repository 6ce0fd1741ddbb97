"""What peers got wrong in the protocol and in hosted tools: each defect is a test here, against the shipped app."""

import asyncio
import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from antwort import Antwort, Context, ToolResult
from antwort.config import Config, EngineConfig, ProviderConfig
from antwort.context import Source
from antwort.functions import FunctionSpec
from antwort.provider import Hosted, Provider, function
from antwort.testing import ScriptedBackend, ScriptServer, call, fail, lint_response, lint_stream, running, turn
from antwort.types import JSON


class Lookup(Provider):
    """A hosted tool with an item of its own, under four type names."""

    @function(
        idempotent=True,
        hosted=Hosted(
            types=("web_search", "web_search_2025_08_26", "web_search_preview", "web_search_preview_2025_03_11"),
            item="web_search_call",
            describe=lambda arguments: {"action": {"type": "search", "query": str(arguments.get("query", ""))}},
            phases=("in_progress", "searching"),
        ),
    )
    async def lookup(self, ctx: Context, query: str) -> str:
        """Look something up."""
        self.seen = dict(ctx.options)
        number = ctx.sources.add(Source("Example", url="https://example.org/a"))
        return f"[{number}] Example: {query}"


@contextlib.contextmanager
def serving(tmp_path: Path, steps: Sequence[Any], **options: Any) -> Iterator[tuple[httpx.Client, ScriptedBackend]]:
    engine = options.pop("engine", None) or EngineConfig()
    config = options.pop("config", None) or Config(data_dir=tmp_path, providers={}, engine=engine)
    with (
        ScriptedBackend(steps) as backend,
        running(Antwort(config, backend=backend, **options)) as server,
        httpx.Client(base_url=server.url, timeout=30) as client,
    ):
        yield client, backend


def post(client: httpx.Client, **body: Any) -> JSON:
    response = client.post("/v1/responses", json={"model": "m", "input": "hi", **body})
    assert response.status_code == 200, response.text
    return lint_response(response.json())


def stream(client: httpx.Client, **body: Any) -> Any:
    response = client.post("/v1/responses", json={"model": "m", "input": "hi", "stream": True, **body})
    assert response.status_code == 200, response.text
    return lint_stream(response.content)


# --- registry and hosted tools ---------------------------------------------------------------------------------


def test_enabling_a_provider_does_not_take_the_api_away(tmp_path: Path) -> None:
    config = Config(data_dir=tmp_path, providers={"basics": ProviderConfig(enabled=True)})
    with serving(tmp_path, [turn("Hello")], config=config) as (client, _):
        assert post(client)["status"] == "completed"


@pytest.mark.parametrize(
    "kind", ["web_search", "web_search_2025_08_26", "web_search_preview", "web_search_preview_2025_03_11"]
)
def test_every_name_of_a_hosted_type_is_expanded(tmp_path: Path, kind: str) -> None:
    with serving(tmp_path, [turn("Hello")], providers=[Lookup()]) as (client, backend):
        post(client, tools=[{"type": kind}])
    (tool,) = backend.requests[0].tools
    assert (tool["type"], tool["name"]) == ("function", "lookup")


def test_enabled_providers_are_offered_without_being_named(tmp_path: Path) -> None:
    with serving(tmp_path, [turn("Hello")], providers=[Lookup()]) as (client, backend):
        post(client)
    assert [tool["name"] for tool in backend.requests[0].tools] == ["lookup"]


def test_the_settings_of_a_tool_reach_its_function(tmp_path: Path) -> None:
    provider = Lookup()
    steps = [turn(calls=[call("lookup", query="x")]), turn("done")]
    tool = {
        "type": "web_search",
        "search_context_size": "low",
        "user_location": {"type": "approximate", "city": "Bonn"},
    }
    with serving(tmp_path, steps, providers=[provider]) as (client, _):
        post(client, tools=[tool])
    assert provider.seen == tool


def test_a_server_tool_is_an_item_of_its_own_and_leaks_no_function_call(tmp_path: Path) -> None:
    steps = [turn(calls=[call("lookup", query="x")]), turn("See [1].")]
    with serving(tmp_path, steps * 2, providers=[Lookup()]) as (client, _):
        response = post(client)
        streamed = stream(client)
    assert [item["type"] for item in response["output"]] == ["web_search_call", "message"]
    assert response["output"][0]["action"] == {"type": "search", "query": "x"}
    assert [kind for kind in streamed.types if "function_call" in kind] == []
    phases = [kind.rpartition(".")[2] for kind in streamed.types if "web_search_call" in kind]
    assert phases == ["in_progress", "searching", "completed"]
    (annotation,) = response["output"][1]["content"][0]["annotations"]
    assert (annotation["type"], annotation["url"]) == ("url_citation", "https://example.org/a")


async def test_calls_of_one_turn_run_in_parallel_bounded_and_in_order(tmp_path: Path) -> None:
    now = peak = 0
    finished: list[int] = []

    async def work(n: int) -> int:
        """Work."""
        nonlocal now, peak
        now += 1
        peak = max(peak, now)
        for _ in range(10 - n):
            await asyncio.sleep(0)
        finished.append(n)
        now -= 1
        return n

    backend = ScriptedBackend([turn(calls=[call("work", n=n) for n in range(6)]), turn("done")])
    config = Config(data_dir=tmp_path, providers={}, engine=EngineConfig(parallel_calls=3))
    async with Antwort(config, functions=[work], backend=backend) as app:
        await app.run("go", model="m")
    outputs = [item["output"] for item in backend.requests[1].items if item["type"] == "function_call_output"]
    assert outputs == ["0", "1", "2", "3", "4", "5"]
    assert peak == 3
    assert finished != sorted(finished)


async def test_parallel_tool_calls_false_is_serial(tmp_path: Path) -> None:
    now = peak = 0

    async def work(n: int) -> int:
        """Work."""
        nonlocal now, peak
        now += 1
        peak = max(peak, now)
        await asyncio.sleep(0)
        now -= 1
        return n

    backend = ScriptedBackend([turn(calls=[call("work", n=n) for n in range(4)]), turn("done")])
    async with Antwort(Config(data_dir=tmp_path, providers={}), functions=[work], backend=backend) as app:
        await app.run("go", model="m", parallel_tool_calls=False)
    assert peak == 1


async def test_equal_calls_of_an_idempotent_function_run_once(tmp_path: Path) -> None:
    runs = 0

    async def look(q: str) -> str:
        """Look."""
        nonlocal runs
        runs += 1
        return q

    twice = turn(calls=[call("look", q="a"), call("look", q="a"), call("look", q="b")])
    backend = ScriptedBackend([twice, turn("done")])
    config = Config(data_dir=tmp_path, providers={})
    spec = FunctionSpec.of(look, {"idempotent": True})
    async with Antwort(config, functions=[spec], backend=backend) as app:
        await app.run("go", model="m")
    assert runs == 2
    outputs = [item["output"] for item in backend.requests[1].items if item["type"] == "function_call_output"]
    assert outputs == ["a", "a", "b"]


def test_required_is_not_required_again_after_it_was_done(tmp_path: Path) -> None:
    steps = [turn(calls=[call("lookup", query="x")]), turn("done")]
    with serving(tmp_path, steps, providers=[Lookup()]) as (client, backend):
        assert post(client, tool_choice="required")["status"] == "completed"
    assert [request.tool_choice for request in backend.requests] == ["required", "auto"]


def test_max_tool_calls_of_one_still_gives_an_answer(tmp_path: Path) -> None:
    steps = [turn(calls=[call("lookup", query="a"), call("lookup", query="b")]), turn("done")]
    with serving(tmp_path, steps, providers=[Lookup()]) as (client, backend):
        response = post(client, max_tool_calls=1)
    assert response["status"] == "completed"
    assert [item["type"] for item in response["output"]] == ["web_search_call", "message"]
    assert not backend.requests[1].tools


def test_the_turn_limit_says_that_it_was_the_turn_limit(tmp_path: Path) -> None:
    steps = [turn(calls=[call("lookup", query=str(n))]) for n in range(2)]
    with serving(tmp_path, steps, providers=[Lookup()], engine=EngineConfig(max_turns=2)) as (client, _):
        response = post(client)
    assert (response["status"], response["incomplete_details"]) == ("incomplete", {"reason": "max_turns"})


async def test_a_second_executor_runs_beside_the_registry_and_nobody_can_tell(tmp_path: Path) -> None:
    class Other:
        def discovered_tools(self, ctx: Context | None = None) -> Sequence[FunctionSpec]:
            return [FunctionSpec("elsewhere", "Do it elsewhere.", {"x": {"type": "integer"}})]

        def can_execute(self, name: str) -> bool:
            return name == "elsewhere"

        async def execute(self, name: str, params: Any, ctx: Context | None = None) -> ToolResult:
            return ToolResult(f"elsewhere got {json.loads(params)['x']}")

        async def close(self) -> None:
            pass

    async def here(x: int) -> str:
        """Do it here."""
        return f"here got {x}"

    backend = ScriptedBackend([turn(calls=[call("elsewhere", x=1), call("here", x=2)]), turn("done")])
    config = Config(data_dir=tmp_path, providers={})
    async with Antwort(config, functions=[here], executors=[Other()], backend=backend) as app:
        response = await app.run("go", model="m")
    assert response.output_text == "done"
    assert [tool["name"] for tool in backend.requests[0].tools] == ["here", "elsewhere"]
    outputs = [item["output"] for item in backend.requests[1].items if item["type"] == "function_call_output"]
    assert outputs == ["elsewhere got 1", "here got 2"]


# --- protocol --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        "hi",
        [{"role": "user", "content": "hi"}],
        [{"role": "developer", "content": "be kind"}, {"role": "user", "content": "hi"}],
        [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}],
        [{"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,AAAA"}]}],
    ],
)
def test_every_spelling_of_input_reaches_the_model(tmp_path: Path, given: Any) -> None:
    with ScriptServer([turn("Hello")]) as model:
        config = Config(data_dir=tmp_path, providers={})
        with running(Antwort(config, backend=model.url)) as server:
            response = httpx.post(f"{server.url}/v1/responses", json={"model": "scripted", "input": given})
        assert response.status_code == 200, response.text
        messages = model.requests[0]["messages"]
    assert len(messages) == (1 if isinstance(given, str) else len(given))
    if isinstance(given, list) and isinstance(given[0]["content"], list):
        kind = given[0]["content"][0]["type"]
        assert ("image_url" in json.dumps(messages)) == (kind == "input_image")


def test_a_charset_in_the_content_type_is_fine_and_another_type_is_a_415(tmp_path: Path) -> None:
    body = b'{"model": "m", "input": "hi"}'
    with serving(tmp_path, [turn("Hello")]) as (client, _):
        fine = client.post("/v1/responses", content=body, headers={"content-type": "application/json; charset=utf-8"})
        refused = client.post("/v1/responses", content=body, headers={"content-type": "text/plain"})
    assert (fine.status_code, refused.status_code) == (200, 415)
    assert refused.json()["error"]["code"] == "unsupported_media_type"


@pytest.mark.parametrize("how", ["plain", "stream", "loop"])
def test_every_response_is_kept_however_it_was_made(tmp_path: Path, how: str) -> None:
    steps = [turn("Hello")] if how != "loop" else [turn(calls=[call("lookup", query="x")]), turn("Hello")]
    with serving(tmp_path, [*steps, turn("again")], providers=[Lookup()]) as (client, backend):
        made = stream(client).response if how == "stream" else post(client)
        kept = client.get(f"/v1/responses/{made['id']}").json()
        follow_up = post(client, previous_response_id=made["id"])
    assert kept == made
    assert follow_up["previous_response_id"] == made["id"]
    types = [item["type"] for item in backend.requests[-1].items]
    assert types[0] == "message"
    assert ("function_call" in types) == (how == "loop")


def test_usage_after_the_finish_reason_is_not_lost(tmp_path: Path) -> None:
    body = {"model": "scripted", "input": "hi", "stream": True}
    with (
        ScriptServer([turn("Hello", usage=(11, 7))]) as model,
        running(Antwort(Config(data_dir=tmp_path, providers={}), backend=model.url)) as server,
    ):
        made = lint_stream(httpx.post(f"{server.url}/v1/responses", json=body).content)
    assert (made.response["usage"]["input_tokens"], made.response["usage"]["output_tokens"]) == (11, 7)


def test_a_stream_with_nothing_but_calls_has_no_empty_message(tmp_path: Path) -> None:
    tools = [{"type": "function", "name": "mine", "parameters": {"type": "object"}}]
    with serving(tmp_path, [turn(calls=[call("mine", x=1), call("mine", x=2)])]) as (client, _):
        made = stream(client, tools=tools)
    assert [item["type"] for item in made.response["output"]] == ["function_call", "function_call"]


def test_parallel_calls_and_the_text_beside_them_are_one_message_for_the_backend(tmp_path: Path) -> None:
    tools = [{"type": "function", "name": "mine", "parameters": {"type": "object"}}]
    steps = [turn("Let me see.", calls=[call("mine", x=1), call("mine", x=2)]), turn("done")]
    with ScriptServer(steps) as model:
        with running(Antwort(Config(data_dir=tmp_path, providers={}), backend=model.url)) as server:
            client = httpx.Client(base_url=server.url)
            first = client.post("/v1/responses", json={"model": "scripted", "input": "hi", "tools": tools}).json()
            outputs = [
                {"type": "function_call_output", "call_id": item["call_id"], "output": "ok"}
                for item in first["output"]
                if item["type"] == "function_call"
            ]
            body = {"model": "scripted", "previous_response_id": first["id"], "input": outputs, "tools": tools}
            assert client.post("/v1/responses", json=body).status_code == 200
            client.close()
        user, assistant, *answers = model.requests[1]["messages"]
    assert user["role"] == "user"
    assert assistant["content"] == "Let me see."
    assert len(assistant["tool_calls"]) == 2
    assert [message["role"] for message in answers] == ["tool", "tool"]


def test_unknown_values_of_include_and_unknown_parameters_are_refused(tmp_path: Path) -> None:
    with serving(tmp_path, []) as (client, _):
        for body in ({"include": ["everything"]}, {"temprature": 1}, {"moderation": {"model": "m"}}):
            response = client.post("/v1/responses", json={"model": "m", "input": "hi", **body})
            assert response.status_code == 400
            assert response.json()["error"]["param"] == next(iter(body))


@pytest.mark.parametrize(
    ("failure", "status"),
    [
        (fail(429, "slow down", headers={"retry-after": "7"}), 429),
        (fail(500, "oops"), 502),
        (fail(503, "busy"), 503),
        (fail(400, "no"), 400),
    ],
)
def test_failures_of_the_backend_keep_their_meaning(tmp_path: Path, failure: Any, status: int) -> None:
    with ScriptServer([turn(error=failure)]) as model:
        entry = {"url": model.url, "retries": 0}
        config = Config.model_validate({"data_dir": tmp_path, "providers": {}, "backends": {"behind": entry}})
        with running(Antwort(config)) as server:
            response = httpx.post(f"{server.url}/v1/responses", json={"model": "scripted", "input": "hi"})
    assert response.status_code == status
    if status == 429:
        assert response.headers["retry-after"] == "7"
    if status >= 500:
        assert "behind" in response.json()["error"]["message"]


def test_a_backend_that_is_not_there_is_a_503_that_names_it(tmp_path: Path) -> None:
    entry = {"url": "http://127.0.0.1:9/v1", "retries": 0}
    config = Config.model_validate({"data_dir": tmp_path, "providers": {}, "backends": {"nobody": entry}})
    with running(Antwort(config)) as server:
        response = httpx.post(f"{server.url}/v1/responses", json={"model": "x", "input": "hi", "stream": True})
    assert response.status_code == 503
    assert "nobody" in response.json()["error"]["message"]
