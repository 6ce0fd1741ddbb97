"""A name for each request, the trace it belongs to, and what is counted and logged of it."""

import logging
import os
import re
import time

from prometheus_client import Counter, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from antwort.observability import Metrics, Tracer, bind_log_context
from antwort.web.asgi_scope import CONTEXT, REQUEST_ID, ROUTE, method_label

HEADER = b"x-request-id"
_ACCEPTABLE = re.compile(rb"[A-Za-z0-9._:-]{1,128}")


class RequestIdMiddleware:
    """Take the client's `x-request-id` if it is a decent one, else make one; log with it and send it back."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        raw = request_id_of(scope)
        request_id = scope[REQUEST_ID] = raw.decode()

        async def named(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), (HEADER, raw)]
            await send(message)

        with bind_log_context(request_id=request_id):
            await self.app(scope, receive, named)


def request_id_of(scope: Scope) -> bytes:
    """Return the id that the client gives to a request, or a new one."""
    given = next((value for name, value in scope["headers"] if name == HEADER), b"")
    return given if _ACCEPTABLE.fullmatch(given) else b"req_" + os.urandom(16).hex().encode()


class TraceMiddleware:
    """Take up the trace that a request names in `traceparent`; what a background run does later belongs to it too."""

    def __init__(self, app: ASGIApp, tracer: Tracer) -> None:
        self.app = app
        self._tracer = tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        with self._tracer.joining(scope["headers"]):
            await self.app(scope, receive, send)


logger = logging.getLogger("antwort.access")
UNMATCHED = "unmatched"
"""The path label of requests that no route answers: what clients invent must not become a time series."""


class ObservationMiddleware:
    """Record `antwort_http_requests_total` and `antwort_http_request_duration_seconds`; path is the route pattern."""

    def __init__(self, app: ASGIApp, metrics: Metrics, *, access_log: bool) -> None:
        self.app = app
        self._access_log = access_log
        # Looking a label up costs more than counting; there are as many as routes, methods and statuses.
        self._counters: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        self._requests = metrics.counter("antwort_http_requests_total", "HTTP requests.", ["method", "path", "status"])
        self._durations = metrics.histogram(
            "antwort_http_request_duration_seconds",
            "Duration of HTTP requests, streaming included.",
            ["method", "path"],
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = time.perf_counter()
        status = 0

        async def observed(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, observed)
        finally:
            elapsed = time.perf_counter() - started
            method = method_label(scope["method"])
            path = scope.get(ROUTE, UNMATCHED)
            # Without a status the client left before there was an answer: 499, as proxies call it.
            key = (method, path, status or 499)
            counters = self._counters.get(key)
            if counters is None:
                counters = self._requests.labels(method, path, str(key[2])), self._durations.labels(method, path)
                self._counters[key] = counters
            counters[0].inc()
            counters[1].observe(elapsed)
            if self._access_log:
                self._log(scope, status or 499, elapsed)

    def _log(self, scope: Scope, status: int, elapsed: float) -> None:
        context = scope.get(CONTEXT)
        logger.info(
            "%s %s %d",
            scope["method"],
            scope["path"],
            status,
            extra={"ms": round(elapsed * 1000, 1), **({"tenant": context.tenant} if context is not None else {})},
        )
