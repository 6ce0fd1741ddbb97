"""The gate: what every HTTP request passes, in one place and in this order, before a route answers it."""

import asyncio
import ipaddress
import re
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from antwort.auth import Logins, RateLimiter
from antwort.concurrency.load import LITTLE, MUCH, ServerLoad
from antwort.config import ServerConfig
from antwort.context import Context, Principal
from antwort.errors import (
    APIError,
    AuthenticationError,
    BadRequestError,
    PayloadTooLargeError,
    PermissionDeniedError,
    RateLimitError,
    ServiceUnavailableError,
)
from antwort.lazy_imports import compiled_on_use, imported_on_use
from antwort.observability import bind_log_context, bind_tenant
from antwort.server.http.exchange import UnsentAnswerError
from antwort.server.observation import ERROR, HEADER, Observation, Refusals, request_id_of
from antwort.server.router import Router
from antwort.web.answers import as_api_error, error_response
from antwort.web.requests import (
    CONTEXT,
    DENIED,
    PRINCIPAL,
    REQUEST_ID,
    ROUTE,
    ValueCount,
    check_page,
    named_headers,
)
from antwort.wire.messages.answers import MESSAGES

# --- bodies have a largest size, each of them and all together, and a largest number of values -----------------------


SMALL = 64 * 1024
"""Bytes of a body that do not count: as many as a connection may have in its buffers anyway."""


