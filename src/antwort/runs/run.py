"""A run: one response, brought to its end by whoever has it, whatever cannot be used meanwhile."""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from enum import Enum
from typing import NamedTuple, Protocol, TypeVar

from antwort.concurrency.backoff import Backoff
from antwort.config import EngineConfig
from antwort.engine.turns.loop import Loop
from antwort.errors import APIError, BadGatewayError
from antwort.storage.base import FencedError, StoreUnavailableError

# --- waiting for what a run needs and cannot have now: the store, a model server -------------------------------------


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
        return min(left, max(error.asked_pause, pause))

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


# --- a run -----------------------------------------------------------------------------------------------------------


logger = logging.getLogger(__name__)


class RunEnd(Enum):
    """Why nobody works on a response any more."""

    OVER = "over"
    PARKED = "parked"
    """It waits for somebody, and nothing of it is in memory."""
    LOST = "lost"
    """Somebody else has it, or it was ended by somebody else."""
    FAILED = "failed"


class EndedRun(NamedTuple):
    """What came of a run."""

    state: RunEnd
    loop: Loop
    """What has made the response last."""
    error: APIError | None = None
    """Why it has failed."""


class Lease(Protocol):
    """The right to work on one response, and how whoever has it does so. What may differ is who that is."""

    async def work(self, loop: Loop) -> None:
        """Make the response, or go on with it, once; a FencedError if somebody else has it."""

    def progress(self) -> None:
        """Take note that the response got further."""

    def has_time(self, seconds: float) -> bool:
        """Tell whether there is time left when so many seconds were waited."""

    async def resume(self, loop: Loop) -> Loop | None:
        """Take the response again, and return what goes on with it from what is stored; None if nobody is to."""

    async def fail(self, loop: Loop, error: APIError) -> None:
        """Store that the response has failed, if it is not over; a FencedError if somebody else has ended it."""


class ResponseRun:
    """Brings a response to its end. In the background it waits while the store or the model server is away.

    Then it goes on from what is stored; in the foreground somebody waits, and is told at once.
    """

    def __init__(self, lease: Lease, settings: EngineConfig) -> None:
        self._lease = lease
        self._outage = ModelOutage(settings.outage_patience, settings.max_broken_answers)
        self._looks = pauses()

    async def to_end(self, loop: Loop) -> EndedRun:
        """Work on the response until it is over, parked or lost, or cannot be brought to its end."""
        while True:
            loop.on_progress = self._progress
            try:
                await self._lease.work(loop)
                return EndedRun(RunEnd.PARKED if loop.parked else RunEnd.OVER, loop)
            except FencedError:
                return EndedRun(RunEnd.LOST, loop)
            except APIError as error:
                pause = self._pause(loop, error)
                if pause is None:
                    return await self._failed(loop, self._outage.last_error(error))
            except (asyncio.CancelledError, GeneratorExit):
                raise
            except BaseException:  # what was made cannot be stored, or somebody wants to end the process
                logger.exception("response %s could not be brought to an end", loop.response.id)
                return await self._failed(loop, APIError("The server had an error while making the response."))
            await asyncio.sleep(pause)
            again = await self._lease.resume(loop)
            if again is None:
                return EndedRun(RunEnd.LOST, loop)
            loop = again

    def _progress(self) -> None:
        self._outage.reset()
        self._lease.progress()

    def _pause(self, loop: Loop, error: APIError) -> float | None:
        """Return the seconds to wait until it goes on after an error; None if it does not."""
        response = loop.response
        if not response.background:
            return None
        if isinstance(error, StoreUnavailableError):
            logger.warning("response %s waits for the store: %s", response.id, error.message)
            return next(self._looks)
        pause = self._outage.pause(error, broke_off=loop.broke_off)
        if pause is None or not self._lease.has_time(pause):
            return None
        logger.warning("response %s waits for the model, %.1f s: %s", response.id, pause, error.message)
        return pause

    async def _failed(self, loop: Loop, error: APIError) -> EndedRun:
        if loop.response.background:  # else the loop has ended it, and said so
            logger.warning("response %s failed: %s", loop.response.id, error.message)
        try:
            await self._lease.fail(loop, error)
        except FencedError:
            return EndedRun(RunEnd.LOST, loop)
        return EndedRun(RunEnd.FAILED, loop, error)
