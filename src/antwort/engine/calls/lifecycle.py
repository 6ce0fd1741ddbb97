"""The life of a call that the server executes, whoever makes it: begun, run, waiting, ended, and gone on with later.

Calls of a model and calls that calls make themselves differ in what clients see of them, and in who is given what comes
of them. What happens to them, and when it is stored, is the same for both and stands here.
"""

import asyncio
import logging
import re
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from enum import Enum
from functools import cached_property
from itertools import count
from typing import Any, Final

import msgspec

from antwort.context import Context, Progress, Source, Sources
from antwort.context.calls import CallableFunction, CallResult, SuspendedError, Suspension
from antwort.context.variables import Variable
from antwort.engine.calls.admission import Admission, Totals
from antwort.engine.calls.answers import QuestionAnswer, apply_answer
from antwort.engine.calls.checked_calls import call_of, check_call, check_result
from antwort.engine.calls.items import OWN
from antwort.engine.calls.leaving import LeavingCalls
from antwort.engine.journal import GroupedSaves, Journal
from antwort.engine.output.emitter import Emitter
from antwort.engine.plan import Plan
from antwort.engine.tools.targets import Sign, Target, approval_body, approval_request, provider_of
from antwort.engine.window import INTERRUPTED
from antwort.errors import FunctionError, did_you_mean
from antwort.functions import FunctionSpec, HostedTool, ToolResult
from antwort.functions.checking import NO_CHECKS, CheckSet
from antwort.functions.output import NOTHING
from antwort.storage.base import Direction, JournalEntry
from antwort.storage.call_record import CallRecord, CallState, GivenAnswer, now
from antwort.types import JSON
from antwort.wire.ids import new_id
from antwort.wire.items import failed_status

logger = logging.getLogger(__name__)

NESTED: Final = "nested"
"""The direction of the entries of calls that calls make themselves."""
ANSWERED = "(given as the answer)"
"""What whoever calls a function that ends the agent gets of it."""


class ServerCall(msgspec.Struct, eq=False):
    """A call that has begun: its entry is in the journal."""

    record: CallRecord
    """The call as its entry has it: what comes of it is noted there."""
    entry: JournalEntry
    target: Target | None
    sources: Sources
    """What an answer may cite; those that this call adds are noted apart."""
    position: int
    """Where its entry stands in the journal."""
    refusal: str | None = None
    """Why it is not executed; whoever makes it reads this instead of a result."""
    output_index: int = -1
    """Where its item stands in the output; -1 if it has none."""
    attached: bool = False
    """Whether it was begun before, and goes on now."""
    hosted: HostedTool | None = None
    """How the function shows itself to clients, if it does."""

    @property
    def spec(self) -> FunctionSpec | None:
        """What is known of the function, if it is one of ours."""
        return None if self.target is None else self.target.spec


class NextStep(Enum):
    """What is to be done with a call that was begun before."""

    NOTHING = "nothing"
    """It is over."""
    WAIT = "wait"
    """Nobody has answered yet."""
    END = "end"
    """The answer is its result."""
    BEGIN = "begin"
    """It is approved, and was not made yet."""
    ASK_AGAIN = "ask_again"
    """It is approved, but what it calls is not what it was then."""
    GO_ON = "go_on"
    """It is executed again, and finds what it has begun."""
    INTERRUPT = "interrupt"
    """It may have been made, and nobody knows what has come of it."""


