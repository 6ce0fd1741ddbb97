"""What is stored of sub-agents: found again, listed, and ended when nobody works on them any more."""

import logging
import time
from typing import Literal

from antwort.context import Context
from antwort.context.agents import AgentInfo, AgentResult
from antwort.engine.engine import Engine, shown
from antwort.engine.journal import Journal
from antwort.engine.turns.ending import as_told
from antwort.errors import APIError
from antwort.runs.agent_info import agent_id_of, last_of_each, result_of, stored_info, task_of, unknown_agent
from antwort.storage.base import ACTIVE, FencedError, ResponseRecord
from antwort.wire.responses import stored_response

logger = logging.getLogger(__name__)


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
