"""What a function returns, as a JSON Schema, where its hint says it."""

from collections.abc import Callable
from typing import Any

from pydantic import PydanticUserError, TypeAdapter
from pydantic.errors import PydanticSchemaGenerationError

from antwort.callables import modern, type_hints
from antwort.errors import DefinitionError
from antwort.functions.results import Image, ToolResult
from antwort.functions.signature import plain_schema, tidy
from antwort.types import JSON

_SAYS_NOTHING = (None, Any, str, int, float, bool, dict, list, type(None), ToolResult, Image)


def returned_object(handler: Callable[..., Any], *, name: str) -> JSON | None:
    """Return the JSON Schema of the objects that a function returns; None if it returns others, or does not say it."""
    try:
        hint = type_hints(handler, name=name).get("return")
    except DefinitionError:
        return None
    if any(hint is known for known in _SAYS_NOTHING):
        return None
    schema = plain_schema(hint)
    if schema is None:
        try:
            schema = tidy(TypeAdapter(modern(hint)).json_schema(mode="serialization"))
        except (PydanticUserError, PydanticSchemaGenerationError, TypeError, ValueError):
            return None  # nobody has promised that it is a type of data
    return schema if schema.get("type") == "object" and schema.keys() > {"type"} else None
