"""Requests are for this server, not for a name that somebody else points at it."""

from starlette.types import ASGIApp, Receive, Scope, Send

from antwort.errors import APIError
from antwort.functions.http import REQUEST_ID
from antwort.observability import AuditLog
from antwort.server.hosts import AllowedHosts
from antwort.server.refusals import record_refusal


class HostMiddleware:
    """Refuse requests to hosts that are not allowed, on public paths too: pages of strangers need not read them."""

    def __init__(self, app: ASGIApp, hosts: AllowedHosts, audit: AuditLog) -> None:
        self.app = app
        self._hosts = hosts
        self._audit = audit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http":
            try:
                self._hosts.check(scope["headers"])
            except APIError as error:
                record_refusal(self._audit, scope, error, scope.get(REQUEST_ID))
                raise
        await self.app(scope, receive, send)
