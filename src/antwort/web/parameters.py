"""What a route's handler gets from a request: values of the path, of the query, and the body."""

import contextlib
import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Annotated, Any, Literal

from msgspec import Struct
from pydantic import AfterValidator, BaseModel, Field, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, from_json
from starlette.requests import Request

from antwort.errors import BadRequestError, DefinitionError, NotFoundError
from antwort.web.requests import named_headers, require_json
from antwort.wire.field_errors import (
    Kind,
    beyond_limit,
    long_name,
    missing_parameter,
    unknown_parameter,
    unsupported_value,
    wrong_pattern,
    wrong_type,
)
from antwort.wire.requests import INCLUDES, is_include

Limit = Annotated[int, Field(ge=1, le=100, description="How many to return.")]
After = Annotated[
    str | None, Field(description="The last id of the page before; the page begins with what follows it.")
]
Before = Annotated[str | None, Field(description="The first id of the page after; the page ends before it.")]
Order = Annotated[Literal["asc", "desc"], Field(description="The order: oldest first, or newest first.")]


def _checked_includes(values: list[str] | None) -> list[str] | None:
    for value in values or ():
        if not is_include(value):
            raise unsupported_value("include", value, sorted(INCLUDES))
    return values


Include = Annotated[
    list[str] | None, Field(description="Further data to include in the items."), AfterValidator(_checked_includes)
]
Obfuscation = Annotated[bool | None, Field(description="Taken and ignored.")]
Stream = Annotated[bool, Field(description="Whether to answer with the events instead of the response.")]
StartingAfter = Annotated[
    int | None,
    Field(ge=0, le=2**31 - 1, description="With `stream`: a sequence number; only the events after it are sent."),
]


@contextlib.contextmanager
def unknown_cursor(ending: str = "") -> Iterator[None]:
    """Turn what a store says of a cursor it does not know into an error of the request: the list itself is there.

    `ending` is what the parameters have behind the names by which the store knows them.
    """
    try:
        yield
    except NotFoundError as error:
        param = error.param or "after"
        message = error.message.replace(f"without '{param}'", f"without '{param}{ending}'")
        raise BadRequestError(message, param=param + ending, code="invalid_value") from None


_EXPECTED = {
    "string_type": "a string",
    "int_type": "an integer",
    "int_parsing": "an integer",
    "int_from_float": "an integer",
    "float_type": "a decimal",
    "float_parsing": "a decimal",
    "bool_type": "a boolean",
    "bool_parsing": "a boolean",
    "list_type": "an array",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
}
"""What a field must be, by what pydantic says if it is not."""
_BOUNDS = {
    "greater_than_equal": ("ge", False),
    "greater_than": ("gt", False),
    "less_than_equal": ("le", True),
    "less_than": ("lt", True),
}
_LENGTHS = {
    "string_too_long": ("max_length", True),
    "too_long": ("max_length", True),
    "string_too_short": ("min_length", False),
    "too_short": ("min_length", False),
}
"""Where the limit is that something is beyond, and whether it is above."""


def model_error(found: ErrorDetails, param: str, value: Any, known: Iterable[str] = ()) -> BadRequestError:
    """Return the error for a value; `known` are the fields there are beside one that is not known."""
    fault, limits = found["type"], found.get("ctx", {})
    if fault == "missing":
        return missing_parameter(param)
    if fault == "extra_forbidden":
        return unknown_parameter(param, known)
    if fault in _EXPECTED:
        return wrong_type(param, _EXPECTED[fault], value)
    if fault == "string_pattern_mismatch":
        return wrong_pattern(param, limits["pattern"])
    if fault in _BOUNDS or fault in _LENGTHS:
        return _beyond(found, param, value)
    return BadRequestError(f"Invalid value for '{param}': {found['msg']}.", param=param, code="invalid_value")


