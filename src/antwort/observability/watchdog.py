"""Whether the event loop keeps turning: while something blocks it, nothing else is answered."""

import asyncio
import logging
import sys
import threading
import time
from types import FrameType

from antwort.concurrency.contained_tasks import name_of_current
from antwort.concurrency.load import ServerLoad
from antwort.observability.metrics import Metrics

logger = logging.getLogger(__name__)

LAG = "antwort_loop_lag_seconds"
INTERVAL = 0.1
"""Seconds between two looks at the loop. Whatever blocks it for longer is seen; shorter ones are seen sometimes."""
_LOOKS = 10
"""Looks between two times that the metrics of the hot path are added up."""
FRAMES = 5
IDLE = ("selectors.", "asyncio.base_events.", "asyncio.runners.")
"""Where a loop is that has nothing to do."""
BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class LoopWatchdog:
    """Measures how late the loop comes to what is due, and says in the log who keeps it, while it is kept.

    The loop cannot say that itself, so a thread does. It is asleep but for a moment in half of `patience` seconds.
    """

    def __init__(self, metrics: Metrics, patience: float, load: ServerLoad | None = None) -> None:
        self._lag = metrics.histogram(
            LAG,
            "How late the event loop comes to what is due, looked at ten times a second.",
            buckets=BUCKETS,
        )
        self._metrics = metrics
        self._load = load or ServerLoad()
        self._looks = 0
        self._patience = patience
        self._due = 0.0
        self._told = 0.0
        """The look that was due when the log was told: once is enough."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = threading.Event()

    def start(self) -> None:
        """Watch the running loop."""
        self.close()
        self._loop = asyncio.get_running_loop()
        self._stopped = threading.Event()
        self._wait()
        arguments = (self._loop, threading.get_ident(), self._stopped)
        threading.Thread(target=self._watch, args=arguments, name="antwort-watchdog", daemon=True).start()

    def close(self) -> None:
        """Watch no longer."""
        self._stopped.set()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self) -> None:
        assert self._loop is not None, "it has been started"  # noqa: S101 - for the type checker
        self._due = time.monotonic() + INTERVAL
        self._timer = self._loop.call_later(INTERVAL, self._look)

    def _look(self) -> None:
        lag = max(0.0, time.monotonic() - self._due)
        self._lag.observe(lag)
        self._load.lag = lag
        if lag >= self._patience:
            logger.warning("the event loop was blocked, or had no processor, for %.1f seconds", lag)
        self._looks += 1
        if self._looks % _LOOKS == 0:
            self._metrics.add_up()
        self._wait()

    def _watch(self, loop: asyncio.AbstractEventLoop, thread: int, stopped: threading.Event) -> None:
        """Look at the loop from outside: the work of the thread."""
        while not stopped.wait(self._patience / 2) and not loop.is_closed():
            due = self._due
            if not loop.is_running() or time.monotonic() - due < self._patience or self._told == due:
                continue
            self._told = due
            culprit = described(loop, sys._current_frames().get(thread))
            if culprit is not None and self._due == due:  # otherwise it goes on already, and this is somebody else
                logger.warning("the event loop is blocked, and nothing else is answered: %s", culprit)


def described(loop: asyncio.AbstractEventLoop, frame: FrameType | None) -> str | None:
    """Name the task that a loop works on, and what it does at the moment, the innermost call first.

    None if it does nothing: it waits for a processor.
    """
    name = name_of_current(loop, frame)
    stack: list[str] = []
    while frame is not None and len(stack) < FRAMES:
        stack.append(f"{frame.f_globals.get('__name__', '?')}.{frame.f_code.co_qualname}:{frame.f_lineno}")
        frame = frame.f_back
    if name is None and (not stack or stack[0].startswith(IDLE)):
        return None
    return f"task '{name or '-'}' is at {' < '.join(stack) or 'an unknown place'}"
