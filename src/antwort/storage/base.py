"""What is kept, and the protocol of whoever keeps it. Every method takes the tenant: nobody can forget it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from antwort.errors import ServiceUnavailableError
from antwort.types import JSON

__all__ = [
    "ConversationRecord",
    "ConversationStore",
    "FencedError",
    "JournalEntry",
    "Kept",
    "ListedResponse",
    "OldResponse",
    "Page",
    "Records",
    "ResponseRecord",
    "ResponseStore",
    "Retention",
    "Store",
    "StoreUnavailableError",
    "StoredEvent",
]

Direction = Literal["input", "output"]
ACTIVE = ("queued", "in_progress")
"""The states of a response that is not over."""


class FencedError(Exception):
    """Somebody else has taken the run over: its epoch is higher than ours. The writer must stop."""


class StoreUnavailableError(ServiceUnavailableError):
    """503: the database cannot be used now. A run that cannot be stored is not over: it goes on when it can be."""


@dataclass(slots=True)
class JournalEntry:
    """One item of a response, in order. `item` is what clients may see; `visible` tells whether they do by default."""

    direction: Direction
    item: JSON
    visible: bool = True
    call: JSON | None = None
    """For a function the server executes: name, call_id, arguments, and its output and sources once they are there.

    The output of such a call that an input names has the sources only.
    """

    @property
    def id(self) -> str:
        """The item's id."""
        return str(self.item["id"])


@dataclass(slots=True)
class ResponseRecord:
    """A stored response without its items."""

    id: str
    tenant: str
    created_at: int
    status: str
    model: str
    body: JSON
    """The response object as clients see it, with an empty `output`."""
    request: JSON
    """The request as it came, for whoever continues the run."""
    previous_response_id: str | None = None
    background: bool = False
    epoch: int = 0
    subject: str = ""
    extra: JSON = field(default_factory=dict)
    """What the engine needs to continue: counters, the agent, the deadline."""
    conversation_id: str | None = None
    """The conversation that takes up what is said in the response, when it ends."""


@dataclass(slots=True)
class ListedResponse:
    """A response of a list: its record, and the items of its output that clients see."""

    record: ResponseRecord
    output: list[JSON]


@dataclass(slots=True)
class ConversationRecord:
    """A stored conversation without its items."""

    id: str
    tenant: str
    created_at: int
    metadata: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Kept:
    """Something a provider keeps: a JSON object with an id of its own within its kind and tenant."""

    id: str
    tenant: str
    created_at: int
    value: JSON
    parent: str = ""
    """The id of what it belongs to, for lists."""
    version: int = 1
    """Raised by every update; whoever updates an older one is told so."""
    kind: str = ""


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event of a background response, as it was sent."""

    sequence: int
    type: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a list."""

    data: Sequence[Any]
    has_more: bool


class ResponseStore(Protocol):
    """Keeps responses, their journals and the events of background runs.

    Writes to a run carry its epoch; a write with an epoch that is not the current one raises FencedError and changes
    nothing. Each method is one transaction.
    """

    async def create(
        self, record: ResponseRecord, entries: Sequence[JournalEntry] = (), *, said: Sequence[JournalEntry] = ()
    ) -> None:
        """Store a new response with its first entries; `said` as with `update`."""

    async def append(
        self, tenant: str, response_id: str, epoch: int, entries: Sequence[JournalEntry], *, start: int
    ) -> None:
        """Store entries at positions `start`, `start + 1`, …; an entry already at a position is replaced."""

    async def update(
        self,
        record: ResponseRecord,
        *,
        entries: Sequence[JournalEntry] = (),
        start: int = 0,
        events: Sequence[StoredEvent] = (),
        said: Sequence[JournalEntry] = (),
    ) -> None:
        """Store the record's status, body and extra, and in the same transaction entries and events.

        `said` is appended to the conversation of the record, as `ConversationStore.add` does; if the conversation is
        gone, nothing is. Nor is it if the response was over before: its end may be stored again, and is said once.
        """

    async def add_events(self, tenant: str, response_id: str, epoch: int, events: Sequence[StoredEvent]) -> None:
        """Append events."""

    async def note(self, tenant: str, response_id: str, epoch: int, extra: JSON) -> None:
        """Add to the record's extra, or replace what is there under the same keys, and change nothing else."""

    async def get(self, tenant: str, response_id: str) -> ResponseRecord | None:
        """Return a response of the tenant, None if there is none."""

    async def journal(self, tenant: str, response_id: str) -> list[JournalEntry]:
        """Return the entries of a response in order."""

    async def history(self, tenant: str, response_id: str) -> list[JournalEntry] | None:
        """Return the entries of a response and of all before it, oldest first; None if the response is not there."""

    async def events(self, tenant: str, response_id: str, *, after: int = -1, limit: int = 1000) -> list[StoredEvent]:
        """Return events with a sequence number above `after`, in order."""

    async def list_responses(
        self, tenant: str, *, limit: int, after: str | None = None, before: str | None = None, order: str = "desc"
    ) -> Page:
        """Return `ListedResponse`s by creation time; `after` and `before` are response ids."""

    async def delete(self, tenant: str, response_id: str) -> bool:
        """Delete a response with its journal and events; False if there was none."""

    async def find_item(self, tenant: str, item_id: str) -> JournalEntry | None:
        """Return an item by its id, for `item_reference`."""

    async def claim(self, tenant: str, response_id: str) -> ResponseRecord | None:
        """Raise the epoch of an unfinished response and return it: now only the claimer writes. None if it is over."""

    async def unfinished(self) -> list[tuple[str, str]]:
        """Return (tenant, id) of every background response that is not over: for recovery, over all tenants."""

    async def ping(self) -> None:
        """Read a little of what is stored; raise StoreUnavailableError if that cannot be done now."""

    async def try_write(self) -> None:
        """Write a little and commit it; raise StoreUnavailableError if that cannot be done now."""

    async def close(self) -> None:
        """Finish pending writes and let go of the database."""


