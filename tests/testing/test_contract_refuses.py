"""Providers that are wrong fail the kit, in the test meant for it and with words that help."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, cast

import prometheus_client
import pytest
from prometheus_client.registry import Collector
from pydantic import ConfigDict
from typing_extensions import override

from antwort.provider import (
    ConfigError,
    Context,
    Counter,
    FunctionProvider,
    FunctionSpec,
    Provider,
    Route,
    Settings,
    ToolCall,
    ToolResult,
    function,
    route,
)
from antwort.testing import ProviderContract


def failures(contract: ProviderContract) -> dict[str, str]:
    """Run every test of a contract; return the messages of those that fail."""
    tests = [getattr(contract, name) for name in dir(contract) if name.startswith("test_")]
    return {test.__name__: message for test in tests if (message := failure(test))}


def failure(test: Callable[[], None]) -> str:
    """Return the message with which a test of a contract fails, if it does."""
    try:
        test()
    except AssertionError as error:
        return str(error).partition("\nassert")[0]
    return ""


def contract(
    provider: type[Provider[Any]],
    calls: Mapping[str, Mapping[str, Any]] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> ProviderContract:
    """Write the test class of an author."""
    attributes = {"provider": provider, "calls": calls or {}, "settings": settings or {}}
    return cast("ProviderContract", type("TestMine", (ProviderContract,), attributes)())


def made_by(make: Any) -> ProviderContract:
    """Write the test class of an author who overrides `make`."""
    return cast("ProviderContract", type("TestMine", (ProviderContract,), {"make": lambda _: make()})())


# --- the definition --------------------------------------------------------------------------------------------------


def test_a_contract_without_a_provider_says_what_to_set() -> None:
    with pytest.raises(AssertionError, match="set `provider = YourProvider`, or override make"):
        type("TestMine", (ProviderContract,), {})().make()


def test_a_missing_member_of_the_protocol_is_named() -> None:
    class Half:
        name = "half"

        def tools(self) -> Sequence[FunctionSpec]:
            return ()

    with pytest.raises(AssertionError, match="Half lacks can_execute, execute, routes, collectors, close"):
        made_by(Half).test_it_fits_the_protocol()


class Handwritten:
    """A provider that fits the protocol, with whatever lists it is given."""

    def __init__(self, tools: Sequence[Any] = (), routes: Sequence[Any] = (), collectors: Sequence[Any] = ()) -> None:
        self.name = "handwritten"
        self._lists = tools, routes, collectors

    def tools(self) -> Sequence[FunctionSpec]:
        return self._lists[0]

    def can_execute(self, name: str) -> bool:
        return True

    async def execute(self, ctx: Context, call: ToolCall) -> ToolResult:
        return ToolResult.of(call.arguments)

    def routes(self) -> Sequence[Route]:
        return self._lists[1]

    def collectors(self) -> Sequence[Collector]:
        return self._lists[2]

    async def close(self) -> None:
        """Nothing to give back."""


def test_the_handwritten_provider_of_these_tests_is_a_good_one() -> None:
    assert failures(made_by(Handwritten)) == {}


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        ({"tools": ["shout"]}, r"tools\(\) returned 'shout'; it must return FunctionSpec objects"),
        ({"routes": [("GET", "/")]}, r"routes\(\) returned \('GET', '/'\); it must return Route objects"),
        ({"collectors": [3]}, r"collectors\(\) returned 3, which has no collect\(\)"),
    ],
)
def test_wrong_things_in_the_lists_are_shown(lists: dict[str, Any], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        made_by(lambda: Handwritten(**lists)).test_it_fits_the_protocol()


def test_two_functions_of_one_name_are_refused() -> None:
    spec = FunctionSpec("shout", "Say a text loudly.")
    with pytest.raises(AssertionError, match="several functions are called shout"):
        made_by(lambda: Handwritten([spec, spec])).test_every_function_is_described_for_a_model()


@pytest.mark.parametrize("description", ["Forecast.", "get_forecast", "Get Forecast"])
def test_a_description_that_only_repeats_the_name_is_refused(description: str) -> None:
    spec = FunctionSpec("get_forecast", description)
    message = failure(made_by(lambda: Handwritten([spec])).test_every_function_is_described_for_a_model)
    assert f"function 'get_forecast' is described as '{description}'; write a docstring" in message


class AnyArguments:
    """Arguments whose schema nobody checked."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self.schema = schema

    def validate(self, raw: str | bytes | Mapping[str, Any]) -> dict[str, Any]:
        return dict(raw) if isinstance(raw, Mapping) else {}


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "object", "properties": {"a": {"type": "text"}}}, "not a valid JSON Schema: "),
        ({"type": "string"}, 'must be a JSON Schema with "type": "object"'),
    ],
)
def test_a_schema_that_is_none_is_refused(schema: dict[str, Any], message: str) -> None:
    spec = FunctionSpec("shout", "Say a text loudly.", arguments=AnyArguments(schema))
    with pytest.raises(AssertionError, match=f"function 'shout': the parameters.* {message}"):
        made_by(lambda: Handwritten([spec])).test_every_schema_is_valid()


