"""What a route's handler gets from a request: values of the path, of the query, and the body."""

import inspect
from collections.abc import Callable, Sequence
from typing import Annotated, Any

from msgspec import Struct
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, from_json
from starlette.requests import Request

from antwort.errors import BadRequestError, DefinitionError
from antwort.web.bodies import require_json

Read = Callable[[Any], Any]


class QueryParameter(Struct, frozen=True):
    """A value of the query, as the handler's signature declares it."""

    name: str
    adapter: TypeAdapter[Any]
    required: bool
    default: Any
    repeated: bool
    """Whether it takes a list: `?tag=a&tag=b`, or `?tag[]=a&tag[]=b` as some clients write it."""

    def read(self, request: Request) -> Any:
        """Return the value of a request; BadRequestError if it does not fit."""
        given = [*request.query_params.getlist(self.name), *request.query_params.getlist(f"{self.name}[]")]
        if not given:
            if self.required:
                raise BadRequestError(
                    f"{self.name}: is required in the query.", param=self.name, code="missing_required_parameter"
                )
            return self.default
        return _checked(self.adapter.validate_python, given if self.repeated else given[-1], self.name)


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
    if "object" in kinds:
        raise DefinitionError("a query has no objects; take a number, a text, a choice or a list of them")
    return QueryParameter(name, adapter, required, None if required else default, repeated="array" in kinds)


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
    """Read a body as a model; BadRequestError with the first field that does not fit."""
    require_json(request.scope)
    raw = await request.body()
    if not raw:
        raise BadRequestError("The request has no body; send a JSON object.")
    try:
        return model.model_validate_json(raw)
    except ValidationError as error:
        raise _unfit(error, raw) from None


def _checked(validate: Read, value: str | list[str], name: str) -> Any:
    if any("\0" in part for part in value):  # no id and no choice has one, and some databases cannot be asked for it
        raise BadRequestError(f"{name}: NUL characters are not possible.", param=name, code="invalid_value")
    try:
        return validate(value)
    except ValidationError as error:
        raise _invalid(_details(error)[0], name) from None


def _details(error: ValidationError) -> list[ErrorDetails]:
    return error.errors(include_url=False, include_context=False, include_input=False)


def _unfit(error: ValidationError, raw: bytes) -> BadRequestError:
    """Name the first field of a body that does not fit. Where it may be one of several types, one is nearly met."""
    found = _details(error)
    if found[0]["type"] == "json_invalid":
        problem = found[0]["msg"].removeprefix("Invalid JSON: ")
        return BadRequestError(f"The body is not valid JSON: {problem}.", code="invalid_json")
    if not found[0]["loc"]:
        return _invalid(found[0], None)
    body = from_json(raw)
    named = [(_field(body, one), one) for one in found]
    first = named[0][0]
    of_first = [(param, one) for param, one in named if param == first or param.startswith(f"{first}.")]
    param, nearest = max(of_first, key=lambda one: (not one[1]["type"].endswith("_type"), one[0].count(".")))
    return _invalid(nearest, param or None)


def _field(body: Any, found: ErrorDetails) -> str:
    """Return where in a body an error is; pydantic also names the one of several types that it has tried."""
    parts, value, last = [], body, len(found["loc"]) - 1
    for index, part in enumerate(found["loc"]):
        if isinstance(value, dict) and (part in value or (index == last and found["type"] == "missing")):
            parts.append(str(part))
            value = value.get(part)
        elif isinstance(value, list) and isinstance(part, int):
            parts.append(str(part))
            value = value[part]
    return ".".join(parts)


def _invalid(found: ErrorDetails, param: str | None) -> BadRequestError:
    message = {"missing": "is required", "extra_forbidden": "is not a known field"}.get(found["type"], found["msg"])
    return BadRequestError(f"{param or 'The body'}: {message}.", param=param, code="invalid_value")
