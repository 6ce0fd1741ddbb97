"""Values between programs and the world: JSON there, and as much of Python as JSON can say here."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import msgspec

_LONGEST_TRACEBACK = 6000
_TAIL = 4000


def plain(value: Any, references: set[str] | None = None) -> Any:
    """Return a value of a program as JSON has it; variables become references, objects their attributes.

    The ids of the variables are added to `references`: what else looks like one is data that the program has read.
    """
    found = set[str]() if references is None else references
    return msgspec.to_builtins(value, enc_hook=partial(_object, found), str_keys=True)


def _object(references: set[str], value: Any) -> Any:
    """Return what stands for an object of a class that a program knows."""
    attributes = getattr(value, "attributes", None)
    if not isinstance(attributes, Mapping):
        return str(value)
    if getattr(value, "name", "") == "Variable":
        references.add(str(attributes.get("id")))
        return {"$ref": attributes.get("id")}
    return dict(attributes)


def written(value: Any) -> str:
    """Return the value of the last expression of a program, as a model reads it."""
    if isinstance(value, str):
        if value.startswith("<coroutine "):
            return f"{value} (nobody has awaited this call, so it was not made)"
        return value
    try:
        return msgspec.json.encode(plain(value)).decode()
    except (TypeError, ValueError, UnicodeError, RecursionError):
        return repr(value)


def joined(printed: str, result: str) -> str:
    """Return what a program has printed, and what came of it."""
    if not printed:
        return result
    return f"{printed.rstrip()}\n{result}" if result else printed.rstrip()


def shortened(traceback: str) -> str:
    """Return a traceback without its middle, if it is long: what was called first and last tells the cause."""
    if len(traceback) <= _LONGEST_TRACEBACK:
        return traceback
    return f"{traceback[: _LONGEST_TRACEBACK - _TAIL]}\n  …\n{traceback[-_TAIL:]}"
