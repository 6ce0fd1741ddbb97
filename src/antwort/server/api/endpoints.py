"""The endpoints of the server itself."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

import antwort
from antwort.backends import ModelInfo, ModelRouter
from antwort.backends.findings import State
from antwort.concurrency.single_flight import SingleFlight
from antwort.config import ServerConfig
from antwort.context.context import EITHER, MESSAGES_WRITE, METRICS, RESPONSES_WRITE
from antwort.errors import BadRequestError, NotFoundError
from antwort.functions import FunctionRegistry, Provider
from antwort.lazy_imports import imported_on_use
from antwort.observability import MetricsPage
from antwort.server.api.description import examples
from antwort.server.readiness import ReadinessCheck, ServerState
from antwort.web.routes import AsgiRoute, Route
from antwort.wire.answers import Model, ModelList
from antwort.wire.messages.batches import moment

if TYPE_CHECKING:
    from antwort.server.api.description import openapi
else:  # few ask for it
    openapi = imported_on_use("antwort.server.api.description.openapi")


_YEAR_10000 = 253402300800
"""What servers say beyond it is no time in seconds."""
_HINT = (
    'This server speaks OpenAI\'s Responses API: POST /v1/responses with a body such as {"input": "Hello"}, or give '
    "an OpenAI SDK the base URL of this server with /v1 at its end."
)


class Index(Struct, kw_only=True):
    """What this is, and where to go."""

    name: str
    version: str
    hint: str
    responses: str = "/v1/responses"
    models: str = "/v1/models"
    functions: str = "/v1/functions"
    openapi: str = "/openapi.json"
    ready: str = "/readyz"
    metrics: str = "/metrics"


class Health(Struct, kw_only=True):
    """That the server answers."""

    status: str
    version: str
    model: Annotated[
        str, Meta(description="What answers: the names of the backends, or that it is only the demo model.")
    ]


class BackendHealth(Struct, kw_only=True):
    """What a model server said when it was asked for its models last."""

    name: str
    state: Annotated[
        State,
        Meta(description="Whether it gives its models, and else why not; `not_asked` before the first answer."),
    ]
    models: Annotated[int, Meta(description="How many models it has, as last known.")]
    replicas: Annotated[
        dict[str, Literal["ok", "away"]] | UnsetType,
        Meta(description="Whether each of its replicas answers, if it has some."),
    ] = UNSET


class ServiceHealth(Struct, kw_only=True):
    """What a function depends on, as it was when it was asked last."""

    provider: str
    name: str
    state: Annotated[Literal["ok", "away"], Meta(description="Whether it could be used.")]


class Readiness(Health, kw_only=True):
    """That the server can answer requests, and what it knows of its model servers."""

    backends: Annotated[
        list[BackendHealth],
        Meta(description="The model servers, as they were when asked last. One that is away does not make a 503."),
    ]
    services: Annotated[
        list[ServiceHealth],
        Meta(description="What providers depend on, such as MCP servers; one that is away costs its own functions."),
    ]


class ServerEndpoints:
    """Handlers and their routes."""

    def __init__(
        self,
        config: ServerConfig,
        registry: FunctionRegistry,
        metrics: MetricsPage,
        state: ServerState,
        *,
        readiness: ReadinessCheck,
        models: ModelRouter,
        api: Sequence[Route | AsgiRoute] = (),
    ) -> None:
        self._config = config
        self._registry = registry
        self._metrics = metrics
        self._state = state
        self._readiness = readiness
        self._models = models
        self._api = api
        self._described: tuple[list[tuple[str, Sequence[Route]]], bytes] | None = None
        """The description of the API, and the routes of providers that are in it."""
        self._describing = SingleFlight(self._describe)

    @property
    def public(self) -> frozenset[str]:
        """The paths that need no credentials: where to go, probes and, unless protected, metrics."""
        return frozenset(
            {"/", "/v1", "/healthz", "/readyz"} | (set() if self._config.protect_metrics else {"/metrics"})
        )

    def routes(self) -> list[Route | AsgiRoute]:
        """Return the routes."""
        metrics_scope = METRICS if self._config.protect_metrics else None
        return [
            Route("GET", "/", self.index, examples=examples.INDEX),
            Route("GET", "/v1", self.index, examples=examples.INDEX),
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
            Route("GET", "/openapi.json", self.openapi, returns=dict[str, Any], examples=examples.OPENAPI),
            *self._api,
        ]

    async def index(self) -> Index:
        """Say what this is, and where to go."""
        return Index(name="antwort", version=antwort.__version__, hint=_HINT)

    async def healthz(self) -> Health:
        """Tell that the process is alive."""
        return Health(status="ok", version=antwort.__version__, model=self._state.model)

    async def readyz(self) -> Readiness:
        """Tell whether the server can answer requests: it has started, is not stopping, and its store answers."""
        await self._readiness.check()
        backends = [
            BackendHealth(
                name=finding.backend,
                state=finding.state,
                models=len(finding.models),
                replicas=self._replicas_of(finding.backend),
            )
            for finding in self._models.last_findings()
        ]
        services = [
            ServiceHealth(provider=known.name, name=name, state="ok" if is_there else "away")
            for known in self._registry.registrations()
            if known.in_service and isinstance(known.provider, Provider) and known.started
            for name, is_there in known.provider.service_health.items()
        ]
        return Readiness(
            status="ready",
            version=antwort.__version__,
            model=self._state.model,
            backends=backends,
            services=services,
        )

    def _replicas_of(self, backend: str) -> dict[str, Literal["ok", "away"]] | UnsetType:
        replicas = self._models.guards().get(backend, ())
        if len(replicas) < 2:
            return UNSET
        return {replica.name: "away" if replica.breaker.is_open else "ok" for replica in replicas}

    async def metrics(self, request: Request) -> Response:
        """Expose the metrics for Prometheus."""
        body, content_type = await self._metrics.render(request.headers.get("accept"))
        return Response(body, headers={"content-type": content_type})

    async def openapi(self) -> Response:
        """Describe every endpoint, those of providers included, as OpenAPI 3.1."""
        if self._described is None or self._described[0] != self._provided():
            await self._describing.outcome()
        assert self._described is not None  # noqa: S101 - it was just made
        return Response(self._described[1], media_type="application/json")

    def _provided(self) -> list[tuple[str, Sequence[Route]]]:
        """Return the routes of the providers in service."""
        return [(known.name, known.routes) for known in self._registry.registrations() if known.in_service]

    async def _describe(self) -> None:
        """Make the description, on a thread: there is much of it. It is the same for everybody, and kept."""
        provided = self._provided()
        groups: list[tuple[str, Sequence[Route | AsgiRoute]]] = [(openapi.OWN, self.routes()), *provided]
        self._described = provided, await asyncio.to_thread(_written_description, groups, self.public)


def _written_description(groups: Sequence[tuple[str, Sequence[Route | AsgiRoute]]], public: frozenset[str]) -> bytes:
    return msgspec.json.encode(openapi.openapi(groups, public=public))


# --- models -----------------------------------------------------------------------------------------------------------


class ModelEndpoints:
    """The endpoints of models."""

    def __init__(self, router: ModelRouter) -> None:
        self._router = router

    def routes(self) -> list[Route]:
        """Return the routes."""
        scope = f"{RESPONSES_WRITE}{EITHER}{MESSAGES_WRITE}"
        return [
            Route("GET", "/v1/models", self.list, scope=scope, examples=examples.MODELS),
            Route("GET", "/v1/models/{model:path}", self.retrieve, scope=scope, examples=examples.MODEL),
        ]

    async def list(
        self,
        *,
        limit: Annotated[int | None, Field(ge=1, le=1000, description="How many to return; all if not given.")] = None,
        after_id: Annotated[str | None, Field(description="The page begins with what follows this model.")] = None,
        before_id: Annotated[str | None, Field(description="The page ends before this model.")] = None,
    ) -> ModelList:
        """List the models that can be asked, aliases included.

        Each is told in the words of OpenAI and of Anthropic, whose SDKs ask in pages.
        """
        return _page([*await self._router.models()], limit, after_id, before_id)

    async def retrieve(self, model: str) -> Model:
        """Return one model.

        Args:
            model: The id of the model; it may have slashes.
        """
        info = await self._router.find(model)
        if info is not None:
            return _model(info)
        raise NotFoundError(f"The model '{model}' does not exist.", param="model", code="model_not_found")


def _model(info: ModelInfo) -> Model:
    return Model(
        id=info.id,
        created=info.created,
        owned_by=info.owned_by,
        display_name=info.id,
        created_at=moment(info.created if 0 <= info.created < _YEAR_10000 else 0),
        max_input_tokens=info.context_window,
    )


def _page(known: list[ModelInfo], limit: int | None, after: str | None, before: str | None) -> ModelList:
    """Return what is behind one model or before another; what is before it is counted from there."""
    places = {info.id: place for place, info in enumerate(known)}
    for param, cursor in (("after_id", after), ("before_id", before)):
        if cursor is not None and cursor not in places:
            raise BadRequestError(
                f"There is no model '{cursor}' to list from; list again without '{param}'.",
                param=param,
                code="invalid_value",
            )
    found = known[0 if after is None else places[after] + 1 : None if before is None else places[before]]
    page = found if limit is None else found[-limit:] if before is not None and after is None else found[:limit]
    first, last = (page[0].id, page[-1].id) if page else (None, None)
    return ModelList(data=[*map(_model, page)], has_more=len(page) < len(found), first_id=first, last_id=last)
