"""From types to JSON Schemas: those of msgspec and those pydantic can read, in one set of components."""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct
from msgspec.inspect import ListType, StructType, UnionType, multi_type_info
from pydantic import PydanticUserError, TypeAdapter
from pydantic.errors import PydanticSchemaGenerationError

from antwort.server.description.vocabulary import DESCRIPTIONS, NAMES, REFINED, SCHEMAS, SPOKEN
from antwort.types import JSON

__all__ = ["Use", "build_schemas", "reference"]

Use = tuple[Any, Literal["validation", "serialization"]]
"""A type, or a schema as it is, and whether it is read or written."""

_TEMPLATE = "#/components/schemas/{name}"


def reference(name: str) -> JSON:
    """Return a reference to a component."""
    return {"$ref": _TEMPLATE.format(name=name)}


def build_schemas(uses: Iterable[Use]) -> tuple[list[JSON], JSON]:
    """Return the schema of each use, in order, and the components they refer to.

    What has no JSON Schema gets the one that allows everything.
    """
    uses = list(uses)
    read = [kind for kind, mode in uses if _is_struct(kind) and mode == "validation"]
    written = dict(_written([*(kind for kind, mode in uses if _is_struct(kind) and mode == "serialization"), *SPOKEN]))
    structs = list(dict.fromkeys([*read, *written]))
    found, components = msgspec.json.schema_components(structs, ref_template=_TEMPLATE)
    for kind, schema in zip(structs, found, strict=True):
        if kind in written:
            components[schema["$ref"].rpartition("/")[2]]["required"] = written[kind]
    references, components = _short_names(found, components)
    own = dict(zip(structs, references, strict=True))
    components |= json.loads(json.dumps(SCHEMAS))
    rest = [use for use in uses if not _is_struct(use[0]) and not isinstance(use[0], dict)]
    others, definitions = _from_pydantic(rest, taken=components)
    components |= definitions
    _refine(components)
    queue = iter(others)
    schemas = [kind if isinstance(kind, dict) else own[kind] if _is_struct(kind) else next(queue) for kind, _ in uses]
    return schemas, components


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


def _short_names(references: Sequence[JSON], components: JSON) -> tuple[Sequence[JSON], JSON]:
    """Give structs of equal names, which msgspec tells apart by their modules, names of their own."""
    for long, short in NAMES.items():
        if long in components:
            components[short] = {**components.pop(long), "title": short}
            references, components = _renamed([references, components], long, short)
    return references, components


def _refine(components: JSON) -> None:
    """Say what msgspec's types leave open, and what each field means."""
    for name, described in DESCRIPTIONS.items():
        for field, text in described.items() if name in components else ():
            components[name]["properties"][field]["description"] = text
    for (name, field), target in REFINED.items():
        if name not in components:
            continue
        schema = components[name]["properties"][field]
        lists = [part for part in (schema, *schema.get("anyOf", ())) if part.get("type") == "array"]
        for part in lists:
            part["items"] = reference(target)


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
