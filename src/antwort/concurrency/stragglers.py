"""What is not over after a moment: one timer for all, since nearly everything is over by then."""

import asyncio
import contextvars
import time
from typing import Protocol

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
