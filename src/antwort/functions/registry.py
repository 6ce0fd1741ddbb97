"""The registry: every function a model can call, in one place."""

import asyncio
import builtins
import inspect
import logging
import math
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self, cast, overload

from typing_extensions import TypeVar, Unpack, override

from antwort.concurrency.contained_tasks import SpawnedTasks
from antwort.concurrency.slots import Queues
from antwort.concurrency.undisturbed import undisturbed
from antwort.config import ApprovalPolicy
from antwort.config.defaults import FUNCTIONS, FunctionDefaults
from antwort.context import ANONYMOUS_TENANT, Context
from antwort.context.agents import SubAgents
from antwort.context.http_client import HttpClient
from antwort.context.variables import VariableView
from antwort.errors import DefinitionError, UnknownFunctionError, did_you_mean
from antwort.functions.calls import ToolExecutor
from antwort.functions.checking import CheckBook, CheckMaker
from antwort.functions.entry import RegisteredFunction, permits
from antwort.functions.execution import Execution
from antwort.functions.hosted_tool import OpenedTool
from antwort.functions.lifetime import Lifetime, Patience
from antwort.functions.metrics import FunctionMetrics
from antwort.functions.provider import FunctionProvider, Provider, Services, comes_with_antwort, marked_options
from antwort.functions.provider_routes import ProviderRoutes
from antwort.functions.registration import (
    CUSTOM,
    CustomFunctions,
    Registration,
    approved_specs,
    ask_provider,
    check_unique,
    collect,
    conflicts,
)
from antwort.functions.results import ToolResult
from antwort.functions.slow_watch import SlowWatch
from antwort.functions.spec import (
    OFFERS,
    Effect,
    FunctionOptions,
    FunctionSpec,
    Offer,
    Scope,
    Shape,
    check_offer,
    check_options,
    tool_definition,
)
from antwort.functions.switches import NONE_SWITCHED, Switched, SwitchedOff
from antwort.observability import AuditLog, Metrics, Redactor, Tracer
from antwort.web.routes import Route, Routed

logger = logging.getLogger(__name__)

F = TypeVar("F", bound=Callable[..., Any])
Factory = Callable[[Mapping[str, Any]], FunctionProvider]

_MOST_NAMES = 30
_IN_TURN = 1.0
"""Seconds that a provider waits for the close of the one before it."""
API = "antwort"
"""The owner of the API's own routes, in messages."""


