"""What is done to its end although whoever waits for it is cancelled: else something would stay behind.

A cancellation is never replaced by another exception. Whoever asked for it would wait for an end that does not come:
the exception would be taken for a failure, after which one tries again.
"""

import asyncio
import logging
from collections.abc import Awaitable
from functools import partial
from typing import TypeVar

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
