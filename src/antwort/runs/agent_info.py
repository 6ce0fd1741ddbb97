"""Agents as others see them: while they work, by what is stored of them, and when they are done."""

from collections.abc import Iterable, Sequence

import msgspec

from antwort.context.agents import AgentInfo, AgentResult, AgentTask
from antwort.engine.plan import second_try
from antwort.engine.turns.loop import Loop
from antwort.errors import FunctionError, did_you_mean
from antwort.storage.base import JournalEntry, ResponseRecord
from antwort.wire.responses import ResponseObject, Usage


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
    body = record.body if isinstance(record.body, dict) else msgspec.to_builtins(record.body)
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
