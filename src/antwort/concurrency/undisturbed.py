"""What is done to its end although whoever waits for it is cancelled: else something would stay behind."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def undisturbed(work: Coroutine[Any, Any, T]) -> T:
    """Wait until some work has ended, however often one is cancelled meanwhile; that is raised afterwards.

    It is for what gives something back, and takes a limited time. Whoever closes may be cancelled twice: by whom it
    works for, and by those who want to end all.
    """
    task = asyncio.ensure_future(work)
    is_cancelled = False
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            is_cancelled = True
    if is_cancelled:
        raise asyncio.CancelledError from None if task.cancelled() else task.exception()
    return task.result()
