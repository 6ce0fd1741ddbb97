"""`/v1/functions` and `/v1/providers`: what models can call, and the operator's switch."""

from collections.abc import Collection, Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from antwort.context import Context
from antwort.context.context import ADMIN, ADMIN_WRITE, FUNCTIONS_CALL
from antwort.errors import ConflictError, NotFoundError, did_you_mean
from antwort.functions import FunctionRegistry, Provider
from antwort.functions.absent import AbsentProviders
from antwort.functions.entry import RegisteredFunction
from antwort.functions.registration import Registration
from antwort.functions.spec import Effect
from antwort.functions.switches import SwitchedOff, Switches, SwitchKind
from antwort.server.api.description import examples
from antwort.web.routes import Route

_SHOWN = 64
"""Characters of an unknown name that are repeated."""
_MOST_NAMES = 50

Disabled = Annotated[
    SwitchedOff | None, Meta(description="Which switch an operator has turned off, and when; null if none is.")
]


class FunctionInfo(Struct, kw_only=True):
    """A function."""

    object: Literal["function"] = "function"
    name: str
    description: str
    provider: str
    scope: str
    parameters: dict[str, Any]
    tool_types: list[str]
    enabled: bool
    disabled: Disabled


class FunctionList(Struct, kw_only=True):
    """The functions in service, and those that are switched off, in the order of registration."""

    object: Literal["list"] = "list"
    data: list[FunctionInfo]


class ProviderService(Struct, kw_only=True):
    """What a provider depends on, such as an MCP server."""

    name: str
    state: Annotated[Literal["ok", "away"], Meta(description="Whether it could be used when it was asked last.")]
    functions: Annotated[Sequence[str], Meta(description="The functions that come from it.")]


class ProviderInfo(Struct, kw_only=True):
    """A provider and what it brings."""

    object: Literal["provider"] = "provider"
    name: str
    enabled: bool
    disabled: Disabled
    offer: str
    functions: list[str]
    routes: list[str]
    checks: Annotated[list[str], Meta(description="The checks that it makes, with the stage of each.")]
    services: list[ProviderService]


class ProviderList(Struct, kw_only=True):
    """The providers, in the order of registration."""

    object: Literal["list"] = "list"
    data: list[ProviderInfo]