class CallLifecycle(msgspec.Struct, frozen=True, eq=False, dict=True):
    """Takes the calls of one turn through their lives, and those that they make themselves."""

    plan: Plan
    journal: Journal
    emitter: Emitter
    totals: Totals
    admission: Admission
    parallel: int
    """How many calls may be executed at the same time."""
    answers: Mapping[str, QuestionAnswer]
    """What was said to calls that wait, by question."""
    before_write: Callable[[], None]
    """Called before each write, to store with it how far the response has come."""
    on_result: Callable[[], None]
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
    sign_approval: Sign | None = None
    """Signs requests for an approval, if these are stored nowhere."""
    checks: CheckSet = NO_CHECKS
    """What providers check of calls and results."""

    @cached_property
    def slots(self) -> "CallSlots":
        """One for each nested call that is executed."""
        return CallSlots(self.parallel)

    @cached_property
    def saves(self) -> GroupedSaves:
        """Stores what changes in the same moment together."""
        return GroupedSaves(self.journal)

    # --- it begins ---------------------------------------------------------------------------------------------------

    def begin(
        self,
        record: CallRecord,
        target: Target | None,
        item: JSON,
        direction: Direction = "output",
        *,
        refusal: str | None = None,
        attached: bool = False,
        hosted: HostedTool | None = None,
    ) -> ServerCall:
        """Take a call into the journal, with an item that nobody was told of yet."""
        record.began = now()
        entry = JournalEntry(direction, item, visible=False, call=record)
        position, sources = self.journal.note(entry), self.plan.ctx.sources.noting()
        return ServerCall(record, entry, target, sources, position, refusal, -1, attached, hosted)

    def ask_approval(self, record: CallRecord, target: Target, reason: str | None = None) -> None:
        """Let a call wait for somebody to say that it may be made; the reason is that of a check which wants it so."""
        request = approval_request(target.shown_name, record.arguments, provider_of(target), self.sign_approval)
        if reason is not None:
            request["reason"] = reason
        record.wait(Suspension("approval", approval_body(request)))
        record.question = request["id"]
        self.emitter.whole(request)
        self.show(request)

    # --- it goes on --------------------------------------------------------------------------------------------------

    def go_on(self, record: CallRecord, target: Target | None) -> NextStep:
        """Take the answer to a call that was begun before, if there is one; return what is to be done with the call."""
        if record.is_over:
            return NextStep.NOTHING
        if record.asks:
            answer = self.answers.get(record.question or "")
            if answer is None:
                return NextStep.WAIT
            if not answer.approved:
                return NextStep.END
            apply_answer(record, answer)
        if record.state is CallState.APPROVED:
            return NextStep.ASK_AGAIN if target is not None and target.has_changed else NextStep.BEGIN
        resumes = target is not None and target.spec is not None and target.spec.resumes
        return NextStep.GO_ON if resumes or is_repeatable(target) else NextStep.INTERRUPT

    async def answer_result(self, record: CallRecord, target: Target | None) -> ToolResult:
        """Return the answer to what a call has asked, in the place of its own result."""
        result = self.answers[record.question or ""].result()
        return await self._checked(result, record, target) if self.checks.result else result

    # --- it runs -----------------------------------------------------------------------------------------------------

    async def run(self, record: CallRecord, target: Target, ctx: Context) -> ToolResult:
        """Execute a function, and return what comes of it, whatever that is."""
        executor, name = target.executor, "" if target.spec is None else target.spec.name
        if executor is None:
            return ToolResult.error("Nobody executes it.", "unavailable")
        try:
            result = await executor.execute(name, _given(record, target), ctx)
            if type(result) is not ToolResult:  # an executor may be anybody's
                result = ToolResult.of(result)
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException:
            logger.exception("the executor of function %s has failed", name)
            result = ToolResult.error(f"{name} failed.")
        if self.checks.result:
            result = await self._checked(result, record, target)
        self.on_result()
        return result

    def _checked(self, result: ToolResult, record: CallRecord, target: Target | None) -> Awaitable[ToolResult]:
        """Return what checks let through of a result."""
        call = call_of(record.name, record.arguments, target)
        return check_result(self.checks.result, result, call, self.plan)

    # --- it waits ----------------------------------------------------------------------------------------------------

    def wait(self, record: CallRecord, suspension: Suspension) -> bool:
        """Note what a call waits for; tell whether it has not been waiting before. Who is asked has a question."""
        if record.is_waiting:
            return False
        record.wait(suspension)
        if record.asks:
            record.question = new_id("question")
        return True

    def show_question(self, record: CallRecord, caller: JSON | None = None) -> None:
        """Show a call that waits for an answer as one that the client can give an output to."""
        self.show(self.emitter.client_call(record.call_id, record.name, record.arguments, caller))

    # --- it ends -----------------------------------------------------------------------------------------------------

    def end(
        self,
        record: CallRecord,
        target: Target | None,
        result: ToolResult,
        noted: Mapping[int, Source],
        *,
        for_code: bool = False,
    ) -> GivenAnswer | None:
        """End a call with its result and the sources that it shows; return the answer that it gives, if it gives one.

        Code that has made the call reads values, as far as the output is JSON; a model reads texts.
        """
        if result.is_error:
            self.journal.count_failed_call()
        if noted:
            record.sources = msgspec.to_builtins(noted, str_keys=True)
        if target is not None and target.spec is not None and target.spec.ends_agent and not result.is_error:
            record.end(ANSWERED, result.status)
            return GivenAnswer(result.output, result.value.id if isinstance(result.value, Variable) else None)
        if not for_code:
            record.end(result.output, result.status)
        elif result.value is None and result.output == NOTHING:
            record.end("null", result.status, json=True)
        else:
            record.end(result.output, result.status, json=_is_json(result))
        return None

    # --- what clients and the store know of it -----------------------------------------------------------------------

    def show(self, item: JSON) -> None:
        """Take an item into the journal that clients were told of, and that models do not read."""
        self.journal.note(JournalEntry("output", item, mark="for_clients"))


