"""HTTP routes of providers: how they are declared, what their handlers get, and which one a path means."""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import NoneType
from typing import Any, Generic, Protocol, TypeVar

from pydantic import BaseModel, PydanticUserError, TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import compile_path
from typing_extensions import override

from antwort.context import Context
from antwort.errors import APIError, BadRequestError, DefinitionError, MethodNotAllowedError, NotFoundError
from antwort.functions.signature import HandlerKind, handler_kind, is_context, modern, type_hints

__all__ = ["Match", "Route", "RouteTable", "Routed", "clashes", "no_route"]

RouteHandler = Callable[..., Any]
_Source = Callable[[Context | None, Request, Any], Any]

_METHODS = {"GET", "POST", "PUT", "PATCH", "DELETE"}


@dataclass(frozen=True)
class Route:
    """A management endpoint of a provider: a method, a path pattern such as `/v1/stores/{store_id}`, and a handler.

    The handler may ask for the `Context` and the `Request` by type, for path parameters by name, and for the JSON
    body as a pydantic model. It returns a Response, or anything that can be written as JSON; None is 204.
    """

    method: str
    path: str
    handler: RouteHandler = field(repr=False)
    summary: str = ""
    scope: str | None = None
    """A scope the caller's credentials must carry."""
    status: int = 200
    media_type: str = "application/json"
    """What the answer is, for the API description."""

    def __post_init__(self) -> None:
        if self.method not in _METHODS:
            raise DefinitionError(f"route {self}: '{self.method}' is not one of {', '.join(sorted(_METHODS))}")
        if not self.path.startswith("/"):
            raise DefinitionError(f"route {self}: the path must start with '/'")
        if not self.summary:
            object.__setattr__(self, "summary", _first_line(self.handler))

    @override
    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The path as a regular expression."""
        try:
            return compile_path(self.path)[0]
        except (ValueError, AssertionError) as error:
            raise DefinitionError(f"route {self}: {error}") from error

    @cached_property
    def path_parameters(self) -> tuple[str, ...]:
        """The names in braces."""
        return tuple(self.pattern.groupindex)

    @cached_property
    def _hints(self) -> dict[str, Any]:
        return type_hints(self.handler, name=str(self))

    @cached_property
    def _plan(self) -> dict[str, _Source]:
        """How each parameter of the handler is filled."""
        return {name: self._source(name, self._hints.get(name)) for name in inspect.signature(self.handler).parameters}

    def _source(self, name: str, hint: Any) -> _Source:
        if is_context(hint):
            return lambda ctx, _request, _body: ctx
        if hint is Request:
            return lambda _ctx, request, _body: request
        if _is_model(hint):
            return lambda _ctx, _request, body: body
        if name in self.path_parameters:
            return _path_reader(name, hint or str)
        raise DefinitionError(
            f"route {self}: parameter '{name}' cannot be filled; annotate it as Context, Request or a pydantic model, "
            f"or name it after a path parameter ({', '.join(self.path_parameters) or 'there are none'})"
        )

    @cached_property
    def body(self) -> type[BaseModel] | None:
        """The model of the request body, if the handler asks for one."""
        models = [hint for name, hint in self._hints.items() if name != "return" and _is_model(hint)]
        if len(models) > 1:
            raise DefinitionError(f"route {self}: only one parameter can be the body")
        return models[0] if models else None

    @cached_property
    def returns(self) -> TypeAdapter[Any] | None:
        """The declared type of the answer, for the API description; None if it has no JSON Schema."""
        hint = modern(self._hints.get("return"))
        if hint is None or (isinstance(hint, type) and issubclass(hint, Response | NoneType)):
            return None
        try:
            adapter: TypeAdapter[Any] = TypeAdapter(hint)
            adapter.json_schema(mode="serialization")
        except (PydanticSchemaGenerationError, PydanticUserError):
            return None
        return adapter

    @cached_property
    def answers_nothing(self) -> bool:
        """Tell whether the handler is declared to return None, which becomes 204."""
        return self._hints.get("return") is NoneType

    @property
    def identity(self) -> str:
        """The requests it answers: its method and path without the names in braces."""
        return f"{self.method} {_shape(self.path)}"

    def check(self) -> None:
        """Raise DefinitionError unless the route can be served and described."""
        _ = self.pattern, self._plan
        if self.body is not None:
            try:
                self.body.model_json_schema()
            except PydanticUserError as error:
                raise DefinitionError(f"route {self}: the body has no JSON Schema: {error.message}") from error

    async def call(self, ctx: Context | None, request: Request) -> Any:
        """Fill the handler's parameters and call it."""
        model = self.body
        body = None if model is None else await _read_body(request, model)
        arguments = {name: source(ctx, request, body) for name, source in self._plan.items()}
        if handler_kind(self.handler) is HandlerKind.SYNC:  # on a thread, so that it cannot hold up other requests
            result = await run_in_threadpool(self.handler, **arguments)
        else:
            result = self.handler(**arguments)
        return await result if inspect.isawaitable(result) else result


