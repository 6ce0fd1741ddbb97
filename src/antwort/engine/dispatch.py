"""The calls of a response that the server executes: in parallel and bounded, with the order kept."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from antwort.context import Source, Sources
from antwort.engine.emitter import Emitter, ModelCall
from antwort.engine.history import INTERRUPTED
from antwort.engine.journal import Journal
from antwort.engine.plan import Plan
from antwort.engine.tool_choice import Choice
from antwort.engine.tools import Target
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


@dataclass(frozen=True, slots=True)
class ServerCall:
    """A call that has begun: its item is told, its entry is in the journal."""

    call_id: str
    name: str
    arguments: str
    target: Target | None
    sources: Sources
    """What an answer may cite; those that this call adds are noted apart."""
    refusal: str | None
    """Why it is not executed; the model reads this instead of a result."""
    entry: JournalEntry
    position: int
    """Where its entry stands in the journal."""
    output_index: int
    """Where its item stands in the output; -1 if it has none."""

    @property
    def face(self) -> Hosted | None:
        """How the function shows itself to clients, if it does."""
        return self.target.spec.hosted if self.target is not None and self.target.spec is not None else None

    @property
    def is_idempotent(self) -> bool:
        """Tell whether the call may be executed again, or once for several equal ones."""
        return self.target is not None and self.target.spec is not None and self.target.spec.idempotent


class Dispatch:
    """Owns the calls of one response: it begins, executes and ends them, and stores each step before it is told.

    `keep` is called before each write, to store with it how far the response has come; `progress` when a function has
    returned.
    """

    def __init__(
        self,
        plan: Plan,
        journal: Journal,
        emitter: Emitter,
        totals: Totals,
        *,
        parallel: int,
        keep: Callable[[], None],
        progress: Callable[[], None],
    ) -> None:
        self._plan = plan
        self._journal = journal
        self._emitter = emitter
        self._totals = totals
        self._parallel = 1 if plan.create.parallel_tool_calls is False else parallel
        self._keep = keep
        self._progress = progress

    async def execute(self, calls: Iterable[ModelCall], choice: Choice) -> None:
        """Execute the calls of a turn. Each is ended as soon as its function returns, in whatever order they do."""
        begun = [self._begin(call, choice) for call in calls]
        self._keep()
        await self._journal.save()  # a call is known to have started before it starts
        await self._emitter.flush()
        await _for_each(_grouped(begun), self._execute_group, limit=self._parallel)

    async def finish_started(self) -> None:
        """Go on after a crash: execute again the calls that can be repeated; the others are told to be interrupted."""
        for position, entry in enumerate(self._journal.entries):
            if not _is_under_way(entry):
                continue
            call = self._begun_before(entry, position)
            if call.is_idempotent:
                self._end(call, await self._run(call), call.sources.noted())
            else:
                _interrupt(entry, self._emitter)
            self._keep()
            await self._journal.save_at(position)
        await self._emitter.flush()

    async def _execute_group(self, group: Sequence[ServerCall]) -> None:
        """Execute equal calls once, and end them all."""
        leader = group[0]
        result = await self._run(leader)
        for call in group:
            self._end(call, result, leader.sources.noted())
            self._keep()
            await self._journal.save_at(call.position)
        await self._emitter.flush()

    async def _run(self, call: ServerCall) -> ToolResult:
        target = call.target
        if call.refusal is not None or target is None or target.executor is None or target.spec is None:
            return ToolResult.error(call.refusal or "There is no such function.", "denied")
        ctx = self._plan.ctx.with_(call_id=call.call_id, options=target.options or {}, sources=call.sources)
        name = target.spec.name
        try:
            result = ToolResult.of(await target.executor.execute(name, call.arguments, ctx))
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException:  # an executor may be anybody's
            logger.exception("the executor of function %s has failed", name)
            result = ToolResult.error(f"{name} failed.")
        self._progress()
        return result

    def _begin(self, call: ModelCall, choice: Choice) -> ServerCall:
        """Decide whether a call is executed, make its item, tell its phases, and take it into the journal."""
        target = self._plan.toolset.targets.get(call.name)
        refusal = self._admit(call, target, choice)
        record: JSON = {
            "call_id": call.call_id,
            "name": call.name,
            "arguments": call.arguments,
            "turn": self._totals.turns,  # calls of one turn are parallel
        }
        face = target.spec.hosted if target is not None and target.spec is not None and refusal is None else None
        if face is not None and face.item is not None:
            visible = True
            prefix = "".join(word[:1] for word in face.item.split("_") if word != "call")
            fields = _described(call.name, call.arguments, face)
            item: JSON = {"id": new_id(prefix), "type": face.item, "status": "in_progress", **fields}
        else:
            visible = self._plan.show_calls
            item = {
                "id": new_id("afc"),
                "type": _OWN,
                "status": "in_progress",
                "name": call.name,
                "arguments": call.arguments,
                "output": "",
                "content": [],
            }
        index = self._emitter.add(item) if visible else -1
        if face is not None and face.item is not None:
            for phase in face.phases:
                self._emitter.phase(index, face.item, phase)
        entry = JournalEntry("output", item, visible=visible, call=record)
        position = self._journal.note(entry)
        sources = self._plan.ctx.sources.noting()
        return ServerCall(call.call_id, call.name, call.arguments, target, sources, refusal, entry, position, index)

    def _admit(self, call: ModelCall, target: Target | None, choice: Choice) -> str | None:
        """Count a call that is executed; return why one is not, for the model to read."""
        plan, totals = self._plan, self._totals
        if target is None:
            names = ", ".join(name for name in plan.toolset.targets if choice.permits(name))
            return f"There is no function '{call.name[:64]}' here. Available: {names or 'none'}."
        if not choice.permits(call.name):
            return f"{call.name} may not be called now."
        if plan.max_tool_calls is not None and totals.tool_calls >= plan.max_tool_calls:
            totals.without_tools = True
            return "The limit of function calls for this response is reached. Answer with what you have."
        made = totals.made.get((call.name, call.arguments), 0)
        if target.spec is not None and target.spec.idempotent and made >= _REPEATS:
            return "You have made this very call before; its result does not change. Use it."
        totals.tool_calls += 1
        totals.made[call.name, call.arguments] = made + 1
        return None

    def _begun_before(self, entry: JournalEntry, position: int) -> ServerCall:
        """Return a call that another process has begun."""
        record = entry.call or {}
        target = self._plan.toolset.targets.get(record["name"])
        return ServerCall(
            record["call_id"],
            record["name"],
            record["arguments"],
            target,
            self._plan.ctx.sources.noting(),
            None,
            entry,
            position,
            self._emitter.replace(entry.item),
        )

    def _end(self, call: ServerCall, result: ToolResult, noted: Mapping[int, Source]) -> None:
        """Fill the item and the journal entry of a call with the result, and with the sources that it shows."""
        record, item, face = call.entry.call, call.entry.item, call.face
        if record is None:
            return
        record["output"], record["status"] = result.output, result.status
        if noted:
            record["sources"] = msgspec.to_builtins(noted, str_keys=True)
        if item["type"] == _OWN:
            item["status"] = "completed"
            item["output"] = result.output
        else:
            if face is not None and face.item == item["type"]:
                item.update(_found(call.name, face, result, self._plan.include))
            item["status"] = "failed" if result.is_error else "completed"
        if call.output_index >= 0:
            if item["type"] != _OWN and not result.is_error:
                self._emitter.phase(call.output_index, str(item["type"]), "completed")
            self._emitter.done(call.output_index)


def interrupt_calls(journal: Journal, emitter: Emitter) -> None:
    """End the calls that have started and whose results nobody will know, because the response ends."""
    for position, entry in enumerate(journal.entries):
        if _is_under_way(entry):
            _interrupt(entry, emitter)
            journal.change(position)


def _is_under_way(entry: JournalEntry) -> bool:
    return entry.call is not None and "name" in entry.call and "output" not in entry.call


def _interrupt(entry: JournalEntry, emitter: Emitter) -> None:
    item = entry.item
    entry.call = {**(entry.call or {}), "output": INTERRUPTED, "status": "error"}
    if item["type"] == _OWN:
        item["status"], item["output"] = "completed", INTERRUPTED
    else:
        item["status"] = "failed"
    index = emitter.replace(item)
    if index >= 0:
        emitter.done(index)


def _grouped(calls: Iterable[ServerCall]) -> list[list[ServerCall]]:
    """Put equal calls of idempotent functions together: they are executed once."""
    groups: list[list[ServerCall]] = []
    equal: dict[tuple[str, str], list[ServerCall]] = {}
    for call in calls:
        key = call.name, call.arguments
        if call.is_idempotent and key in equal:
            equal[key].append(call)
        else:
            groups.append([call])
            equal.setdefault(key, groups[-1])
    return groups


async def _for_each(
    groups: Sequence[list[ServerCall]], work: Callable[[list[ServerCall]], Awaitable[None]], *, limit: int
) -> None:
    """Work on all, at most `limit` at a time."""
    if limit == 1 or len(groups) == 1:
        for group in groups:
            await work(group)
        return
    slots = asyncio.Semaphore(limit)

    async def one(group: list[ServerCall]) -> None:
        async with slots:
            await work(group)

    tasks = [asyncio.ensure_future(one(group)) for group in groups]
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


def _described(function: str, arguments: str, face: Hosted) -> JSON:
    """Return what a function says about a call that begins."""
    if face.describe is None:
        return {}
    try:
        return _fields(function, face.describe(_decoded(arguments)))
    except BaseException:  # a provider's own code, and no reason for a response to fail
        logger.exception("function %s: `describe` has failed; the item has no fields of its own", function)
        return {}


def _found(function: str, face: Hosted, result: ToolResult, asked: frozenset[str]) -> JSON:
    """Return what the item of a call tells about its result."""
    try:
        return _gated(_fields(function, result.item), face.includes, asked)
    except BaseException:
        logger.exception("function %s: the item of its result cannot be read", function)
        return {}


def _fields(function: str, given: Any) -> JSON:
    """Return the fields of an item as plain JSON, without those that cannot be written, or are not the function's."""
    if not isinstance(given, Mapping):
        logger.error("function %s: the fields of its item are a mapping, not %s", function, type(given).__name__)
        return {}
    fields: JSON = {}
    for name, value in given.items():
        if not isinstance(name, str) or name in _OURS:
            logger.error("function %s: %.40r is no field of an item that it can set", function, name)
            continue
        try:
            msgspec.json.encode(name)
            fields[name] = msgspec.json.decode(msgspec.json.encode(value))
        except Exception as error:  # noqa: BLE001 - a value may be anything, and raise anything
            logger.error(  # noqa: TRY400 - what is wrong is the value, not where it is written
                "function %s: the field '%s' of its item is no JSON: %s", function, ascii(name), type(error).__name__
            )
    return fields


def _gated(fields: JSON, includes: Any, asked: frozenset[str]) -> JSON:
    """Return an item's fields without what only a request sees that asks for it."""
    shown = dict(fields)
    for value, path in includes.items():
        if value in asked:
            continue
        *parents, last = path.split(".")
        if not parents:
            shown.pop(last, None)  # an item that always shows the field has it since the call began
        elif len(parents) == 1 and isinstance(shown.get(parents[0]), dict):
            shown[parents[0]] = {name: field for name, field in shown[parents[0]].items() if name != last}
    return shown
