"""Closing one thing after the other, in time: what does not come to its end is left behind, and holds nothing up."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from antwort.concurrency.contained_tasks import end_tasks
from antwort.concurrency.undisturbed import undisturbed

logger = logging.getLogger(__name__)

_HURRIED = 1.0
"""Seconds that each thing has when whoever closes is cancelled: to try is better than to leave it."""
_GRACE = 0.5
"""Seconds that one has to end after its time was over, and it was cancelled."""


class Closing:
    """Closes things in turn. Whatever one of them does, the next are closed as well.

    All that have no limit of their own share some seconds. Whoever is cancelled meanwhile is in a hurry: what is being
    closed is cancelled, and each of the rest has a moment. That it was cancelled, or else the first failure, is raised
    when all are closed.
    """

    def __init__(self, seconds: float) -> None:
        self._left = seconds
        self._cancelled: asyncio.CancelledError | None = None
        self._failure: Exception | None = None

    async def close(self, what: str, work: Coroutine[Any, Any, object], *, own_limit: bool = False) -> None:
        """Close something; with `own_limit` it takes a limited time by itself."""
        loop = asyncio.get_running_loop()
        task = loop.create_task(work, name=f"closing {what}")
        started = loop.time()
        try:
            if self._cancelled is not None:
                await asyncio.wait({task}, timeout=_HURRIED)
            else:
                await asyncio.wait({task}, timeout=None if own_limit else max(self._left, _HURRIED))
        except asyncio.CancelledError as cancelled:
            self._cancelled = cancelled
        if not own_limit:
            self._left -= loop.time() - started
        if not task.done():
            try:
                await undisturbed(end_tasks([task], _GRACE))
            except asyncio.CancelledError as cancelled:
                self._cancelled = cancelled
        if not task.done():
            logger.warning("%s could not be closed in time, and is left behind", what)
        elif not task.cancelled() and (error := task.exception()) is not None:
            logger.error("%s could not be closed", what, exc_info=error)
            self._failure = self._failure or (error if isinstance(error, Exception) else None)
        elif task.cancelled() and self._cancelled is None:
            logger.warning("%s could not be closed in time", what)

    def end(self, *, failed: bool = False) -> None:
        """Raise what is to be raised, when all are closed; after a failure this is no other one."""
        if self._cancelled is not None:
            raise self._cancelled
        if self._failure is not None and not failed:
            raise self._failure
