"""What is kept, and the protocol of whoever keeps it. Every method takes the tenant: nobody can forget it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

__all__ = ["FencedError", "JournalEntry", "Page", "ResponseRecord", "ResponseStore", "StoredEvent"]

JSON = dict[str, Any]
Direction = Literal["input", "output"]
ACTIVE = ("queued", "in_progress")
"""The states of a response that is not over."""


class FencedError(Exception):
    """Somebody else has taken the run over: its epoch is higher than ours. The writer must stop."""


@dataclass(slots=True)
class JournalEntry:
    """One item of a response, in order. `item` is what clients may see; `visible` tells whether they do by default."""

    direction: Direction
    item: JSON
    visible: bool = True
    call: JSON | None = None
    """For a function the server executes: name, call_id, arguments, and output once it is there."""

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

    async def create(self, record: ResponseRecord, entries: Sequence[JournalEntry] = ()) -> None:
        """Store a new response with its first entries."""

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
    ) -> None:
        """Store the record's status, body and extra, and in the same transaction entries and events."""

    async def add_events(self, tenant: str, response_id: str, epoch: int, events: Sequence[StoredEvent]) -> None:
        """Append events."""

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
        """Return records by creation time; `after` and `before` are response ids."""

    async def delete(self, tenant: str, response_id: str) -> bool:
        """Delete a response with its journal and events; False if there was none."""

    async def find_item(self, tenant: str, item_id: str) -> JournalEntry | None:
        """Return an item by its id, for `item_reference`."""

    async def claim(self, tenant: str, response_id: str) -> ResponseRecord | None:
        """Raise the epoch of an unfinished response and return it: now only the claimer writes. None if it is over."""

    async def unfinished(self) -> list[tuple[str, str]]:
        """Return (tenant, id) of every background response that is not over: for recovery, over all tenants."""

    async def request_cancel(self, tenant: str, response_id: str) -> ResponseRecord | None:
        """Claim an unfinished response and mark it as cancelled; return its record as it is then, None if unknown."""

    async def close(self) -> None:
        """Finish pending writes and let go of the database."""
