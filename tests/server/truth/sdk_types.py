"""Requests made of the types of OpenAI's SDK: each field with a legal value, with null, and with wrong ones."""

import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NotRequired, Required, Union, get_args, get_origin

from typing_extensions import ReadOnly, get_type_hints, is_typeddict

__all__ = ["Case", "Maker"]

Put = Callable[[Any], Any]
"""Makes a body with a value at some place."""
_WRONG: dict[str, Any] = {
    "integer": 7,
    "string": "no such value",
    "object": {"no_such_field": 1},
    "array": [[[]]],
    "boolean": True,
    "number": 1.5,
}
"""A value of each type of JSON, in the order in which they are tried where they do not belong."""
_KINDS: dict[Any, set[str]] = {
    str: {"string"},
    bool: {"boolean"},
    int: {"integer"},
    float: {"integer", "number"},
    type(None): {"null"},
    object: {"any"},
    Any: {"any"},
}


@dataclass(frozen=True)
class Case:
    """A request, and what is to come of it."""

    place: str
    """The field it is about, such as `tools[0].strict`."""
    kind: str
    """`legal`, `null`, `unknown`, or `wrong` with the type that was sent."""
    body: Any


@dataclass
class Maker:
    """Makes requests of a type.

    `values` are legal values by the name of a field, or of a type and its field, where their types do not tell.
    `more` are further fields that values of a type need, by its name; `skipped` are places that are not looked at.
    """

    values: Mapping[str, Any]
    more: Mapping[str, Any] = field(default_factory=dict)
    skipped: frozenset[str] = frozenset()
    _seen: set[tuple[Any, str]] = field(default_factory=set)

    def cases(self, hint: Any, put: Put, place: str = "") -> Iterator[Case]:
        """Give the cases of a type; each type is looked into once for each name that it has."""
        for one in _alternatives(hint):
            name = place.rpartition(".")[2]
            if is_typeddict(one):
                if (one, name) not in self._seen:
                    self._seen.add((one, name))
                    yield from self._of_fields(one, put, place)
            elif _is_list(one):
                (inner,) = get_args(one)
                yield from self.cases(inner, _within_a_list(put), f"{place}[0]")

    def _of_fields(self, kind: Any, put: Put, place: str) -> Iterator[Case]:
        base = self.legal(kind)
        yield Case(_at(place, "no_such_field"), "unknown", put({**base, "no_such_field": 1}))
        for name, hint in get_type_hints(kind, include_extras=True).items():
            where = _at(place, name)
            if where in self.skipped:
                continue

            def inner(value: Any, name: str = name) -> Any:
                return put({**base, name: value})

            if name != "type":
                yield from self._of_value(hint, inner, where, f"{kind.__name__}.{name}")
            yield from self.cases(hint, inner, where)

    def _of_value(self, hint: Any, put: Put, place: str, name: str) -> Iterator[Case]:
        kinds = _kinds(hint)
        if "any" in kinds:
            return
        for one in _alternatives(hint):
            if one is not type(None):
                yield Case(place, "legal", put(self.legal(one, name)))
        if "null" in kinds:
            yield Case(place, "null", put(None))
        wrong = [kind for kind in _WRONG if kind not in kinds]
        if _is_choice(hint):
            wrong = ["string", *wrong]
        for kind in wrong[:2]:
            yield Case(place, f"wrong {kind}", put(_WRONG[kind]))

    def legal(self, hint: Any, name: str = "") -> Any:
        """Return a value of a type, with no more in it than there must be; `name` is that of its type and field."""
        hint = _alternatives(hint)[0]
        if is_typeddict(hint):
            hints = get_type_hints(hint, include_extras=True)
            needed = {key: inner for key, inner in hints.items() if _is_required(hint, key, inner)}
            value = {key: self.legal(inner, f"{hint.__name__}.{key}") for key, inner in needed.items()}
            return {**value, **self.more.get(hint.__name__, {})}
        if get_origin(hint) is Literal:
            return get_args(hint)[0]
        for known in (name, name.rpartition(".")[2]):
            if known in self.values and _fits(self.values[known], hint):
                return self.values[known]
        if _is_list(hint):
            return [self.legal(get_args(hint)[0], name)]
        if get_origin(hint) is dict:
            return {"key": self.legal(get_args(hint)[1], name)}
        return {str: "text", bool: True, int: 20, float: 0.5, object: {}, type(None): None}[hint]


def _within_a_list(put: Put) -> Put:
    return lambda value: put([value])


def _at(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


def _is_required(kind: Any, key: str, hint: Any) -> bool:
    """Tell whether a field must be there. Classes do not know themselves, as their annotations are texts."""
    return key in kind.__required_keys__ or get_origin(hint) is Required


def _plain(hint: Any) -> Any:
    while get_origin(hint) in {Annotated, Required, NotRequired, ReadOnly}:
        hint = get_args(hint)[0]
    return hint


def _alternatives(hint: Any) -> list[Any]:
    hint = _plain(hint)
    if get_origin(hint) in {Union, types.UnionType}:
        return [one for part in get_args(hint) for one in _alternatives(part)]
    return [hint]


def _is_list(hint: Any) -> bool:
    origin = get_origin(hint)
    return isinstance(origin, type) and issubclass(origin, Iterable) and not issubclass(origin, Mapping)


def _kinds(hint: Any) -> set[str]:
    """Return the types of JSON that a value may have."""
    found: set[str] = set()
    for one in _alternatives(hint):
        if is_typeddict(one) or get_origin(one) is dict:
            found.add("object")
        elif get_origin(one) is Literal:
            found |= {kind for value in get_args(one) for kind in _KINDS[type(value)]}
        elif _is_list(one):
            found.add("array")
        else:
            found |= _KINDS[one]
    return found


def _is_choice(hint: Any) -> bool:
    """Tell whether a text is one of a few."""
    found = _alternatives(hint)
    return str not in found and any(get_origin(one) is Literal and isinstance(get_args(one)[0], str) for one in found)


def _fits(value: Any, hint: Any) -> bool:
    kinds = _kinds(hint)
    if "any" in kinds:
        return True
    kind = {str: "string", bool: "boolean", int: "integer", float: "number", dict: "object", list: "array"}
    return kind[type(value)] in kinds
