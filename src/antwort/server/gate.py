"""The gate: what every HTTP request passes, in one place and in this order, before a route answers it."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping

from msgspec import Struct
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from antwort.auth import Logins, RateLimiter
from antwort.concurrency.load import LITTLE, MUCH, ServerLoad
from antwort.context import Context, Principal
from antwort.errors import APIError, AuthenticationError, PermissionDeniedError, RateLimitError, ServiceUnavailableError
from antwort.observability import bind_log_context, bind_tenant
from antwort.server.body_limit import BodyLimit
from antwort.server.hosts import AllowedHosts
from antwort.server.http.exchange import UnsentAnswerError
from antwort.server.observation import ERROR, HEADER, Observation, request_id_of
from antwort.server.pages import AllowedPages
from antwort.server.refusals import Refusals
from antwort.server.router import Router
from antwort.web.answers import as_api_error, error_response
from antwort.web.requests import CONTEXT, DENIED, REQUEST_ID, ROUTE, named_headers

_ANSWER = "antwort.answer"
"""The key of the ASGI scope under which the gate keeps what was sent."""


class SentAnswer(Struct, eq=False):
    """What a request is answered with, as far as it was sent. All that the gate adds to it, it adds here."""

    pass_on: Send
    headers: list[tuple[bytes, bytes]]
    status: int = 0
    """0 as long as nothing was sent."""

    def send(self, message: Message) -> Awaitable[None]:
        """Send a message, the first with the headers of the gate."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message.get("headers", ()), *self.headers]
        return self.pass_on(message)


class RequestGuards(Struct, frozen=True):
    """What lets requests in, or refuses them."""

    hosts: AllowedHosts
    bodies: BodyLimit
    logins: Logins
    limiter: RateLimiter
    refusals: Refusals
    public: Collection[str]
    """The paths that need no credentials."""
    load: ServerLoad
    challenge: Callable[[Scope, APIError], None] | None = None
    """Called with what a request is refused with, to say in its headers what would be let in."""


class RequestGate:
    """Serves HTTP requests: id → metrics → errors → (CORS) → host → body limit → caller → rate limits → route.

    It is one pass and not a wrapper for each of them: every request and every piece of an answer goes through all.
    """

    def __init__(
        self, router: Router, guards: RequestGuards, observation: Observation, pages: AllowedPages | None = None
    ) -> None:
        self._router = router
        self._guards = guards
        self._observation = observation
        self._pages = pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request. Whatever goes wrong becomes an error in the OpenAI envelope.

        A traceback goes to the log, never to the client.
        """
        started = time.perf_counter()
        load = self._guards.load
        load.asked += LITTLE if scope["method"] == "GET" else MUCH
        load.running += 1
        headers = named_headers(scope)
        request_id = scope[REQUEST_ID] = request_id_of(headers)
        answer = scope[_ANSWER] = SentAnswer(send, [(HEADER, request_id.encode())])
        send = answer.send if self._pages is None else self._pages.telling(scope, answer.send)
        body = None
        with bind_log_context(request_id=request_id):
            try:
                if self._pages is not None and (preflight := self._pages.preflight(scope)) is not None:
                    await preflight(scope, receive, answer.send)
                    return
                guards = self._guards
                self._check_host(guards.hosts, scope, headers)
                body = guards.bodies.watch(scope, headers, receive)
                if scope["path"] not in guards.public:
                    self._admit(scope, guards.logins.anyone or await self._authenticate(scope))
                await self._router(scope, receive if body is None else body.receive, send)
            except asyncio.CancelledError:
                if answer.status:
                    raise
                stopping = ServiceUnavailableError("The server is stopping. Try again.")
                await error_response(stopping)(scope, receive, send)
            except Exception as error:
                # An APIError here would keep this frame, and the request in it.
                refusal = self._refusal(error, scope, started)
                if answer.status:
                    raise  # the answer cannot be taken back; the server closes the connection
                await refusal(scope, receive, send)
            finally:
                load.running -= 1
                if body is not None:
                    body.end()
                if DENIED in scope:
                    self._record_refusal(scope)
                self._observation.record(scope, answer.status, time.perf_counter() - started)

    def _refusal(self, error: Exception, scope: Scope, started: float) -> Response:
        """Return what a request is answered with that has failed."""
        # It got nowhere, so nobody else has counted it; one with a wrong host is not meant for any route.
        if ROUTE not in scope and isinstance(error, APIError) and not isinstance(error, PermissionDeniedError):
            elapsed = time.perf_counter() - started
            pattern = self._router.count_refusal(scope["method"], scope["path"], error.status, elapsed)
            if pattern is not None:
                scope[ROUTE] = pattern
        if isinstance(error, UnsentAnswerError):
            scope[_ANSWER].status = 0
        if isinstance(error, PermissionDeniedError):
            scope[DENIED] = error
        refusal = as_api_error(error, f"{scope['method']} {scope['path']}", scope[REQUEST_ID])
        scope[ERROR] = refusal.message
        if self._guards.challenge is not None:
            self._guards.challenge(scope, refusal)
        response = error_response(refusal)
        self._record_refusal(scope)  # before the answer: whoever has that can look
        return response

    def _check_host(self, hosts: AllowedHosts, scope: Scope, headers: Mapping[bytes, bytes]) -> None:
        """Refuse requests to other hosts, on public paths too: pages of strangers need not read them."""
        try:
            hosts.check(scope, headers)
        except APIError as error:
            scope[DENIED] = error
            raise

    async def _authenticate(self, scope: Scope) -> Principal:
        """Find out who is calling."""
        client = scope.get("client")
        try:
            return await self._guards.logins.authenticate(Headers(raw=scope["headers"]), client[0] if client else "")
        except (AuthenticationError, RateLimitError) as error:
            scope[DENIED] = error
            raise

    def _admit(self, scope: Scope, principal: Principal) -> None:
        """Let a caller in who does not call too often."""
        try:
            limits = self._guards.limiter.check(principal)
        except RateLimitError as error:
            scope[DENIED] = error
            raise
        if limits:
            scope[_ANSWER].headers += [(name.encode(), value.encode()) for name, value in limits.items()]
        bind_tenant(principal.tenant)
        scope[CONTEXT] = Context.of(principal, request_id=scope[REQUEST_ID])

    def _record_refusal(self, scope: Scope) -> None:
        """Tell the audit log of a request that was refused, once."""
        error = scope.pop(DENIED, None)
        if error is not None:
            context = scope.get(CONTEXT)
            subject = None if context is None else context.subject
            self._guards.refusals.record(scope, error, scope[REQUEST_ID], subject=subject)
