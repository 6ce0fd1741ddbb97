"""Sub-agents: responses that work for a call of another response, in the same run and by the same loop."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from antwort.concurrency.contained_tasks import end_tasks
from antwort.context import Context
from antwort.context.agents import AgentInfo, AgentResult, AgentTask, SubAgents
from antwort.context.suspension import SuspendedError, Suspension
from antwort.engine.budget import Budget, Pause
from antwort.engine.engine import Engine, shown
from antwort.engine.history import Recall
from antwort.engine.journal import Journal
from antwort.engine.plan import ChildWork, Plan, second_try
from antwort.engine.turns.ending import as_told
from antwort.engine.turns.loop import Loop
from antwort.engine.turns.parts import NOTHING, Earlier
from antwort.errors import APIError, FunctionError, FunctionUnavailableError
from antwort.runs.agent_info import agent_id_of, last_of_each, live_info, result_of, stored_info
from antwort.runs.family import Family, Said, unknown_agent
from antwort.runs.many_agents import in_turn, reporter
from antwort.runs.outage import ModelOutage, patiently, pauses
from antwort.runs.questions import PARTING
from antwort.runs.recovery import load_answers
from antwort.runs.typed_results import UNFIT, check_schema, typed, unfit
from antwort.storage.base import ACTIVE, FencedError, ResponseRecord, StoreUnavailableError
from antwort.wire.responses import stored_response

logger = logging.getLogger(__name__)


class AgentRuns:
    """Runs sub-agents. An agent that waits for others, or for the user, holds nothing that they need."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._watchers: list[Callable[[AgentInfo], None]] = []
        self._families: dict[str, Family] = {}
        """By the response of the root agent, as long as it is being made."""
        self._under_way: dict[str, asyncio.Task[Any]] = {}
        """The tasks in which responses of sub-agents are being made, by their ids."""
        self._stopped: set[str] = set()
        """Those among them that were cancelled or deleted by their ids: nobody else is to stop with them."""

    def of(self, ctx: Context) -> SubAgents:
        """Return what a call can do with sub-agents."""
        return SubAgents(self, ctx)

    def check_model(self, ctx: Context, model: str) -> None:
        """Raise a FunctionError if the model of this agent may not choose that model for sub-agents."""
        parent, _ = _caller(ctx)
        self._engine.planner.check_model(parent, model)

    def watch(self, watcher: Callable[[AgentInfo], None]) -> None:
        """Let somebody be told of each sub-agent that begins, and that is done."""
        self._watchers.append(watcher)

    def stop(self, response_id: str) -> None:
        """Stop to work on the response of a sub-agent that was cancelled or deleted; whoever waits for it goes on."""
        task = self._under_way.get(response_id)
        if task is not None and response_id not in self._stopped:
            self._stopped.add(response_id)
            task.cancel()

    async def _run(self, loop: Loop) -> None:
        """Make a response; a FencedError if it was stopped by its id."""
        response_id, task = loop.response.id, asyncio.current_task()
        if task is None:
            raise RuntimeError("Agents are made by a task.")
        self._under_way[response_id] = task
        try:
            await loop.run()
        except asyncio.CancelledError:
            if response_id in self._stopped and task.uncancel() == 0:
                raise FencedError from None
            raise
        finally:
            del self._under_way[response_id]
            self._stopped.discard(response_id)
            if loop.plan.shown.agents:
                self._engine.streams.settle(loop.plan)

    def _tell(self, loop: Loop) -> None:
        for watcher in self._watchers:
            watcher(live_info(loop))

    # --- agents that somebody waits for ------------------------------------------------------------------------------

    async def run(self, ctx: Context, tasks: Sequence[AgentTask]) -> list[AgentResult]:
        """Let sub-agents work, and wait for all of them."""
        parent, budget = _caller(ctx)
        works = _works(ctx, parent, tasks)
        begun = await self._begun(ctx)
        budget.take_agents(sum(work.index not in begun for work in works), _depth(ctx, tasks))
        if any(task.output_schema is not None for task in tasks):
            self._family(parent, budget)  # what they say is needed if it does not fit
        elif parent.stored:
            self._see_to_the_end(parent, budget)
        report = reporter(ctx, len(tasks))

        async def one(number: int) -> AgentResult | None:
            work = works[number]
            result = await self._result(work, begun.get(second_try(work.index)) or begun.get(work.index))
            report()
            return result

        results = await in_turn(one, len(tasks), most=2 * budget.limits.in_flight)
        done = [result for result in results if result is not None]
        if len(done) < len(results):
            raise SuspendedError(Suspension("agents"))
        return done

    async def _begun(self, ctx: Context) -> dict[int, ResponseRecord]:
        """Return what a call that goes on has begun before, by index."""
        if not ctx.attached or ctx.response_id is None or ctx.call_id is None:
            return {}
        records = await self._engine.store.children(ctx.tenant, ctx.response_id, ctx.call_id)
        return {record.child_index: record for record in records if record.child_index is not None}

    async def _result(self, work: ChildWork, record: ResponseRecord | None) -> AgentResult | None:
        """Let a sub-agent work, or go on, and return what comes of it; None if it waits for somebody."""
        work = work.begun()
        if record is not None:
            work = replace(work, task=_task_of(record), index=record.child_index or 0)
            if record.status not in ACTIVE:
                return await self._checked(await self._stored_result(record), work)
        try:
            if record is None:
                work = await self._continuing(work)
            loop = await self._new(work) if record is None else await self._go_on(work, record)
        except (APIError, FunctionError) as error:  # it cannot even be begun, or be taken up
            return AgentResult("", "", "failed", reason=str(error))
        if loop is None and record is not None:
            return await self._ended_elsewhere(record.tenant, record.id)
        return None if loop is None else await self._bring_to_end(loop, work)

    async def _new(self, work: ChildWork, *, detached: bool = False) -> Loop:
        parent = work.parent
        family = self._families.get(parent.root_id)
        recall: Recall | None = None if family is None else family.said
        plan = await self._engine.planner.plan_child(work, recall=recall)
        journal = self._engine.journal(plan)
        if plan.stored:
            journal.record.extra = {
                "task": msgspec.to_builtins(work.task),
                "profile": plan.profile,
                "agent": plan.ctx.agent.name,
                "agent_id": plan.ctx.agent_id,
                "depth": plan.ctx.agent.depth,
                "owner": parent.ctx.agent_id,
                "detached": detached,
            }
        return self._loop(plan, journal)

    def _loop(self, plan: Plan, journal: Journal, earlier: Earlier = NOTHING) -> Loop:
        """Return what makes a response. Its model's answers are streamed: they have to begin, and to go on, in time."""
        sink = self._engine.streams.sink_for(plan) if plan.shown.agents else None
        loop = self._engine.loop(plan, journal, sink, earlier)
        loop.streams = True
        return loop

    async def _go_on(self, work: ChildWork, record: ResponseRecord) -> Loop | None:
        """Return the loop that goes on with a sub-agent from what is stored of it; None if it is over by now."""
        store = self._engine.store
        claimed = await store.claim(record.tenant, record.id)
        if claimed is None:
            return None
        entries = await store.journal(record.tenant, record.id)
        output = [entry.item for entry in entries if entry.direction == "output" and entry.visible]
        response = stored_response(shown(claimed, output))
        journal = Journal.stored(store, claimed, entries)
        plan = await self._engine.planner.plan_again(claimed, entries, response, work)
        answers = await load_answers(store, claimed, entries)
        await self._take_up_detached(plan)
        earlier = Earlier(positions=range(len(output)), resumed=True, answers=answers)
        return self._loop(plan, journal, earlier)

    async def _bring_to_end(self, loop: Loop, work: ChildWork) -> AgentResult | None:
        """Run a sub-agent to its end. In the background it waits while the store or the model server is away."""
        settings, looks = self._engine.settings, pauses()
        outage = ModelOutage(settings.outage_patience, settings.max_broken_answers)
        while True:
            self._tell(loop)
            loop.on_progress = outage.reset
            try:
                await self._run(loop)
            except FencedError:
                return await self._ended_elsewhere(loop.plan.ctx.tenant, loop.response.id)
            except StoreUnavailableError as error:
                if not loop.response.background:
                    return self._failed(loop, error)
                pause = next(looks)
            except APIError as error:
                longest = outage.pause(error, broke_off=loop.broke_off) if loop.response.background else None
                if longest is None or _is_over(work, longest):
                    return await self._give_up(loop, outage.last_error(error))
                pause = longest
            else:
                break
            finally:
                self._tell(loop)
            await asyncio.sleep(pause)
            again = await self._again(loop, work)
            if again is None:
                return await self._ended_elsewhere(loop.plan.ctx.tenant, loop.response.id)
            loop = again
        return None if loop.parked else await self._checked(self._done(loop, work), work, loop)

    async def _again(self, loop: Loop, work: ChildWork) -> Loop | None:
        """Return the loop that goes on with a sub-agent whose work was broken off; None if it is over by now."""
        looks = pauses()
        while True:
            try:
                record = await self._engine.store.get(loop.plan.ctx.tenant, loop.response.id)
                detached = bool(loop.journal.record.extra.get("detached"))
                return await self._new(work, detached=detached) if record is None else await self._go_on(work, record)
            except StoreUnavailableError:
                await asyncio.sleep(next(looks))

    # --- results -----------------------------------------------------------------------------------------------------

    def _done(self, loop: Loop, work: ChildWork) -> AgentResult:
        self._remember(loop, work)
        agent_id = loop.plan.ctx.agent_id or loop.response.id
        return result_of(loop.response, agent_id, loop.journal.entries, work.task)

    async def _checked(self, result: AgentResult, work: ChildWork, loop: Loop | None = None) -> AgentResult | None:
        """Return a result that fits the schema of its task; an agent whose result does not is told so once.

        None if it waits for somebody then. `loop` has made the result; without one it is of the store.
        """
        tenant, values = work.parent.ctx.tenant, self._engine.values
        result, problem = await typed(result, work.task, tenant, values)
        if not problem:
            return result
        if work.is_second_try:
            return unfit(result, problem)
        again = work.again(result.id, result.response_id, UNFIT.format(problem))
        detached = loop is not None and bool(loop.journal.record.extra.get("detached"))
        try:
            second = await self._new(again, detached=detached)
        except (APIError, FunctionError) as error:
            return unfit(result, f"{problem}; it could not be asked again: {error}")
        family = self._families.get(work.parent.root_id)
        if family is not None and result.id in family.loops:
            family.loops[result.id] = second
        return await self._bring_to_end(second, again)

    def _remember(self, loop: Loop, work: ChildWork) -> None:
        """Take note of what an agent has said, for its next response."""
        plan, response = loop.plan, loop.response
        family = self._families.get(plan.root_id)
        if family is not None:
            family.take(plan.ctx.agent_id or "", _said(loop, work), work.parent.ctx.agent_id)
            if not plan.stored:
                family.said[response.id] = self._engine.entries_so_far(plan, loop.journal)

    async def _give_up(self, loop: Loop, error: APIError) -> AgentResult:
        """Return that a sub-agent has failed; one in the background, which has waited until now, is stored so."""
        tenant, response_id = loop.plan.ctx.tenant, loop.response.id
        if loop.response.status in ACTIVE:
            logger.warning("response %s failed: %s", response_id, error.message)
            record = await patiently(lambda: self._engine.store.get(tenant, response_id))
            if record is not None and not await patiently(partial(self._end_stored, record, "failed", error)):
                return await self._ended_elsewhere(tenant, response_id)
        return self._failed(loop, error)

    def _failed(self, loop: Loop, error: APIError) -> AgentResult:
        agent_id = loop.plan.ctx.agent_id or loop.response.id
        return AgentResult(agent_id, loop.response.id, "failed", reason=error.message, usage=loop.response.usage)

    async def _ended_elsewhere(self, tenant: str, response_id: str) -> AgentResult:
        """Return what became of a sub-agent that somebody else has ended: it was cancelled by its id."""
        record = await self._engine.store.get(tenant, response_id)
        if record is None or record.status in ACTIVE:
            return AgentResult(response_id, response_id, "cancelled", reason="It was cancelled.")
        return await self._stored_result(record)

    async def _stored_result(self, record: ResponseRecord) -> AgentResult:
        entries = await self._engine.store.journal(record.tenant, record.id)
        output = [entry.item for entry in entries if entry.direction == "output" and entry.visible]
        response = stored_response(shown(record, output))
        return result_of(response, agent_id_of(record), entries, _task_of(record))

    # --- agents that work while their parent does --------------------------------------------------------------------

    async def start(self, ctx: Context, tasks: Sequence[AgentTask]) -> list[str]:
        """Let sub-agents work, and return their ids at once."""
        parent, budget = _caller(ctx)
        works = _works(ctx, parent, tasks)
        begun = await self._begun(ctx)
        budget.take_agents(sum(work.index not in begun for work in works), _depth(ctx, tasks))
        family = self._family(parent, budget)
        ids = []
        for work in works:
            record = begun.get(work.index)
            if record is not None and record.status not in ACTIVE:
                ids.append(agent_id_of(record))
                continue
            work = work.begun()  # noqa: PLW2901 - it is the same one
            try:
                if record is None:
                    work = await self._continuing(work)  # noqa: PLW2901
                loop = await self._new(work, detached=True) if record is None else await self._go_on(work, record)
                if loop is not None:
                    await loop.journal.save()  # whoever goes on after a crash finds it
            except APIError as error:
                raise FunctionError(error.message) from error
            if loop is not None:
                ids.append(self._work_on(family, loop, work))
            elif record is not None:
                ids.append(agent_id_of(record))
        return ids

    def _work_on(self, family: Family, loop: Loop, work: ChildWork) -> str:
        agent_id = loop.plan.ctx.agent_id or loop.response.id

        async def to_its_end() -> AgentResult | None:
            try:
                return await self._bring_to_end(loop, work)
            except asyncio.CancelledError:
                self._remember(loop, work)
                raise

        family.take(agent_id, _said(loop, work), work.parent.ctx.agent_id)
        family.loops[agent_id] = loop
        family.tasks[agent_id] = asyncio.get_running_loop().create_task(to_its_end(), name=f"agent {agent_id}")
        return agent_id

    def _family(self, parent: Plan, budget: Budget) -> Family:
        family = self._families.get(parent.root_id)
        if family is None:
            family = self._families[parent.root_id] = Family()
        self._see_to_the_end(parent, budget)
        return family

    def _see_to_the_end(self, parent: Plan, budget: Budget) -> None:
        """Let no agent of a run be under way, or be stored so, when the run is over: a limit may end it anywhere."""
        tenant, root_id, background = parent.ctx.tenant, parent.root_id, parent.response.background
        budget.closing["agents"] = lambda pause: self._close(tenant, root_id, pause, background=background)

    async def adopt(self, root: Plan) -> None:
        """Take charge of the agents of a run that another process has begun: they go on, and end with it."""
        budget = root.ctx.budget
        if budget is not None and budget.shared:
            self._family(root, budget)
            try:
                await self._take_up_detached(root)
            except BaseException:
                await budget.close("broken_off")
                raise

    async def _take_up_detached(self, parent: Plan) -> None:
        """Let agents go on that an agent has started without waiting for them, before somebody else went on with it."""
        store, family = self._engine.store, self._families.get(parent.root_id)
        if family is None or not parent.stored:
            return
        for record in await store.unfinished_below(parent.ctx.tenant, parent.response.id):
            if record.parent_id == parent.response.id and record.extra.get("detached"):
                await self._take_up(parent, family, record)

    async def _close(self, tenant: str, root_id: str, pause: Pause, *, background: bool) -> None:
        """End what agents do whose run is over; a run that is to be parked waits until they are done."""
        family = self._families.pop(root_id, None)
        tasks = [] if family is None else [task for task in family.tasks.values() if not task.done()]
        if pause == "parked":
            if tasks:
                await asyncio.wait(tasks)
        elif left := await end_tasks(tasks, PARTING):
            logger.error("agents that do not stop are left behind: %s", ", ".join(left))
        if pause == "over":
            await self.cancel_tree(tenant, root_id)
            if background:  # else somebody may still answer it, with another response
                await self._engine.store.questions.cancel_of(tenant, root_id, int(time.time()))

    async def wait(self, ctx: Context, ids: Sequence[str], *, seconds: float | None = None) -> list[AgentResult]:
        """Wait for sub-agents of this agent; those that are not done in time have the status `in_progress`."""
        parent, budget = _caller(ctx)
        family = self._family(parent, budget)
        for agent_id in ids:
            if agent_id not in family.tasks or family.waits(agent_id):
                await self._take_up(parent, family, await self._record(ctx, agent_id))
            family.check_owner(ctx, agent_id)
        waiting = [family.tasks[agent_id] for agent_id in ids if agent_id in family.tasks]
        if waiting:
            await asyncio.wait(waiting, timeout=seconds)
        if seconds is None and any(family.waits(agent_id) for agent_id in ids):
            raise SuspendedError(Suspension("agents"))
        return [await self._outcome(ctx, family, agent_id) for agent_id in ids]

    async def _outcome(self, ctx: Context, family: Family, agent_id: str) -> AgentResult:
        known = family.outcome(agent_id)
        if known is not None:
            return known
        record = await self._record(ctx, agent_id)
        result, problem = await typed(
            await self._stored_result(record), _task_of(record), ctx.tenant, self._engine.values
        )
        return unfit(result, problem) if problem else result

    async def _take_up(self, parent: Plan, family: Family, record: ResponseRecord) -> None:
        """Let an agent go on that another process has begun, or that waited for somebody."""
        if record.status in ACTIVE and record.parent_id == parent.response.id:
            work = ChildWork(parent, _task_of(record), record.parent_call_id or "", record.child_index or 0)
            work = work.begun()
            loop = await self._go_on(work, record)
            if loop is not None:
                self._work_on(family, loop, work)

    async def interrupt(self, ctx: Context, agent_id: str) -> AgentResult:
        """Stop what a sub-agent of this agent is doing; it can be given further input."""
        parent, budget = _caller(ctx)
        family = self._family(parent, budget)
        family.check_owner(ctx, agent_id)
        task = family.tasks.get(agent_id)
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait({task})
        if parent.stored:
            record = await self._record(ctx, agent_id)
            if record.status in ACTIVE:
                await self.cancel_stored(record)
                if family.waits(agent_id):
                    del family.tasks[agent_id]  # what is stored tells more
        return await self._outcome(ctx, family, agent_id)

    async def close(self, ctx: Context, agent_id: str) -> AgentResult:
        """Stop what a sub-agent of this agent is doing, for good: it gets no further input."""
        result = await self.interrupt(ctx, agent_id)
        parent, budget = _caller(ctx)
        self._family(parent, budget).close(agent_id, result)
        if parent.stored:
            record = await self._record(ctx, agent_id)
            await self._engine.store.note(record.tenant, record.id, record.epoch, {"closed": True})
        return result

    # --- what there is of them ---------------------------------------------------------------------------------------

    async def children(self, ctx: Context) -> list[AgentInfo]:
        """Return the sub-agents of this agent."""
        parent, _ = _caller(ctx)
        if not parent.stored:
            family = self._families.get(parent.root_id)
            return [] if family is None else [live_info(loop) for loop in family.loops_of(ctx)]
        records = await self._engine.store.of_run(ctx.tenant, ctx.run_id or "")
        return [stored_info(record) for record in last_of_each(records, ctx.agent_id)]

    async def tree(self, tenant: str, response_id: str) -> list[AgentInfo] | None:
        """Return a response's agent and all below it, parents before their children."""
        store = self._engine.store
        record = await store.get(tenant, response_id)
        if record is None:
            return None
        return [stored_info(record), *map(stored_info, await store.descendants(tenant, response_id))]

    async def cancel_tree(self, tenant: str, response_id: str) -> None:
        """End what is stored as unfinished below a response that was cancelled."""
        for record in await self._engine.store.unfinished_below(tenant, response_id):
            await self.cancel_stored(record)

    async def cancel_stored(self, record: ResponseRecord) -> None:
        """End a sub-agent that nobody works on any more."""
        if await self._end_stored(record, "cancelled"):
            await self._engine.store.questions.cancel_of(record.tenant, record.id, int(time.time()))

    async def _end_stored(
        self, record: ResponseRecord, status: Literal["cancelled", "failed"], error: APIError | None = None
    ) -> bool:
        """End a sub-agent with what is stored of it; False if it is over, or being ended by somebody else."""
        store = self._engine.store
        claimed = await store.claim(record.tenant, record.id)
        if claimed is None:
            return False
        entries = await store.journal(record.tenant, record.id)
        response = stored_response(shown(claimed, []))
        response.status, response.error = status, None if error is None else as_told(error)
        try:
            await Journal.stored(store, claimed, entries).finish(response)
        except FencedError:
            logger.info("agent %s is being ended by somebody else", record.id)
            return False
        self._engine.metrics.count_response(status)
        return True

    async def _continuing(self, work: ChildWork) -> ChildWork:
        """Return work as part of what its agent has done before, if it is further input."""
        if work.task.continues is None:
            return work
        said = await self._previous(work.task.continues, work.parent)
        return replace(work, task=said.continued(work.task), previous=said.response_id)

    async def _previous(self, agent_id: str, parent: Plan) -> Said:
        """Return what the agent has said last that gets further input; a FunctionError if it is not done."""
        ctx, family = parent.ctx, self._families.get(parent.root_id)
        if family is not None:
            family.check_owner(ctx, agent_id)
        if family is not None and agent_id in family.closed:
            raise _closed(agent_id)
        if family is not None and agent_id in family.latest:
            task = family.tasks.get(agent_id)
            if (task is not None and not task.done()) or family.waits(agent_id):
                raise _at_work(agent_id)
            return family.latest[agent_id]
        record = await self._record(ctx, agent_id)
        if record.extra.get("closed"):
            raise _closed(agent_id)
        if record.status in ACTIVE:
            raise _at_work(agent_id)
        return Said(record.id, _task_of(record), record.extra.get("profile"), record.model)

    async def _record(self, ctx: Context, agent_id: str) -> ResponseRecord:
        """Return the last response of an agent that this agent has started; a FunctionError if there is none."""
        records = last_of_each(await self._engine.store.of_run(ctx.tenant, ctx.run_id or ""), ctx.agent_id)
        for record in records:
            if agent_id_of(record) == agent_id:
                return record
        raise unknown_agent(agent_id, map(agent_id_of, records))


