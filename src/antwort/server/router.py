"""Which endpoint answers: the API first, the routes of providers beside it."""

from collections.abc import Awaitable, Callable, Iterable

from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from antwort.callables import HandlerKind, handler_kind
from antwort.errors import DefinitionError, did_you_mean
from antwort.functions.absent import NONE_ABSENT, AbsentProviders
from antwort.functions.provider_routes import ProviderRoutes
from antwort.web.answers import json_response
from antwort.web.parameters import check_query
from antwort.web.requests import CONTEXT, ROUTE, authorize
from antwort.web.routes import AsgiRoute, Route, RouteTable, no_route

_BASE = "/v1"
_LONGEST = 100
"""Characters of a path that are compared with those that there are."""
_LIKENESS = 0.85


class Router:
    """Dispatch by path. A provider can add to the API but never take a part of it over.

    Handlers of the API run on the event loop: one written as plain `def` is refused with a DefinitionError.
    """

    def __init__(
        self,
        routes: Iterable[Route | AsgiRoute],
        providers: ProviderRoutes,
        absent: AbsentProviders = NONE_ABSENT,
    ) -> None:
        self._table: RouteTable[Route | AsgiRoute] = RouteTable()
        for route in routes:
            if isinstance(route, Route) and handler_kind(route.handler) is HandlerKind.SYNC:
                raise DefinitionError(f"route {route}: a handler of the API must be written as `async def`")
            self._table.add(route)
        self._providers = providers
        self._absent = absent

    def pattern(self, method: str, path: str) -> str | None:
        """Return the path pattern of the route for a request, if there is one."""
        found = self._table.find(method, path)
        return self._providers.pattern(method, path) if found is None else found.route.path

    def count_refusal(self, method: str, path: str, status: int, seconds: float) -> str | None:
        """Count a request that is not let in where it would have gone, and return that route's pattern, if any."""
        pattern = self.pattern(method, path)
        if self._table.find(method, path) is None:
            self._providers.count_refusal(method, path, status, seconds)
        return pattern

    def _hint(self, path: str) -> str:
        """Say which path may be meant by one that there is not, or nothing."""
        meant = f"{_BASE}{path.rpartition(_BASE)[2].rstrip('/')}"
        if meant != path and (self._table.allowed(meant) or self._providers.allowed(meant)):
            if path.startswith(meant):
                return f"; it is {meant}."
            twice = path.startswith(f"{_BASE}{_BASE}/")  # of Anthropic's SDKs, which add it themselves, say
            cure = f"leave one {_BASE} out of the base URL" if twice else f"end the base URL in {_BASE}"
            return f"; it is {meant}: {cure}."
        return did_you_mean(path[:_LONGEST], self._table.literal_paths(), likeness=_LIKENESS)

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve one HTTP request. It is no coroutine itself: it would be kept as long as a stream is open."""
        method, path = scope["method"], scope["path"]
        found = self._table.find(method, path)
        if found is None:
            allowed = [*self._table.allowed(path), *self._providers.allowed(path)]
            if allowed and method not in allowed and not (method == "HEAD" and "GET" in allowed):
                raise no_route(method, path, allowed)
            if not allowed:
                if (wake := self._absent.asleep_at(path)) is not None:
                    return self._awakened(wake, scope, receive, send)
                raise self._absent.no_path(path) or no_route(method, path, (), self._hint(path))
            return self._providers(scope, receive, send)
        route = found.route
        scope[ROUTE] = route.path
        context = scope.get(CONTEXT)
        authorize(context, route.scope)
        if isinstance(route, AsgiRoute):
            if scope["query_string"]:
                check_query(Request(scope), ())
            return route.app(scope, receive, send)
        scope["path_params"] = found.parameters
        return self._answer(route, scope, receive, send)

    async def _awakened(self, wake: Callable[[], Awaitable[None]], scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request for a provider that slept until now."""
        await wake()
        await self(scope, receive, send)

    async def _answer(self, route: Route, scope: Scope, receive: Receive, send: Send) -> None:
        result = await route.call(scope.get(CONTEXT), Request(scope, receive))
        await json_response(result, route.status)(scope, receive, send)
