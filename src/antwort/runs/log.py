"""The event log of a run: readers see only what would survive a crash."""

from collections.abc import Callable, Sequence

from antwort.storage.base import ResponseRecord, ResponseStore, StoredEvent

__all__ = ["RunLog"]


class RunLog:
    """An event sink that stores before it tells. `tell` wakes the readers."""

    started = True

    def __init__(
        self, store: ResponseStore, record: ResponseRecord, tell: Callable[[str], None], *, sequence: int = 0
    ) -> None:
        self._store = store
        self._record = record
        self._tell = tell
        self._next = sequence
        self._pending: list[StoredEvent] = []

    def put(self, kind: str, data: bytes) -> None:
        """Take an event."""
        self._pending.append(StoredEvent(self._next, kind, data))
        self._next += 1

    def take(self) -> Sequence[StoredEvent]:
        """Hand over what is not stored yet, to somebody who stores it together with something else."""
        events, self._pending = self._pending, []
        return events

    def give_back(self, events: Sequence[StoredEvent]) -> None:
        """Take back what could not be stored: numbers without a gap are worth another try."""
        self._pending = [*events, *self._pending]

    async def flush(self) -> None:
        """Store what is pending, then wake the readers."""
        events = self.take()
        if events:
            record = self._record
            try:
                await self._store.add_events(record.tenant, record.id, record.epoch, events)
            except Exception:
                self.give_back(events)
                raise
        self._tell(self._record.id)
