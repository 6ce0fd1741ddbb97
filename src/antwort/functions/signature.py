"""What a Python signature says: the parameters a model may give, and what comes back, each with its JSON Schema."""

import functools
import inspect
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin

import typing_extensions
from msgspec import Struct
from pydantic import ConfigDict, PydanticUserError, TypeAdapter
from pydantic.errors import PydanticSchemaGenerationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticSerializationError, PydanticUndefined, to_jsonable_python

from antwort.callables import is_context, modern, read_docstring, type_hints
from antwort.errors import DefinitionError
from antwort.functions.results import Image, ToolResult
from antwort.types import JSON

# --- JSON Schema: from an explicit mapping, made tidy, made strict ---------------------------------------------------


def object_schema(parameters: Mapping[str, Any]) -> tuple[JSON, bool]:
    """Return a JSON Schema for an explicit `parameters` mapping, and whether it takes no other names.

    Two notations are read: a whole schema (`{"type": "object", "properties": …}`), taken as it is, or a mapping from
    parameter name to its schema (`{"query": {"type": "string", "description": "…"}}`). In the second every parameter
    is required unless it has a `default`, or says `"required": false` or `"optional": true`.
    """
    if parameters.get("type") == "object":
        return dict(parameters), parameters.get("additionalProperties") is False
    properties: JSON = {}
    required: list[str] = []
    for name, described in parameters.items():
        if not isinstance(described, Mapping):
            raise DefinitionError(
                f"parameter '{name}' must be a mapping such as {{'type': 'string', 'description': '…'}}"
            )
        schema = dict(described)
        # `required` is a list in JSON Schema (of an object parameter's own properties) and a flag in this notation.
        flag = schema.pop("required") if isinstance(schema.get("required"), bool) else None
        optional = schema.pop("optional", False)
        if flag if flag is not None else not (optional or "default" in schema):
            required.append(name)
        properties[name] = schema
    return {"type": "object", "properties": properties, "required": required}, True


_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
_NESTED = 8
"""How deep plain types may be nested."""


def plain_schema(hint: Any, depth: int = 0) -> JSON | None:
    """Return the JSON Schema of a type hint made of plain types alone, the same that pydantic makes, or None.

    Most hints are: `str`, `list[int]`, `Literal["a", "b"] | None`. Nothing can be wrong with them, and to ask pydantic
    takes a thousand times as long.
    """
    if type(hint) is type and hint in _PLAIN:  # others need not be hashable
        return {"type": _PLAIN[hint]}
    if hint is Any:
        return {}
    origin, arguments = get_origin(hint) or hint, get_args(hint)
    if origin is Literal:
        return _choice(arguments)
    if origin is dict and arguments:  # the names in an object are text
        arguments = arguments[1:] if arguments[0] is str else ()
        origin = dict if len(arguments) == 1 else None
    parts = [plain_schema(argument, depth + 1) for argument in arguments] if depth < _NESTED else [None]
    return _made_of(origin, [part for part in parts if part is not None]) if None not in parts else None


def _made_of(origin: Any, parts: list[JSON]) -> JSON | None:
    """Return the schema of a union, a list or a dictionary of others."""
    if origin is Union or origin is types.UnionType:
        alike = any(part in parts[:place] for place, part in enumerate(parts))  # of which pydantic takes one
        return {"anyOf": sorted(parts, key=lambda part: part == {"type": "null"})} if parts and not alike else None
    part = parts[0] if parts else {}
    if origin is list and len(parts) <= 1:
        return {"items": part, "type": "array"}
    return {"additionalProperties": part or True, "type": "object"} if origin is dict else None


def _choice(values: tuple[Any, ...]) -> JSON | None:
    """Return the schema of a `Literal`."""
    kinds = {type(value) for value in values}
    if kinds not in ({str}, {int}):
        return None
    choices: JSON = {"const": values[0]} if len(values) == 1 else {"enum": list(values)}
    return {**choices, "type": _PLAIN[kinds.pop()]}


