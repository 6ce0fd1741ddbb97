"""Providers as the registry holds them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from prometheus_client.registry import Collector
from typing_extensions import override

from antwort.context import Context
from antwort.errors import ConfigError, FunctionError
from antwort.functions.execution import Entry, described
from antwort.functions.provider import FunctionProvider
from antwort.functions.result import ToolCall, ToolResult
from antwort.functions.routes import Route
from antwort.functions.spec import FunctionSpec
from antwort.observability import Redactor

__all__ = ["CUSTOM", "CustomFunctions", "Offer", "Registration", "start_provider"]

Offer = Literal["always", "on_request"]

CUSTOM = "custom"
"""The provider that functions registered on their own belong to."""


@dataclass(slots=True, eq=False)
class Registration:
    """A provider as the registry holds it."""

    provider: FunctionProvider
    entries: tuple[Entry, ...]
    routes: tuple[Route, ...]
    collectors: tuple[Collector, ...]
    offer: Offer = "always"
    """Whether its functions are offered to every request, or only to one that names them."""
    enabled: bool = True
    started: bool = False

    @property
    def name(self) -> str:
        """The provider's name."""
        return self.provider.name


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


async def start_provider(provider: FunctionProvider, redactor: Redactor) -> None:
    """Start a provider that wants to be started; what it raises becomes a ConfigError that names it."""
    start = getattr(provider, "start", None)
    if start is None:
        return
    try:
        await start()
    except ConfigError as error:
        raise ConfigError(f"providers.{provider.name}: {error.message}", where=error.where) from error
    except Exception as error:
        raise ConfigError(f"providers.{provider.name} could not be started: {described(error, redactor)}") from error
