"""A limit of time for what a task does: `asyncio.timeout` at a third of its cost, for what every request needs."""

import asyncio
from types import TracebackType
from typing import Self


class Deadline:
    """Cancels the current task when the seconds of a `with` block are over, and turns that into a TimeoutError.

    `expired` tells that it was this deadline, and not another that happened to pass. Without seconds there is none.
    """

    __slots__ = ("_cancelling", "_seconds", "_task", "_timer", "expired")

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._timer: asyncio.TimerHandle | None = None
        self.expired = False

    def __enter__(self) -> Self:
        if self._seconds is not None:
            loop = asyncio.get_running_loop()
            task = asyncio.current_task(loop)
            if task is None:
                raise RuntimeError("A deadline is for what a task does.")
            self._task = task
            self._cancelling = task.cancelling()
            self._timer = loop.call_later(self._seconds, self._expire)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is None:
            return
        self._timer.cancel()
        # Whoever else has cancelled the task wants it to end, whatever the time.
        if self.expired and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def _expire(self) -> None:
        self.expired = True
        self._task.cancel()
