"""Sub-agents on trial: each says what it was asked, at once."""

from collections.abc import Sequence

from typing_extensions import override

from antwort.context.agents import AgentInfo, AgentResult, AgentTask, SubAgents
from antwort.wire.ids import new_id


class TrialAgents(SubAgents):
    """Agents for functions that are called outside of a run."""

    @override
    def check_model(self, model: str) -> None:
        """Let any be chosen."""

    @override
    async def run_all(self, tasks: Sequence[AgentTask]) -> list[AgentResult]:
        """Return the prompts as answers."""
        ids = [task.continues or new_id("resp") for task in tasks]
        return [AgentResult(name, name, "completed", task.prompt) for name, task in zip(ids, tasks, strict=True)]

    @override
    async def start(self, tasks: Sequence[AgentTask]) -> list[str]:
        """Return new ids."""
        return [result.id for result in await self.run_all(tasks)]

    @override
    async def wait(self, ids: Sequence[str], *, seconds: float | None = None) -> list[AgentResult]:
        """Tell that all are done."""
        return [AgentResult(name, name, "completed", "Done.") for name in ids]

    @override
    async def interrupt(self, agent_id: str) -> AgentResult:
        """Tell that it is interrupted."""
        return AgentResult(agent_id, agent_id, "cancelled")

    @override
    async def close(self, agent_id: str) -> AgentResult:
        """Tell that it is closed."""
        return await self.interrupt(agent_id)

    @override
    async def list(self) -> Sequence[AgentInfo]:
        """Return none: all are done and forgotten."""
        return []
