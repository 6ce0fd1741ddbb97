"""HTTP routes, of the API and providers: how they are declared, what handlers get, and which one a path means."""

import functools
import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import MappingProxyType, NoneType, UnionType
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, Union, get_args, get_origin

import msgspec
from pydantic import BaseModel, PydanticUserError
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from typing_extensions import override

from antwort.callables import HandlerKind, handler_kind, is_context, modern, read_docstring, type_hints
from antwort.concurrency.threads import WorkerThreads
from antwort.context import Context
from antwort.errors import APIError, DefinitionError, MethodNotAllowedError, NotFoundError
from antwort.lazy_imports import imported_on_use
from antwort.types import JSON
from antwort.web.parameters import QueryParameter, check_query, path_reader, query_parameter, read_model

if TYPE_CHECKING:
    from starlette import routing
else:  # for the first request whose path is compared with patterns
    routing = imported_on_use("starlette.routing")

RouteHandler = Callable[..., Any]
_Source = Callable[[Context | None, Request, Any], Any]
_METHODS = {"GET", "POST", "PUT", "PATCH", "DELETE"}
_OF_CONVERTORS: Mapping[str, JSON] = {
    "IntegerConvertor": {"type": "integer", "minimum": 0},
    "FloatConvertor": {"type": "number", "minimum": 0},
    "UUIDConvertor": {"type": "string", "format": "uuid"},
}
"""What Starlette lets a path say of its parameters, as in `/v1/pages/{number:int}`."""
_NAME_IN_BRACES = re.compile(r"\{([^}:]+)")
API = "/v1/"
"""What the paths of the API begin with."""


class Example(msgspec.Struct, frozen=True):
    """One exchange that shows what a route does: what is sent, and what comes back."""

    answer: Any = None
    body: Any = None
    parameters: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """Values of the path and the query."""
    summary: str = ""


