"""Limits of time for what tasks do, at a fraction of the cost of timers, for what every request needs."""

import asyncio
import contextvars
import time
from types import TracebackType
from typing import Protocol, Self

MOMENT = 0.05
"""Seconds."""


class Straggler(Protocol):
    """Something that may take longer than a moment."""

    def be_late(self) -> None:
        """Take note that the moment has passed."""


class Stragglers:
    """Tells whoever is expected, and is not forgotten before, that a moment has passed; for use on one event loop.

    To be expected and forgotten costs an entry in a dictionary, where a timer of the loop costs as much as some ten
    calls of functions.
    """

    def __init__(self) -> None:
        self._expected: dict[Straggler, float] = {}
        """Until when each has time, the first first."""
        self._timer: asyncio.TimerHandle | None = None
        self._context = contextvars.copy_context()  # not that of whoever happens to be the first

    def expect(self, straggler: Straggler) -> None:
        """Tell somebody when a moment has passed."""
        self._expected[straggler] = time.monotonic() + MOMENT
        if self._timer is None:
            self._start(MOMENT)

    def forget(self, straggler: Straggler) -> None:
        """Tell somebody nothing any more."""
        self._expected.pop(straggler, None)

    def _start(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look, context=self._context)

    def _look(self) -> None:
        self._timer = None
        now = time.monotonic()
        while self._expected:
            straggler, until = next(iter(self._expected.items()))
            if until > now:
                self._start(until - now)
                return
            del self._expected[straggler]
            straggler.be_late()


class Deadline:
    """Cancels the current task when the seconds of a `with` block are over, and turns that into a TimeoutError.

    `expired` tells that it was this deadline, and not another that happened to pass. Without seconds there is none.
    Among others' `stragglers` it needs a timer only if the block takes longer than a moment.
    """

    __slots__ = ("_cancelling", "_seconds", "_stragglers", "_task", "_timer", "expired")

    def __init__(self, seconds: float | None, stragglers: Stragglers | None = None) -> None:
        self._seconds = seconds
        self._stragglers = stragglers if seconds is not None and seconds > MOMENT else None
        self._timer: asyncio.TimerHandle | None = None
        self.expired = False

    def __enter__(self) -> Self:
        if self._seconds is None:
            return self
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("A deadline is for what a task does.")
        self._task = task
        self._cancelling = task.cancelling()
        if self._stragglers is None:
            self._start(self._seconds)
        else:
            self._stragglers.expect(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._stragglers is not None:
            self._stragglers.forget(self)
        if self._timer is None:
            return
        self._timer.cancel()
        # Whoever else has cancelled the task wants it to end, whatever the time.
        if self.expired and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def be_late(self) -> None:
        """Begin to watch the time: the first moment of it has passed."""
        self._start((self._seconds or 0.0) - MOMENT)

    def _start(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._expire)

    def _expire(self) -> None:
        self.expired = True
        self._task.cancel()
