"""Requests belong to the traces of whoever sends them."""

from starlette.types import ASGIApp, Receive, Scope, Send

from antwort.observability import Tracer


class TraceMiddleware:
    """Take up the trace that a request names in `traceparent`; what a background run does later belongs to it too."""

    def __init__(self, app: ASGIApp, tracer: Tracer) -> None:
        self.app = app
        self._tracer = tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        with self._tracer.joining(scope["headers"]):
            await self.app(scope, receive, send)