class FunctionRegistry(ToolExecutor):
    """Functions and providers, in the order of their registration.

    Of two functions with one name, two hosted tools with one type, or two routes with one path, the first
    registered wins and a warning names both; `strict_names` makes it an error. Use it as an async context manager if
    a provider has a lifespan.
    """

    def __init__(
        self,
        *,
        metrics: Metrics | None = None,
        audit: AuditLog | None = None,
        tracer: Tracer | None = None,
        redactor: Redactor | None = None,
        strict_names: bool = False,
        timeout: float | None = FUNCTIONS.timeout,
        max_output: int = FUNCTIONS.max_output,
        concurrency: int | None = FUNCTIONS.concurrency,
        threads: int = FUNCTIONS.threads,
        grace: float = FUNCTIONS.grace,
        max_hanging: int = FUNCTIONS.max_hanging,
        spill: int | None = FUNCTIONS.spill,
        max_referenced: int = FUNCTIONS.max_referenced,
        start_timeout: float | None = FUNCTIONS.start_timeout,
        close_timeout: float | None = FUNCTIONS.close_timeout,
        http: HttpClient | None = None,
        queues: Queues | None = None,
    ) -> None:
        self.metrics = metrics if metrics is not None else Metrics("library")
        self._redactor = redactor or Redactor()
        self._function_metrics = FunctionMetrics(self.metrics)
        defaults = FunctionDefaults(
            timeout=timeout,
            max_output=max_output,
            spill=spill,
            max_referenced=max_referenced,
            threads=threads,
            grace=grace,
            max_hanging=max_hanging,
            start_timeout=start_timeout,
            close_timeout=close_timeout,
            concurrency=concurrency,
        )
        self._execution = Execution(
            metrics=self._function_metrics,
            audit=audit,
            tracer=tracer,
            redactor=self._redactor,
            defaults=defaults,
            http=http,
            queues=queues or Queues(),
        )
        self.checks = CheckBook()
        """The checks of the providers in service."""
        self._check_maker = CheckMaker(
            self._execution, self._function_metrics, audit, tracer, grace=grace, max_hanging=max_hanging
        )
        self._patience = Patience(start_timeout, close_timeout, grace)
        self._watch = SlowWatch()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._services: Callable[[str], Services] | None = None
        self._strict_names = strict_names
        self._told: set[str] = set()
        self._factories: dict[str, Factory] = {}
        self._registrations: dict[str, Registration] = {}
        self._custom = Registration(CustomFunctions(), (), (), ())
        self._known: builtins.list[RegisteredFunction] = []  # in the order of registration: the first has the name
        self._entries: dict[str, RegisteredFunction] = {}
        self._types: dict[str, RegisteredFunction] = {}
        self._offered: builtins.list[FunctionSpec] = []
        self.tools_version = 0
        """Changes with what is offered."""
        self._switched = NONE_SWITCHED
        self._reserved: tuple[Routed, ...] = ()
        self._http = ProviderRoutes(self._function_metrics, self._execution.threads, http)

    # --- registering -------------------------------------------------------------------------------------------------

    @overload
    def register(self, target: FunctionSpec | Mapping[str, Any], /) -> None: ...
    @overload
    def register(
        self, target: FunctionProvider, /, *, offer: Offer = "always", approval: ApprovalPolicy | None = None
    ) -> None: ...
    @overload
    def register(self, target: F, /, **options: Unpack[FunctionOptions]) -> F: ...
    @overload
    def register(self, /, **options: Unpack[FunctionOptions]) -> Callable[[F], F]: ...
    def register(self, target: Any = None, /, **options: Any) -> Any:
        """Register a provider, a spec, a mapping that describes one, or a function; without any, return a decorator."""
        if target is None:
            check_options(options, FunctionOptions.__annotations__, "register")
            return lambda handler: self.register(handler, **options)
        if isinstance(target, FunctionSpec | Mapping):
            if options:
                raise DefinitionError(f"options ({', '.join(options)}) go into the spec itself")
            self._add_function(target if isinstance(target, FunctionSpec) else FunctionSpec.from_mapping(target))
            return None
        if inspect.isclass(target):
            raise DefinitionError(f"register an object, not the class: {target.__name__}()")
        if isinstance(target, FunctionProvider):
            check_options(options, ("offer", "approval"), f"to register provider '{target.name}'")
            self._add_provider(target, **options)
            return None
        if not callable(target):
            raise DefinitionError(
                f"a {type(target).__name__} cannot be registered; give a function, a FunctionSpec or a provider"
            )
        self._add_function(FunctionSpec.of(target, cast("FunctionOptions", {**marked_options(target), **options})))
        return target

    def register_factory(self, type_name: str, factory: Factory) -> None:
        """Tell how to make a provider of a type out of its raw settings."""
        if type_name in self._factories:
            self._conflict(f"provider type '{type_name}' has two factories; the first one is used")
            return
        self._factories[type_name] = factory

    @property
    def factories(self) -> Mapping[str, Factory]:
        """The factories by provider type."""
        return self._factories

    def unregister(self, name: str) -> None:
        """Remove a function that was registered on its own. A function it had shadowed takes its place."""
        entry = next((entry for entry in self._custom.entries if entry.spec.name == name), None)
        if entry is None:
            if name not in self._entries:
                raise UnknownFunctionError(self._unknown(name))
            provider = self._entries[name].provider.name
            raise UnknownFunctionError(f"'{name}' belongs to provider '{provider}'; disable the provider instead.")
        entry.enabled = False
        self._custom.entries = tuple(kept for kept in self._custom.entries if kept is not entry)
        self._known.remove(entry)
        self._resolve()

    def _add_function(self, spec: FunctionSpec) -> None:
        if spec.handler is None:
            raise DefinitionError(f"function '{spec.name}' has no handler")
        spec.check()
        entry = self._execution.entry(spec, self._custom.provider)
        self._check_conflicts(self._custom, (entry,), ())
        self._custom.entries = (*self._custom.entries, entry)
        self._registrations.setdefault(CUSTOM, self._custom)
        self._take((entry,))

    def _add_provider(
        self, provider: FunctionProvider, offer: Offer = "always", approval: ApprovalPolicy | None = None
    ) -> None:
        if provider.name in self._registrations or provider.name == CUSTOM:
            raise DefinitionError(f"a provider named '{provider.name}' is registered already")
        functions, routes, collectors = ask_provider(provider, self._watch)
        check_offer(offer, provider.name)
        specs = approved_specs(_offered(functions, offer), approval, provider.name)
        entries = self._provider_entries(provider, specs)
        if not comes_with_antwort(provider):
            for route in routes:
                route.check()
        check_unique(f"provider '{provider.name}' has two functions", [spec.name for spec in specs])
        check_unique(f"provider '{provider.name}' has two routes", [route.identity for route in routes])
        policy = None if isinstance(approval, Mapping) else approval
        checks = self._check_maker.checks(provider.checks(), provider.name) if isinstance(provider, Provider) else ()
        registration = Registration(provider, entries, routes, collectors, offer, policy, checks)
        self._check_conflicts(registration, entries, routes)
        collect(registration, self.metrics)
        self._registrations[provider.name] = registration
        self._take(entries)

    def offer(self, name: str, specs: Iterable[FunctionSpec]) -> None:
        """Offer functions of a provider besides those that it was registered with, in the place of earlier such.

        Those that were offered before, as the same objects, stay as they are. Whatever has the name already keeps it.
        """
        registration, found = self._registrations.get(name), list[RegisteredFunction]()
        if registration is None:
            raise DefinitionError(f"provider '{name}' cannot offer functions before it is registered")
        before = {entry.spec: entry for entry in registration.found}
        given = approved_specs(_offered(specs, registration.offer), registration.approval, name)
        for spec in given:
            if spec.handler is None:
                raise DefinitionError(f"function '{spec.name}' has no handler")
            entry = before.get(spec)
            if entry is None:
                spec.check()
                entry = self._execution.entry(spec, registration.provider)
                entry.provider_enabled = registration.enabled
            found.append(entry)
        earlier = set(registration.found)
        own = [entry for entry in registration.entries if entry not in earlier]
        others = [entry for entry in self._known if entry not in earlier]
        for message in conflicts(name, found, (), {entry.spec.name: entry for entry in others}, {}, owned=()):
            if message not in self._told:
                self._told.add(message)
                logger.warning("%s", message)
        for entry in earlier.difference(found):
            entry.enabled = False
        registration.found, registration.entries = tuple(found), (*own, *found)
        self._known = [*others, *found]
        self._resolve()

    def _provider_entries(
        self, provider: FunctionProvider, specs: Sequence[FunctionSpec]
    ) -> tuple[RegisteredFunction, ...]:
        """Return the entries of a provider's functions, which are not ready before it is started."""
        for spec in specs:
            if spec.handler is not None:
                spec.check()
        entries = tuple(self._execution.entry(spec, provider) for spec in specs)
        if isinstance(provider, Provider) and provider.needs_start and not provider.started:
            for entry in entries:
                entry.ready = False
        return entries

    def _check_conflicts(
        self, newcomer: Registration, entries: Iterable[RegisteredFunction], routes: Iterable[Route]
    ) -> None:
        owned = [(API, route) for route in self._reserved]
        owned += [(known.name, route) for known in self._registrations.values() for route in known.routes]
        for message in conflicts(newcomer.name, entries, routes, self._entries, self._types, owned=owned):
            self._conflict(message)

    def reserve(self, routes: Iterable[Routed]) -> None:
        """Name the routes of the API itself: they stand before those of any provider."""
        self._reserved = tuple(routes)
        owned = [(API, route) for route in self._reserved]
        for registration in self._registrations.values():
            for message in conflicts(registration.name, (), registration.routes, {}, {}, owned=owned):
                self._conflict(message)

    def _conflict(self, message: str) -> None:
        if self._strict_names:
            raise DefinitionError(f"{message} (strict_names is on)")
        if message not in self._told:  # routes that are reserved again conflict again
            self._told.add(message)
            logger.warning("%s", message)

    def _take(self, newcomers: Iterable[RegisteredFunction]) -> None:
        """Take functions in behind all others."""
        for entry in newcomers:
            self._known.append(entry)
            self._insert(entry)
        self._announce()

    def _resolve(self) -> None:
        """Work out anew who answers to which name: the first registered, always."""
        self._entries, self._types, self._offered = {}, {}, []
        for entry in self._known:
            self._insert(entry)
        self._announce()

    def _insert(self, entry: RegisteredFunction) -> None:
        entry.off = self._function_off(entry)
        winner = self._entries.setdefault(entry.spec.name, entry)
        entry.shadowed_by = None if winner is entry else winner.provider.name
        if winner is entry and entry.spec.hosted:
            for tool_type in entry.spec.hosted.types:
                self._types.setdefault(tool_type, entry)
        if entry.offered:
            self._offered.append(entry.spec)

    def _announce(self) -> None:
        """Let others see what is offered now."""
        self.tools_version += 1
        for name, registration in self._registrations.items():
            registration.off = self._switched.providers.get(name)
        in_service = [registration for registration in self._registrations.values() if registration.in_service]
        self.checks.hold(check for registration in in_service for check in registration.checks)
        self._http.mount((r.name, r.routes, r.enabled, r.off) for r in self._registrations.values())

    # --- enabling and disabling --------------------------------------------------------------------------------------

    def disable(self, name: str) -> None:
        """Take a provider, or one function, out of service. Running calls complete; no new one is dispatched."""
        self._switch(name, enabled=False)

    def enable(self, name: str) -> None:
        """Put a provider, or one function, back into service."""
        self._switch(name, enabled=True)

    def switch(self, switched: Switched) -> None:
        """Take out of service what an operator has switched off, now or once it is registered, and put the rest back.

        What ends a sub-agent stays: those that are at work need it.
        """
        self._switched = switched
        self._resolve()

    def provider_off(self, name: str) -> SwitchedOff | None:
        """Tell whether an operator has switched a provider off, registered or not."""
        return self._switched.providers.get(name)

    def tool_off(self, tool: str) -> SwitchedOff | None:
        """Tell whether nobody answers a type of hosted tools, or a function's name, as an operator wants it so."""
        entry = self._types.get(tool) or self._entries.get(tool)
        return None if entry is None else entry.off

    def _function_off(self, entry: RegisteredFunction) -> SwitchedOff | None:
        if entry.spec.effect is Effect.END_AGENT:
            return None
        switched = self._switched
        return switched.providers.get(entry.provider.name) or switched.functions.get(entry.spec.name)

    def offer_on_request(self, name: str) -> None:
        """Offer the functions of a provider from now on only to requests that name them."""
        registration = self._registrations[name]
        registration.offer = "on_request"
        for entry in registration.entries:
            entry.spec = entry.spec.used_otherwise(offer="on_request")
        self._resolve()

    def _switch(self, name: str, *, enabled: bool) -> None:
        if registration := self._registrations.get(name):
            registration.enabled = enabled
            for entry in registration.entries:
                entry.provider_enabled = enabled
        elif name in self._entries:
            self._entries[name].enabled = enabled
        else:
            known = (*self._registrations, *self._entries)
            raise UnknownFunctionError(f"There is no provider or function '{name}'{did_you_mean(name, known)}")
        self._resolve()

    # --- looking up --------------------------------------------------------------------------------------------------

    def get(self, name: str) -> FunctionSpec:
        """Return a function by name, or raise UnknownFunctionError."""
        entry = self._entries.get(name)
        if entry is None or not entry.offered:
            raise UnknownFunctionError(self._unknown(name))
        return entry.spec

    def list(self, scope: Scope | str | None = None) -> builtins.list[FunctionSpec]:
        """Return the functions in service, of one scope or all, in the order of registration."""
        if scope is None:
            return self._offered.copy()
        wanted = Scope(scope)
        return [spec for spec in self._offered if spec.scope is wanted]

    def entries(self) -> builtins.list[RegisteredFunction]:
        """Return every function with its state, the disabled and shadowed ones included."""
        return [entry for registration in self._registrations.values() for entry in registration.entries]

    def registrations(self) -> builtins.list[Registration]:
        """Return the providers in the order of their registration."""
        return builtins.list(self._registrations.values())

    def for_tool_type(self, tool_type: str) -> FunctionSpec | None:
        """Return the function that answers a hosted tool type, if one in service does."""
        entry = self._types.get(tool_type)
        return entry.spec if entry is not None and entry.offered else None

    def to_tool_definitions(
        self, shape: Shape = "responses", ctx: Context | None = None
    ) -> builtins.list[dict[str, Any]]:
        """Return the definitions of the functions a model is offered."""
        return [tool_definition(spec, shape) for spec in self.discovered_tools(ctx)]

    @override
    def discovered_tools(self, ctx: Context | None = None) -> builtins.list[FunctionSpec]:
        """Return the functions in service that the context's agent may call, the ones on request included."""
        return [spec for spec in self._offered if ctx is None or permits(spec, ctx.agent)]

    def _unknown(self, name: str, ctx: Context | None = None) -> str:
        offered = [spec.name for spec in self.discovered_tools(ctx)]
        hint = did_you_mean(name[:64], offered) or "."
        shown = ", ".join(offered[:_MOST_NAMES]) + (", …" if len(offered) > _MOST_NAMES else "")
        return f"There is no function '{name[:64]}'{hint} Available: {shown or 'none'}."

    # --- executing ---------------------------------------------------------------------------------------------------

    @override
    def can_execute(self, name: str) -> bool:
        """Tell whether a function of this name is in service and its provider ready for it."""
        entry = self._entries.get(name)
        return entry is not None and entry.offered and entry.ready and entry.provider.can_execute(name)

    @override
    def execute(
        self, name: str, params: str | bytes | Mapping[str, Any], ctx: Context | None = None
    ) -> Coroutine[Any, Any, ToolResult]:
        """Execute a function. A failure of any kind is a result; only the caller's own cancellation is raised."""
        if ctx is None:
            ctx = Context(ANONYMOUS_TENANT)
        entry = self._entries.get(str(name))
        return self._refuse(str(name), ctx) if entry is None else self._execution.run(entry, params, ctx)

    async def _refuse(self, name: str, ctx: Context) -> ToolResult:
        return ToolResult.error(self._unknown(name, ctx), UnknownFunctionError.status)

    async def prepare_tool(
        self, name: str, tool: Mapping[str, Any], items: Iterable[Mapping[str, Any]], ctx: Context
    ) -> Mapping[str, Any]:
        """Let the provider of a function look at a hosted tool that a request names, if it wants to."""
        entry = self._entries.get(name)
        if entry is None or not entry.ready or not isinstance(entry.provider, Provider):
            return tool
        return await entry.provider.prepare_tool(name, tool, items, ctx)

    async def open_tool(
        self, name: str, tool: Mapping[str, Any], items: Iterable[Mapping[str, Any]], ctx: Context
    ) -> OpenedTool:
        """Let the provider of a function say what a hosted tool that a request names stands for."""
        entry = self._entries.get(name)
        if entry is None or not entry.ready or not isinstance(entry.provider, Provider):
            return OpenedTool()
        return await entry.provider.open_tool(name, tool, items, ctx)

    def provider_of(self, name: str) -> str:
        """Return the provider of a function; an empty text if there is no such function."""
        entry = self._entries.get(name)
        return "" if entry is None else entry.provider.name

    def bind(
        self, variables: Callable[[Context], VariableView] | None, agents: Callable[[Context], SubAgents] | None = None
    ) -> None:
        """Offer variables and sub-agents to functions, through the contexts of their calls that have none."""
        self._execution.bind_variables, self._execution.bind_agents = variables, agents

    def http_handler(self) -> ProviderRoutes:
        """Return the ASGI app of all provider routes. It serves only requests that carry an authenticated context."""
        return self._http

    # --- lifetime ----------------------------------------------------------------------------------------------------

    async def start(self, services: Callable[[str], Services] | None = None) -> None:
        """Enter the lifespan of every provider; if one fails, those already started are closed again.

        From here on, tasks that functions and providers start cannot end the process.
        """
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            SpawnedTasks.contain(self._loop)
        self._services = services
        for registration in self._registrations.values():
            if registration.started:
                continue
            if services is not None and isinstance(registration.provider, Provider):
                registration.provider.attach(services(registration.name))
            registration.started, registration.closed = True, False
            registration.lifetime = self._lifetime(registration)
            try:
                await registration.lifetime.start()
            except BaseException:
                registration.started = False
                await self.close()
                raise
            for entry in registration.entries:
                entry.ready = True

    async def start_late(self, provider: FunctionProvider, *, offer: Offer = "always") -> None:
        """Start a provider beside those that run, and register it then; of one that fails nothing is left.

        It has the services that the others were started with.
        """
        if self._services is not None and isinstance(provider, Provider):
            provider.attach(self._services(provider.name))
        lost = partial(self._lose, provider.name)
        lifetime = Lifetime(provider, self._redactor, self._patience, self._watch, lost)
        await lifetime.start()
        try:
            self._add_provider(provider, offer)
        except BaseException:
            await lifetime.close()
            raise
        registration = self._registrations[provider.name]
        registration.started, registration.lifetime = True, lifetime

    def _lose(self, name: str) -> None:
        if registration := self._registrations.get(name):
            registration.lose()

    def _lifetime(self, registration: Registration) -> Lifetime:
        return Lifetime(registration.provider, self._redactor, self._patience, self._watch, registration.lose)

    @override
    async def close(self) -> None:
        """Close every provider, the last registered first. One that fails is logged; the others are still closed.

        The next does not wait long for one that takes its time: together they have as long as each of them has. If
        the caller is cancelled, those that close are, too, and the others have a moment.
        """
        loop, begun = asyncio.get_running_loop(), set()
        started, left = loop.time(), [one for one in self._registrations.values() if not one.closed]
        try:
            while left:
                begun.add(task := loop.create_task(self._close(left.pop(), loop.time() - started)))
                await asyncio.wait({task}, timeout=_IN_TURN)
            if begun:
                await asyncio.wait(begun)
        except asyncio.CancelledError:
            for task in begun:
                task.cancel()
            hurried = (self._close(one, math.inf) for one in reversed(left))
            await undisturbed(asyncio.gather(*begun, *hurried, return_exceptions=True))
            raise
        await self._execution.close()
        contained, self._loop = self._loop, None
        if contained is not None and contained is loop:
            SpawnedTasks.release(contained)

    async def _close(self, registration: Registration, waited: float) -> None:
        registration.started, registration.closed = False, True
        lifetime, registration.lifetime = registration.lifetime or self._lifetime(registration), None
        await lifetime.close(waited)
        if isinstance(registration.provider, Provider) and registration.provider.needs_start:
            registration.lose()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _offered(functions: Iterable[FunctionSpec], offer: Offer) -> list[FunctionSpec]:
    """Return functions as they are offered. What a provider itself offers less often stays so: its author knows why."""
    oftener = OFFERS[: OFFERS.index(offer)]
    return [spec.used_otherwise(offer=offer) if spec.offer in oftener else spec for spec in functions]
