"""Serving the routes of providers: guarded, measured, isolated."""

import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Message, Receive, Scope, Send

from antwort.context import Context
from antwort.errors import (
    APIError,
    AuthenticationError,
    BadRequestError,
    InternalServerError,
    PermissionDeniedError,
)
from antwort.functions.metrics import FunctionMetrics
from antwort.functions.routes import Route, RouteTable

__all__ = ["CONTEXT", "ROUTE", "ProviderRoutes", "as_api_error", "error_response", "json_response"]

logger = logging.getLogger(__name__)

CONTEXT = "antwort.context"
"""The key of the ASGI scope under which authentication leaves the context."""
ROUTE = "antwort.route"
"""The key of the ASGI scope under which routing leaves the pattern it matched, for metrics."""


@dataclass(frozen=True, slots=True)
class _Mounted:
    provider: str
    route: Route

    @property
    def method(self) -> str:
        return self.route.method

    @property
    def path(self) -> str:
        return self.route.path


class ProviderRoutes:
    """The ASGI app of all provider routes. Without an authenticated context every request is refused."""

    def __init__(self, metrics: FunctionMetrics) -> None:
        self._metrics = metrics
        self._table: RouteTable[_Mounted] = RouteTable()

    def mount(self, routes: Iterable[tuple[str, Iterable[Route]]]) -> None:
        """Replace what is served."""
        self._table = RouteTable(_Mounted(provider, route) for provider, group in routes for route in group)

    def knows(self, path: str) -> bool:
        """Tell whether a provider has this path, with whatever method."""
        return self._table.knows(path)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request."""
        if scope["type"] != "http":
            raise ValueError(f"provider routes speak HTTP, not {scope['type']}")
        try:
            found = self._table.match(scope["method"], scope["path"])
        except APIError as error:
            await error_response(error)(scope, receive, send)
            return
        mounted = found.route
        started = time.perf_counter()
        status = 500

        async def observed(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        scope[ROUTE] = mounted.path
        scope["path_params"] = found.parameters
        try:
            response = await self._respond(mounted, scope, receive)
            await response(scope, receive, observed)
        finally:
            elapsed = time.perf_counter() - started
            self._metrics.request(mounted.provider, mounted.method, mounted.path, status, elapsed)

    async def _respond(self, mounted: _Mounted, scope: Scope, receive: Receive) -> Response:
        try:
            context = _authorized(scope, mounted.route)
            result = await mounted.route.call(context, Request(scope, receive))
            return json_response(result, mounted.route.status)
        except Exception as error:  # noqa: BLE001 - a provider's bug is an answer like any other
            return error_response(as_api_error(error, f"route {mounted.route} of provider '{mounted.provider}'"))


def _authorized(scope: Scope, route: Route) -> Context:
    context = scope.get(CONTEXT)
    if not isinstance(context, Context):
        raise AuthenticationError("Missing credentials. Send 'Authorization: Bearer <API key>'.")
    if route.scope is not None and not context.grants(route.scope):
        raise PermissionDeniedError(f"The credentials lack the scope '{route.scope}'.")
    return context


def json_response(value: Any, status: int = 200) -> Response:
    """Write a handler's value: a Response as it is, None as 204, anything else as JSON."""
    if isinstance(value, Response):
        return value
    if value is None:
        return Response(status_code=204)
    return Response(to_json(value), status, media_type="application/json")


def error_response(error: APIError) -> Response:
    """Write an error in the OpenAI envelope."""
    return JSONResponse(error.envelope(), error.status, error.headers)


def as_api_error(error: Exception, where: str) -> APIError:
    """Turn whatever a handler raised into what the client may see; the rest goes to the log."""
    if isinstance(error, APIError):
        return error
    if isinstance(error, HTTPException):  # Starlette's own, which authors may know better than ours
        return _from_http(error)
    if isinstance(error, ClientDisconnect):
        return BadRequestError("The client went away before the body was complete.")
    logger.error("%s failed", where, exc_info=error)
    return InternalServerError("The server had an error while handling the request; its log has the details.")


def _from_http(error: HTTPException) -> APIError:
    api_error = APIError(error.detail, headers=error.headers)
    api_error.status = error.status_code
    if error.status_code < 500:
        api_error.type = BadRequestError.type
    return api_error
