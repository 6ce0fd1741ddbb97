"""The calls of a response that the server executes: in parallel and bounded, with the order kept."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import count

import msgspec
from msgspec.structs import replace

from antwort.concurrency.large_work import MUCH
from antwort.concurrency.letting_go import is_many, let_go
from antwort.context import Source, Sources
from antwort.context.suspension import Suspension
from antwort.engine.calls.answers import Answer
from antwort.engine.calls.items import OWN, EndedItem, begin_events, call_item, ended_item
from antwort.engine.calls.nested_calls import (
    ANSWERED,
    NESTED,
    CallServices,
    NestedCalls,
    answer_of,
    goes_on,
    nested_questions,
)
from antwort.engine.calls.progress import CallProgress, ItemEvents
from antwort.engine.calls.state import FOR_OTHERS, interrupt, is_waiting
from antwort.engine.output.emitter import ModelCall
from antwort.engine.tools.approvals import ApprovedCall, ResumedCall, provider_of
from antwort.engine.tools.targets import Target
from antwort.engine.tools.tool_choice import Choice
from antwort.functions import FunctionSpec, HostedCall, HostedTool, Image, ToolResult
from antwort.storage.base import JournalEntry
from antwort.storage.call_record import CallRecord, GivenAnswer
from antwort.types import JSON
from antwort.wire.client_tools import CALLS
from antwort.wire.items import failed_status

logger = logging.getLogger(__name__)


class ServerCall(msgspec.Struct, frozen=True):
    """A call that has begun: its item is told, its entry is in the journal."""

    record: CallRecord
    """The call as its entry has it: what comes of it is noted there."""
    entry: JournalEntry
    target: Target | None
    spec: FunctionSpec | None
    """What is known of the function, if it is one of ours."""
    hosted: HostedTool | None
    """The hosted tool that the function is, if it is one."""
    sources: Sources
    """What an answer may cite; those that this call adds are noted apart."""
    refusal: str | None
    """Why it is not executed; the model reads this instead of a result."""
    position: int
    """Where its entry stands in the journal."""
    output_index: int = -1
    """Where its item stands in the output; -1 if it has none."""
    attached: bool = False
    """Whether it was begun before, and goes on now."""

    @property
    def goes_on(self) -> bool:
        """Tell whether the call is executed again after a crash."""
        return goes_on(self.target)


class Dispatch(CallServices, frozen=True, eq=False, dict=True):
    """Owns the calls of one turn: it begins, executes and ends them, and stores each step before it is told."""

    _given: dict[int, str] = msgspec.field(default_factory=dict)
    """What calls of this turn have given as the answer, by their positions in the journal."""
    _waiting: set[int] = msgspec.field(default_factory=set)
    """The positions of calls that wait for somebody."""

    async def execute(self, calls: Sequence[ModelCall], choice: Choice) -> None:
        """Execute the calls of a turn. Each is ended as soon as its function returns, in whatever order they do."""
        ready: list[ServerCall] = []
        watched: dict[tuple[str, str], CallRecord] = {}
        for made in calls:
            call = self._begin(made, calls, choice)
            if call.record.waiting is None:
                ready.append(call)
            if call.spec is None or not call.spec.attach:  # others find again what they have begun
                watched[made.name, made.arguments] = call.record
        if self.is_followed:
            self.keep()
            await self.journal.save()  # a call is known to have started before it starts
            await self.emitter.flush()
        if len(ready) == 1:  # nearly always
            await self._execute_group(ready)
        else:
            await self._execute_all(_grouped(ready))
        self.totals.repetition.note_turn(watched)

    async def finish_started(self) -> None:
        """Go on after a crash, or when what was waited for is there.

        Calls that were under way are executed again, if they can be; the others are told to be interrupted. A call
        that waits goes on waiting, unless it is answered.
        """
        again: list[list[ServerCall]] = []
        for position, entry in enumerate(self.journal.entries):
            record = entry.call
            if record is None:
                continue
            if record.answer is not None and record.turn == self.totals.turns:
                self._given[position] = record.answer
            if record.is_over or entry.direction == NESTED:  # those are their callers' to go on with
                continue
            call = self._begun_before(record, entry, position)
            wait, answer = record.waiting, self.answers.get(record.question or "")
            if wait is None or wait.kind in FOR_OTHERS:
                if call.goes_on:
                    again.append([call])
                    continue
                interrupt(entry, self.emitter)
            elif answer is None:
                self._waiting.add(position)
                continue
            elif wait.kind == "approval" and answer.approved:
                again.append([replace(self._approved(call), attached=False)])
                continue
            else:
                self._end(call, answer.result(), {})
            self.keep()
            await self.journal.save_at(position)
        await self.journal.save()  # what was approved is known to have started before it starts
        await self._execute_all(again)
        await self.emitter.flush()

    @property
    def waiting(self) -> list[JournalEntry]:
        """The entries of the calls that wait for somebody."""
        return list(filter(is_waiting, self.journal.entries))

    @property
    def is_last(self) -> bool:
        """Tell whether no turn follows now: a call waits for somebody, or has given the answer."""
        return bool(self._given or self._waiting)

    @property
    def answer(self) -> str | None:
        """The answer that a call of this turn has given, if its function ends the agent or the run with it."""
        return self._given[max(self._given)] if self._given else None

    async def _execute_all(self, groups: Iterable[list[ServerCall]]) -> None:
        await _for_each(_lanes(groups), self._execute_lane, limit=self.parallel)

    async def _execute_lane(self, lane: Sequence[list[ServerCall]]) -> None:
        """Execute calls one after the other."""
        for group in lane:
            await self._execute_group(group)

    async def _execute_group(self, group: Sequence[ServerCall]) -> None:
        """Execute equal calls once, and end them all."""
        leader = group[0]
        result = await self._run(leader)
        noted = leader.sources.noted()
        for call in group:
            call.record.images = leader.record.images
            self._end(call, result, noted)
            if self.longest_arguments is not None and len(call.record.arguments) > self.longest_arguments:
                await self.leaving.keep_arguments(call.position, self.longest_arguments)
            if self.is_followed:
                await self._store_end(call, result)
        if self.is_followed:
            await self.emitter.flush()

    async def _store_end(self, call: ServerCall, result: ToolResult) -> None:
        self.keep()
        if result.suspension is not None or (call.hosted is not None and call.hosted.output_items):
            self.journal.change(call.position)  # there is an entry more
            await self.journal.save()
        else:
            await self.journal.save_at(call.position)

    async def _run(self, call: ServerCall) -> ToolResult:
        target, spec, record = call.target, call.spec, call.record
        if call.refusal is not None or target is None or target.executor is None or spec is None:
            return ToolResult.error(call.refusal or "There is no such function.", "denied")
        plan, progress, emit, say = self.plan, None, self.plan.ctx.emit, self._say
        events, send_event = None, plan.ctx.send_event
        item, hosted = call.entry.item, call.hosted
        if (
            hosted is not None
            and hosted.item == item["type"]
            and self.emitter.events.enabled
            and call.output_index >= 0
        ):
            events = ItemEvents(self.emitter, item, call.output_index, record.name)
            send_event = events.send
        if plan.shown.progress and self.emitter.events.enabled:
            progress = CallProgress(self.emitter, record.call_id, record.name)
            emit = progress.emit
        nested = NestedCalls(self, record.call_id, call.sources, call.attached, emit, say)
        ctx = replace(
            plan.ctx,
            call_id=record.call_id,
            options=plan.options_of(target),
            sources=call.sources,
            origin=plan,
            fence=self.journal.fence,
            attached=call.attached,
            emit=emit,
            say=say,
            send_event=send_event,
            sees_images=self.sees_images,
            child_numbers=count(),
            follows_references=plan.toolset.follows_references,
            function_calls=nested,
            question=plan.question,
            measure_room=self._measure_room,
        )
        try:
            result = await self.run(record, target, ctx)
        finally:
            for open_events in (progress, events):
                if open_events is not None:
                    open_events.close()
        if is_many(result.value):  # its text is what counts here
            held = [result.value]
            result = replace(result, value=None)
            await let_go(held)
        if result.images:
            record.images = await _image_parts(result.images)
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
        turn = self.totals.turns
        said = (entry.call for entry in self.journal.said() if entry.direction == "output")
        calls = sum(call is not None and call.turn == turn for call in said)
        return await self.room(max(1, calls))

    async def _say(self, text: str) -> None:
        """Say something to the user that the model does not read."""
        self.show(self.emitter.commentary(text))
        if self.plan.response.background:
            self.keep()
        await self.journal.save()
        await self.emitter.flush()

    def _begin(self, call: ModelCall, turn: Sequence[ModelCall], choice: Choice) -> ServerCall:
        """Decide whether a call is executed, and take it into the journal; tell of it, unless it needs an approval."""
        name, arguments = call.name, call.arguments
        target = self.plan.toolset.targets.get(name)
        asks = target is not None and self.admission.needs_approval(target)
        refusal = self.admission.refusal(name, arguments, target, choice, turn=turn, asks=asks)
        record = CallRecord(call.call_id, name, arguments, self.totals.turns)
        asks = asks and refusal is None
        if asks and target is not None:
            self.ask_approval(record, target)
        begun = self._noted(record, target, refusal)
        if not asks:
            return self._shown(begun)
        self._waiting.add(begun.position)
        return begun

    def _noted(self, record: CallRecord, target: Target | None, refusal: str | None = None) -> ServerCall:
        """Take a call into the journal, with an item that nobody was told of yet."""
        spec, hosted = (None, None) if target is None else (target.spec, target.hosted)
        item = call_item(_made(record), hosted if refusal is None else None)
        entry = JournalEntry("output", item, visible=False, call=record)
        position, sources = self.journal.note(entry), self.plan.ctx.sources.noting()
        return ServerCall(record, entry, target, spec, hosted, sources, refusal, position)

    def _shown(self, call: ServerCall) -> ServerCall:
        """Tell of a call that begins, and of its phases, if clients see it."""
        item, hosted = call.entry.item, call.hosted
        if item["type"] == OWN and not self.plan.shown.calls:
            return call
        if item["type"] == OWN and call.target is not None and call.target.suspends:
            return call  # it is shown when it waits, so that a client can answer it
        call.entry.visible = True
        if hosted is None or item["type"] != hosted.item:
            return replace(call, output_index=self.emitter.add(item))
        events = begin_events(call.record.name, hosted, item) if self.emitter.events.enabled else ()
        return replace(call, output_index=self.emitter.hosted_call(item, hosted.arriving, events))

    def _approved(self, call: ServerCall) -> ServerCall:
        """Begin a call that may be made now. If the process ends meanwhile, it was begun like any other."""
        call.record.waiting = None
        self.journal.change(call.position)
        return self._shown(call)

    async def resume(self, calls: Iterable[ResumedCall]) -> None:
        """Go on with calls of the response before whose own calls have their answers now."""
        known = {entry.call.call_id for entry in self.journal.entries if entry.call is not None}
        begun = []
        for resumed in calls:
            before = resumed.record
            if before.call_id in known:
                continue
            record = CallRecord(before.call_id, before.name, before.arguments, said_before=True, told=True)
            call = self._noted(record, resumed.target)
            for entry in resumed.nested:
                self.journal.note(entry)
            begun.append([replace(call, attached=True)])
        self.keep()
        await self.journal.save()
        await self._execute_all(begun)

    async def execute_approved(self, calls: Iterable[ApprovedCall]) -> None:
        """Make the calls, or do not, that were waiting in the response before for somebody to say so."""
        known = {entry.call.call_id for entry in self.journal.entries if entry.call is not None}
        said = {item.get("call_id") for item in self.plan.window if item.get("type") in CALLS}
        begun = []
        for approved in calls:
            question, body = approved.question, approved.question.body
            if question.call_id in known:
                continue
            record = CallRecord(question.call_id, body["name"], body["arguments"], said_before=question.call_id in said)
            call = self._noted(record, approved.target)
            answer = Answer(question)
            if not answer.approved:
                self._end(call, answer.result(), {})
            elif not approved.confirmed:
                self._end(call, ToolResult.error("Another response makes this call.", "denied"), {})
            else:
                begun.append([self._shown(call)])
        self.keep()
        await self.journal.save()
        await self.emitter.flush()
        await self._execute_all(begun)

    def _begun_before(self, record: CallRecord, entry: JournalEntry, position: int) -> ServerCall:
        """Return a call that another process has begun."""
        target = self.plan.toolset.targets.get(record.name)
        return ServerCall(
            record,
            entry,
            target,
            None if target is None else target.spec,
            None if target is None else target.hosted,
            self.plan.ctx.sources.noting(),
            None,
            position,
            self.emitter.replace(entry.item),
            attached=True,
        )

    def _end(self, call: ServerCall, result: ToolResult, noted: Mapping[int, Source]) -> None:
        """Fill the item and the journal entry of a call with the result, and with the sources that it shows."""
        record, item, hosted = call.record, call.entry.item, call.hosted
        if result.suspension is not None:
            self._wait(call, result.suspension)
            return
        record.end(result.output, result.status)
        if call.spec is not None and call.spec.ends_agent and not result.is_error:
            self._give(call, answer_of(result))
            record.output = ANSWERED
        if noted:
            record.sources = msgspec.to_builtins(noted, str_keys=True)
        ended = None
        if hosted is not None and hosted.item == item["type"]:
            ended = ended_item(_made(record), hosted, result, self.plan.include)
            item.update(ended.fields, status=ended.status)
            record.unasked = ended.unasked or None
        else:
            item["status"] = failed_status(str(item["type"])) if result.is_error else "completed"
            if item["type"] == OWN:
                item["output"] = record.output
        self._show_end(call, ended)

    def _show_end(self, call: ServerCall, ended: EndedItem | None) -> None:
        """Tell of the end of a call, if clients see it, and show further items, which the model has read already."""
        index, item, was_done = call.output_index, call.entry.item, call.record.told
        if index >= 0 and not was_done:
            for event in ended.events if ended is not None else ():
                self.emitter.item_event(index, item, event)
            self.emitter.done(index)
        if ended is not None and (index >= 0 or was_done):
            for further in ended.further:
                self.emitter.done(self.emitter.add(further))
                self.show(further)

    def _wait(self, call: ServerCall, suspension: Suspension) -> None:
        """Note what a call waits for. A question is shown as a call that the client can answer."""
        record = call.record
        self._waiting.add(call.position)
        if suspension.kind == "calls":
            record.asked = nested_questions(self.journal.entries, record.call_id)
        if not self.wait(record, suspension):
            return
        if suspension.kind == "calls" and call.output_index >= 0:  # what it shows of itself is known already
            call.entry.item["status"], record.told = "completed", True
            self.emitter.done(call.output_index)
        if suspension.kind == "question" and call.output_index < 0:
            self.show_question(record)


async def _image_parts(images: Sequence[Image]) -> list[JSON]:
    """Return images as parts of content; what is large is written on a thread."""
    if sum(len(image.data) for image in images) < MUCH:
        return [image.part() for image in images]
    return await asyncio.to_thread(lambda: [image.part() for image in images])


def _made(record: CallRecord) -> HostedCall:
    return HostedCall(record.call_id, record.name, record.arguments)


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