def _beyond(found: ErrorDetails, param: str, value: Any) -> BadRequestError:
    limits = found.get("ctx", {})
    if found["type"] in _BOUNDS:
        name, above = _BOUNDS[found["type"]]
        number: Kind = "integer" if isinstance(limits[name], int) else "decimal"
        return beyond_limit(param, number, above=above, bound=limits[name], given=value)
    name, above = _LENGTHS[found["type"]]
    if found["loc"][-1:] == ("[key]",):
        return long_name(param, limits[name], str(found["loc"][-2]))
    kind: Kind = "string" if isinstance(value, str) else "object" if isinstance(value, dict) else "array"
    return beyond_limit(param, kind, above=above, bound=limits[name], given=len(value))


Read = Callable[[Any], Any]
_OF_SDKS = frozenset({"beta", "api-version"})
"""Parameters that OpenAI's SDKs send to any endpoint: for what is in beta, and where they think they are on Azure."""


class QueryParameter(Struct, frozen=True):
    """A value of the query, as the handler's signature declares it."""

    name: str
    adapter: TypeAdapter[Any]
    required: bool
    default: Any
    repeated: bool
    """Whether it takes a list: `?tag=a&tag=b`, or `?tag[]=a&tag[]=b` as some clients write it."""
    pairs: bool = False
    """Whether it takes texts by names: `?about[kind]=a&about[year]=b`."""

    def is_named(self, name: str) -> bool:
        """Tell whether a name in a query is one of its own."""
        if self.pairs:
            return name.startswith(f"{self.name}[") and name.endswith("]")
        return name == self.name or (self.repeated and name == f"{self.name}[]")

    def read(self, request: Request) -> Any:
        """Return the value of a request; BadRequestError if it does not fit."""
        if self.pairs:
            return self._read_pairs(request)
        given = [*request.query_params.getlist(self.name), *request.query_params.getlist(f"{self.name}[]")]
        if not given:
            if self.required:
                raise missing_parameter(self.name)
            return self.default
        return _checked(self.adapter.validate_python, given if self.repeated else given[-1], self.name)

    def _read_pairs(self, request: Request) -> Any:
        found = {
            name[len(self.name) + 1 : -1]: text for name, text in request.query_params.items() if self.is_named(name)
        }
        if not found:
            if self.required:
                raise missing_parameter(self.name)
            return self.default
        return _checked(self.adapter.validate_python, found, self.name)


def check_query(request: Request, known: Collection[QueryParameter]) -> None:
    """Raise BadRequestError if the query has a parameter that nobody reads."""
    for name in request.query_params:
        if name not in _OF_SDKS and not any(one.is_named(name) for one in known):
            raise unknown_parameter(name, [one.name for one in known])


def query_parameter(parameter: inspect.Parameter, hint: Any, description: str = "") -> QueryParameter:
    """Read a query parameter off a handler's parameter; DefinitionError if a query cannot express its type."""
    name, default, required = parameter.name, parameter.default, parameter.default is parameter.empty
    if hint is None or parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}:
        raise DefinitionError("it has no type")
    if isinstance(default, FieldInfo):  # limit: int = Field(20, le=100)
        hint = Annotated[hint, default]
        required = default.is_required()
        default = default.get_default(call_default_factory=True, validated_data={})
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(hint)
        schema = adapter.json_schema()
        if description and "description" not in schema:
            adapter = TypeAdapter(Annotated[hint, FieldInfo(description=description)])
    except Exception as error:  # whatever pydantic, or an author's own type, makes of a type it cannot read
        raise DefinitionError(f"its type has no JSON Schema ({type(error).__name__})") from error
    kinds = set(_kinds(schema, schema.get("$defs", {})))
    pairs = "object" in kinds
    if pairs and not _has_texts(schema):
        raise DefinitionError("a query has no objects but texts by names; take these, a number, a text, or a list")
    return QueryParameter(name, adapter, required, None if required else default, "array" in kinds, pairs)


def _has_texts(schema: dict[str, Any]) -> bool:
    """Tell whether all objects of a schema are texts by names."""
    choices = [choice for choice in schema.get("anyOf", (schema,)) if choice.get("type") != "null"]
    return all(choice.get("additionalProperties") == {"type": "string"} for choice in choices)


