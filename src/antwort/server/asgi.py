"""How the HTTP app and the WebSocket app are put together: the endpoints, and the gate in front of them."""

from collections.abc import Callable

from msgspec import Struct
from starlette.types import ASGIApp

from antwort.auth import Logins, RateLimiter
from antwort.backends import ModelRouter
from antwort.concurrency.load import ServerLoad
from antwort.config import Config, LoadedConfig
from antwort.engine.engine import Engine
from antwort.functions import FunctionRegistry
from antwort.functions.absent import AbsentProviders
from antwort.functions.switches import Switches
from antwort.observability import Metrics, MetricsPage, Redactor
from antwort.runs.local import LocalRuns
from antwort.server.api.administration import AdministrationEndpoints
from antwort.server.api.batches import BatchEndpoints
from antwort.server.api.client_traces import ClientTraceEndpoints
from antwort.server.api.conversations import ConversationEndpoints
from antwort.server.api.endpoints import ModelEndpoints, ServerEndpoints
from antwort.server.api.functions import FunctionEndpoints
from antwort.server.api.passthrough import Passthrough
from antwort.server.api.prompts import PromptEndpoints
from antwort.server.api.responses import ResponseEndpoints
from antwort.server.api.run_stories import RunReader
from antwort.server.api.runs import RunEndpoints
from antwort.server.api.traces import TraceEndpoints
from antwort.server.batches import BatchRunner
from antwort.server.chat.endpoint import ChatEndpoint
from antwort.server.chat.keeping import ChatKeeper
from antwort.server.chat.stored import StoredCompletionEndpoints
from antwort.server.console import ConsolePages
from antwort.server.decisions.endpoint import DecisionEndpoint
from antwort.server.gate import AllowedHosts, AllowedPages, BodyBudget, BodyLimit, RequestGate, RequestGuards
from antwort.server.http.sse import Heartbeats
from antwort.server.mcp.endpoint import McpEndpoint
from antwort.server.mcp.methods import McpMethods
from antwort.server.mcp.token_metadata import TokenMetadata
from antwort.server.messages.batches import MESSAGE_BATCHES, MessageBatchEndpoints
from antwort.server.messages.endpoint import MessageEndpoints
from antwort.server.observation import Observation, Refusals, TraceMiddleware
from antwort.server.readiness import ReadinessCheck, ServerState
from antwort.server.router import Router
from antwort.server.sockets.websocket import HandshakeGuards, WebSockets
from antwort.storage.base import OWN_RECORDS
from antwort.storage.chat_completions import ChatCompletions
from antwort.web.routes import AsgiRoute, Route


class Parts(Struct, frozen=True):
    """What the server is made of."""

    config: Config
    registry: FunctionRegistry
    logins: Logins
    limiter: RateLimiter
    metrics: Metrics
    metrics_page: MetricsPage
    refusals: Refusals
    state: ServerState
    load: ServerLoad
    engine: Engine
    runs: LocalRuns
    router: ModelRouter
    bodies: BodyBudget
    absent: AbsentProviders
    redactor: Redactor
    switches: Switches
    loaded: Callable[[], LoadedConfig]
    """Gives the configuration that is in force, with where it was given."""
    batches: BatchRunner


