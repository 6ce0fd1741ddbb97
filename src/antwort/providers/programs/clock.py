"""How long a program computes, and how long it sleeps: a clock that stands still while the program waits."""

import asyncio
from collections.abc import Callable


class Clock:
    """Calls somebody when a program has run for so many seconds in all."""

    def __init__(self, seconds: float, late: Callable[[], None]) -> None:
        self._left = seconds
        self._late = late
        self._loop = asyncio.get_running_loop()
        self._since = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_running(self) -> bool:
        """Tell whether the program computes."""
        return self._timer is not None

    def start(self) -> None:
        """Go on; nothing happens if it does already."""
        if self._timer is None:
            self._since = self._loop.time()
            self._timer = self._loop.call_later(max(self._left, 0), self._late)

    def stop(self) -> None:
        """Stand still, until it is started again."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
            self._left -= self._loop.time() - self._since
