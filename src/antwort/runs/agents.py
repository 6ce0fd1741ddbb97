"""Sub-agents of the agent that makes a call: what it can do with them, and what becomes of them when the run ends."""

import asyncio
import builtins
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from typing_extensions import override

from antwort.context import Context, Progress
from antwort.context.agents import AgentInfo, AgentResult, AgentTask, SubAgents
from antwort.context.suspension import SuspendedError, Suspension
from antwort.engine.budget import Budget
from antwort.engine.engine import Engine
from antwort.engine.plan import ChildWork, Plan, second_try
from antwort.errors import FunctionUnavailableError
from antwort.runs.agent_info import agent_id_of, live_info, task_of
from antwort.runs.agents_at_work import AgentsAtWork, RunAgents
from antwort.runs.sub_agent import SubAgent, take_up, take_up_detached
from antwort.runs.typed_results import check_schema, typed, unfit
from antwort.storage.base import ACTIVE, ResponseRecord

T = TypeVar("T")

_REPORTS = 20
"""How often the progress of many agents is reported."""


class AgentRuns:
    """The sub-agents of all runs of an app."""

    def __init__(self, engine: Engine) -> None:
        at_work = self._at_work = AgentsAtWork(engine)
        self.watch, self.stop = at_work.watch, at_work.stop
        self.tree, self.cancel_tree = at_work.stored.tree, at_work.stored.cancel_tree

    def of(self, ctx: Context) -> SubAgents:
        """Return what a call can do with sub-agents; a FunctionUnavailableError if it belongs to no response."""
        if not isinstance(ctx.origin, Plan) or not isinstance(ctx.budget, Budget):
            raise FunctionUnavailableError("Agents can only be started by a call of a response.")
        return CallAgents(self._at_work, ctx, ctx.origin, ctx.budget)

    async def adopt(self, root: Plan) -> None:
        """Take charge of the agents of a run that another process has begun: they go on, and end with it."""
        budget = root.ctx.budget
        if isinstance(budget, Budget) and budget.shared:
            self._at_work.open_run(root, budget)
            try:
                await take_up_detached(self._at_work, root)
            except BaseException:
                await budget.close("broken_off")
                raise


