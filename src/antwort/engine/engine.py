"""The engine: takes requests, makes responses, and gives back what is kept of them."""

import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from antwort.backends import ModelRouter, estimate_tokens
from antwort.concurrency.large_work import LargeWork, Pace, is_large
from antwort.concurrency.slots import Queues
from antwort.config import AgentConfig, EngineConfig, PromptConfig
from antwort.context import Context, Progress
from antwort.context.values import Values
from antwort.engine.calls.admission import Totals
from antwort.engine.calls.direct_call import DirectCall
from antwort.engine.calls.items import is_own_call, shown_item
from antwort.engine.journal import Journal
from antwort.engine.output.events import REASONING_NAMES, EventSink
from antwort.engine.plan import AS_USUAL, Plan, Shown
from antwort.engine.planning.checked_input import InputChecks, refused_input
from antwort.engine.planning.input_files import CheckUrl, InputFiles
from antwort.engine.planning.planner import Planner
from antwort.engine.planning.prompts import PromptedPlanner
from antwort.engine.sealing import Sealer
from antwort.engine.tools.opened_tools import Opening, sealed_tools
from antwort.engine.tools.toolsets import ToolsetBuilder
from antwort.engine.turns.compaction import Compactor
from antwort.engine.turns.loop import Loop
from antwort.engine.turns.model_turn import model_request
from antwort.engine.turns.parts import NOTHING, Earlier, EngineParts
from antwort.engine.turns.telemetry import TurnMetrics
from antwort.engine.window import Recall, compaction_item
from antwort.errors import BadRequestError, NotFoundError
from antwort.functions import ToolExecutor
from antwort.functions.absent import NONE_ABSENT, AbsentProviders
from antwort.functions.checking import CheckBook
from antwort.observability import Metrics, Tracer
from antwort.storage.base import OWN_RECORDS, JournalEntry, ResponseRecord
from antwort.storage.prompts import Prompts
from antwort.storage.sql.store import Store
from antwort.types import JSON
from antwort.wire.ids import new_id
from antwort.wire.requests import CompactRequest, CreateResponse
from antwort.wire.responses import CompactedResponse, ResponseObject


