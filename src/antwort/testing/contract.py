"""What every provider must hold to, as tests an author inherits."""

import asyncio
import contextlib
import logging
import re
import secrets
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import jsonschema_rs
from pydantic import SecretStr
from typing_extensions import override

from antwort.app import Antwort
from antwort.config import ApiKeyConfig, AuthConfig, Config, ObservabilityConfig
from antwort.context import Agent, Context
from antwort.context.agents import AgentInfo, AgentResult, AgentTask, RunLimits, SubAgents
from antwort.engine.budget import Budget
from antwort.errors import ConfigError, InvalidArgumentsError, did_you_mean
from antwort.functions import FunctionProvider, FunctionSpec, Provider, ToolResult, execution
from antwort.functions.signature import strict_schema
from antwort.observability.watchdog import LAG
from antwort.testing.apps import Answer, ServedApp, served
from antwort.web.routes import Route
from antwort.wire.ids import new_id

# --- a provider on trial: alone in a served app, used by two tenants -------------------------------------------------


CANARY = "{canary}"
"""What an example writes where a text of the tenant's own belongs."""

_NOT_OBJECTS = ("{", "null", "[]", '"text"', "0", "\x00", b"\xff\xfe", "[" * 10_000, '{"a":' * 1_000)
# No huge numbers: a function that counts up to what it is given would take the test run down with it.
_ODD_VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    1.5,
    "",
    " ",
    "\x00",
    "'\"\\{}%s",
    "../..",
    "ü" * 10_000,
    [],
    [None],
    {},
    {"": None},
)
ALPHA = "alpha"
BETA = "beta"
_KEYS = {tenant: f"key-of-{tenant}" for tenant in (ALPHA, BETA)}
Calls = Mapping[str, Mapping[str, Any]]
"""Example arguments by function name."""


