"""JSON Schema for function parameters: from an explicit mapping, made tidy, made strict."""

import types
from collections.abc import Mapping
from typing import Any, Literal, Union, get_args, get_origin

from antwort.errors import DefinitionError
from antwort.types import JSON


def object_schema(parameters: Mapping[str, Any]) -> tuple[JSON, bool]:
    """Return a JSON Schema for an explicit `parameters` mapping, and whether it takes no other names.

    Two notations are read: a whole schema (`{"type": "object", "properties": …}`), taken as it is, or a mapping from
    parameter name to its schema (`{"query": {"type": "string", "description": "…"}}`). In the second every parameter
    is required unless it has a `default`, or says `"required": false` or `"optional": true`.
    """
    if parameters.get("type") == "object":
        return dict(parameters), parameters.get("additionalProperties") is False
    properties: JSON = {}
    required: list[str] = []
    for name, described in parameters.items():
        if not isinstance(described, Mapping):
            raise DefinitionError(
                f"parameter '{name}' must be a mapping such as {{'type': 'string', 'description': '…'}}"
            )
        schema = dict(described)
        # `required` is a list in JSON Schema (of an object parameter's own properties) and a flag in this notation.
        flag = schema.pop("required") if isinstance(schema.get("required"), bool) else None
        optional = schema.pop("optional", False)
        if flag if flag is not None else not (optional or "default" in schema):
            required.append(name)
        properties[name] = schema
    return {"type": "object", "properties": properties, "required": required}, True


_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
_NESTED = 8
"""How deep plain types may be nested."""


def plain_schema(hint: Any, depth: int = 0) -> JSON | None:
    """Return the JSON Schema of a type hint made of plain types alone, the same that pydantic makes, or None.

    Most hints are: `str`, `list[int]`, `Literal["a", "b"] | None`. Nothing can be wrong with them, and to ask pydantic
    takes a thousand times as long.
    """
    if type(hint) is type and hint in _PLAIN:  # others need not be hashable
        return {"type": _PLAIN[hint]}
    if hint is Any:
        return {}
    origin, arguments = get_origin(hint) or hint, get_args(hint)
    if origin is Literal:
        return _choice(arguments)
    if origin is dict and arguments:  # the names in an object are text
        arguments = arguments[1:] if arguments[0] is str else ()
        origin = dict if len(arguments) == 1 else None
    parts = [plain_schema(argument, depth + 1) for argument in arguments] if depth < _NESTED else [None]
    return _made_of(origin, [part for part in parts if part is not None]) if None not in parts else None


def _made_of(origin: Any, parts: list[JSON]) -> JSON | None:
    """Return the schema of a union, a list or a dictionary of others."""
    if origin is Union or origin is types.UnionType:
        alike = any(part in parts[:place] for place, part in enumerate(parts))  # of which pydantic takes one
        return {"anyOf": sorted(parts, key=lambda part: part == {"type": "null"})} if parts and not alike else None
    part = parts[0] if parts else {}
    if origin is list and len(parts) <= 1:
        return {"items": part, "type": "array"}
    return {"additionalProperties": part or True, "type": "object"} if origin is dict else None


def _choice(values: tuple[Any, ...]) -> JSON | None:
    """Return the schema of a `Literal`."""
    kinds = {type(value) for value in values}
    if kinds not in ({str}, {int}):
        return None
    choices: JSON = {"const": values[0]} if len(values) == 1 else {"enum": list(values)}
    return {**choices, "type": _PLAIN[kinds.pop()]}


