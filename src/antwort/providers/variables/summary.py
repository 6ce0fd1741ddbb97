"""What a value is like, in a few characters and without a model: its size, structure, head and tail."""

from collections.abc import Mapping
from typing import Any

from antwort.provider import LargeWork, LineCounter, Variable, VariableView, scan, text_of
from antwort.providers.variables.json_scanner import JsonScanner, NotJsonError

_SHOWN_NAMES = 30
_SAMPLES = 10
"""Parts of a value that is too large to be read."""


async def summarized(variables: VariableView, variable: Variable, length: int, work: LargeWork) -> Mapping[str, Any]:
    """Return a summary with `length` bytes of the value itself: most of them from its head, the rest from its tail."""
    summary: dict[str, Any] = {"key": variable.key, "kind": variable.kind, "size": variable.size}
    if variable.kind == "bytes":
        head = b"".join([chunk async for chunk in variables.read(variable, 0, 32)])
        return {**summary, "first_bytes": head.hex(" ")}
    if variable.kind == "json":
        summary["structure"] = await _structure(variables, variable, work)
    else:
        counter = LineCounter()
        await scan(variables.read(variable), counter, work)
        summary["lines"] = counter.lines
    split = variable.size if variable.size <= length else length * 2 // 3
    summary["head"] = await _read(variables, variable, 0, split)
    if split < variable.size:
        summary["tail"] = await _read(variables, variable, variable.size - (length - split), length)
    return summary


def instructions(length: int) -> str:
    """Return what a model is told that summarizes a value."""
    return (
        f"Summarize the text in at most {length} characters, for somebody who cannot see it: what it is, how it is "
        "organized, what matters in it. Say nothing that does not stand there."
    )


async def sampled(variables: VariableView, variable: Variable, most: int) -> str:
    """Return a text or, of one with more than `most` bytes, parts from all over it with their positions."""
    if variable.size <= most:
        return await _read(variables, variable, 0, variable.size)
    size, step = most // _SAMPLES, (variable.size - most // _SAMPLES) // (_SAMPLES - 1)
    starts = [number * step for number in range(_SAMPLES)]
    parts = [
        f"[at byte {start:,} of {variable.size:,}]\n{await _read(variables, variable, start, size)}" for start in starts
    ]
    return "\n\n".join(parts)


async def _read(variables: VariableView, variable: Variable, start: int, size: int) -> str:
    end = min(start + size, variable.size)
    data = b"".join([chunk async for chunk in variables.read(variable, start, end)])
    return text_of(data, from_start=start == 0, to_end=end == variable.size)


async def _structure(variables: VariableView, variable: Variable, work: LargeWork) -> str:
    """Tell what a JSON document consists of, without reading it into memory."""
    scanner = JsonScanner(["\0"], 0, counts=True)
    try:
        await scan(variables.read(variable), scanner, work)
    except NotJsonError as error:
        return f"no valid JSON: {error}"
    if scanner.names:
        shown = ", ".join(scanner.names[:_SHOWN_NAMES]) + (", …" if scanner.children > _SHOWN_NAMES else "")
        return f"object with {scanner.children:,} members: {shown}"
    return {"[": f"array of {scanner.children:,}", "{": "empty object"}.get(scanner.first, "a single value")
