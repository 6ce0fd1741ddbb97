"""The calls of a response that the server executes: in parallel and bounded, with the order kept."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import count

import msgspec
from msgspec.structs import replace

from antwort.concurrency.large_work import MUCH, is_many, let_go
from antwort.context import Progress, Source
from antwort.context.calls import Suspension
from antwort.engine.calls.answers import QuestionAnswer, is_waiting
from antwort.engine.calls.items import OWN, EndedItem, ItemEvents, begin_events, call_item, ended_item
from antwort.engine.calls.lifecycle import (
    NESTED,
    CallLifecycle,
    NestedCalls,
    NextStep,
    ServerCall,
    interrupt,
    nested_questions,
)
from antwort.engine.output.emitter import Emitter, ModelCall
from antwort.engine.tools.parameters import Choice
from antwort.engine.tools.targets import ApprovedCall, ResumedCall, Target, provider_of
from antwort.functions import HostedTool, Image, ToolResult
from antwort.storage.base import JournalEntry
from antwort.storage.call_record import CallRecord, GivenAnswer
from antwort.types import JSON
from antwort.wire.client_tools import CALLS
from antwort.wire.items import failed_status

logger = logging.getLogger(__name__)


PROGRESS = "antwort:progress"
"""The event that tells how far a call is."""
_PAUSE = 0.1
"""Seconds between two such events of a call; what a function tells more often is left out, but not that it is done."""


class Dispatch(msgspec.Struct, frozen=True, eq=False):
    """Owns the calls of one turn: it begins, executes and ends them, and stores each step before it is told."""

    _life: CallLifecycle
    _given: dict[int, str] = msgspec.field(default_factory=dict)
    """What calls of this turn have given as the answer, by their positions in the journal."""
    _waiting: set[int] = msgspec.field(default_factory=set)
    """The positions of calls that wait for somebody."""

    async def execute(self, calls: Sequence[ModelCall], choice: Choice) -> None:
        """Execute the calls of a turn. Each is ended as soon as its function returns, in whatever order they do."""
        life, ready = self._life, list[ServerCall]()
        watched: dict[tuple[str, str], CallRecord] = {}
        for made in calls:
            call = self._begin(made, calls, choice)
            if call.record.waiting is None:
                ready.append(call)
            spec = None if call.target is None else call.target.spec
            if spec is None or not spec.attach:  # others find again what they have begun
                watched[made.name, made.arguments] = call.record
        if life.is_followed:
            life.before_write()
            await life.journal.save()  # a call is known to have started before it starts
            await life.emitter.flush()
        if len(ready) == 1:  # nearly always
            await self._execute_group(ready)
        else:
            await self._execute_all(_grouped(ready))
        life.totals.repetition.note_turn(watched)

    async def finish_started(self) -> None:
        """Go on after a crash, or when what was waited for is there.

        Calls that were under way are executed again, if they can be; the others are told to be interrupted. A call
        that waits goes on waiting, unless it is answered.
        """
        life, again = self._life, list[list[ServerCall]]()
        for position, entry in enumerate(life.journal.entries):
            record = entry.call
            if record is None:
                continue
            if record.answer is not None and record.turn == life.totals.turns:
                self._given[position] = record.answer
            if record.is_over or entry.direction == NESTED:  # those are their callers' to go on with
                continue
            call = self._begun_before(record, entry, position)
            step = life.go_on(record, call.target)
            if step is NextStep.WAIT:
                self._waiting.add(position)
            elif step is NextStep.ASK_AGAIN and call.target is not None:
                entry.call, entry.mark = None, "for_clients"  # it is asked behind what was shown meanwhile
                life.journal.change(position)
                self._asking(record, call.target)
            elif step is NextStep.GO_ON:
                again.append([call])
            elif step is NextStep.BEGIN:
                again.append([replace(self._approved(call), attached=False)])
            else:
                if step is NextStep.END:
                    self._end(call, await life.answer_result(record, call.target), {})
                else:
                    interrupt(entry, life.emitter)
                    life.leaving.note_over(record)
                life.before_write()
                await life.journal.save_at(position)
        await life.journal.save()  # what was approved is known to have started before it starts
        await self._execute_all(again)
        await life.emitter.flush()

    @property
    def waiting(self) -> list[JournalEntry]:
        """The entries of the calls that wait for somebody."""
        return list(filter(is_waiting, self._life.journal.entries))

    @property
    def is_last(self) -> bool:
        """Tell whether no turn follows now: a call waits for somebody, or has given the answer."""
        return bool(self._given or self._waiting)

    @property
    def answer(self) -> str | None:
        """The answer that a call of this turn has given, if its function ends the agent or the run with it."""
        return self._given[max(self._given)] if self._given else None

    async def _execute_all(self, groups: Iterable[list[ServerCall]]) -> None:
        await _for_each(_lanes(groups), self._execute_lane, limit=self._life.parallel)

    async def _execute_lane(self, lane: Sequence[list[ServerCall]]) -> None:
        """Execute calls one after the other."""
        for group in lane:
            await self._execute_group(group)

    async def _execute_group(self, group: Sequence[ServerCall]) -> None:
        """Execute equal calls once, and end them all."""
        life, leader = self._life, group[0]
        result = await self._run(leader)
        noted = leader.sources.noted()
        for call in group:
            call.record.images = leader.record.images
            self._end(call, result, noted)
            if life.longest_arguments is not None and len(call.record.arguments) > life.longest_arguments:
                await life.leaving.keep_arguments(call.position, life.longest_arguments)
            if life.is_followed:
                life.before_write()
                await life.journal.save()
        if life.is_followed:
            await life.emitter.flush()

    async def _run(self, call: ServerCall) -> ToolResult:
        target, record = call.target, call.record
        if call.refusal is not None or target is None or target.executor is None or target.spec is None:
            return ToolResult.error(call.refusal or "There is no such function.", "denied")
        life, plan = self._life, self._life.plan
        opened: list[ItemEvents | CallProgress] = []  # until the call is over
        emit, say, send_event = plan.ctx.emit, self._say, plan.ctx.send_event
        if life.emitter.events.enabled:
            if (events := self._item_events(call)) is not None:
                send_event = events.send
                opened.append(events)
            if plan.shown.progress:
                progress = CallProgress(life.emitter, record.call_id, record.name)
                emit = progress.emit
                opened.append(progress)
        nested = NestedCalls(life, record.call_id, call.sources, call.attached, emit, say)
        # In two steps: with sixteen names at once Python makes a dictionary of them, which takes longer than both.
        ctx = replace(plan.ctx, origin=plan, question=plan.question, measure_room=self._measure_room)
        ctx = replace(
            ctx,
            call_id=record.call_id,
            options=plan.options_of(target),
            opened_name=target.opened_name,
            sources=call.sources,
            fence=life.journal.fence,
            attached=call.attached,
            emit=emit,
            say=say,
            send_event=send_event,
            sees_images=life.sees_images,
            child_numbers=count(),
            follows_references=plan.toolset.follows_references,
            function_calls=nested,
        )
        try:
            result = await life.run(record, target, ctx)
        finally:
            for one in opened:
                one.close()
        if result.images:
            record.images = await _image_parts(result.images)
        if is_many(result.value):  # its text is what counts here
            held = [result.value]
            result = replace(result, value=None)
            await let_go(held)
        if result.suspension is None:
            nested.close()
            if not result.is_error and (given := nested.answer) is not None:
                self._give(call, given)
        return result

    def _give(self, call: ServerCall, given: GivenAnswer) -> None:
        """Take note of what a call has given as the answer."""
        call.record.give(given)
        self._given[call.position] = given.text

    async def _measure_room(self) -> int | None:
        """Return how many characters the result of each call of this turn may have."""
        turn = self._life.totals.turns
        said = (entry.call for entry in self._life.journal.said() if entry.direction == "output")
        calls = sum(call is not None and call.turn == turn for call in said)
        return await self._life.room(max(1, calls))

    async def _say(self, text: str) -> None:
        """Say something to the user that the model does not read."""
        self._life.show(self._life.emitter.commentary(text))
        if self._life.plan.response.background:
            self._life.before_write()
        await self._life.journal.save()
        await self._life.emitter.flush()

    def _begin(self, call: ModelCall, turn: Sequence[ModelCall], choice: Choice) -> ServerCall:
        """Decide whether a call is executed, and take it into the journal; tell of it, unless it needs an approval."""
        life, name, arguments = self._life, call.name, call.arguments
        target = life.plan.toolset.targets.get(name)
        asks = target is not None and (call.asks is not None or life.admission.needs_approval(target))
        refusal = call.refusal
        if refusal is None:
            refusal = life.admission.refusal(name, arguments, target, choice, turn=turn, asks=asks)
        record = CallRecord(call.call_id, name, arguments, life.totals.turns)
        if not asks or target is None or refusal is not None:
            return self._shown(self._noted(record, target, refusal))
        return self._asking(record, target, call.asks)

    def _asking(self, record: CallRecord, target: Target, reason: str | None = None) -> ServerCall:
        """Take a call into the journal that waits for an approval, and ask for it."""
        self._life.ask_approval(record, target, reason)
        begun = self._noted(record, target, approval=record.question)
        self._waiting.add(begun.position)
        return begun

    def _noted(
        self,
        record: CallRecord,
        target: Target | None,
        refusal: str | None = None,
        *,
        attached: bool = False,
        approval: str | None = None,
    ) -> ServerCall:
        """Take a call into the journal, with an item that nobody was told of yet."""
        hosted = None if target is None or refusal is not None else target.hosted
        item = call_item(record, hosted, approval)
        return self._life.begin(record, target, item, refusal=refusal, attached=attached, hosted=hosted)

    def _shown(self, call: ServerCall) -> ServerCall:
        """Tell of a call that begins, and of its phases, if clients see it."""
        item, hosted = call.entry.item, call.hosted
        if item["type"] == OWN and not self._life.plan.shown.calls:
            return call
        if item["type"] == OWN and call.target is not None and call.target.suspends:
            return call  # it is shown when it waits, so that a client can answer it
        call.entry.visible = True
        emitter = self._life.emitter
        if hosted is None or item["type"] != hosted.item:
            call.output_index = emitter.add(item)
        else:
            events = begin_events(call.record.name, hosted, item) if emitter.events.enabled else ()
            call.output_index = emitter.hosted_call(item, hosted.arriving, events)
        return call

    def _item_events(self, call: ServerCall) -> ItemEvents | None:
        """Return where events of the call's item go; None if it has no item of its own."""
        hosted, item, emitter = call.hosted, call.entry.item, self._life.emitter
        if hosted is None or hosted.item != item["type"] or call.output_index < 0:
            return None
        return ItemEvents(emitter, item, call.output_index, call.record.name)

    def _approved(self, call: ServerCall) -> ServerCall:
        """Begin a call that may be made now."""
        call.record.begin()
        self._life.journal.change(call.position)
        return self._shown(call)

    async def resume(self, calls: Iterable[ResumedCall]) -> None:
        """Go on with calls of the response before whose own calls have their answers now."""
        known = {entry.call.call_id for entry in self._life.journal.entries if entry.call is not None}
        begun = []
        for resumed in calls:
            before = resumed.record
            if before.call_id in known:
                continue
            tells = resumed.target is not None and _tells_outcome(resumed.target.hosted)
            record = CallRecord(before.call_id, before.name, before.arguments, said_before=True, told=not tells)
            call = self._noted(record, resumed.target, attached=True)
            begun.append([self._shown(call) if tells else call])
            for entry in resumed.nested:
                self._life.journal.note(entry)
        self._life.before_write()
        await self._life.journal.save()
        await self._execute_all(begun)

    async def execute_approved(self, calls: Iterable[ApprovedCall]) -> None:
        """Make the calls, or do not, that were waiting in the response before for somebody to say so."""
        known = {entry.call.call_id for entry in self._life.journal.entries if entry.call is not None}
        said = {item.get("call_id") for item in self._life.plan.window if item.get("type") in CALLS}
        begun = []
        for approved in calls:
            question, body = approved.question, approved.question.body
            if question.call_id in known:
                continue
            name = body["name"] if approved.target is None else approved.target.name
            record = CallRecord(question.call_id, name, body["arguments"], said_before=question.call_id in said)
            answer = QuestionAnswer(question)
            if answer.approved and approved.confirmed and approved.target is not None and approved.target.has_changed:
                self._asking(record, approved.target)
                continue
            call = self._noted(record, approved.target, approval=question.id)
            if not answer.approved:
                self._end(call, answer.result(), {})
            elif not approved.confirmed:
                self._end(call, ToolResult.error("Another response makes this call.", "denied"), {})
            else:
                begun.append([self._shown(call)])
        self._life.before_write()
        await self._life.journal.save()
        await self._life.emitter.flush()
        await self._execute_all(begun)

    def _begun_before(self, record: CallRecord, entry: JournalEntry, position: int) -> ServerCall:
        """Return a call that another process has begun."""
        target = self._life.plan.toolset.targets.get(record.name)
        return ServerCall(
            record,
            entry,
            target,
            self._life.plan.ctx.sources.noting(),
            position,
            output_index=self._life.emitter.replace(entry.item),
            attached=True,
            hosted=None if target is None else target.hosted,
        )

    def _end(self, call: ServerCall, result: ToolResult, noted: Mapping[int, Source]) -> None:
        """Fill the item and the journal entry of a call with the result, and with the sources that it shows."""
        life, record, item, hosted = self._life, call.record, call.entry.item, call.hosted
        life.journal.change(call.position)  # at once: what readers are told here is stored with it
        if result.suspension is not None:
            self._wait(call, result.suspension)
            return
        if (given := life.end(record, call.target, result, noted)) is not None:
            self._give(call, given)
        life.leaving.note_over(record)
        ended = None
        if hosted is not None and hosted.item == item["type"]:
            listens = life.emitter.events.enabled
            ended = ended_item(record, hosted, result, life.plan.include, with_events=listens)
            item.update(ended.fields, status=ended.status)
            record.unasked = ended.unasked or None
        else:
            item["status"] = failed_status(str(item["type"])) if result.is_error else "completed"
            if item["type"] == OWN:
                item["output"] = record.output
        if call.output_index >= 0 or ended is not None:
            self._show_end(call, ended)

    def _show_end(self, call: ServerCall, ended: EndedItem | None) -> None:
        """Tell of the end of a call, if clients see it, and show further items, which the model has read already."""
        index, item, was_done, emitter = call.output_index, call.entry.item, call.record.told, self._life.emitter
        if index >= 0 and not was_done:
            for event in ended.events if ended is not None else ():
                emitter.item_event(index, item, event)
            emitter.done(index)
        if ended is not None and (index >= 0 or was_done):
            for further in ended.further:
                emitter.done(emitter.add(further))
                self._life.show(further)

    def _wait(self, call: ServerCall, suspension: Suspension) -> None:
        """Note what a call waits for. A question is shown as a call that the client can answer."""
        record = call.record
        self._waiting.add(call.position)
        if suspension.kind == "calls":
            record.asked = nested_questions(self._life.journal.entries, record.call_id)
        if not self._life.wait(record, suspension):
            return
        # What it shows of itself is known already, or else what comes of it: in this response, if that goes on.
        tells = _tells_outcome(call.hosted)
        if (
            suspension.kind == "calls"
            and call.output_index >= 0
            and not (tells and self._life.plan.response.background)
        ):
            call.entry.item["status"], record.told = "incomplete" if tells else "completed", True
            self._life.emitter.done(call.output_index)
        if suspension.kind == "question" and call.output_index < 0:
            self._life.show_question(record)