class Route(msgspec.Struct, frozen=True, eq=False, dict=True, repr_omit_defaults=True):
    """A management endpoint of a provider: a method, a path pattern such as `/v1/stores/{store_id}`, and a handler.

    The handler may ask for the `Context`, the `Request` and its `Headers` by type, for path parameters by name, and for
    the JSON body as a pydantic model. Any other parameter is one of the query, with the type, limits and default it
    declares.
    It returns a Response, or anything that can be written as JSON; None is 204.
    """

    method: str
    path: str
    handler: RouteHandler
    summary: str = ""
    scope: str | None = None
    """A scope the caller's credentials must carry, or several with blanks between them; of `a|b` one is enough.

    Routes of a provider that declare none need the one that is called like the provider.
    """
    status: int = 200
    streams_body: bool = False
    """Whether the handler reads the body from the Request as a stream, holds little of it, and limits it itself."""
    # The rest is for the API description only.
    media_type: str = "application/json"
    """What the answer is."""
    body: Any = None
    """The type of the body or its JSON Schema, if the handler reads it from the Request itself."""
    takes: str = "application/json"
    """What the body is, if the handler reads it from the Request itself."""
    returns: Any = None
    """The type of the answer or its JSON Schema, if the handler's own annotation does not tell."""
    streams: bool = False
    """Whether the answer can also be server-sent events."""
    upstream: bool = False
    """Whether it asks a model server, which can fail."""
    errors: Sequence[type[APIError]] = ()
    """What it can answer besides what its declaration implies, such as a ConflictError."""
    examples: Sequence[Example] = ()

    def __post_init__(self) -> None:
        if self.method not in _METHODS:
            raise DefinitionError(f"route {self}: '{self.method}' is not one of {', '.join(sorted(_METHODS))}")
        if not self.path.startswith("/"):
            raise DefinitionError(f"route {self}: the path must start with '/'")
        if not self.summary:
            msgspec.structs.force_setattr(self, "summary", _first_line(self.handler))

    @override
    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    @functools.cached_property
    def pattern(self) -> re.Pattern[str]:
        """The path as a regular expression."""
        try:
            return routing.compile_path(self.path)[0]
        except (ValueError, AssertionError) as error:
            raise DefinitionError(f"route {self}: {error}") from error

    @functools.cached_property
    def path_parameters(self) -> tuple[str, ...]:
        """The names in braces."""
        return tuple(self.pattern.groupindex)

    @functools.cached_property
    def path_types(self) -> Mapping[str, Any]:
        """The types of those that are no plain texts, or their schemas: of the handler's hints, else of the path."""
        convertors = routing.compile_path(self.path)[2]
        by_path = {name: _OF_CONVERTORS.get(type(one).__name__) for name, one in convertors.items()}
        found = {name: self._hints.get(name) or by_path.get(name) for name in self.path_parameters}
        return {name: hint for name, hint in found.items() if hint not in (None, str)}

    @functools.cached_property
    def _hints(self) -> dict[str, Any]:
        return type_hints(self.handler, name=str(self))

    @functools.cached_property
    def description(self) -> str:
        """What the handler's docstring says, without its parameters."""
        return read_docstring(self.handler)[0] or self.summary

    @functools.cached_property
    def _sources(self) -> dict[str, _Source]:
        """How each parameter of the handler is filled."""
        sources = {name: self._source(name, self._hints.get(name)) for name in self._signature}
        if any(parameter.required for parameter in self.query) and not any(h is Request for h in self._hints.values()):
            # A path parameter that nobody takes beside one of the query that has no default: a slip of the pen.
            unused = [name for name in self.path_parameters if name not in sources]
            if unused:
                raise DefinitionError(f"route {self}: no parameter of the handler is named '{unused[0]}'")
        return sources

    @functools.cached_property
    def _signature(self) -> Mapping[str, inspect.Parameter]:
        return inspect.signature(self.handler).parameters

    def _source(self, name: str, hint: Any) -> _Source:
        if is_context(hint):
            return lambda ctx, _request, _body: ctx
        if hint is Headers:
            return lambda _ctx, request, _body: request.headers
        if hint is Request:
            return lambda _ctx, request, _body: request
        if _is_model(hint):
            return lambda _ctx, _request, body: body
        if name in self.path_parameters:
            read = path_reader(name, hint or str)
            return lambda _ctx, request, _body: read(request)
        parameter = next(parameter for parameter in self.query if parameter.name == name)
        return lambda _ctx, request, _body: parameter.read(request)

    @functools.cached_property
    def query(self) -> tuple[QueryParameter, ...]:
        """The parameters that come from the query."""
        documented = read_docstring(self.handler)[1]
        found = []
        for name, parameter in self._signature.items():
            hint = self._hints.get(name)
            if is_context(hint) or hint in (Request, Headers) or _is_model(hint) or name in self.path_parameters:
                continue
            try:
                found.append(query_parameter(parameter, modern(hint), documented.get(name, "")))
            except DefinitionError as error:
                raise DefinitionError(
                    f"route {self}: parameter '{name}' cannot be filled: {error.message}. Annotate it as Context, "
                    "Request, a pydantic model or a value of the query, or name it after a path parameter "
                    f"({', '.join(self.path_parameters) or 'there are none'})"
                ) from error
        return tuple(found)

    @functools.cached_property
    def _refuses_unknown(self) -> bool:
        """Tell whether a parameter of the query that the handler does not have is refused.

        A handler that has the Request may read what it likes, and pages beside the API get what browsers add.
        """
        return self.path.startswith(API) and not any(hint is Request for hint in self._hints.values())

    @functools.cached_property
    def _model(self) -> type[BaseModel] | None:
        """The model of the request body, if the handler asks for one."""
        models = [hint for name, hint in self._hints.items() if name != "return" and _is_model(hint)]
        if len(models) > 1:
            raise DefinitionError(f"route {self}: only one parameter can be the body")
        return models[0] if models else None

    @property
    def body_type(self) -> Any:
        """What the body must be; None if it is not read, or nobody said."""
        return self.body or self._model

    @property
    def answer_type(self) -> Any:
        """The declared type of the answer; None if there is none, or it is a Response that only the handler knows."""
        if self.returns is not None:
            return self.returns
        hint = modern(self._hints.get("return"))
        if get_origin(hint) in {Union, UnionType}:  # what is written by the handler itself cannot be described
            hint = Union[tuple(part for part in get_args(hint) if not _is_response(part))]  # noqa: UP007
        return None if hint is NoneType or _is_response(hint) else hint

    @functools.cached_property
    def answers_nothing(self) -> bool:
        """Tell whether the handler is declared to return None, which becomes 204."""
        return self._hints.get("return") is NoneType

    @property
    def identity(self) -> str:
        """The requests it answers: its method and path without the names in braces."""
        return f"{self.method} {_shape(self.path)}"

    def check(self) -> None:
        """Raise DefinitionError unless the route can be served and described."""
        _ = self.pattern, self._sources
        if self._model is not None:
            try:
                self._model.model_json_schema()
            except PydanticUserError as error:
                raise DefinitionError(f"route {self}: the body has no JSON Schema: {error.message}") from error

    async def call(self, ctx: Context | None, request: Request, threads: WorkerThreads | None = None) -> Any:
        """Fill the handler's parameters and call it; with threads, one written as plain `def` on one of them."""
        if self._refuses_unknown and request.scope.get("query_string"):
            check_query(request, self.query)
        body = None if self._model is None else await read_model(request, self._model)
        arguments = {name: source(ctx, request, body) for name, source in self._sources.items()}
        if threads is not None and handler_kind(self.handler) is HandlerKind.SYNC:  # others must not wait for it
            tenant = "" if ctx is None else ctx.tenant
            result = await threads.run(functools.partial(self.handler, **arguments), tenant)
        else:
            result = self.handler(**arguments)
        return await result if inspect.isawaitable(result) else result