def _is_model(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, BaseModel)


def _path_reader(name: str, hint: Any) -> _Source:
    read = TypeAdapter(hint).validate_python

    def from_path(_ctx: Context | None, request: Request, _body: Any) -> Any:
        try:
            return read(request.path_params[name])
        except ValidationError as error:
            raise _invalid(error, name) from None

    return from_path


def _first_line(handler: RouteHandler) -> str:
    return (inspect.getdoc(handler) or "").partition("\n")[0]


async def _read_body(request: Request, model: type[BaseModel]) -> BaseModel:
    raw = await request.body()
    if not raw:
        raise BadRequestError("The request has no body; send a JSON object.")
    try:
        return model.model_validate_json(raw)
    except ValidationError as error:
        raise _invalid(error) from None


def _invalid(error: ValidationError, param: str | None = None) -> BadRequestError:
    """Name the first field that does not fit."""
    found = error.errors(include_url=False, include_context=False, include_input=False)[0]
    param = ".".join(str(part) for part in found["loc"]) or param
    message = {"missing": "is required", "extra_forbidden": "is not a known field"}.get(found["type"], found["msg"])
    return BadRequestError(f"{param or 'The body'}: {message}.", param=param, code="invalid_value")


class Routed(Protocol):
    """Anything with a method and a path pattern."""

    @property
    def method(self) -> str:
        """The HTTP method."""

    @property
    def path(self) -> str:
        """The path pattern."""


R = TypeVar("R", bound=Routed)


@dataclass(frozen=True, slots=True)
class Match(Generic[R]):
    """A route that fits a request, with the values in its path."""

    route: R
    parameters: Mapping[str, str]


@dataclass(slots=True)
class _Path(Generic[R]):
    """All methods of one path pattern, each with its own names for the parts in braces."""

    pattern: re.Pattern[str]
    methods: dict[str, tuple[R, tuple[str, ...]]]


class RouteTable(Generic[R]):
    """Routes by path. Literal paths come before patterns; between patterns the first added wins."""

    def __init__(self, routes: Iterable[R] = ()) -> None:
        self._literal: dict[str, dict[str, R]] = {}
        self._patterns: dict[str, _Path[R]] = {}
        for route in routes:
            self.add(route)

    def add(self, route: R) -> None:
        """Add a route; of two with the same method and path the first stays."""
        if "{" in route.path:
            pattern, _, _ = compile_path(route.path)
            path = self._patterns.setdefault(_shape(route.path), _Path(pattern, {}))
            path.methods.setdefault(route.method, (route, tuple(pattern.groupindex)))
        else:
            self._literal.setdefault(route.path, {}).setdefault(route.method, route)

    def find(self, method: str, path: str) -> Match[R] | None:
        """Return the route for a request, if there is one."""
        method = "GET" if method == "HEAD" else method
        literal = self._literal.get(path)
        if literal is not None and method in literal:
            return Match(literal[method], {})
        for known in self._patterns.values():
            if method in known.methods and (found := known.pattern.match(path)):
                route, names = known.methods[method]
                return Match(route, dict(zip(names, found.groupdict().values(), strict=True)))
        return None

    def allowed(self, path: str) -> list[str]:
        """Return the methods a path can be asked with; none if there is no such path."""
        methods = list(self._literal.get(path, ()))
        for known in self._patterns.values():
            if known.pattern.match(path):
                methods += known.methods
        return list(dict.fromkeys(methods))


def no_route(method: str, path: str, allowed: Iterable[str]) -> APIError:
    """Return the error for a request that no route answers: 405 if other methods are possible, else 404."""
    methods = ", ".join(dict.fromkeys(allowed))
    if not methods:
        return NotFoundError(f"There is no {path} here. GET /openapi.json lists every endpoint.")
    return MethodNotAllowedError(f"{method} is not possible on {path}; use {methods}.", headers={"allow": methods})


def _shape(path: str) -> str:
    """Reduce a pattern to what it matches, so that `/a/{id}` and `/a/{name}` are the same path."""
    return re.sub(r"\{[^}:]+(?::str)?(:[^}]*)?\}", r"{\1}", path)


def clashes(one: Routed, other: Routed) -> bool:
    """Tell whether there are requests that two routes would both answer."""
    return one.method == other.method and _overlap(one.path.split("/"), other.path.split("/"))


def _overlap(one: list[str], other: list[str]) -> bool:
    """Compare two patterns part by part; a part in braces fits any other, a `:path` all that follow."""
    for mine, theirs in zip(one, other, strict=False):
        if mine.endswith(":path}") or theirs.endswith(":path}"):
            return True
        if mine != theirs and "{" not in mine and "{" not in theirs:
            return False
    return len(one) == len(other)
