"""`/v1/runs`: responses as work that goes on, with their agents and calls, and without what was said."""

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct
from pydantic import Field

from antwort.context import Context
from antwort.context.agents import AgentInfo
from antwort.context.context import ADMIN, RESPONSES_READ, RESPONSES_WRITE, RUNS_READ
from antwort.engine.engine import Engine, not_found
from antwort.engine.tools.opened_tools import unsealed_request
from antwort.errors import ConflictError
from antwort.observability import AuditLog
from antwort.runs.local import LocalRuns
from antwort.server.api.description import examples
from antwort.storage.base import ACTIVE, ENDED_AT, FAILED_CALLS, JournalEntry, ResponseRecord, RunFilter
from antwort.storage.call_record import CallOutcome, CallRecord
from antwort.types import JSON
from antwort.web.parameters import After, Before, Limit, Order, unknown_cursor
from antwort.web.routes import Route
from antwort.wire.requests import CreateResponse
from antwort.wire.responses import ResponseObject, Usage, stored_response

RunStatus = Literal["queued", "in_progress", "completed", "failed", "incomplete", "cancelled"]
Name = Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[^\x00]*$")]
Tenant = Annotated[str, Field(min_length=1, max_length=256, description="A tenant.")]
Moment = Annotated[int, Field(ge=0, le=2**53)]
RETRY_OF = "retry_of"
"""The key of metadata under which a response has the id of the one that it tries again."""
_MOST_METADATA = 16


class RunInfo(Struct, kw_only=True):
    """A run: a response and all that it began, without what was said in it."""

    id: Annotated[str, Meta(description="The id of its response.")]
    object: Literal["run"] = "run"
    created_at: int
    completed_at: int | None
    status: RunStatus
    waiting: Annotated[bool, Meta(description="Whether it waits for an answer, and nobody works on it.")]
    background: bool
    model: str
    agent: Annotated[str | None, Meta(description="The agent of the configuration that it is, if it is one.")]
    usage: Annotated[Usage | None, Meta(description="What its response has used, agents below it not counted.")]
    error: JSON | None
    incomplete_details: JSON | None
    previous_response_id: str | None
    ended_at: Annotated[int | None, Meta(description="When it was over, in whichever way, if that is known.")]
    failed_calls: Annotated[int, Meta(description="Its calls that have failed, agents below it not counted.")]
    failed_agents: Annotated[int, Meta(description="Agents below it without a whole answer, or with failed calls.")]
    retry_of: Annotated[str | None, Meta(description="The response that it tries again, if it does.")]


class RunList(Struct, kw_only=True):
    """A page of runs."""

    object: Literal["list"] = "list"
    data: Sequence[RunInfo]
    first_id: str | None
    last_id: str | None
    has_more: bool


class RunCall(Struct, kw_only=True):
    """A call of a run that the server executes, without its arguments and its result."""

    response_id: Annotated[str, Meta(description="The response of the agent that makes it.")]
    call_id: str
    name: str
    turn: int
    parent: Annotated[str | None, Meta(description="The call that makes it, if a call does, such as a program's.")]
    state: Annotated[
        CallOutcome,
        Meta(description="How far it has come; `interrupted` if nobody knows what came of it."),
    ]
    status: Annotated[str | None, Meta(description="What came of it, such as `success` or `error`; null before that.")]
    began_at: Annotated[float | None, Meta(description="Seconds since 1970.")]
    seconds: Annotated[float | None, Meta(description="How long it took, waiting included; null if it is not over.")]
    waiting_since: int | None
    question_id: Annotated[str | None, Meta(description="The question that it waits for, if it does.")]


class RunDetails(RunInfo, kw_only=True):
    """A run with its agents and the calls that they have made."""

    agents: Annotated[Sequence[AgentInfo], Meta(description="Parents before their children; the first is the root.")]
    calls: Annotated[Sequence[RunCall], Meta(description="In the order of the agents, and of each as it made them.")]


