"""The end of the process, for certain: nothing that a plug-in has left running holds it when all is closed."""

import logging
import os
import signal
import sys
import threading
import time

_PATIENCE = 2.0
"""Seconds that threads and what is registered to be called at the end have."""
_LATEST = 2 * _PATIENCE
"""Seconds after which the system ends the process, also if Python is in no state to do that any more."""


def end_for_certain(code: int) -> None:
    """Let the process end in time with a code. It is to be called when there is nothing left to be done.

    Python waits for every thread that is no daemon, then calls what is registered with `atexit`, then lets go of all
    there is, where a coroutine that does not want to end goes on for ever.
    """
    threading.Thread(target=_end, args=(code,), name="antwort-end", daemon=True).start()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # it ends already, and has said with which code
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, _LATEST)


def _end(code: int) -> None:
    time.sleep(_PATIENCE)
    threads = sorted(thread.name for thread in threading.enumerate() if not thread.daemon and thread.is_alive())
    others = [name for name in threads if name != threading.main_thread().name]
    logging.getLogger(__name__).warning(
        "the process ends without what does not end: %s",
        f"threads {', '.join(others)}" if others else "what is called at its end",
    )
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