def tidy(schema: Any) -> Any:
    """Drop the titles pydantic makes out of names: they tell a model nothing and cost tokens in every request."""
    if isinstance(schema, list):
        return [tidy(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    clean: JSON = {}
    for key, value in schema.items():
        if key == "title" and isinstance(value, str):
            continue
        # Under these keys the names are the author's, so a property called "title" must stay.
        if key in {"properties", "$defs"} and isinstance(value, dict):
            clean[key] = {name: tidy(part) for name, part in value.items()}
        elif key in {"default", "const", "enum", "examples"}:
            clean[key] = value
        else:
            clean[key] = tidy(value)
    return clean


def strict_schema(schema: Mapping[str, Any]) -> JSON | None:
    """Return the schema as OpenAI's strict mode wants it, or None where it cannot be expressed.

    Strict mode needs every object closed and every property required; an optional property becomes nullable, and
    `drop_nulls` undoes that when the arguments come back. Free-form objects have no strict form.
    """
    try:
        strict = _strict(dict(schema))
    except _NotStrictError:
        return None
    return strict if isinstance(strict, dict) else None


class _NotStrictError(Exception):
    """The schema has a part without a strict form."""


_DROPPED = {"default", "title", "examples", "additionalProperties", "discriminator", "uniqueItems"}
_FREE_FORM = {"patternProperties", "propertyNames"}


def _strict(schema: Any) -> Any:
    if not isinstance(schema, dict) or not schema:  # `true` and `{}` allow anything
        raise _NotStrictError
    if _FREE_FORM & schema.keys():
        raise _NotStrictError
    # Strict mode knows only anyOf.
    result: JSON = {
        "anyOf" if key == "oneOf" else key: _strict_value(key, value)
        for key, value in schema.items()
        if key not in _DROPPED
    }
    if schema.get("type") == "object":
        if schema.get("additionalProperties", False) is not False or "properties" not in schema:
            raise _NotStrictError
        _require_all(result, schema.get("required", []))
    return result


def _strict_value(key: str, value: Any) -> Any:
    """Return what stands behind a key of a schema, with the schemas in it made strict."""
    if key in {"properties", "$defs"}:
        return {name: _strict(part) for name, part in value.items()}
    if key in {"anyOf", "oneOf", "prefixItems", "allOf"}:
        return [_strict(part) for part in value]
    return _strict(value) if key in {"items", "not"} else value


def _require_all(schema: JSON, required: list[str]) -> None:
    """Close an object schema and require each property, making the optional ones nullable."""
    properties: JSON = schema["properties"]
    for name in properties:
        if name not in required and not _takes_null(properties[name]):
            properties[name] = _nullable(properties[name])
    schema["required"] = list(properties)
    schema["additionalProperties"] = False


def _takes_null(schema: Any) -> bool:
    if not isinstance(schema, dict):
        return True
    kind = schema.get("type")
    if kind == "null" or (isinstance(kind, list) and "null" in kind):
        return True
    return any(_takes_null(part) for part in [*schema.get("anyOf", ()), *schema.get("oneOf", ())])


def _nullable(schema: JSON) -> JSON:
    described = {"description": schema.pop("description")} if "description" in schema else {}
    branches = schema["anyOf"] if set(schema) == {"anyOf"} else [schema]
    return {"anyOf": [*branches, {"type": "null"}], **described}


def _branch(value: Any, schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Mapping[str, Any]:
    """Follow references, and of alternatives choose the one that is meant: the first that knows all the keys."""
    if "$ref" in schema:
        return _branch(value, definitions.get(str(schema["$ref"]).rpartition("/")[2], {}), definitions)
    alternatives = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
    for alternative in alternatives:
        found = _branch(value, alternative, definitions)
        properties = found.get("properties")
        if isinstance(value, list) and "items" in found:
            return found
        if isinstance(value, dict) and isinstance(properties, dict) and value.keys() <= properties.keys():
            tags = ((name, part) for name, part in properties.items() if isinstance(part, Mapping) and "const" in part)
            if all(value.get(name) == part["const"] for name, part in tags):
                return found
    return schema


def drop_nulls(value: Any, schema: Mapping[str, Any], definitions: Mapping[str, Any] | None = None) -> Any:
    """Remove the nulls a strict-mode model sent for optional properties, so that their defaults apply."""
    definitions = schema.get("$defs", {}) if definitions is None else definitions
    schema = _branch(value, schema, definitions)
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        return [drop_nulls(part, schema["items"], definitions) for part in value]
    properties = schema.get("properties")
    if not isinstance(value, dict) or not isinstance(properties, dict):
        return value
    required = schema.get("required", ())
    return {
        name: drop_nulls(part, properties.get(name, {}), definitions)
        for name, part in value.items()
        if part is not None or name in required or name not in properties or _takes_null(properties[name])
    }


# --- signatures ------------------------------------------------------------------------------------------------------


_DESCRIBING = {"annotation", "required", "description"}
"""What a `Field(description="…")` says of itself."""


class Parameter(Struct, frozen=True):
    """One parameter of a handler that the model fills."""

    name: str
    hint: Any
    required: bool
    default: Any = None
    field: FieldInfo | None = None
    """What the default was written as, such as `Field(1, ge=1)`."""


class Signature:
    """What a handler's docstring and type hints say.

    The hints are read when somebody asks for what they say: where they are more than plain types, to make a JSON Schema
    of them takes a millisecond; so does what checks arguments, which is made for the first call.
    """

    def __init__(self, handler: Callable[..., Any], *, name: str, description: str | None = None) -> None:
        """Read the docstring, for which a description makes up."""
        docstring, self._documented = read_docstring(handler)
        self.description = description or docstring
        if not self.description:
            raise DefinitionError(f"function '{name}' has no docstring; write one that tells the model what it does")
        self._handler = handler
        self._name = name

    def check(self) -> None:
        """Raise DefinitionError unless the handler can be offered to a model."""
        _ = self.schema

    @functools.cached_property
    def _parameters(self) -> list[Parameter]:
        """What the model may give."""
        hints = type_hints(self._handler, name=self._name)
        given = inspect.signature(self._handler).parameters
        context = _context_among(given, hints, self._name)
        return [_parameter(raw, hints, self._documented, self._name) for raw in given.values() if raw.name != context]

    @functools.cached_property
    def adapter(self) -> TypeAdapter[dict[str, Any]]:
        """What checks all arguments together."""
        with _explained(self._parameters, self._name):
            return _adapter(self._parameters, self._name)

    @functools.cached_property
    def schema(self) -> JSON:
        """The JSON Schema of the parameters."""
        properties = _plain_properties(self._parameters)
        if properties is None:
            with _explained(self._parameters, self._name):
                schema: JSON = tidy(self.adapter.json_schema())
        else:
            required = [one.name for one in self._parameters if one.required]
            schema = {"properties": properties, **({"required": required} if required else {}), "type": "object"}
        # The arguments are closed by validation; saying so to the model is strict mode's business.
        schema.pop("additionalProperties", None)
        schema.setdefault("properties", {})
        schema.setdefault("required", [])
        for parameter, default in _json_defaults(self._parameters):
            if parameter in schema["properties"]:  # not if the field has an alias
                schema["properties"][parameter]["default"] = default
        return schema

    @functools.cached_property
    def field_defaults(self) -> dict[str, FieldInfo]:
        """Defaults the handler does not apply itself, because they were written as `Field(default)`."""
        return {one.name: one.field for one in self._parameters if one.field is not None and not one.required}


def context_parameter(handler: Callable[..., Any], *, name: str) -> str | None:
    """Return the name of the parameter annotated as `Context`, if there is one."""
    return _context_among(inspect.signature(handler).parameters, type_hints(handler, name=name), name)


def _context_among(parameters: Mapping[str, inspect.Parameter], hints: Mapping[str, Any], name: str) -> str | None:
    found = [parameter for parameter in parameters if is_context(hints.get(parameter))]
    if len(found) > 1:
        raise DefinitionError(f"function '{name}': more than one parameter is a Context ({', '.join(found)})")
    if found and parameters[found[0]].kind is inspect.Parameter.POSITIONAL_ONLY:
        raise DefinitionError(f"function '{name}': the context '{found[0]}' is positional-only; remove the '/'")
    return found[0] if found else None


def _parameter(raw: inspect.Parameter, hints: Mapping[str, Any], documented: Mapping[str, str], name: str) -> Parameter:
    if raw.kind in {raw.VAR_POSITIONAL, raw.VAR_KEYWORD}:
        raise DefinitionError(f"function '{name}': '{raw}' cannot be offered to a model; name each parameter")
    if raw.kind is raw.POSITIONAL_ONLY:
        raise DefinitionError(
            f"function '{name}': parameter '{raw.name}' is positional-only; models name arguments, remove the '/'"
        )
    if raw.name not in hints:
        raise DefinitionError(
            f"function '{name}': parameter '{raw.name}' has no type hint; a model needs to know its type"
        )
    try:
        hint = modern(hints[raw.name])
    except RecursionError:
        raise DefinitionError(
            f"function '{name}': parameter '{raw.name}' has a type that contains itself; use a pydantic model for it"
        ) from None
    default: Any = raw.default
    if isinstance(default, FieldInfo):  # days: int = Field(1, ge=1)
        hint = Annotated[hint, default]
        default = default.get_default(call_default_factory=True, validated_data={})
        default = raw.empty if default is PydanticUndefined else default
    if raw.name in documented and not _described(hint):
        hint = Annotated[hint, FieldInfo(description=documented[raw.name])]
    return Parameter(
        raw.name,
        hint,
        required=default is raw.empty,
        default=None if default is raw.empty else default,
        field=raw.default if isinstance(raw.default, FieldInfo) else None,
    )


def _described(hint: Any) -> bool:
    return get_origin(hint) is Annotated and any(getattr(part, "description", None) for part in get_args(hint)[1:])


def _plain_properties(parameters: list[Parameter]) -> JSON | None:
    """Return the schemas of parameters that have plain types and nothing but a description, or None."""
    properties: JSON = {}
    for parameter in parameters:
        hint, described = parameter.hint, {}
        if get_origin(hint) is Annotated:
            hint, *more = get_args(hint)
            description = _only_description(more)
            if not description:
                return None
            described = {"description": description}
        schema = plain_schema(hint)
        if schema is None:
            return None
        properties[parameter.name] = dict(sorted({**schema, **described}.items()))
    return properties


def _only_description(annotations: list[Any]) -> str | None:
    """Return the description in what a type is annotated with, if that is all there is."""
    if len(annotations) != 1 or type(annotations[0]) is not FieldInfo:
        return None
    said = {str(key): value for key, value in annotations[0].__repr_args__()}
    description = said.get("description")
    return description if said.keys() <= _DESCRIBING and isinstance(description, str) else None


def _adapter(parameters: list[Parameter], name: str) -> TypeAdapter[dict[str, Any]]:
    """Build one validator for all parameters: a typed dictionary, in which any parameter name is possible."""
    fields = {p.name: p.hint if p.required else typing_extensions.NotRequired[p.hint] for p in parameters}
    shape = typing_extensions.TypedDict(name, fields)  # type: ignore[misc]
    shape.__pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[attr-defined]
    return TypeAdapter(cast("Any", shape))


@contextmanager
def _explained(parameters: list[Parameter], name: str) -> Iterator[None]:
    """Turn whatever pydantic, or an author's own type, makes of a type it cannot read into a DefinitionError."""
    try:
        yield
    except DefinitionError:
        raise
    except Exception as error:
        raise DefinitionError(f"function '{name}': {_reason(error, parameters)}") from error


def _reason(error: Exception, parameters: list[Parameter]) -> str:
    for parameter in parameters:
        try:
            TypeAdapter(parameter.hint).json_schema()
        except PydanticSchemaGenerationError:
            kind = getattr(parameter.hint, "__name__", str(parameter.hint))
            cure = "use plain types, dataclasses or models"
            return f"parameter '{parameter.name}' has a type ({kind}) that JSON cannot express; {cure}"
        except PydanticUserError as cause:
            return f"parameter '{parameter.name}': {str(cause).splitlines()[0]}"
        except Exception as cause:  # noqa: BLE001 - only to find which parameter it was
            return f"parameter '{parameter.name}' has a type that cannot be read: {type(cause).__name__}"
    return next(iter(str(error).splitlines()), type(error).__name__)


def _json_defaults(parameters: list[Parameter]) -> Iterator[tuple[str, Any]]:
    """Yield the defaults that JSON can express and that tell the model something."""
    for parameter in parameters:
        if parameter.required or parameter.default is None:
            continue
        try:
            yield parameter.name, to_jsonable_python(parameter.default)
        except PydanticSerializationError:
            continue  # e.g. a sentinel object: the model simply leaves the parameter out


# --- what a function returns ------------------------------------------------------------------------------------------


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
