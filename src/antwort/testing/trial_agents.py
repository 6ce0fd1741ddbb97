"""Sub-agents on trial: each says what it was asked, at once."""

from collections.abc import Sequence

from antwort.context import Context
from antwort.context.agents import AgentInfo, AgentResult, AgentTask, SubAgents
from antwort.wire.ids import new_id


class TrialAgents:
    """Agents for functions that are called outside of a run."""

    def of(self, ctx: Context) -> SubAgents:
        """Return what a call can do with sub-agents."""
        return SubAgents(self, ctx)

    def check_model(self, ctx: Context, model: str) -> None:
        """Let any be chosen."""

    async def run(self, ctx: Context, tasks: Sequence[AgentTask]) -> list[AgentResult]:  # noqa: ARG002 - the protocol's
        """Return the prompts as answers."""
        ids = [task.continues or new_id("resp") for task in tasks]
        return [AgentResult(name, name, "completed", task.prompt) for name, task in zip(ids, tasks, strict=True)]

    async def start(self, ctx: Context, tasks: Sequence[AgentTask]) -> list[str]:
        """Return new ids."""
        return [result.id for result in await self.run(ctx, tasks)]

    async def wait(
        self,
        ctx: Context,  # noqa: ARG002
        ids: Sequence[str],
        *,
        seconds: float | None = None,  # noqa: ARG002
    ) -> list[AgentResult]:
        """Tell that all are done."""
        return [AgentResult(name, name, "completed", "Done.") for name in ids]

    async def interrupt(self, ctx: Context, agent_id: str) -> AgentResult:  # noqa: ARG002
        """Tell that it is interrupted."""
        return AgentResult(agent_id, agent_id, "cancelled")

    async def close(self, ctx: Context, agent_id: str) -> AgentResult:
        """Tell that it is closed."""
        return await self.interrupt(ctx, agent_id)

    async def children(self, ctx: Context) -> list[AgentInfo]:  # noqa: ARG002
        """Return none: all are done and forgotten."""
        return []

    async def tree(self, tenant: str, response_id: str) -> list[AgentInfo] | None:  # noqa: ARG002
        """Return nothing: there are no responses."""
        return None
