"""JSON Schema, as far as it is needed to fill one in."""

from collections.abc import Iterator
from typing import Any

import jsonschema_rs

from antwort.types import JSON

__all__ = ["fits", "nullable", "options", "resolved", "valid"]


_DEEPEST = 10
_LEAF_KEYWORDS = frozenset(
    {"pattern", "minLength", "maxLength", "format", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}
    | {"multipleOf", "enum", "const", "type"}
)


def valid(schema: Any, value: Any) -> bool:
    """Tell whether a value is valid for a schema. Nothing is, if the schema itself is not."""
    try:
        return jsonschema_rs.validator_for(schema, retriever=_refuse, validate_formats=True).is_valid(value)
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError, OverflowError):
        return False


def _refuse(uri: str) -> Any:
    raise ValueError(f"the reference {uri} points outside the schema")


def resolved(schema: Any, root: JSON, depth: int = _DEEPEST) -> Any:
    """Follow references inside the root schema, and put `allOf` together."""
    for _ in range(_DEEPEST):
        if not isinstance(schema, dict) or not isinstance(schema.get("$ref"), str):
            break
        target: Any = root
        for step in schema["$ref"].removeprefix("#").split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            target = target.get(key) if isinstance(target, dict) else None
        beside = {key: part for key, part in schema.items() if key != "$ref"}
        schema = {**target, **beside} if isinstance(target, dict) else beside
    if not isinstance(schema, dict) or not isinstance(schema.get("allOf"), list) or depth == 0:
        return schema
    merged: JSON = {key: part for key, part in schema.items() if key != "allOf"}
    for part in schema["allOf"]:
        if isinstance(part, dict):
            merged = _merged(merged, resolved(part, root, depth - 1))
    return merged


def _merged(one: JSON, other: JSON) -> JSON:
    both: JSON = {**one, **other}
    if isinstance(one.get("properties"), dict) and isinstance(other.get("properties"), dict):
        both["properties"] = {**one["properties"], **other["properties"]}
    if isinstance(one.get("required"), list) and isinstance(other.get("required"), list):
        both["required"] = [*one["required"], *other["required"]]
    return both


def options(schema: JSON) -> Iterator[Any]:
    """Yield the schemas of which one must be filled."""
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), list):
            common = {name: part for name, part in schema.items() if name not in {"anyOf", "oneOf"}}
            yield from ({**common, **option} for option in schema[key] if isinstance(option, dict))
            return
    kinds = schema.get("type")
    yield from ({**schema, "type": kind} for kind in kinds) if isinstance(kinds, list) else (schema,)


def nullable(schema: JSON) -> bool:
    """Tell whether null is among the types of a value."""
    kinds = schema.get("type")
    if kinds == "null" or (isinstance(kinds, list) and "null" in kinds):
        return True
    either = [part for key in ("anyOf", "oneOf") if isinstance(schema.get(key), list) for part in schema[key]]
    return any(isinstance(part, dict) and part.get("type") == "null" for part in either)


def fits(schema: JSON, value: Any) -> bool:
    """Tell whether a text or number keeps the limits of its own schema."""
    return valid({key: part for key, part in schema.items() if key in _LEAF_KEYWORDS}, value)
