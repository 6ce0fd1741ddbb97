"""Which endpoint answers: the API first, the routes of providers beside it."""

from collections.abc import Iterable

from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from antwort.errors import MethodNotAllowedError, NotFoundError, PermissionDeniedError
from antwort.functions.http import CONTEXT, ROUTE, ProviderRoutes, json_response
from antwort.functions.routes import Route, RouteTable

__all__ = ["Router"]


class Router:
    """Dispatch by path. A provider can add to the API but never take a part of it over."""

    def __init__(self, routes: Iterable[Route], providers: ProviderRoutes) -> None:
        self._table = RouteTable(routes)
        self._providers = providers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request."""
        try:
            found = self._table.match(scope["method"], scope["path"])
        except (NotFoundError, MethodNotAllowedError) as error:
            if isinstance(error, MethodNotAllowedError) and not self._providers.knows(scope["path"]):
                raise
            await self._providers(scope, receive, send)
            return
        route = found.route
        scope[ROUTE] = route.path
        scope["path_params"] = found.parameters
        context = scope.get(CONTEXT)
        if route.scope is not None and not (context is not None and context.grants(route.scope)):
            raise PermissionDeniedError(f"The credentials lack the scope '{route.scope}'.")
        result = await route.call(context, Request(scope, receive))
        await json_response(result, route.status)(scope, receive, send)
