"""What an agent is given to know besides its prompt: short texts as they are, references with size, type and head."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec

from antwort.provider import Context, Field, FunctionError, Reference, Variable
from antwort.providers.sub_agents.references import keep, shown

Given = Annotated[Any, Field(description='Text, {"$ref": id}, or a list or object of them.', default=None)]
_MOST_PARTS = 100


class Contexts:
    """Writes what agents are given into their prompts. One for a call: what many agents share is looked up once."""

    def __init__(self, ctx: Context, *, max_inline: int) -> None:
        self._ctx = ctx
        self._max_inline = max_inline
        self._shown: dict[str, dict[str, Any]] = {}
        self._kept: dict[str, str] = {}

    async def prompt(self, prompt: str, given: Any) -> str:
        """Return a prompt with what is given to an agent that can read references on."""
        parts = [await self._part(name, value) for name, value in _named(given)]
        return "\n\n".join([prompt, *parts])

    async def _part(self, name: str, value: Any) -> str:
        if isinstance(value, Reference):
            reference = value.name
        else:
            text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
            kept = None if len(text) <= self._max_inline else await self._keep(text, value)
            if kept is None:
                return f"{name}:\n{text}"
            reference = kept
        if reference not in self._shown:
            variable = await self._ctx.variables.find(reference)
            self._shown[reference] = await shown(self._ctx, variable)
        return f"{name}, by reference:\n{msgspec.json.encode(self._shown[reference]).decode()}"

    async def _keep(self, text: str, value: Any) -> str | None:
        """Return the reference of a text that is too long for a window, if it can be kept; equal ones are kept once."""
        if text not in self._kept:
            variable = await keep(self._ctx, f"context_{self._ctx.call_id}_{len(self._kept)}", value)
            if variable is None:
                return None
            self._kept[text] = variable.id
        return self._kept[text]


async def read_out(ctx: Context, given: Any, *, most: int) -> str:
    """Return what is given to a model that has no functions: references are read, up to `most` bytes."""
    parts, size = [], 0
    for name, value in _named(given):
        if isinstance(value, Reference):
            variable = await ctx.variables.find(value.name)
            size += variable.size
            if size > most:
                raise FunctionError(
                    f"The context stands for more than {most:,} bytes. Give a part of it, or start an agent that "
                    "reads it in parts."
                )
            value = await _text(ctx, variable)  # noqa: PLW2901 - it stands for it
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        parts.append(f"\n\n{name}:\n{text}")
    return "".join(parts)


async def _text(ctx: Context, variable: Variable) -> str:
    chunks = [chunk async for chunk in ctx.variables.read(variable)]
    return b"".join(chunks).decode(errors="replace")


def _named(given: Any) -> Sequence[tuple[str, Any]]:
    """Return the parts of a context with their names."""
    if given is None:
        return ()
    if not isinstance(given, Mapping | list):
        return (("Context", given),)
    named = list(given.items()) if isinstance(given, Mapping) else [(f"Context {n}", v) for n, v in enumerate(given, 1)]
    if len(named) > _MOST_PARTS:
        raise FunctionError(f"The context has {len(named)} parts; at most {_MOST_PARTS} can be given. Join some.")
    return named
