"""OpenAI's filters: reading them, and what they mean."""

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any, cast, get_args

from antwort.errors import BadRequestError, FunctionError, did_you_mean
from antwort.search.vectors import (
    Attributes,
    CompareOp,
    Comparison,
    Compound,
    CompoundOp,
    Filter,
    Scalar,
)

_OF_COMPARISON, _OF_COMPOUND = frozenset({"type", "key", "value"}), frozenset({"type", "filters"})
"""The fields of filters."""
_COMPARE: tuple[str, ...] = get_args(CompareOp)
_COMPOUND: tuple[str, ...] = get_args(CompoundOp)
_DEEPEST = 8
_MOST = 200
"""Comparisons in one filter, each value of a list counted."""
_LONGEST_KEY = 256
_UNREACHABLE = frozenset('"\\')
"""Characters that a path to an attribute cannot have in every database."""
_UNSTORABLE = {0: "\ufffd"} | dict.fromkeys(range(0xD800, 0xE000), "\ufffd")
_ORDERS: Mapping[str, Callable[[Any, Any], bool]] = {
    "gt": operator.gt,
    "gte": operator.ge,
    "lt": operator.lt,
    "lte": operator.le,
}


class FilterError(FunctionError):
    """A filter cannot be read; `where` is the place in it, such as `filters.filters[1].value`."""

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(f"{where} {problem}.")
        self.where = where


def storable(text: str) -> str:
    """Replace what a database cannot keep, NUL and halves of characters, by the replacement character."""
    return text if text.isascii() and "\0" not in text else text.translate(_UNSTORABLE)


def whole(number: float) -> float:
    """Return a number as an int if that is what it is, and a float has it exactly: 1.0 is 1."""
    return int(number) if abs(number) <= 2**53 and number == int(number) else number


def stored_attributes(attributes: Attributes) -> dict[str, Scalar]:
    """Return attributes as a database can keep them."""
    return {storable(key): _stored_value(value) for key, value in attributes.items()}


def _stored_value(value: Scalar) -> Scalar:
    return storable(value) if isinstance(value, str) else value if isinstance(value, bool) else whole(value)


def parse_filter(value: Any, where: str = "filters") -> Filter:
    """Read a filter as OpenAI writes it; raise FilterError with the place of the mistake."""
    reader = _FilterReader()
    return reader.read(value, where, 1)


class _FilterReader:
    """Reads one filter and counts its comparisons."""

    def __init__(self) -> None:
        self._count = 0

    def read(self, value: Any, where: str, depth: int) -> Filter:
        """Read a filter of either kind."""
        if not isinstance(value, Mapping):
            raise FilterError(where, "must be an object")
        if depth > _DEEPEST:
            raise FilterError(where, f"is nested deeper than {_DEEPEST} levels")
        kind = value.get("type")
        if kind in _COMPOUND:
            _check_fields(value, _OF_COMPOUND, where)
            return self._compound(value, where, depth)
        if kind in _COMPARE:
            _check_fields(value, _OF_COMPARISON, where)
            return self._comparison(value, where)
        raise FilterError(f"{where}.type", f"must be one of {', '.join((*_COMPARE, *_COMPOUND))}")

    def _compound(self, value: Mapping[str, Any], where: str, depth: int) -> Compound:
        parts = value.get("filters")
        if not isinstance(parts, list | tuple) or not parts:
            raise FilterError(f"{where}.filters", "must be a list with at least one filter")
        found = tuple(self.read(part, f"{where}.filters[{number}]", depth + 1) for number, part in enumerate(parts))
        return Compound(cast("CompoundOp", value["type"]), found)

    def _comparison(self, value: Mapping[str, Any], where: str) -> Comparison:
        op, key, path = cast("CompareOp", value["type"]), value.get("key"), f"{where}.value"
        if not isinstance(key, str) or not 0 < len(key) <= _LONGEST_KEY or not _UNREACHABLE.isdisjoint(key):
            raise FilterError(f"{where}.key", 'must be the name of an attribute, without " and \\')
        if "value" not in value:
            raise FilterError(path, "is missing")
        wanted = value["value"]
        if op in {"in", "nin"}:
            if not isinstance(wanted, list | tuple):
                raise FilterError(path, f"must be a list for '{op}'")
            self._more(len(wanted), where)
            return Comparison(storable(key), op, tuple(_scalar(one, f"{path}[{at}]") for at, one in enumerate(wanted)))
        self._more(1, where)
        scalar = _scalar(wanted, path)
        if op in _ORDERS and not _is_number(scalar):
            raise FilterError(path, f"must be a number for '{op}'")
        return Comparison(storable(key), op, scalar)

    def _more(self, count: int, where: str) -> None:
        self._count += count
        if self._count > _MOST:
            raise FilterError(where, f"is one too many: a filter has {_MOST} values at most")


def _check_fields(value: Mapping[str, Any], known: frozenset[str], where: str) -> None:
    """Raise BadRequestError if a filter has a field that says nothing, as it may have been meant to say something."""
    for name in value:
        if name not in known:
            param = f"{where}.{name}"
            raise BadRequestError(
                f"Unknown parameter: '{param}'{did_you_mean(name, known) or '.'}", param=param, code="unknown_parameter"
            )


def _scalar(value: Any, where: str) -> Scalar:
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        try:
            if math.isfinite(value):
                return value
        except OverflowError:  # no float is as large
            raise FilterError(where, "is too large a number") from None
    raise FilterError(where, "must be a text, a number, true or false")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def matches(wanted: Filter, attributes: Attributes) -> bool:
    """Tell whether attributes match a filter: what every backend does with its own means."""
    if isinstance(wanted, Compound):
        return (all if wanted.op == "and" else any)(matches(part, attributes) for part in wanted.filters)
    found, value = attributes.get(wanted.key), wanted.value
    if isinstance(value, tuple):
        return any(_equal(found, one) for one in value) is (wanted.op == "in")
    if wanted.op in _ORDERS:
        return _is_number(found) and _ORDERS[wanted.op](found, value)
    return _equal(found, value) is (wanted.op == "eq")


def _equal(found: Scalar | None, value: Scalar) -> bool:
    """Compare by value and type: 1 is 1.0, and neither is true."""
    if _is_number(found) and _is_number(value):
        return found == value
    return type(found) is type(value) and found == value
