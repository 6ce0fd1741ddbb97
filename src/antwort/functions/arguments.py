"""Checking the arguments a model gave, with messages it can act on."""

import copy
import functools
import re
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, from_json, to_json

from antwort.context import Context
from antwort.context.variables import Reference, Variable, VariableView
from antwort.errors import DefinitionError, FunctionError, InvalidArgumentsError, did_you_mean
from antwort.functions.signature import Signature, drop_nulls
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


class ForeignArguments:
    """Arguments that are not checked here: whoever has written the schema does that himself.

    It is for a schema of strangers with references: to follow those could take for ever.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = dict(schema)

    @property
    def schema(self) -> JSON:
        """The JSON Schema of the parameters."""
        return self._schema

    def validate(self, raw: str | bytes | Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments as they are."""
        return parse_object(raw)


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


# --- references to values, and long results that become references ---------------------------------------------------


HEAD, TAIL = 1000, 500
"""Characters of a long result that the model reads at once."""
LONGEST = 25_000_000
"""Characters of a result that are kept."""
_DEEPEST = 50
_ID = re.compile(r"var_[0-9a-f]{48}")


def may_refer(raw: str | bytes | Mapping[str, Any]) -> bool:
    """Tell whether there may be references in arguments."""
    if isinstance(raw, str):
        return "$ref" in raw
    return b"$ref" in raw if isinstance(raw, bytes) else isinstance(raw, Mapping)


async def resolve(
    raw: str | bytes | Mapping[str, Any], ctx: Context, most: int, own: bool | Collection[str] = False
) -> Mapping[str, Any]:
    """Return arguments with values in the place of references; FunctionError if one is out of reach, or too large.

    Below the names in `own`, or everywhere, the function follows references itself: there each is a `Reference`. What a
    value has in it is data, whatever it looks like: nobody has written it here.
    """
    given = parse_object(raw)
    arguments = _Arguments(given, [*given] if own is True else own or (), ctx.references)
    if not arguments.named:
        return arguments.filled({})
    variables = ctx.variables
    found = {name: await variables.find(name) for name in dict.fromkeys(arguments.named)}
    size = sum(found[name].size for name in arguments.named)  # whoever writes the arguments writes each of them
    if size > most:
        raise FunctionError(
            f"The references stand for {size:,} bytes; at most {most:,} can be given to a function. Give it a part."
        )
    return arguments.filled({name: await _loaded(variables, variable) for name, variable in found.items()})


async def _loaded(variables: VariableView, variable: Variable) -> Any:
    value = await variables.load(variable)
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise FunctionError(f"'{variable.key}' is binary: it cannot be given to a function.") from None


class _Arguments:
    """Arguments with the references in them. A reference is an object, never a text: texts may be anybody's."""

    def __init__(self, arguments: Mapping[str, Any], own: Collection[str], known: Collection[str] | None) -> None:
        self._arguments = arguments
        self._own = frozenset(own)
        self._known = known
        self.named = list(self._names(arguments, 0))
        """The ids of those whose values are wanted, as often as they are written."""

    def filled(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments with values in the place of references."""
        return {key: self._filled(key, value, values, 0) for key, value in self._arguments.items()}

    def _names(self, value: Any, depth: int) -> Iterator[str]:
        if depth > _DEEPEST:
            return
        if isinstance(value, Mapping):
            name = self._name(value)
            if name is not None and _ID.fullmatch(name):
                yield name
                return
            for key, part in value.items():
                if key not in self._own:
                    yield from self._names(part, depth + 1)
        elif isinstance(value, list):
            for part in value:
                yield from self._names(part, depth + 1)

    def _name(self, value: Mapping[Any, Any]) -> str | None:
        """Return what an object refers to, if it is a reference."""
        name = value.get("$ref") if len(value) == 1 else None
        return name if isinstance(name, str) and (self._known is None or name in self._known) else None

    def _filled(self, key: Any, value: Any, values: Mapping[str, Any], depth: int) -> Any:
        if key in self._own:
            return self._typed(value, depth)
        if depth >= _DEEPEST:
            return value
        if isinstance(value, Mapping):
            name = self._name(value)
            if name is not None and name in values:
                return values[name]
            return {key: self._filled(key, part, values, depth + 1) for key, part in value.items()}
        return [self._filled(None, part, values, depth + 1) for part in value] if isinstance(value, list) else value

    def _typed(self, value: Any, depth: int) -> Any:
        """Return a value with references as such."""
        if depth >= _DEEPEST:
            return value
        if isinstance(value, Mapping):
            name = self._name(value)
            if name is not None:
                return Reference(name)
            return {key: self._typed(part, depth + 1) for key, part in value.items()}
        return [self._typed(part, depth + 1) for part in value] if isinstance(value, list) else value


async def spilled(text: str, ctx: Context, *, is_json: bool) -> str:
    """Keep a long result as a variable of the agent, and return what the model reads instead."""
    key = f"result_{ctx.call_id}"[:200] if ctx.call_id else "result"
    made = await ctx.variables.write(key, _encoded(text), kind="json" if is_json else "text")
    shown = {**made.reference, "size": made.size, "kind": made.kind, "head": text[:HEAD], "tail": text[-TAIL:]}
    return msgspec.json.encode(shown).decode()


async def _encoded(text: str) -> AsyncIterator[bytes]:
    for start in range(0, len(text), 2**16):
        yield text[start : start + 2**16].encode(errors="replace")