class BodyBudget:
    """The bytes of the large bodies of all requests under way: what was read of them, not what was announced.

    They count until the request is over, as what was made of them is as large and stays as long.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.held = 0

    def take(self, size: int) -> None:
        """Count some bytes; ServiceUnavailableError if there are too many."""
        if self.held + size > self._limit:
            raise ServiceUnavailableError(
                "The requests under way have as many bytes as the server takes (server.max_bodies_bytes). Try again.",
                code="server_overloaded",
                headers={"retry-after": "1"},
            )
        self.held += size

    def give_back(self, size: int) -> None:
        """Forget some bytes that were counted."""
        self.held -= size


class BodyLimit:
    """Refuses a body that is too large, by its announced length or, without one, while it is being read.

    One of JSON that holds too many values is refused while it is being read, whichever route reads it. Those to the
    paths of `uncounted` may hold any number, such as the tokens of texts to embed, and are looked at by their routes. A
    body that its route reads as a stream is limited there.
    """

    def __init__(
        self,
        limit: int,
        budget: BodyBudget,
        *,
        max_values: int,
        uncounted: Collection[str] = (),
        streamed: Callable[[str, str], bool] | None = None,
    ) -> None:
        self.limit = limit
        self._streamed = streamed
        self.budget = budget
        self._max_values = max_values
        self._uncounted = uncounted
        self._small = min(SMALL, max_values, limit)

    def watch(self, scope: Scope, headers: Mapping[bytes, bytes], receive: Receive) -> "LimitedBody | None":
        """Return the body of a request, to be read through its `receive`; PayloadTooLargeError if it is too large.

        None is one that needs no limit, and is read as it comes.
        """
        announced = headers.get(b"content-length", b"")
        is_announced = announced.isdigit()
        size = int(announced) if is_announced else self.limit
        if is_announced and size <= self._small:
            return None  # the server lets no more bytes pass than were announced
        if self._streamed is not None and self._streamed(scope["method"], scope["path"]):
            return None
        if size > self.limit:
            raise self.too_large()
        # In a body with fewer bytes there cannot be too many; one that claims to be something else is not read as JSON.
        kind = headers.get(b"content-type", b"json").lower()
        counts = size > self._max_values and b"json" in kind and scope["path"] not in self._uncounted
        return LimitedBody(self, receive, ValueCount(self._max_values) if counts else None)

    def too_large(self) -> PayloadTooLargeError:
        """Return the error for a body that is too large."""
        return PayloadTooLargeError(f"The body is larger than {self.limit:,} bytes (server.max_body_bytes).")


class LimitedBody:
    """A body that may be large: what is read of it is counted."""

    __slots__ = ("_counted", "_limit", "_read", "_receive", "_values")

    def __init__(self, limit: BodyLimit, receive: Receive, values: ValueCount | None) -> None:
        self._receive = receive
        self._limit = limit
        self._values = values
        self._read = self._counted = 0

    async def receive(self) -> Message:
        """Return the next piece; PayloadTooLargeError, or BadRequestError for too many values, if it is too much."""
        message = await self._receive()
        self._read += len(message.get("body", b""))
        if self._read > self._limit.limit:
            raise self._limit.too_large()
        if self._read > SMALL:
            self._limit.budget.take(self._read - self._counted)
            self._counted = self._read
        if self._values is not None:
            self._values.take(message.get("body", b""))
        return message

    def end(self) -> None:
        """Take note that the request is over."""
        self._limit.budget.give_back(self._counted)
        self._counted = 0


# --- pages of other sites, and what browsers want to be told about them, as CORS has it ------------------------------


if TYPE_CHECKING:
    from starlette.middleware import cors
else:  # for servers that web pages may call
    cors = imported_on_use("starlette.middleware.cors")

EXPOSED_HEADERS = (
    "x-request-id",
    "retry-after",
    "x-should-retry",
    "x-ratelimit-limit-requests",
    "x-ratelimit-remaining-requests",
)


class AllowedPages:
    """Answers the questions that browsers ask before a page may call, and lets pages read the answers of the server."""

    def __init__(self, origins: Sequence[str]) -> None:
        self._cors = cors.CORSMiddleware(
            _nothing,
            allow_origins=origins,
            allow_methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
            allow_headers=["*"],
            expose_headers=EXPOSED_HEADERS,
        )

    @classmethod
    def of(cls, origins: Sequence[str]) -> "AllowedPages | None":
        """Return the pages of some origins; None if there are none."""
        return cls(origins) if origins else None

    def preflight(self, scope: Scope) -> Response | None:
        """Return the answer to a browser that asks whether a page may call; None if a request is another one."""
        headers = Headers(raw=scope["headers"])
        asks = scope["method"] == "OPTIONS" and "origin" in headers and "access-control-request-method" in headers
        return self._cors.preflight_response(headers) if asks else None

    def telling(self, scope: Scope, send: Send) -> Send:
        """Return what sends an answer, with headers that say which pages may read it."""
        headers = Headers(raw=scope["headers"])
        if "origin" not in headers:  # which older releases of Starlette ask for
            return partial(_send_to_program, send)
        return partial(self._cors.send, send=send, request_headers=headers)


async def _send_to_program(send: Send, message: Message) -> None:
    """Send what no page has asked for: one that asks for the same gets other headers, which caches are to know."""
    if message["type"] == "http.response.start":
        message.setdefault("headers", [])
        MutableHeaders(scope=message).add_vary_header("Origin")
    await send(message)


async def _nothing(_scope: Scope, _receive: Receive, _send: Send) -> None:
    """Stand where CORS wants an app: the gate calls its own."""


# --- hosts: the guard against strangers' names that point at the server ----------------------------------------------


_HOST = compiled_on_use(r"(?:\[(?P<v6>[0-9a-f:.]{2,45})\]|(?P<name>[\w.-]{1,253}?)\.?)(?::\d{0,5})?", re.ASCII)
_REMEMBERED = 256
"""Headers whose check is spared when they come again; ports and subdomains are the clients' to invent."""
_SHOWN = 100


