"""The API description as Markdown, for the documentation."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from urllib.parse import urlencode

from antwort.types import JSON

_BASE = "http://127.0.0.1:8080"
_LONG = 8
"""Keys from which on an object is shown once only."""
_KEPT = ("id", "object", "status", "output")
_KNOWN = {"InputItem": "items", "Tool": "tools"}
"""Objects of many kinds, which other pages tell about: a table has no fields of them."""
_DEPTH = 2
"""How far below a body the fields of objects are told."""


def markdown_reference(document: JSON, *, only: str | None = None, http: str = "http-api.md") -> str:
    """Return a section per tag with a part per endpoint: parameters, body, an example with its answer, errors.

    `only` is the one tag that is wanted; its section has no heading. `http` is where the page about HTTP is.
    """
    return "\n\n".join(_Reference(document, http).sections(only))


class _Reference:
    def __init__(self, document: JSON, http: str) -> None:
        self._document = document
        self._http = http
        self._shown: set[str] = set()
        """Kinds of objects that were shown whole."""
        self._bodies: dict[str, str] = {}
        """Where the fields of each kind of body stand."""

    def sections(self, only: str | None) -> Iterator[str]:
        operations = [
            (method, path, operation)
            for path, methods in self._document["paths"].items()
            for method, operation in methods.items()
        ]
        for tag in self._document["tags"]:
            if only not in {None, tag["name"]}:
                continue
            if only is None:
                yield f"## {tag['name'].capitalize()}"
                yield tag["description"]
            for method, path, operation in operations:
                if tag["name"] in operation["tags"]:
                    yield from self._endpoint(method.upper(), path, operation)

    def _endpoint(self, method: str, path: str, operation: JSON) -> Iterator[str]:
        yield f"### `{method} {path}`"
        yield operation["description"]
        parameters = operation.get("parameters", [])
        if parameters:
            rows = [self._parameter(parameter) for parameter in parameters]
            yield _table(("Parameter", "In", "Type", "Default", "Meaning"), rows)
        if "requestBody" in operation:
            [content] = operation["requestBody"]["content"].values()
            yield self._body(f"{method} {path}", content["schema"])
        yield from self._examples(method, path, operation)
        errors = [f"{status}" for status in operation["responses"] if not status.startswith("2")]
        yield f"[Errors]({self._http}#errors): {', '.join(errors)}."

    def _body(self, endpoint: str, schema: JSON) -> str:
        first = self._bodies.setdefault(schema.get("$ref", endpoint), endpoint)
        if first != endpoint:
            return f"The body has the fields of [`{first}`](#{_slug(first)})."
        return _table(("Field", "Type", "Meaning"), self._fields(self._resolved(schema), ""))

    def _parameter(self, parameter: JSON) -> Sequence[str]:
        schema = parameter["schema"]
        default = f"`{json.dumps(schema['default'])}`" if "default" in schema else ""
        name = f"`{parameter['name']}`" + (" (required)" if parameter.get("required") else "")
        meaning = parameter.get("description", "")
        return name, parameter["in"], self._type(schema), default, meaning

    def _fields(self, schema: JSON, prefix: str) -> Iterator[Sequence[str]]:
        """Yield the fields of an object, those of objects in it too."""
        for name, field in schema.get("properties", {}).items():
            required = " (required)" if name in schema.get("required", ()) else ""
            parts = [part for part in _choices(field) if part.get("type") != "null"]
            told = [field, *parts, *map(self._resolved, parts)]
            meaning = next((part["description"] for part in told if "description" in part), "")
            default = field.get("default")
            otherwise = "" if default is None else f"; `{json.dumps(default)}` if not given"
            yield f"`{prefix}{name}`{required}", f"{self._type(field)}{otherwise}", meaning
            element, mark = (parts[0]["items"], "[]") if "items" in parts[0] else (parts[0], "")
            open_kind = _name(element) in {"", *_KNOWN}
            if prefix.count(".") < _DEPTH and len(parts) == 1 and not open_kind:
                yield from self._fields(self._resolved(element), f"{prefix}{name}{mark}.")

    def _resolved(self, schema: JSON) -> JSON:
        if "$ref" not in schema:
            return schema
        found: JSON = self._document["components"]["schemas"][_name(schema)]
        return found

    def _type(self, schema: JSON) -> str:
        """Name a type with its limits in a few words."""
        parts = [part for part in _choices(schema) if part.get("type") != "null"]
        return " or ".join(dict.fromkeys(filter(None, map(self._one_type, parts)))) or "anything"

    def _one_type(self, schema: JSON) -> str:
        if "$ref" in schema:
            return "object"
        if "enum" in schema or "const" in schema:
            return ", ".join(f"`{value}`" for value in schema.get("enum") or [schema["const"]])
        kind = schema.get("type", "")
        if kind == "array":
            return f"list of {self._plural(schema.get('items', {}))}{_limits(schema, 'Items', '')}"
        if kind == "object":
            longest = schema.get("propertyNames", {}).get("maxLength")
            unit = "keys" if longest is None else f"keys of up to {longest} characters"
            return f"object{_limits(schema, 'Properties', unit)}"
        if kind == "string":
            return f"text{_limits(schema, 'Length', 'characters')}"
        return f"{kind}{_range(schema)}"

    def _plural(self, schema: JSON) -> str:
        if "$ref" in schema:
            return _KNOWN.get(_name(schema), "objects")
        return {"string": "texts", "object": "objects", "integer": "integers"}.get(schema.get("type", ""), "values")

    # --- examples ----------------------------------------------------------------------------------------------------

    def _examples(self, method: str, path: str, operation: JSON) -> Iterator[str]:
        success = next(answer for status, answer in operation["responses"].items() if status.startswith("2"))
        answers = next(iter(success.get("content", {"": {}}).values())).get("examples", {})
        body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("examples", {})
        for key in dict.fromkeys([*body, *answers]):
            shown = answers.get(key) or body[key]
            if len(body) > 1:
                yield f"{shown['summary']}:"
            yield _block("sh", _curl(method, path, operation, body.get(key)))
            if key in answers:
                value = answers[key]["value"]
                yield _block("text", value) if isinstance(value, str) else _block("json", self._written(value))

    def _written(self, value: Any) -> str:
        short = self._shortened(value)
        line = json.dumps(short, ensure_ascii=False)
        return line if len(line) <= 110 else json.dumps(short, ensure_ascii=False, indent=2)

    def _shortened(self, value: Any) -> Any:
        """Return an example with the large objects that were shown before cut down to what tells them apart."""
        if isinstance(value, list):
            return [self._shortened(part) for part in value]
        if not isinstance(value, dict):
            return value
        kind = value.get("object")
        if len(value) >= _LONG and kind in self._shown:
            return {**{key: value[key] for key in _KEPT if key in value}, "…": "…"}
        result = {key: self._shortened(part) for key, part in value.items()}
        if isinstance(kind, str):
            self._shown.add(kind)
        return result


def _name(schema: JSON) -> str:
    """Return the name of the schema that is referred to, if one is."""
    name: str = schema.get("$ref", "").rpartition("/")[2]
    return name


def _slug(heading: str) -> str:
    """Return the anchor that a heading gets."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def _choices(schema: JSON) -> list[JSON]:
    return schema.get("anyOf") or [schema]


