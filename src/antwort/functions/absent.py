"""Providers that are not there: some are not enabled, others sleep until somebody uses them."""

import logging
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any

from msgspec import Struct

from antwort.concurrency.single_flight import SingleFlight
from antwort.errors import ConfigError, NotFoundError, ServiceUnavailableError
from antwort.functions.switches import SwitchedOff

logger = logging.getLogger(__name__)


class Declared(Struct, frozen=True):
    """What providers declare to answer, which nobody has to import for it."""

    paths: Mapping[str, str] = {}
    """The first parts of paths, such as `/v1/notes`, each with the name of its provider."""
    tools: Mapping[str, str] = {}
    """Types of hosted tools, each with the name of its provider."""

    def provider_at(self, path: str) -> str | None:
        """Return the provider that has a path, if one has."""
        for prefix, name in self.paths.items():
            if path == prefix or path.startswith(f"{prefix}/"):
                return name
        return None

    def without(self, provider: str) -> "Declared":
        """Return what the others declare."""
        left = [{what: name for what, name in one.items() if name != provider} for one in (self.paths, self.tools)]
        return Declared(*left)


class ProviderAsleepError(Exception):
    """A request needs a provider that sleeps: whoever has `wake` awaited can try again."""

    def __init__(self, wake: Callable[[], Coroutine[Any, Any, None]]) -> None:
        super().__init__()
        self.wake = wake


class SleepingProviders:
    """Providers that are neither imported nor started before somebody uses them, by what they declare to answer.

    `start` starts one, and may raise ConfigError.
    """

    def __init__(self, declared: Declared, start: Callable[[str], Coroutine[Any, Any, None]]) -> None:
        self._declared = declared
        self._start = start
        self._starts: dict[str, SingleFlight[None]] = {}

    @property
    def names(self) -> list[str]:
        """Which ones still sleep."""
        return sorted({*self._declared.paths.values(), *self._declared.tools.values()})

    def with_tool(self, tool: str) -> str | None:
        """Return the provider that has a type of tools, or a function that is called like it, if one has."""
        return self._declared.tools.get(tool)

    @property
    def tools(self) -> list[str]:
        """The types of hosted tools that they have."""
        return list(self._declared.tools)

    def at(self, path: str) -> str | None:
        """Return the provider that has a path, if one has."""
        return self._declared.provider_at(path)

    def check_tool(self, tool: str) -> None:
        """Raise ProviderAsleepError if one of them has a type of tools, or a function that is called like it."""
        if (name := self._declared.tools.get(tool)) is not None:
            raise ProviderAsleepError(partial(self.wake, name))

    async def wake(self, name: str) -> None:
        """Start a provider, once for all who want it now. ServiceUnavailableError if it cannot; the log says why."""
        if name in self.names:
            await self._starts.setdefault(name, SingleFlight(partial(self._wake, name))).outcome()

    async def _wake(self, name: str) -> None:
        try:
            await self._start(name)
        except ConfigError as error:
            logger.error("%s", error)  # noqa: TRY400 - the operator's to mend, no bug of ours
            raise ServiceUnavailableError(
                f"The provider '{name}' cannot be started. The log of the server says why."
            ) from error
        self._declared = self._declared.without(name)

    async def close(self) -> None:
        """Give up what is being started."""
        for start in self._starts.values():
            await start.close()


def _not_off(_: str) -> None:
    """Say that nothing is switched off."""


class AbsentProviders(Struct, frozen=True):
    """What the providers that are not there declare to answer, and what operators have switched off."""

    disabled: Declared = Declared()
    """Installed, and not enabled: who asks for what they have is told so."""
    asleep: SleepingProviders | None = None
    provider_off: Callable[[str], SwitchedOff | None] = _not_off
    """Tells whether a provider is switched off, whether it sleeps or not."""
    tool_off: Callable[[str], SwitchedOff | None] = _not_off
    """Tells whether a type of tools, or a function, of a provider that does not sleep is switched off."""

    def asleep_at(self, path: str) -> Callable[[], Coroutine[Any, Any, None]] | None:
        """Return what wakes the sleeping provider that has a path; None if none has it.

        If it is switched off, a ServiceUnavailableError says so.
        """
        name = None if self.asleep is None else self.asleep.at(path)
        if self.asleep is None or name is None:
            return None
        if (off := self.provider_off(name)) is not None:
            raise off.refusal(path)
        return partial(self.asleep.wake, name)

    def check_tool(self, kind: str) -> None:
        """Raise ProviderAsleepError if a sleeping provider has a type of tools, or a function of that name."""
        if self.asleep is not None and self.why_off(kind) is None:
            self.asleep.check_tool(kind)

    def why_off(self, kind: str) -> SwitchedOff | None:
        """Return why nobody has a type of tools, or a function of that name, if an operator has switched it off."""
        name = None if self.asleep is None else self.asleep.with_tool(kind)
        return self.tool_off(kind) if name is None else self.provider_off(name)

    def no_path(self, path: str) -> NotFoundError | None:
        """Return the error for a path that a provider has that is not enabled; None if none has it."""
        name = self.disabled.provider_at(path)
        if name is None:
            return None
        return NotFoundError(
            f"There is no {path} here, as the provider '{name}' is not enabled. The operator of this server "
            f"can enable it ({_cure(name)}).",
            code="provider_not_enabled",
        )

    def tool_cure(self, kind: str) -> str:
        """Return what an operator can do about a type of tools that nobody has."""
        if (off := self.why_off(kind)) is not None:
            return f"can {off.cure}"
        name = self.disabled.tools.get(kind)
        if name is None:
            return "can enable a provider that has them (`providers` in antwort.yaml, docs/configuration.md)"
        return f"can enable the provider '{name}', which has them ({_cure(name)})"


NONE_ABSENT = AbsentProviders()


def _cure(name: str) -> str:
    return f"`providers.{name}.enabled: true` in antwort.yaml, docs/configuration.md#providers"
