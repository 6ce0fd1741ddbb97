"""Work that is done once for all who wait for it, and the failure of a server that the operator configured."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, Self, TypeVar

from antwort.provider import FunctionError

__all__ = ["Shared", "Unavailable"]

T = TypeVar("T")


class Unavailable(FunctionError):  # noqa: N818 - it says a state
    """A server behind us cannot be used now. Models and clients read the message: no address is in it."""

    def __init__(self, message: str, *, for_operator: str | None = None) -> None:
        super().__init__(message)
        self.for_operator = for_operator or message
        """The same with host and port, for whoever configured them."""

    @classmethod
    def at(cls, server: str, subject: str, what: str) -> Self:
        """Say of a server, which is called `subject`, what is the case."""
        return cls(f"{subject} {what}", for_operator=f"{subject} at {server} {what}")


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
