"""The sub-agents that are in memory: what they do, whose they are, and who is to end them with their run."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import msgspec
from msgspec.structs import replace

from antwort.concurrency.contained_tasks import end_tasks
from antwort.context import Context
from antwort.context.agents import AgentInfo, AgentResult, AgentTask, Pause, RunBudget
from antwort.engine.engine import Engine, shown
from antwort.engine.journal import Journal
from antwort.engine.plan import Plan, second_try
from antwort.engine.turns.ending import as_told
from antwort.engine.turns.loop import Loop
from antwort.errors import APIError, FunctionError, did_you_mean
from antwort.runs.questions import CANCEL_GRACE
from antwort.storage.base import ACTIVE, FencedError, JournalEntry, ResponseRecord
from antwort.wire.responses import ResponseObject, Usage, stored_response

logger = logging.getLogger(__name__)


def result_of(response: ResponseObject, agent_id: str, entries: Sequence[JournalEntry], task: AgentTask) -> AgentResult:
    """Return what came of an agent, by its response, and by its journal if it has given a variable back.

    The result of a task that has a schema is only what was said last.
    """
    reason = None
    if response.error is not None:
        reason = response.error.message
    elif response.incomplete_details is not None:
        reason = response.incomplete_details.reason
    status = response.status
    given = [entry.call for entry in entries if entry.call is not None and entry.call.answer is not None]
    reference = given[-1].returned if given else None
    text = response.output_text if task.output_schema is None else response.last_text
    if not text and reason is None:
        text = response.refusal  # whoever has asked is to know why there is no answer
    return AgentResult(agent_id, response.id, status, text, reason, response.usage, reference)


def task_of(record: ResponseRecord) -> AgentTask:
    """Return what the agent of a response is to do."""
    return msgspec.convert(record.extra["task"], AgentTask)


def agent_id_of(record: ResponseRecord) -> str:
    """Return which agent a response belongs to."""
    return str(record.extra.get("agent_id") or record.id)


def last_of_each(records: Iterable[ResponseRecord], owner: str | None) -> list[ResponseRecord]:
    """Return the last response of each agent that another one has started, of those in a run, in their order."""
    last = {
        agent_id_of(record): record
        for record in records
        if record.parent_id is not None and record.extra.get("owner") == owner
    }
    return list(last.values())


def stored_info(record: ResponseRecord) -> AgentInfo:
    """Return an agent by what is stored of it."""
    body = record.json
    used = record.extra.get("totals", {}).get("usage") or body.get("usage")
    error, cut = body.get("error"), body.get("incomplete_details")
    return AgentInfo(
        id=agent_id_of(record),
        response_id=record.id,
        parent_id=record.parent_id,
        call_id=record.parent_call_id,
        index=_number(record.child_index),
        name=str(record.extra.get("agent") or body.get("agent") or "root"),
        depth=int(record.extra.get("depth", 0)),
        status=body["status"],
        model=record.model,
        created_at=record.created_at,
        completed_at=body.get("completed_at"),
        usage=None if used is None else msgspec.convert(used, Usage),
        reason=error["message"] if error else cut["reason"] if cut else None,
    )


def live_info(loop: Loop) -> AgentInfo:
    """Return an agent whose response is being made, or was made here."""
    plan, response = loop.plan, loop.response
    parent = plan.parent
    return AgentInfo(
        id=plan.ctx.agent_id or response.id,
        response_id=response.id,
        parent_id=None if parent is None else parent.response_id,
        call_id=None if parent is None else parent.call_id,
        index=None if parent is None else _number(parent.index),
        name=plan.ctx.agent.name,
        depth=plan.ctx.agent.depth,
        status=response.status,
        model=response.model,
        created_at=response.created_at,
        completed_at=response.completed_at,
        usage=response.usage,
    )


def _number(index: int | None) -> int | None:
    """Return which of the agents of a call one is, whichever try it is."""
    return second_try(index) if index is not None and index < 0 else index


def unknown_agent(agent_id: str, known: Iterable[str]) -> FunctionError:
    """Return the error for an agent that is not there, or that another one has started."""
    return FunctionError(
        f"There is no agent '{agent_id[:64]}' in this run that is yours{did_you_mean(agent_id, [*known]) or '.'}"
    )


class StoredAgents:
    """The responses of sub-agents in the store."""

    def __init__(self, engine: Engine) -> None:
        self._store = engine.store
        self._metrics = engine.metrics

    async def begun(self, ctx: Context) -> dict[int, ResponseRecord]:
        """Return what a call that goes on has begun before, by index."""
        if not ctx.attached or ctx.response_id is None or ctx.call_id is None:
            return {}
        records = await self._store.children(ctx.tenant, ctx.response_id, ctx.call_id)
        return {record.child_index: record for record in records if record.child_index is not None}

    async def last(self, ctx: Context, agent_id: str) -> ResponseRecord:
        """Return the last response of an agent that this agent has started; a FunctionError if there is none."""
        records = last_of_each(await self._store.of_run(ctx.tenant, ctx.run_id or ""), ctx.agent_id)
        for record in records:
            if agent_id_of(record) == agent_id:
                return record
        raise unknown_agent(agent_id, map(agent_id_of, records))

    async def children(self, ctx: Context) -> list[AgentInfo]:
        """Return the agents that this agent has started."""
        records = await self._store.of_run(ctx.tenant, ctx.run_id or "")
        return [stored_info(record) for record in last_of_each(records, ctx.agent_id)]

    async def tree(self, tenant: str, response_id: str) -> list[AgentInfo] | None:
        """Return a response's agent and all below it, parents before their children; None if there is no response."""
        record = await self._store.get(tenant, response_id)
        if record is None:
            return None
        return [stored_info(record), *map(stored_info, await self._store.descendants(tenant, response_id))]

    async def result(self, record: ResponseRecord) -> AgentResult:
        """Return what came of an agent."""
        entries = await self._store.journal(record.tenant, record.id)
        output = [entry.item for entry in entries if entry.direction == "output" and entry.visible]
        return result_of(stored_response(shown(record, output)), agent_id_of(record), entries, task_of(record))

    async def ended(self, tenant: str, response_id: str) -> AgentResult:
        """Return what became of a sub-agent that somebody else has ended: it was cancelled by its id."""
        record = await self._store.get(tenant, response_id)
        if record is None or record.status in ACTIVE:
            return AgentResult(response_id, response_id, "cancelled", reason="It was cancelled.")
        return await self.result(record)

    async def close(self, record: ResponseRecord) -> None:
        """Take note that an agent gets no further input."""
        await self._store.note(record.tenant, record.id, record.epoch, {"closed": True})

    async def cancel_tree(self, tenant: str, response_id: str) -> None:
        """End what is unfinished below a response that was cancelled."""
        for record in await self._store.unfinished_below(tenant, response_id):
            await self.cancel(record)

    async def cancel(self, record: ResponseRecord) -> None:
        """End a sub-agent that nobody works on any more."""
        if await self.end(record, "cancelled"):
            await self.cancel_questions(record.tenant, record.id)

    async def cancel_questions(self, tenant: str, response_id: str) -> None:
        """Withdraw what a response still asks."""
        await self._store.questions.cancel_of(tenant, response_id, int(time.time()))

    async def end(
        self, record: ResponseRecord, status: Literal["cancelled", "failed"], error: APIError | None = None
    ) -> bool:
        """End a sub-agent with what is stored of it; False if it is over, or being ended by somebody else."""
        claimed = await self._store.claim(record.tenant, record.id)
        if claimed is None:
            return False
        entries = await self._store.journal(record.tenant, record.id)
        response = stored_response(shown(claimed, []))
        response.status, response.error = status, None if error is None else as_told(error)
        try:
            await Journal.stored(self._store, claimed, entries).finish(response)
        except FencedError:
            logger.info("agent %s is being ended by somebody else", record.id)
            return False
        self._metrics.count_response(status)
        return True


