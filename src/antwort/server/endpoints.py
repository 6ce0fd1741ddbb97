"""The endpoints of the server itself."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

import antwort
from antwort.config import ServerConfig
from antwort.functions import FunctionRegistry
from antwort.lazy_imports import imported_on_use
from antwort.observability import MetricsPage
from antwort.scopes import ADMIN, FUNCTIONS_CALL, METRICS
from antwort.server.description import examples
from antwort.server.readiness import Readiness, ServerState
from antwort.web.routes import AsgiRoute, Route

if TYPE_CHECKING:
    from antwort.server.description import openapi
else:  # few ask for it
    openapi = imported_on_use("antwort.server.description.openapi")


class Health(Struct, kw_only=True):
    """That the server answers."""

    status: str
    version: str
    model: Annotated[
        str, Meta(description="What answers: the names of the backends, or that it is only the demo model.")
    ]


class FunctionInfo(Struct, kw_only=True):
    """A function in service."""

    object: Literal["function"] = "function"
    name: str
    description: str
    provider: str
    scope: str
    parameters: dict[str, Any]
    tool_types: list[str]


class FunctionList(Struct, kw_only=True):
    """The functions in service, in the order of registration."""

    object: Literal["list"] = "list"
    data: list[FunctionInfo]


class ProviderInfo(Struct, kw_only=True):
    """A provider and what it brings."""

    object: Literal["provider"] = "provider"
    name: str
    enabled: bool
    offer: str
    functions: list[str]
    routes: list[str]


class ProviderList(Struct, kw_only=True):
    """The providers, in the order of registration."""

    object: Literal["list"] = "list"
    data: list[ProviderInfo]


class ServerEndpoints:
    """Handlers and their routes."""

    def __init__(
        self,
        config: ServerConfig,
        registry: FunctionRegistry,
        metrics: MetricsPage,
        state: ServerState,
        *,
        readiness: Readiness,
        api: Sequence[Route | AsgiRoute] = (),
    ) -> None:
        self._config = config
        self._registry = registry
        self._metrics = metrics
        self._state = state
        self._readiness = readiness
        self._api = api

    @property
    def public(self) -> frozenset[str]:
        """The paths that need no credentials: probes and, unless protected, metrics."""
        return frozenset({"/healthz", "/readyz"} | (set() if self._config.protect_metrics else {"/metrics"}))

    def routes(self) -> list[Route | AsgiRoute]:
        """Return the routes."""
        metrics_scope = METRICS if self._config.protect_metrics else None
        return [
            Route("GET", "/healthz", self.healthz, examples=examples.HEALTH),
            Route("GET", "/readyz", self.readyz, examples=examples.READY),
            Route(
                "GET",
                "/metrics",
                self.metrics,
                scope=metrics_scope,
                media_type="text/plain",
                examples=examples.METRICS,
            ),
            Route("GET", "/openapi.json", self.openapi, examples=examples.OPENAPI),
            Route("GET", "/v1/functions", self.list_functions, scope=FUNCTIONS_CALL, examples=examples.FUNCTIONS),
            Route("GET", "/v1/providers", self.list_providers, scope=ADMIN, examples=examples.PROVIDERS),
            *self._api,
        ]

    async def healthz(self) -> Health:
        """Tell that the process is alive."""
        return Health(status="ok", version=antwort.__version__, model=self._state.model)

    async def readyz(self) -> Health:
        """Tell whether the server can answer requests: it has started, is not stopping, and its store answers."""
        await self._readiness.check()
        return Health(status="ready", version=antwort.__version__, model=self._state.model)

    async def metrics(self, request: Request) -> Response:
        """Expose the metrics for Prometheus."""
        body, content_type = await self._metrics.render(request.headers.get("accept"))
        return Response(body, headers={"content-type": content_type})

    async def openapi(self) -> dict[str, Any]:
        """Describe every endpoint, those of providers included, as OpenAPI 3.1."""
        groups: list[tuple[str, Sequence[Route | AsgiRoute]]] = [(openapi.OWN, self.routes())]
        groups += [(r.name, r.routes) for r in self._registry.registrations() if r.enabled]
        return openapi.openapi(groups, public=self.public)

    async def list_functions(self) -> FunctionList:
        """List the functions in service."""
        data = [
            FunctionInfo(
                name=entry.spec.name,
                description=entry.spec.description,
                provider=entry.provider.name,
                scope=entry.spec.scope.value,
                parameters=dict(entry.spec.parameters),
                tool_types=list(entry.spec.hosted.types) if entry.spec.hosted else [],
            )
            for entry in self._registry.entries()
            if entry.offered
        ]
        return FunctionList(data=data)

    async def list_providers(self) -> ProviderList:
        """List the providers."""
        data = [
            ProviderInfo(
                name=registration.name,
                enabled=registration.enabled,
                offer=registration.offer,
                functions=[entry.spec.name for entry in registration.entries if entry.offered],
                routes=[str(route) for route in registration.routes if registration.enabled],
            )
            for registration in self._registry.registrations()
        ]
        return ProviderList(data=data)
