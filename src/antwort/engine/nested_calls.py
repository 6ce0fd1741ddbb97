"""Calls that a call makes itself, such as those of a program: kept in the journal beside it, and answered from there.

No entry of them is for models or clients. One that waits for somebody, or is shown because the request wants to see
calls, has an item besides, with who has made it.
"""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from functools import cached_property
from itertools import count
from typing import Any, Final

import msgspec

from antwort.context import Progress, Source, Sources
from antwort.engine.admission import Admission
from antwort.engine.answers import Answer
from antwort.engine.approvals import approval_body, approval_request, provider_of
from antwort.engine.call_items import OWN
from antwort.engine.call_state import FOR_OTHERS, interrupt, is_under_way, note_wait, waited_for
from antwort.engine.emitter import Emitter
from antwort.engine.history import FOR_CLIENTS, INTERRUPTED, QUESTION_ID, WAITING
from antwort.engine.journal import Journal
from antwort.engine.leaving import LeavingCalls
from antwort.engine.plan import Plan
from antwort.engine.tools import Target
from antwort.engine.totals import Totals
from antwort.errors import FunctionError, did_you_mean
from antwort.functions import ToolResult
from antwort.functions.output import NOTHING
from antwort.run_services import CallableFunction, CallResult, Variable
from antwort.storage.base import JournalEntry
from antwort.suspension import SuspendedError, Suspension
from antwort.types import JSON
from antwort.wire.ids import new_id

logger = logging.getLogger(__name__)

PARENT = "parent"
"""Where a nested call has the id of the call that makes it."""
NESTED: Final = "nested"
"""The direction of such entries."""
_INLINE = 50_000
"""Characters of a result that a caller gets as it is; a longer one becomes a variable, if there are any."""
_KEY = re.compile(r"[a-zA-Z0-9_-]{1,40}")
_APPROVED = "approved"
_REFERENCES = "references"
"""Where it has the ids in its arguments that are references; all else is data."""
ANSWERED = "(given as the answer)"
"""What whoever calls a function that ends the agent gets of it."""
_ANSWER = "gives"
"""Where a call that ends the agent has the answer: it counts when the call that makes it is over."""


class GivenAnswer(msgspec.Struct, frozen=True):
    """What a function that ends the agent has given as the answer."""

    text: str
    reference: str | None = None
    """The id of the variable that it gives back, if it gives one."""

    @classmethod
    def of(cls, result: ToolResult) -> "GivenAnswer":
        """Return what a result gives."""
        return cls(result.output, result.value.id if isinstance(result.value, Variable) else None)


class CallServices(msgspec.Struct, frozen=True, eq=False, dict=True):
    """What the calls of one turn are made with, and those that they make themselves."""

    plan: Plan
    journal: Journal
    emitter: Emitter
    totals: Totals
    admission: Admission
    parallel: int
    """How many calls may be executed at the same time."""
    answers: Mapping[str, Answer]
    """What was said to calls that wait, by question."""
    keep: Callable[[], None]
    """Called before each write, to store with it how far the response has come."""
    progress: Callable[[], None]
    """Called when a function has returned."""
    is_followed: bool
    """Whether anybody stores the steps of the calls, or is told of them."""
    leaving: LeavingCalls
    longest_arguments: int | None
    """Characters of arguments that stay in the window once a call is over."""
    room: Callable[[int], Awaitable[int | None]]
    """Tells how many characters each of so many results may have."""

    @cached_property
    def slots(self) -> asyncio.Semaphore:
        """One for each nested call that is executed."""
        return asyncio.Semaphore(self.parallel)