class CallProgress:
    """Takes the progress of one call, from whichever thread, and tells of it until the call is over."""

    def __init__(self, emitter: Emitter, call_id: str, name: str) -> None:
        self._emitter = emitter
        self._call = {"call_id": call_id, "name": name}
        self._loop = asyncio.get_running_loop()
        self._last = -_PAUSE
        self._sending: set[asyncio.Task[None]] = set()
        self._over = False

    def emit(self, progress: Progress) -> None:
        """Take a sign of life."""
        self._loop.call_soon_threadsafe(self._tell, progress)

    def close(self) -> None:
        """Tell nothing more: the call is over."""
        self._over = True

    def _tell(self, progress: Progress) -> None:
        now = self._loop.time()
        if self._over or (now - self._last < _PAUSE and progress.fraction != 1):
            return
        self._last = now
        self._emitter.events.emit(PROGRESS, **self._call, message=progress.message, fraction=progress.fraction)
        sending = self._loop.create_task(self._emitter.flush())
        self._sending.add(sending)
        sending.add_done_callback(self._sending.discard)


def _tells_outcome(hosted: HostedTool | None) -> bool:
    """Tell whether what comes of a call stands in the item of the call itself."""
    return hosted is not None and not hosted.output_items


async def _image_parts(images: Sequence[Image]) -> list[JSON]:
    """Return images as parts of content; what is large is written on a thread."""
    if sum(len(image.data) for image in images) < MUCH:
        return [image.part() for image in images]
    return await asyncio.to_thread(lambda: [image.part() for image in images])