class Engine(EngineParts, frozen=True, kw_only=True):
    """Executors, models, a store and limits, put together."""

    planner: Planner
    prompts: Prompts
    check_url: CheckUrl | None = None
    """Asked about each URL that a model server would fetch; None lets all pass."""

    @classmethod
    def build(
        cls,
        *,
        executors: Sequence[ToolExecutor],
        models: ModelRouter,
        store: Store,
        settings: EngineConfig,
        agents: Mapping[str, AgentConfig],
        metrics: Metrics,
        tracer: Tracer,
        sealer: Sealer,
        check_url: CheckUrl | None = None,
        values: Values | None = None,
        spill: int | None = None,
        absent: AbsentProviders = NONE_ABSENT,
        input_files: Callable[[LargeWork], InputFiles] | None = None,
        queues: Queues | None = None,
        prompts: Mapping[str, PromptConfig] | None = None,
        checks: CheckBook | None = None,
    ) -> "Engine":
        """Put an engine together."""
        work = LargeWork()
        planner = Planner(
            settings,
            agents,
            ToolsetBuilder(
                executors,
                ignores_unavailable=settings.unavailable_tools == "ignore",
                absent=absent,
                defer_above=settings.tool_search.above,
                most_found=settings.tool_search.results,
            ),
            models=models,
            store=store,
            sealer=sealer,
            large_work=work,
            check_url=check_url,
            values=values,
            input_files=None if input_files is None else input_files(work),
        )
        return cls(
            models,
            store,
            settings,
            TurnMetrics(metrics),
            tracer,
            sealer,
            work,
            Pace((queues or Queues()).named("agents", bounded=False)),
            settings.parallel_calls,
            settings.thoughts_as_summary,
            REASONING_NAMES[settings.reasoning_events],
            settings.max_answer_length,
            values,
            spill,
            checks or CheckBook(),
            planner=planner,
            prompts=Prompts(
                store.records(OWN_RECORDS), {name: prompt.text for name, prompt in (prompts or {}).items()}
            ),
            check_url=check_url,
        )

    def plan(
        self,
        create: CreateResponse,
        ctx: Context,
        *,
        shown: Shown = AS_USUAL,
        recall: Recall | None = None,
        opening: Opening | None = None,
    ) -> Coroutine[Any, Any, Plan]:
        """Read a request, as `Planner.plan` does, with the prompt that it names or continues, and with its checks."""
        if self.checks.current.input and (create.input or create.prompt):
            return self._plan_checked(create, ctx, shown, recall, opening)
        return self._plan(create, ctx, shown, recall, opening)

    async def _plan_checked(
        self, create: CreateResponse, ctx: Context, shown: Shown, recall: Recall | None, opening: Opening | None
    ) -> Plan:
        found = await self.input_checks.request(create, ctx)
        plan = await self._plan(found.create, found.ctx, shown, recall, opening)
        return plan if found.refused is None else msgspec.structs.replace(plan, refused=found.refused)

    @property
    def input_checks(self) -> InputChecks:
        """What looks at what requests bring."""
        return InputChecks(self.planner, self.checks.current.input)

    async def checked(self, create: CreateResponse, ctx: Context) -> CreateResponse:
        """Return a request that makes no response as checks let it through; BadRequestError if they do not."""
        if not self.checks.current.input or not create.input:
            return create
        found = await self.input_checks.request(create, ctx)
        if found.refused is not None:
            raise refused_input(found.refused)
        return found.create

    async def checked_items(self, items: Sequence[JSON], ctx: Context) -> Sequence[JSON]:
        """Return items of a conversation as checks let them through; BadRequestError if they do not."""
        return await self.input_checks.items(items, ctx) if self.checks.current.input else items

    def _plan(
        self, create: CreateResponse, ctx: Context, shown: Shown, recall: Recall | None, opening: Opening | None
    ) -> Coroutine[Any, Any, Plan]:
        if create.prompt is None and (create.previous_response_id is None or create.instructions is not None):
            return self.planner.plan(create, ctx, shown=shown, recall=recall, opening=opening)
        prompted = PromptedPlanner(self.planner, self.prompts, self.store)
        return prompted.plan(create, ctx, shown=shown, recall=recall, opening=opening)

    def journal(self, plan: Plan, *, remembered: bool = True) -> Journal:
        """Return the journal of a new response; it is only kept in memory if the request wants it so.

        `remembered` tells whether somebody goes on from it even then.
        """
        entries = [*plan.input]
        if plan.carried:
            entries[:0] = [msgspec.structs.replace(old, direction="input") for old in plan.carried]
        given = len(entries)
        if plan.response.is_kept:
            return Journal(self.store, self.record(plan), entries, given)
        if plan.conversation is None:
            return Journal(None, _NOWHERE, entries, given, is_read=remembered)
        return Journal(None, self.record(plan), entries, given, _conversations=self.store.conversations)

    def entries_so_far(self, plan: Plan, journal: Journal) -> list[JournalEntry]:
        """Return all that a response has read and said, for whoever continues it without the store."""
        return [*plan.history, *(entry for entry in journal.entries if entry.direction != "nested")]

    def record(self, plan: Plan) -> ResponseRecord:
        """Return what is stored of a new response besides its items."""
        response, parent = plan.response, plan.parent
        return ResponseRecord(
            response.id,
            plan.ctx.tenant,
            created_at=response.created_at,
            status=response.status,
            model=response.model,
            body=response,
            request=self._request_of(plan) if response.background else {},
            previous_response_id=response.previous_response_id,
            background=response.background,
            subject=plan.ctx.subject,
            conversation_id=plan.conversation,
            run_id=None if plan.ctx.run_id == response.id else plan.ctx.run_id,
            parent_id=None if parent is None else parent.response_id,
            parent_call_id=None if parent is None else parent.call_id,
            child_index=None if parent is None else parent.index,
            unstored_at=None if response.store else response.created_at,
        )

    def _request_of(self, plan: Plan) -> JSON:
        """Return a request as it is stored, for whoever goes on with it."""
        create, tools = plan.create, plan.create.tools
        if tools:
            tools = sealed_tools(tools, plan.toolset, self.sealer, plan.ctx.tenant)
            create = msgspec.structs.replace(create, tools=tools)
        return _request_of(create)

    def call(self, name: str, ctx: Context, emit: Callable[[Progress], None]) -> DirectCall | None:
        """Return a call that a client makes itself; None if there is no such function for it."""
        planned = self.planner.plan_call(name, ctx)
        return None if planned is None else DirectCall(*planned, emit, self.checks.current)

    def respond(self, plan: Plan, sink: EventSink | None = None) -> Coroutine[Any, Any, ResponseObject]:
        """Make a response in the foreground; without a sink, errors of the model server are raised."""
        return Loop(self, plan, self.journal(plan, remembered=False), sink, NOTHING).run()

    def loop(self, plan: Plan, journal: Journal, sink: EventSink | None, earlier: Earlier = NOTHING) -> Loop:
        """Return the loop that makes a response, or goes on with what there is of it."""
        return Loop(self, plan, journal, sink, earlier)

    async def compact(self, request: CompactRequest, ctx: Context) -> CompactedResponse:
        """Make a window shorter: what comes back is to be sent in its place."""
        create = CreateResponse(
            model=request.model,
            input=request.input,
            previous_response_id=request.previous_response_id,
            instructions=request.instructions,
            store=False,
        )
        plan = await self.plan(create, ctx)
        if plan.refused is not None:
            raise refused_input(plan.refused)
        compacted = await Compactor(self.models, self.metrics, self.tracer, self.large_work).compact(
            plan.window,
            self.planner.seals(plan.ctx, plan.response),
            model=plan.response.model,
            tenant=ctx.tenant,
            instructions=plan.instructions,
        )
        return CompactedResponse(
            id=new_id("resp"),
            created_at=int(time.time()),
            output=[compaction_item(compacted.encrypted_content)],
            usage=compacted.usage,
        )

    async def input_tokens(self, create: CreateResponse, ctx: Context) -> int:
        """Count what the model would read: by the model server's tokenizer, or by our estimate if it has none."""
        plan = await self.plan(create, ctx)
        request = model_request(plan, plan.window, plan.choice, Totals())
        counted = await self.models.count_tokens(request)
        if counted is not None:
            return counted
        return await self.large_work.run_if(is_large(request.items), estimate_tokens, request)

    async def retrieve(
        self, tenant: str, response_id: str, include: Iterable[str] | None = None, *, calls: bool = False
    ) -> JSON:
        """Return a stored response as clients see it, with what they ask for besides what the request has.

        With `calls`, that is also the calls of functions that have no items of their own.
        """
        record = await self.store.get(tenant, response_id)
        if record is None:
            raise not_found(response_id)
        entries = await self.store.journal(tenant, response_id)
        said = (entry for entry in entries if entry.direction == "output")
        return shown(record, [shown_item(e, include) for e in said if e.visible or (calls and is_own_call(e))])

    async def root_of(self, tenant: str, response_id: str) -> ResponseRecord:
        """Return the response of the root agent of a run; the id may be that of any agent's below it."""
        record = await self.store.get(tenant, response_id)
        while record is not None and record.parent_id is not None:
            record = await self.store.get(tenant, record.parent_id)
        if record is None:
            raise not_found(response_id)
        return record


_NOWHERE = ResponseRecord("", "", 0, "", "", {}, {})
"""The record of a response that is not kept; nobody reads or writes it."""


def shown(record: ResponseRecord, output: list[JSON]) -> JSON:
    """Return a stored response as clients see it."""
    return {**record.json, "output": output}


def not_found(response_id: str) -> NotFoundError:
    """Return the error for a response that is not there, or not the tenant's: the two are never told apart."""
    return NotFoundError(f"Response with id '{response_id}' not found.")


def _request_of(create: CreateResponse) -> JSON:
    try:
        values: JSON = msgspec.to_builtins(create)
    except RecursionError:
        raise BadRequestError("The request is nested too deeply.") from None
    return {name: value for name, value in values.items() if value is not None}
