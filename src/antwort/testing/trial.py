"""A provider on trial: alone in a served app, used by two tenants, with the author's examples and with nonsense."""

import contextlib
import logging
import secrets
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from pydantic import SecretStr
from typing_extensions import override

from antwort.app import Antwort
from antwort.config import ApiKeyConfig, AuthConfig, Config, ObservabilityConfig
from antwort.context import Agent, Context
from antwort.context.budget import RunLimits
from antwort.engine.budget import Budget
from antwort.functions import FunctionProvider, FunctionSpec, ToolResult, execution
from antwort.observability.watchdog import LAG
from antwort.testing.apps import Answer, ServedApp, served
from antwort.testing.trial_agents import TrialAgents

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
