"""The journal of a run: its items in order, stored step by step so that another process could go on with it."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from antwort.concurrency.undisturbed import failure_of
from antwort.context import Fence
from antwort.storage.base import (
    ENDED_AT,
    FAILED_CALLS,
    TURNS,
    JournalEntry,
    Question,
    ResponseRecord,
    StoredEvent,
    TurnRecord,
)
from antwort.storage.sql.conversations import ConversationStore
from antwort.storage.sql.responses import ResponseStore
from antwort.wire.responses import ResponseObject

_SAID = {"completed", "incomplete"}
"""How a response ends whose conversation takes up what was said in it; the others can be made again."""
_MOST_TURNS = 500
"""Turns that are told of: all are written again with each."""


class Unstored(Protocol):
    """Events that wait to be stored."""

    async def store(self, write: Callable[[Sequence[StoredEvent]], Coroutine[Any, Any, None]]) -> None:
        """Let somebody store them together with something else; nobody else stores any meanwhile.

        Nothing happens between the moment they are taken and the first step of the `write`. If it does not work they
        are stored with what comes next.
        """


class Journal(msgspec.Struct, eq=False):
    """Entries of one response. Without a store they are only kept in memory.

    Nothing is written before `save` is called for the first time, so that a simple response costs one transaction.
    `_pending` has the events to be stored together with what is written, for runs whose events are kept. Each write
    stores all that is not stored yet, in one transaction: after a crash readers were told that a call is over only if
    its entry says so too, provided that whoever tells them notes the change without waiting in between. What was said
    goes to the conversation of the record, if it has one, in the transaction that stores the end; `_conversations` is
    for responses that are not stored themselves.
    """

    store: ResponseStore | None
    record: ResponseRecord
    entries: list[JournalEntry]
    given: int
    """How many of the entries the response was given; what it says comes behind them."""
    _pending: Unstored | None = None
    _conversations: ConversationStore | None = None
    is_read: bool = True
    """Whether anybody reads how it ends: whoever stores it, or remembers it for the next response."""
    _created: bool = False
    _saved: int = 0
    """How many entries are stored, as they were once."""
    _changes: dict[int, int] = {}
    """The positions of entries that have changed since, and the numbers of their last changes."""
    _last_change: int = 0
    _changed: bool = False
    _said: Sequence[JournalEntry] = ()
    _asked: Sequence[Question] = ()

    @classmethod
    def stored(
        cls,
        store: ResponseStore,
        record: ResponseRecord,
        entries: Sequence[JournalEntry],
        pending: Unstored | None = None,
    ) -> "Journal":
        """Return the journal of a response that is stored, with the entries that are."""
        given = sum(entry.direction == "input" for entry in entries)
        return cls(store, record, [*entries], given, pending, _created=True, _saved=len(entries))

    @property
    def begun(self) -> bool:
        """Tell whether anything is stored."""
        return self._created

    def said(self) -> list[JournalEntry]:
        """Return what was said in the response so far."""
        return self.entries[self.given :]

    @property
    def fence(self) -> Fence | None:
        """What it takes to write for the response; None if it is not stored."""
        return Fence(self.record.id, self.record.epoch) if self._created and self.store is not None else None

    def begin_turn(self) -> TurnRecord | None:
        """Take note of a turn that begins; return where to note what comes of it, if anybody will know it."""
        if self.store is None:
            return None
        turns = self.record.extra.setdefault(TURNS, [])
        turn = TurnRecord(len(self.entries), int(time.time() * 1000))
        if len(turns) < _MOST_TURNS:
            turns.append(turn)
        return turn

    def count_failed_call(self) -> None:
        """Count a call that has failed."""
        if self.store is not None:
            extra = self.record.extra
            extra[FAILED_CALLS] = extra.get(FAILED_CALLS, 0) + 1

    def note(self, entry: JournalEntry) -> int:
        """Take an entry; return its position."""
        self.entries.append(entry)
        return len(self.entries) - 1

    def change(self, position: int) -> None:
        """Take note that an entry has changed: the next write stores it again."""
        if self.store is not None:
            self._last_change += 1
            self._changes[position] = self._last_change

    def tell(self, response: ResponseObject, **extra: Any) -> None:
        """Let the next write store the response as it then is, and what is needed to continue it."""
        if self.store is None:
            return
        record = self.record
        record.status, record.model, record.body = response.status, response.model, response
        if extra:
            record.extra = {**record.extra, **extra}
        self._changed = True

    def ask(self, questions: Sequence[Question], *, park: bool) -> None:
        """Let the next write store questions; with `park` nobody works on the run until they are answered."""
        self._asked = questions
        self.record.parked = park
        self._changed = True

    async def save(self) -> None:
        """Store what is new or has changed, also if somebody else is storing it already."""
        if self.store is None:
            return
        if not self._created:
            await self._with_events(self._create)
            if not self._is_behind:  # as it nearly always is: nothing came meanwhile
                return
        await self._with_events(self._put)

    async def save_at(self, position: int) -> None:
        """Store an entry that has changed, with whatever is not stored yet."""
        self.change(position)
        await self.save()

    @property
    def _is_behind(self) -> bool:
        return self._saved < len(self.entries) or bool(self._changes)

    async def _create(self, events: Sequence[StoredEvent]) -> None:
        store = self.store
        if store is None:
            return
        end, changes, self._changed = len(self.entries), {**self._changes}, False
        try:
            await store.create(self.record, self.entries, events=events, said=self._said)
        except asyncio.CancelledError as cancelled:
            if failure_of(cancelled) is None:
                self._note_created(end, changes)
            raise
        self._note_created(end, changes)

    def _note_created(self, end: int, changes: Mapping[int, int]) -> None:
        self._created, self._said = True, ()
        self._note_saved(end, changes)

    def _note_saved(self, end: int, changes: Mapping[int, int]) -> None:
        self._saved = max(self._saved, end)
        for position, change in changes.items():
            if self._changes.get(position) == change:  # else it has changed again
                del self._changes[position]

    async def finish(self, response: ResponseObject) -> None:
        """Store the end of the response, with whatever is not stored yet, in one transaction."""
        conversation = self.record.conversation_id
        is_said = conversation is not None and response.status in _SAID
        self._said = [entry for entry in self.entries if _is_said(entry)] if is_said else ()
        if self.store is not None:
            if response.completed_at is None:
                self.record.extra[ENDED_AT] = int(time.time())
            self.tell(response)
            await self.save()
        elif self._said and self._conversations is not None and conversation is not None:
            await self._conversations.add(self.record.tenant, conversation, self._said)

    async def _with_events(self, write: Callable[[Sequence[StoredEvent]], Coroutine[Any, Any, None]]) -> None:
        if self._pending is None:
            await write(())
        else:
            await self._pending.store(write)

    async def _put(self, events: Sequence[StoredEvent]) -> None:
        store, record = self.store, self.record
        if store is None or not (events or self._changed or self._is_behind):
            return
        start, end, changes = self._saved, len(self.entries), {**self._changes}
        new = self.entries[start:]
        again = [(position, self.entries[position]) for position in changes if position < start]
        if self._changed or (events and (new or again)):
            await self._update(store, new, start, again, events)
        elif events:
            await store.add_events(record.tenant, record.id, record.epoch, events)
        else:
            await store.append(record.tenant, record.id, record.epoch, new, start=start, again=again)
        self._note_saved(end, changes)

    async def _update(
        self,
        store: ResponseStore,
        new: Sequence[JournalEntry],
        start: int,
        again: Sequence[tuple[int, JournalEntry]],
        events: Sequence[StoredEvent],
    ) -> None:
        changed, self._changed = self._changed, False
        said, self._said = self._said, ()
        asked, self._asked = self._asked, ()
        try:
            await store.update(
                self.record, entries=new, start=start, again=again, events=events, said=said, questions=asked
            )
        except (Exception, asyncio.CancelledError) as error:
            if not isinstance(error, asyncio.CancelledError) or failure_of(error) is not None:
                self._changed = self._changed or changed
                self._said, self._asked = said or self._said, asked or self._asked
            raise


class GroupedSaves:
    """Stores entries of a journal that are new or have changed, together with what comes meanwhile.

    Where many calls are under way, what is stored at once costs little more than one of them alone. What is asked for
    while something is being stored waits for the end of that, as it would in the database.
    """

    __slots__ = ("_journal", "_storing", "_waiting")

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._waiting: list[asyncio.Future[None]] = []
        self._storing: asyncio.Task[None] | None = None

    def save(self, position: int) -> asyncio.Future[None]:
        """Store an entry as it is when its turn has come; whoever is cancelled who waits for it stops nobody else."""
        loop = asyncio.get_running_loop()
        stored: asyncio.Future[None] = loop.create_future()
        self._journal.change(position)
        self._waiting.append(stored)
        if self._storing is None:
            self._storing = loop.create_task(self._store())
        return stored

    async def _store(self) -> None:
        try:
            await asyncio.sleep(0)  # what comes in the same moment is stored together
            while self._waiting:
                waiting, self._waiting = self._waiting, []
                await self._store_group(waiting)
        finally:
            self._storing = None
            for stored in self._waiting:  # it was cancelled: nobody stores anything any more
                stored.cancel()

    async def _store_group(self, waiting: Sequence[asyncio.Future[None]]) -> None:
        try:
            await self._journal.save()
        except Exception as error:  # noqa: BLE001 - raised where somebody waits for it
            for stored in waiting:
                if not stored.done():
                    stored.set_exception(error)
        except BaseException:
            for stored in waiting:
                stored.cancel()
            raise
        else:
            for stored in waiting:
                if not stored.done():
                    stored.set_result(None)


def _is_said(entry: JournalEntry) -> bool:
    """Tell whether an entry is part of what a conversation takes up."""
    return entry.direction != "nested" and entry.mark != "partial"
