"""Waiting for what a run needs and cannot have now: the store, a model server."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

from antwort.backends.errors import asked_pause
from antwort.concurrency.backoff import Backoff
from antwort.errors import APIError, BadGatewayError
from antwort.storage.base import StoreUnavailableError

T = TypeVar("T")

_LOOKS = Backoff(0.1, 5.0)
"""Seconds between two looks whether the store can be used again."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
"""Seconds between two requests to a model server that is away: each pause is twice the last, less a random part."""


def pauses() -> Iterator[float]:
    """Give the seconds between two looks at the store."""
    return _LOOKS.pauses()


async def patiently(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask the store for something, again and again while it cannot be used."""
    waiting = pauses()
    while True:
        try:
            return await ask()
        except StoreUnavailableError:
            await asyncio.sleep(next(waiting))


class ModelOutage:
    """How long a run waits for a model server, and how many answers it lets break off, since it got further."""

    def __init__(
        self,
        patience: float,
        answers: int,
        *,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._patience = patience
        self._answers = answers
        self._clock = clock
        self._backoff = Backoff(FIRST_PAUSE, LONGEST_PAUSE, 0.5, jitter)
        self._since: float | None = None
        self._failures = 0
        self._broken_off = 0

    def reset(self) -> None:
        """Take note that the run got further."""
        self._since, self._failures, self._broken_off = None, 0, 0

    def pause(self, error: APIError, *, broke_off: bool = False) -> float | None:
        """Return the seconds until the next try; None if it has waited long enough, or enough answers broke off.

        Many runs wait for one server, so the pauses are random. What the server asks for is the least of them. A server
        that breaks its answer off is not away: it would work for nothing as often as it is asked.
        """
        self._broken_off += broke_off
        if self._broken_off >= self._answers:
            return None
        now = self._clock()
        if self._since is None:
            self._since = now
        left = self._since + self._patience - now
        if left <= 0:
            return None
        pause = self._backoff.pause(self._failures)
        self._failures += 1
        return min(left, max(asked_pause(error), pause))

    def last_error(self, error: APIError) -> APIError:
        """Return what to tell of a run that has waited long enough."""
        if self._broken_off < self._answers:
            return error
        times = f"Of {self._broken_off} answers" if self._broken_off > 1 else "Of the answer"
        return BadGatewayError(
            f"{error.message.rstrip('.')}. {times} none came to its end, so the model is not asked again "
            "(`engine.max_broken_answers`).",
            code=error.code,
        )