class ConversationStore(Protocol):
    """Keeps conversations and their items. Each method is one transaction."""

    async def create(self, record: ConversationRecord, entries: Sequence[JournalEntry] = ()) -> None:
        """Store a new conversation with its first items."""

    async def get(self, tenant: str, conversation_id: str) -> ConversationRecord | None:
        """Return a conversation of the tenant, None if there is none."""

    async def update(self, tenant: str, conversation_id: str, metadata: dict[str, str]) -> ConversationRecord | None:
        """Replace the metadata and return the conversation, None if there is none."""

    async def delete(self, tenant: str, conversation_id: str) -> bool:
        """Delete a conversation with its items; False if there was none."""

    async def add(
        self, tenant: str, conversation_id: str, entries: Sequence[JournalEntry]
    ) -> list[JournalEntry] | None:
        """Append items and return them as they are stored; None if there is no such conversation.

        An item whose id is in the conversation already gets a new one.
        """

    async def history(self, tenant: str, conversation_id: str) -> list[JournalEntry] | None:
        """Return all items in order, None if there is no such conversation. It counts as a use of the conversation."""

    async def items(
        self, tenant: str, conversation_id: str, *, limit: int, after: str | None = None, order: str = "desc"
    ) -> Page | None:
        """Return the visible items by their order; `after` is an item id, an unknown one is a NotFoundError."""

    async def item(self, tenant: str, conversation_id: str, item_id: str) -> JournalEntry | None:
        """Return one item, None if it is not there."""

    async def remove(self, tenant: str, conversation_id: str, item_id: str) -> bool:
        """Delete an item; False if it was not there."""


class Records(Protocol):
    """What one provider keeps, by kind and id. Each method is one transaction."""

    async def create(
        self,
        tenant: str,
        kind: str,
        id: str,  # noqa: A002 - what it is called everywhere else
        value: JSON,
        *,
        parent: str = "",
        created_at: int | None = None,
    ) -> Kept:
        """Keep something new; a ConflictError if the id is taken. That of something deleted is free again."""

    async def get(self, tenant: str, kind: str, id: str) -> Kept | None:  # noqa: A002
        """Return what is kept, None if nothing is."""

    async def update(self, kept: Kept) -> bool:
        """Store the value if nobody else has meanwhile, and raise the version; False if somebody has, or it is gone."""

    async def delete(self, tenant: str, kind: str, id: str) -> bool:  # noqa: A002
        """Delete something; False if it was not there. Its place is known for a day: lists may go on from there."""

    async def list(
        self,
        tenant: str,
        kind: str,
        *,
        parent: str | None = None,
        limit: int = 20,
        after: str | None = None,
        before: str | None = None,
        order: str = "desc",
    ) -> Page:
        """Return what is kept in the order in which it came.

        `after` and `before` are ids, of what was deleted within the last day, too; a NotFoundError if one is unknown.
        """

    async def count(self, tenant: str, kind: str, *, parent: str | None = None) -> int:
        """Count what is kept."""

    async def scan(self, kind: str, *, after: int = 0, limit: int = 500) -> Sequence[tuple[int, Kept]]:
        """Return what is kept of all tenants, oldest first, with the place to go on after: for housekeeping only."""


@dataclass(frozen=True, slots=True)
class OldResponse:
    """A response as housekeeping sees it."""

    number: int
    """Its place in the order of storing."""
    tenant: str
    id: str
    created_at: int
    active: bool
    background: bool


class Retention(Protocol):
    """What is old, over all tenants, and how much there is: for housekeeping only. Each method is one transaction."""

    async def walk(self, after: int, limit: int) -> Sequence[OldResponse]:
        """Return responses in the order of storing, those with a number above `after`."""

    async def count_events(self, tenant: str, response_id: str) -> int:
        """Count the events of a response."""

    async def drop_events(self, tenant: str, response_id: str, most: int) -> int:
        """Delete the first events of a response, `most` at most; return how many."""

    async def unused(self, before: int, after: tuple[int, str], limit: int) -> Sequence[tuple[str, str, int]]:
        """Return tenant, id and last use of conversations last used before a moment, after (last use, id), in order."""

    async def delete_unused(self, tenant: str, conversation_id: str, before: int) -> bool:
        """Delete a conversation with its items; False if it is gone, was used since the moment, or is being used.

        It is used as long as a background response goes on in it. `unused` leaves those out, too.
        """

    async def forget_places(self, now: int) -> int:
        """Delete some of the places of records that were deleted over a day ago; return how many."""

    async def usage(self, tenant: str) -> int:
        """Return how many bytes a tenant has stored: of responses, events, conversations and records."""


class Store(ResponseStore, Protocol):
    """All that is kept: responses and, beside them, conversations and the records of providers."""

    conversations: ConversationStore
    retention: Retention

    def records(self, owner: str) -> Records:
        """Return the records of a provider."""