def build_asgi(parts: Parts) -> ASGIApp:
    """Build the HTTP app: the routes of the API and of providers, behind the gate."""
    server, engine = parts.config.server, parts.engine
    api = _api_routes(parts)
    jwt, tokens = parts.config.auth.jwt, None
    if server.mcp.enabled:
        api += _mcp_endpoint(parts).routes()
        if jwt is not None:
            tokens = TokenMetadata(jwt.issuer, server.mcp.url)
            api += tokens.routes()
    readiness = ReadinessCheck(parts.state, engine.store)
    endpoints = ServerEndpoints(
        server, parts.registry, parts.metrics_page, parts.state, readiness=readiness, models=parts.router, api=api
    )
    routes, public = endpoints.routes(), endpoints.public | (frozenset() if tokens is None else tokens.public)
    if server.console:
        console = ConsolePages(endpoints.index)
        routes, public = [*console.routes(), *routes], public | console.public
    parts.registry.reserve(routes)

    router = parts.batches.api = Router(routes, parts.registry.http_handler(), parts.absent)
    bodies = BodyLimit(
        server.max_body_bytes,
        parts.bodies,
        max_values=server.max_values,
        uncounted={"/v1/embeddings", MESSAGE_BATCHES},
        streamed=parts.registry.http_handler().streams_body,
    )
    hosts = AllowedHosts.of(server)
    challenge = None if tokens is None else tokens.challenge
    gate = RequestGate(
        router,
        RequestGuards(hosts, bodies, parts.logins, parts.limiter, parts.refusals, public, parts.load, challenge),
        Observation(parts.metrics, access_log=bool(parts.config.observability.access_log)),
        AllowedPages.of(server.cors_origins),
    )
    return TraceMiddleware(gate, engine.tracer) if parts.config.observability.tracing else gate


def _api_routes(parts: Parts) -> list[Route | AsgiRoute]:
    """Return the routes of the API, but for those of the server itself."""
    engine, reader = parts.engine, RunReader(parts.engine, parts.redactor)
    chats = ChatCompletions(engine.store.records(OWN_RECORDS))
    keeper = ChatKeeper(chats, parts.runs.limits, engine.large_work)
    made = ChatEndpoint(engine, parts.runs, keeper).routes() if parts.config.server.chat_completions.functions else []
    passthrough = Passthrough(
        parts.router,
        parts.metrics,
        engine.tracer,
        engine.large_work,
        engine.check_url,
        max_values=parts.config.server.max_values,
        keeper=keeper,
        deadline=parts.config.engine.deadline,
    )
    return [
        *ResponseEndpoints(engine, parts.runs).routes(),
        *MessageEndpoints(engine, parts.runs).routes(),
        *DecisionEndpoint(engine, parts.runs).routes(),
        *RunEndpoints(engine, parts.runs, parts.refusals.audit).routes(),
        *TraceEndpoints(engine, reader, parts.runs).routes(),
        *ClientTraceEndpoints(engine, parts.runs.limits, reader).routes(),
        *BatchEndpoints(parts.batches, parts.runs.limits).routes(),
        *MessageBatchEndpoints(
            parts.batches, parts.runs.limits, engine.large_work, parts.config.server.max_values
        ).routes(),
        *PromptEndpoints(engine.prompts, parts.runs.limits).routes(),
        *ConversationEndpoints(
            engine.store, parts.runs.limits, engine.large_work, engine.check_url, engine.checked_items
        ).routes(),
        *ModelEndpoints(parts.router).routes(),
        *FunctionEndpoints(parts.registry, parts.switches, parts.absent).routes(),
        *AdministrationEndpoints(parts.loaded, parts.refusals.audit, parts.redactor).routes(),
        *made,
        *(route for route in passthrough.routes() if route.path not in {one.path for one in made}),
        *StoredCompletionEndpoints(chats, engine.large_work).routes(),
    ]


def _mcp_endpoint(parts: Parts) -> McpEndpoint:
    engine = parts.engine
    return McpEndpoint(
        McpMethods(engine, parts.runs.limits, parts.registry.registrations),
        parts.limiter,
        origins=parts.config.server.cors_origins,
        heartbeats=Heartbeats(engine.settings.heartbeat),
        stragglers=engine.stragglers,
        large_work=engine.large_work,
    )


def build_websockets(parts: Parts) -> WebSockets:
    """Build the WebSocket app, which has the same guards: request id → host → origin → auth, tenant, rate limits."""
    guards = HandshakeGuards(parts.logins, parts.limiter, parts.refusals, parts.state, parts.runs.limits)
    return WebSockets(parts.engine, parts.config.server, guards, parts.metrics, parts.bodies)
