"""Calls that go on although nobody waits for them any more."""

import asyncio
import logging
import time
from collections.abc import Callable

from prometheus_client import Gauge

logger = logging.getLogger(__name__)


class HangingCalls:
    """The calls of one function that are still running although their time is over."""

    __slots__ = ("_function", "_gauge", "_provider", "count")

    def __init__(self, function: str, provider: str, gauge: Gauge) -> None:
        self._function = function
        self._provider = provider
        self._gauge = gauge.labels(provider, function)
        self.count = 0

    def leave(self, seconds: float | None, hangs: Callable[[], None] | None = None) -> Callable[[], None]:
        """Take note of a call that nobody waits for any more, and return what is to be called when it ends.

        It hangs, and `hangs` is called, if it has not ended when the rest of its time has passed: `seconds`, or None
        if it may take for ever. A caller who leaves early is no reason to think ill of it.
        """
        call = _Left(self, hangs)
        if seconds is not None and seconds <= 0:
            call.hang()
        elif seconds is not None:
            call.timer = asyncio.get_running_loop().call_later(seconds, call.hang)
        return call.end

    def begin(self) -> None:
        """Count one more."""
        self.count += 1
        self._gauge.inc()
        logger.warning(
            "function %s of provider %s hangs: its time is over and it does not end; %d of its calls hang",
            self._function,
            self._provider,
            self.count,
        )

    def end(self, seconds: float) -> None:
        """Count one less."""
        self.count -= 1
        self._gauge.dec()
        logger.info(
            "a call of function %s of provider %s has ended, %.1f seconds after its time; %d still hang",
            self._function,
            self._provider,
            seconds,
            self.count,
        )


class _Left:
    """One call that nobody waits for."""

    __slots__ = ("_calls", "_hangs", "_since", "timer")

    def __init__(self, calls: HangingCalls, hangs: Callable[[], None] | None) -> None:
        self._calls = calls
        self._hangs = hangs
        self._since: float | None = None
        self.timer: asyncio.TimerHandle | None = None

    def hang(self) -> None:
        self._since = time.monotonic()
        self._calls.begin()
        if self._hangs is not None:
            self._hangs()

    def end(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
        if self._since is not None:
            self._calls.end(time.monotonic() - self._since)
            self._since = None
