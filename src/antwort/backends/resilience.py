"""What is done when a model server fails: try again, leave it alone, ask another. One wrapper for each.

`Fallback(Guarded(Retrying(backend)))` is the whole of it: an answer that has begun is never begun again.
"""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from enum import Enum

from typing_extensions import override

from antwort.backends.base import ModelBackend, ModelRequest, TurnSink
from antwort.backends.failures import UNAVAILABLE, speaks_of_the_server, worth_another_backend, worth_another_try
from antwort.backends.watch import Wrapper, watched
from antwort.errors import APIError, RateLimitError, ServiceUnavailableError

__all__ = ["CircuitBreaker", "CircuitState", "Fallback", "Guarded", "Retrying"]

logger = logging.getLogger(__name__)

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 8.0
LONGEST_WAIT = 30.0
"""Seconds a server may ask us to wait before another try; if it asks for more, the client is told instead."""

MAX_FAILURES = 5
REST = 30.0


class Retrying(Wrapper):
    """Tries again while the answer has not begun: after a pause of random length (exponential, full jitter).

    Only failures that may pass are worth it: 429, and 502 to 504 unless the server failed at the request itself. What
    the server says in `Retry-After` is the least pause. A pause beyond the request's deadline is not begun.
    """

    def __init__(
        self,
        backend: ModelBackend,
        retries: int,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[float, float], float] = random.uniform,
    ) -> None:
        super().__init__(backend)
        self._retries = retries
        self._sleep = sleep
        self._clock = clock
        self._jitter = jitter

    @override
    async def run(self, request: ModelRequest, sink: TurnSink) -> None:
        watch = watched(sink)
        for attempt in range(self._retries):
            try:
                await self.backend.run(request, watch)
            except APIError as error:
                pause = None if watch.begun else self._pause(attempt, error, request)
                if pause is None:
                    raise
                logger.warning("%s Trying again in %.1f s.", error.message, pause)
            else:
                return
            await self._sleep(pause)
        await self.backend.run(request, watch)

    def _pause(self, attempt: int, error: APIError, request: ModelRequest) -> float | None:
        """Return the seconds until the next try; None if there should be none."""
        if not worth_another_try(error):
            return None
        asked = _asked_pause(error)
        if asked > LONGEST_WAIT:
            return None
        pause = max(asked, self._jitter(0.0, min(LONGEST_PAUSE, FIRST_PAUSE * 2**attempt)))
        if request.deadline is not None and self._clock() + pause >= request.deadline:
            return None
        return pause


class CircuitState(Enum):
    """What a breaker does with a request."""

    CLOSED = "closed"
    """Let it pass."""
    OPEN = "open"
    """Refuse it."""
    HALF_OPEN = "half_open"
    """Let one pass to see how it goes, and refuse the others."""


class CircuitBreaker:
    """Opens after so many failures in a row; after a rest one request may try, and closes it or begins another rest."""

    def __init__(
        self,
        *,
        max_failures: int = MAX_FAILURES,
        rest: float = REST,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_failures = max_failures
        self._rest = rest
        self._clock = clock
        self._failures = 0
        self._opened: float | None = None
        self._trying = False

    @property
    def state(self) -> CircuitState:
        """Tell what would happen to a request now."""
        if self._opened is None:
            return CircuitState.CLOSED
        return CircuitState.OPEN if self.remaining() > 0 else CircuitState.HALF_OPEN

    def remaining(self) -> float:
        """Return the seconds of rest left."""
        return 0.0 if self._opened is None else max(0.0, self._opened + self._rest - self._clock())

    def admit(self) -> bool:
        """Tell whether a request may pass. One that did must be followed by success, failure or abandon."""
        state = self.state
        if state is CircuitState.CLOSED:
            return True
        if state is CircuitState.OPEN or self._trying:
            return False
        self._trying = True
        return True

    def success(self) -> None:
        """Note that the server answered."""
        self._failures = 0
        self._opened = None
        self._trying = False

    def failure(self) -> None:
        """Note that it failed."""
        self._failures += 1
        if self._trying or self._failures >= self._max_failures:
            self._opened = self._clock()
        self._trying = False

    def abandon(self) -> None:
        """Note that nobody waited to see."""
        self._trying = False


class Guarded(Wrapper):
    """Leaves a server alone that failed too often, so that it can recover and nobody waits for nothing."""

    def __init__(self, backend: ModelBackend, breaker: CircuitBreaker) -> None:
        super().__init__(backend)
        self.breaker = breaker
        self._last = ""

    @override
    async def run(self, request: ModelRequest, sink: TurnSink) -> None:
        breaker = self.breaker
        if not breaker.admit():
            raise ServiceUnavailableError(
                f"The backend '{self.name}' failed several times in a row and is left alone for a while. {self._last}",
                code=UNAVAILABLE,
                headers={"retry-after": str(max(1, round(breaker.remaining())))},
            )
        watch = watched(sink)
        watch.listen(breaker.success)
        try:
            await self.backend.run(request, watch)
        except APIError as error:
            self._note(error)
            raise
        except BaseException:
            breaker.abandon()
            raise
        else:
            breaker.success()
        finally:
            watch.forget(breaker.success)

    @override
    async def count_tokens(self, request: ModelRequest) -> int | None:
        return None if self.breaker.state is CircuitState.OPEN else await self.backend.count_tokens(request)

    def _note(self, error: APIError) -> None:
        if not speaks_of_the_server(error):
            self.breaker.success()
            return
        self.breaker.failure()
        self._last = error.message
        if self.breaker.state is CircuitState.OPEN:
            logger.error("The backend '%s' is left alone for a while: %s", self.name, error.message)


class Fallback(Wrapper):
    """Asks another backend when one fails before its answer began. If that fails too, the first failure counts."""

    def __init__(self, backend: ModelBackend, other: ModelBackend, model: str | None = None) -> None:
        super().__init__(backend)
        self._other = other
        self._model = model

    @override
    async def run(self, request: ModelRequest, sink: TurnSink) -> None:
        watch = watched(sink)
        try:
            await self.backend.run(request, watch)
        except APIError as error:
            if watch.begun or not worth_another_backend(error):
                raise
            first = error
        else:
            return
        logger.warning("%s Asking the backend '%s' instead.", first.message, self._other.name)
        try:
            await self._other.run(replace(request, model=self._model or request.model), watch)
        except APIError as error:
            if watch.begun:
                raise
            logger.warning("The fallback failed too: %s", error.message)
            raise first from error


def _asked_pause(error: APIError) -> float:
    """Return the seconds a server asked us to wait."""
    if isinstance(error, RateLimitError):
        return error.retry_after
    value = error.headers.get("retry-after", "")
    return float(value) if value.isdecimal() else 0.0
