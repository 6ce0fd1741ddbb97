"""What a model reads of what came of agents: short answers as they are, long and many ones by reference."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from antwort.provider import AgentInfo, AgentResult, Context, FunctionError
from antwort.providers.sub_agents.references import cut, keep, keep_text, shown

_HEADS, _HEAD = 3, 120
"""How many answers are shown of very many, and how much of each."""
_LISTED = 20
_REASONS = 3


async def one(ctx: Context, result: AgentResult, *, most: int) -> dict[str, Any]:
    """Return what a model reads of one agent."""
    told = _status_fields(result)
    if result.text:
        told["result"] = await _answer(ctx, result, most)
    return told


async def answer(ctx: Context, result: AgentResult, *, most: int) -> Any:
    """Return what a model that was asked once has answered; a FunctionError if it has not."""
    if result.text and result.status in {"completed", "incomplete"}:
        shortened = await _answer(ctx, result, most)
        return shortened if result.is_answer else {**_status_fields(result), "result": shortened}
    raise FunctionError(f"The model has not answered: {result.reason or result.status}.")


async def many(ctx: Context, results: Sequence[AgentResult], *, most: int) -> Any:
    """Return what a model reads of many agents: all of it if it is short, else counts, heads, and one reference."""
    whole = [
        {**_status_fields(result), "result": _given(result)} if result.text else _status_fields(result)
        for result in results
    ]
    if len(msgspec.json.encode(whole)) <= most:
        return whole
    summary: dict[str, Any] = {"statuses": dict(Counter(result.status for result in results))}
    reasons = Counter(cut(result.reason, _HEAD) for result in results if result.reason is not None)
    if reasons:
        summary["reasons"] = dict(reasons.most_common(_REASONS))
    numbered = [{"index": index, **told} for index, told in enumerate(whole)]
    variable = await keep(ctx, f"results_{ctx.call_id}", numbered)
    if variable is None:
        share = max(20, (most - 200) // len(results))
        return {**summary, "results": [cut(result.text, share)[: share + 60] for result in results]}
    summary["first"] = [head(result.text) for result in results[:_HEADS]]
    return {**summary, "results": {**variable.reference, "size": variable.size, "type": "json", "of": len(results)}}


def listed(agents: Sequence[AgentInfo]) -> dict[str, Any]:
    """Return what a model reads of its agents: how many there are in which state, and the last ones."""
    last = [{"agent": agent.id, "name": agent.name, "status": agent.status} for agent in agents[-_LISTED:]]
    told: dict[str, Any] = {"statuses": dict(Counter(agent.status for agent in agents)), "agents": last}
    return {**told, "left_out": len(agents) - len(last)} if len(last) < len(agents) else told


def head(text: str) -> str:
    """Return how a text begins."""
    return text if len(text) <= _HEAD else f"{text[:_HEAD]}…"


def _status_fields(result: AgentResult) -> dict[str, Any]:
    told: dict[str, Any] = {"agent": result.id, "status": result.status} if result.id else {"status": result.status}
    return told if result.reason is None else {**told, "reason": result.reason}


def _given(result: AgentResult) -> Any:
    if result.reference is not None:
        return {"$ref": result.reference}
    return msgspec.json.decode(result.text) if result.is_json else result.text


async def _answer(ctx: Context, result: AgentResult, most: int) -> Any:
    if result.reference is None:
        if result.is_json and len(result.text) <= most:
            return _given(result)
        return await keep_text(ctx, f"answer_{result.response_id}", result.text, most, is_json=result.is_json)
    try:
        return await shown(ctx, await ctx.variables.find(result.reference))
    except FunctionError:  # it is gone by now
        return cut(result.text, most)
