"""What is done when a model server fails: try again, leave it alone, ask another. One wrapper for each.

`Fallback(Guarded(Retrying(backend)))` is the whole of it: an answer that has begun is never begun again. What goes
wrong in the sink, such as a database that is away, is no failure of the server and passes all of them untouched.
"""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace

from typing_extensions import override

from antwort.backends.base import ModelBackend, ModelRequest, TurnSink
from antwort.backends.breaker import CircuitBreaker, CircuitState
from antwort.backends.failures import (
    DEADLINE,
    UNAVAILABLE,
    speaks_of_the_server,
    worth_another_backend,
    worth_another_try,
)
from antwort.backends.watch import Wrapper, watched
from antwort.errors import APIError, RateLimitError, ServiceUnavailableError

__all__ = ["Fallback", "Guarded", "Retrying"]

logger = logging.getLogger(__name__)

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 8.0
LONGEST_WAIT = 30.0
"""Seconds a server may ask us to wait before another try; if it asks for more, the client is told instead."""


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
                pause = None if watch.begun or watch.raised(error) else self._pause(attempt, error, request)
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


class Guarded(Wrapper):
    """Refuses requests to a server that is away. What it said to one client is never told to another."""

    def __init__(self, backend: ModelBackend, breaker: CircuitBreaker) -> None:
        super().__init__(backend)
        self.breaker = breaker

    @override
    async def run(self, request: ModelRequest, sink: TurnSink) -> None:
        breaker = self.breaker
        if breaker.state is CircuitState.OPEN:
            raise ServiceUnavailableError(
                f"The backend '{self.name}' cannot be reached at the moment; it is being tried again.",
                code=UNAVAILABLE,
                headers={"retry-after": str(breaker.retry_after)},
            )
        watch = watched(sink)
        watch.listen(breaker.success)
        try:
            await self.backend.run(request, watch)
        except APIError as error:
            if not watch.raised(error):
                self._note(error)
            raise
        else:
            breaker.success()
        finally:
            watch.forget(breaker.success)

    @override
    async def count_tokens(self, request: ModelRequest) -> int | None:
        return None if self.breaker.state is CircuitState.OPEN else await self.backend.count_tokens(request)

    @override
    async def close(self) -> None:
        await self.breaker.close()
        await super().close()

    def _note(self, error: APIError) -> None:
        if speaks_of_the_server(error):
            self.breaker.failure()
        elif error.code != DEADLINE:
            self.breaker.success()  # whatever it said, it is there


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
            if watch.begun or watch.raised(error) or not worth_another_backend(error):
                raise
            first = error
        else:
            return
        logger.warning("%s Asking the backend '%s' instead.", first.message, self._other.name)
        try:
            await self._other.run(replace(request, model=self._model or request.model), watch)
        except APIError as error:
            if watch.raised(error) or watch.begun:
                raise
            logger.warning("The fallback failed too: %s", error.message)
            raise first from error


def _asked_pause(error: APIError) -> float:
    """Return the seconds a server asked us to wait."""
    if isinstance(error, RateLimitError):
        return error.retry_after or 0.0
    value = error.headers.get("retry-after", "")
    return float(value) if value.isdecimal() else 0.0
