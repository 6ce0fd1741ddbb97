"""Specification 016, the function provider registry: each requirement, scenario and edge case by name.

Where HTTP is involved the shipped app answers on a real socket.
"""

import asyncio
import logging
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client import Counter as PrometheusCounter
from prometheus_client.registry import Collector
from pydantic import ByteSize, SecretStr
from typing_extensions import override

from antwort import Antwort, Context, FunctionProvider, FunctionRegistry, FunctionSpec, ToolResult
from antwort.config import (
    ApiKeyConfig,
    AuthConfig,
    Config,
    LimitsConfig,
    ProviderConfig,
    RateConfig,
    ServerConfig,
    load_config,
)
from antwort.errors import ConfigError, DefinitionError
from antwort.functions import Catalogue, ToolCall, ToolExecutor
from antwort.provider import Counter, Provider, function, route
from antwort.testing import running
from antwort.web.routes import Route

KEYS = AuthConfig(
    api_keys=[
        ApiKeyConfig(id="one", key=SecretStr("key-of-tenant-one"), tenant="tenant-one"),
        ApiKeyConfig(id="two", key=SecretStr("key-of-tenant-two"), tenant="tenant-two"),
    ]
)
ONE = {"authorization": "Bearer key-of-tenant-one"}
TWO = {"authorization": "Bearer key-of-tenant-two"}


class Stores(Provider):
    """A provider of the pleasant kind, with everything a provider can bring."""

    searches = Counter("searches_total", "Searches by tenant.", ["tenant"])

    @function
    async def search(self, ctx: Context, query: str) -> str:
        """Search the stores of the caller's tenant."""
        self.searches.labels(ctx.tenant).inc()
        return f"{ctx.tenant}: {query}"

    @function
    async def crash(self) -> str:
        """Fail in a way nobody expected."""
        raise RuntimeError("the disk is on fire")

    @route("GET", "/v1/test_stores/{store_id}")
    async def get(self, ctx: Context, store_id: str) -> dict[str, str]:
        """Return a store of the caller's tenant."""
        return {"id": store_id, "tenant": ctx.tenant}

    @route("POST", "/v1/test_stores/{store_id}/search")
    async def search_store(self, ctx: Context, store_id: str) -> dict[str, str]:
        """Search one store."""
        return {"found": await self.search(ctx, store_id)}


class HandWritten:
    """A provider that fits the protocol without any base class."""

    def __init__(self, name: str = "hand_written", tools: Sequence[str] = ("echo",)) -> None:
        self.name = name
        self.names = tools
        self.closed = False
        self.calls: list[ToolCall] = []
        self.counter = PrometheusCounter(f"antwort_{name}_calls_total", "Calls.", registry=None)

    def tools(self) -> Sequence[FunctionSpec]:
        return [FunctionSpec(tool, "Repeat a text.", {"text": {"type": "string"}}) for tool in self.names]

    def can_execute(self, name: str) -> bool:
        return name in self.names

    async def execute(self, ctx: Context, call: ToolCall) -> ToolResult:
        self.calls.append(call)
        self.counter.inc()
        return ToolResult(f"{self.name} says {call.arguments['text']}")

    def routes(self) -> Sequence[Route]:
        return [Route("GET", f"/v1/{self.name}", self.status)]

    async def status(self) -> dict[str, int]:
        return {"calls": len(self.calls)}

    def collectors(self) -> Sequence[Collector]:
        return [self.counter]

    async def close(self) -> None:
        self.closed = True


class Empty:
    """A provider with nothing in it."""

    name = "empty"

    def tools(self) -> Sequence[FunctionSpec]:
        return ()

    def can_execute(self, name: str) -> bool:
        return False

    async def execute(self, ctx: Context, call: ToolCall) -> ToolResult:
        raise AssertionError("never called")

    def routes(self) -> Sequence[Route]:
        return ()

    def collectors(self) -> Sequence[Collector]:
        return ()

    async def close(self) -> None:
        pass


def sample(page: str, series: str) -> float:
    found = re.search(rf"^{re.escape(series)} (\S+)$", page, re.MULTILINE)
    return float(found.group(1)) if found else 0.0


