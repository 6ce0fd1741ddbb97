"""JSON values that fit a JSON Schema, filled with what a text gives."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from antwort.backends.demo.facts import Facts, Number
from antwort.backends.demo.schemas import fits, nullable, options, resolved, valid
from antwort.backends.demo.words import Tool, shortened, significant, words
from antwort.types import JSON

__all__ = ["ROLES", "Filled", "fill_arguments", "fill_value", "roles_of"]


ROLES: Mapping[str, frozenset[str]] = {
    "expression": frozenset({"expression", "arithmetic", "formula", "equation", "math", "calculation"}),
    "zone": frozenset({"zone", "timezone", "tz", "iana"}),
    "query": frozenset({"query", "querie", "q", "search", "keyword", "question", "term", "topic"}),
    "place": frozenset({"city", "town", "place", "location", "country", "destination", "region", "stadt", "ort"}),
}
"""Words in a parameter's name or description that tell what it is for."""

_NOTHING: Any = object()
_MOST_VALUES = 500
_DEEPEST = 40
_NEAR = 33
"""Deeper than this, two steps for each level of nesting, only what is required is filled."""
_LONGEST_TEXT = 200
_YES = frozenset({"true", "yes", "on", "ja"})
_NO = frozenset({"false", "no", "off", "nein"})
_SAMPLES = {
    "date": "2000-01-01",
    "date-time": "2000-01-01T00:00:00Z",
    "time": "00:00:00Z",
    "email": "someone@example.com",
    "uri": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "hostname": "example.com",
    "duration": "P1D",
}


@dataclass(frozen=True, slots=True)
class Filled:
    """Arguments for a function, or the required parameters for which nothing was found."""

    arguments: JSON | None
    missing: tuple[str, ...] = ()


def roles_of(name: str, schema: Mapping[str, Any]) -> list[str]:
    """Return what a parameter is for, by its name first, then by its description."""
    described = words(str(schema.get("description") or ""))
    by_name = [role for role, marks in ROLES.items() if marks.intersection(words(name))]
    return by_name or [role for role, marks in ROLES.items() if marks.intersection(described)]


def fill_arguments(tool: Tool, facts: Facts, *, insist: bool = False) -> Filled:
    """Return arguments that are valid for a tool's parameters.

    Optional parameters are left out unless the text speaks of them. To insist is to make up what is missing.
    """
    filling = _Filling(tool.parameters, facts, insist=insist)
    value = filling.object(tool.parameters, "", _DEEPEST)
    if value is _NOTHING or not valid(tool.parameters, value):
        return Filled(None, tuple(filling.missing))
    return Filled(value)


def fill_value(schema: JSON, facts: Facts) -> Any:
    """Return a value that is valid for a schema, made up where the text gives nothing; None if there is none to find.

    Properties that are not required are filled too, near the root.
    """
    value = _Filling(schema, facts, insist=True, complete=True).value(schema, "", required=True, depth=_DEEPEST)
    return None if value is _NOTHING or not valid(schema, value) else value


