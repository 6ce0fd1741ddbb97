"""Schemas that clients send: what OpenAI wants of those that are to be followed to the letter."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Annotated, Any

from msgspec import Meta

from antwort.errors import BadRequestError
from antwort.types import JSON
from antwort.wire.field_errors import check_shape, read_type, unsupported_value
from antwort.wire.part_shapes import Shape

_Place = tuple[str, ...]


def check_parameters(schema: JSON, function: str, param: str, *, strict: bool) -> None:
    """Raise BadRequestError unless a schema can be that of a function's parameters."""
    kind = schema.get("type", "object")
    problem = (
        None if kind == "object" else f"schema must be a JSON Schema of 'type: \"object\"', got 'type: \"{kind}\"'."
    )
    problem = problem or _problem(schema, strict=strict)
    if problem is not None:
        message = f"Invalid schema for function '{function}': {problem}"
        raise BadRequestError(message, param=param, code="invalid_function_parameters")


def check_answer_schema(schema: JSON, name: str, param: str, *, strict: bool = True) -> None:
    """Raise BadRequestError unless answers can be held to a schema."""
    problem = _problem(schema, strict=strict)
    if problem is not None:
        message = f"Invalid schema for response_format '{name}': {problem}"
        raise BadRequestError(message, param=param, code="invalid_json_schema")


def _problem(schema: JSON, *, strict: bool) -> str | None:
    """Return why a schema cannot be one, or, if that is wanted, cannot be followed to the letter."""
    try:
        return _misshapen(schema) or (_strict_problem(schema) if strict else None)
    except RecursionError:
        return "It is nested too deeply." if strict else None  # whether it can be written turns out when it is


def _misshapen(schema: JSON) -> str | None:
    for place, found in _objects(schema, ()):
        properties = found.get("properties", {})
        if not isinstance(properties, dict):
            return f"In context={place!r}, 'properties' is not an object."
        odd = next((name for name, inner in properties.items() if not isinstance(inner, dict | bool)), None)
        if odd is not None:
            return f"In context={(*place, 'properties', odd)!r}, there is no schema: it is an object or a boolean."
    return None


def _strict_problem(schema: JSON) -> str | None:
    """Return what keeps a schema from being followed to the letter: objects that leave something open."""
    for place, found in _objects(schema, ()):
        properties = found.get("properties")
        if found.get("additionalProperties") is not False:
            return f"In context={place!r}, 'additionalProperties' is required to be supplied and to be false."
        required = found.get("required")
        if isinstance(properties, dict) and properties:
            missing = [name for name in properties if not isinstance(required, list) or name not in required]
            if missing:
                return (
                    f"In context={place!r}, 'required' is required to be supplied and to be an array including every "
                    f"key in properties. Missing '{missing[0]}'."
                )
    return None


def _objects(schema: Any, place: _Place) -> Iterator[tuple[_Place, Mapping[str, Any]]]:
    """Give the schemas of objects within a schema, each with where it is."""
    if not isinstance(schema, dict):
        return
    kind = schema.get("type")
    if kind == "object" or (isinstance(kind, list) and "object" in kind) or (kind is None and "properties" in schema):
        yield place, schema
    for name in ("properties", "$defs", "definitions"):
        inner = schema.get(name)
        for key, value in inner.items() if isinstance(inner, dict) else ():
            yield from _objects(value, (*place, name, key))
    yield from _objects(schema.get("items"), (*place, "items"))
    choices = schema.get("anyOf")
    for index, choice in enumerate(choices if isinstance(choices, list) else ()):
        yield from _objects(choice, (*place, "anyOf", str(index)))


class _Format(Shape, forbid_unknown_fields=False):
    """What every format has. Fields that nobody knows are ignored, as at OpenAI."""

    type: str


class _SchemaFormat(_Format):
    name: Annotated[str, Meta(min_length=1, max_length=64, pattern="^[a-zA-Z0-9_-]+$")]
    schema: JSON
    description: str | None = None
    strict: bool | None = None


_FORMATS: Mapping[str, type[Shape]] = MappingProxyType(
    {"text": _Format, "json_object": _Format, "json_schema": _SchemaFormat}
)

_FIELDS = {kind: frozenset(shape.__struct_fields__) for kind, shape in _FORMATS.items()}


def known_format(value: JSON | None) -> JSON | None:
    """Return a format that was checked without fields that nobody knows."""
    known = None if value is None else _FIELDS[value["type"]]
    if value is None or known is None or value.keys() <= known:
        return value
    return {name: value[name] for name in value if name in known}


def check_format(value: JSON, param: str) -> None:
    """Raise BadRequestError with the field of a format that does not fit; `param` is where the format is."""
    kind = read_type(value, param)
    shape = _FORMATS.get(kind)
    if shape is None:
        raise unsupported_value(f"{param}.type", kind, _FORMATS)
    check_shape(value, shape, param)
    if kind == "json_schema":
        check_answer_schema(value["schema"], value["name"], f"{param}.schema", strict=bool(value.get("strict")))