# --- User story 1: register a built-in provider -----------------------------------------------


def test_us1_1_a_registered_providers_tools_appear_in_the_tool_list() -> None:
    with running(Antwort(providers=[Stores()])) as server:
        listed = httpx.get(f"{server.url}/v1/functions").json()["data"]
        offered = [definition["name"] for definition in server.app.registry.to_tool_definitions()]
    assert {"search", "crash"} <= {entry["name"] for entry in listed}
    assert offered[:2] == ["search", "crash"]


async def test_us1_2_a_call_is_executed_by_the_right_provider() -> None:
    first, second = HandWritten("first", ["one"]), HandWritten("second", ["two"])
    registry = FunctionRegistry()
    registry.register(first)
    registry.register(second)
    result = await registry.execute("two", {"text": "hello"})
    assert (result.output, result.is_error) == ("second says hello", False)
    assert not first.calls


def test_us1_3_a_disabled_providers_tools_do_not_appear(tmp_path: Path) -> None:
    (tmp_path / "antwort.yaml").write_text("providers:\n  basics:\n    enabled: false\n")
    with running(Antwort(load_config(tmp_path / "antwort.yaml", environ={}))) as server:
        assert httpx.get(f"{server.url}/v1/functions").json()["data"] == []
        assert httpx.get(f"{server.url}/v1/providers").json()["data"] == []


# --- User story 2: management API with auth and metrics ---------------------------------------


def test_us2_1_a_provider_endpoint_needs_credentials() -> None:
    with running(Antwort(Config(auth=KEYS), providers=[Stores()])) as server:
        url = f"{server.url}/v1/test_stores/s1"
        missing, wrong = httpx.get(url), httpx.get(url, headers={"authorization": "Bearer nonsense"})
        accepted = httpx.get(url, headers=ONE)
    assert (missing.status_code, wrong.status_code, accepted.status_code) == (401, 401, 200)
    assert missing.json()["error"]["type"] == "invalid_request_error"
    assert missing.headers["www-authenticate"] == "Bearer"


def test_us2_2_calls_of_a_provider_endpoint_are_counted_by_provider_method_path_and_status() -> None:
    with running(Antwort(Config(auth=KEYS), providers=[Stores()])) as server:
        for store in ("a", "b"):
            httpx.get(f"{server.url}/v1/test_stores/{store}", headers=ONE)
        page = httpx.get(f"{server.url}/metrics").text
    labels = 'method="GET",path="/v1/test_stores/{store_id}",provider="stores"'
    assert sample(page, f'antwort_builtin_api_requests_total{{{labels},status="200"}}') == 2
    assert sample(page, f"antwort_builtin_api_duration_seconds_count{{{labels}}}") == 2


def test_us2_2_refused_calls_of_a_provider_endpoint_are_counted_too() -> None:
    limits = LimitsConfig(per_key=RateConfig(requests_per_minute=1))
    server_config = ServerConfig(max_body_bytes=ByteSize(1000))
    with running(Antwort(Config(auth=KEYS, limits=limits, server=server_config), providers=[Stores()])) as server:
        url = f"{server.url}/v1/test_stores/s1"
        asked = [
            httpx.get(url),
            httpx.put(url, headers=ONE),
            httpx.request("PROPFIND", url),
            httpx.get(url, headers=ONE),
            httpx.post(f"{url}/search", headers=TWO, content=b"x" * 2000),
        ]
        page = httpx.get(f"{server.url}/metrics").text
    assert [answer.status_code for answer in asked] == [401, 405, 401, 429, 413]
    one, search = "/v1/test_stores/{store_id}", "/v1/test_stores/{store_id}/search"
    calls = [("GET", one, 401), ("PUT", one, 405), ("OTHER", one, 401), ("GET", one, 429), ("POST", search, 413)]
    for method, path, status in calls:
        labels = f'method="{method}",path="{path}",provider="stores"'
        assert sample(page, f'antwort_builtin_api_requests_total{{{labels},status="{status}"}}') == 1
        durations = [other for other in calls if other[:2] == (method, path)]
        assert sample(page, f"antwort_builtin_api_duration_seconds_count{{{labels}}}") == len(durations)
    assert 'antwort_http_requests_total{method="POST",path="/v1/test_stores/{store_id}/search",status="413"} 1' in page


