"""Providers as the registry holds them."""

import asyncio
import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from prometheus_client.registry import Collector
from typing_extensions import override

from antwort.config import ApprovalPolicy
from antwort.context import Context
from antwort.errors import DefinitionError, FunctionError, did_you_mean
from antwort.functions.calls import ToolCall
from antwort.functions.checking import RegisteredCheck
from antwort.functions.entry import RegisteredFunction
from antwort.functions.lifetime import Lifetime
from antwort.functions.output import described
from antwort.functions.provider import FunctionProvider, Provider
from antwort.functions.results import ToolResult
from antwort.functions.slow_watch import SlowWatch
from antwort.functions.spec import Effect, FunctionSpec, Offer
from antwort.functions.switches import SwitchedOff
from antwort.observability import Metrics, Redactor
from antwort.web.routes import Route, Routed, answers_the_same, clashes

CUSTOM = "custom"
"""The provider that functions registered on their own belong to."""


class Registration(Struct, eq=False):
    """A provider as the registry holds it."""

    provider: FunctionProvider
    entries: tuple[RegisteredFunction, ...]
    routes: tuple[Route, ...]
    collectors: tuple[Collector, ...]
    offer: Offer = "always"
    """Whether its functions are offered to every request, once they are found, or only to one that names them."""
    approval: ApprovalPolicy | None = None
    """What the configuration says about the approval of all its calls."""
    checks: tuple[RegisteredCheck, ...] = ()
    found: tuple[RegisteredFunction, ...] = ()
    """Those of its entries that it has found while it was running."""
    enabled: bool = True
    off: SwitchedOff | None = None
    """That an operator has taken it out of service."""
    started: bool = False
    closed: bool = False
    lifetime: Lifetime | None = None
    """From its start on."""

    @property
    def name(self) -> str:
        """The provider's name."""
        return self.provider.name

    @property
    def in_service(self) -> bool:
        """Tell whether neither the program nor an operator has disabled it."""
        return self.enabled and self.off is None

    def lose(self) -> None:
        """Take its functions out of reach: what they need is gone."""
        for entry in self.entries:
            entry.ready = False


class CustomFunctions(FunctionProvider):
    """The implicit provider of functions that were registered on their own."""

    @property
    @override
    def name(self) -> str:
        return CUSTOM

    @override
    def tools(self) -> Sequence[FunctionSpec]:
        return ()

    @override
    def can_execute(self, name: str) -> bool:
        return True

    @override
    async def execute(self, ctx: Context, call: ToolCall) -> ToolResult:
        raise FunctionError(f"{call.name} has no handler.")

    @override
    def routes(self) -> Sequence[Route]:
        return ()

    @override
    def collectors(self) -> Sequence[Collector]:
        return ()

    @override
    async def close(self) -> None:
        """Nothing to give back."""


def ask_provider(
    provider: FunctionProvider, watch: SlowWatch
) -> tuple[tuple[FunctionSpec, ...], tuple[Route, ...], tuple[Collector, ...]]:
    """Ask a provider for its functions, routes and collectors; to end the process is none of the answers."""
    with watch.warn_if_slow(f"provider '{provider.name}': to ask it for its functions and routes"):
        try:
            return tuple(provider.tools()), tuple(provider.routes()), tuple(provider.collectors())
        except (Exception, KeyboardInterrupt):
            raise
        except BaseException as error:
            raise DefinitionError(
                f"provider '{provider.name}' cannot be registered: it wanted to end the process "
                f"({described(error, Redactor())})"
            ) from error


def collect(registration: Registration, metrics: Metrics) -> None:
    """Show a provider's collectors at /metrics: all of them or, on a clash of names, none."""
    with contextlib.ExitStack() as undo:
        for collector in registration.collectors:
            try:
                metrics.register(collector, registration.name)
            except DefinitionError as error:
                raise DefinitionError(f"provider '{registration.name}': {error.message}") from error
            undo.callback(metrics.unregister, collector)
        undo.pop_all()


async def examine(provider: FunctionProvider, redactor: Redactor, patience: float) -> Sequence[str]:
    """Return what a provider that has started finds wrong with what it depends on, a line each."""
    if not isinstance(provider, Provider):
        return ()
    limit = asyncio.timeout(patience)
    try:
        async with limit:
            return [redactor.text(" ".join(problem.split())) for problem in await provider.examine()]
    except Exception as error:  # noqa: BLE001 - whatever it is, the operator is told
        if limit.expired():
            return [f"what it depends on did not answer within {patience:g} seconds"]
        return [f"it could not be examined: {described(error, redactor)}"]


def check_unique(problem: str, names: Sequence[str]) -> None:
    """Raise DefinitionError if a name stands twice in a list."""
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise DefinitionError(f"{problem} called {', '.join(sorted(twice))}")


def conflicts(
    newcomer: str,
    entries: Iterable[RegisteredFunction],
    routes: Iterable[Route],
    names: Mapping[str, RegisteredFunction],
    types: Mapping[str, RegisteredFunction],
    *,
    owned: Sequence[tuple[str, Routed]],
) -> Iterator[str]:
    """Yield a message, naming both sides, for each name, tool type and route that somebody else has already."""
    for entry in entries:
        if first := names.get(entry.spec.name):
            yield _first_wins(f"function '{entry.spec.name}'", first.provider.name, newcomer)
        for tool_type in entry.spec.hosted.types if entry.spec.hosted else ():
            if first := types.get(tool_type):
                yield _first_wins(f"tool type '{tool_type}'", first.provider.name, newcomer)
    for route in routes:
        others = [(owner, known) for owner, known in owned if owner != newcomer and clashes(route, known)]
        if others:
            yield _route_conflict(newcomer, route, others)


def _route_conflict(newcomer: str, route: Route, others: Sequence[tuple[str, Routed]]) -> str:
    """Say once what a route has in common with all that were there before it."""
    owner, known = others[0]
    if len(others) == 1 and answers_the_same(route, known):
        return _first_wins(f"route {route}", owner, newcomer)
    more = f" and {len(others) - 1} more" if len(others) > 1 else ""
    return (
        f"route {route} of '{newcomer}' answers requests that {known.method} {known.path} of '{owner}'{more} was "
        "registered for first; the first one is used"
    )


def _first_wins(what: str, first: str, second: str) -> str:
    return f"{what} is registered by '{first}' and again by '{second}'; the first one, of '{first}', is used"


def approved_specs(specs: Iterable[FunctionSpec], policy: ApprovalPolicy | None, provider: str) -> list[FunctionSpec]:
    """Return functions with what the configuration says about the approval of their calls.

    What it says for all leaves out functions that talk to the user, or end the agent: they do nothing else.
    """
    specs = list(specs)
    if isinstance(policy, Mapping):
        names = [spec.name for spec in specs]
        for name in policy:
            if name not in names:
                hint = did_you_mean(name, names)
                raise DefinitionError(f"approval: provider '{provider}' has no function '{name}'{hint or '.'}")
        return [spec.used_otherwise(approval=policy.get(spec.name)) for spec in specs]
    if policy is None:
        return specs
    return [spec.used_otherwise(approval=policy) if spec.effect is Effect.NONE else spec for spec in specs]