class RunEndpoints:
    """The endpoints of runs."""

    def __init__(self, engine: Engine, runs: LocalRuns, audit: AuditLog) -> None:
        self._engine = engine
        self._audit = audit
        self._runs = runs

    def routes(self) -> list[Route]:
        """Return the routes."""
        one = "/v1/runs/{run_id}"
        return [
            Route("GET", "/v1/runs", self.list, scope=RUNS_READ, examples=examples.LIST_RUNS),
            Route("GET", one, self.retrieve, scope=RUNS_READ, examples=examples.RETRIEVE_RUN),
            Route(
                "POST",
                f"{one}/retry",
                self.retry,
                # What was asked before is read again, and told again by the new response.
                scope=f"{RESPONSES_READ} {RESPONSES_WRITE}",
                errors=[ConflictError],
                examples=examples.RETRY_RUN,
            ),
        ]

    async def list(
        self,
        ctx: Context,
        *,
        status: RunStatus | None = None,
        background: bool | None = None,
        failed: bool | None = None,
        agent: Name | None = None,
        function: Name | None = None,
        created_after: Moment | None = None,
        created_before: Moment | None = None,
        limit: Limit = 20,
        after: After = None,
        before: Before = None,
        order: Order = "desc",
        tenant: Tenant | None = None,
    ) -> RunList:
        """List the responses that are stored, but for those of sub-agents, the newest first.

        Args:
            status: Only those with this status.
            background: Only those in the background, or only the others.
            failed: Only those without a whole answer or with failed calls, or only the others.
            agent: Only those of this agent of the configuration.
            function: Only those that have called this function, themselves or an agent below them.
            created_after: Only those that began after this moment, in seconds since 1970.
            created_before: Only those that began before this moment.
            tenant: Those of another tenant; for who has the scope `admin`, and told to the audit log.
        """
        whose = self._tenant(ctx, tenant, "runs.listed")
        wanted = RunFilter(
            status=status,
            background=background,
            failed=failed,
            agent=agent,
            function=function,
            created_after=created_after,
            created_before=created_before,
        )
        with unknown_cursor():
            page = await self._engine.store.list_runs(
                whose, wanted=wanted, limit=limit, after=after, before=before, order=order
            )
        found = [RunInfo(**_info(run.record, run.failed_agents)) for run in page.data]
        first, last = (found[0].id, found[-1].id) if found else (None, None)
        return RunList(data=found, first_id=first, last_id=last, has_more=page.has_more)

    async def retrieve(self, ctx: Context, run_id: str, *, tenant: Tenant | None = None) -> RunDetails:
        """Return a run with its agents and calls; the id of a sub-agent's response stands for the run that has it.

        Args:
            tenant: Whose it is, if it is another tenant's; for who has the scope `admin`, and told to the audit log.
        """
        whose = self._tenant(ctx, tenant, "run.read", run_id=run_id)
        root = await self._engine.root_of(whose, run_id)
        agents = await self._runs.agents.tree(whose, root.id)
        if agents is None:
            raise not_found(run_id)
        calls: list[RunCall] = []
        for agent in agents:
            entries = await self._engine.store.journal(whose, agent.response_id)
            calls += [
                _call(agent.response_id, entry.call) for entry in entries if entry.call is not None and _is_made(entry)
            ]
        failed = {call.response_id for call in calls if _has_failed(call)}
        failed |= {agent.response_id for agent in agents if agent.status in {"failed", "incomplete"}}
        return RunDetails(**_info(root, len(failed - {root.id})), agents=agents, calls=calls)

    def _tenant(self, ctx: Context, tenant: str | None, event: str, **fields: str) -> str:
        """Return whose runs are asked for; PermissionDeniedError if these are not the caller's to see."""
        if tenant is None or tenant == ctx.tenant:
            return ctx.tenant
        ctx.require(ADMIN, param="tenant", purpose="to see runs of other tenants")
        caller = {"tenant": ctx.tenant, "subject": ctx.subject, "request_id": ctx.request_id}
        self._audit.record(event, **caller, of_tenant=tenant, **fields)
        return tenant

    async def retry(self, ctx: Context, run_id: str) -> ResponseObject:
        """Make what a background response was to do once more: a new one, of the same request.

        It begins from the beginning: what functions have done for the other one they may do again. Its metadata has the
        id of the other one as `retry_of`, if there is room for one more pair.
        """
        record = await self._engine.store.get(ctx.tenant, run_id)
        if record is None:
            raise not_found(run_id)
        create = self._request(record)
        plan = await self._engine.plan(create, ctx)
        if (prompt := record.json.get("prompt")) is not None:  # its text is in the request that is kept
            plan.response.prompt = prompt
        if self._runs.limits.counts_bytes:
            await self._runs.limits.check_room(ctx.tenant)
        accepted = await self._runs.accept(plan)
        return stored_response(msgspec.json.decode(accepted))

    def _request(self, record: ResponseRecord) -> CreateResponse:
        """Return the request of a response that can be tried again; ConflictError if it cannot."""
        if record.parent_id is not None:
            raise ConflictError("This is the response of a sub-agent: retry the response that it works for.")
        if not record.background:
            raise ConflictError("Only background responses can be retried: the request of another one is not kept.")
        if record.status in ACTIVE:
            raise ConflictError(f"The response is {record.status}: cancel it first.")
        if record.status == "completed":
            raise ConflictError("The response is completed: there is nothing to retry.")
        create = unsealed_request(record.request, self._engine.sealer, record.tenant)
        metadata = {**(create.metadata or {}), RETRY_OF: record.id}
        fits = len(metadata) <= _MOST_METADATA
        return msgspec.structs.replace(create, stream=None, metadata=metadata if fits else create.metadata)


def _info(record: ResponseRecord, failed_agents: int) -> JSON:
    """Return what is told of a run."""
    body = record.json
    return {
        "id": record.id,
        "created_at": record.created_at,
        "completed_at": body.get("completed_at"),
        "ended_at": body.get("completed_at") or record.extra.get(ENDED_AT),
        "status": record.status,
        "waiting": record.is_waiting,
        "background": record.background,
        "model": record.model,
        "agent": body.get("agent"),
        "usage": body.get("usage"),
        "error": body.get("error"),
        "incomplete_details": body.get("incomplete_details"),
        "previous_response_id": record.previous_response_id,
        "failed_calls": record.extra.get(FAILED_CALLS, 0),
        "failed_agents": failed_agents,
        "retry_of": (body.get("metadata") or {}).get(RETRY_OF),
    }


def _is_made(entry: JournalEntry) -> bool:
    """Tell whether an entry is a call that the response has made itself."""
    return entry.call is not None and entry.direction != "input" and not entry.call.said_before


def _has_failed(call: RunCall) -> bool:
    return call.status is not None and call.status != "success"


def _call(response_id: str, call: CallRecord) -> RunCall:
    return RunCall(
        response_id=response_id,
        call_id=call.call_id,
        name=call.name,
        turn=call.turn,
        parent=call.parent,
        state=call.state.value,
        status=call.status,
        began_at=call.began_at,
        seconds=call.seconds,
        waiting_since=call.waiting_since if call.is_waiting else None,
        question_id=call.question if call.is_waiting else None,
    )
