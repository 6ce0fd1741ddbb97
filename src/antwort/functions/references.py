"""References to values in the arguments of calls, and long results that become references."""

import re
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from antwort.context import Context
from antwort.errors import FunctionError
from antwort.functions.arguments import parse_object
from antwort.run_services import Variable, Variables

HEAD, TAIL = 1000, 500
"""Characters of a long result that the model reads at once."""
LONGEST = 25_000_000
"""Characters of a result that are kept."""
_DEEPEST = 50
_ID = re.compile(r"var_[0-9a-f]{48}")
# Where a schema wants a text, models write the reference as one.
_AS_TEXT = re.compile(r'\s*\{\s*"\$ref"\s*:\s*"(var_[0-9a-f]{48})"\s*\}\s*')


def may_refer(raw: str | bytes | Mapping[str, Any]) -> bool:
    """Tell whether there may be references in arguments."""
    if isinstance(raw, str):
        return "$ref" in raw
    return b"$ref" in raw if isinstance(raw, bytes) else isinstance(raw, Mapping)


async def resolve(raw: str | bytes | Mapping[str, Any], ctx: Context, most: int) -> Mapping[str, Any]:
    """Return arguments with values in the place of references; FunctionError if one is out of reach, or too large."""
    arguments = parse_object(raw)
    named = list(_references(arguments, 0))
    if not named:
        return arguments
    variables = ctx.variables
    found = {name: await variables.find(name) for name in dict.fromkeys(named)}
    size = sum(found[name].size for name in named)  # whoever writes the arguments writes each of them
    if size > most:
        raise FunctionError(
            f"The references stand for {size:,} bytes; at most {most:,} can be given to a function. Give it a part."
        )
    values = {name: await _loaded(variables, variable) for name, variable in found.items()}
    return {key: _filled(value, values, 0) for key, value in arguments.items()}


async def _loaded(variables: Variables, variable: Variable) -> Any:
    value = await variables.load(variable)
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise FunctionError(f"'{variable.key}' is binary: it cannot be given to a function.") from None


def _reference(value: Any) -> str | None:
    """Return the id that a value refers to, if it is a reference."""
    if isinstance(value, str):
        found = _AS_TEXT.fullmatch(value) if "$ref" in value[:20] and len(value) < 100 else None
        return None if found is None else found[1]
    if isinstance(value, Mapping) and len(value) == 1:
        name = value.get("$ref")
        return name if isinstance(name, str) and _ID.fullmatch(name) else None
    return None


def _references(value: Any, depth: int) -> Iterator[str]:
    name = _reference(value)
    if name is not None:
        yield name
    elif depth < _DEEPEST:
        for part in _parts(value):
            yield from _references(part, depth + 1)


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list) else ()


def _filled(value: Any, values: Mapping[str, Any], depth: int) -> Any:
    name = _reference(value)
    if name is not None:
        return values[name]
    if depth >= _DEEPEST:
        return value
    if isinstance(value, Mapping):
        return {key: _filled(part, values, depth + 1) for key, part in value.items()}
    return [_filled(part, values, depth + 1) for part in value] if isinstance(value, list) else value


async def spilled(text: str, ctx: Context, *, is_json: bool) -> str:
    """Keep a long result as a variable of the agent, and return what the model reads instead."""
    key = f"result_{ctx.call_id}"[:200] if ctx.call_id else "result"
    made = await ctx.variables.write(key, _encoded(text), kind="json" if is_json else "text")
    shown = {**made.reference, "size": made.size, "kind": made.kind, "head": text[:HEAD], "tail": text[-TAIL:]}
    return msgspec.json.encode(shown).decode()


async def _encoded(text: str) -> AsyncIterator[bytes]:
    for start in range(0, len(text), 2**16):
        yield text[start : start + 2**16].encode(errors="replace")