def _is_over(work: ChildWork, pause: float) -> bool:
    """Tell whether the time of an agent is over before a pause is."""
    return work.deadline is not None and time.monotonic() + pause >= work.deadline


def _said(loop: Loop, work: ChildWork) -> Said:
    return Said(loop.response.id, work.task, loop.plan.profile, loop.response.model)


def _task_of(record: ResponseRecord) -> AgentTask:
    return msgspec.convert(record.extra["task"], AgentTask)


def _closed(agent_id: str) -> FunctionError:
    return FunctionError(f"The agent '{agent_id}' is closed. Start another one.")


def _at_work(agent_id: str) -> FunctionError:
    return FunctionError(f"The agent '{agent_id}' is still at work. Wait for it, or interrupt it, first.")


def _caller(ctx: Context) -> tuple[Plan, Budget]:
    if not isinstance(ctx.origin, Plan) or ctx.budget is None:
        raise FunctionUnavailableError("Agents can only be started by a call of a response.")
    return ctx.origin, ctx.budget


def _depth(ctx: Context, tasks: Sequence[AgentTask]) -> int:
    """Return how deep new agents are nested; those that only answer cannot go on from there, and do not count."""
    return ctx.agent.depth + any(not task.only_answers for task in tasks)


def _works(ctx: Context, parent: Plan, tasks: Sequence[AgentTask]) -> list[ChildWork]:
    """Return tasks with their numbers in the call: one that goes on finds by them what it has begun."""
    for task in tasks:
        check_schema(task)
    return [ChildWork(parent, task, ctx.call_id or "", next(ctx.child_numbers)) for task in tasks]