class LatestResponse(msgspec.Struct, frozen=True):
    """A response of an agent, and what the agent was then."""

    response_id: str
    task: AgentTask
    profile: str | None
    model: str

    def continued(self, task: AgentTask) -> AgentTask:
        """Return a further task of the agent, which stays as it is in all that the task does not say otherwise."""
        known = self.task
        return replace(
            task,
            agent=task.agent or self.profile,
            model=task.model or self.model,
            instructions=task.instructions or known.instructions,
            functions=known.functions if task.functions is None else task.functions,
            max_turns=task.max_turns or known.max_turns,
            max_output_tokens=task.max_output_tokens or known.max_output_tokens,
            only_answers=known.only_answers,
        )


class RunAgents:
    """The agents of one run that are in memory: those nobody waits for yet, and what is known of others."""

    def __init__(self) -> None:
        self.tasks: dict[str, asyncio.Task[AgentResult | None]] = {}
        """What agents are doing, by their ids; the result is None if one waits for somebody."""
        self.latest: dict[str, LatestResponse] = {}
        """The last response of each agent."""
        self.loops: dict[str, Loop] = {}
        """What makes their responses."""
        self.entries: dict[str, list[JournalEntry]] = {}
        """What was read and written in responses that are not stored, by their ids."""
        self.closed: set[str] = set()
        """Agents that get no further input."""
        self._owners: dict[str, str | None] = {}
        """The agents that have started them."""

    def take(self, agent_id: str, latest: LatestResponse, owner: str | None) -> None:
        """Take note of the latest response of an agent."""
        self.latest[agent_id] = latest
        self._owners.setdefault(agent_id, owner)

    def close(self, agent_id: str, result: AgentResult) -> None:
        """Take note that an agent is closed, and forget what is there for its next response."""
        self.closed.add(agent_id)
        self.entries.pop(result.response_id, None)

    def check_owner(self, ctx: Context, agent_id: str) -> None:
        """Raise a FunctionError if another agent has started it: nobody stops, or waits for, those of others.

        Two agents that wait for each other, or one that waits for itself, would wait for ever.
        """
        if agent_id in self._owners and self._owners[agent_id] != ctx.agent_id:
            own = (name for name, owner in self._owners.items() if owner == ctx.agent_id)
            raise unknown_agent(agent_id, own)

    def loops_of(self, ctx: Context) -> list[Loop]:
        """Return what makes the responses of the agents that an agent has started."""
        return [loop for name, loop in self.loops.items() if self._owners.get(name) == ctx.agent_id]

    def is_busy(self, agent_id: str) -> bool:
        """Tell whether an agent is at work, or waits for somebody: it gets no further input now."""
        task = self.tasks.get(agent_id)
        return (task is not None and not task.done()) or self.waits(agent_id)

    def waits(self, agent_id: str) -> bool:
        """Tell whether an agent waits for somebody, so that nobody works on it."""
        task = self.tasks.get(agent_id)
        return task is not None and task.done() and not task.cancelled() and task.result() is None

    def outcome(self, agent_id: str) -> AgentResult | None:
        """Return what came of an agent so far; None if it is not in memory."""
        task = self.tasks.get(agent_id)
        if task is None:
            return None
        latest = self.latest[agent_id].response_id
        if not task.done():
            return AgentResult(agent_id, latest, "in_progress")
        if task.cancelled():
            return AgentResult(agent_id, latest, "cancelled", reason="It was interrupted.")
        return task.result() or AgentResult(agent_id, latest, "in_progress", reason="It waits for somebody.")


