"""Processes that stand still: all of them stopped by signals at one moment, where there is no freezer that does it."""

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from antwort.concurrency.backoff import Backoff
from antwort.sandbox.usage import descendants

PATIENCE = 5.0
"""Seconds that processes have to stop. One that is in the kernel, to write much say, stops when it comes back."""
_LOOKS = Backoff(0.0001, 0.01)
"""Seconds between two looks: soon at first, then later and later."""
_STANDING = ("T", "Z", "X")
"""What threads do that do nothing: they are stopped, or have ended."""
_LOOKED_AT = ("State:", "voluntary_ctxt_switches:", "nonvoluntary_ctxt_switches:")
_TGKILL = {"x86_64": 234, "aarch64": 131}
"""The number of the system call that sends a signal to a thread, which Python does not have."""

Thread = tuple[int, int]
"""The numbers of its process, and its own."""
Doing = tuple[str, ...]
"""What a thread does, and how often it has given up a processor."""


def waited_for(condition: Callable[[], bool]) -> bool:
    """Wait until something is so, and tell whether it is; it takes a moment, so not on the event loop."""
    until, pauses = time.monotonic() + PATIENCE, _LOOKS.pauses()
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(next(pauses))
    return True


def stop_all(first: int) -> bool:
    """Stop a process and all that it has started; tell whether they stand still, which may take several attempts.

    They are looked at twice. Who was stopped both times, and has not run between, was stopped at the moment between
    the two looks. So there was a moment at which nobody could let another go on, and nothing else does: the filter of
    system calls refuses what lets the kernel do that later, such as timers.
    """

    def stand_still() -> bool:
        before = _look(first)
        awake = [thread for thread, doing in before.items() if doing[0] not in _STANDING]
        if not awake and _look(first) == before:
            return True
        for thread in awake or before:  # if none is, one was let go on meanwhile
            _stop(*thread)
        return False

    return waited_for(stand_still)


def send_signal(which: signal.Signals, processes: Iterable[int]) -> None:
    """Send a signal to processes; to those that are gone meanwhile it is not sent."""
    for one in processes:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(one, which)


def _stop(process: int, thread: int) -> None:
    """Stop a process by one of its threads.

    The kernel tells of a signal for the process to one thread, which may wait in the kernel while others go on.
    """
    number = _TGKILL.get(os.uname().machine)
    if number is None:
        send_signal(signal.SIGSTOP, [process])
    else:
        ctypes.CDLL(None).syscall(number, process, thread, int(signal.SIGSTOP))  # if it is gone, nothing happens


def _look(first: int) -> dict[Thread, Doing]:
    found = {}
    for process in descendants(first):
        with contextlib.suppress(OSError), os.scandir(f"/proc/{process}/task") as threads:
            for thread in threads:
                with contextlib.suppress(OSError):
                    found[process, int(thread.name)] = _doing(Path(thread.path))
    return found


def _doing(thread: Path) -> Doing:
    lines = (thread / "status").read_text().splitlines()
    doing = tuple(line.split()[1] for line in lines if line.startswith(_LOOKED_AT))
    # Who waits for a child to execute something (vfork) is not stopped, but cannot go on before the child does.
    waits = doing[0] == "D" and (thread / "children").read_text().strip() != ""
    return ("T", *doing[1:]) if waits else doing
