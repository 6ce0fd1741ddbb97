"""Executing the calls of one turn: in parallel and bounded, with the order kept."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from antwort.context import Source, Sources
from antwort.engine.emitter import Emitter, ModelCall
from antwort.engine.history import INTERRUPTED
from antwort.engine.journal import Journal
from antwort.engine.plan import Plan
from antwort.engine.tools import Choice, Target
from antwort.engine.totals import Totals
from antwort.functions import Hosted, ToolResult
from antwort.storage.base import JournalEntry
from antwort.types import JSON
from antwort.wire.ids import new_id

logger = logging.getLogger(__name__)

_OWN = "antwort:function_call"
"""The item of a call that has none of its own."""
_OURS = frozenset({"id", "type", "status"})
"""The fields of an item that no function sets."""
_REPEATS = 3
"""How often the same call of an idempotent function is executed before the model is told to stop."""


@dataclass(slots=True)
class ServerCall:
    """A call that the server executes."""

    call_id: str
    name: str
    arguments: str
    target: Target | None
    sources: Sources
    """What an answer may cite; those that this call adds are noted apart."""
    turn: int = 0
    """The model turn that made it: calls of one turn are parallel."""
    refusal: str | None = None
    """Why it is not executed; the model reads this instead of a result."""
    entry: JournalEntry | None = None
    position: int = -1
    output_index: int = -1
    """Where its item stands in the output; -1 if it has none."""

    @property
    def key(self) -> tuple[str, str]:
        """What makes two calls the same."""
        return self.name, self.arguments


def admit(call: ModelCall, plan: Plan, choice: Choice, totals: Totals) -> ServerCall:
    """Decide whether a call is executed; one that is not has the reason for the model to read."""
    target = plan.toolset.targets.get(call.name)
    server = ServerCall(call.call_id, call.name, call.arguments, target, plan.ctx.sources.noting(), totals.turns)
    if target is None:
        names = ", ".join(name for name in plan.toolset.targets if choice.permits(name))
        server.refusal = f"There is no function '{call.name[:64]}' here. Available: {names or 'none'}."
    elif not choice.permits(call.name):
        server.refusal = f"{call.name} may not be called now."
    elif plan.max_tool_calls is not None and totals.tool_calls >= plan.max_tool_calls:
        server.refusal = "The limit of function calls for this response is reached. Answer with what you have."
        totals.without_tools = True
    elif target.spec is not None and target.spec.idempotent and totals.made.get(server.key, 0) >= _REPEATS:
        server.refusal = "You have made this very call before; its result does not change. Use it."
    else:
        totals.tool_calls += 1
        totals.made[server.key] = totals.made.get(server.key, 0) + 1
    return server


def begin(call: ServerCall, plan: Plan, emitter: Emitter) -> JournalEntry:
    """Begin a call: make its item, tell its phases, and return its journal entry."""
    spec = call.target.spec if call.target is not None else None
    face = spec.hosted if spec is not None and call.refusal is None else None
    record: JSON = {"call_id": call.call_id, "name": call.name, "arguments": call.arguments, "turn": call.turn}
    if face is not None and face.item is not None:
        prefix = "".join(word[:1] for word in face.item.split("_") if word != "call")
        item: JSON = {"id": new_id(prefix), "type": face.item, "status": "in_progress", **_described(call, face)}
        call.output_index = emitter.add(item)
        for phase in face.phases:
            emitter.phase(call.output_index, face.item, phase)
        call.entry = JournalEntry("output", item, visible=True, call=record)
    else:
        item = {
            "id": new_id("afc"),
            "type": _OWN,
            "status": "in_progress",
            "name": call.name,
            "arguments": call.arguments,
            "output": "",
            "content": [],
        }
        if plan.show_calls:
            call.output_index = emitter.add(item)
        call.entry = JournalEntry("output", item, visible=plan.show_calls, call=record)
    return call.entry


def end(call: ServerCall, result: ToolResult, noted: Mapping[int, Source], plan: Plan, emitter: Emitter) -> None:
    """End a call: fill its item and its journal entry with the result, and with the sources that the result shows."""
    entry = call.entry
    if entry is None or entry.call is None:
        return
    entry.call["output"] = result.output
    entry.call["status"] = result.status
    if noted:
        entry.call["sources"] = msgspec.to_builtins(noted, str_keys=True)
    item = entry.item
    face = call.target.spec.hosted if call.target is not None and call.target.spec is not None else None
    if item["type"] == _OWN:
        item["status"] = "completed"
        item["output"] = result.output
    else:
        if face is not None and face.item == item["type"]:
            item.update(_found(call, face, result, plan.include))
        item["status"] = "failed" if result.is_error else "completed"
    if call.output_index >= 0:
        if item["type"] != _OWN and not result.is_error:
            emitter.phase(call.output_index, str(item["type"]), "completed")
        emitter.done(call.output_index)


def interrupt(entry: JournalEntry, emitter: Emitter) -> bool:
    """End a call that was started and whose result nobody will know; return False if it is none."""
    call, item = entry.call, entry.item
    if call is None or "output" in call or "name" not in call:
        return False
    call["output"], call["status"] = INTERRUPTED, "error"
    if item["type"] == _OWN:
        item["status"], item["output"] = "completed", INTERRUPTED
    else:
        item["status"] = "failed"
    index = emitter.replace(entry.item)
    if index >= 0:
        emitter.done(index)
    return True


async def finish_started(
    journal: Journal,
    plan: Plan,
    emitter: Emitter,
    *,
    execute: Callable[[ServerCall], Awaitable[ToolResult]],
    keep: Callable[[], None],
) -> None:
    """Go on after a crash: execute again the calls that can be repeated; the others are told to be interrupted."""
    for position, entry in enumerate(journal.entries):
        record = entry.call
        if record is None or "output" in record or "name" not in record:
            continue
        target = plan.toolset.targets.get(record["name"])
        if target is not None and target.spec is not None and target.spec.idempotent:
            sources = plan.ctx.sources.noting()
            call = ServerCall(record["call_id"], record["name"], record["arguments"], target, sources, entry=entry)
            call.output_index = emitter.replace(entry.item)
            end(call, await execute(call), sources.noted(), plan, emitter)
        else:
            interrupt(entry, emitter)
        keep()
        await journal.save_at(position)
    await emitter.flush()


def grouped(calls: list[ServerCall]) -> dict[str, list[ServerCall]]:
    """Put equal calls of idempotent functions together, by the id of the first: they are executed once."""
    groups: dict[str, list[ServerCall]] = {}
    leaders: dict[tuple[str, str], str] = {}
    for call in calls:
        spec = call.target.spec if call.target is not None else None
        if spec is not None and spec.idempotent and call.key in leaders:
            groups[leaders[call.key]].append(call)
        else:
            leaders.setdefault(call.key, call.call_id)
            groups[call.call_id] = [call]
    return groups


async def run_all(
    calls: Sequence[ServerCall],
    execute: Callable[[ServerCall], Awaitable[ToolResult]],
    finished: Callable[[ServerCall, ToolResult], Awaitable[None]],
    *,
    limit: int,
) -> None:
    """Execute calls, at most `limit` at a time; `finished` is told of each at once, in whatever order they end."""
    if limit == 1 or len(calls) == 1:
        for call in calls:
            await finished(call, await execute(call))
        return
    slots = asyncio.Semaphore(limit)

    async def one(call: ServerCall) -> None:
        async with slots:
            result = await execute(call)
        await finished(call, result)

    tasks = [asyncio.ensure_future(one(call)) for call in calls]
    try:
        await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


def _decoded(arguments: str) -> JSON:
    try:
        value = msgspec.json.decode(arguments or "{}")
    except (msgspec.DecodeError, UnicodeError):
        return {}
    return value if isinstance(value, dict) else {}


def _described(call: ServerCall, face: Hosted) -> JSON:
    """Return what a function says about a call that begins."""
    if face.describe is None:
        return {}
    try:
        return _fields(call, face.describe(_decoded(call.arguments)))
    except BaseException:  # a provider's own code, and no reason for a response to fail
        logger.exception("function %s: `describe` has failed; the item has no fields of its own", call.name)
        return {}


def _found(call: ServerCall, face: Hosted, result: ToolResult, asked: frozenset[str]) -> JSON:
    """Return what the item of a call tells about its result."""
    try:
        return _gated(_fields(call, result.item), face.includes, asked)
    except BaseException:
        logger.exception("function %s: the item of its result cannot be read", call.name)
        return {}


def _fields(call: ServerCall, given: Any) -> JSON:
    """Return the fields of an item as plain JSON, without those that cannot be written, or are not the function's."""
    if not isinstance(given, Mapping):
        logger.error("function %s: the fields of its item are a mapping, not %s", call.name, type(given).__name__)
        return {}
    fields: JSON = {}
    for name, value in given.items():
        if not isinstance(name, str) or name in _OURS:
            logger.error("function %s: %.40r is no field of an item that it can set", call.name, name)
            continue
        try:
            msgspec.json.encode(name)
            fields[name] = msgspec.json.decode(msgspec.json.encode(value))
        except Exception as error:  # noqa: BLE001 - a value may be anything, and raise anything
            logger.error(  # noqa: TRY400 - what is wrong is the value, not where it is written
                "function %s: the field '%s' of its item is no JSON: %s", call.name, ascii(name), type(error).__name__
            )
    return fields


def _gated(fields: JSON, includes: Any, asked: frozenset[str]) -> JSON:
    """Leave out of an item's fields what only a request sees that asks for it."""
    for value, path in includes.items():
        if value in asked:
            continue
        *parents, last = path.split(".")
        holder: Any = fields
        for parent in parents:
            holder = dict(holder[parent]) if isinstance(holder, dict) and isinstance(holder.get(parent), dict) else None
            if holder is None:
                break
        if not parents:
            fields.pop(last, None)  # an item that always shows the field has it since the call began
        elif holder is not None and len(parents) == 1:
            holder.pop(last, None)
            fields[parents[0]] = holder
    return fields
