"""The engine: takes requests, makes responses, and gives back what is kept of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from antwort.config import AgentConfig, EngineConfig
from antwort.context import Context
from antwort.engine.events import EventSink
from antwort.engine.history import check_calls, load_history, model_items, resolve_references
from antwort.engine.input import read_input
from antwort.engine.journal import Journal, body_of
from antwort.engine.loop import Loop, Models
from antwort.engine.metrics import TurnMetrics
from antwort.engine.offer import Offers
from antwort.engine.plan import Plan, Planner
from antwort.errors import NotFoundError
from antwort.functions import ToolExecutor
from antwort.observability import Metrics
from antwort.storage.base import JournalEntry, ResponseRecord, ResponseStore
from antwort.wire.requests import CreateResponse
from antwort.wire.responses import ResponseObject

__all__ = ["Engine", "Routed"]

JSON = dict[str, Any]


class Resolved(Protocol):
    """A model that was found."""

    @property
    def model(self) -> str:
        """Its name at the model server."""


class Routed(Models, Protocol):
    """Models that can also tell which one a request means."""

    async def resolve(self, model: str | None) -> Resolved:
        """Find a model; None is the default one. One that cannot be anywhere is a NotFoundError."""


@dataclass(frozen=True, slots=True)
class Engine:
    """Executors, models, a store and limits, put together."""

    executors: Sequence[ToolExecutor]
    models: Routed
    store: ResponseStore
    settings: EngineConfig
    planner: Planner
    metrics: TurnMetrics

    @classmethod
    def build(
        cls,
        *,
        executors: Sequence[ToolExecutor],
        models: Routed,
        store: ResponseStore,
        settings: EngineConfig,
        agents: Mapping[str, AgentConfig],
        metrics: Metrics,
    ) -> "Engine":
        """Put an engine together."""
        planner = Planner(settings, agents, Offers(executors))
        return cls(executors, models, store, settings, planner, TurnMetrics(metrics))

    async def plan(self, create: CreateResponse, ctx: Context, *, show_calls: bool = False) -> Plan:
        """Read a request: decide what can be decided, load what came before, check that it fits together."""
        plan = self.planner.plan(create, ctx)
        plan.show_calls = plan.show_calls or show_calls
        plan.input = read_input(create.input)
        if create.previous_response_id is not None:
            plan.history = await load_history(self.store, ctx.tenant, create.previous_response_id)
        if any(item["type"] == "item_reference" for item in plan.input):
            plan.input = await resolve_references(plan.input, self.store, ctx.tenant)
        if plan.history or len(plan.input) > 1 or (plan.input and plan.input[0]["type"] != "message"):
            check_calls([*model_items(plan.history), *plan.input])
        resolved = await self.models.resolve(plan.response.model or None)
        plan.response.model = plan.response.model or resolved.model
        return plan

    def journal(self, plan: Plan) -> Journal:
        """Return the journal of a new response; it is only kept in memory if the request wants it so."""
        if not plan.stored:
            return Journal(None, _NOWHERE)
        return Journal(self.store, self.record(plan), [JournalEntry("input", item) for item in plan.input])

    def record(self, plan: Plan) -> ResponseRecord:
        """Return what is stored of a new response besides its items."""
        response = plan.response
        return ResponseRecord(
            id=response.id,
            tenant=plan.ctx.tenant,
            created_at=response.created_at,
            status=response.status,
            model=response.model,
            body=body_of(response),
            request=_request_of(plan.create) if response.background else {},
            previous_response_id=response.previous_response_id,
            background=response.background,
            subject=plan.ctx.subject,
        )

    async def respond(self, plan: Plan, sink: EventSink | None = None) -> ResponseObject:
        """Make a response in the foreground; without a sink, errors of the model server are raised."""
        return await self.loop(plan, self.journal(plan), sink).run()

    def loop(
        self, plan: Plan, journal: Journal, sink: EventSink | None, *, sequence: int = 0, resumed: bool = False
    ) -> Loop:
        """Return the loop that makes a response."""
        return Loop(
            plan,
            journal,
            sink,
            models=self.models,
            settings=self.settings,
            metrics=self.metrics,
            sequence=sequence,
            resumed=resumed,
        )

    async def retrieve(self, tenant: str, response_id: str) -> JSON:
        """Return a stored response as clients see it."""
        record = await self.store.get(tenant, response_id)
        if record is None:
            raise not_found(response_id)
        entries = await self.store.journal(tenant, response_id)
        return {**record.body, "output": [e.item for e in entries if e.direction == "output" and e.visible]}


_NOWHERE = ResponseRecord("", "", 0, "", "", {}, {})
"""The record of a response that is not kept; nobody reads or writes it."""


def not_found(response_id: str) -> NotFoundError:
    """Return the error for a response that is not there, or not the tenant's: the two are never told apart."""
    return NotFoundError(f"Response with id '{response_id}' not found.", param="response_id")


def _request_of(create: CreateResponse) -> JSON:
    values: JSON = msgspec.to_builtins(create)
    return {name: value for name, value in values.items() if value is not None}