class Weather(Provider):
    """A good one."""

    @function
    async def forecast(self, city: str, days: int = 1) -> str:
        """Forecast the weather for a city."""
        return f"Sunny in {city} for {days} days."


def test_a_function_without_an_example_says_which_one_to_add() -> None:
    assert failures(contract(Weather)) == {
        "test_every_function_has_an_example_call": (
            "function 'forecast' has required parameters and no example; "
            'add one to TestMine: calls = {"forecast": {"city": …}}'
        )
    }


def test_an_example_for_an_unknown_function_is_refused_with_a_suggestion() -> None:
    calls = {"forecast": {"city": "Berlin"}, "forcast": {"city": "Berlin"}}
    message = failure(contract(Weather, calls).test_every_function_has_an_example_call)
    assert "'forcast', which is not a function of the provider; did you mean 'forecast'?" in message


def test_an_example_that_does_not_fit_is_refused() -> None:
    mine = contract(Weather, {"forecast": {"city": "Berlin", "days": "many"}})
    message = failure(mine.test_every_example_fits_its_schema)
    assert "function 'forecast': its example does not fit; correct TestMine.calls['forecast']" in message
    assert "ended with status 'invalid_arguments'" in failure(mine.test_example_calls_succeed)


class Loose(Settings):
    model_config = ConfigDict(extra="ignore")


class Careless(Provider[Loose]):
    """Takes any setting."""


class Vague(Provider):
    """Refuses without saying what."""

    @classmethod
    @override
    def from_settings(cls, raw: Mapping[str, Any], **options: Any) -> "Vague":
        if raw:
            raise ConfigError("bad settings")
        return cls()


@pytest.mark.parametrize(
    ("provider", "message"),
    [(Careless, "Careless took a setting it does not know"), (Vague, "does not name it: bad settings")],
)
def test_a_setting_that_is_not_known_must_be_refused_by_name(provider: type[Provider[Any]], message: str) -> None:
    assert message in failure(contract(provider).test_an_unknown_setting_is_refused)


def test_a_metric_without_the_prefix_is_refused() -> None:
    class Prefixless(Provider):
        lookups = Counter(full_name="lookups_total", documentation="Lookups.")

    message = failure(contract(Prefixless).test_metrics_are_documented_and_prefixed)
    assert "metric 'lookups' must start with 'antwort_'" in message


def test_a_metric_without_documentation_is_refused() -> None:
    def make() -> FunctionProvider:
        return Handwritten(collectors=[prometheus_client.Gauge("antwort_depth", " ", registry=None)])

    message = failure(made_by(make).test_metrics_are_documented_and_prefixed)
    assert "metric 'antwort_depth' has no documentation" in message


# --- calls and routes ------------------------------------------------------------------------------------------------


def test_a_handler_that_crashes_on_odd_arguments_is_refused() -> None:
    class Fragile(Provider):
        @function
        async def first_word(self, text: str) -> str:
            """Return the first word of a text."""
            return text.split(maxsplit=1)[0]

    message = failure(
        contract(Fragile, {"first_word": {"text": "hello world"}}).test_garbage_is_answered_and_never_raised
    )
    assert "'first_word' crashed with IndexError" in message
    assert "raise FunctionError" in message


def test_an_example_call_that_fails_is_refused_with_its_result() -> None:
    class Broken(Provider):
        @function
        async def lookup(self) -> str:
            """Look something up."""
            raise OSError("no route to host")

    message = failure(contract(Broken).test_example_calls_succeed)
    assert "the example call of 'lookup' ended with status 'error'" in message
    assert "no route to host" in message