class CallSlots:
    """Lets so many calls be executed at the same time, in the order of asking.

    Most calls find a slot free, and take it without waiting for the loop, as those of a semaphore cannot.
    """

    __slots__ = ("_free", "_waiting")

    def __init__(self, limit: int) -> None:
        self._free = limit
        self._waiting: deque[asyncio.Future[None]] = deque()

    def take(self) -> bool:
        """Take a slot if one is free; else `wait` for one."""
        if not self._free:
            return False
        self._free -= 1
        return True

    async def wait(self) -> None:
        """Wait for a slot that somebody gives back."""
        handed_over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(handed_over)
        try:
            await handed_over
        except asyncio.CancelledError:
            if not handed_over.cancelled():  # it was there already, and is somebody else's now
                self.give_back()
            raise

    def give_back(self) -> None:
        """Hand a slot to whoever waits for one."""
        while self._waiting:
            handed_over = self._waiting.popleft()
            if not handed_over.done():
                handed_over.set_result(None)
                return
        self._free += 1


def is_repeatable(target: Target | None) -> bool:
    """Tell whether a call is executed again after a crash."""
    spec = None if target is None else target.spec
    return spec is not None and (spec.idempotent or spec.attach)


def interrupt_calls(journal: Journal, emitter: Emitter) -> None:
    """End the calls that have started and whose results nobody will know, because the response ends."""
    for position, entry in enumerate(journal.entries):
        if entry.call is not None and not entry.call.is_over:
            interrupt(entry, emitter)
            journal.change(position)


def interrupt(entry: JournalEntry, emitter: Emitter) -> None:
    """End a call that has started and whose result nobody will know."""
    item = entry.item
    if entry.call is not None:
        entry.call.interrupt(INTERRUPTED)
    if item["type"] == OWN:
        item["status"], item["output"] = "completed", INTERRUPTED
    else:
        item["status"] = failed_status(str(item["type"]))
    index = emitter.replace(item)
    if index >= 0:
        emitter.done(index)


def _given(record: CallRecord, target: Target) -> str | JSON:
    """Return the arguments of a call as its function wants them."""
    return record.arguments if target.opened is None else {"arguments": record.arguments}


def _is_json(result: ToolResult) -> bool:
    """Tell whether an output is JSON: what the function has returned is no text, or was replaced by a reference."""
    if result.is_error:
        return False
    output, value = result.output, result.value
    if isinstance(value, str):
        return output is not value and output.startswith('{"$ref":"var_')
    return value is not None or output[:1] in {"{", "["}


# --- calls that a call makes itself, such as those of a program: kept in the journal beside it -----------------------
# No entry of them is for models or clients. One that waits for somebody, or is shown because the request wants to see
# calls, has an item besides, with who has made it.


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
            asks, refusal, reason = self._asks(target), None, None
            if life.checks.call:
                checked = await check_call(life.checks.call, record.name, record.arguments, target, life.plan)
                self._check_open()
                record.masked = checked.arguments != record.arguments
                record.arguments, refusal, reason = checked.arguments, checked.refusal, checked.asks
                asks = asks or reason is not None
            if refusal is None and target.spec is not None and target.spec.ends_agent:
                refusal = life.admission.ending_refusal(self._turn)
            refusal = refusal or life.admission.nested_refusal(target, asks=asks)
            call = life.begin(record, target, {"id": new_id("afc"), "type": OWN}, NESTED, refusal=refusal)
            self._positions[record.call_id] = call.position
            if refusal is not None:
                result = ToolResult.error(refusal, "denied")
            elif asks:
                life.ask_approval(record, target, reason)
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
        if record.name != target.name or not (record.masked or record.arguments == arguments):
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
            life.end(record, target, await life.answer_result(record, target), _NO_SOURCES)
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
            if step is NextStep.ASK_AGAIN:
                life.ask_approval(record, target)
                await self._store(call.position)
                raise SuspendedError(Suspension("calls"))
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
