"""What a route's handler gets from a request: values of the path, of the query, and the body."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from starlette.requests import Request

from antwort.errors import BadRequestError, DefinitionError, UnsupportedMediaTypeError

__all__ = ["QueryParameter", "check_media_type", "path_reader", "query_parameter", "read_body"]

Read = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class QueryParameter:
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


def check_media_type(value: bytes) -> None:
    """Refuse a content type that is not JSON, such as that of a form which some web page sends."""
    kind = value.partition(b";")[0].strip().lower()
    if kind not in {b"application/json", b"text/json"} and not kind.endswith(b"+json"):
        shown = kind.decode("latin-1")
        raise UnsupportedMediaTypeError(f"Send JSON (content-type: application/json), not '{shown}'.")


async def read_body(request: Request, model: type[BaseModel]) -> BaseModel:
    """Read a body as a model; BadRequestError with the first field that does not fit."""
    if "content-type" in request.headers:
        check_media_type(request.headers["content-type"].encode("latin-1"))
    raw = await request.body()
    if not raw:
        raise BadRequestError("The request has no body; send a JSON object.")
    try:
        return model.model_validate_json(raw)
    except ValidationError as error:
        raise _invalid(error) from None


def _checked(validate: Read, value: str | list[str], name: str) -> Any:
    if any("\0" in part for part in value):  # no id and no choice has one, and some databases cannot be asked for it
        raise BadRequestError(f"{name}: NUL characters are not possible.", param=name, code="invalid_value")
    try:
        return validate(value)
    except ValidationError as error:
        raise _invalid(error, name) from None


def _invalid(error: ValidationError, param: str | None = None) -> BadRequestError:
    """Name the first field that does not fit."""
    found = error.errors(include_url=False, include_context=False, include_input=False)[0]
    param = param or ".".join(str(part) for part in found["loc"]) or None
    message = {"missing": "is required", "extra_forbidden": "is not a known field"}.get(found["type"], found["msg"])
    return BadRequestError(f"{param or 'The body'}: {message}.", param=param, code="invalid_value")
