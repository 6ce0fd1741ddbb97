"""The event log of a run: readers see only what would survive a crash."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from antwort.concurrency.undisturbed import failure_of, undisturbed
from antwort.storage.base import ResponseRecord, StoredEvent
from antwort.storage.sql.responses import ResponseStore


class RunLog:
    """An event sink that stores before it tells. `tell` wakes the readers.

    Whoever stores events, alone or together with something else, does it here, one at a time: a write that overtook
    one that waits would leave a gap in the numbers, and readers go on after the highest number they have seen.
    """

    started = True

    def __init__(
        self, store: ResponseStore, record: ResponseRecord, tell: Callable[[str], None], *, sequence: int = 0
    ) -> None:
        self._store = store
        self._record = record
        self._tell = tell
        self._next = sequence
        self._pending: list[StoredEvent] = []
        self._writing = asyncio.Lock()

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
            events = tuple(self._pending)
            try:
                await undisturbed(write(events))
            except asyncio.CancelledError as cancelled:
                if failure_of(cancelled) is None:
                    del self._pending[: len(events)]
                raise
            del self._pending[: len(events)]

    async def flush(self) -> None:
        """Store what is pending, then wake the readers."""
        if self._pending:
            await self.store(self._add)
        self._tell(self._record.id)

    async def _add(self, events: Sequence[StoredEvent]) -> None:
        if events:
            record = self._record
            await self._store.add_events(record.tenant, record.id, record.epoch, events)
