"""Recovery: what is stored of a run that another process has begun, and how to go on or to end with it."""

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Self

import msgspec

from antwort.concurrency.undisturbed import undisturbed
from antwort.engine.calls.answers import QuestionAnswer, is_waiting
from antwort.engine.engine import Engine, shown
from antwort.engine.journal import Journal
from antwort.engine.output.emitter import Emitter, EmitterOptions
from antwort.engine.output.events import OpenItems
from antwort.engine.turns.agent_events import take_agent
from antwort.engine.turns.ending import Ending
from antwort.engine.turns.loop import Loop
from antwort.engine.turns.parts import Earlier
from antwort.errors import APIError
from antwort.storage.base import JournalEntry, ResponseRecord, StoredEvent
from antwort.storage.sql.store import Store
from antwort.types import JSON
from antwort.wire.responses import stored_response

# --- the event log: readers see only what would survive a crash ------------------------------------------------------


class RunLog:
    """Numbers the events of a run, and has those that are not stored yet. `tell` wakes the readers.

    Whoever stores events, alone or together with something else, does it here, one at a time: a write that overtook
    one that waits would leave a gap in the numbers, and readers go on after the highest number they have seen.
    """

    def __init__(self, response_id: str, tell: Callable[[str], None], *, sequence: int = 0) -> None:
        self._response_id = response_id
        self._tell = tell
        self._next = sequence
        self._pending: list[StoredEvent] = []
        self._writing = asyncio.Lock()

    @property
    def is_pending(self) -> bool:
        """Tell whether there is anything to be stored."""
        return bool(self._pending)

    def put(self, kind: str, *events: bytes) -> None:
        """Take events of one type."""
        self._pending += [StoredEvent(number, kind, data) for number, data in enumerate(events, self._next)]
        self._next += len(events)

    async def store(self, write: Callable[[Sequence[StoredEvent]], Coroutine[Any, Any, None]]) -> None:
        """Let somebody store what is pending; what could not be stored stays pending.

        A write that has begun is awaited to its end even if the caller is cancelled, however often. The caller may have
        more to store, as at its deadline, and must not do so before it is known which events are stored.
        """
        async with self._writing:
            await undisturbed(self._store(write))

    async def _store(self, write: Callable[[Sequence[StoredEvent]], Coroutine[Any, Any, None]]) -> None:
        events = tuple(self._pending)  # at the first step of the write: what it reads is of the same moment
        await write(events)
        del self._pending[: len(events)]

    def wake(self) -> None:
        """Wake the readers."""
        self._tell(self._response_id)


class RunSink:
    """The sink of a run: stores events together with all that they tell of, before it tells readers."""

    started = True

    def __init__(self, journal: Journal, log: RunLog) -> None:
        self._journal = journal
        self._log = log
        self.put = log.put

    async def flush(self) -> None:
        """Store what is pending, then wake the readers."""
        if self._log.is_pending:
            await self._journal.save()
        self._log.wake()


# --- what is stored of a run that another process has begun ----------------------------------------------------------


class ReaderState:
    """What readers of a run have been told so far."""

    def __init__(self) -> None:
        self.output: list[JSON] = []
        """All items they were told of, by `output_index`."""
        self.open = OpenItems()
        self.of_others: set[str] = set()
        """Items of sub-agents among them."""
        self.sequence = 0
        self.in_progress = False


def state_of(events: Iterable[StoredEvent]) -> ReaderState:
    """Read a run's state off its events."""
    state = ReaderState()
    for event in events:
        state.sequence = event.sequence + 1
        data: JSON = msgspec.json.decode(event.data)
        kind = event.type
        agent = take_agent(data)
        if kind == "response.in_progress":
            state.in_progress = True
        elif kind == "response.output_item.added":
            state.output.append(data["item"])
            if agent is not None:
                state.of_others.add(data["item"]["id"])
        elif kind == "response.output_item.done":
            state.output[data["output_index"]] = data["item"]
        state.open.take(kind, data, agent)
    return state


async def load_answers(
    store: Store, record: ResponseRecord, entries: Iterable[JournalEntry]
) -> Mapping[str, QuestionAnswer]:
    """Return what was said to the calls of a response that wait, by question."""
    if not any(map(is_waiting, entries)):
        return {}
    questions = await store.questions.of_response(record.tenant, record.id)
    return {question.id: QuestionAnswer(question) for question in questions if question.status != "open"}


