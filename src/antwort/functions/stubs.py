"""Functions as Python would declare them, from their JSON schemas: for programs, and for models that write them."""

import keyword
import re
from collections.abc import Mapping
from typing import Any

_PLAIN = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "null": "None",
    "array": "list",
    "object": "dict",
}
_DEEPEST = 6
_LONGEST = 200
"""Characters of a type; what takes more is Any."""


def python_name(name: str) -> str:
    """Return the name of a function as one of Python: what Python does not allow becomes `_`."""
    cleaned = re.sub(r"\W", "_", name)
    if keyword.iskeyword(cleaned):
        return f"{cleaned}_"
    return f"_{cleaned}" if cleaned[:1].isdigit() else cleaned


def python_stub(definition: Mapping[str, Any]) -> str:
    """Return a definition, as models are told of it, as an async function with keyword parameters."""
    schema = definition.get("parameters") or {}
    properties = schema.get("properties") or {}
    required = set(schema.get("required") or ())
    given = [f"{name}: {_type(part, schema)}" for name, part in properties.items() if name in required]
    optional = [
        f"{name}: {_type(part, schema)} = {_default(part)}" for name, part in properties.items() if name not in required
    ]
    parameters = ", ".join(["*", *given, *optional]) if properties else ""
    description = str(definition.get("description") or "").strip().replace('"""', "'''").replace("\\", "\\\\")
    return f'async def {python_name(str(definition["name"]))}({parameters}) -> Any:\n    """{description}"""'


def _default(schema: Any) -> str:
    has_one = isinstance(schema, Mapping) and "default" in schema
    return repr(schema["default"]) if has_one else "..."


def _type(schema: Any, root: Mapping[str, Any], depth: int = 0) -> str:
    written = _written(schema, root, depth)
    return written if len(written) <= _LONGEST else "Any"


def _written(schema: Any, root: Mapping[str, Any], depth: int) -> str:
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return "Any"
    if "$ref" in schema:
        return _written(_resolved(str(schema["$ref"]), root), root, depth + 1)
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(values, list) and values:
        return f"Literal[{', '.join(map(repr, values))}]"
    choices = _choices(schema)
    if choices:
        return " | ".join(dict.fromkeys(_type(choice, root, depth + 1) for choice in choices))
    kind, inner = schema.get("type"), None
    if kind == "array" and "items" in schema:
        inner = f"[{_type(schema['items'], root, depth + 1)}]"
    elif kind == "object" and isinstance(schema.get("additionalProperties"), Mapping):
        inner = f"[str, {_type(schema['additionalProperties'], root, depth + 1)}]"
    return _PLAIN.get(str(kind), "Any") + (inner or "")


def _choices(schema: Mapping[str, Any]) -> list[Any]:
    """Return what a value may be, if the schema says so in several parts."""
    for union in ("anyOf", "oneOf"):
        if isinstance(schema.get(union), list):
            return list(schema[union])
    kinds = schema.get("type")
    return [{**schema, "type": kind} for kind in kinds] if isinstance(kinds, list) else []


def _resolved(reference: str, root: Mapping[str, Any]) -> Any:
    """Return what a reference within a schema stands for."""
    found: Any = root
    for step in reference.removeprefix("#/").split("/"):
        found = found.get(step) if isinstance(found, Mapping) else None
    return found