def _is_response(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Response)


def _is_model(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, BaseModel)


def _first_line(handler: RouteHandler) -> str:
    return (inspect.getdoc(handler) or "").partition("\n")[0]


class Routed(Protocol):
    """Anything with a method and a path pattern."""

    @property
    def method(self) -> str:
        """The HTTP method."""

    @property
    def path(self) -> str:
        """The path pattern."""


R = TypeVar("R", bound=Routed)


NO_PARAMETERS: Mapping[str, str] = MappingProxyType({})


class Match(msgspec.Struct, Generic[R], frozen=True):
    """A route that fits a request, with the values in its path."""

    route: R
    parameters: Mapping[str, str]


class _Path(msgspec.Struct, Generic[R], dict=True):
    """All methods of one path pattern, each with its own names for the parts in braces."""

    path: str
    methods: dict[str, tuple[R, tuple[str, ...]]]

    @functools.cached_property
    def pattern(self) -> re.Pattern[str]:
        """The path as a regular expression, made when a request is compared with it."""
        return routing.compile_path(self.path)[0]


class RouteTable(Generic[R]):
    """Routes by path. Literal paths come before patterns; between patterns the first added wins."""

    def __init__(self, routes: Iterable[R] = ()) -> None:
        self._literal: dict[str, dict[str, Match[R]]] = {}
        self._patterns: dict[str, _Path[R]] = {}
        for route in routes:
            self.add(route)

    def add(self, route: R) -> None:
        """Add a route; of two with the same method and path the first stays."""
        if "{" in route.path:
            path = self._patterns.setdefault(_shape(route.path), _Path(route.path, {}))
            path.methods.setdefault(route.method, (route, tuple(_NAME_IN_BRACES.findall(route.path))))
        else:
            self._literal.setdefault(route.path, {}).setdefault(route.method, Match(route, NO_PARAMETERS))

    def find(self, method: str, path: str) -> Match[R] | None:
        """Return the route for a request, if there is one."""
        method = "GET" if method == "HEAD" else method
        literal = self._literal.get(path)
        if literal is not None and method in literal:
            return literal[method]
        for known in self._patterns.values():
            if method in known.methods and (found := known.pattern.match(path)):
                route, names = known.methods[method]
                return Match(route, dict(zip(names, found.groupdict().values(), strict=True)))
        return None

    def literal_paths(self) -> list[str]:
        """Return the paths that have nothing in braces."""
        return list(self._literal)

    def allowed(self, path: str) -> list[str]:
        """Return the methods a path can be asked with; none if there is no such path."""
        methods = list(self._literal.get(path, ()))
        for known in self._patterns.values():
            if known.pattern.match(path):
                methods += known.methods
        return list(dict.fromkeys(methods))


def no_route(method: str, path: str, allowed: Iterable[str], hint: str = "") -> APIError:
    """Return the error for a request that no route answers: 405 if other methods are possible, else 404 with a hint."""
    methods = ", ".join(dict.fromkeys(allowed))
    if not methods:
        return NotFoundError(f"There is no {path} here{hint or '. GET /openapi.json lists every endpoint.'}")
    return MethodNotAllowedError(f"{method} is not possible on {path}; use {methods}.", headers={"allow": methods})


def _shape(path: str) -> str:
    """Reduce a pattern to what it matches, so that `/a/{id}` and `/a/{name}` are the same path."""
    return re.sub(r"\{[^}:]+(?::str)?(:[^}]*)?\}", r"{\1}", path)


def answers_the_same(one: Routed, other: Routed) -> bool:
    """Tell whether two routes answer exactly the same requests, however they call the parts in braces."""
    return one.method == other.method and _shape(one.path) == _shape(other.path)


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


class AsgiRoute(msgspec.Struct, frozen=True, eq=False):
    """A method, a path without parameters, and an ASGI app that answers there."""

    method: str
    path: str
    app: Callable[[Scope, Receive, Send], Awaitable[None]]
    summary: str
    scope: str | None = None
    """As in Route."""
    # The rest is for the API description only, as in Route.
    body: Any = None
    returns: Any = None
    streams: bool = False
    upstream: bool = False
    errors: Sequence[type[APIError]] = ()
    examples: Sequence[Example] = ()
    own_answers: Mapping[int, str] = msgspec.field(default_factory=dict)
    """What statuses mean that are of the protocol spoken there: below 300 without a body, above with its own."""
