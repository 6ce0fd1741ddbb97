"""What clients see of a call while it runs: how far it is, if they want to, and the events of its item."""

import asyncio
from collections.abc import Mapping
from typing import Any

from antwort.context import Progress
from antwort.engine.calls.items import is_sendable
from antwort.engine.output.emitter import Emitter
from antwort.functions import ItemEvent
from antwort.types import JSON

PROGRESS = "antwort:progress"
_PAUSE = 0.1
"""Seconds between two events of a call; what a function tells more often is left out, but not that it is done."""


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


class ItemEvents:
    """Sends the events of one call's item, until the call is over."""

    def __init__(self, emitter: Emitter, item: JSON, index: int, function: str) -> None:
        self._emitter = emitter
        self._item = item
        self._index = index
        self._function = function
        self._over = False

    async def send(self, kind: str, data: Mapping[str, Any], part: str | None) -> None:
        """Send an event."""
        event = ItemEvent(kind, data, part)
        if not self._over and is_sendable(self._function, event):
            self._emitter.item_event(self._index, self._item, event)
            await self._emitter.flush()

    def close(self) -> None:
        """Send nothing more: the call is over."""
        self._over = True
