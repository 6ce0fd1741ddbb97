"""The reference of settings for the documentation, generated from the models."""

import types
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ByteSize, SecretStr
from pydantic.fields import FieldInfo

from antwort.config import ExtensionKind
from antwort.config.durations import Age, Seconds
from antwort.config.model import Config
from antwort.config.origins import join
from antwort.config.settings import alternatives, is_secret_type, metadata_of, models_in
from antwort.config.template import default_text, field_default

_NAMES: Mapping[Any, str] = types.MappingProxyType(
    {
        bool: "boolean",
        int: "integer",
        float: "number",
        str: "text",
        Path: "path",
        ByteSize: "size",
        SecretStr: "secret",
        Seconds: "duration",
        Age: "duration",
    }
)


def markdown_tables() -> str:
    """Return the reference of the whole configuration: a heading and a table for each section."""
    top: dict[str, FieldInfo] = {}
    sections: list[str] = []
    for name, field in Config.model_fields.items():
        models = models_in(field.annotation)
        if not models:
            top[name] = field
            continue
        prefix = f"{name}.<name>" if get_origin(alternatives(field.annotation)[0]) is dict else name
        sections.append(f"## `{name}`\n\n{field.description}\n\n{markdown_table(models[0], prefix)}")
    return "\n\n".join([_table(_rows("", top)), *sections]) + "\n"


def markdown_table(model: type[BaseModel], prefix: str = "") -> str:
    """Return the table of one model's keys, those of nested sections included."""
    return _table(_rows(prefix, model.model_fields))


def type_name(annotation: Any) -> str:
    """Return what an operator calls a type."""
    return " or ".join(dict.fromkeys(_one_name(kind) for kind in alternatives(annotation)))


def _rows(prefix: str, fields: Mapping[str, FieldInfo]) -> Iterator[Sequence[str]]:
    for name, field in fields.items():
        key = join(prefix, name)
        models = models_in(field.annotation)
        value = None if field.is_required() else field_default(field)
        if not isinstance(value, BaseModel):
            shown = "required" if field.is_required() else f"`{default_text(value)}`"
            also = f" Or `{name}_file`: a file that holds it." if is_secret_type(field.annotation) else ""
            yield f"`{key}`", _kinds(field) or type_name(field.annotation), shown, f"{field.description}{also}"
        for model in models:
            yield from _rows(f"{key}[]" if isinstance(value, list) else key, model.model_fields)


def _kinds(field: FieldInfo) -> str:
    """Return the names of what can be chosen, if that is what a setting does."""
    kinds = [one for one in metadata_of(field) if isinstance(one, ExtensionKind)]
    return f"{', '.join(f'`{name}`' for name in kinds[0].own_names())}, or an extension" if kinds else ""


def _table(rows: Iterator[Sequence[str]]) -> str:
    lines = [("Key", "Type", "Default", "Description"), ("---",) * 4, *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _one_name(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(kind))
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return "section"
    if get_origin(kind) is list:
        return f"list of {_plural(get_args(kind)[0])}"
    if get_origin(kind) is dict or kind is dict:
        return "mapping"
    return _NAMES.get(kind, getattr(kind, "__name__", str(kind)))


def _plural(annotation: Any) -> str:
    name = type_name(annotation)
    return name if name == "text" else f"{name}s"
