"""Arguments for calls in tests: the author's examples filled in, and the nonsense that models send."""

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["CANARY", "filled", "garbage", "outline"]

CANARY = "{canary}"
"""What an example writes where a text of the tenant's own belongs."""

_NOT_OBJECTS = ("{", "null", "[]", '"text"', "0", "\x00", b"\xff\xfe", "[" * 10_000, '{"a":' * 1_000)
# No huge numbers: a function that counts up to what it is given would take the test run down with it.
_ODD_VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    1.5,
    "",
    " ",
    "\x00",
    "'\"\\{}%s",
    "../..",
    "ü" * 10_000,
    [],
    [None],
    {},
    {"": None},
)


def filled(value: Any, canary: str) -> Any:
    """Return a value with the canary put into every string that asks for it."""
    if isinstance(value, str):
        return value.replace(CANARY, canary)
    if isinstance(value, Mapping):
        return {key: filled(part, canary) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [filled(part, canary) for part in value]
    return value


def garbage(example: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[str | bytes | Mapping[str, Any]]:
    """Yield arguments no sane caller sends: broken JSON, wrong shapes, and the example with one value gone odd."""
    yield from _NOT_OBJECTS
    yield {}
    yield {**example, "no_such_argument": 1}
    for name in schema.get("properties", {}):
        for value in _ODD_VALUES:
            yield {**example, name: value}


def outline(schema: Mapping[str, Any]) -> str:
    """Return an example to be completed, with every required parameter in it."""
    return "{" + ", ".join(f'"{name}": …' for name in schema.get("required", ())) + "}"