def tidy(schema: Any) -> Any:
    """Drop the titles pydantic makes out of names: they tell a model nothing and cost tokens in every request."""
    if isinstance(schema, list):
        return [tidy(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    clean: JSON = {}
    for key, value in schema.items():
        if key == "title" and isinstance(value, str):
            continue
        # Under these keys the names are the author's, so a property called "title" must stay.
        if key in {"properties", "$defs"} and isinstance(value, dict):
            clean[key] = {name: tidy(part) for name, part in value.items()}
        elif key in {"default", "const", "enum", "examples"}:
            clean[key] = value
        else:
            clean[key] = tidy(value)
    return clean


def strict_schema(schema: Mapping[str, Any]) -> JSON | None:
    """Return the schema as OpenAI's strict mode wants it, or None where it cannot be expressed.

    Strict mode needs every object closed and every property required; an optional property becomes nullable, and
    `drop_nulls` undoes that when the arguments come back. Free-form objects have no strict form.
    """
    try:
        strict = _strict(dict(schema))
    except _NotStrictError:
        return None
    return strict if isinstance(strict, dict) else None


class _NotStrictError(Exception):
    """The schema has a part without a strict form."""


_DROPPED = {"default", "title", "examples", "additionalProperties", "discriminator", "uniqueItems"}
_FREE_FORM = {"patternProperties", "propertyNames"}


def _strict(schema: Any) -> Any:
    if not isinstance(schema, dict) or not schema:  # `true` and `{}` allow anything
        raise _NotStrictError
    if _FREE_FORM & schema.keys():
        raise _NotStrictError
    # Strict mode knows only anyOf.
    result: JSON = {
        "anyOf" if key == "oneOf" else key: _strict_value(key, value)
        for key, value in schema.items()
        if key not in _DROPPED
    }
    if schema.get("type") == "object":
        if schema.get("additionalProperties", False) is not False or "properties" not in schema:
            raise _NotStrictError
        _require_all(result, schema.get("required", []))
    return result


def _strict_value(key: str, value: Any) -> Any:
    """Return what stands behind a key of a schema, with the schemas in it made strict."""
    if key in {"properties", "$defs"}:
        return {name: _strict(part) for name, part in value.items()}
    if key in {"anyOf", "oneOf", "prefixItems", "allOf"}:
        return [_strict(part) for part in value]
    return _strict(value) if key in {"items", "not"} else value


def _require_all(schema: JSON, required: list[str]) -> None:
    """Close an object schema and require each property, making the optional ones nullable."""
    properties: JSON = schema["properties"]
    for name in properties:
        if name not in required and not _takes_null(properties[name]):
            properties[name] = _nullable(properties[name])
    schema["required"] = list(properties)
    schema["additionalProperties"] = False


def _takes_null(schema: Any) -> bool:
    if not isinstance(schema, dict):
        return True
    kind = schema.get("type")
    if kind == "null" or (isinstance(kind, list) and "null" in kind):
        return True
    return any(_takes_null(part) for part in [*schema.get("anyOf", ()), *schema.get("oneOf", ())])


def _nullable(schema: JSON) -> JSON:
    described = {"description": schema.pop("description")} if "description" in schema else {}
    branches = schema["anyOf"] if set(schema) == {"anyOf"} else [schema]
    return {"anyOf": [*branches, {"type": "null"}], **described}


def _branch(value: Any, schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Mapping[str, Any]:
    """Follow references, and of alternatives choose the one that is meant: the first that knows all the keys."""
    if "$ref" in schema:
        return _branch(value, definitions.get(str(schema["$ref"]).rpartition("/")[2], {}), definitions)
    alternatives = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
    for alternative in alternatives:
        found = _branch(value, alternative, definitions)
        properties = found.get("properties")
        if isinstance(value, list) and "items" in found:
            return found
        if isinstance(value, dict) and isinstance(properties, dict) and value.keys() <= properties.keys():
            tags = ((name, part) for name, part in properties.items() if isinstance(part, Mapping) and "const" in part)
            if all(value.get(name) == part["const"] for name, part in tags):
                return found
    return schema


def drop_nulls(value: Any, schema: Mapping[str, Any], definitions: Mapping[str, Any] | None = None) -> Any:
    """Remove the nulls a strict-mode model sent for optional properties, so that their defaults apply."""
    definitions = schema.get("$defs", {}) if definitions is None else definitions
    schema = _branch(value, schema, definitions)
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        return [drop_nulls(part, schema["items"], definitions) for part in value]
    properties = schema.get("properties")
    if not isinstance(value, dict) or not isinstance(properties, dict):
        return value
    required = schema.get("required", ())
    return {
        name: drop_nulls(part, properties.get(name, {}), definitions)
        for name, part in value.items()
        if part is not None or name in required or name not in properties or _takes_null(properties[name])
    }
