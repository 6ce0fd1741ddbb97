"""The journal of a run: its items in order, stored step by step so that another process could go on with it."""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from typing import Any, Protocol

import msgspec

from antwort.concurrency.undisturbed import failure_of
from antwort.context import Fence
from antwort.storage.base import JournalEntry, Question, ResponseRecord, StoredEvent
from antwort.storage.sql.conversations import ConversationStore
from antwort.storage.sql.responses import ResponseStore
from antwort.wire.responses import ResponseObject

_SAID = {"completed", "incomplete"}
"""How a response ends whose conversation takes up what was said in it; the others can be made again."""


class Unstored(Protocol):
    """Events that wait to be stored."""

    async def store(self, write: Callable[[Sequence[StoredEvent]], Coroutine[Any, Any, None]]) -> None:
        """Let somebody store them together with something else; nobody else stores any meanwhile.

        If it does not work they are stored with what comes next.
        """


class Journal(msgspec.Struct, eq=False):
    """Entries of one response. Without a store they are only kept in memory.

    Nothing is written before `save` is called for the first time, so that a simple response costs one transaction.
    `_pending` has the events to be stored together with what is written, for runs whose events are kept. What was said
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

    def note(self, entry: JournalEntry) -> int:
        """Take an entry; return its position."""
        self.entries.append(entry)
        return len(self.entries) - 1

    def change(self, position: int) -> None:
        """Take note that an entry has changed: the next `save` or `finish` stores it again."""
        self._saved = min(self._saved, position)

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
        """Store what is new."""
        if self.store is None:
            return
        if not self._created:
            await self._with_events(self._create)
            if self._saved == len(self.entries):  # as it nearly always is: nothing came meanwhile
                return
        end = len(self.entries)
        await self._write(self.entries[self._saved :], self._saved)
        self._saved = max(self._saved, end)

    async def _create(self, events: Sequence[StoredEvent]) -> None:
        store = self.store
        if store is None:
            return
        try:
            await store.create(self.record, self.entries, events=events, said=self._said)
        except asyncio.CancelledError as cancelled:
            if failure_of(cancelled) is None:
                self._note_created()
            raise
        self._note_created()

    def _note_created(self) -> None:
        self._created, self._said = True, ()
        self._saved = len(self.entries)
        self._changed = False

    async def save_at(self, position: int) -> None:
        """Store an entry that has changed."""
        if self.store is None:
            return
        await self._write([self.entries[position]], position)

    async def save_all(self, positions: Iterable[int]) -> None:
        """Store what is new, and the entries at positions that have changed."""
        if self.store is None:
            return
        if not self._created:  # nearly never: with it everything is stored that is there
            await self.save()
            return
        end = len(self.entries)
        for start, stop in _runs({*positions, *range(self._saved, end)}):
            await self._write(self.entries[start:stop], start)
        self._saved = max(self._saved, end)

    async def finish(self, response: ResponseObject) -> None:
        """Store the end of the response, with whatever is not stored yet, in one transaction."""
        conversation = self.record.conversation_id
        is_said = conversation is not None and response.status in _SAID
        self._said = [entry for entry in self.entries if _is_said(entry)] if is_said else ()
        if self.store is not None:
            self.tell(response)
            await self.save()
        elif self._said and self._conversations is not None and conversation is not None:
            await self._conversations.add(self.record.tenant, conversation, self._said)

    async def _write(self, entries: Sequence[JournalEntry], start: int) -> None:
        await self._with_events(lambda events: self._put(entries, start, events))

    async def _with_events(self, write: Callable[[Sequence[StoredEvent]], Coroutine[Any, Any, None]]) -> None:
        if self._pending is None:
            await write(())
        else:
            await self._pending.store(write)

    async def _put(self, entries: Sequence[JournalEntry], start: int, events: Sequence[StoredEvent]) -> None:
        store, record = self.store, self.record
        if store is None or not (entries or events or self._changed):
            return
        changed, self._changed = self._changed, False
        said: Sequence[JournalEntry] = ()
        asked: Sequence[Question] = ()
        try:
            if events or changed:
                said, self._said = self._said, ()
                asked, self._asked = self._asked, ()
                await store.update(record, entries=entries, start=start, events=events, said=said, questions=asked)
            else:
                await store.append(record.tenant, record.id, record.epoch, entries, start=start)
        except (Exception, asyncio.CancelledError) as error:
            if not isinstance(error, asyncio.CancelledError) or failure_of(error) is not None:
                self._changed = self._changed or changed
                self._said, self._asked = said or self._said, asked or self._asked
                self._saved = min(self._saved, start)
            raise


class GroupedSaves:
    """Stores entries of a journal that are new or have changed, together with what comes meanwhile.

    Where many calls are under way, what is stored at once costs little more than one of them alone. What is asked for
    while something is being stored waits for the end of that, as it would in the database.
    """

    __slots__ = ("_journal", "_positions", "_storing", "_waiting")

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._positions: set[int] = set()
        self._waiting: list[asyncio.Future[None]] = []
        self._storing: asyncio.Task[None] | None = None

    def save(self, position: int) -> asyncio.Future[None]:
        """Store an entry as it is when its turn has come; whoever is cancelled who waits for it stops nobody else."""
        loop = asyncio.get_running_loop()
        stored: asyncio.Future[None] = loop.create_future()
        self._positions.add(position)
        self._waiting.append(stored)
        if self._storing is None:
            self._storing = loop.create_task(self._store())
        return stored

    async def _store(self) -> None:
        try:
            await asyncio.sleep(0)  # what comes in the same moment is stored together
            while self._waiting:
                waiting, self._waiting = self._waiting, []
                positions, self._positions = self._positions, set()
                await self._store_group(positions, waiting)
        finally:
            self._storing = None
            for stored in self._waiting:  # it was cancelled: nobody stores anything any more
                stored.cancel()

    async def _store_group(self, positions: set[int], waiting: Sequence[asyncio.Future[None]]) -> None:
        try:
            await self._journal.save_all(positions)
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


def _runs(positions: Collection[int]) -> list[tuple[int, int]]:
    """Return where rows of positions without a gap begin, and where they end."""
    ordered = sorted(positions)
    if not ordered:
        return []
    if ordered[-1] - ordered[0] < len(ordered):  # as it nearly always is
        return [(ordered[0], ordered[-1] + 1)]
    runs: list[tuple[int, int]] = []
    for position in ordered:
        if runs and runs[-1][1] == position:
            runs[-1] = runs[-1][0], position + 1
        else:
            runs.append((position, position + 1))
    return runs


def _is_said(entry: JournalEntry) -> bool:
    """Tell whether an entry is part of what a conversation takes up."""
    return entry.direction != "nested" and entry.mark != "partial"