def test_a_route_on_a_public_path_of_the_server_is_refused() -> None:
    class Nosy(Provider):
        @route("GET", "/healthz")
        async def health(self) -> str:
            """Tell that all is well."""
            return "ok"

    message = failure(contract(Nosy).test_every_route_needs_credentials)
    assert message.startswith("GET /healthz answered 200, not 401")


def test_a_route_that_crashes_is_refused() -> None:
    class Crashing(Provider):
        @route("GET", "/v1/crashing")
        async def crash(self) -> str:
            """Divide by nothing."""
            return str(1 // 0)

    message = failure(contract(Crashing).test_routes_answer_without_a_crash)
    assert "GET /v1/crashing answered 500" in message


# --- life ------------------------------------------------------------------------------------------------------------


def test_a_task_left_behind_is_named() -> None:
    class Polling(Provider):
        @override
        async def lifespan(self) -> AsyncIterator[None]:
            self.poller = asyncio.create_task(self.poll())
            yield

        async def poll(self) -> None:
            await asyncio.Event().wait()

    message = failure(contract(Polling).test_closing_is_clean_and_may_be_repeated)
    assert "tasks still run after close()" in message
    assert "Polling.poll" in message


@pytest.fixture
def release() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def test_a_thread_left_behind_is_named(release: threading.Event) -> None:
    class Threaded(Provider):
        @override
        async def lifespan(self) -> AsyncIterator[None]:
            threading.Thread(target=release.wait, name="forgotten").start()
            yield

    with pytest.raises(AssertionError, match="thread 'forgotten' still runs after close"):
        contract(Threaded).test_closing_is_clean_and_may_be_repeated()


def test_a_provider_that_cannot_be_closed_twice_is_refused() -> None:
    class Once(Handwritten):
        closed = False

        @override
        async def close(self) -> None:
            if self.closed:
                raise RuntimeError("closed already")
            self.closed = True

    message = failure(made_by(Once).test_closing_is_clean_and_may_be_repeated)
    assert "close() a second time raised RuntimeError('closed already')" in message


def test_a_metric_shared_by_two_instances_is_refused() -> None:
    shared = prometheus_client.Counter("antwort_sharing_calls", "Calls.", registry=None)

    class Sharing(Handwritten):
        @override
        async def execute(self, ctx: Context, call: ToolCall) -> ToolResult:
            shared.inc()
            return ToolResult.of("done")

    message = failure(
        made_by(
            lambda: Sharing([FunctionSpec("act", "Do something.")], (), [shared])
        ).test_two_instances_live_side_by_side
    )
    assert "using one instance changed antwort_sharing_calls_total of another" in message


def test_one_object_for_every_instance_is_refused() -> None:
    only = Handwritten()
    with pytest.raises(AssertionError, match="returned the same provider twice"):
        made_by(lambda: only).test_two_instances_live_side_by_side()


def test_state_that_ends_with_another_instance_is_refused() -> None:
    class Global(Provider):
        open: ClassVar[list[str]] = []

        @override
        async def lifespan(self) -> AsyncIterator[None]:
            self.open.append("connection")
            yield
            self.open.clear()

        @function
        async def lookup(self) -> str:
            """Look something up."""
            return self.open[0]

    message = failure(contract(Global).test_two_instances_live_side_by_side)
    assert "'lookup' failed after another instance was closed" in message


class Gossip(Provider):
    """Has one memory for all tenants."""

    heard = Counter("heard_total", "Things heard.", ["text"])

    def __init__(self, settings: Any = None) -> None:
        super().__init__(settings)
        self.memory: list[str] = []

    @function
    async def tell(self, ctx: Context, text: str) -> str:
        """Remember a text."""
        self.memory.append(f"{ctx.subject}: {text}")
        self.heard.labels(text).inc()
        return "Heard."

    @function
    async def repeat(self) -> list[str]:
        """Repeat what was remembered."""
        return self.memory

    @route("GET", "/v1/gossip")
    async def everything(self) -> str:
        """Repeat everything, loudly."""
        return " ".join(self.memory).upper()


def test_what_leaks_between_tenants_is_found_wherever_it_shows() -> None:
    message = failure(
        contract(Gossip, {"tell": {"text": "I am {canary}"}}).test_nothing_leaks_from_one_tenant_to_another
    )
    assert "shown to tenant 'beta' by function 'repeat', GET /v1/gossip, GET /metrics;" in message
