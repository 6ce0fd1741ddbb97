"""From types to JSON Schemas: those of msgspec and those pydantic can read, in one set of components."""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec
from msgspec import UNSET, Meta, Struct
from msgspec.inspect import ListType, Metadata, StructType, UnionType, multi_type_info
from pydantic import PydanticUserError, TypeAdapter
from pydantic.errors import PydanticSchemaGenerationError

from antwort.types import JSON
from antwort.wire.items import COMPONENT, ClientCall, Message, Reasoning

Use = tuple[Any, Literal["validation", "serialization"]]
"""A type, or a schema as it is, and whether it is read or written."""

_TEMPLATE = "#/components/schemas/{name}"


def reference(name: str) -> JSON:
    """Return a reference to a component."""
    return {"$ref": _TEMPLATE.format(name=name)}


_SPOKEN = (Message, Reasoning, *get_args(ClientCall))
"""Items the server itself writes. They stand in the description though the wire types keep items open."""

_TEXT: JSON = {"type": "string"}

_OPEN: JSON = {
    "ErrorEnvelope": {
        "type": "object",
        "description": "The error envelope of the OpenAI API.",
        "properties": {
            "error": {
                "type": "object",
                "properties": {
                    "message": {"type": "string", "description": "What is wrong, and what would be right."},
                    "type": {"type": "string", "description": "Whose error it is."},
                    "param": {"type": ["string", "null"], "description": "The parameter it is about."},
                    "code": {"type": ["string", "null"], "description": "A name for programs."},
                },
                "required": ["message", "type", "param", "code"],
            }
        },
        "required": ["error"],
    },
    "Item": {
        "description": "What a response or a conversation is made of.",
        "anyOf": [*(reference(kind.__name__) for kind in _SPOKEN), reference("OtherItem")],
    },
    "OtherItem": {
        "type": "object",
        "description": "An item of another type: input that was sent, the output of a function, the receipt of a tool.",
        "properties": {"type": _TEXT, "id": _TEXT},
        "required": ["type"],
    },
    "InputItem": {
        "type": "object",
        "description": "An item to send: a message (`role` and `content`), the output of a function call, an item of an"
        " earlier response, or a reference to one.",
        "properties": {
            "type": {"type": "string", "minLength": 1, "description": "What it is; a message if it is left out."},
            "role": {"description": "Who speaks in a message: user, assistant, system or developer."},
            "content": {"description": "What is said in a message: a text, or a list of parts."},
        },
    },
    "Tool": {
        "type": "object",
        "description": "A tool: a function of the client (`type: function`), or a type that the server itself answers.",
        "properties": {"type": _TEXT, "name": _TEXT, "description": {"type": ["string", "null"]}},
        "required": ["type"],
    },
}
"""Components that are open on purpose, and what they are."""


def build_schemas(uses: Iterable[Use]) -> tuple[list[JSON], JSON]:
    """Return the schema of each use, in order, and the components they refer to.

    What has no JSON Schema gets the one that allows everything.
    """
    uses = [(_open_type(kind) or kind, mode) for kind, mode in uses]
    own, components = _from_structs([use for use in uses if _is_struct(use[0])])
    components |= _OPEN
    rest = [use for use in uses if not _is_struct(use[0]) and not isinstance(use[0], dict)]
    others, definitions = _from_pydantic(rest, taken=components)
    components |= definitions
    queue = iter(others)
    schemas = [kind if isinstance(kind, dict) else own[kind] if _is_struct(kind) else next(queue) for kind, _ in uses]
    return _referring(schemas), _referring(components)


def _from_structs(uses: Sequence[Use]) -> tuple[dict[Any, JSON], JSON]:
    """Return the schema of each structure that is read or written, and the components they refer to."""
    read = [kind for kind, mode in uses if mode == "validation"]
    written = dict(_written([*(kind for kind, mode in uses if mode == "serialization"), *_SPOKEN]))
    structs = list(dict.fromkeys([*read, *written]))
    found, components = msgspec.json.schema_components(structs, ref_template=_TEMPLATE)
    for kind, schema in zip(structs, found, strict=True):
        if kind in written:
            components[schema["$ref"].rpartition("/")[2]]["required"] = written[kind]
    return dict(zip(structs, found, strict=True)), components


def _open_type(kind: Any) -> JSON | None:
    """Return the reference of a type that names the component it is, None of any other."""
    for meta in get_args(kind)[1:] if get_origin(kind) is Annotated else ():
        if isinstance(meta, Meta) and COMPONENT in (meta.extra_json_schema or {}):
            return {COMPONENT: (meta.extra_json_schema or {})[COMPONENT]}
    return None


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Struct)


def _written(kinds: Iterable[type[Struct]]) -> Iterator[tuple[type[Struct], list[str]]]:
    """Yield every struct that answers are made of, with the fields that are always there, though they have defaults."""
    seen: set[type[Struct]] = set()
    queue: list[Any] = list(multi_type_info(kinds))
    while queue:
        info = queue.pop()
        if isinstance(info, StructType) and info.cls not in seen:
            seen.add(info.cls)
            tag = [info.tag_field] if info.tag_field else []
            always = [field.encode_name for field in msgspec.structs.fields(info.cls) if field.default is not UNSET]
            yield info.cls, [*tag, *always]
            queue += [field.type for field in info.fields]
        elif isinstance(info, UnionType):
            queue += info.types
        elif isinstance(info, ListType):
            queue.append(info.item_type)
        elif isinstance(info, Metadata):
            queue.append(info.type)


def _referring(schema: Any) -> Any:
    """Return a schema in which open types are references to the components that they name."""
    if isinstance(schema, list):
        return [_referring(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return reference(schema[COMPONENT]) if COMPONENT in schema else {k: _referring(v) for k, v in schema.items()}


def _from_pydantic(uses: list[Use], *, taken: JSON) -> tuple[list[JSON], JSON]:
    inputs: list[tuple[int, Any, TypeAdapter[Any]]] = []
    for number, (kind, mode) in enumerate(uses):
        try:
            adapter = kind if isinstance(kind, TypeAdapter) else TypeAdapter(kind)
            adapter.json_schema(mode=mode)
        except (PydanticSchemaGenerationError, PydanticUserError):
            continue
        inputs.append((number, mode, adapter))
    found, document = TypeAdapter.json_schemas(inputs, ref_template=_TEMPLATE.replace("{name}", "{model}"))
    by_number = {number: schema for (number, _), schema in found.items()}
    definitions = document.get("$defs", {})
    schemas = [by_number.get(number, {}) for number in range(len(uses))]
    for clash in sorted(definitions.keys() & taken.keys()):
        new = next(f"{clash}{n}" for n in range(2, 1000) if f"{clash}{n}" not in taken | definitions)
        definitions[new] = definitions.pop(clash)
        schemas, definitions = _renamed([schemas, definitions], clash, new)
    return schemas, definitions


def _renamed(document: Any, old: str, new: str) -> Any:
    """Point every reference to another name."""
    before, after = (json.dumps(reference(name)["$ref"]) for name in (old, new))
    return json.loads(json.dumps(document).replace(before, after))
