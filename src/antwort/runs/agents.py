"""Sub-agents: responses that work for a call of another response, in the same run and by the same loop."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import msgspec

from antwort.agents import AgentInfo, AgentResult, AgentTask, SubAgents
from antwort.budget import Budget, Pause
from antwort.context import Context, Progress
from antwort.engine.engine import Engine, shown
from antwort.engine.history import Recall
from antwort.engine.journal import Journal
from antwort.engine.loop import Loop
from antwort.engine.plan import ChildWork, Plan
from antwort.errors import APIError, FunctionError, FunctionUnavailableError, did_you_mean
from antwort.runs.agent_info import agent_id_of, live_info, result_of, stored_info
from antwort.runs.outage import ModelOutage, pauses
from antwort.runs.recovery import load_answers
from antwort.storage.base import ACTIVE, FencedError, JournalEntry, ResponseRecord, StoreUnavailableError
from antwort.suspension import SuspendedError, Suspension
from antwort.wire.responses import ResponseObject

T = TypeVar("T")

logger = logging.getLogger(__name__)

_REPORTS = 20
"""How often the progress of many agents is told."""


class Family:
    """The agents of a run that are in memory: those nobody waits for yet, and what is known of others."""

    def __init__(self) -> None:
        self.tasks: dict[str, asyncio.Task[AgentResult]] = {}
        """What agents are doing, by their ids."""
        self.latest: dict[str, str] = {}
        """The response that each agent made last."""
        self.loops: dict[str, Loop] = {}
        """What makes their responses."""
        self.said: dict[str, list[JournalEntry]] = {}
        """What was read and said in responses that are not stored, by their ids."""
        self.closed: set[str] = set()
        """Agents that get no further input."""

    def close(self, agent_id: str, result: AgentResult) -> None:
        """Take note that an agent is closed, and forget what is there for its next response."""
        self.closed.add(agent_id)
        self.said.pop(result.response_id, None)


class AgentRuns:
    """Runs sub-agents. An agent that waits for others, or for the user, holds nothing that they need."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._watchers: list[Callable[[AgentInfo], None]] = []
        self._families: dict[str, Family] = {}
        """By the response of the root agent, as long as it is being made."""

    def of(self, ctx: Context) -> SubAgents:
        """Return what a call can do with sub-agents."""
        return SubAgents(self, ctx)

    def watch(self, watcher: Callable[[AgentInfo], None]) -> None:
        """Let somebody be told of each sub-agent that begins, and that is done."""
        self._watchers.append(watcher)

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
        if parent.stored:
            self._see_to_the_end(parent, budget)
        report = _reporter(ctx, len(tasks))

        async def one(number: int) -> AgentResult | None:
            work = works[number]
            result = await self._result(work, begun.get(work.index))
            report()
            return result

        results = await _in_turn(one, len(tasks), most=2 * budget.limits.in_flight)
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
        if record is not None and record.status not in ACTIVE:
            return await self._stored_result(record)
        try:
            loop = await self._new(work) if record is None else await self._go_on(work, record)
        except (APIError, FunctionError) as error:  # it cannot even be begun, or be taken up
            return AgentResult("", "", "failed", reason=str(error))
        if loop is None and record is not None:
            return await self._ended_elsewhere(record.tenant, record.id)
        return None if loop is None else await self._bring_to_end(loop, work)

    async def _new(self, work: ChildWork) -> Loop:
        parent = work.parent
        family = self._families.get(parent.root_id)
        previous = await self._previous(work, family)
        recall: Recall | None = None if family is None else family.said
        plan = await self._engine.planner.plan_child(work, previous=previous, recall=recall)
        journal = self._engine.journal(plan)
        if plan.stored:
            journal.record.extra = {
                "task": msgspec.to_builtins(work.task),
                "profile": plan.profile,
                "agent": plan.ctx.agent.name,
                "agent_id": plan.ctx.agent_id,
                "depth": plan.ctx.agent.depth,
            }
        return self._engine.loop(plan, journal, None)

    async def _go_on(self, work: ChildWork, record: ResponseRecord) -> Loop | None:
        """Return the loop that goes on with a sub-agent from what is stored of it; None if it is over by now."""
        store = self._engine.store
        claimed = await store.claim(record.tenant, record.id)
        if claimed is None:
            return None
        entries = await store.journal(record.tenant, record.id)
        output = [entry.item for entry in entries if entry.direction == "output" and entry.visible]
        response = msgspec.convert(shown(claimed, output), ResponseObject)
        journal = Journal(store, claimed, entries, created=True)
        plan = await self._engine.planner.plan_again(claimed, entries, response, work.parent)
        answers = await load_answers(store, claimed, entries)
        return self._engine.loop(plan, journal, None, positions=range(len(output)), resumed=True, answers=answers)

    async def _bring_to_end(self, loop: Loop, work: ChildWork) -> AgentResult | None:
        """Run a sub-agent to its end. In the background it waits while the store or the model server is away."""
        outage, looks = ModelOutage(self._engine.settings.outage_patience), pauses()
        while True:
            self._tell(loop)
            loop.on_progress = outage.reset
            try:
                await loop.run()
            except FencedError:
                return await self._ended_elsewhere(loop.plan.ctx.tenant, loop.response.id)
            except StoreUnavailableError as error:
                if not loop.response.background:
                    return self._failed(loop, error)
                pause = next(looks)
            except APIError as error:
                longest = outage.pause(error) if loop.response.background else None
                if longest is None:
                    return self._failed(loop, error)
                pause = longest
            else:
                return None if loop.parked else self._done(loop)
            finally:
                self._tell(loop)
            await asyncio.sleep(pause)
            again = await self._again(loop, work)
            if again is None:
                return await self._ended_elsewhere(loop.plan.ctx.tenant, loop.response.id)
            loop = again

    async def _again(self, loop: Loop, work: ChildWork) -> Loop | None:
        """Return the loop that goes on with a sub-agent whose work was broken off; None if it is over by now."""
        looks = pauses()
        while True:
            try:
                record = await self._engine.store.get(loop.plan.ctx.tenant, loop.response.id)
                return await self._new(work) if record is None else await self._go_on(work, record)
            except StoreUnavailableError:
                await asyncio.sleep(next(looks))

    # --- results -----------------------------------------------------------------------------------------------------

    def _done(self, loop: Loop) -> AgentResult:
        self._remember(loop)
        return result_of(loop.response, loop.plan.ctx.agent_id or loop.response.id)

    def _remember(self, loop: Loop) -> None:
        """Take note of what an agent has said, for its next response."""
        plan, response = loop.plan, loop.response
        family = self._families.get(plan.root_id)
        if family is not None:
            family.latest[plan.ctx.agent_id or ""] = response.id
            if not plan.stored:
                family.said[response.id] = self._engine.entries_so_far(plan, loop.journal)

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
        response = msgspec.convert(shown(record, output), ResponseObject)
        return result_of(response, agent_id_of(record))

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
            try:
                loop = await self._new(work) if record is None else await self._go_on(work, record)
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

        async def to_its_end() -> AgentResult:
            try:
                result = await self._bring_to_end(loop, work)
            except asyncio.CancelledError:
                self._remember(loop)
                raise
            if result is None:
                return AgentResult(agent_id, loop.response.id, "in_progress", reason="It waits for somebody.")
            return result

        family.latest[agent_id] = loop.response.id
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
        tenant, root_id = parent.ctx.tenant, parent.root_id
        budget.closing["agents"] = lambda pause: self._close(tenant, root_id, pause)

    def adopt(self, root: Plan) -> None:
        """Take charge of the agents of a run that another process has begun: they end with it."""
        if root.ctx.budget is not None and root.ctx.budget.shared:
            self._family(root, root.ctx.budget)

    async def _close(self, tenant: str, root_id: str, pause: Pause) -> None:
        """End what agents do whose run is over; a run that is to be parked waits until they are done."""
        family = self._families.pop(root_id, None)
        tasks = [] if family is None else [task for task in family.tasks.values() if not task.done()]
        if pause != "parked":
            for task in tasks:
                task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if pause == "over":
            await self.cancel_tree(tenant, root_id)

    async def wait(self, ctx: Context, ids: Sequence[str], *, seconds: float | None = None) -> list[AgentResult]:
        """Wait for sub-agents of this agent; those that are not done in time have the status `in_progress`."""
        parent, budget = _caller(ctx)
        family = self._family(parent, budget)
        for agent_id in ids:
            if agent_id not in family.tasks:
                await self._take_up(ctx, parent, family, agent_id)
        waiting = [family.tasks[agent_id] for agent_id in ids if agent_id in family.tasks]
        if waiting:
            await asyncio.wait(waiting, timeout=seconds)
        return [await self._outcome(ctx, family, agent_id) for agent_id in ids]

    async def _outcome(self, ctx: Context, family: Family, agent_id: str) -> AgentResult:
        task = family.tasks.get(agent_id)
        if task is None:
            return await self._stored_result(await self._record(ctx, agent_id))
        if not task.done():
            return AgentResult(agent_id, family.latest[agent_id], "in_progress")
        if task.cancelled():
            return AgentResult(agent_id, family.latest[agent_id], "cancelled", reason="It was interrupted.")
        return task.result()

    async def _take_up(self, ctx: Context, parent: Plan, family: Family, agent_id: str) -> None:
        """Let an agent go on that another process has begun."""
        record = await self._record(ctx, agent_id)
        if record.status in ACTIVE and record.parent_id == parent.response.id:
            task = msgspec.convert(record.extra["task"], AgentTask)
            work = ChildWork(parent, task, record.parent_call_id or "", record.child_index or 0)
            loop = await self._go_on(work, record)
            if loop is not None:
                self._work_on(family, loop, work)

    async def interrupt(self, ctx: Context, agent_id: str) -> AgentResult:
        """Stop what a sub-agent of this agent is doing; it can be given further input."""
        parent, budget = _caller(ctx)
        family = self._family(parent, budget)
        task = family.tasks.get(agent_id)
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait({task})
        if parent.stored:
            record = await self._record(ctx, agent_id)
            if record.status in ACTIVE:
                await self.cancel_stored(record)
        return await self._outcome(ctx, family, agent_id)

    async def close(self, ctx: Context, agent_id: str) -> AgentResult:
        """Stop what a sub-agent of this agent is doing, for good: it gets no further input."""
        result = await self.interrupt(ctx, agent_id)
        parent, budget = _caller(ctx)
        self._family(parent, budget).close(agent_id, result)
        return result

    # --- what there is of them ---------------------------------------------------------------------------------------

    async def children(self, ctx: Context) -> list[AgentInfo]:
        """Return the sub-agents of this agent."""
        parent, _ = _caller(ctx)
        if not parent.stored:
            family = self._families.get(parent.root_id)
            return [] if family is None else [live_info(loop) for loop in family.loops.values()]
        records = await self._engine.store.descendants(ctx.tenant, parent.root_id)
        return [stored_info(record) for record in records if record.parent_id == parent.response.id]

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
        store = self._engine.store
        claimed = await store.claim(record.tenant, record.id)
        if claimed is None:
            return
        entries = await store.journal(record.tenant, record.id)
        response = msgspec.convert(shown(claimed, []), ResponseObject)
        response.status = "cancelled"
        journal = Journal(store, claimed, entries, created=True)
        try:
            await journal.finish(response)
        except FencedError:
            logger.info("agent %s is being ended by somebody else", record.id)

    async def _previous(self, work: ChildWork, family: Family | None) -> str | None:
        """Return the last response of the agent that gets further input; a FunctionError if it is not done."""
        agent_id, ctx = work.task.continues, work.parent.ctx
        if agent_id is None:
            return None
        if family is not None and agent_id in family.closed:
            raise FunctionError(f"The agent '{agent_id}' is closed. Start another one.")
        if family is not None and agent_id in family.latest:
            task = family.tasks.get(agent_id)
            if task is not None and not task.done():
                raise FunctionError(f"The agent '{agent_id}' is still at work. Wait for it, or interrupt it, first.")
            return family.latest[agent_id]
        record = await self._record(ctx, agent_id)
        if record.status in ACTIVE:
            raise FunctionError(f"The agent '{agent_id}' is still at work. Wait for it, or interrupt it, first.")
        return record.id

    async def _record(self, ctx: Context, agent_id: str) -> ResponseRecord:
        """Return the last response of an agent of this run; a FunctionError if there is no such agent."""
        records = await self._engine.store.of_run(ctx.tenant, ctx.run_id or "")
        found = [record for record in records if agent_id_of(record) == agent_id and record.parent_id is not None]
        if not found:
            hint = did_you_mean(agent_id, [agent_id_of(record) for record in records if record.parent_id is not None])
            raise FunctionError(f"There is no agent '{agent_id[:64]}' in this run{hint or '.'}")
        return found[-1]


