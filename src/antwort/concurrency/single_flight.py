"""Work that is done once for all who wait for it."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class SingleFlight(Generic[T]):
    """Does some work once for all who ask meanwhile: its outcome, failure included, is that of each of them.

    Whoever leaves does not end it for the others. Who asks after its end lets it be done again. It belongs to one event
    loop; close it there.
    """

    def __init__(self, work: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._work = work
        self._task: asyncio.Task[T] | None = None

    @property
    def is_under_way(self) -> bool:
        """Whether the work is being done."""
        return self._task is not None

    def begin(self) -> asyncio.Task[T]:
        """Begin the work unless it is under way, and wait for nothing. The task is not to be cancelled."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
            self._task.add_done_callback(self._end)
        return self._task

    async def outcome(self) -> T:
        """Wait for the work that is under way, or begin it."""
        task = self.begin()
        await asyncio.wait([task])
        return task.result()

    async def close(self) -> None:
        """Give up work that is under way."""
        if (task := self._task) is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _run(self) -> T:
        try:
            return await self._work()
        finally:
            self._task = None  # with the work, not a turn of the loop after it

    def _end(self, task: asyncio.Task[T]) -> None:
        if self._task is task:  # it was given up before it began
            self._task = None
        if not task.cancelled():
            task.exception()  # seen, even if all who waited have left
