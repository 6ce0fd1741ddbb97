"""The file `antwort init` writes: every key with what it does and its default."""

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ByteSize
from pydantic.fields import FieldInfo
from pydantic_core import to_jsonable_python

from antwort.config.durations import Seconds, is_duration, short_duration
from antwort.config.model import Config, ProviderConfig
from antwort.config.settings import alternatives, models_in
from antwort.lazy_imports import imported_on_use

if TYPE_CHECKING:
    import yaml
else:  # only `antwort init` writes such a file
    yaml = imported_on_use("yaml")

_HEADER = """\
# The configuration of antwort.
#
# Every key stands here with its default. To change one, remove the '#' directly before it.
# A value may hold ${VARIABLE} or ${VARIABLE:-default}; for a secret 'x', 'x_file' names a file that holds it.
# A variable such as ANTWORT_SERVER__PORT overrides this file, a flag overrides both.
# 'antwort config show' prints what is in force, and why.
"""

_INDENT = "  "


def commented_config(providers: Mapping[str, str]) -> str:
    """Return a file that loads to the defaults. `providers` are the names and summaries to show as examples."""
    lines = [_HEADER]
    for name, field in Config.model_fields.items():
        lines += _provider_lines(field, providers) if name == "providers" else _field_lines(name, field, "")
        lines.append("")
    return "\n".join(lines).rstrip("\n") + "\n"


def _field_lines(name: str, field: FieldInfo, indent: str) -> Iterator[str]:
    yield f"{indent}# {field.description}"
    value = field_default(field)
    if isinstance(value, BaseModel):
        yield f"{indent}{name}:"
        for inner_name, inner in type(value).model_fields.items():
            yield from _field_lines(inner_name, inner, indent + _INDENT)
        return
    yield f"{indent}#{name}: {default_text(value)}"
    for model in models_in(field.annotation):
        yield f"{indent}# {'Each item' if isinstance(value, list) else 'The section'} has these keys:"
        for inner_name, inner in model.model_fields.items():
            note = "required" if inner.is_required() else default_text(field_default(inner))
            yield f"{indent}# {_INDENT}{inner_name} ({note}): {inner.description}"


def _provider_lines(field: FieldInfo, providers: Mapping[str, str]) -> Iterator[str]:
    yield f"# {field.description}"
    yield "# Each has these keys:"
    for name, inner in ProviderConfig.model_fields.items():
        yield f"# {_INDENT}{name} ({default_text(field_default(inner))}): {inner.description}"
    yield "#providers:"
    for name, summary in providers.items():
        yield f"{_INDENT}# {' '.join(summary.split())}"
        yield f"{_INDENT}#{name}:"
        yield f"{_INDENT * 2}#enabled: false"


def field_default(field: FieldInfo) -> Any:
    """Return the default of a field that has one."""
    value = field.get_default(call_default_factory=True, validated_data={})
    return Seconds(value) if value is not None and Seconds in alternatives(field.annotation) else value


def default_text(value: Any) -> str:
    """Return a value as YAML, in one line."""
    if isinstance(value, ByteSize):
        return _size(value)
    if is_duration(value):
        return short_duration(value)
    return yaml.safe_dump([to_jsonable_python(value)], default_flow_style=True, width=math.inf).strip()[1:-1]


def _size(value: ByteSize) -> str:
    for unit, factor in (("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024)):
        if value and value % factor == 0:
            return f"{value // factor}{unit}"
    return str(int(value))
