"""A breaker that asks the server itself: what the requests of one client do to it says nothing to the others."""

import asyncio
import logging
import math
import random
from collections.abc import Awaitable, Callable

from antwort.concurrency.backoff import Backoff

logger = logging.getLogger(__name__)

MAX_FAILURES = 5
FIRST_PAUSE = 0.5
LONGEST_PAUSE = 5.0


class CircuitBreaker:
    """Refuses requests while a server is away, so that nobody waits for nothing and it can recover.

    Failures only raise a suspicion. After so many in a row the server itself is asked, by a `probe` that has nothing of
    any request in it, and only if that fails too the breaker opens. From then on the probe is repeated, after pauses of
    random length that grow from half a second to five, and the first that succeeds closes the breaker, as does an
    answer that begins. One probe at a time; `close` ends it.
    """

    def __init__(
        self,
        name: str,
        probe: Callable[[], Awaitable[bool]],
        *,
        max_failures: int = MAX_FAILURES,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        jitter: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self.is_open = False
        """Whether requests are refused."""
        self._name = name
        self._probe = probe
        self._max_failures = max_failures
        self._sleep = sleep
        self._backoff = Backoff(FIRST_PAUSE, LONGEST_PAUSE, 0.5, jitter)
        self.failures = 0
        """Those since the last success; without one, requests are not refused."""
        self._probes = 0
        """Those in vain since it opened."""
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def retry_after(self) -> int:
        """The seconds until the server is asked again, rounded up."""
        return max(1, math.ceil(self._backoff.bound(self._probes)))

    @property
    def examining(self) -> bool:
        """Whether the server is being asked for a sign of life."""
        return self._task is not None

    def note_success(self) -> None:
        """Note that the server answered."""
        self.failures = 0
        if self.is_open:
            self.is_open = False
            logger.info("The backend '%s' answers again.", self._name)

    def note_failure(self) -> None:
        """Note a failure that may be the server's."""
        self.failures += 1
        if self.failures >= self._max_failures and not self.examining and not self._closed:
            self._task = asyncio.create_task(self._examine())

    async def close(self) -> None:
        """Ask no more; requests pass from now on."""
        self._closed = True
        self.is_open = False
        if (task := self._task) is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _examine(self) -> None:
        """Find out whether the server is away, and if it is, when it is back."""
        try:
            if await self._is_there():
                self.failures = 0
                return
            if self.failures == 0:
                return  # a request was answered in the meantime
            logger.error("The backend '%s' is away: requests to it are refused until it answers again.", self._name)
            self.is_open = True
            self._probes = 0
            while self.is_open:
                await self._sleep(self._backoff.pause(self._probes))
                if await self._is_there():
                    self.note_success()
                self._probes += 1
        finally:
            self._task = None

    async def _is_there(self) -> bool:
        """Ask the server; a probe that breaks is one that failed, and must not be the last."""
        try:
            return await self._probe()
        except Exception:
            logger.exception("The backend '%s' could not be asked for a sign of life.", self._name)
            return False