def test_us2_3_a_provider_endpoint_receives_the_callers_tenant() -> None:
    with running(Antwort(Config(auth=KEYS), providers=[Stores()])) as server:
        url = f"{server.url}/v1/test_stores/s1"
        tenants = [httpx.get(url, headers=headers).json()["tenant"] for headers in (ONE, TWO)]
    assert tenants == ["tenant-one", "tenant-two"]


# --- User story 3: custom provider metrics ----------------------------------------------------


def test_us3_1_custom_metrics_appear_at_metrics() -> None:
    with running(Antwort(providers=[Stores(), HandWritten()])) as server:
        page = httpx.get(f"{server.url}/metrics").text
    assert "# HELP antwort_stores_searches_total Searches by tenant." in page
    assert "# TYPE antwort_hand_written_calls_total counter" in page


def test_us3_2_custom_metrics_have_the_right_values() -> None:
    with running(Antwort(Config(auth=KEYS), providers=[Stores()])) as server:
        for headers in (ONE, ONE, TWO):
            httpx.post(f"{server.url}/v1/test_stores/s1/search", headers=headers)
        page = httpx.get(f"{server.url}/metrics").text
    assert sample(page, 'antwort_stores_searches_total{tenant="tenant-one"}') == 2
    assert sample(page, 'antwort_stores_searches_total{tenant="tenant-two"}') == 1


# --- Edge cases -------------------------------------------------------------------------------


async def test_edge_the_first_provider_with_a_tool_name_wins_and_a_warning_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    registry = FunctionRegistry()
    registry.register(HandWritten("first", ["echo"]))
    with caplog.at_level(logging.WARNING):
        registry.register(HandWritten("second", ["echo"]))
    assert "function 'echo' is registered by 'first' and again by 'second'" in caplog.text
    assert (await registry.execute("echo", {"text": "x"})).output == "first says x"
    assert [definition["name"] for definition in registry.to_tool_definitions()] == ["echo"]
    assert [entry.shadowed_by for entry in registry.entries()] == [None, "first"]


async def test_edge_a_crash_in_execute_is_an_error_result() -> None:
    registry = FunctionRegistry()
    registry.register(Stores())
    result = await registry.execute("crash", {})
    assert result == ToolResult("crash failed: RuntimeError: the disk is on fire", is_error=True, status="error")


async def test_edge_disabling_a_provider_lets_running_calls_complete_and_dispatches_no_new_one() -> None:
    running_now, go_on = asyncio.Event(), asyncio.Event()

    class Slow(Provider):
        @function
        async def wait(self) -> str:
            """Wait until told otherwise."""
            running_now.set()
            await go_on.wait()
            return "done"

        @route("GET", "/v1/slow")
        async def status(self) -> dict[str, str]:
            """Tell nothing."""
            return {}

    registry = FunctionRegistry()
    registry.register(Slow())
    call = asyncio.create_task(registry.execute("wait", {}))
    await running_now.wait()
    registry.disable("slow")
    assert registry.discovered_tools() == []
    assert not registry.can_execute("wait")
    assert registry.http_handler().allowed("/v1/slow") == []
    refused = await registry.execute("wait", {})
    assert (refused.is_error, refused.status) == (True, "unavailable")
    go_on.set()
    assert (await call).output == "done"
    registry.enable("slow")
    assert (await registry.execute("wait", {})).output == "done"
    assert registry.http_handler().allowed("/v1/slow") == ["GET"]


# --- FunctionProvider interface ---------------------------------------------------------------


def test_fr_001_the_provider_interface_has_the_seven_members() -> None:
    members = {"name", "tools", "can_execute", "execute", "routes", "collectors", "close"}
    assert {name for name in vars(FunctionProvider) if not name.startswith("_")} == members
    for provider in (HandWritten(), Empty(), Stores()):
        assert isinstance(provider, FunctionProvider)


