"""Waiting for what a run needs and cannot have now: the store, a model server."""

import asyncio
import itertools
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

from antwort.backends.errors import asked_pause
from antwort.errors import APIError
from antwort.storage.base import StoreUnavailableError

T = TypeVar("T")

PAUSES = (0.1, 0.5, 1.0, 2.0, 5.0)
"""Seconds between two looks whether the store can be used again; the last goes on for ever."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
"""Seconds between two requests to a model server that is away: each pause is twice the last, less a random part."""


def pauses() -> Iterator[float]:
    """Give the seconds between two looks at the store."""
    return itertools.chain(PAUSES, itertools.repeat(PAUSES[-1]))


async def patiently(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask the store for something, again and again while it cannot be used."""
    waiting = pauses()
    while True:
        try:
            return await ask()
        except StoreUnavailableError:
            await asyncio.sleep(next(waiting))


class ModelOutage:
    """How long a run waits for a model server, from the first failure since it got further."""

    def __init__(
        self,
        patience: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._patience = patience
        self._clock = clock
        self._jitter = jitter
        self._since: float | None = None
        self._failures = 0

    def reset(self) -> None:
        """Take note that the run got further."""
        self._since, self._failures = None, 0

    def pause(self, error: APIError) -> float | None:
        """Return the seconds until the next try; None if it has waited long enough.

        Many runs wait for one server, so the pauses are random. What the server asks for is the least of them.
        """
        now = self._clock()
        if self._since is None:
            self._since = now
        left = self._since + self._patience - now
        if left <= 0:
            return None
        longest = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(self._failures, 10))
        self._failures += 1
        return min(left, max(asked_pause(error), self._jitter(longest / 2, longest)))
