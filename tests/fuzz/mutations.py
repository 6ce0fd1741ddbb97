"""One-field mutations of JSON: each field at every depth becomes something else, is left out, or is there twice."""

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

__all__ = ["STRINGS", "Mutation", "mutations"]

Path = tuple[str | int, ...]

STRINGS = {
    "letter": "x",
    "blank": " ",
    "number": "17",
    "not-a-number": "NaN",
    "null": "null",
    "long": "x" * 5_000,
    "zero-byte": "a\x00b",
    "control": "line\nbreak\r\t\x1b[31m",
    "path": "../../etc/passwd",
    "quotes": "'\"; DROP TABLE responses; --",
    "braces": "{0} %s ${x} {{y}}",
    "unicode": "\u202e\U0001f642\uff46\uff55\uff4c\uff4c e\u0301",
}
_VALUES: dict[str, Any] = {
    "null": None,
    "true": True,
    "false": False,
    "zero": 0,
    "negative": -1,
    "fraction": 3.5,
    "tiny": 5e-324,
    "text": "",
    "list": [],
    "object": {},
    "list-of-null": [None],
    "list-of-numbers": [1, 2.5, -3],
    "object-of-null": {"type": None},
    "object-of-objects": {"type": {"type": {}}, "id": [], "name": {}, "role": []},
}
_RAW = {
    "huge-number": b"1" + b"0" * 400,
    "large-number": b"9223372036854775808",
    "large-negative": b"-9223372036854775809",
    "infinite": b"1e999",
    "no-json": b"NaN",
    "lone-surrogate": b'"\\ud800"',
    "escaped-zero": b'"\\u0000"',
    "bad-utf8": b'"\xff\xfe"',
    "deep-list": b"[" * 300 + b"]" * 300,
    "deep-object": b'{"a":' * 300 + b"1" + b"}" * 300,
    "deeper-list": b"[" * 50_000 + b"]" * 50_000,
    "deepest-object": b'{"type":' * 50_000 + b"1" + b"}" * 50_000,
}
_KNOWN = ("type", "role", "id", "status", "content", "call_id", "name", "output", "encrypted_content", "phase", "text")
"""Fields that mean something in other places."""
_ELEMENTS = 10
"""Elements of a list that are mutated: vectors are long."""
_MARK = "\x00here\x00"
_QUOTED = json.dumps(_MARK).encode()


@dataclass(frozen=True, slots=True)
class Mutation:
    """A body with one thing changed."""

    place: str
    """Where, such as `input[0].role`."""
    kind: str
    make: Callable[[], bytes]
    """Makes the body: there are ten thousands of mutations, and few of them are asked for."""

    @property
    def field(self) -> str:
        """The field of the body that it is in."""
        return self.place.partition(".")[0].partition("[")[0]


def mutations(document: Any) -> Iterator[Mutation]:
    """Yield every mutation of a document."""
    for path in _paths(document):
        place = _shown(path)
        for kind, value in _replacements(_at(document, path)):
            yield Mutation(place, kind, partial(_changed, document, path, value))
        for kind, raw in _RAW.items():
            yield Mutation(place, kind, partial(_changed, document, path, _MARK, raw))
        if path:
            yield Mutation(place, "removed", partial(_changed, document, path[:-1], _without(document, path)))
        for kind, make in _crowded(document, path):
            yield Mutation(place, kind, make)


def _replacements(value: Any) -> Iterator[tuple[str, Any]]:
    yield from _VALUES.items()
    yield from ((f"text-{kind}", text) for kind, text in STRINGS.items())
    yield "in-a-list", [value]
    yield "in-lists", [[[value]]]
    yield "in-an-object", {"value": value}
    yield "in-its-own-name", {"type": value, "id": value}
    if isinstance(value, list) and value:
        yield "twice", [*value, *value]
        yield "many", value * 200
        yield "with-null", [*value, None]
        yield "with-a-list", [*value, value]
    if isinstance(value, dict):
        yield "without-values", dict.fromkeys(value)
    if isinstance(value, str):
        yield "in-capitals", value.upper()
        yield "doubled", value + value
        yield "cut", value[:-1]
    if isinstance(value, int | float) and not isinstance(value, bool):
        yield "as-text", str(value)
        yield "times-a-million", value * 1_000_000


def _crowded(document: Any, path: Path) -> Iterator[tuple[str, Callable[[], bytes]]]:
    """Yield documents with a field too many at a place."""
    value = _at(document, path)
    if not isinstance(value, dict):
        return
    yield "unknown-field", partial(_changed, document, path, {**value, "no_such_field": 1})
    for name in [name for name in _KNOWN if name not in value]:
        for kind, strange in (("object", {}), ("list", [[]]), ("number", 7), ("text", "x")):
            yield f"{name}-of-{kind}", partial(_changed, document, path, {**value, name: strange})
    yield "empty-name", partial(_changed, document, path, {**value, "": ""})
    for name in value:
        inner = json.dumps({name: value[name], _MARK: 1}).encode()
        twice = inner.replace(_QUOTED, json.dumps(name).encode())
        yield f"two-of-{name}", partial(_changed, document, path, _MARK, twice)


def _paths(value: Any, path: Path = ()) -> Iterator[Path]:
    yield path
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _paths(inner, (*path, name))
    elif isinstance(value, list):
        for index, inner in enumerate(value[:_ELEMENTS]):
            yield from _paths(inner, (*path, index))


def _at(document: Any, path: Path) -> Any:
    for step in path:
        document = document[step]
    return document


def _changed(document: Any, path: Path, value: Any, raw: bytes = _QUOTED) -> bytes:
    """Return a document as JSON with another value at a place, and what it has raw where that is marked."""
    return json.dumps(_with(document, path, value)).encode().replace(_QUOTED, raw)


def _with(document: Any, path: Path, value: Any) -> Any:
    if not path:
        return value
    changed = copy.copy(document)
    changed[path[0]] = _with(document[path[0]], path[1:], value)
    return changed


def _without(document: Any, path: Path) -> Any:
    """Return what holds the value at a place, without it."""
    changed = copy.copy(_at(document, path[:-1]))
    del changed[path[-1]]
    return changed


def _shown(path: Path) -> str:
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text