def _kinds(schema: dict[str, Any], definitions: dict[str, Any]) -> Sequence[str]:
    """Return the JSON types a schema allows at its top."""
    if "$ref" in schema:
        return _kinds(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    choices = [*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())]
    found = [kind for choice in choices for kind in _kinds(choice, definitions)]
    return [*found, schema["type"]] if "type" in schema else found


def path_reader(name: str, hint: Any) -> Callable[[Request], Any]:
    """Return what reads a parameter of the path."""
    validate = TypeAdapter(hint).validate_python
    return lambda request: _checked(validate, request.path_params[name], name)


async def read_model(request: Request, model: type[BaseModel]) -> BaseModel:
    """Read a body as a model; BadRequestError with the first field that does not fit.

    Where nothing is required, no body is an empty one.
    """
    require_json(named_headers(request.scope))
    raw = await request.body()
    if not raw:
        if any(field.is_required() for field in model.model_fields.values()):
            raise BadRequestError("The request has no body; send a JSON object.")
        raw = b"{}"
    try:
        return model.model_validate_json(raw)
    except ValidationError as error:
        raise _unfit(error, raw, model) from None


def _checked(validate: Read, value: str | list[str] | dict[str, str], name: str) -> Any:
    parts = [*value, *value.values()] if isinstance(value, dict) else value
    if any("\0" in part for part in parts):  # no id and no choice has one, and some databases cannot be asked for it
        raise BadRequestError(f"{name}: NUL characters are not possible.", param=name, code="invalid_value")
    try:
        return validate(value)
    except ValidationError as error:
        raise model_error(_details(error)[0], name, value) from None


def _details(error: ValidationError) -> list[ErrorDetails]:
    return error.errors(include_url=False, include_input=False)


def _unfit(error: ValidationError, raw: bytes, model: type[BaseModel]) -> BadRequestError:
    """Name the first field of a body that does not fit. Where it may be one of several types, one is nearly met."""
    found = _details(error)
    if found[0]["type"] == "json_invalid":
        problem = found[0]["msg"].removeprefix("Invalid JSON: ")
        return BadRequestError(f"The body is not valid JSON: {problem}.", code="invalid_json")
    if not found[0]["loc"]:
        return BadRequestError(f"The body: {found[0]['msg']}.", code="invalid_type")
    body = from_json(raw)
    named = [(*_field(body, one), one) for one in found]
    first = named[0][0]
    of_first = [one for one in named if one[0] == first or one[0].startswith((f"{first}.", f"{first}["))]
    param, value, nearest = max(of_first, key=lambda one: (not one[2]["type"].endswith("_type"), len(one[2]["loc"])))
    return model_error(nearest, param, value, model.model_fields if len(nearest["loc"]) == 1 else ())


def _field(body: Any, found: ErrorDetails) -> tuple[str, Any]:
    """Return where in a body an error is, and what is there; pydantic also names the type that it has tried."""
    param, value = "", body
    for part in _steps(body, found["loc"], missing=found["type"] == "missing"):
        param += f"[{part}]" if isinstance(part, int) else f".{part}" if param else part
        value = value[part] if isinstance(part, int) else value.get(part)
    return param, value


def _steps(value: Any, loc: tuple[int | str, ...], *, missing: bool) -> list[int | str]:
    """Return those parts of a location that are in a value: as many as can be, and its end if that is there."""
    if not loc:
        return []
    part, rest = loc[0], loc[1:]
    if isinstance(value, list) and isinstance(part, int) and part < len(value):
        return [part, *_steps(value[part], rest, missing=missing)]
    ways = [_steps(value, rest, missing=missing)] if isinstance(part, str) else [[]]  # it is the name of a type
    if isinstance(value, dict) and (part in value or (missing and not rest)):
        ways.append([part, *_steps(value.get(part), rest, missing=missing)])
    return max(ways, key=lambda steps: (steps[-1:] == [loc[-1]], len(steps)))
