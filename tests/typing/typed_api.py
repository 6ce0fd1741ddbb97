"""What the types promise to authors of functions and providers. mypy reads this file; nothing runs it.

`assert_type` says what a name is. A line with `# type: ignore[...]` is a mistake that must be noticed: mypy is strict,
and an ignored error that does not come is an error itself.
"""

from collections.abc import AsyncIterator
from typing import assert_type

from pydantic import Field
from typing_extensions import override

from antwort import FunctionRegistry
from antwort.provider import Context, FunctionProvider, FunctionSpec, Provider, Services, Settings, function, route


class Limits(Settings):
    most: int = Field(default=3, description="The most.")


class Dice(Provider[Limits]):
    """Rolls dice."""

    @function
    def roll(self, sides: int = 6) -> int:
        """Roll a die."""
        return min(sides, self.settings.most)

    @function(timeout=5, effect="read", scope="core")
    async def roll_slowly(self, ctx: Context, sides: int = 6) -> str:
        """Roll a die after a while."""
        return f"{sides} for {ctx.tenant}"

    @route("GET", "/rolls")
    async def rolls(self) -> list[int]:
        """List rolls."""
        return []

    @override
    async def lifespan(self) -> AsyncIterator[None]:
        yield


class Plain(Provider):
    """Has no settings."""


def add(a: int, b: int) -> int:
    """Add."""
    return a + b


async def later(text: str) -> str:
    """Return a text."""
    return text


def marked_functions_stay_what_they_are(dice: Dice) -> None:
    assert_type(dice.roll(20), int)
    assert_type(function(add)(1, 2), int)
    assert_type(function(name="plus")(add)(1, 2), int)
    dice.roll("many")  # type: ignore[arg-type]
    dice.roll(faces=6)  # type: ignore[call-arg]


async def coroutines_stay_coroutines(dice: Dice, ctx: Context) -> None:
    assert_type(await dice.roll_slowly(ctx), str)
    assert_type(await function(later)("a"), str)


def options_of_functions_are_known() -> None:
    function(timeot=5)  # type: ignore[call-overload]
    function(timeout="5s")  # type: ignore[call-overload]
    function(idempotent="yes")  # type: ignore[call-overload]
    function(offer="sometimes")  # type: ignore[call-overload]
    function("add")  # type: ignore[call-overload]
    route("GET", "/rolls", status="200")  # type: ignore[arg-type]
    route("GET")  # type: ignore[call-arg]


def settings_are_those_of_the_provider(dice: Dice, plain: Plain) -> None:
    assert_type(dice.settings, Limits)
    assert_type(dice.settings.most, int)
    assert_type(dice.services, Services)
    assert_type(Dice.from_settings({}), Dice)
    Dice(Limits(most=4))
    Dice({"most": 4})  # type: ignore[arg-type]
    Limits(least=1)  # type: ignore[call-arg]
    Limits(most="many")  # type: ignore[arg-type]
    dice.settings.least  # type: ignore[attr-defined]  # noqa: B018
    plain.settings.most  # type: ignore[attr-defined]  # noqa: B018


def settings_of_a_provider_are_settings() -> None:
    class _Wrong(Provider[int]):  # type: ignore[type-var]
        pass


def what_is_final_is_not_overridden() -> None:
    class _Wrong(Provider):
        @override  # type: ignore[misc]
        async def close(self) -> None:
            pass


def a_provider_is_one_by_its_methods(dice: Dice) -> FunctionProvider:
    return dice


async def register_returns_what_it_takes(registry: FunctionRegistry, spec: FunctionSpec, dice: Dice) -> None:
    assert_type(registry.register(add)(1, 2), int)
    assert_type(registry.register(add, name="plus")(1, 2), int)

    @registry.register
    def double(number: int) -> int:
        """Double."""
        return 2 * number

    @registry.register(name="half", timeout=1.5)
    async def halve(number: int) -> float:
        """Halve."""
        return number / 2

    assert_type(double(2), int)
    assert_type(await halve(2), float)
    await halve("2")  # type: ignore[arg-type]
    registry.register(spec)
    registry.register(dice, offer="on_request")
    registry.register(dice, offer="sometimes")  # type: ignore[call-overload]
    registry.register(add, nam="plus")  # type: ignore[call-overload]
    registry.register(add, timeout="1s")  # type: ignore[call-overload]
    registry.register(3)  # type: ignore[call-overload]
