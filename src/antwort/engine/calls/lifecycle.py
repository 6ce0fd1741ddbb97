"""The life of a call that the server executes, whoever makes it: begun, run, waiting, ended, and gone on with later.

Calls of a model and calls that calls make themselves differ in what clients see of them, and in who is given what comes
of them. What happens to them, and when it is stored, is the same for both and stands here.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from enum import Enum
from functools import cached_property
from typing import Final

import msgspec

from antwort.context import Context, Source, Sources
from antwort.context.suspension import Suspension
from antwort.context.variables import Variable
from antwort.engine.calls.admission import Admission
from antwort.engine.calls.answers import QuestionAnswer, apply_answer
from antwort.engine.calls.items import OWN
from antwort.engine.calls.leaving import LeavingCalls
from antwort.engine.calls.totals import Totals
from antwort.engine.history import INTERRUPTED
from antwort.engine.journal import GroupedSaves, Journal
from antwort.engine.output.emitter import Emitter
from antwort.engine.plan import Plan
from antwort.engine.tools.approvals import Sign, approval_body, approval_request, provider_of
from antwort.engine.tools.targets import Target
from antwort.functions import FunctionSpec, HostedTool, ToolResult
from antwort.functions.output import NOTHING
from antwort.storage.base import Direction, JournalEntry
from antwort.storage.call_record import CallRecord, CallState, GivenAnswer
from antwort.types import JSON
from antwort.wire.ids import new_id
from antwort.wire.items import failed_status

logger = logging.getLogger(__name__)

NESTED: Final = "nested"
"""The direction of the entries of calls that calls make themselves."""
ANSWERED = "(given as the answer)"
"""What whoever calls a function that ends the agent gets of it."""


class ServerCall(msgspec.Struct, frozen=True):
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
        entry = JournalEntry(direction, item, visible=False, call=record)
        position, sources = self.journal.note(entry), self.plan.ctx.sources.noting()
        return ServerCall(record, entry, target, sources, position, refusal, -1, attached, hosted)

    def ask_approval(self, record: CallRecord, target: Target) -> None:
        """Let a call wait for somebody to say that it may be made."""
        request = approval_request(target.shown_name, record.arguments, provider_of(target), self.sign_approval)
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
            return NextStep.BEGIN
        resumes = target is not None and target.spec is not None and target.spec.resumes
        return NextStep.GO_ON if resumes or is_repeatable(target) else NextStep.INTERRUPT

    def answer_result(self, record: CallRecord) -> ToolResult:
        """Return the answer to what a call has asked, in the place of its own result."""
        return self.answers[record.question or ""].result()

    # --- it runs -----------------------------------------------------------------------------------------------------

    async def run(self, record: CallRecord, target: Target, ctx: Context) -> ToolResult:
        """Execute a function, and return what comes of it, whatever that is."""
        executor, name = target.executor, "" if target.spec is None else target.spec.name
        if executor is None:
            return ToolResult.error("Nobody executes it.", "unavailable")
        try:
            result = ToolResult.of(await executor.execute(name, _given(record, target), ctx))
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException:  # an executor may be anybody's
            logger.exception("the executor of function %s has failed", name)
            result = ToolResult.error(f"{name} failed.")
        self.on_result()
        return result

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
