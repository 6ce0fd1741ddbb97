"""Providers start and close in time, in a task of their own, and never end the process."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import pytest
from typing_extensions import override

from antwort import Antwort, FunctionRegistry
from antwort.config import Config, ProviderConfig
from antwort.errors import ConfigError, DefinitionError
from antwort.functions import Catalogue
from antwort.provider import FunctionProvider, FunctionSpec, Provider, function


class Hanging(Provider):
    """Hangs where it is told to."""

    def __init__(self, where: str, *, stubborn: bool = False) -> None:
        super().__init__()
        self._where = where
        self._stubborn = stubborn

    async def _hang(self) -> None:
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if not self._stubborn:
                    raise

    @override
    async def lifespan(self) -> AsyncIterator[None]:
        if self._where == "start":
            await self._hang()
        yield
        await self._hang()


@pytest.mark.parametrize("stubborn", [False, True])
async def test_a_provider_that_hangs_at_its_start_is_named_and_the_others_are_closed(stubborn: bool) -> None:
    closed: list[str] = []

    class Fine(Provider):
        @override
        async def lifespan(self) -> AsyncIterator[None]:
            yield
            closed.append(self.name)

    registry = FunctionRegistry(start_timeout=0.05, grace=0.01)
    registry.register(Fine())
    registry.register(Hanging("start", stubborn=stubborn))
    with pytest.raises(ConfigError) as found:
        await registry.start()
    assert found.value.message.startswith("providers.hanging did not start within 0.05 seconds")
    assert closed == ["fine"]
    assert asyncio.get_running_loop().get_task_factory() is None


@pytest.mark.parametrize("stubborn", [False, True])
def test_a_provider_that_hangs_at_its_close_is_named_and_does_not_keep_the_loop_from_closing(
    stubborn: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        registry = FunctionRegistry(close_timeout=0.05, grace=0.01)
        registry.register(Hanging("close", stubborn=stubborn))
        async with registry:
            pass

    asyncio.run(main())
    assert "provider 'hanging' did not close within 0.05 seconds" in caplog.text
    assert ("provider hanging does not end; it is left behind" in caplog.text) is stubborn


@pytest.mark.parametrize("code", [0, 3, None])
async def test_an_exit_in_a_lifespan_is_a_failure_to_start(code: int | None) -> None:
    def leave() -> None:
        raise SystemExit(code)

    class Leaving(Provider):
        @override
        async def lifespan(self) -> AsyncIterator[None]:
            leave()
            yield

    registry = FunctionRegistry()
    registry.register(Leaving())
    with pytest.raises(ConfigError, match=r"^providers.leaving could not be started: SystemExit"):
        await registry.start()


async def test_an_exit_at_the_close_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    class Leaving(Provider):
        @override
        async def lifespan(self) -> AsyncIterator[None]:
            yield
            sys.exit(0)

    registry = FunctionRegistry()
    registry.register(Leaving())
    async with registry:
        pass
    assert "provider 'leaving' did not close cleanly" in caplog.text


class Written(FunctionProvider):
    """A provider written by hand that leaves where it is told to."""

    def __init__(self, where: str) -> None:
        self._where = where

    def _answer(self, where: str) -> Sequence[Any]:
        if where == self._where:
            sys.exit(0)
        return ()

    @property
    @override
    def name(self) -> str:
        return "written"

    @override
    def tools(self) -> Sequence[FunctionSpec]:
        return self._answer("tools")

    @override
    def can_execute(self, name: str) -> bool:
        return False

    @override
    async def execute(self, ctx: object, call: object) -> Any:
        raise NotImplementedError

    @override
    def routes(self) -> Sequence[Any]:
        return self._answer("routes")

    @override
    def collectors(self) -> Sequence[Any]:
        return self._answer("collectors")

    @override
    async def close(self) -> None:
        """Nothing to give back."""


@pytest.mark.parametrize("where", ["tools", "routes", "collectors"])
def test_a_provider_that_leaves_when_it_is_asked_is_refused(where: str) -> None:
    with pytest.raises(DefinitionError, match=r"provider 'written' .* wanted to end the process"):
        FunctionRegistry().register(Written(where))

    def factory(_settings: Mapping[str, Any]) -> FunctionProvider:
        return Written(where)

    config = Config.model_validate({"providers": {"written": {"enabled": True}}})
    with pytest.raises(ConfigError, match=r"providers.written: provider 'written' .* wanted to end the process"):
        Antwort(config, factories={"written": factory})


def leaves(_settings: Mapping[str, Any]) -> FunctionProvider:
    """A factory that ends the process."""
    sys.exit(0)


class Constructed(Provider):
    """A provider whose constructor ends the process."""

    def __init__(self, settings: Any = None) -> None:
        super().__init__(settings)
        sys.exit(0)


@pytest.mark.parametrize("target", [leaves, Constructed])
def test_a_factory_or_constructor_that_leaves_is_a_configuration_error(target: Callable[..., Any]) -> None:
    catalogue = Catalogue(factories={"x": target})
    with pytest.raises(ConfigError, match=r"^providers.x: .* cannot be loaded: SystemExit: 0"):
        catalogue.make("x", ProviderConfig(enabled=True))


async def test_a_lifespan_can_hold_a_task_group_and_if_that_fails_the_functions_are_unavailable(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fail = asyncio.Event()

    class Grouped(Provider):
        @override
        async def lifespan(self) -> AsyncIterator[None]:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._work())
                yield

        async def _work(self) -> None:
            await fail.wait()
            sys.exit(3)

        @function
        async def ask(self) -> str:
            """Answer."""
            return "fine"

    registry = FunctionRegistry()
    registry.register(Grouped())
    async with registry:
        assert (await registry.execute("ask", {})).output == "fine"
        fail.set()
        while (result := await registry.execute("ask", {})).status == "success":
            pass
        assert result.status == "unavailable"
    assert "provider 'grouped' has ended before the server" in caplog.text
    assert "SystemExit in a task started by provider grouped" in caplog.text


async def test_a_registry_can_be_started_again_after_its_close() -> None:
    class Counting(Provider):
        starts = 0

        @override
        async def lifespan(self) -> AsyncIterator[None]:
            type(self).starts += 1
            yield

    registry = FunctionRegistry()
    registry.register(Counting())
    for _ in range(2):
        async with registry:
            pass
    assert Counting.starts == 2
