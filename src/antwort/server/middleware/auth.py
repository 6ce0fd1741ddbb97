"""Who is calling, and may they: authentication, rate limits, and the context for everything inside."""

from collections.abc import Callable, Collection

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from antwort.auth import Logins, RateLimiter
from antwort.context import Context
from antwort.errors import APIError, AuthenticationError, PermissionDeniedError, RateLimitError
from antwort.observability import bind_log_context
from antwort.server.refusals import Refusals
from antwort.web.asgi_scope import CONTEXT, DENIED, REQUEST_ID, ROUTE


class AuthMiddleware:
    """Authenticate every request but those to public paths, and leave its context in the scope."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        logins: Logins,
        limiter: RateLimiter,
        refusals: Refusals,
        public: Collection[str],
        count_refusal: Callable[[str, str, int], str | None],
    ) -> None:
        self.app = app
        self._logins = logins
        self._limiter = limiter
        self._refusals = refusals
        self._public = frozenset(public)
        self._count_refusal = count_refusal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or scope["path"] in self._public:
            await self.app(scope, receive, send)
            return
        request_id = scope.get(REQUEST_ID)
        try:
            client = scope.get("client")
            principal = await self._logins.authenticate(Headers(scope=scope), client[0] if client else "")
            headers = self._limiter.check(principal)
        except (AuthenticationError, RateLimitError) as error:
            self._record_refusal(scope, error)
            raise
        scope[CONTEXT] = Context.of(principal, request_id=request_id)
        if headers:
            send = _with_headers(send, [(name.encode(), value.encode()) for name, value in headers.items()])
        with bind_log_context(request_id=request_id, tenant=principal.tenant):
            try:
                await self.app(scope, receive, send)
            except PermissionDeniedError as error:
                scope[DENIED] = error
                raise
            finally:
                if (denied := scope.get(DENIED)) is not None:
                    self._refusals.record(scope, denied, request_id, subject=principal.subject)

    def _record_refusal(self, scope: Scope, error: APIError) -> None:
        pattern = self._count_refusal(scope["method"], scope["path"], error.status)
        if pattern is not None:  # so that metrics show where callers are refused
            scope[ROUTE] = pattern
        self._refusals.record(scope, error, scope.get(REQUEST_ID))


def _with_headers(send: Send, headers: list[tuple[bytes, bytes]]) -> Send:
    async def extended(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), *headers]
        await send(message)

    return extended