class FunctionEndpoints:
    """The endpoints of functions and providers."""

    def __init__(self, registry: FunctionRegistry, switches: Switches, absent: AbsentProviders) -> None:
        self._registry = registry
        self._switches = switches
        self._absent = absent

    def routes(self) -> list[Route]:
        """Return the routes."""
        provider, function = "/v1/providers/{provider_name}", "/v1/functions/{function_name}"
        return [
            Route("GET", "/v1/functions", self.list_functions, scope=FUNCTIONS_CALL, examples=examples.FUNCTIONS),
            Route("GET", "/v1/providers", self.list_providers, scope=ADMIN, examples=examples.PROVIDERS),
            Route(
                "POST",
                f"{provider}/disable",
                self.disable_provider,
                scope=ADMIN_WRITE,
                examples=examples.DISABLE_PROVIDER,
            ),
            Route(
                "POST",
                f"{provider}/enable",
                self.enable_provider,
                scope=ADMIN_WRITE,
                examples=examples.ENABLE_PROVIDER,
            ),
            Route(
                "POST",
                f"{function}/disable",
                self.disable_function,
                scope=ADMIN_WRITE,
                errors=[ConflictError],
                examples=examples.DISABLE_FUNCTION,
            ),
            Route(
                "POST",
                f"{function}/enable",
                self.enable_function,
                scope=ADMIN_WRITE,
                examples=examples.ENABLE_FUNCTION,
            ),
        ]

    async def list_functions(self) -> FunctionList:
        """List the functions in service, and those that an operator has disabled."""
        entries = (entry for entry in self._registry.entries() if entry.shadowed_by is None)
        return FunctionList(data=[_function(entry) for entry in entries if entry.offered or entry.off is not None])

    async def list_providers(self) -> ProviderList:
        """List the providers, with their states."""
        known = self._registry.registrations()
        others = self._switches.known.providers.keys() - {registration.name for registration in known}
        return ProviderList(data=[*map(_provider, known), *(self._provider_elsewhere(name) for name in sorted(others))])

    async def disable_provider(self, ctx: Context, provider_name: str) -> ProviderInfo:
        """Take a provider out of service, on all servers of the database, until it is enabled again.

        Its functions are not offered any more, and its routes are a 503; calls that are running complete. One that is
        disabled already stays so.
        """
        return await self._switch_provider(ctx, provider_name, enabled=False)

    async def enable_provider(self, ctx: Context, provider_name: str) -> ProviderInfo:
        """Put a provider that was disabled back into service. One that is enabled stays so.

        What the configuration does not enable is not there, and cannot be enabled.
        """
        return await self._switch_provider(ctx, provider_name, enabled=True)

    async def disable_function(self, ctx: Context, function_name: str) -> FunctionInfo:
        """Take one function out of service, on all servers of the database, until it is enabled again."""
        return await self._switch_function(ctx, function_name, enabled=False)

    async def enable_function(self, ctx: Context, function_name: str) -> FunctionInfo:
        """Put a function that was disabled back into service; its provider may be disabled all the same."""
        return await self._switch_function(ctx, function_name, enabled=True)

    async def _switch_provider(self, ctx: Context, name: str, *, enabled: bool) -> ProviderInfo:
        asleep = () if self._absent.asleep is None else self._absent.asleep.names
        known = dict.fromkeys((*self._names(), *asleep))
        if name not in known and name not in self._switches.known.providers:
            raise _unknown("provider", name, known)
        await self._switches.switch("provider", name, ctx, enabled=enabled)
        found = {registration.name: registration for registration in self._registry.registrations()}
        return _provider(found[name]) if name in found else self._provider_elsewhere(name)

    async def _switch_function(self, ctx: Context, name: str, *, enabled: bool) -> FunctionInfo:
        entry = self._function(name)
        if entry is None and name not in self._switches.known.functions:
            raise _unknown("function", name, [entry.spec.name for entry in self._registry.entries()])
        if entry is not None and entry.spec.effect is Effect.END_AGENT and not enabled:
            raise ConflictError(
                f"Sub-agents end by '{name}': it cannot be disabled. Disable the provider '{entry.provider.name}'.",
                param="function_name",
            )
        await self._switches.switch("function", name, ctx, enabled=enabled)
        return _function_elsewhere(name, self._switches) if entry is None else _function(entry)

    def _names(self) -> list[str]:
        return [registration.name for registration in self._registry.registrations()]

    def _function(self, name: str) -> RegisteredFunction | None:
        return next(
            (one for one in self._registry.entries() if one.spec.name == name and one.shadowed_by is None), None
        )

    def _provider_elsewhere(self, name: str) -> ProviderInfo:
        """Return what is known of a provider that sleeps, or that only other servers have."""
        off = self._switches.known.providers.get(name)
        return ProviderInfo(
            name=name,
            enabled=off is None,
            disabled=off,
            offer="always",
            functions=[],
            routes=[],
            checks=[],
            services=[],
        )


def _provider(registration: Registration) -> ProviderInfo:
    return ProviderInfo(
        name=registration.name,
        enabled=registration.in_service,
        disabled=registration.off,
        offer=registration.offer,
        functions=[entry.spec.name for entry in registration.entries if entry.offered],
        routes=[str(route) for route in registration.routes if registration.in_service],
        checks=[str(one) for one in registration.checks if registration.in_service],
        services=_services(registration),
    )


def _services(registration: Registration) -> list[ProviderService]:
    provider = registration.provider
    if not (registration.in_service and registration.started and isinstance(provider, Provider)):
        return []
    functions = provider.service_functions
    return [
        ProviderService(name=name, state="ok" if is_there else "away", functions=functions.get(name, []))
        for name, is_there in provider.service_health.items()
    ]


def _function(entry: RegisteredFunction) -> FunctionInfo:
    return FunctionInfo(
        name=entry.spec.name,
        description=entry.spec.description,
        provider=entry.provider.name,
        scope=entry.spec.scope.value,
        parameters=dict(entry.spec.parameters),
        tool_types=list(entry.spec.hosted.types) if entry.spec.hosted else [],
        enabled=entry.in_service,
        disabled=entry.off,
    )


def _function_elsewhere(name: str, switches: Switches) -> FunctionInfo:
    """Return what is known of a function that only other servers have, or that is not there any more."""
    off = switches.known.functions.get(name)
    return FunctionInfo(
        name=name,
        description="",
        provider="",
        scope="",
        parameters={},
        tool_types=[],
        enabled=off is None,
        disabled=off,
    )


def _unknown(kind: SwitchKind, name: str, known: Collection[str]) -> NotFoundError:
    shown = ", ".join(list(known)[:_MOST_NAMES]) + (", …" if len(known) > _MOST_NAMES else "")
    hint = did_you_mean(name[:_SHOWN], known) or "."
    return NotFoundError(
        f"There is no {kind} '{name[:_SHOWN]}' here{hint} There are: {shown or 'none'}.",
        param=f"{kind}_name",
        code=f"{kind}_not_found",
    )
