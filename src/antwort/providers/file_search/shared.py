"""Work that is done once for all who wait for it."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

__all__ = ["Shared"]

T = TypeVar("T")


class Shared(Generic[T]):
    """Does some work once for all who ask meanwhile: its outcome, failure included, is that of each of them.

    Whoever leaves does not end it for the others. Who asks after its end lets it be done again.
    """

    def __init__(self, work: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._work = work
        self._task: asyncio.Task[T] | None = None

    async def outcome(self) -> T:
        """Wait for the work that is under way, or begin it."""
        if self._task is None:
            self._task = asyncio.create_task(self._work())
            self._task.add_done_callback(self._end)
        task = self._task
        await asyncio.wait([task])
        return task.result()

    async def close(self) -> None:
        """Give up work that is under way."""
        if (task := self._task) is not None:
            task.cancel()
            await asyncio.wait([task])

    def _end(self, task: asyncio.Task[T]) -> None:
        self._task = None
        if not task.cancelled():
            task.exception()  # seen, even if all who waited have left