def filled(value: Any, canary: str) -> Any:
    """Return a value with the canary put into every string that asks for it."""
    if isinstance(value, str):
        return value.replace(CANARY, canary)
    if isinstance(value, Mapping):
        return {key: filled(part, canary) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [filled(part, canary) for part in value]
    return value


def garbage(example: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[str | bytes | Mapping[str, Any]]:
    """Yield arguments no sane caller sends: broken JSON, wrong shapes, and the example with one value gone odd."""
    yield from _NOT_OBJECTS
    yield {}
    yield {**example, "no_such_argument": 1}
    for name in schema.get("properties", {}):
        for value in _ODD_VALUES:
            yield {**example, name: value}


def outline(schema: Mapping[str, Any]) -> str:
    """Return an example to be completed, with every required parameter in it."""
    return "{" + ", ".join(f'"{name}": …' for name in schema.get("required", ())) + "}"


def new_canary() -> str:
    """Return a text that appears nowhere else; lower case, so that it is found in any case."""
    return f"canary{secrets.token_hex(4)}"


def examples(
    provider: FunctionProvider, calls: Calls, canary: str = "canary"
) -> list[tuple[FunctionSpec, dict[str, Any]]]:
    """Return the functions that can be called, with their arguments: those in `calls` first and in its order."""
    specs = {spec.name: spec for spec in provider.tools()}
    known = {name: arguments for name, arguments in calls.items() if name in specs}
    for name, spec in specs.items():
        if not spec.parameters.get("required"):
            known.setdefault(name, {})
    return [(specs[name], filled(arguments, canary)) for name, arguments in known.items()]


def context(spec: FunctionSpec, tenant: str, canary: str = "") -> Context:
    """Return a context in which a function may be called; the subject carries the canary."""
    agent = Agent(min(spec.agents)) if spec.agents else Agent()
    subject, budget = f"{tenant}{canary}", Budget(RunLimits())
    return Context(tenant, subject=subject, scopes=frozenset({"*"}), agent=agent, budget=budget)


@dataclass(frozen=True, slots=True)
class Trial:
    """A provider that is being served."""

    provider: FunctionProvider
    calls: Calls
    app: ServedApp

    def call_all(self, tenant: str, canary: str) -> list[tuple[str, ToolResult]]:
        """Call every function that has an example, and return the results by function name."""
        return [
            (spec.name, self.app.call(spec.name, arguments, context(spec, tenant, canary)))
            for spec, arguments in examples(self.provider, self.calls, canary)
        ]

    def get_all(self, tenant: str) -> list[tuple[str, Answer]]:
        """Request every GET route that needs nothing but credentials, and return the answers by path."""
        paths = [r.path for r in self.provider.routes() if r.method == "GET" and not r.path_parameters]
        return [(path, self.app.get(path, key=_KEYS[tenant])) for path in paths]

    def counts(self) -> dict[str, float]:
        """Return the counters and histograms of the app, but for what changes by itself: gauges, the loop's lag."""
        return {
            f"{sample.name}{sample.labels or ''}": sample.value
            for family in self.app.app.metrics.registry.collect()
            if family.name.startswith("antwort_") and family.name != LAG
            if family.type in {"counter", "histogram", "summary"}
            for sample in family.samples
            if not sample.name.endswith("_created")
        }


@contextlib.asynccontextmanager
async def alone(provider: FunctionProvider) -> AsyncIterator[Antwort]:
    """Give an app that has a provider and nothing else, and is not served."""
    with tempfile.TemporaryDirectory() as folder:
        async with Antwort(Config(data_dir=Path(folder), providers={}), providers=[provider]) as app:
            _give_agents(app)
            yield app


def _give_agents(app: Antwort) -> None:
    """Let functions have sub-agents although their calls belong to no response."""
    app.registry.bind(app.values.of, lambda _: TrialAgents())


@contextlib.contextmanager
def trial(provider: FunctionProvider, calls: Calls) -> Iterator[Trial]:
    """Serve a provider alone, to tenants that have an API key each."""
    keys = [ApiKeyConfig(id=tenant, key=SecretStr(key), tenant=tenant) for tenant, key in _KEYS.items()]
    with tempfile.TemporaryDirectory() as folder:
        config = Config(
            data_dir=Path(folder),
            auth=AuthConfig(mode="required", api_keys=keys),
            observability=ObservabilityConfig(access_log=False),
            providers={},
        )
        with served(config, providers=[provider]) as app:
            _give_agents(app.app)
            yield Trial(provider, calls, app)


class Crashes(logging.Handler):
    """Collects, while its block runs, the exceptions of functions that were no answer to the model.

    A result does not tell a crash from a FunctionError; the log of the execution does.
    """

    def __init__(self) -> None:
        super().__init__()
        self.found: list[BaseException] = []
        self._source = logging.getLogger(execution.__name__)

    @override
    def emit(self, record: logging.LogRecord) -> None:
        """Keep the exception of a log record."""
        if record.exc_info is not None and record.exc_info[1] is not None:
            self.found.append(record.exc_info[1])

    def __enter__(self) -> Self:
        self._source.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._source.removeHandler(self)


# --- sub-agents -------------------------------------------------------------------------------------------------------


class TrialAgents(SubAgents):
    """Agents for functions that are called outside of a run."""

    @override
    def check_model(self, model: str) -> None:
        """Let any be chosen."""

    @override
    async def run_all(self, tasks: Sequence[AgentTask]) -> list[AgentResult]:
        """Return the prompts as answers."""
        ids = [task.continues or new_id("resp") for task in tasks]
        return [AgentResult(name, name, "completed", task.prompt) for name, task in zip(ids, tasks, strict=True)]

    @override
    async def start(self, tasks: Sequence[AgentTask]) -> list[str]:
        """Return new ids."""
        return [result.id for result in await self.run_all(tasks)]

    @override
    async def wait(self, ids: Sequence[str], *, seconds: float | None = None) -> list[AgentResult]:
        """Tell that all are done."""
        return [AgentResult(name, name, "completed", "Done.") for name in ids]

    @override
    async def interrupt(self, agent_id: str) -> AgentResult:
        """Tell that it is interrupted."""
        return AgentResult(agent_id, agent_id, "cancelled")

    @override
    async def close(self, agent_id: str) -> AgentResult:
        """Tell that it is closed."""
        return await self.interrupt(agent_id)

    @override
    async def list(self) -> Sequence[AgentInfo]:
        """Return none: all are done and forgotten."""
        return []


# --- the contract ----------------------------------------------------------------------------------------------------


_MEMBERS = ("name", "tools", "can_execute", "execute", "routes", "collectors", "close")
_PATH_VALUES = {"int": "1", "float": "1.5", "uuid": "00000000-0000-0000-0000-000000000000"}
_TURNS = 10
"""Turns of the event loop that cancelled tasks get to end."""
_JOIN = 1.0
"""Seconds that a thread that was told to stop gets to end."""


class ProviderContract:
    """The tests every provider passes.

    Subclass it in a test module and say which provider:

        class TestWeather(ProviderContract):
            provider = Weather
            settings = {"units": "metric"}
            calls = {"forecast": {"city": "Berlin"}}

    `calls` has example arguments for each function; they are called in this order, so that one may read what another
    wrote. Where a string has `{canary}` in it, the test that watches for leaks between tenants puts a text of the
    tenant's own: write it wherever the function keeps or repeats what it was given.
    """

    provider: ClassVar[type[Provider[Any]] | None] = None
    settings: ClassVar[Mapping[str, Any]] = {}
    calls: ClassVar[Calls] = {}

    def make(self) -> FunctionProvider:
        """Return a new provider. Override it for a provider that is not built from `settings`."""
        assert self.provider is not None, (
            f"{type(self).__name__} does not say what to test: set `provider = YourProvider`, or override make()"
        )
        return self.provider.from_settings(self.settings)

    # --- the definition ----------------------------------------------------------------------------------------------

    def test_it_fits_the_protocol(self) -> None:
        """It has every member of FunctionProvider, and its lists hold what they should."""
        provider: object = self.make()
        missing = [member for member in _MEMBERS if not hasattr(provider, member)]
        assert not missing, f"{type(provider).__name__} lacks {', '.join(missing)}; subclass Provider, or add them"
        assert isinstance(provider, FunctionProvider)
        for spec in provider.tools():
            assert isinstance(spec, FunctionSpec), f"tools() returned {spec!r}; it must return FunctionSpec objects"
        for route in provider.routes():
            assert isinstance(route, Route), f"routes() returned {route!r}; it must return Route objects"
        for collector in provider.collectors():
            assert hasattr(collector, "collect"), f"collectors() returned {collector!r}, which has no collect()"

    def test_every_function_is_described_for_a_model(self) -> None:
        """Names are unique, and a description says more than the name."""
        specs = self.make().tools()
        names = [spec.name for spec in specs]
        twice = sorted({name for name in names if names.count(name) > 1})
        assert not twice, f"several functions are called {', '.join(twice)}; rename all but one of each"
        for spec in specs:
            assert _says_more(spec.description, spec.name), (
                f"function '{spec.name}' is described as '{spec.description}'; "
                "write a docstring that tells a model what it does and when to use it"
            )

    def test_every_schema_is_valid(self) -> None:
        """The parameters are a JSON Schema of an object, and have a strict form or none."""
        for spec in self.make().tools():
            schema = dict(spec.parameters)
            assert schema.get("type") == "object", (
                f'function \'{spec.name}\': the parameters must be a JSON Schema with "type": "object"'
            )
            with _explained(f"function '{spec.name}': the parameters are not a valid JSON Schema"):
                jsonschema_rs.meta.validate(schema)
            strict = strict_schema(schema)
            if strict is not None:
                with _explained(f"function '{spec.name}': the strict form of its parameters is not valid"):
                    jsonschema_rs.meta.validate(strict)

    def test_every_function_has_an_example_call(self) -> None:
        """Functions with required parameters are in `calls`, and nothing else is."""
        specs = {spec.name: spec for spec in self.make().tools()}
        where = type(self).__name__
        for name in self.calls:
            assert name in specs, (
                f"{where}.calls has an example for '{name}', which is not a function of the provider"
                f"{did_you_mean(name, specs)}; its functions are {', '.join(specs) or '(none)'}"
            )
        for name, spec in specs.items():
            assert name in self.calls or not spec.parameters.get("required"), (
                f"function '{name}' has required parameters and no example; "
                f'add one to {where}: calls = {{"{name}": {outline(spec.parameters)}}}'
            )

    def test_every_example_fits_its_schema(self) -> None:
        """The schema a model reads and the check of the arguments both accept the example."""
        for spec, arguments in examples(self.make(), self.calls):
            cure = f"correct {type(self).__name__}.calls['{spec.name}'] or the function's type hints"
            with _explained(f"function '{spec.name}': its example does not fit; {cure}"):
                jsonschema_rs.validate(dict(spec.parameters), arguments)
                spec.arguments.validate(arguments)

    def test_an_unknown_setting_is_refused(self) -> None:
        """A mistyped setting stops the start and is named."""
        if self.provider is None:
            return  # a provider that is not built from settings
        try:
            self.provider.from_settings({**self.settings, "no_such_setting": 1})
        except ConfigError as error:
            message = str(error)
        else:
            raise AssertionError(
                f"{self.provider.__name__} took a setting it does not know; "
                "its settings must be a subclass of antwort.provider.Settings that forbids extra keys"
            )
        assert "no_such_setting" in message, f"the error for an unknown setting does not name it: {message}"

    def test_metrics_are_documented_and_prefixed(self) -> None:
        """Every metric starts with `antwort_` and says what it counts."""
        for collector in self.make().collectors():
            for family in collector.collect():
                assert family.name.startswith("antwort_"), (
                    f"metric '{family.name}' must start with 'antwort_'; give only the last part of the name, as in "
                    'Counter("lookups_total", "…"), and the prefix is added'
                )
                assert family.documentation.strip(), f"metric '{family.name}' has no documentation; write one sentence"

    # --- calls -------------------------------------------------------------------------------------------------------

    def test_example_calls_succeed(self) -> None:
        """Every example, executed by a registry, gives a result."""
        with trial(self.make(), self.calls) as tried:
            for name, result in tried.call_all(ALPHA, new_canary()):
                assert result.status == "success", (
                    f"the example call of '{name}' ended with status '{result.status}': {result.output}; "
                    f"correct {type(self).__name__}.calls['{name}'] or the function"
                )

    def test_garbage_is_answered_and_never_raised(self) -> None:
        """Whatever the arguments, a call gives a result; what reaches the handler does not crash it."""
        with trial(self.make(), self.calls) as tried, Crashes() as crashes:
            for spec, example in examples(tried.provider, self.calls):
                for arguments in garbage(example, spec.parameters):
                    shown = repr(arguments)[:200]
                    try:
                        tried.app.call(spec.name, arguments, context(spec, ALPHA))
                    except Exception as error:
                        raise AssertionError(f"'{spec.name}' raised {error!r} when called with {shown}") from error
                    assert not crashes.found, (
                        f"'{spec.name}' crashed with {crashes.found[0]!r} when called with {shown}; narrow the type "
                        "of the parameter, or raise FunctionError with a message that helps a model"
                    )

    # --- routes ------------------------------------------------------------------------------------------------------

    def test_every_route_needs_credentials(self) -> None:
        """Without an API key, or with a wrong one, the answer is 401."""
        with trial(self.make(), self.calls) as tried:
            for route in tried.provider.routes():
                path = _concrete(route.path)
                for key in (None, "not-a-key"):
                    status = tried.app.request(route.method, path, key=key).status
                    assert status == 401, (
                        f"{route} answered {status}, not 401, to a request without credentials; "
                        "choose a path that the server does not answer itself"
                    )

    def test_routes_answer_without_a_crash(self) -> None:
        """A GET route without path parameters never answers 500."""
        with trial(self.make(), self.calls) as tried:
            for path, answer in tried.get_all(ALPHA):
                assert answer.status != 500, (
                    f"GET {path} answered 500; the captured log has the traceback; raise an APIError, "
                    "such as NotFoundError, for what may go wrong"
                )

    # --- life --------------------------------------------------------------------------------------------------------

    def test_closing_is_clean_and_may_be_repeated(self) -> None:
        """Nothing is left running: no task, no thread. Closing again, or before the start, does nothing."""
        before = set(threading.enumerate())
        asyncio.run(self._open_and_close())
        for thread in set(threading.enumerate()) - before:
            if not thread.daemon:
                thread.join(_JOIN)
                assert not thread.is_alive(), (
                    f"thread '{thread.name}' still runs after close(); stop and join it at the end of lifespan()"
                )

    async def _open_and_close(self) -> None:
        await _close(self.make(), "before it was started")
        provider = self.make()
        others = asyncio.all_tasks()
        async with alone(provider) as app:
            for spec, arguments in examples(provider, self.calls):
                await app.registry.execute(spec.name, arguments, context(spec, ALPHA))
            await _close(provider, "after it was used")
            await _close(provider, "a second time")
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        left = ", ".join(str(task.get_coro()) for task in asyncio.all_tasks() - others)
        assert not left, f"tasks still run after close(): {left}; cancel and await them at the end of lifespan()"

    def test_two_instances_live_side_by_side(self) -> None:
        """Two apps in one process share no metric, and closing one leaves the other in service."""
        one, other = self.make(), self.make()
        assert one is not other, "make() returned the same provider twice; it must build a new one"
        with trial(other, self.calls) as second:
            before = second.counts()
            with trial(one, self.calls) as first:
                first.call_all(ALPHA, new_canary())
                first.get_all(ALPHA)
                changed = [name for name, value in second.counts().items() if value != before.get(name)]
                assert not changed, (
                    f"using one instance changed {', '.join(changed)} of another; "
                    "declare metrics on the class with antwort.provider.Counter, or create them per object"
                )
            for name, result in second.call_all(ALPHA, new_canary()):
                assert result.status == "success", (
                    f"'{name}' failed after another instance was closed: {result.output}; "
                    "keep state on the object, not on the class or the module"
                )

    def test_nothing_leaks_from_one_tenant_to_another(self) -> None:
        """What one tenant gave to a function is never shown to another, nor in the metrics."""
        canary = new_canary()
        with trial(self.make(), self.calls) as tried:
            tried.call_all(ALPHA, canary)
            shown = {f"function '{name}'": result.output for name, result in tried.call_all(BETA, new_canary())}
            shown |= {f"GET {path}": answer.text for path, answer in tried.get_all(BETA)}
            shown["GET /metrics"] = tried.app.get("/metrics").text
        leaks = [where for where, text in shown.items() if canary in text.lower()]
        assert not leaks, (
            f"what tenant '{ALPHA}' gave is shown to tenant '{BETA}' by {', '.join(leaks)}; "
            "keep state by ctx.tenant, and arguments out of the labels of metrics"
        )


def _says_more(description: str, name: str) -> bool:
    words = re.findall(r"[^\W_]+", description.lower())
    return len(words) > 1 and "".join(words) != re.sub(r"[\W_]", "", name).lower()


@contextlib.contextmanager
def _explained(what: str) -> Iterator[None]:
    """Turn what a validator raises into a failure that says what to do."""
    try:
        yield
    except (jsonschema_rs.ValidationError, InvalidArgumentsError) as error:
        raise AssertionError(f"{what}: {str(error).splitlines()[0]}") from error


async def _close(provider: FunctionProvider, when: str) -> None:
    try:
        await provider.close()
    except Exception as error:
        raise AssertionError(f"close() {when} raised {error!r}; it must do nothing if there is nothing open") from error


def _concrete(path: str) -> str:
    """Return a path that fits a pattern."""
    return re.sub(r"\{[^}:]+:?([^}]*)\}", lambda found: _PATH_VALUES.get(found[1], "x"), path)