class CallAgents(SubAgents):
    """The sub-agents of the agent that makes one call."""

    def __init__(self, at_work: AgentsAtWork, ctx: Context, parent: Plan, budget: Budget) -> None:
        self._at_work = at_work
        self._ctx = ctx
        self._parent = parent
        self._budget = budget

    @override
    def check_model(self, model: str) -> None:
        self._at_work.engine.planner.check_model(self._parent, model)

    @override
    async def run_all(self, tasks: Sequence[AgentTask]) -> list[AgentResult]:
        works = self._works(tasks)
        begun = await self._begun(tasks, works)
        report = _reporter(self._ctx, len(tasks))
        if any(task.output_schema is not None for task in tasks):
            self._open()  # what they say is needed if it does not fit
        elif self._parent.stored:
            self._at_work.end_with(self._parent, self._budget)

        async def one(number: int) -> AgentResult | None:
            work = works[number]
            before = begun.get(second_try(work.index)) or begun.get(work.index)
            result = await SubAgent(self._at_work, work.begun()).result(before)
            report()
            return result

        results = await in_turn(one, len(tasks), most=2 * self._budget.limits.in_flight)
        done = [result for result in results if result is not None]
        if len(done) < len(results):
            raise SuspendedError(Suspension("agents"))
        return done

    @override
    async def start(self, tasks: Sequence[AgentTask]) -> builtins.list[str]:
        works = self._works(tasks)
        begun = await self._begun(tasks, works)
        agents, ids = self._open(), []
        for work in works:
            before = begun.get(work.index)
            agent_id = None
            if before is None or before.status in ACTIVE:
                agent_id = await SubAgent(self._at_work, work.begun()).start(agents, before)
            if agent_id is not None:
                ids.append(agent_id)
            elif before is not None:
                ids.append(agent_id_of(before))
        return ids

    def _works(self, tasks: Sequence[AgentTask]) -> builtins.list[ChildWork]:
        """Return tasks with their numbers in the call: one that goes on finds by them what it has begun."""
        ctx, works = self._ctx, []
        for task in tasks:
            if task.output_schema is not None:
                check_schema(task.output_schema)
            works.append(ChildWork(self._parent, task, ctx.call_id or "", next(ctx.child_numbers)))
        return works

    async def _begun(self, tasks: Sequence[AgentTask], works: Sequence[ChildWork]) -> dict[int, ResponseRecord]:
        """Return what the call has begun before, by index; all else is counted as new agents."""
        begun = await self._at_work.stored.begun(self._ctx)
        # Those that only answer cannot go on from there, and do not count as deeper.
        depth = self._ctx.agent.depth + any(not task.only_answers for task in tasks)
        self._budget.take_agents(sum(work.index not in begun for work in works), depth)
        return begun

    def _open(self) -> RunAgents:
        return self._at_work.open_run(self._parent, self._budget)

    @override
    async def wait(self, ids: Sequence[str], *, seconds: float | None = None) -> builtins.list[AgentResult]:
        agents = self._open()
        for agent_id in ids:
            if agent_id not in agents.tasks or agents.waits(agent_id):
                await take_up(self._at_work, self._parent, agents, await self._stored(agent_id))
            agents.check_owner(self._ctx, agent_id)
        waiting = [agents.tasks[agent_id] for agent_id in ids if agent_id in agents.tasks]
        if waiting:
            await asyncio.wait(waiting, timeout=seconds)
        if seconds is None and any(agents.waits(agent_id) for agent_id in ids):
            raise SuspendedError(Suspension("agents"))
        return [await self._outcome(agents, agent_id) for agent_id in ids]

    @override
    async def interrupt(self, agent_id: str) -> AgentResult:
        agents = self._open()
        agents.check_owner(self._ctx, agent_id)
        task = agents.tasks.get(agent_id)
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait({task})
        if self._parent.stored:
            record = await self._stored(agent_id)
            if record.status in ACTIVE:
                await self._at_work.stored.cancel(record)
                if agents.waits(agent_id):
                    del agents.tasks[agent_id]  # what is stored tells more
        return await self._outcome(agents, agent_id)

    @override
    async def close(self, agent_id: str) -> AgentResult:
        result = await self.interrupt(agent_id)
        self._open().close(agent_id, result)
        if self._parent.stored:
            await self._at_work.stored.close(await self._stored(agent_id))
        return result

    async def _stored(self, agent_id: str) -> ResponseRecord:
        return await self._at_work.stored.last(self._ctx, agent_id)

    async def _outcome(self, agents: RunAgents, agent_id: str) -> AgentResult:
        known = agents.outcome(agent_id)
        if known is not None:
            return known
        record, at_work = await self._stored(agent_id), self._at_work
        found = await at_work.stored.result(record)
        result, problem = await typed(found, task_of(record), record.tenant, at_work.engine.values)
        return unfit(result, problem) if problem else result

    @override
    async def list(self) -> Sequence[AgentInfo]:
        if self._parent.stored:
            return await self._at_work.stored.children(self._ctx)
        agents = self._at_work.of_run(self._parent)
        return [] if agents is None else [live_info(loop) for loop in agents.loops_of(self._ctx)]


def _reporter(ctx: Context, number: int) -> Callable[[], None]:
    """Return what is called with each agent that is done; it reports so a few times only."""
    done = 0
    step = max(1, number // _REPORTS)

    def report() -> None:
        nonlocal done
        done += 1
        if number > 1 and (done % step == 0 or done == number):
            ctx.emit(Progress(f"{done} of {number} agents are done", done / number))

    return report


async def in_turn(one: Callable[[int], Awaitable[T]], number: int, *, most: int) -> list[T]:
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
