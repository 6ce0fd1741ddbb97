"""The calls of one program, whichever interpreter it runs in: which there are, how many, and what comes of them."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from antwort.provider import Context, FunctionError, FunctionUnavailableError, did_you_mean, python_name
from antwort.providers.programs.variables import VariableCalls


class Refusal(NamedTuple):
    """Why a call is not made, as the exception that the program gets."""

    exc_type: Literal["NameError", "RuntimeError"]
    message: str


class Calls:
    """Makes the calls of a program, with the rights of its agent and on the one path of execution."""

    def __init__(self, ctx: Context, variables: VariableCalls, *, most: int) -> None:
        self._ctx = ctx
        self._variables = variables.by_name
        self._most = most
        self.functions = {python_name(name): name for name in _callable(ctx)}
        """What the program can call, by the names that it has there."""
        self.made = 0

    @property
    def names(self) -> list[str]:
        """All names that can be called: those of the agent's functions, and of the prelude's."""
        return [*self.functions, *self._variables]

    def refusal(self, name: str) -> Refusal | None:
        """Count a call; return why it is not to be made, if it is not."""
        if name not in self.functions and name not in self._variables:
            hint = did_you_mean(name, self.functions)
            return Refusal("NameError", f"name '{name[:64]}' is not defined{hint}")
        self.made += 1
        if self.made > self._most:
            return Refusal("RuntimeError", f"A program may make {self._most:,} calls.")
        return None

    async def make(
        self,
        key: str,
        name: str,
        positional: Sequence[Any],
        named: Mapping[str, Any],
        references: Collection[str] = (),
    ) -> Any:
        """Make a call; return its value, or raise what the program is to get."""
        own = self._variables.get(name)
        if own is not None:
            try:
                return await own(*positional, **named)
            except (TypeError, ValueError) as error:
                raise FunctionError(f"{name.removeprefix('_variable_')}: {error}") from error
        name = self.functions.get(name, name)
        if positional:
            named = self._bound(name, positional, named)
        result = await self._ctx.calls.call(name, named, key=key, references=references)
        if result.is_error:
            raise FunctionError(result.output)
        return result.value

    def _bound(self, name: str, positional: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        """Return all arguments by name."""
        known = self._ctx.calls.functions.get(name)
        names = [] if known is None else [*known.parameters.get("properties", {})]
        if len(positional) > len(names):
            raise FunctionError(f"{name} takes {len(names)} arguments: {', '.join(names)}")
        return {**dict(zip(names, positional, strict=False)), **named}


def _callable(ctx: Context) -> list[str]:
    try:
        return [*ctx.calls.functions]
    except FunctionUnavailableError:  # outside of a response there are none
        return []