class NestedCalls(msgspec.Struct, eq=False, dict=True):
    """The calls that one call makes: as the facade has them.

    It does not have the context of the call that makes them: that has it, and with each other both would outlive the
    call, with all that they hold, until garbage is collected.
    """

    _shared: CallServices
    _call_id: str
    _sources: Sources
    _attached: bool
    _emit: Callable[[Progress], None]
    _say: Callable[[str], Awaitable[None]]
    _keys: Iterator[int] = msgspec.field(default_factory=count)
    _under_way: set[str] = set()
    _saving: asyncio.Task[None] | None = None
    _known: dict[str, int] | None = None
    _closed: bool = False

    @cached_property
    def functions(self) -> Mapping[str, CallableFunction]:
        """What can be called, by name."""
        return {
            name: CallableFunction(name, str(target.definition.get("description", "")), _parameters(target))
            for name, target in self._shared.plan.toolset.targets.items()
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
        self._under_way.add(call_id)
        try:
            target = self._shared.plan.toolset.targets[name]
            return await self._call(call_id, target, _encoded(arguments), sorted(references))
        finally:
            self._under_way.discard(call_id)

    def close(self) -> None:
        """End what waits although its caller is done, and let nothing begin or wait any more."""
        self._closed = True
        if self._known is None and not self._attached:  # it has made none
            return
        for position in self._positions.values():
            entry = self._shared.journal.entries[position]
            if is_under_way(entry):
                interrupt(entry, self._shared.emitter)
                self._shared.journal.change(position)

    @property
    def answer(self) -> GivenAnswer | None:
        """What the last of the calls has given that end the agent; None if there was none."""
        if self._known is None and not self._attached:
            return None
        calls = [self._shared.journal.entries[position].call or {} for position in self._positions.values()]
        given = [call[_ANSWER] for call in calls if _ANSWER in call]
        return msgspec.convert(given[-1], GivenAnswer) if given else None

    def _check_open(self) -> None:
        """Raise a FunctionError if the caller is done: a task that it has left behind may go on without it."""
        if self._closed:
            raise FunctionError("What makes the call is over.")

    # --- one call ----------------------------------------------------------------------------------------------------

    async def _call(self, call_id: str, target: Target, arguments: str, references: list[str]) -> CallResult:
        position = self._positions.get(call_id)
        if position is not None:
            return await self._go_on(position, target, arguments)
        record: JSON = {
            "call_id": call_id,
            PARENT: self._call_id,
            "name": target.name,
            "arguments": arguments,
            "turn": self._shared.totals.turns,
        }
        if references:
            record[_REFERENCES] = references
        async with self._shared.slots:
            self._check_open()
            admission = self._shared.admission
            asks = admission.needs_approval(target)
            refusal = None
            if target.spec is not None and target.spec.ends_agent:
                refusal = admission.ending_refusal(target, self._turn)
            refusal = refusal or admission.nested_refusal(target, asks=asks)
            if refusal is not None:
                return await self._end(record, ToolResult.error(refusal, "denied"), {})
            if asks:
                return await self._ask_approval(record, target)
            return await self._execute(record, target, attached=self._attached)

    async def _go_on(self, position: int, target: Target, arguments: str) -> CallResult:
        """Return what there is of a call that was made before, or go on with it."""
        entry = self._shared.journal.entries[position]
        record = entry.call or {}
        if (record["name"], record["arguments"]) != (target.name, arguments):
            raise FunctionError(
                f"The call '{record['call_id']}' was one of {record['name']} before, with other arguments perhaps: "
                "what makes it has taken another way this time."
            )
        if "output" in record:
            self._note_sources(record)
            return _result(record)
        wait = waited_for(entry)
        if wait is not None and wait.kind not in FOR_OTHERS:
            answer = self._shared.answers.get(record[QUESTION_ID])
            if answer is None:
                raise SuspendedError(Suspension("calls"))
            apply_answer(record, answer)
            if "output" in record:
                await self._shared.journal.save_at(position)
                return _result(record)
        async with self._shared.slots:
            self._check_open()
            if record.pop(_APPROVED, False):
                return await self._execute(record, target, attached=False)
            if goes_on(target):
                return await self._execute(record, target, attached=True)
            return await self._end(record, ToolResult.error(INTERRUPTED), {})

    async def _execute(self, record: JSON, target: Target, *, attached: bool) -> CallResult:
        if target.executor is None or target.spec is None:
            wanted = {"question": f"The program calls {target.name}", "arguments": record["arguments"]}
            return await self._end(record, ToolResult("", suspension=Suspension("question", wanted)), {})
        if not goes_on(target):
            await self._store(record)  # it is known to have started before it starts
        sources = self._sources.noting()
        result = await self._run(record, target, sources, attached=attached)
        if target.spec.ends_agent and result.suspension is None and not result.is_error:
            record[_ANSWER] = msgspec.to_builtins(GivenAnswer.of(result))
            result = ToolResult(ANSWERED)
        return await self._end(record, result, sources.noted(), is_shown=self._shared.plan.shown.calls)

    async def _run(self, record: JSON, target: Target, sources: Sources, *, attached: bool) -> ToolResult:
        executor, name = target.executor, "" if target.spec is None else target.spec.name
        if executor is None:
            return ToolResult.error("Nobody executes it.", "unavailable")
        plan = self._shared.plan
        ctx = plan.ctx.with_(
            call_id=record["call_id"],
            options=plan.options_of(target),
            sources=sources,
            origin=plan,
            fence=self._shared.journal.fence,
            attached=attached,
            emit=self._emit,
            say=self._say,
            child_numbers=count(),
            follows_references=True,  # a long result becomes a variable, if there are any
            references=record.get(_REFERENCES, ()),
            inline=_INLINE,
        )
        try:
            result = ToolResult.of(await executor.execute(name, record["arguments"], ctx))
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException:  # an executor may be anybody's
            logger.exception("the executor of function %s has failed", name)
            result = ToolResult.error(f"{name} failed.")
        self._shared.progress()
        return result

    async def _ask_approval(self, record: JSON, target: Target) -> CallResult:
        request = approval_request(target.name, record["arguments"], provider_of(target))
        note_wait(record, Suspension("approval", approval_body(request)))
        record[QUESTION_ID] = request["id"]
        self._shared.emitter.whole(request)
        self._shared.journal.note(JournalEntry("output", request, call={FOR_CLIENTS: True}))
        await self._store(record)
        raise SuspendedError(Suspension("calls"))

    async def _end(
        self, record: JSON, result: ToolResult, noted: Mapping[int, Source], *, is_shown: bool = False
    ) -> CallResult:
        self._check_open()
        if result.suspension is not None:
            self._wait(record, result.suspension)
            await self._store(record)
            raise SuspendedError(Suspension("calls"))
        record.pop(WAITING, None)
        record["output"], record["status"] = result.output, result.status
        if result.value is None and result.output == NOTHING:
            record["output"], record["json"] = "null", True
        elif _is_json(result):
            record["json"] = True
        if noted:
            record["sources"] = msgspec.to_builtins(noted, str_keys=True)
            self._note_sources(record)
        if is_shown:
            self._show(record)
        await self._store(record)
        return _result(record)

    def _wait(self, record: JSON, suspension: Suspension) -> None:
        """Note what a call waits for. A question is shown as a call that the client can answer."""
        if WAITING in record:  # it waits on
            return
        note_wait(record, suspension)
        if suspension.kind in FOR_OTHERS:
            return
        record[QUESTION_ID] = new_id("question")
        shown = self._shared.emitter.client_call(record["call_id"], record["name"], record["arguments"], self._caller)
        self._shared.journal.note(JournalEntry("output", shown, call={FOR_CLIENTS: True}))

    def _show(self, record: JSON) -> None:
        item: JSON = {"id": new_id("afc"), "type": OWN, "status": "completed", "call_id": record["call_id"]}
        item.update(name=record["name"], arguments=record["arguments"], output=record["output"], content=[])
        item["caller"] = self._caller
        self._shared.emitter.whole(item)
        self._shared.journal.note(JournalEntry("output", item, call={FOR_CLIENTS: True}))

    @property
    def _turn(self) -> list[str]:
        """The functions that the model calls in this turn."""
        turn, said = self._shared.totals.turns, self._shared.journal.said()
        calls = [entry.call for entry in said if entry.direction == "output" and entry.call is not None]
        return [str(call["name"]) for call in calls if call.get("turn") == turn]

    @property
    def _caller(self) -> JSON:
        return {"type": "program", "caller_id": self._call_id}

    # --- the journal -------------------------------------------------------------------------------------------------

    @property
    def _positions(self) -> dict[str, int]:
        """Where the calls that were made are in the journal, by their ids; looked for once."""
        if self._known is None:
            self._known = {
                str(entry.call["call_id"]): position
                for position, entry in enumerate(self._shared.journal.entries)
                if entry.direction == NESTED and entry.call is not None and entry.call[PARENT] == self._call_id
            }
        return self._known

    async def _store(self, record: JSON) -> None:
        """Store a call as it is: as a new entry, or in the place of its entry."""
        position = self._positions.get(record["call_id"])
        if position is not None:
            self._shared.journal.entries[position].call = record
            await self._shared.journal.save_at(position)
            return
        entry = JournalEntry(NESTED, {"id": new_id("afc"), "type": OWN}, visible=False, call=record)
        self._positions[record["call_id"]] = self._shared.journal.note(entry)
        if self._saving is None:
            self._saving = asyncio.ensure_future(self._save())
        await asyncio.shield(self._saving)

    async def _save(self) -> None:
        """Store what is new; what comes in the same moment is stored together."""
        await asyncio.sleep(0)
        self._saving = None
        await self._shared.journal.save()

    def _note_sources(self, record: JSON) -> None:
        """Let the caller have noted what a call has found: an answer may cite it."""
        for source in msgspec.convert(record.get("sources", {}), dict[int, Source], str_keys=True).values():
            self._sources.add(source)


def apply_answer(record: JSON, answer: Answer) -> None:
    """Take what was said to a call that waits: its result, or that it may be made now."""
    record.pop(WAITING, None)
    if answer.approved:
        record[_APPROVED] = True
        return
    result = answer.result()
    record["output"], record["status"] = result.output, result.status


def goes_on(target: Target | None) -> bool:
    """Tell whether a call is executed again after a crash."""
    spec = None if target is None else target.spec
    return spec is not None and (spec.idempotent or spec.attach)


def nested_questions(entries: list[JournalEntry], call_id: str) -> dict[str, str]:
    """Return the questions that calls of a call wait for: the ids of those calls by the ids of the questions."""
    found = {}
    for entry in entries:
        call = entry.call or {}
        if entry.direction == NESTED and call.get(PARENT) == call_id and WAITING in call and QUESTION_ID in call:
            found[str(call[QUESTION_ID])] = str(call["call_id"])
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


def _result(record: JSON) -> CallResult:
    status = str(record["status"])
    return CallResult(str(record["output"]), status != "success", status, bool(record.get("json")))


def _is_json(result: ToolResult) -> bool:
    """Tell whether an output is JSON: what the function has returned is no text, or was replaced by a reference."""
    if result.is_error:
        return False
    output, value = result.output, result.value
    if isinstance(value, str):
        return output is not value and output.startswith('{"$ref":"var_')
    return value is not None or output[:1] in {"{", "["}