class AllowedHosts:
    """Names, `*.` and a domain for all names below it, addresses and networks, or `*` for all; ports do not matter.

    A web page can have its own name point at the address of a server after it was loaded (DNS rebinding). The browser
    then takes the two for one site and lets the page read everything. The name in `Host` is still the page's.
    """

    def __init__(self, entries: Iterable[str]) -> None:
        self._names: set[str] = set()
        self._networks: list[ipaddress.IPv4Network | ipaddress.IPv6Network] = []
        self._known: set[bytes] = set()
        self._all = False
        for entry in entries:
            self._all = self._all or entry == "*"
            name = entry.lower().strip("[]").removesuffix(".")
            try:
                self._networks.append(ipaddress.ip_network(name, strict=False))
            except ValueError:
                self._names.add(name)
        self._domains = tuple(name[1:] for name in self._names if name.startswith("*."))

    @classmethod
    def of(cls, settings: ServerConfig) -> "AllowedHosts":
        """Return what the settings allow."""
        return cls(settings.allowed_hosts or ["*"])

    def check(self, scope: Scope, named: Mapping[bytes, bytes]) -> None:
        """Refuse a request to another host: PermissionDeniedError, or BadRequestError if it does not name just one.

        One of HTTP/1.0 need not name any. `named` are the headers by name.
        """
        headers, host = scope["headers"], named.get(b"host")
        if len(named) == len(headers) and (host in self._known or (self._all and host is not None)):
            return  # as nearly always: none of them is there twice
        given = [value for name, value in headers if name == b"host"]
        if not given and scope.get("http_version") == "1.0":
            # The header came with HTTP/1.1, and simple probes send none. What is guarded against is a page in a
            # browser: browsers speak HTTP/1.1 or later, always name the host, and no page can leave it out.
            return
        if len(given) != 1:
            raise BadRequestError(f"A request needs one Host header, and this one has {len(given) or 'none'}.")
        if not self._all and given[0] not in self._known:
            self._check_name(given[0])

    def _check_name(self, given: bytes) -> None:
        """Refuse a host that is not among those answered to, and remember one that is."""
        text = given.decode("latin-1")
        found = _HOST.fullmatch(text.lower())
        name = None if found is None else found["v6"] or found["name"]
        if name is None or not self._has(name):
            # 403, not 421: there is no other server to try, and OpenAI's clients know this status.
            raise PermissionDeniedError(
                f"This server does not answer to the host '{_printable(name or text)}'."
                " If that is a name of it, its operator can add it to server.allowed_hosts.",
                code="host_not_allowed",
            )
        if len(self._known) < _REMEMBERED:
            self._known.add(given)

    def _has(self, name: str) -> bool:
        if name in self._names or name.endswith(self._domains):
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        address = getattr(address, "ipv4_mapped", None) or address
        return any(address in network for network in self._networks)


def _printable(text: str) -> str:
    return "".join(character for character in text if character.isprintable())[:_SHOWN]


# --- the gate --------------------------------------------------------------------------------------------------------


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


_VERSION = b"anthropic-version"
_VERSIONED = compiled_on_use(rb"\d{4}-\d{2}-\d{2}")
_SERVED_VERSION = (_VERSION, b"2023-06-01")


class _Versions(dict[bytes | None, tuple[bytes, bytes]]):
    """The header that answers a version; those that clients ask for are few."""

    def __missing__(self, asked: bytes | None) -> tuple[bytes, bytes]:
        if asked is None or not _VERSIONED.fullmatch(asked):
            return _SERVED_VERSION
        if len(self) < _REMEMBERED:
            self[asked] = (_VERSION, asked)
        return (_VERSION, asked)


_versions = _Versions()


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
        if scope["path"].startswith(MESSAGES):
            answer.headers += ((b"request-id", answer.headers[0][1]), _versions[headers.get(_VERSION)])
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
                await error_response(stopping, scope["path"], request_id)(scope, receive, send)
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
        response = error_response(refusal, scope["path"], scope[REQUEST_ID])
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
        """Let a caller in who does not call too often, and is no page of another site."""
        if scope["method"] == "POST" and principal is self._guards.logins.anyone:
            check_page(named_headers(scope))  # nobody has to prove anything, and a browser is somebody
        try:
            limits = self._guards.limiter.check(principal)
        except RateLimitError as error:
            scope[DENIED] = error
            raise
        if limits:
            scope[_ANSWER].headers += [(name.encode(), value.encode()) for name, value in limits.items()]
        bind_tenant(principal.tenant)
        scope[PRINCIPAL] = principal
        scope[CONTEXT] = Context.of(principal, request_id=scope[REQUEST_ID])

    def _record_refusal(self, scope: Scope) -> None:
        """Tell the audit log of a request that was refused, once."""
        error = scope.pop(DENIED, None)
        if error is not None:
            context = scope.get(CONTEXT)
            subject = None if context is None else context.subject
            self._guards.refusals.record(scope, error, scope[REQUEST_ID], subject=subject)
