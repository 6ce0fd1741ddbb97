"""The sub-agents that are in memory: what they do, whose they are, and who is to end them with their run."""

import asyncio
import logging
from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from antwort.concurrency.contained_tasks import end_tasks
from antwort.context import Context
from antwort.context.agents import AgentInfo, AgentResult, AgentTask
from antwort.context.budget import Pause, RunBudget
from antwort.engine.engine import Engine
from antwort.engine.plan import Plan
from antwort.engine.turns.loop import Loop
from antwort.runs.agent_info import live_info, unknown_agent
from antwort.runs.questions import CANCEL_GRACE
from antwort.runs.stored_agents import StoredAgents
from antwort.storage.base import FencedError, JournalEntry

logger = logging.getLogger(__name__)


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
        self._runs: dict[str, RunAgents] = {}
        """By the response of the root agent, as long as it is being made."""
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
            del self._tasks[response_id]
            self._stopped.discard(response_id)
            if loop.plan.shown.agents:
                self.engine.streams.settle(loop.plan)
            self._notify(loop)

    # --- runs --------------------------------------------------------------------------------------------------------

    def of_run(self, plan: Plan) -> RunAgents | None:
        """Return the agents of the run that a response belongs to; None if none are in memory."""
        return self._runs.get(plan.root_id)

    def open_run(self, parent: Plan, budget: RunBudget) -> RunAgents:
        """Return the agents of the run that a response belongs to; they end with it."""
        agents = self._runs.get(parent.root_id)
        if agents is None:
            agents = self._runs[parent.root_id] = RunAgents()
        self.end_with(parent, budget)
        return agents

    def end_with(self, parent: Plan, budget: RunBudget) -> None:
        """Let no agent of a run be under way, or be stored so, when the run is over: a limit may end it anywhere."""
        tenant, root_id, background = parent.ctx.tenant, parent.root_id, parent.response.background
        budget.closing["agents"] = lambda pause: self._close(tenant, root_id, pause, background=background)

    async def _close(self, tenant: str, root_id: str, pause: Pause, *, background: bool) -> None:
        """End what agents do whose run is over; a run that is to be parked waits until they are done."""
        agents = self._runs.pop(root_id, None)
        tasks = [] if agents is None else [task for task in agents.tasks.values() if not task.done()]
        if pause == "parked":
            if tasks:
                await asyncio.wait(tasks)
        elif left := await end_tasks(tasks, CANCEL_GRACE):
            logger.error("agents that do not stop are left behind: %s", ", ".join(left))
        if pause == "over":
            await self.stored.cancel_tree(tenant, root_id)
            if background:  # else somebody may still answer it, with another response
                await self.stored.cancel_questions(tenant, root_id)
