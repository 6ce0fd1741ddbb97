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

from antwort.context import Context, Progress, Source, Sources
from antwort.context.run_services import CallableFunction, CallResult, Variable
from antwort.context.suspension import SuspendedError, Suspension
from antwort.engine.calls.admission import Admission
from antwort.engine.calls.answers import Answer
from antwort.engine.calls.items import OWN
from antwort.engine.calls.leaving import LeavingCalls
from antwort.engine.calls.state import FOR_OTHERS, interrupt, is_under_way
from antwort.engine.calls.totals import Totals
from antwort.engine.history import INTERRUPTED
from antwort.engine.journal import Journal
from antwort.engine.output.emitter import Emitter
from antwort.engine.plan import Plan
from antwort.engine.tools.approvals import approval_body, approval_request, provider_of
from antwort.engine.tools.targets import Target
from antwort.errors import FunctionError, did_you_mean
from antwort.functions import ToolResult
from antwort.functions.output import NOTHING
from antwort.storage.base import JournalEntry
from antwort.storage.call_record import CallRecord, CallState, GivenAnswer
from antwort.types import JSON
from antwort.wire.ids import new_id

logger = logging.getLogger(__name__)

NESTED: Final = "nested"
"""The direction of such entries."""
_INLINE = 50_000
"""Characters of a result that a caller gets as it is; a longer one becomes a variable, if there are any."""
_KEY = re.compile(r"[a-zA-Z0-9_-]{1,40}")
ANSWERED = "(given as the answer)"
"""What whoever calls a function that ends the agent gets of it."""


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
    sees_images: bool
    """Whether the model is known to take images."""

    @cached_property
    def slots(self) -> asyncio.Semaphore:
        """One for each nested call that is executed."""
        return asyncio.Semaphore(self.parallel)

    # --- the life of a call, whoever makes it ------------------------------------------------------------------------

    def show(self, item: JSON) -> None:
        """Take an item into the journal that clients were told of, and that models do not read."""
        self.journal.note(JournalEntry("output", item, mark="for_clients"))

    def ask_approval(self, record: CallRecord, target: Target) -> None:
        """Let a call wait for somebody to say that it may be made."""
        request = approval_request(target.name, record.arguments, provider_of(target))
        record.wait(Suspension("approval", approval_body(request)))
        record.question = request["id"]
        self.emitter.whole(request)
        self.show(request)

    async def run(self, record: CallRecord, target: Target, ctx: Context) -> ToolResult:
        """Execute a function, and return what comes of it, whatever that is."""
        executor, name = target.executor, "" if target.spec is None else target.spec.name
        if executor is None:
            return ToolResult.error("Nobody executes it.", "unavailable")
        try:
            result = ToolResult.of(await executor.execute(name, record.arguments, ctx))
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException:  # an executor may be anybody's
            logger.exception("the executor of function %s has failed", name)
            result = ToolResult.error(f"{name} failed.")
        self.progress()
        return result

    def wait(self, record: CallRecord, suspension: Suspension) -> bool:
        """Note what a call waits for; tell whether it has not been waiting before. Who is asked has a question."""
        if record.waiting is not None:
            return False
        record.wait(suspension)
        if suspension.kind not in FOR_OTHERS:
            record.question = new_id("question")
        return True

    def show_question(self, record: CallRecord, caller: JSON | None = None) -> None:
        """Show a call that waits for an answer as one that the client can give an output to."""
        self.show(self.emitter.client_call(record.call_id, record.name, record.arguments, caller))


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
            return await self._call(call_id, target, _encoded(arguments), tuple(sorted(references)))
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
        calls = [self._shared.journal.entries[position].call for position in self._positions.values()]
        given = [call.gives for call in calls if call is not None and call.gives is not None]
        return given[-1] if given else None

    def _check_open(self) -> None:
        """Raise a FunctionError if the caller is done: a task that it has left behind may go on without it."""
        if self._closed:
            raise FunctionError("What makes the call is over.")

    # --- one call ----------------------------------------------------------------------------------------------------

    async def _call(self, call_id: str, target: Target, arguments: str, references: tuple[str, ...]) -> CallResult:
        position = self._positions.get(call_id)
        made = None if position is None else self._shared.journal.entries[position].call
        if made is not None:
            return await self._go_on(made, target, arguments)
        turn = self._shared.totals.turns
        record = CallRecord(call_id, target.name, arguments, turn, parent=self._call_id, references=references)
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
                self._shared.ask_approval(record, target)
                await self._store(record)
                raise SuspendedError(Suspension("calls"))
            return await self._execute(record, target, attached=self._attached)

    async def _go_on(self, record: CallRecord, target: Target, arguments: str) -> CallResult:
        """Return what there is of a call that was made before, or go on with it."""
        if (record.name, record.arguments) != (target.name, arguments):
            raise FunctionError(
                f"The call '{record.call_id}' was one of {record.name} before, with other arguments perhaps: "
                "what makes it has taken another way this time."
            )
        if record.is_over:
            self._note_sources(record)
            return _result(record)
        if record.waiting is not None and record.waiting.kind not in FOR_OTHERS:
            answer = self._shared.answers.get(record.question or "")
            if answer is None:
                raise SuspendedError(Suspension("calls"))
            apply_answer(record, answer)
            if not answer.approved:
                await self._store(record)
                return _result(record)
        async with self._shared.slots:
            self._check_open()
            if record.state is CallState.APPROVED:
                record.approved = False
                return await self._execute(record, target, attached=False)
            if goes_on(target):
                return await self._execute(record, target, attached=True)
            return await self._end(record, ToolResult.error(INTERRUPTED), {})

    async def _execute(self, record: CallRecord, target: Target, *, attached: bool) -> CallResult:
        if target.executor is None or target.spec is None:
            wanted = {"question": f"The program calls {target.name}", "arguments": record.arguments}
            return await self._end(record, ToolResult("", suspension=Suspension("question", wanted)), {})
        if not goes_on(target):
            await self._store(record)  # it is known to have started before it starts
        sources = self._sources.noting()
        ctx = self._context(record, target, sources, attached=attached)
        result = await self._shared.run(record, target, ctx)
        if target.spec.ends_agent and result.suspension is None and not result.is_error:
            record.gives = answer_of(result)
            result = ToolResult(ANSWERED)
        return await self._end(record, result, sources.noted(), is_shown=self._shared.plan.shown.calls)

    def _context(self, record: CallRecord, target: Target, sources: Sources, *, attached: bool) -> Context:
        plan = self._shared.plan
        return plan.ctx.with_(
            call_id=record.call_id,
            options=plan.options_of(target),
            sources=sources,
            origin=plan,
            fence=self._shared.journal.fence,
            attached=attached,
            emit=self._emit,
            say=self._say,
            child_numbers=count(),
            follows_references=True,  # a long result becomes a variable, if there are any
            references=record.references,
            inline=_INLINE,
        )

    async def _end(
        self, record: CallRecord, result: ToolResult, noted: Mapping[int, Source], *, is_shown: bool = False
    ) -> CallResult:
        self._check_open()
        if result.suspension is not None:
            if self._shared.wait(record, result.suspension) and record.question is not None:
                self._shared.show_question(record, self._caller)
            await self._store(record)
            raise SuspendedError(Suspension("calls"))
        is_nothing = result.value is None and result.output == NOTHING
        record.end("null" if is_nothing else result.output, result.status)
        record.json = is_nothing or _is_json(result)
        if noted:
            record.sources = msgspec.to_builtins(noted, str_keys=True)
            self._note_sources(record)
        if is_shown:
            self._show(record)
        await self._store(record)
        return _result(record)

    def _show(self, record: CallRecord) -> None:
        item: JSON = {"id": new_id("afc"), "type": OWN, "status": "completed", "call_id": record.call_id}
        item.update(name=record.name, arguments=record.arguments, output=record.output, content=[])
        item["caller"] = self._caller
        self._shared.emitter.whole(item)
        self._shared.show(item)

    @property
    def _turn(self) -> list[str]:
        """The functions that the model calls in this turn."""
        turn, said = self._shared.totals.turns, self._shared.journal.said()
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
                for position, entry in enumerate(self._shared.journal.entries)
                if entry.direction == NESTED and entry.call is not None and entry.call.parent == self._call_id
            }
        return self._known

    async def _store(self, record: CallRecord) -> None:
        """Store a call as it is: as a new entry, or in the place of its entry."""
        position = self._positions.get(record.call_id)
        if position is not None:
            self._shared.journal.entries[position].call = record
            await self._shared.journal.save_at(position)
            return
        entry = JournalEntry(NESTED, {"id": new_id("afc"), "type": OWN}, visible=False, call=record)
        self._positions[record.call_id] = self._shared.journal.note(entry)
        if self._saving is None:
            self._saving = asyncio.ensure_future(self._save())
        await asyncio.shield(self._saving)

    async def _save(self) -> None:
        """Store what is new; what comes in the same moment is stored together."""
        await asyncio.sleep(0)
        self._saving = None
        await self._shared.journal.save()

    def _note_sources(self, record: CallRecord) -> None:
        """Let the caller have noted what a call has found: an answer may cite it."""
        for source in msgspec.convert(record.sources or {}, dict[int, Source], str_keys=True).values():
            self._sources.add(source)


def answer_of(result: ToolResult) -> GivenAnswer:
    """Return what the result of a function that ends the agent gives as the answer."""
    return GivenAnswer(result.output, result.value.id if isinstance(result.value, Variable) else None)


def apply_answer(record: CallRecord, answer: Answer) -> None:
    """Take what was said to a call that waits: its result, or that it may be made now."""
    if answer.approved:
        record.waiting, record.approved = None, True
        return
    result = answer.result()
    record.end(result.output, result.status)


def goes_on(target: Target | None) -> bool:
    """Tell whether a call is executed again after a crash."""
    spec = None if target is None else target.spec
    return spec is not None and (spec.idempotent or spec.attach)


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


def _is_json(result: ToolResult) -> bool:
    """Tell whether an output is JSON: what the function has returned is no text, or was replaced by a reference."""
    if result.is_error:
        return False
    output, value = result.output, result.value
    if isinstance(value, str):
        return output is not value and output.startswith('{"$ref":"var_')
    return value is not None or output[:1] in {"{", "["}