def test_fr_002_a_provider_may_have_no_tools() -> None:
    registry = FunctionRegistry()
    registry.register(Empty())
    assert registry.to_tool_definitions() == []


def test_fr_003_a_provider_may_have_no_routes() -> None:
    with running(Antwort(providers=[Empty()])) as server:
        provider = next(p for p in httpx.get(f"{server.url}/v1/providers").json()["data"] if p["name"] == "empty")
    assert provider["routes"] == []


def test_fr_004_a_provider_may_have_no_collectors() -> None:
    with running(Antwort(providers=[Empty()])) as server:
        assert httpx.get(f"{server.url}/metrics").status_code == 200


# --- FunctionRegistry -------------------------------------------------------------------------


def test_fr_005_the_registry_is_a_tool_executor() -> None:
    assert isinstance(FunctionRegistry(), ToolExecutor)


def test_fr_006_tools_of_all_providers_are_merged_in_order() -> None:
    registry = FunctionRegistry()
    registry.register(HandWritten("b", ["b1", "b2"]))
    registry.register(HandWritten("a", ["a1"]))
    assert [spec.name for spec in registry.discovered_tools()] == ["b1", "b2", "a1"]


async def test_fr_007_can_execute_decides_whether_a_provider_is_called() -> None:
    class Moody(HandWritten):
        awake = True

        @override
        def can_execute(self, name: str) -> bool:
            return self.awake

    provider = Moody()
    registry = FunctionRegistry()
    registry.register(provider)
    assert (await registry.execute("echo", {"text": "x"})).status == "success"
    provider.awake = False
    assert not registry.can_execute("echo")
    assert (await registry.execute("echo", {"text": "x"})).status == "unavailable"
    assert len(provider.calls) == 1


def test_fr_008_one_handler_serves_the_routes_of_all_providers_beside_the_api() -> None:
    with running(Antwort(providers=[Stores(), HandWritten()])) as server:
        assert httpx.get(f"{server.url}/v1/test_stores/s1").json()["id"] == "s1"
        assert httpx.get(f"{server.url}/v1/hand_written").json() == {"calls": 0}
        assert httpx.get(f"{server.url}/v1/functions").status_code == 200


def test_fr_008_a_provider_can_never_take_over_a_route_of_the_api(caplog: pytest.LogCaptureFixture) -> None:
    class Greedy(Provider):
        @route("GET", "/v1/functions")
        async def everything(self) -> dict[str, str]:
            """Pretend to be the API."""
            return {"stolen": "yes"}

        @route("GET", "/v1/{anything}")
        async def anything(self, anything: str) -> dict[str, str]:
            """Catch what the API leaves."""
            return {"caught": anything}

    with caplog.at_level(logging.WARNING), running(Antwort(providers=[Greedy()])) as server:
        assert "stolen" not in httpx.get(f"{server.url}/v1/functions").json()
        assert "data" in httpx.get(f"{server.url}/v1/providers").json()
        assert httpx.get(f"{server.url}/v1/else").json() == {"caught": "else"}
    assert "route GET /v1/functions is registered by 'antwort' and again by 'greedy'" in caplog.text


# --- Infrastructure integration ---------------------------------------------------------------


async def test_fr_009_the_registrys_handler_refuses_a_request_that_nobody_authenticated() -> None:
    registry = FunctionRegistry()
    registry.register(Stores())
    transport = httpx.ASGITransport(registry.http_handler())
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        response = await client.get("/v1/test_stores/s1")
    assert response.status_code == 401


