"""The event loop of a server: it goes on when a plug-in wants to end it, and the process ends when it should.

Other commands end when a signal comes, and still close what they have opened.
"""

import asyncio
import contextlib
import logging
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Collection, Coroutine, Iterator
from types import FrameType
from typing import Any, Literal, NoReturn, TypeAlias, TypeVar

from antwort.cli.output import CommandFailure, Misuse
from antwort.concurrency.contained_tasks import name_of_current
from antwort.config import Config

logger = logging.getLogger(__name__)
T = TypeVar("T")
Phase: TypeAlias = Literal["starting", "serving", "closing", "over", "gone"]
_STEP = 0.05
"""Seconds between two looks at a loop that has a limit."""
_LENIENCE = 2.0
"""Seconds that a loop may be late in any case: on a machine under load it only looks stuck."""
STOPPING = 15.0
"""Seconds in which a server stops, beside those that requests and providers have."""
_HURRIED = 10.0
"""Seconds in which it stops when it is told once more while it closes."""
_LONGEST_STEP = 1.0
"""Seconds that count at most of the time between two looks: a process that was suspended is not late."""
_LAST_WORD = 1.0
"""Seconds that the last line may take: whoever is stuck may hold the lock of the log."""
_LEAVING = 30
"""Seconds in which a command that has got a signal ends, whatever blocks it."""
_REMINDERS = (0.05, 0.2, 1.0, 5.0)
"""Seconds after which a command that has got a signal is woken again, one after the other."""
_NAMED = 5
"""How many tasks the last line names."""
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PROVIDER = "provider "
"""How the name of a task begins in which a provider starts and closes."""


