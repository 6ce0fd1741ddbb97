"""What is done to its end although whoever waits for it is cancelled: else something would stay behind.

A cancellation is never replaced by another exception. Whoever asked for it would wait for an end that does not come:
the exception would be taken for a failure, after which one tries again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Coroutine
from functools import partial
from typing import Any, TypeVar

from antwort.concurrency.contained_tasks import end_tasks

T = TypeVar("T")
logger = logging.getLogger(__name__)


async def undisturbed(work: Awaitable[T]) -> T:
    """Wait until some work has ended, however often one is cancelled meanwhile; that is raised afterwards.

    It is for what stores something, or gives it back, and takes a limited time. Whoever closes may be cancelled twice:
    by whom it works for, and by those who want to end all. `failure_of` tells whoever is cancelled what came of it.
    """
    future = asyncio.ensure_future(work)
    try:
        await _end_of(future)
    except asyncio.CancelledError as cancelled:
        while not future.done():
            try:
                await _end_of(future)
            except asyncio.CancelledError:
                continue
        raise cancelled from _failure(future)
    if future.cancelled():
        raise asyncio.CancelledError from _failure(future)
    return future.result()


def _end_of(work: asyncio.Future[T]) -> asyncio.Future[None]:
    """Return what is done when some work is, and can be cancelled without it; `asyncio.shield` costs more."""
    ended: asyncio.Future[None] = work.get_loop().create_future()
    work.add_done_callback(partial(_tell, ended))
    return ended


def _tell(ended: asyncio.Future[None], _work: object) -> None:
    if not ended.done():
        ended.set_result(None)


def _failure(work: asyncio.Future[T]) -> BaseException | None:
    """Return why some work failed that is over; to be cancelled itself is a failure, too."""
    try:
        return work.exception()
    except asyncio.CancelledError as cancelled:
        return cancelled


def failure_of(cancelled: asyncio.CancelledError) -> BaseException | None:
    """Return why the work failed for whose end somebody has waited who was cancelled; None if it did not fail."""
    return cancelled.__cause__


async def in_any_case(work: Awaitable[object], what: str) -> None:
    """Do what is left to do when something has failed or was cancelled, since that is what is to be raised.

    If the work fails as well, this is logged, with `what` it was. Only a cancellation is raised.
    """
    try:
        await undisturbed(work)
    except asyncio.CancelledError as cancelled:
        if (failure := failure_of(cancelled)) is not None:
            logger.warning("%s: %s", what, failure)
        raise
    except Exception as failure:  # noqa: BLE001 - it is logged, and another one is about to be raised
        logger.warning("%s: %s", what, failure)


# --- closing one thing after the other, in time ----------------------------------------------------------------------


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