def _caller(ctx: Context) -> tuple[Plan, Budget]:
    if not isinstance(ctx.origin, Plan) or ctx.budget is None:
        raise FunctionUnavailableError("Agents can only be started by a call of a response.")
    return ctx.origin, ctx.budget


def _depth(ctx: Context, tasks: Sequence[AgentTask]) -> int:
    """Return how deep new agents are nested; those that only answer cannot go on from there, and do not count."""
    return ctx.agent.depth + any(not task.only_answers for task in tasks)


def _works(ctx: Context, parent: Plan, tasks: Sequence[AgentTask]) -> list[ChildWork]:
    """Return tasks with their numbers in the call: one that goes on finds by them what it has begun."""
    return [ChildWork(parent, task, ctx.call_id or "", next(ctx.child_numbers)) for task in tasks]


def _reporter(ctx: Context, number: int) -> Callable[[], None]:
    """Return what is called with each agent that is done; it tells so a few times only."""
    done = 0
    step = max(1, number // _REPORTS)

    def report() -> None:
        nonlocal done
        done += 1
        if number > 1 and (done % step == 0 or done == number):
            ctx.emit(Progress(f"{done} of {number} agents are done", done / number))

    return report


async def _in_turn(one: Callable[[int], Awaitable[T]], number: int, *, most: int) -> list[T]:
    """Do something with each index, at most so many at a time, and return what came of it in order."""
    results: dict[int, T] = {}
    indexes = iter(range(number))

    async def work() -> None:
        for index in indexes:
            results[index] = await one(index)

    workers = [asyncio.ensure_future(work()) for _ in range(min(number, most))]
    try:
        await asyncio.gather(*workers)
    except BaseException:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        raise
    return [results[index] for index in range(number)]
