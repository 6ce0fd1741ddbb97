"""Before a WebSocket is open: where it comes from, whose it is, and how it is refused."""

from urllib.parse import SplitResult, urlsplit

from msgspec import Struct
from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from antwort.auth import Logins, RateLimiter
from antwort.config import ServerConfig
from antwort.context import Context, Principal
from antwort.context.context import RESPONSES_WRITE
from antwort.engine.engine import Engine
from antwort.errors import APIError, NotFoundError, PermissionDeniedError, ServiceUnavailableError
from antwort.observability import Metrics, bind_log_context
from antwort.runs.limits import TenantLimits
from antwort.server.api.responses import shown_beside
from antwort.server.gate import AllowedHosts, BodyBudget
from antwort.server.http.sse import Heartbeats
from antwort.server.observation import HEADER, Refusals, request_id_of
from antwort.server.readiness import ServerState
from antwort.server.sockets.connection import TEXTS, Caller, Connection, Served
from antwort.web.answers import as_api_error, error_response
from antwort.web.requests import named_headers

_KEY = "openai-insecure-api-key."
"""How browsers, which cannot set headers, send an API key: as the name of a subprotocol."""
_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}


def check_origin(headers: Headers, allowed: list[str]) -> None:
    """Refuse a page of another site, which a browser would let connect with whatever the machine can reach.

    Programs send no origin. A page of the server's own host may always connect, others if they are allowed.
    """
    origin = headers.get("origin")
    if origin is None or "*" in allowed or origin in allowed:
        return
    if not _same_host(origin, headers.get("host", "")):
        raise PermissionDeniedError(
            f"Pages of {origin[:200]} may not connect to this server. Its operator can allow them in"
            " server.cors_origins.",
            code="origin_not_allowed",
        )


def _same_host(origin: str, host: str) -> bool:
    try:
        page = urlsplit(origin)
        server = urlsplit(f"{page.scheme}://{host}")
        return page.scheme in _PORTS and bool(page.hostname) and _host_and_port(page) == _host_and_port(server)
    except ValueError:  # not an address
        return False


def _host_and_port(url: SplitResult) -> tuple[str | None, int | None]:
    return url.hostname, url.port or _PORTS.get(url.scheme)


def credentials(scope: Scope) -> Headers:
    """Return the headers of a handshake, with the key that stands among its subprotocols, if there is no other."""
    headers = Headers(scope=scope)
    keys = [name.removeprefix(_KEY) for name in scope.get("subprotocols", ()) if name.startswith(_KEY)]
    if not keys or "authorization" in headers:
        return headers
    return Headers(raw=[*scope["headers"], (b"authorization", b"Bearer " + keys[0].encode("latin-1", "replace"))])


def chosen_subprotocol(scope: Scope) -> str | None:
    """Return the subprotocol to agree on: browsers want one of those they offered, rather not the one with the key."""
    offered: list[str] = scope.get("subprotocols", [])
    return next((name for name in offered if not name.startswith(_KEY)), offered[0] if offered else None)


async def deny(scope: Scope, send: Send, error: APIError, headers: list[tuple[bytes, bytes]]) -> None:
    """Refuse a handshake with an HTTP answer in the OpenAI envelope, where the server can send one."""
    if "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": 1008, "reason": error.code or error.type})
        return
    response = error_response(error)
    await send(
        {
            "type": "websocket.http.response.start",
            "status": error.status,
            "headers": [*response.raw_headers, *headers],
        }
    )
    await send({"type": "websocket.http.response.body", "body": bytes(response.body)})


PATH = "/v1/responses"


class HandshakeGuards(Struct, frozen=True):
    """Who is let in."""

    logins: Logins
    limiter: RateLimiter
    refusals: Refusals
    state: ServerState
    tenants: TenantLimits