class _Filling:
    """One attempt to fill a schema. Values are bounded in number and depth, since schemas may refer to themselves."""

    def __init__(self, root: JSON, facts: Facts, *, insist: bool, complete: bool = False) -> None:
        self._root = root
        self._facts = facts
        self._insist = insist
        self._complete = complete
        self._left = _MOST_VALUES
        self.missing: list[str] = []

    def value(self, schema: Any, name: str, *, required: bool, depth: int) -> Any:
        """Return a value for a schema, or `_NOTHING`."""
        self._left -= 1
        if depth <= 0 or self._left < 0 or schema is False:
            return _NOTHING
        schema = resolved(schema, self._root)
        if not isinstance(schema, dict):
            return self._string({}, name, required=required)
        if required and depth < _NEAR and nullable(schema):
            return None
        fixed = [schema["const"]] if "const" in schema else schema.get("enum")
        if isinstance(fixed, list):
            return self._choice(fixed, required=required)
        for option in options(schema):
            value = self._typed(option, name, required=required, depth=depth - 1)
            if value is not _NOTHING:
                return value
        return None if required and nullable(schema) else _NOTHING

    def object(self, schema: JSON, name: str, depth: int) -> Any:
        """Return an object with its required properties, and the optional ones that the text speaks of."""
        schema = resolved(schema, self._root)
        properties, required = schema.get("properties"), schema.get("required")
        properties = properties if isinstance(properties, dict) else {}
        required = [str(key) for key in required] if isinstance(required, list) else []
        result: JSON = {}
        complete = True
        for key in (*properties, *(key for key in required if key not in properties)):
            needed = key in required
            wanted = needed or (self._complete and depth >= _NEAR)
            value = self.value(properties.get(key, {}), key, required=wanted, depth=depth - 1)
            if value is not _NOTHING:
                result[key] = value
            elif needed:
                self.missing.append(f"{name}.{key}" if name else key)
                complete = False
        return result if complete else _NOTHING

    def _typed(self, schema: JSON, name: str, *, required: bool, depth: int) -> Any:
        if not {"anyOf", "oneOf", "$ref", "enum", "const"}.isdisjoint(schema):
            return self.value(schema, name, required=required, depth=depth)
        kind = schema.get("type")
        if not isinstance(kind, str):
            kind = "object" if "properties" in schema else "array" if "items" in schema else ""
        if kind == "object":
            return self.object(schema, name, depth) if required else _NOTHING
        if kind == "array":
            return self._array(schema, name, required=required, depth=depth)
        if kind in {"integer", "number"}:
            return self._numeric(schema, name, whole=kind == "integer", required=required)
        if kind == "boolean":
            return self._boolean(name, required=required)
        return _NOTHING if kind == "null" else self._string(schema, name, required=required)

    def _choice(self, options: list[Any], *, required: bool) -> Any:
        for option in options:
            if isinstance(option, str | int | float) and self._facts.mentions(str(option)):
                return option
        if not required or not options:
            return _NOTHING
        return None if None in options else options[0] if self._insist or len(options) == 1 else _NOTHING

    def _string(self, schema: JSON, name: str, *, required: bool) -> Any:
        return next((text for text in self._texts(schema, name, required=required) if fits(schema, text)), _NOTHING)

    def _texts(self, schema: JSON, name: str, *, required: bool) -> Iterator[str]:
        """Yield texts for a string, the best first."""
        facts = self._facts
        wanted = str(schema.get("format") or "")
        roles = roles_of(name, schema)
        found = facts.named(name), facts.formatted(name, wanted), *(facts.roles.get(role) for role in roles)
        yield from filter(None, found)
        if required:
            if wanted not in _SAMPLES and (quoted := facts.take_quoted()):
                yield quoted
            if facts.main and (self._insist or not {"expression", "zone", "place"}.intersection(roles)):
                yield facts.main
        if required and self._insist:
            yield from self._made_up(schema, wanted)

    def _made_up(self, schema: JSON, wanted: str) -> Iterator[str]:
        examples = schema.get("examples")
        yield from (text for text in (schema.get("default"), *(examples if isinstance(examples, list) else ())) if text)
        if wanted in _SAMPLES:
            yield _SAMPLES[wanted]
        line = shortened(self._facts.text, _LONGEST_TEXT)
        yield from (line, *self._facts.names[:20], *line.split()[:20], *map(str, self._facts.numbers[:20]))
        shortest, longest = _bound(schema, "minLength", 0), _bound(schema, "maxLength", _LONGEST_TEXT)
        yield line[:longest].ljust(shortest, ".")
        yield from (letter * max(shortest, 1) for letter in "aA0")
        yield from ("a1", "A1", "a-1", "2000-01-01", "00:00")

    def _numeric(self, schema: JSON, name: str, *, whole: bool, required: bool) -> Any:
        candidates = self._numbers(schema, name, whole=whole, required=required)
        return next((number for number in candidates if fits(schema, number)), _NOTHING)

    def _numbers(self, schema: JSON, name: str, *, whole: bool, required: bool) -> Iterator[Number]:
        """Yield numbers, the best first."""
        counted = self._facts.counted(sorted(significant(words(name)) or words(name)))
        if counted is not None and (not whole or counted == int(counted)):
            yield int(counted) if whole else counted
        if not required:
            return
        while (number := self._facts.take_number(whole=whole)) is not None:
            yield number
        if self._insist:
            low, high = schema.get("minimum"), schema.get("maximum")
            above, below, step = (schema.get(key) for key in ("exclusiveMinimum", "exclusiveMaximum", "multipleOf"))
            made_up = [schema.get("default"), 0, 1, low, high, _sum(above, 1), _sum(below, -1), _sum(above, 0.5), step]
            if _is_number(low) and _is_number(step) and step:
                made_up.append(math.ceil(low / step) * step)
            yield from (int(n) if whole else n for n in made_up if _is_number(n) and (not whole or n == int(n)))

    def _boolean(self, name: str, *, required: bool) -> Any:
        said = (self._facts.named(name) or "").lower()
        if said in _YES | _NO:
            return said in _YES
        if not required:
            return _NOTHING
        found = [marks is _YES for marks in (_YES, _NO) if any(map(self._facts.mentions, marks))]
        return found[0] if found else False if self._insist else _NOTHING

    def _array(self, schema: JSON, name: str, *, required: bool, depth: int) -> Any:
        if not required:
            return _NOTHING
        fixed = schema.get("prefixItems")
        if isinstance(fixed, list):
            values = [self.value(part, name, required=True, depth=depth - 1) for part in fixed]
            return _NOTHING if any(value is _NOTHING for value in values) else values
        least, most = _bound(schema, "minItems", 0), _bound(schema, "maxItems", 20)
        items = resolved(schema.get("items", {}), self._root)
        values = self._listed(items, name)[:most] if isinstance(items, dict) else []
        if not values and least == 0 and self._insist and depth < _NEAR:
            return []
        while len(values) < max(least, min(1, most)):
            value = self.value(items, name, required=True, depth=depth - 1)
            if value is _NOTHING:
                return [] if self._insist and least == 0 else _NOTHING
            values.append(value)
        return values

    def _listed(self, items: JSON, name: str) -> list[Any]:
        """Return the values of a list that the text gives: quoted texts, names, or numbers."""
        facts = self._facts
        kind = items.get("type")
        if kind in ("integer", "number"):
            taken = iter(lambda: facts.take_number(whole=kind == "integer"), None)
            return [number for number in taken if fits(items, number)]
        if kind != "string" or facts.roles.keys() & set(roles_of(name, items)):
            return []
        if isinstance(items.get("enum"), list):
            return [option for option in items["enum"] if isinstance(option, str) and facts.mentions(option)]
        said = facts.named(name)
        texts = [said] if said else list(facts.quoted or (facts.names if self._insist else ()))
        return [text for text in dict.fromkeys(texts) if fits(items, text)]


def _bound(schema: JSON, key: str, otherwise: int) -> int:
    bound = schema.get(key)
    return min(max(int(bound), 0), _MOST_VALUES) if _is_number(bound) else otherwise


def _is_number(value: Any) -> TypeGuard[Number]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _sum(value: Any, more: float) -> Any:
    return value + more if _is_number(value) else None
