"""What a Python signature says: the parameters a model may give, where the context goes, how the handler runs."""

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, cast, get_args, get_origin

import typing_extensions
from msgspec import Struct
from pydantic import ConfigDict, PydanticUserError, TypeAdapter
from pydantic.errors import PydanticSchemaGenerationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticSerializationError, PydanticUndefined, to_jsonable_python

from antwort.callables import is_context, modern, read_docstring, type_hints
from antwort.errors import DefinitionError
from antwort.functions.schema import plain_schema, tidy
from antwort.types import JSON

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
