"""The format of an answer, as clients may ask for it. It is only checked, and stays JSON."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated

from msgspec import Meta

from antwort.types import JSON
from antwort.wire.content_shapes import Shape
from antwort.wire.field_errors import check_shape, read_type, unsupported_value
from antwort.wire.strict_schemas import check_answer_schema


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
