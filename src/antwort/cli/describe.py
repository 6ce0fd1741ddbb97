"""A function described for people."""

import json
import math
from collections.abc import Iterator, Mapping
from textwrap import indent
from typing import Any

from antwort.cli.output import table
from antwort.config import FunctionsConfig
from antwort.functions import FunctionSpec

__all__ = ["description"]


def description(spec: FunctionSpec, provider: str, defaults: FunctionsConfig) -> str:
    """Return everything there is to know about a function before calling it."""
    facts = dict(_facts(spec, provider, defaults))
    size = max(map(len, facts))
    parts = [
        spec.name,
        indent(spec.description, "  "),
        "Parameters",
        indent(_parameters(spec.parameters), "  "),
        "\n".join(f"{name.ljust(size)}  {text}" for name, text in facts.items()),
    ]
    return "\n\n".join(parts)


def _facts(spec: FunctionSpec, provider: str, defaults: FunctionsConfig) -> Iterator[tuple[str, str]]:
    limits = spec.limits
    yield "provider", provider
    yield "scope", spec.scope.value if spec.agents is None else f"{spec.scope.value} ({', '.join(sorted(spec.agents))})"
    yield "timeout", "none (it waits)" if spec.suspends else _limit(limits.timeout, defaults.timeout, "seconds")
    yield "output", _limit(limits.max_output, defaults.max_output, "characters")
    yield "concurrency", _limit(limits.concurrency, defaults.concurrency, "calls")
    yield "idempotent", "yes" if spec.idempotent else "no"
    yield "effect", spec.effect.value
    if spec.hosted is not None:
        item = f", output item {spec.hosted.item}" if spec.hosted.item else ""
        yield "tool types", f"{', '.join(spec.hosted.types)}{item}"


def _limit(own: float | None, default: float | None, unit: str) -> str:
    value = default if own is None else own
    text = "no limit" if value is None or math.isinf(value) else f"{value:,.12g} {unit}"
    return text if own is not None else f"{text} (default)"


def _parameters(schema: Mapping[str, Any]) -> str:
    properties: Mapping[str, Any] = schema.get("properties", {})
    if not properties:
        return "none"
    required = schema.get("required", ())
    return table(
        ("name", "type", "default", "description"),
        [
            (name, _type(inner), "required" if name in required else _default(inner), inner.get("description", ""))
            for name, inner in properties.items()
        ],
        width=None,
    )


def _default(schema: Mapping[str, Any]) -> str:
    return json.dumps(schema["default"], ensure_ascii=False) if "default" in schema else "-"


def _type(schema: Any) -> str:
    """Return a short name for what a schema admits."""
    if not isinstance(schema, Mapping):
        return "any"
    if "enum" in schema or "const" in schema:
        values = schema.get("enum", [schema.get("const")])
        return " | ".join(json.dumps(value, ensure_ascii=False) for value in values)
    if union := schema.get("anyOf") or schema.get("oneOf"):
        return " | ".join(_type(inner) for inner in union)
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    kind = schema.get("type", "any")
    if kind == "array" and "items" in schema:
        return f"array of {_type(schema['items'])}"
    return " | ".join(kind) if isinstance(kind, list) else str(kind)
