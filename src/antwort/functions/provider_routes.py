"""Serving the routes of providers: guarded, measured, isolated."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from functools import partial
from typing import Any

from msgspec import Struct
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from antwort.concurrency.large_work import Turns
from antwort.concurrency.threads import WorkerThreads
from antwort.context.http_client import HttpClient
from antwort.errors import PermissionDeniedError
from antwort.functions.metrics import FunctionMetrics
from antwort.functions.output import Stop, answer_text, may_take_long
from antwort.functions.switches import SwitchedOff
from antwort.web.answers import as_api_error, error_response, json_response
from antwort.web.requests import DENIED, EXCHANGE, REQUEST_ID, ROUTE, authenticated, authorize, method_label
from antwort.web.routes import Match, Route, RouteTable, no_route

logger = logging.getLogger(__name__)


class _Mounted(Struct, frozen=True):
    provider: str
    route: Route
    enabled: bool
    off: SwitchedOff | None

    def check_enabled(self) -> None:
        """Raise a ServiceUnavailableError if an operator has switched the provider off."""
        if self.off is not None:
            raise self.off.refusal(str(self.route))

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

    def mount(self, providers: Iterable[tuple[str, Iterable[Route], bool, SwitchedOff | None]]) -> None:
        """Replace what is served: for each provider its name, its routes, and whether it is enabled, or switched off.

        Providers are asked in this order: the first wins, also where patterns overlap, and also while it is disabled.
        The routes of one that an operator has switched off are there, and say so.
        """
        self._tables = [
            RouteTable(_Mounted(name, route, on, off) for route in group) for name, group, on, off in providers
        ]

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

    def streams_body(self, method: str, path: str) -> bool:
        """Tell whether the route for a request reads its body as a stream, and limits it itself."""
        found = self._find(method, path)
        return found is not None and found.route.route.streams_body

    def count_refusal(self, method: str, path: str, status: int, seconds: float) -> None:
        """Count a request that was refused before it got here; one for a path of somebody else is not ours to count."""
        found = self._find(method, path)
        for other in self.allowed(path) if found is None else ():
            found = found or self._find(other, path)
        if found is not None:
            mounted = found.route
            self._metrics.request(mounted.provider, method_label(method), mounted.path, status, seconds)

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

        turns, exchange = Turns(), scope.get(EXCHANGE)

        async def observed(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            elif exchange is not None and exchange.disconnected:
                raise ClientDisconnect
            await send(message)
            await turns.give()  # a stream that never waits for anything, before a client that reads quickly

        scope[ROUTE] = mounted.path
        scope["path_params"] = found.parameters
        try:
            response = await self._respond(mounted, scope, receive)
            try:
                await response(scope, receive, observed)
            except ClientDisconnect:
                logger.debug("a client of %s left before it had all of its answer", mounted.route)
            finally:
                if isinstance(response, StreamingResponse):
                    await _close(response.body_iterator)  # it may hold something that it gives back at its end
        finally:
            elapsed = time.perf_counter() - started
            self._metrics.request(mounted.provider, mounted.method, mounted.path, status, elapsed)

    async def _respond(self, mounted: _Mounted, scope: Scope, receive: Receive) -> Response:
        task = asyncio.current_task()
        try:
            context = authenticated(scope)
            # One that declares none has the provider's name: who may do little must not do this by an oversight.
            authorize(context, mounted.route.scope or mounted.provider)
            mounted.check_enabled()
            threads = self._threads(mounted.provider)  # its own: those that are stuck are stuck for nobody else
            result = await mounted.route.call(context.reaching(self._http), Request(scope, receive), threads)
            if may_take_long(result) and not isinstance(result, Response):
                result = await _written(result, mounted.route.status, threads, context.tenant)
            return json_response(result, mounted.route.status)
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError | KeyboardInterrupt) and task is not None and task.cancelling():
                raise
            if isinstance(error, PermissionDeniedError):  # it is answered here, and the audit log wants to know
                scope[DENIED] = error
            where = f"route {mounted.route} of provider '{mounted.provider}'"
            return error_response(as_api_error(error, where, scope.get(REQUEST_ID)))


async def _close(stream: object) -> None:
    """Let a stream come to its end whose client has left."""
    if isinstance(stream, AsyncGenerator):
        await stream.aclose()


async def _written(result: Any, status: int, threads: WorkerThreads, tenant: str) -> Response:
    """Write a large answer as JSON, on a thread of its provider: an iterator in it may do anything, also never end."""
    stop = Stop()
    try:
        text = await threads.run(partial(answer_text, result, stop), tenant)
    finally:
        stop.asked = True
    return Response(text.encode(), status, media_type="application/json")