async def test_fr_010_every_execution_is_counted_and_timed() -> None:
    registry = FunctionRegistry()
    registry.register(Stores())
    await registry.execute("search", {"query": "x"})
    await registry.execute("search", {"query": "y"})
    await registry.execute("search", {"wrong": "y"})
    await registry.execute("crash", {})
    await registry.execute("invented_by_a_model", {})
    page = registry.metrics.render(None)[0].decode()

    def count(name: str, status: str) -> float:
        series = f'antwort_builtin_tool_executions_total{{provider="stores",status="{status}",tool_name="{name}"}}'
        return sample(page, series)

    assert count("search", "success") == 2
    assert count("search", "invalid_arguments") == 1
    assert count("crash", "error") == 1
    duration = 'antwort_builtin_tool_duration_seconds_count{provider="stores",tool_name="search"}'
    assert sample(page, duration) == 3
    assert "invented_by_a_model" not in page


def test_fr_011_every_management_call_is_counted_and_timed_whatever_its_outcome() -> None:
    class Failing(Provider):
        @route("GET", "/v1/failing")
        async def fail(self) -> dict[str, str]:
            """Fail."""
            raise RuntimeError("secret detail")

    with running(Antwort(Config(auth=KEYS), providers=[Failing()])) as server:
        assert httpx.get(f"{server.url}/v1/failing", headers=ONE).status_code == 500
        page = httpx.get(f"{server.url}/metrics").text
    labels = 'method="GET",path="/v1/failing",provider="failing"'
    assert sample(page, f'antwort_builtin_api_requests_total{{{labels},status="500"}}') == 1
    assert sample(page, f"antwort_builtin_api_duration_seconds_count{{{labels}}}") == 1


def test_fr_012_collectors_are_registered_with_the_apps_own_metrics_only() -> None:
    one, two = Antwort(providers=[Stores()]), Antwort(providers=[Stores()])
    one.registry.metrics.render(None)
    assert isinstance(one.metrics.registry, CollectorRegistry)
    assert one.metrics.registry is not two.metrics.registry


def test_fr_013_the_tenant_reaches_functions_called_from_a_route() -> None:
    with running(Antwort(Config(auth=KEYS), providers=[Stores()])) as server:
        found = httpx.post(f"{server.url}/v1/test_stores/s1/search", headers=TWO).json()
    assert found == {"found": "tenant-two: s1"}


# --- Configuration ----------------------------------------------------------------------------

PLUGIN = """
from antwort.provider import Provider, Settings, function

class GreeterSettings(Settings):
    greeting: str = "Hello"

class Greeter(Provider[GreeterSettings]):
    @function
    async def greet(self, name: str) -> str:
        '''Greet somebody.'''
        return f"{self.settings.greeting} {name}"
"""


def load(tmp_path: Path, text: str) -> Antwort:
    plugins = tmp_path / "plugins"
    plugins.mkdir()
    (plugins / "greeter.py").write_text(PLUGIN)
    (tmp_path / "antwort.yaml").write_text(f"plugins_dir: {plugins}\n{text}")
    return Antwort(load_config(tmp_path / "antwort.yaml", environ={}))


async def test_fr_014_providers_is_a_map_keyed_by_type_each_with_its_own_schema(tmp_path: Path) -> None:
    app = load(tmp_path, "providers:\n  greeter:\n    enabled: true\n    settings:\n      greeting: Moin\n")
    assert (await app.registry.execute("greet", {"name": "Ada"})).output == "Moin Ada"


def test_fr_015_enabled_defaults_to_false_for_a_provider_in_the_file(tmp_path: Path) -> None:
    app = load(tmp_path, "providers:\n  greeter:\n    settings:\n      greeting: Moin\n")
    assert app.registry.discovered_tools() == []


def test_fr_016_the_schema_is_the_providers_own(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"antwort\.yaml:6: .*greetin: unknown key; did you mean 'greeting'\?"):
        load(tmp_path, "providers:\n  greeter:\n    enabled: true\n    settings:\n      greetin: Moin\n")


def test_fr_016_a_factory_gets_the_raw_mapping() -> None:
    seen: list[dict[str, Any]] = []

    def factory(raw: Any) -> HandWritten:
        seen.append(dict(raw))
        return HandWritten("mine")

    config = Config(providers={"mine": ProviderConfig(enabled=True, settings={"anything": [1, 2]})})
    app = Antwort(config, factories={"mine": factory})
    assert seen == [{"anything": [1, 2]}]
    assert [spec.name for spec in app.registry.list()] == ["echo"]