class AgentsAtWork:
    """Who works on sub-agents in this process: by the runs that they belong to, and by their responses."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.stored = StoredAgents(engine)
        self._watchers: list[Callable[[AgentInfo], None]] = []
        self._runs: dict[RunBudget, RunAgents] = {}
        """By the budget, as long as the root agent's response is being made.

        Its id would be that of two works, if the run was taken over and has come back before the first had noticed.
        """
        self._tasks: dict[str, asyncio.Task[object]] = {}
        """The tasks in which responses of sub-agents are being made, by their ids."""
        self._stopped: set[str] = set()
        """Those among them that were cancelled or deleted by their ids: nobody else is to stop with them."""

    def watch(self, watcher: Callable[[AgentInfo], None]) -> None:
        """Let somebody be told of each sub-agent that begins, and that is done."""
        self._watchers.append(watcher)

    def _notify(self, loop: Loop) -> None:
        for watcher in self._watchers:
            watcher(live_info(loop))

    def stop(self, response_id: str) -> None:
        """Stop to work on the response of a sub-agent that was cancelled or deleted; whoever waits for it goes on."""
        task = self._tasks.get(response_id)
        if task is not None and response_id not in self._stopped:
            self._stopped.add(response_id)
            task.cancel()

    async def work(self, loop: Loop) -> None:
        """Make a response; a FencedError if it was stopped by its id."""
        response_id, task = loop.response.id, asyncio.current_task()
        if task is None:
            raise RuntimeError("Agents are made by a task.")
        self._tasks[response_id] = task
        self._notify(loop)
        try:
            await loop.run()
        except asyncio.CancelledError:
            if response_id in self._stopped and task.uncancel() == 0:
                raise FencedError from None
            raise
        finally:
            if self._tasks.get(response_id) is task:  # else somebody else has taken the response up
                del self._tasks[response_id]
                self._stopped.discard(response_id)
            if loop.plan.shown.agents:
                self.engine.streams.settle(loop.plan)
            self._notify(loop)

    # --- runs --------------------------------------------------------------------------------------------------------

    def of_run(self, plan: Plan) -> RunAgents | None:
        """Return the agents of the run that a response belongs to; None if none are in memory."""
        return None if plan.ctx.budget is None else self._runs.get(plan.ctx.budget)

    def open_run(self, parent: Plan, budget: RunBudget) -> RunAgents:
        """Return the agents of the run that a response belongs to; they end with it."""
        agents = self._runs.get(budget)
        if agents is None:
            agents = self._runs[budget] = RunAgents()
        self.end_with(parent, budget)
        return agents

    def end_with(self, parent: Plan, budget: RunBudget) -> None:
        """Let no agent of a run be under way, or be stored so, when the run is over: a limit may end it anywhere."""
        budget.closing["agents"] = lambda pause: self._close(parent, budget, pause)

    async def _close(self, parent: Plan, budget: RunBudget, pause: Pause) -> None:
        """End what agents do whose run is over; a run that is to be parked waits until they are done."""
        agents = self._runs.pop(budget, None)
        tasks = [] if agents is None else [task for task in agents.tasks.values() if not task.done()]
        if pause == "parked":
            if tasks:
                await asyncio.wait(tasks)
        elif left := await end_tasks(tasks, CANCEL_GRACE):
            logger.error("agents that do not stop are left behind: %s", ", ".join(left))
        if pause == "over":
            tenant, root_id = parent.ctx.tenant, parent.root_id
            await self.stored.cancel_tree(tenant, root_id)
            if parent.response.background:  # else somebody may still answer it, with another response
                await self.stored.cancel_questions(tenant, root_id)