class LeavingRunner:
    """Runs coroutines until a signal ends the process. What runs then is cancelled, as by Ctrl-C, and can close itself.

    To raise something in the midst of it would not do: it might be taken for the failure of a function, and all the
    tasks of providers would be cancelled at once.
    """

    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner
        self._task: asyncio.Task[Any] | None = None
        self._left: SystemExit | None = None

    def run(self, coro: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end; SystemExit if a signal has come, now or before."""
        try:
            result = self._runner.run(self._noted(coro))
        except (asyncio.CancelledError, KeyboardInterrupt):
            if self._left is not None:
                raise self._left from None
            raise
        finally:
            self._task = None
        if self._left is not None:
            raise self._left
        return result

    async def _noted(self, coro: Coroutine[Any, Any, T]) -> T:
        self._task = asyncio.current_task()
        return await coro

    def leave(self, number: int, _frame: FrameType | None = None) -> None:
        """Leave because of a signal. A second one of its kind ends the process without ado, another is not heard."""
        signal.signal(number, signal.SIG_DFL)
        if self._left is not None:
            return
        self._left = SystemExit(128 + number)  # as a shell reports it
        signal.alarm(_LEAVING)  # nobody may be left to send a second signal
        if self._task is None:
            raise self._left
        self._task.cancel()
        self._runner.get_loop().call_soon_threadsafe(lambda: None)  # or it would sleep on


@contextlib.contextmanager
def leaving_by_signals() -> Iterator[LeavingRunner]:
    """Leave the block when the process is to end or its terminal is closed; else what is temporary would stay behind.

    What is run by the runner then ends first. A signal that is ignored, as after `nohup`, stays so.
    """
    heard = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is signal.SIG_DFL]
    with _reminders(), asyncio.Runner() as loops:
        runner = LeavingRunner(loops)
        for number in heard:
            signal.signal(number, runner.leave)
        try:
            yield runner
        finally:
            for number in heard:
                signal.signal(number, signal.SIG_DFL)


@contextlib.contextmanager
def _reminders() -> Iterator[None]:
    """Wake the main thread again some time after a signal.

    One that comes as `input` is about to wait is only noted: the handler would be called after the next line.
    """
    over, main = threading.Event(), threading.main_thread().ident
    inlet, outlet = socket.socketpair()
    inlet.setblocking(False)

    def remind() -> None:
        with outlet:
            while numbers := outlet.recv(64):
                if any(number in _ENDING for number in numbers):
                    for pause in _REMINDERS:
                        if main is None or over.wait(pause):
                            break
                        signal.pthread_kill(main, signal.SIGURG)

    woken = signal.signal(signal.SIGURG, lambda *_: None)  # nobody wakes up for a signal that is ignored
    before = signal.set_wakeup_fd(inlet.fileno(), warn_on_full_buffer=False)
    threading.Thread(target=remind, name="antwort-reminders", daemon=True).start()
    try:
        yield
    finally:
        over.set()
        signal.set_wakeup_fd(before)
        signal.signal(signal.SIGURG, woken)
        inlet.close()


def run_contained(
    loop: asyncio.AbstractEventLoop, main: Coroutine[Any, Any, None], *, entered_again: Callable[[], None]
) -> None:
    """Run a coroutine to its end, whatever the callbacks of plug-ins raise meanwhile. What it raises itself is raised.

    asyncio lets a SystemExit or KeyboardInterrupt of any callback out of the loop, which then can be entered again: all
    that was waiting still waits. So this costs nothing until it happens; then `entered_again` is called on the loop.
    Ctrl-C passes where the loop does not handle it.
    """
    task = loop.create_task(main)
    while not task.done():
        try:
            loop.run_until_complete(task)
        except (SystemExit, KeyboardInterrupt, RuntimeError) as error:  # the last is for a loop that somebody stopped
            if task.done():
                break
            if _is_signal(error) or loop.is_closed():
                raise
            logger.exception("a callback of a function or provider wanted to end the process; it goes on")
            loop.call_soon(entered_again)
    task.result()


def _is_signal(error: BaseException) -> bool:
    """Tell whether it may be Ctrl-C: it never is while the loop has a handler of its own for that."""
    return isinstance(error, KeyboardInterrupt) and signal.getsignal(signal.SIGINT) is signal.default_int_handler


def stop_limit(config: Config) -> float | None:
    """Return the seconds within which a server that was told to stop is gone; None if providers may take for ever."""
    close = config.functions.close_timeout
    return None if close is None else max(1.0, config.server.shutdown_timeout) + close + STOPPING


class StuckLoop:
    """Ends the process when it does not start or stop in time, whatever the reason: the loop may be blocked.

    A thread asks the loop whether it still turns: while it starts, while it closes, and when a signal has come. While
    it serves, the thread is asleep. Whatever only waits, as it should, has limits of its own; for those that forget
    theirs, all of the stop has one.

    When the process that has the workers is gone, which the lifeline tells, nobody would stop this one: it stops by
    itself, as on SIGTERM. The thread sees to that, because the loop may be blocked by then.
    """

    def __init__(
        self,
        config: Config,
        loop: asyncio.AbstractEventLoop,
        *,
        ending: Collection[int] = _ENDING,
        lifeline: int | None = None,
    ) -> None:
        """Take the signals that are to end the process."""
        functions = config.functions
        self._start, self._close = functions.start_timeout, functions.close_timeout
        self._grace = max(functions.grace, _LENIENCE)
        self._shutdown = config.server.shutdown_timeout
        self._stopping = stop_limit(config)
        self._loop = loop
        self._lifeline = lifeline
        self._ending = ending
        self._phase: Phase = "starting"
        self._signals = 0
        self._last_look = 0.0
        self._left: float | None = None
        """Seconds until the process has to be gone."""
        self._inlet, self._outlet = socket.socketpair()
        self._inlet.setblocking(False)
        self._forward = -1
        threading.Thread(target=self._watch, name="antwort-stuck-loop", daemon=True).start()

    def enter(self, phase: Phase) -> None:
        """Take note of how far the process is. After `over`, signals are the loop's own business again.

        When the loop is closed the process is `gone`, as far as this can see to it.
        """
        if phase == "over" and self._forward >= 0:
            signal.set_wakeup_fd(self._forward)
        self._phase = phase
        with contextlib.suppress(OSError):  # the thread has seen it already, and ended
            self._inlet.send(b"\0")

    def listen(self) -> None:
        """Hear signals before the loop does, which has its handlers by now, and pass them on to it.

        A loop that is entered again may hear them itself again: then this is to be called again.
        """
        if self._phase not in {"over", "gone"}:
            previous = signal.set_wakeup_fd(self._inlet.fileno())
            self._forward = self._forward if previous == self._inlet.fileno() else previous

    def _watch(self) -> None:
        with self._inlet, self._outlet:
            while self._phase != "gone":
                self._hear(None if self._phase == "serving" and not self._signals else _STEP)
                if self._phase != "over":
                    self._ask()
                elif self._left is None or self._left > self._grace:
                    self._set_left(self._grace)

    def _hear(self, seconds: float | None) -> None:
        """Wait for a signal or a new phase, and look at the time."""
        heeded = self._forward >= 0 and self._phase != "over"  # else a signal would not be heard, or is not needed
        lifelines = [self._lifeline] if self._lifeline is not None and heeded else []
        outlet = self._outlet.fileno()
        ready = select.select([outlet, *lifelines], [], [], seconds)[0]
        self._look_at_the_time()
        if self._lifeline in ready:
            self._lifeline = None
            os.kill(os.getpid(), signal.SIGTERM)  # heard like any other, by the next look
            threading.Thread(target=_log_orphan, daemon=True).start()  # whoever blocks may hold the lock of the log
        if outlet not in ready:
            return
        numbers = self._outlet.recv(64).replace(b"\0", b"")
        if told := sum(number in self._ending for number in numbers):
            if not self._signals:
                self._set_left(self._stopping)
            elif self._phase == "closing":
                self._set_left(_HURRIED if self._left is None else min(self._left, _HURRIED))
            self._signals += told
        if numbers and self._forward >= 0:
            with contextlib.suppress(OSError):  # the loop is closed, or has more of them than it can take
                os.write(self._forward, numbers)

    def _set_left(self, seconds: float | None) -> None:
        self._left, self._last_look = seconds, time.monotonic()

    def _look_at_the_time(self) -> None:
        """End the process if its time is over."""
        if self._left is None or self._phase == "gone":
            return
        now = time.monotonic()
        self._left -= min(now - self._last_look, _LONGEST_STEP)
        self._last_look = now
        if self._left <= 0:
            names = sorted(task.get_name() for task in asyncio.all_tasks(self._loop) if not task.done())
            whom = f"; it waits for {', '.join(names[:_NAMED])}" if names else ""
            self._end(1, lambda: _log(f"it did not stop in time{whom}"))

    def _ask(self) -> None:
        """Wait until the loop turns."""
        answered = threading.Event()
        try:
            self._loop.call_soon_threadsafe(answered.set)
        except RuntimeError:  # it is closed
            return
        waited = 0.0  # counted, not measured: a process that was suspended is not stuck
        while not answered.wait(_STEP) and self._phase not in {"over", "gone"}:
            self._hear(0)
            waited += _STEP
            limit = self._limit()
            if limit is not None and waited >= limit:
                self._end_stuck(waited)

    def _limit(self) -> float | None:
        """Return how long the loop may be stuck, as things are."""
        if self._signals > 1 or (self._signals and self._phase == "starting"):
            return self._grace
        if self._phase == "starting":
            return None if self._start is None else self._start + self._grace
        if self._close is None or (self._phase == "serving" and not self._signals):
            return None
        return self._close + self._grace + (self._shutdown if self._phase == "serving" else 0.0)

    def _end_stuck(self, waited: float) -> None:
        frame = sys._current_frames().get(threading.main_thread().ident or 0)
        name = name_of_current(self._loop, frame) or "the event loop"
        if self._phase == "starting" and not self._signals:
            thing = f"providers.{name.removeprefix(_PROVIDER)}" if name.startswith(_PROVIDER) else name
            refusal = Misuse(
                f"{thing} did not start within {self._start:g} seconds, and blocks the event loop; "
                "functions.start_timeout is the limit"
            )
            self._end(refusal.exit_code, lambda: _show(refusal))
        self._end(1, lambda: _log(f"{name} has blocked the event loop for {waited:.1f} seconds"))

    def _end(self, code: int, last_word: Callable[[], None]) -> NoReturn:
        saying = threading.Thread(target=last_word, daemon=True)
        saying.start()
        saying.join(_LAST_WORD)
        os._exit(code)


def _log_orphan() -> None:
    logger.error("the process that has the workers is gone; this one stops")


def _log(why: str) -> None:
    logger.error("the process ends at once: %s", why)
    sys.stdout.flush()
    logging.shutdown()


def _show(refusal: CommandFailure) -> None:
    refusal.show()
    sys.stderr.flush()