class WebSockets:
    """The ASGI app of all WebSocket connections."""

    def __init__(
        self, engine: Engine, config: ServerConfig, guards: HandshakeGuards, metrics: Metrics, bodies: BodyBudget
    ) -> None:
        self._config = config
        self._guards = guards
        self._hosts = AllowedHosts.of(config)
        self._open: set[Connection] = set()
        self._connections = metrics.gauge("antwort_websocket_connections", "Open WebSocket connections.")
        frames = metrics.counter("antwort_websocket_frames_total", "Frames of WebSocket connections.", ["direction"])
        heartbeats = Heartbeats(engine.settings.heartbeat)
        self._served = Served(
            engine, config, heartbeats, bodies, guards.tenants, frames.labels("received"), frames.labels("sent")
        )

    def send_away(self) -> None:
        """Let every connection end after the response it is making, because the server stops."""
        for connection in self._open:
            connection.leave()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection, from its handshake to its end."""
        await receive()  # websocket.connect
        request_id = request_id_of(named_headers(scope))
        named = [(HEADER, request_id.encode())]
        with bind_log_context(request_id=request_id):
            try:
                principal, headers = await self._admit_handshake(scope)
            except Exception as error:  # noqa: BLE001 - whatever it is, the client is told and the log has it
                refusal = as_api_error(error, f"WebSocket {scope['path']}", request_id)
                self._guards.refusals.record(scope, refusal, request_id)
                await deny(scope, send, refusal, named)
                return
            await send(
                {
                    "type": "websocket.accept",
                    "subprotocol": chosen_subprotocol(scope),
                    "headers": [*named, *((name.encode(), value.encode()) for name, value in headers.items())],
                }
            )
            with bind_log_context(tenant=principal.tenant):
                await self._serve(scope, receive, send, request_id)

    async def _serve(self, scope: Scope, receive: Receive, send: Send, request_id: str) -> None:
        headers = credentials(scope)

        def denied(error: APIError, principal: Principal) -> None:
            with bind_log_context(tenant=principal.tenant):
                self._guards.refusals.record(scope, error, request_id, subject=principal.subject)

        shown = shown_beside(named_headers(scope))
        caller = Caller(request_id, shown, lambda: self._admit_request(headers, scope, request_id), denied)
        connection = Connection(self._served, caller, receive, send, together=TEXTS in scope.get("extensions", {}))
        self._open.add(connection)
        self._connections.inc()
        try:
            with self._served.engine.tracer.joining(scope["headers"]):
                await connection.run()
        finally:
            self._open.discard(connection)
            self._connections.dec()

    async def _admit_handshake(self, scope: Scope) -> tuple[Principal, dict[str, str]]:
        """Check a handshake: a request like any other, which counts as one; return the headers for the answer too."""
        self._hosts.check(scope, named_headers(scope))
        if scope["path"] != PATH or not self._config.websocket.enabled:
            hint = " It is turned off (server.websocket.enabled)." if scope["path"] == PATH else f" Connect to {PATH}."
            raise NotFoundError(f"There is no WebSocket at {scope['path']}.{hint}")
        if not self._guards.state.ready:
            raise ServiceUnavailableError(f"The server is {self._guards.state.phase}.")
        if len(self._open) >= self._config.websocket.max_connections:
            raise ServiceUnavailableError("There are too many open connections. Try again later.")
        headers = credentials(scope)
        check_origin(headers, self._config.cors_origins)
        principal = await self._guards.logins.authenticate(headers, _address(scope))
        limits = dict(self._guards.limiter.check(principal))
        Context.of(principal).require(RESPONSES_WRITE)
        return principal, limits

    async def _admit_request(self, headers: Headers, scope: Scope, request_id: str) -> Principal:
        """Check a request on an open connection: keys are revoked and tokens expire while it lasts."""
        try:
            principal = await self._guards.logins.authenticate(headers, _address(scope))
            self._guards.limiter.check(principal)
            Context.of(principal).require(RESPONSES_WRITE)
        except APIError as error:
            self._guards.refusals.record(scope, error, request_id)
            raise
        return principal


def _address(scope: Scope) -> str:
    client = scope.get("client")
    return client[0] if client else ""
