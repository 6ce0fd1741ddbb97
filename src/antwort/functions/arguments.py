"""Checking the arguments a model gave, with messages it can act on."""

import copy
import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, from_json, to_json

from antwort.errors import DefinitionError, InvalidArgumentsError, did_you_mean
from antwort.functions.schema import drop_nulls
from antwort.functions.signature import Signature
from antwort.lazy_imports import imported_on_use
from antwort.types import JSON

if TYPE_CHECKING:
    import jsonschema_rs
else:  # only functions with a schema of their own need it
    jsonschema_rs = imported_on_use("jsonschema_rs")

_MOST_ERRORS = 5
_LONGEST_VALUE = 80
_LONGEST_PROBLEM = 300
_MOST_CHOICES = 20
_FOLLOWED = 10
"""How deep a type is looked into."""


class Arguments(Protocol):
    """The parameters of a function: their schema and their check."""

    @property
    def schema(self) -> JSON:
        """The JSON Schema of the parameters, as an object."""

    def validate(self, raw: str | bytes | Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments as the handler wants them, or raise InvalidArgumentsError."""


def parse_object(raw: str | bytes | Mapping[str, Any]) -> dict[str, Any]:
    """Read arguments that may be JSON text; models send an empty string for "no arguments"."""
    if not isinstance(raw, (str, bytes)):
        if isinstance(raw, Mapping):
            return dict(raw)
        raise InvalidArgumentsError(f"The arguments must be a JSON object, not {type(raw).__name__}.")
    try:
        value = from_json(raw)
    except ValueError as error:
        if not raw.strip():
            return {}
        raise InvalidArgumentsError(f"The arguments are not valid JSON: {error}. Send one JSON object.") from None
    if not isinstance(value, dict):
        raise InvalidArgumentsError(f"The arguments must be a JSON object, not {_json_type(value)}.")
    return value


def _json_type(value: Any) -> str:
    if value is None:
        return "null"
    return {bool: "a boolean", int: "a number", float: "a number", str: "a string", list: "an array"}.get(
        type(value), "this"
    )


class SignatureArguments:
    """Arguments checked against type hints, and turned into the Python types the handler declares."""

    def __init__(self, signature: Signature, *, strict: bool) -> None:
        self._signature = signature
        self._strict = strict

    @functools.cached_property
    def _adapter(self) -> TypeAdapter[dict[str, Any]]:
        return self._signature.adapter

    @property
    def schema(self) -> JSON:
        """The JSON Schema of the parameters."""
        return self._signature.schema

    def validate(self, raw: str | bytes | Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments in the declared types."""
        values = parse_object(raw)
        if self._strict:
            values = drop_nulls(values, self.schema)
        try:
            arguments = self._checked(values)
        except ValidationError as error:
            problems = [self._problem(found) for found in error.errors(include_url=False, include_context=False)]
            raise InvalidArgumentsError(_message(problems, self.schema)) from None
        except RecursionError:
            raise InvalidArgumentsError("The arguments are nested too deeply.") from None
        for name, field in self._signature.field_defaults.items():
            if name not in arguments:  # made anew for each call: a shared list would carry over to the next caller
                arguments[name] = field.get_default(call_default_factory=True, validated_data={})
        return arguments

    def _checked(self, values: dict[str, Any]) -> dict[str, Any]:
        try:
            return self._adapter.validator.validate_python(values)  # type: ignore[no-any-return]
        except ValidationError as error:
            # A model in pydantic's strict mode takes a date only as JSON; that way is slower, so it is the second.
            try:
                return self._adapter.validator.validate_json(to_json(values, inf_nan_mode="constants"))  # type: ignore[no-any-return]
            except (ValidationError, PydanticSerializationError):
                raise error from None

    def _problem(self, error: Mapping[str, Any]) -> str:
        path = ".".join(str(part) for part in error["loc"]) or "arguments"
        if error["type"] == "missing":
            return f"{path}: missing"
        if error["type"] == "extra_forbidden":
            known = self.schema["properties"] if len(error["loc"]) == 1 else ()
            return f"{_cut(path)}: unknown argument{did_you_mean(_cut(path), known)}"
        return f"{_cut(path)}: {_cut(error['msg'], _LONGEST_PROBLEM)} (got {_excerpt(error['input'])})"


class SchemaArguments:
    """Arguments checked against a JSON Schema and handed on as plain JSON values."""

    def __init__(self, schema: JSON, *, closed: bool, strict: bool, name: str) -> None:
        self._schema = schema
        self._closed = closed
        self._strict = strict
        self._defaults = {
            key: part["default"]
            for key, part in schema.get("properties", {}).items()
            if isinstance(part, Mapping) and "default" in part
        }
        try:
            self._validator = jsonschema_rs.validator_for(schema, retriever=_refuse)
        except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
            cause = str(error).splitlines()[0]
            raise DefinitionError(f"function '{name}': `parameters` is not a valid JSON Schema: {cause}") from error

    @property
    def schema(self) -> JSON:
        """The JSON Schema of the parameters."""
        return self._schema

    def validate(self, raw: str | bytes | Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments with top-level defaults filled in."""
        arguments = parse_object(raw)
        if self._strict:
            arguments = drop_nulls(arguments, self._schema)
        problems: list[str] = []
        if self._closed:
            known = self._schema.get("properties", {})
            unknown = [_cut(str(key)) for key in arguments if key not in known]
            problems += [f"{key}: unknown argument{did_you_mean(key, known)}" for key in unknown]
        try:
            problems += self._problems(arguments)
        except (ValueError, OverflowError) as error:  # what JSON itself cannot hold, such as NaN given in Python
            raise InvalidArgumentsError(f"The arguments are not valid JSON: {error}.") from None
        if problems:
            raise InvalidArgumentsError(_message(problems, self._schema))
        return {**copy.deepcopy(self._defaults), **arguments}

    def _problems(self, arguments: Mapping[str, Any]) -> list[str]:
        try:
            return [_schema_problem(error) for error in self._validator.iter_errors(arguments)]
        except ValueError:  # there may be references, whose type it does not know
            return [_schema_problem(error) for error in self._validator.iter_errors(msgspec.to_builtins(arguments))]


def _schema_problem(error: "jsonschema_rs.ValidationError") -> str:
    path = ".".join(str(part) for part in error.instance_path)
    message = _cut(error.message, _LONGEST_PROBLEM)
    return f"{_cut(path)}: {message}" if path else message


def _refuse(uri: str) -> Any:
    """Keep schemas self-contained: nothing is fetched while a function is registered."""
    raise ValueError(f"the reference {uri} points outside the schema")


def _cut(text: str, limit: int = _LONGEST_VALUE) -> str:
    return text if len(text) <= limit else text[:limit] + "…"


def _excerpt(value: Any) -> str:
    try:
        return _cut(repr(value))
    except ValueError:  # an integer with more digits than Python writes
        return f"a very large {type(value).__name__}"


def _message(problems: Sequence[str], schema: JSON) -> str:
    """Say what is wrong and what is right, in one paragraph a model can act on."""
    shown = "; ".join(problems[:_MOST_ERRORS])
    if len(problems) > _MOST_ERRORS:
        shown += f"; and {len(problems) - _MOST_ERRORS} more"
    stop = "" if shown.endswith("?") else "."
    return f"Invalid arguments: {shown}{stop} Expected: {_summary(schema)}."


def _summary(schema: JSON) -> str:
    required = schema.get("required", ())
    definitions = schema.get("$defs", {})
    parts = [
        f"{name} ({_type_name(part, definitions)}, {'required' if name in required else 'optional'})"
        for name, part in schema.get("properties", {}).items()
    ]
    return ", ".join(parts) or "no arguments"


def _type_name(schema: Any, definitions: Any, depth: int = 0) -> str:
    if not isinstance(schema, Mapping) or depth > _FOLLOWED:
        return "any"
    if "$ref" in schema and isinstance(definitions, Mapping):  # a class of its own, such as an enum, stands apart
        return _type_name(definitions.get(str(schema["$ref"]).rpartition("/")[2]), definitions, depth + 1)
    choices = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(choices, list) and choices:
        shown = [repr(value) for value in choices[:_MOST_CHOICES]] + ["…"] * (len(choices) > _MOST_CHOICES)
        return shown[0] if len(choices) == 1 else f"one of {', '.join(shown)}"
    kind = schema.get("type")
    kinds = [kind] if isinstance(kind, str) else kind
    if isinstance(kinds, list):
        return " or ".join(map(str, kinds))
    branches = [*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())]
    return " or ".join(dict.fromkeys(_type_name(part, definitions, depth + 1) for part in branches)) or "any"
