"""Standing back behind requests: the server says how much of the machine workers may use, and they heed it.

It says so in a small file: to look costs a worker next to nothing, so that it does before each text. Each process of a
server has a place of its own there; the least of what they say counts.
"""

import asyncio
import contextlib
import os
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

from antwort.provider import MUCH, ServerLoad

EVERY = 0.1
"""Seconds between looks at what is asked of the server."""
LATE = 0.005
"""Seconds that the loop may be late while somebody waits."""
_LOOKS = 10
"""Looks within which requests count together."""
_CALM = 2.0
"""Seconds without requests after which workers use everything again."""
_LEAST = 1 / 16
"""What they may use at any rate: nothing stands still, however much is asked of the server."""
_MORE = 1 / 32
"""How much more they may use after a look at which the loop was not late."""
_PLACE = struct.Struct("=dd")
"""When it was said, by the clock of the machine, and how much they may use."""
_PLACES = 256
_VALID = 1.0
"""Seconds for which it counts: a process that has ended says nothing."""
_NEEDED = 20.0
"""Seconds for which there is work when somebody has said so."""
_PAUSE = 0.02
"""Seconds between two looks of a thread that is not to compute now."""
_LONGEST = 1.0
"""Seconds of one pause."""


class Share:
    """What part of the processors workers may use: all, one less while somebody waits, and less while that is late."""

    def __init__(self, load: ServerLoad, processors: int | None = None) -> None:
        processors = processors or os.cpu_count() or 1
        self.value = 1.0
        self._load = load
        self._most = max(0.5, 1 - 1 / processors)
        """While somebody waits."""
        self._asked: deque[int] = deque([load.asked], _LOOKS + 1)
        self._was_running = False
        self._until = 0.0

    def look(self, now: float) -> float:
        """Look at what is asked of the server, and return the share."""
        load, before = self._load, self._was_running
        self._asked.append(load.asked)
        self._was_running = load.running > 0
        if self._asked[-1] - self._asked[0] >= MUCH or (before and self._was_running):
            self._until = now + _CALM
        if now >= self._until:
            self.value = 1.0
        elif load.lag > LATE:
            self.value = max(_LEAST, min(self.value, self._most) / 2)
        else:
            self.value = min(self._most, self.value + _MORE)
        return self.value


class SharedWord:
    """The file in which processes of a server say how much workers may use. No disk that is full does any harm."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._descriptor = -1
        self._look = 0.0
        """When there may be a file, if there was none."""

    def say(self, share: float) -> None:
        """Say how much workers may use, as far as this process goes."""
        with contextlib.suppress(OSError):
            if self._descriptor < 0:
                self._descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            told = _PLACE.pack(time.monotonic(), share)
            os.pwrite(self._descriptor, told, os.getpid() % _PLACES * _PLACE.size)

    def heard(self) -> float:
        """Return how much they may use: everything, if nobody says so."""
        now = time.monotonic()
        try:
            if self._descriptor < 0 and now >= self._look:
                self._look = now + _VALID
                self._descriptor = os.open(self._file, os.O_RDONLY | os.O_CLOEXEC)
            page = os.pread(self._descriptor, _PLACES * _PLACE.size, 0)
        except OSError:
            return 1.0
        places = _PLACE.iter_unpack(page[: len(page) // _PLACE.size * _PLACE.size])
        said = [share for when, share in places if 0 <= now - when < _VALID]
        return max(_LEAST, min(said, default=1.0))

    def close(self) -> None:
        """Close it."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class ShareTeller:
    """Says how much workers may use, as long as somebody says that there is something to do."""

    def __init__(self, load: ServerLoad, file: Path) -> None:
        self._share = Share(load)
        self._file = file
        self._until = 0.0
        self._task: asyncio.Task[None] | None = None

    @property
    def value(self) -> float:
        """What was said last."""
        return self._share.value

    def need(self) -> None:
        """Say that there is work; it is enough to say so every ten seconds."""
        self._until = time.monotonic() + _NEEDED
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._tell(), name="file search share")

    async def close(self) -> None:
        """Say nothing more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _tell(self) -> None:
        with contextlib.closing(SharedWord(self._file)) as word:
            while (now := time.monotonic()) < self._until:
                word.say(self._share.look(now))
                await asyncio.sleep(EVERY)


class WorkerPace:
    """Lets as many threads of a worker compute at once as it may use, and makes the last of them pause in between."""

    def __init__(
        self,
        share: Callable[[], float],
        sleep: Callable[[float], None] = time.sleep,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._share = share
        self._sleep = sleep
        self._now = now
        self._threads = 1
        self._busy = 0
        self._lock = threading.Lock()

    def begin(self, threads: int) -> None:
        """Take note of how many threads there are."""
        self._threads = threads

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Compute for a moment, on a thread, when it is its turn."""
        while not self._enter():
            self._sleep(_PAUSE)
        started = self._now()
        try:
            yield
            allowed = self._share() * self._threads
            if allowed < 1:
                self._sleep(min(_LONGEST, (self._now() - started) * (1 / allowed - 1)))
        finally:
            with self._lock:
                self._busy -= 1

    def _enter(self) -> bool:
        with self._lock:
            is_free = self._busy < max(1, int(self._share() * self._threads))
            self._busy += is_free
        return is_free
