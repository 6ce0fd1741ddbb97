"""References to values in the arguments of calls, and long results that become references."""

import re
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from typing import Any

import msgspec

from antwort.context import Context
from antwort.context.variables import Reference, Variable, Variables
from antwort.errors import FunctionError
from antwort.functions.arguments import parse_object

HEAD, TAIL = 1000, 500
"""Characters of a long result that the model reads at once."""
LONGEST = 25_000_000
"""Characters of a result that are kept."""
_DEEPEST = 50
_ID = re.compile(r"var_[0-9a-f]{48}")


def may_refer(raw: str | bytes | Mapping[str, Any]) -> bool:
    """Tell whether there may be references in arguments."""
    if isinstance(raw, str):
        return "$ref" in raw
    return b"$ref" in raw if isinstance(raw, bytes) else isinstance(raw, Mapping)


async def resolve(
    raw: str | bytes | Mapping[str, Any], ctx: Context, most: int, own: bool | Collection[str] = False
) -> Mapping[str, Any]:
    """Return arguments with values in the place of references; FunctionError if one is out of reach, or too large.

    Below the names in `own`, or everywhere, the function follows references itself: there each is a `Reference`. What a
    value has in it is data, whatever it looks like: nobody has written it here.
    """
    given = parse_object(raw)
    arguments = _Arguments(given, [*given] if own is True else own or (), ctx.references)
    if not arguments.named:
        return arguments.filled({})
    variables = ctx.variables
    found = {name: await variables.find(name) for name in dict.fromkeys(arguments.named)}
    size = sum(found[name].size for name in arguments.named)  # whoever writes the arguments writes each of them
    if size > most:
        raise FunctionError(
            f"The references stand for {size:,} bytes; at most {most:,} can be given to a function. Give it a part."
        )
    return arguments.filled({name: await _loaded(variables, variable) for name, variable in found.items()})


async def _loaded(variables: Variables, variable: Variable) -> Any:
    value = await variables.load(variable)
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise FunctionError(f"'{variable.key}' is binary: it cannot be given to a function.") from None


class _Arguments:
    """Arguments with the references in them. A reference is an object, never a text: texts may be anybody's."""

    def __init__(self, arguments: Mapping[str, Any], own: Collection[str], known: Collection[str] | None) -> None:
        self._arguments = arguments
        self._own = frozenset(own)
        self._known = known
        self.named = list(self._names(arguments, 0))
        """The ids of those whose values are wanted, as often as they are written."""

    def filled(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments with values in the place of references."""
        return {key: self._filled(key, value, values, 0) for key, value in self._arguments.items()}

    def _names(self, value: Any, depth: int) -> Iterator[str]:
        if depth > _DEEPEST:
            return
        if isinstance(value, Mapping):
            name = self._name(value)
            if name is not None and _ID.fullmatch(name):
                yield name
                return
            for key, part in value.items():
                if key not in self._own:
                    yield from self._names(part, depth + 1)
        elif isinstance(value, list):
            for part in value:
                yield from self._names(part, depth + 1)

    def _name(self, value: Mapping[Any, Any]) -> str | None:
        """Return what an object refers to, if it is a reference."""
        name = value.get("$ref") if len(value) == 1 else None
        return name if isinstance(name, str) and (self._known is None or name in self._known) else None

    def _filled(self, key: Any, value: Any, values: Mapping[str, Any], depth: int) -> Any:
        if key in self._own:
            return self._typed(value, depth)
        if depth >= _DEEPEST:
            return value
        if isinstance(value, Mapping):
            name = self._name(value)
            if name is not None and name in values:
                return values[name]
            return {key: self._filled(key, part, values, depth + 1) for key, part in value.items()}
        return [self._filled(None, part, values, depth + 1) for part in value] if isinstance(value, list) else value

    def _typed(self, value: Any, depth: int) -> Any:
        """Return a value with references as such."""
        if depth >= _DEEPEST:
            return value
        if isinstance(value, Mapping):
            name = self._name(value)
            if name is not None:
                return Reference(name)
            return {key: self._typed(part, depth + 1) for key, part in value.items()}
        return [self._typed(part, depth + 1) for part in value] if isinstance(value, list) else value


async def spilled(text: str, ctx: Context, *, is_json: bool) -> str:
    """Keep a long result as a variable of the agent, and return what the model reads instead."""
    key = f"result_{ctx.call_id}"[:200] if ctx.call_id else "result"
    made = await ctx.variables.write(key, _encoded(text), kind="json" if is_json else "text")
    shown = {**made.reference, "size": made.size, "kind": made.kind, "head": text[:HEAD], "tail": text[-TAIL:]}
    return msgspec.json.encode(shown).decode()


async def _encoded(text: str) -> AsyncIterator[bytes]:
    for start in range(0, len(text), 2**16):
        yield text[start : start + 2**16].encode(errors="replace")