def test_fr_016_the_registry_keeps_factories_by_type() -> None:
    registry = FunctionRegistry()
    registry.register_factory("mine", lambda raw: HandWritten("mine"))
    catalogue = Catalogue(factories=registry.factories)
    assert isinstance(catalogue.make("mine", ProviderConfig(enabled=True)), HandWritten)


def test_fr_017_an_unknown_type_is_a_startup_error_with_line_and_suggestion(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, "providers:\n  greter:\n    enabled: true\n")
    message = str(caught.value)
    assert "antwort.yaml:3: providers.greter: unknown provider type; did you mean 'greeter'?" in message
    assert "\n" not in message


def test_fr_017_a_failing_constructor_is_a_startup_error(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(
        "from antwort.provider import Provider\n"
        "class Broken(Provider):\n"
        "    def __init__(self, settings=None):\n"
        "        raise OSError('no such device')\n"
    )
    with pytest.raises(ConfigError, match=r"providers\.broken: .*broken\.py cannot be loaded: OSError: no such device"):
        Antwort(Config(plugins_dir=tmp_path))


# --- Error handling ---------------------------------------------------------------------------


async def test_fr_018_whatever_a_provider_does_the_result_is_an_error_result() -> None:
    class Hostile(HandWritten):
        def __init__(self, behaviour: str) -> None:
            super().__init__()
            self.behaviour = behaviour

        @override
        async def execute(self, ctx: Context, call: ToolCall) -> Any:
            match self.behaviour:
                case "exit":
                    raise SystemExit(1)
                case "nothing":
                    return None
                case "cancel":
                    raise asyncio.CancelledError
                case _:
                    raise RecursionError

    for behaviour in ("exit", "nothing", "cancel", "recursion"):
        registry = FunctionRegistry()
        registry.register(Hostile(behaviour))
        result = await registry.execute("echo", {"text": "x"})
        assert result.is_error, behaviour
        assert result.output.startswith("echo "), behaviour


def test_fr_019_strict_names_makes_a_conflict_an_error() -> None:
    registry = FunctionRegistry(strict_names=True)
    registry.register(HandWritten("first", ["echo"]))
    with pytest.raises(DefinitionError, match=r"'first' and again by 'second'.*strict_names"):
        registry.register(HandWritten("second", ["echo"]))


def test_fr_019_the_winner_is_the_first_in_the_file_not_in_the_alphabet(tmp_path: Path) -> None:
    for name in ("alpha", "omega"):
        (tmp_path / f"{name}.py").write_text(
            "from antwort.provider import function\n\n"
            f"@function\ndef who() -> str:\n    '''Tell who answers.'''\n    return '{name}'\n"
        )
    config = Config(
        plugins_dir=tmp_path,
        providers={"omega": ProviderConfig(enabled=True), "alpha": ProviderConfig(enabled=True)},
    )
    for _ in range(3):
        app = Antwort(config)
        assert asyncio.run(app.registry.execute("who", {})).output == "omega"


# --- Success criteria (those of the framework; the agentic loop has its own tests) ------------


def test_sc_002_routes_are_protected_and_recorded_without_provider_side_code() -> None:
    with running(Antwort(Config(auth=KEYS), providers=[HandWritten()])) as server:
        assert httpx.get(f"{server.url}/v1/hand_written").status_code == 401
        assert httpx.get(f"{server.url}/v1/hand_written", headers=ONE).status_code == 200
        page = httpx.get(f"{server.url}/metrics").text
    assert 'antwort_builtin_api_requests_total{method="GET",path="/v1/hand_written",provider="hand_written"' in page


def test_sc_003_custom_metrics_stand_beside_the_core_metrics() -> None:
    with running(Antwort(providers=[Stores()])) as server:
        httpx.get(f"{server.url}/healthz")
        page = httpx.get(f"{server.url}/metrics").text
    for name in ("antwort_stores_searches_total", "antwort_http_requests_total", "antwort_build_info"):
        assert f"# TYPE {name}" in page
