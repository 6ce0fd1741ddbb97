"""What is in the store of a run that another process has begun, and how to go on or to end with it."""

import itertools
from collections.abc import Callable
from typing import Self

import msgspec

from antwort.context import Context, Sources
from antwort.engine.dispatch import interrupt
from antwort.engine.emitter import Emitter
from antwort.engine.engine import Engine
from antwort.engine.history import assembled, load_history, restore_sources
from antwort.engine.journal import Journal
from antwort.engine.loop import Loop
from antwort.engine.plan import Plan
from antwort.engine.replay import RunState, state_of
from antwort.errors import APIError, BadRequestError, RateLimitError
from antwort.runs.log import RunLog
from antwort.storage.base import JournalEntry, ResponseRecord, StoredEvent
from antwort.types import JSON
from antwort.wire.requests import CreateResponse
from antwort.wire.responses import ResponseError, ResponseObject


class Remains:
    """A claimed run: its journal, and what its readers have been told.

    Readers were told more than the journal has: the beginning of a turn that was cut off. The last item of it is always
    open. If the turn begins again, that item is closed as `incomplete` with what had arrived, and none of the turn's
    items is part of the output: the answer is there once. Readers go on counting items after them. If the run ends here
    they stay, closed as `completed`, since only the last item of a response may be incomplete.
    """

    def __init__(
        self, engine: Engine, record: ResponseRecord, entries: list[JournalEntry], state: RunState, log: RunLog
    ) -> None:
        self._engine = engine
        self._record = record
        self._state = state
        self._log = log
        self._journal = Journal(engine.store, record, entries, created=True, pending=log)
        self._journalled = {entry.id for entry in entries}
        kept = {entry.id for entry in entries if not (entry.call or {}).get("partial")}
        output = [item for item in state.output if item["id"] in kept]
        numbers = itertools.count()
        self._places = [next(numbers) if item["id"] in kept else -1 for item in state.output]
        self.response = msgspec.convert({**record.body, "output": output}, ResponseObject)
        self._emitter = Emitter(
            self.response,
            log,
            sources=Sources(),
            client_functions=(),
            whole_calls=True,
            sequence=state.sequence,
            places=self._places,
        )

    @classmethod
    async def load(cls, engine: Engine, record: ResponseRecord, tell: Callable[[str], None]) -> Self:
        """Read what there is of a run."""
        store = engine.store
        entries = await store.journal(record.tenant, record.id)
        events: list[StoredEvent] = []
        while page := await store.events(record.tenant, record.id, after=events[-1].sequence if events else -1):
            events += page
        state = state_of(events)
        return cls(engine, record, entries, state, RunLog(store, record, tell, sequence=state.sequence))

    async def loop(self) -> Loop:
        """Return the loop that goes on with the run; an APIError says why it cannot."""
        plan = await self._plan()
        self._begin()
        self._leave_out_cut_off()
        sequence = self._emitter.events.sequence
        return self._engine.loop(plan, self._journal, self._log, sequence=sequence, places=self._places, resumed=True)

    def under_way(self) -> list[str]:
        """Return the names of the functions that were being executed."""
        calls = [entry.call for entry in self._journal.entries if entry.call is not None]
        return [call["name"] for call in calls if "name" in call and "output" not in call]

    async def cancel(self) -> None:
        """End the run as cancelled. There is no event for that: the stream just ends."""
        self._keep_cut_off()
        self._interrupt_calls()
        self.response.status = "cancelled"
        await self._journal.finish(self.response)

    async def fail(self, error: APIError) -> None:
        """End the run as failed."""
        self._begin()
        self._keep_cut_off()
        self._interrupt_calls()
        self.response.status = "failed"
        code = "rate_limit_exceeded" if isinstance(error, RateLimitError) else "server_error"
        self.response.error = ResponseError(code, error.message)
        self._emitter.error(code, error.message)
        self._emitter.announce("failed")
        await self._journal.finish(self.response)

    async def _plan(self) -> Plan:
        """Decide the request again: functions and agents may have changed, what the response repeats has not."""
        record, engine = self._record, self._engine
        create = msgspec.convert(record.request, CreateResponse)
        ctx = Context(record.tenant, record.subject, frozenset(record.extra.get("scopes", ())))
        plan = engine.planner.plan(create, ctx, response_id=record.id)
        profile = record.extra.get("profile")
        if plan.profile != profile:
            raise BadRequestError(f"The agent '{profile or plan.profile}' is not what it was when the run began.")
        plan.show_calls = bool(record.extra.get("show_calls"))
        plan.input = [entry for entry in self._journal.entries if entry.direction == "input"]
        if record.previous_response_id is not None:  # of the record: a response that was deleted meanwhile is left out
            plan.history = await load_history(engine.store, record.tenant, record.previous_response_id)
        elif plan.conversation is not None:  # one that was deleted meanwhile is left out too
            plan.history = await engine.store.conversations.history(record.tenant, plan.conversation) or []
        restore_sources([*plan.history, *self._journal.entries], plan.ctx.sources)
        plan.response = self.response
        plan.compact_only = bool(record.extra.get("compact_only"))
        assembled(plan, engine.seals(plan))
        return plan

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
        for item in self._cut_off():
            open_item = self._state.open.get(item["id"])
            if open_item is not None:
                open_item.close(self._emitter.events, "incomplete")
        for position, entry in enumerate(self._journal.entries):
            if entry.visible and (entry.call or {}).get("partial"):  # as an earlier release kept them
                entry.visible = False
                self._journal.change(position)

    def _keep_cut_off(self) -> None:
        """Close what was being written, and keep what there is of the turn that was cut off."""
        for item in self._cut_off():
            open_item = self._state.open.get(item["id"])
            closed = item if open_item is None else open_item.close(self._emitter.events, "completed")
            self.response.output.append(closed)
            self._journal.note(JournalEntry("output", closed, call={"partial": True}))

    def _cut_off(self) -> list[JSON]:
        """Return the items of the turn that was cut off last. Those of turns before it end with an incomplete one."""
        items: list[JSON] = []
        for item in reversed(self._state.output):
            if item["id"] in self._journalled or item.get("status") == "incomplete":
                break
            items.insert(0, item)
        return items

    def _interrupt_calls(self) -> None:
        for position, entry in enumerate(self._journal.entries):
            if interrupt(entry, self._emitter):
                self._journal.change(position)