def _limits(schema: JSON, kind: str, unit: str) -> str:
    least, most = schema.get(f"min{kind}", 0), schema.get(f"max{kind}")
    unit = f" {unit}" if unit else ""
    if most is not None:
        return f", {least} to {most}{unit}" if least else f", up to {most}{unit}"
    return f", at least {least}{unit}" if least > 1 else ""


def _range(schema: JSON) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and high is not None and high < 2**31 - 1:
        return f", {low} to {high}"
    return "" if low is None else f", at least {low}"


def _curl(method: str, path: str, operation: JSON, body: JSON | None) -> str:
    query = {}
    for parameter in operation.get("parameters", ()):
        if "example" in parameter and parameter["in"] == "path":
            path = path.replace("{" + parameter["name"] + "}", str(parameter["example"]))
        elif "example" in parameter:
            query[parameter["name"]] = parameter["example"]
    url = f"{_BASE}{path}" + (f"?{urlencode(query)}" if query else "")
    parts = [f"curl '{url}'" if query else f"curl {url}"]
    if (method == "POST" and body is None) or method not in {"GET", "POST"}:
        parts[0] = parts[0].replace("curl", f"curl -X {method}", 1)
    if operation.get("security"):
        parts.append('-H "authorization: Bearer $KEY"')
    if body is not None:
        parts += ["-H 'content-type: application/json'", f"-d '{json.dumps(body['value'], ensure_ascii=False)}'"]
    return " \\\n  ".join(parts)


def _block(language: str, text: str) -> str:
    return f"```{language}\n{text.rstrip()}\n```"


def _table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [headers, ["---"] * len(headers), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
