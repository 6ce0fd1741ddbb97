"""Serving the routes of providers: guarded, measured, isolated."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import msgspec
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
from antwort.functions.routes import Match, Route, RouteTable, no_route
from antwort.functions.threads import WorkerThreads
from antwort.http_client import HttpClient

__all__ = [
    "CONTEXT",
    "DENIED",
    "REQUEST_ID",
    "ROUTE",
    "ProviderRoutes",
    "as_api_error",
    "authorize",
    "error_response",
    "json_response",
]

logger = logging.getLogger(__name__)

CONTEXT = "antwort.context"
"""The key of the ASGI scope under which authentication leaves the context."""
DENIED = "antwort.denied"
"""The key of the ASGI scope under which a provider's route leaves the error for what the caller may not do."""
REQUEST_ID = "antwort.request_id"
"""The key of the ASGI scope that holds the request id."""
ROUTE = "antwort.route"
"""The key of the ASGI scope under which routing leaves the pattern it matched, for metrics."""
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


@dataclass(frozen=True, slots=True)
class _Mounted:
    provider: str
    route: Route
    enabled: bool

    @property
    def method(self) -> str:
        return self.route.method

    @property
    def path(self) -> str:
        return self.route.path


class ProviderRoutes:
    """The ASGI app of all provider routes. Without an authenticated context every request is refused."""

    def __init__(
        self, metrics: FunctionMetrics, threads: Callable[[str], WorkerThreads], http: HttpClient | None = None
    ) -> None:
        self._metrics = metrics
        self._threads = threads
        self._http = http
        self._tables: list[RouteTable[_Mounted]] = []

    def mount(self, providers: Iterable[tuple[str, Iterable[Route], bool]]) -> None:
        """Replace what is served: for each provider its name, its routes, and whether it is enabled.

        Providers are asked in this order: the first wins, also where patterns overlap, and also while it is disabled.
        """
        self._tables = [RouteTable(_Mounted(name, route, on) for route in group) for name, group, on in providers]

    def _find(self, method: str, path: str) -> Match[_Mounted] | None:
        found = next(filter(None, (table.find(method, path) for table in self._tables)), None)
        return found if found is not None and found.route.enabled else None

    def allowed(self, path: str) -> list[str]:
        """Return the methods a path can be asked with; none if no provider has it."""
        methods = dict.fromkeys(method for table in self._tables for method in table.allowed(path))
        return [method for method in methods if self._find(method, path) is not None]

    def pattern(self, method: str, path: str) -> str | None:
        """Return the path pattern of the route for a request, if there is one."""
        found = self._find(method, path)
        return None if found is None else found.route.path

    def refused(self, method: str, path: str, status: int) -> None:
        """Count a request that was refused before it got here; one for a path of somebody else is not ours to count."""
        found = self._find(method, path)
        for other in self.allowed(path) if found is None else ():
            found = found or self._find(other, path)
        if found is not None:
            known = method if method in _METHODS else "OTHER"  # what clients invent must not become a time series
            self._metrics.refused(found.route.provider, known, found.route.path, status)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request."""
        if scope["type"] != "http":
            raise ValueError(f"provider routes speak HTTP, not {scope['type']}")
        method, path = scope["method"], scope["path"]
        found = self._find(method, path)
        if found is None:
            await error_response(no_route(method, path, self.allowed(path)))(scope, receive, send)
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
        task = asyncio.current_task()
        try:
            context = _authenticated(scope)
            # One that declares none has the provider's name: who may do little must not do this by an oversight.
            authorize(context, mounted.route.scope or mounted.provider)
            threads = self._threads(mounted.provider)  # its own: those that are stuck are stuck for nobody else
            result = await mounted.route.call(context.reaching(self._http), Request(scope, receive), threads)
            return json_response(result, mounted.route.status)
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError | KeyboardInterrupt) and task is not None and task.cancelling():
                raise
            if isinstance(error, PermissionDeniedError):  # it is answered here, and the audit log wants to know
                scope[DENIED] = error
            where = f"route {mounted.route} of provider '{mounted.provider}'"
            return error_response(as_api_error(error, where, scope.get(REQUEST_ID)))


def _authenticated(scope: Scope) -> Context:
    context = scope.get(CONTEXT)
    if not isinstance(context, Context):
        raise AuthenticationError("Missing credentials. Send 'Authorization: Bearer <API key>'.")
    return context


def authorize(context: Context | None, scopes: str | None) -> None:
    """Raise PermissionDeniedError unless the caller's credentials carry every scope a route needs, parted by blanks."""
    for scope in scopes.split() if scopes else ():
        if context is None:
            raise PermissionDeniedError(f"The credentials lack the scope '{scope}'.")
        context.require(scope)


def json_response(value: Any, status: int = 200) -> Response:
    """Write a handler's value: a Response as it is, None as 204, anything else as JSON; ValueError if there is none."""
    if isinstance(value, Response):
        return value
    if value is None or status == 204:
        return Response(status_code=204)
    body = to_json(value)
    if b"NaN" in body or b"Infinity" in body:  # a number that JSON does not have, or only the word
        try:
            msgspec.json.decode(body)
        except msgspec.DecodeError:
            raise ValueError("the answer has a NaN or an infinite number in it, which JSON cannot express") from None
    return Response(body, status, media_type="application/json")


def error_response(error: APIError) -> Response:
    """Write an error in the OpenAI envelope."""
    return JSONResponse(error.envelope(), error.status, error.headers)


def as_api_error(error: BaseException, where: str, request_id: str | None = None) -> APIError:
    """Turn whatever a handler raised into what the client may see; the rest goes to the log."""
    if isinstance(error, APIError):
        return error
    if isinstance(error, HTTPException):  # Starlette's own, which authors may know better than ours
        return _from_http(error)
    if isinstance(error, ClientDisconnect):
        return BadRequestError("The client went away before the body was complete.")
    logger.error("%s failed", where, exc_info=error)
    hint = f" (request id {request_id})" if request_id else ""
    return InternalServerError(f"The server had an error while handling the request; its log has the details{hint}.")


def _from_http(error: HTTPException) -> APIError:
    api_error = APIError(error.detail, headers=error.headers)
    api_error.status = error.status_code
    if error.status_code < 500:
        api_error.type = BadRequestError.type
    return api_error
