"""Values that are handed on by reference: what stands for one in a window, and what is kept as one."""

from typing import Any

import msgspec

from antwort.provider import Context, FunctionError, Variable

_HEAD = 300
"""Characters of a value that are shown with its reference."""


async def shown(ctx: Context, variable: Variable, *, most: int = _HEAD) -> dict[str, Any]:
    """Return what a model reads of a value that it is not given: its reference, size, type and head."""
    head = b"".join([chunk async for chunk in ctx.variables.read(variable, 0, 4 * most)])
    text = head.decode(errors="ignore")[:most]
    return {**variable.reference, "size": variable.size, "type": variable.kind, "head": text}


async def keep(ctx: Context, key: str, value: Any) -> Variable | None:
    """Keep a value as a variable of the run; None if that cannot be done, or the model could not read it on."""
    if not (ctx.keeps_values and ctx.follows_references):
        return None
    try:
        return await ctx.variables.set(key, value, scope="run")
    except FunctionError:  # there is no room for it
        return None


async def keep_text(ctx: Context, key: str, text: str, most: int, *, is_json: bool = False) -> Any:
    """Return a text, or what a model reads in its place if it is longer: a reference, or what fits of it."""
    variable = None if len(text) <= most else await keep(ctx, key, msgspec.json.decode(text) if is_json else text)
    return cut(text, most) if variable is None else await shown(ctx, variable)


def cut(text: str, most: int) -> str:
    """Return a text without its middle if it is too long, and say so."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half} characters left out …]\n{text[-half:]}"