def _grouped(calls: Iterable[ServerCall]) -> list[list[ServerCall]]:
    """Put equal calls of idempotent functions together: they are executed once."""
    groups: list[list[ServerCall]] = []
    equal: dict[tuple[str, str], list[ServerCall]] = {}
    for call in calls:
        key = call.record.name, call.record.arguments
        if call.spec is not None and call.spec.idempotent and key in equal:
            equal[key].append(call)
        else:
            groups.append([call])
            equal.setdefault(key, groups[-1])
    return groups


_Lane = list[list[ServerCall]]


def _lanes(groups: Iterable[list[ServerCall]]) -> list[_Lane]:
    """Put those behind each other that are executed in order; all others may be executed at the same time."""
    lanes: list[_Lane] = []
    ordered: dict[str, _Lane] = {}
    for group in groups:
        target, spec = group[0].target, group[0].spec
        if target is None or spec is None or not spec.in_order:
            lanes.append([group])
            continue
        lane = ordered.setdefault(provider_of(target), [])
        if not lane:
            lanes.append(lane)
        lane.append(group)
    return lanes


async def _for_each(lanes: Sequence[_Lane], work: Callable[[_Lane], Awaitable[None]], *, limit: int) -> None:
    """Work on all, at most `limit` at a time."""
    if limit == 1 or len(lanes) == 1:
        for lane in lanes:
            await work(lane)
        return
    slots = asyncio.Semaphore(limit)

    async def one(lane: _Lane) -> None:
        async with slots:
            await work(lane)

    tasks = [asyncio.ensure_future(one(lane)) for lane in lanes]
    try:
        await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