class StoredRun:
    """A claimed run: its journal, and what its readers have been told.

    Readers were told more than the journal has: the beginning of a turn that was cut off. The last item of it is always
    open. If the turn begins again, that item is closed as `incomplete` with what had arrived, and none of the turn's
    items is part of the output: the answer is there once. Readers go on counting items after them. If the run ends here
    they stay, closed as `completed`, since only the last item of a response may be incomplete.
    """

    def __init__(
        self,
        engine: Engine,
        record: ResponseRecord,
        entries: list[JournalEntry],
        state: ReaderState,
        log: RunLog,
        *,
        answers: Mapping[str, QuestionAnswer],
    ) -> None:
        self._answers = answers
        self._engine = engine
        self._record = record
        self._state = state
        self._journal = Journal.stored(engine.store, record, entries, log)
        self._sink = RunSink(self._journal, log)
        self._journalled = {entry.id for entry in entries}
        kept = {entry.id for entry in entries if entry.mark != "partial"}
        output = [item for item in state.output if item["id"] in kept]
        numbers = itertools.count()
        self._positions = [next(numbers) if item["id"] in kept else -1 for item in state.output]
        self.response = stored_response(shown(record, output))
        options = EmitterOptions(whole_calls=True)
        self._emitter = Emitter(self.response, self._sink, options, sequence=state.sequence, positions=self._positions)
        self._ending = Ending(self.response, self._journal, self._emitter, engine.metrics, self._keep_cut_off)

    @classmethod
    async def load(cls, engine: Engine, record: ResponseRecord, tell: Callable[[str], None]) -> Self:
        """Read what there is of a run."""
        store = engine.store
        entries = await store.journal(record.tenant, record.id)
        events: list[StoredEvent] = []
        while page := await store.events(record.tenant, record.id, after=events[-1].sequence if events else -1):
            events += page
        state = state_of(events)
        answers = await load_answers(store, record, entries)
        return cls(engine, record, entries, state, RunLog(record.id, tell, sequence=state.sequence), answers=answers)

    async def loop(self) -> Loop:
        """Return the loop that goes on with the run; an APIError says why it cannot."""
        planner = self._engine.planner
        plan = planner.in_background(await planner.plan_again(self._record, self._journal.entries, self.response))
        self._begin()
        self._leave_out_cut_off()
        earlier = Earlier(self._emitter.events.sequence, self._positions, resumed=True, answers=self._answers)
        return self._engine.loop(plan, self._journal, self._sink, earlier)

    def under_way(self) -> list[str]:
        """Return the names of the functions that were being executed."""
        calls = [entry.call for entry in self._journal.entries if entry.call is not None]
        return [call.name for call in calls if not call.is_over]

    async def cancel(self) -> None:
        """End the run as cancelled. There is no event for that: the stream just ends."""
        await self._ending.cancel()

    async def fail(self, error: APIError) -> None:
        """End the run as failed."""
        self._begin()
        await self._ending.fail(error)

    def _begin(self) -> None:
        """Tell what readers were not told yet about the beginning."""
        if self._state.sequence == 0:
            self._emitter.announce("created")
            self._emitter.announce("queued")
        if not self._state.in_progress:
            self.response.status = "in_progress"
            self._emitter.announce("in_progress")

    def _leave_out_cut_off(self) -> None:
        """Close what was being written, and leave the turn that was cut off out of the output."""
        self._close_others()
        for item in self._cut_off():
            open_item = self._state.open.get(item["id"])
            if open_item is not None:
                open_item.close(self._emitter.events, "incomplete")
        for position, entry in enumerate(self._journal.entries):
            if entry.visible and entry.mark == "partial":  # as an earlier release kept them
                entry.visible = False
                self._journal.change(position)

    def _keep_cut_off(self) -> None:
        """Close what was being written, and keep what there is of the turn that was cut off."""
        self._close_others()
        for item in self._cut_off():
            open_item = self._state.open.get(item["id"])
            closed = item if open_item is None else open_item.close(self._emitter.events, "completed")
            self.response.output.append(closed)
            self._journal.note(JournalEntry("output", closed, mark="partial"))

    def _close_others(self) -> None:
        """Close what sub-agents were writing: those that go on begin other items."""
        for item_id in self._state.of_others & self._state.open.keys():
            self._state.open[item_id].close(self._emitter.events, "incomplete")

    def _cut_off(self) -> list[JSON]:
        """Return the items of the turn that was cut off last. Those of turns before it end with an incomplete one."""
        items: list[JSON] = []
        for item in reversed(self._state.output):
            if item["id"] in self._state.of_others:
                continue
            if item["id"] in self._journalled or item.get("status") == "incomplete":
                break
            items.insert(0, item)
        return items
