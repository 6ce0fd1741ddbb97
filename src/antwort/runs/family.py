"""The agents of a run that are in memory: what they do, whose they are, and what they have said."""

import asyncio
from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from antwort.context import Context
from antwort.context.agents import AgentResult, AgentTask
from antwort.engine.turns.loop import Loop
from antwort.errors import FunctionError, did_you_mean
from antwort.storage.base import JournalEntry


class Said(msgspec.Struct, frozen=True):
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


class Family:
    """The agents of a run that are in memory: those nobody waits for yet, and what is known of others."""

    def __init__(self) -> None:
        self.tasks: dict[str, asyncio.Task[AgentResult | None]] = {}
        """What agents are doing, by their ids; the result is None if one waits for somebody."""
        self.latest: dict[str, Said] = {}
        """What each agent has said last."""
        self.loops: dict[str, Loop] = {}
        """What makes their responses."""
        self.said: dict[str, list[JournalEntry]] = {}
        """What was read and said in responses that are not stored, by their ids."""
        self.closed: set[str] = set()
        """Agents that get no further input."""
        self._owners: dict[str, str | None] = {}
        """The agents that have started them."""

    def take(self, agent_id: str, said: Said, owner: str | None) -> None:
        """Take note of the latest response of an agent."""
        self.latest[agent_id] = said
        self._owners.setdefault(agent_id, owner)

    def close(self, agent_id: str, result: AgentResult) -> None:
        """Take note that an agent is closed, and forget what is there for its next response."""
        self.closed.add(agent_id)
        self.said.pop(result.response_id, None)

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


def unknown_agent(agent_id: str, known: Iterable[str]) -> FunctionError:
    """Return the error for an agent that is not there, or that another one has started."""
    return FunctionError(
        f"There is no agent '{agent_id[:64]}' in this run that is yours{did_you_mean(agent_id, [*known]) or '.'}"
    )
