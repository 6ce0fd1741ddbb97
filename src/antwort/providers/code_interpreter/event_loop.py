"""Runs in the sandbox, as a helper of the driver: code that awaits something, in the one event loop of the session.

Tasks that a call leaves behind go on with the next call that awaits something, as in a notebook; those of a call that
is interrupted are cancelled.
"""

import asyncio
import signal
import types
from typing import Any, Coroutine  # noqa: UP035 - it may be an old Python

_PATIENCE = 1.0
"""Seconds that tasks have to end when they are cancelled."""
_WAITING = "selectors"
"""The module in which a loop waits that has nothing to do."""


class EventLoop:
    """The loop of a session."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()

    def restore(self) -> None:
        """Let code find the loop; `asyncio.run` leaves none."""
        asyncio.set_event_loop(self._loop)

    def run(self, steps: "Coroutine[Any, Any, None]") -> None:
        """Run code to its end; KeyboardInterrupt, from where it stood, if it is interrupted."""
        self.restore()
        before = asyncio.all_tasks(self._loop)
        main = self._loop.create_task(steps)
        interrupted = False

        def interrupt(_: int, frame: "types.FrameType | None") -> None:
            nonlocal interrupted
            interrupted = True
            if frame is None or frame.f_globals.get("__name__") != _WAITING:
                raise KeyboardInterrupt
            self._loop.call_soon_threadsafe(main.cancel)  # no code runs in which it could be raised

        signal.signal(signal.SIGINT, interrupt)
        try:
            self._loop.run_until_complete(main)
        except asyncio.CancelledError as error:
            if not interrupted:
                raise
            raise KeyboardInterrupt().with_traceback(error.__traceback__) from None
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            if interrupted:
                self._cancel(asyncio.all_tasks(self._loop) - before)
            _note_exception(main)

    def _cancel(self, tasks: "set[asyncio.Task[Any]]") -> None:
        for task in tasks:
            task.cancel()
        if tasks:
            done, _ = self._loop.run_until_complete(asyncio.wait(tasks, timeout=_PATIENCE))
            for task in done:
                _note_exception(task)


def _note_exception(task: "asyncio.Task[Any]") -> None:
    """Take note of how a task has ended: else it complains that nobody does."""
    if task.done() and not task.cancelled():
        task.exception()
