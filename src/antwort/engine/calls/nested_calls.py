"""Calls that a call makes itself, such as those of a program: kept in the journal beside it, and answered from there.

No entry of them is for models or clients. One that waits for somebody, or is shown because the request wants to see
calls, has an item besides, with who has made it.
"""

import re
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from functools import cached_property
from itertools import count
from typing import Any

import msgspec

from antwort.context import Context, Progress, Source, Sources
from antwort.context.calls import CallableFunction, CallResult
from antwort.context.suspension import SuspendedError, Suspension
from antwort.engine.calls.items import OWN
from antwort.engine.calls.lifecycle import NESTED, CallLifecycle, NextStep, ServerCall, interrupt, is_repeatable
from antwort.engine.tools.targets import Target
from antwort.errors import FunctionError, did_you_mean
from antwort.functions import ToolResult
from antwort.storage.base import JournalEntry
from antwort.storage.call_record import CallRecord, GivenAnswer
from antwort.types import JSON
from antwort.wire.ids import new_id

_INLINE = 50_000
"""Characters of a result that a caller gets as it is; a longer one becomes a variable, if there are any."""
_KEY = re.compile(r"[a-zA-Z0-9_-]{1,40}")
_NO_SOURCES: Mapping[int, Source] = {}


class NestedCalls(msgspec.Struct, eq=False, dict=True):
    """The calls that one call makes: as the facade has them.

    It does not have the context of the call that makes them: that has it, and with each other both would outlive the
    call, with all that they hold, until garbage is collected.
    """

    _life: CallLifecycle
    _call_id: str
    _sources: Sources
    _attached: bool
    _emit: Callable[[Progress], None]
    _say: Callable[[str], Awaitable[None]]
    _keys: Iterator[int] = msgspec.field(default_factory=count)
    _under_way: set[str] = set()
    _known: dict[str, int] | None = None
    _closed: bool = False
    _approvals: dict[str, bool] = {}

    @cached_property
    def functions(self) -> Mapping[str, CallableFunction]:
        """What can be called, by name."""
        return {
            name: CallableFunction(name, str(target.definition.get("description", "")), _parameters(target))
            for name, target in self._life.plan.toolset.targets.items()
            if _is_callable(target)
        }

    async def call(
        self, name: str, arguments: Mapping[str, Any], *, key: str | None = None, references: Collection[str] = ()
    ) -> CallResult:
        """Call a function, and wait for what comes of it."""
        key = str(next(self._keys)) if key is None else key
        if not _KEY.fullmatch(key):
            raise FunctionError(f"'{key[:60]}' is no key of a call; use up to 40 letters, digits, '_' or '-'.")
        if name not in self.functions:
            hint = did_you_mean(name, self.functions)
            return _failed(f"There is no function '{name[:64]}' that can be called from here{hint or '.'}", "unknown")
        call_id = f"{self._call_id}.{key}"
        if call_id in self._under_way:
            raise FunctionError(f"The call '{key}' is under way already.")
        target, text = self._life.plan.toolset.targets[name], _encoded(arguments)
        self._under_way.add(call_id)
        try:
            position = self._positions.get(call_id)
            made = None if position is None else self._call_at(position, target)
            if made is not None:
                return await self._go_on(made, target, text)
            turn, handed_on = self._life.totals.turns, tuple(sorted(references))
            return await self._make(
                CallRecord(call_id, name, text, turn, parent=self._call_id, references=handed_on), target
            )
        finally:
            self._under_way.discard(call_id)

    def close(self) -> None:
        """End what waits although its caller is done, and let nothing begin or wait any more."""
        self._closed = True
        if self._known is None and not self._attached:  # it has made none
            return
        for position in self._positions.values():
            entry = self._life.journal.entries[position]
            if entry.call is not None and not entry.call.is_over:
                interrupt(entry, self._life.emitter)
                self._life.journal.change(position)

    @property
    def answer(self) -> GivenAnswer | None:
        """What the last of the calls has given that end the agent; None if there was none."""
        if self._known is None and not self._attached:
            return None
        calls = [self._life.journal.entries[position].call for position in self._positions.values()]
        given = [call.gives for call in calls if call is not None and call.gives is not None]
        return given[-1] if given else None

    def _check_open(self) -> None:
        """Raise a FunctionError if the caller is done: a task that it has left behind may go on without it."""
        if self._closed:
            raise FunctionError("What makes the call is over.")

    # --- one call ----------------------------------------------------------------------------------------------------

    async def _make(self, record: CallRecord, target: Target) -> CallResult:
        """Make a call, if it is admitted."""
        life, slots = self._life, self._life.slots
        if not slots.take():
            await slots.wait()
        try:
            self._check_open()
            asks, refusal = self._asks(target), None
            if target.spec is not None and target.spec.ends_agent:
                refusal = life.admission.ending_refusal(self._turn)
            refusal = refusal or life.admission.nested_refusal(target, asks=asks)
            call = life.begin(record, target, {"id": new_id("afc"), "type": OWN}, NESTED, refusal=refusal)
            self._positions[record.call_id] = call.position
            if refusal is not None:
                result = ToolResult.error(refusal, "denied")
            elif asks:
                life.ask_approval(record, target)
                await self._store(call.position)
                raise SuspendedError(Suspension("calls"))
            else:
                if not is_repeatable(target) and life.journal.store is not None:
                    await life.saves.save(call.position)  # it is known to have started before it starts
                result = await self._run(call, target, attached=self._attached and is_repeatable(target))
        finally:
            slots.give_back()
        return await self._end(call, result)

    def _asks(self, target: Target) -> bool:
        """Tell whether calls of a function are made only after a yes; for all of them it is the same."""
        asks = self._approvals.get(target.name)
        if asks is None:
            asks = self._approvals[target.name] = self._life.admission.needs_approval(target)
        return asks

    def _call_at(self, position: int, target: Target) -> ServerCall | None:
        """Return a call that was made before."""
        entry = self._life.journal.entries[position]
        if entry.call is None:
            return None
        return ServerCall(entry.call, entry, target, self._life.plan.ctx.sources.noting(), position)

    async def _go_on(self, call: ServerCall, target: Target, arguments: str) -> CallResult:
        """Return what there is of a call that was made before, or go on with it."""
        life, record = self._life, call.record
        if (record.name, record.arguments) != (target.name, arguments):
            raise FunctionError(
                f"The call '{record.call_id}' was one of {record.name} before, with other arguments perhaps: "
                "what makes it has taken another way this time."
            )
        step = life.go_on(record, target)
        if step is NextStep.NOTHING:
            self._note_sources(record)
            return _result(record)
        if step is NextStep.WAIT:
            raise SuspendedError(Suspension("calls"))
        if step is NextStep.END:
            life.end(record, target, life.answer_result(record), _NO_SOURCES)
            await self._store(call.position)
            return _result(record)
        if not life.slots.take():
            await life.slots.wait()
        try:
            self._check_open()
            if step is NextStep.INTERRUPT:
                interrupt(call.entry, life.emitter)
                await self._store(call.position)
                return _result(record)
            if step is NextStep.BEGIN:
                record.begin()
                if not is_repeatable(target):
                    await self._store(call.position)
            result = await self._run(call, target, attached=step is NextStep.GO_ON)
        finally:
            life.slots.give_back()
        return await self._end(call, result)

    def _run(self, call: ServerCall, target: Target, *, attached: bool) -> Awaitable[ToolResult]:
        if target.executor is None or target.spec is None:
            return self._ask_client(call.record)
        return self._life.run(call.record, target, self._context(call, target, attached=attached))

    async def _ask_client(self, record: CallRecord) -> ToolResult:
        wanted = {"question": f"The program calls {record.name}", "arguments": record.arguments}
        return ToolResult("", suspension=Suspension("question", wanted))

    @cached_property
    def _shared_context(self) -> Context:
        """What the contexts of all calls have in common."""
        plan = self._life.plan
        return plan.ctx.with_(
            origin=plan,
            emit=self._emit,
            say=self._say,
            follows_references=True,  # a long result becomes a variable, if there are any
            inline=_INLINE,
        )

    def _context(self, call: ServerCall, target: Target, *, attached: bool) -> Context:
        record = call.record
        return msgspec.structs.replace(
            self._shared_context,
            call_id=record.call_id,
            options=self._life.plan.options_of(target),
            opened_name=target.opened_name,
            sources=call.sources,
            fence=self._life.journal.fence,
            attached=attached,
            child_numbers=count(),
            references=record.references,
        )

    async def _end(self, call: ServerCall, result: ToolResult) -> CallResult:
        self._check_open()
        life, record = self._life, call.record
        if result.suspension is not None:
            if life.wait(record, result.suspension) and record.asks:
                life.show_question(record, self._caller)
            await self._store(call.position)
            raise SuspendedError(Suspension("calls"))
        given = life.end(record, call.target, result, call.sources.noted(), for_code=True)
        if given is not None:
            record.gives = given
        if record.sources:
            self._note_sources(record)
        if life.plan.shown.calls and call.refusal is None:
            self._show(record)
        if life.journal.store is not None:
            await life.saves.save(call.position)
        return _result(record)

    def _show(self, record: CallRecord) -> None:
        item: JSON = {"id": new_id("afc"), "type": OWN, "status": "completed", "call_id": record.call_id}
        item.update(name=record.name, arguments=record.arguments, output=record.output, content=[])
        item["caller"] = self._caller
        self._life.emitter.whole(item)
        self._life.show(item)

    @property
    def _turn(self) -> list[str]:
        """The functions that the model calls in this turn."""
        turn, said = self._life.totals.turns, self._life.journal.said()
        calls = [entry.call for entry in said if entry.direction == "output" and entry.call is not None]
        return [call.name for call in calls if call.turn == turn]

    @property
    def _caller(self) -> JSON:
        return {"type": "program", "caller_id": self._call_id}

    # --- the journal -------------------------------------------------------------------------------------------------

    @property
    def _positions(self) -> dict[str, int]:
        """Where the calls that were made are in the journal, by their ids; looked for once."""
        if self._known is None:
            self._known = {
                entry.call.call_id: position
                for position, entry in enumerate(self._life.journal.entries)
                if entry.direction == NESTED and entry.call is not None and entry.call.parent == self._call_id
            }
        return self._known

    async def _store(self, position: int) -> None:
        """Store a call as it is."""
        if self._life.journal.store is not None:
            await self._life.saves.save(position)

    def _note_sources(self, record: CallRecord) -> None:
        """Let the caller have noted what a call has found: an answer may cite it."""
        for source in msgspec.convert(record.sources or {}, dict[int, Source], str_keys=True).values():
            self._sources.add(source)


def nested_questions(entries: list[JournalEntry], call_id: str) -> dict[str, str]:
    """Return the questions that calls of a call wait for: the ids of those calls by the ids of the questions."""
    found = {}
    for entry in entries:
        call = entry.call
        if call is not None and call.parent == call_id and call.waiting is not None and call.question is not None:
            found[call.question] = call.call_id
    return found


def _is_callable(target: Target) -> bool:
    spec = target.spec
    if not target.is_programmatic or target.tool is not None:
        return False
    return spec is None or not spec.calls_functions


def _parameters(target: Target) -> Mapping[str, Any]:
    parameters = target.definition.get("parameters")
    return parameters if isinstance(parameters, Mapping) else {}


def _encoded(arguments: Mapping[str, Any]) -> str:
    try:
        return msgspec.json.encode(arguments).decode()
    except (TypeError, ValueError, UnicodeError, RecursionError) as error:
        raise FunctionError(f"The arguments cannot be written as JSON: {error}") from error


def _failed(message: str, status: str) -> CallResult:
    return CallResult(message, is_error=True, status=status)


def _result(record: CallRecord) -> CallResult:
    status = record.status or "success"
    return CallResult(record.output or "", status != "success", status, record.json)
