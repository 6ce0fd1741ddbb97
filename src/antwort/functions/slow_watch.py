"""Saying in the log what is waited for."""

import contextlib
import logging
import threading
import time
from collections.abc import Iterator

logger = logging.getLogger(__name__)

_SILENCE = 5.0
"""Seconds after which the log says what is waited for."""


class SlowWatch:
    """Says in the log that something is waited for if it takes long.

    It does so from a thread, since what is waited for may hold up the event loop. There is one for all that is waited
    for, and only as long as something is: a start waits for many things, and for hardly any of them long.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._awaited: dict[object, tuple[float, str]] = {}
        """When the log says it, and what; the first began first."""
        self._watched = False

    @contextlib.contextmanager
    def warn_if_slow(self, what: str, limit: float | None = None) -> Iterator[None]:
        """Say that something is waited for if it takes long; it has `limit` seconds, if any."""
        bound = "" if limit is None else f"; it has {limit:g} seconds"
        if limit is not None and limit <= _SILENCE:  # the loop is held up, or the limit would have ended it
            bound = f", and has blocked the event loop beyond its limit of {limit:g} seconds"
        key = object()
        with self._lock:
            self._awaited[key] = time.monotonic() + _SILENCE, f"{what} takes longer than {_SILENCE:g} seconds{bound}"
            if not self._watched:
                self._watched = True
                threading.Thread(target=self._watch, name="antwort-slow-watch", daemon=True).start()
        try:
            yield
        finally:
            with self._lock:
                self._awaited.pop(key, None)

    def _watch(self) -> None:
        """Look when the first is due, and end when there is none."""
        while True:
            with self._lock:
                if not self._awaited:
                    self._watched = False
                    return
                key, (due, text) = next(iter(self._awaited.items()))
                left = due - time.monotonic()
                if left <= 0:
                    del self._awaited[key]
            if left > 0:
                time.sleep(left)
            else:
                logger.warning("%s", text)
