"""Requests are for this server, not for a name that somebody else points at it."""

from starlette.types import ASGIApp, Receive, Scope, Send

from antwort.errors import APIError
from antwort.functions.http import REQUEST_ID
from antwort.server.hosts import AllowedHosts
from antwort.server.refusals import Refusals


class HostMiddleware:
    """Refuse requests to hosts that are not allowed, on public paths too: pages of strangers need not read them."""

    def __init__(self, app: ASGIApp, hosts: AllowedHosts, refusals: Refusals) -> None:
        self.app = app
        self._hosts = hosts
        self._refusals = refusals

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http":
            try:
                self._hosts.check(scope["headers"], scope.get("http_version", "1.1"))
            except APIError as error:
                self._refusals.record(scope, error, scope.get(REQUEST_ID))
                raise
        await self.app(scope, receive, send)
