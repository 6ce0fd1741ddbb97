"""What is done when a model server fails: try again, leave it alone, ask another.

`Fallback(Guarded(backend))` is the whole of it: an answer that has begun is never begun again. What goes wrong in the
sink, such as a database that is away, is no failure of the server and passes both untouched.
"""

import asyncio
import logging
import math
import random
import time
from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct, field
from msgspec.structs import replace
from typing_extensions import override

from antwort.backends.base import BackendWrapper, ModelBackend, ModelRequest, TurnSink, WholeTurn, quick_flush
from antwort.backends.errors import (
    BUSY,
    DEADLINE,
    UNAVAILABLE,
    speaks_of_the_server,
    worth_another_backend,
    worth_another_try,
)
from antwort.backends.http.transport import Transport
from antwort.concurrency.backoff import Backoff
from antwort.errors import APIError, RateLimitError, ServiceUnavailableError
from antwort.observability.quick_metrics import CounterSeries
from antwort.types import JSON
from antwort.wire.responses import Usage

# --- the breaker: what the requests of one client do to a server says nothing to the others --------------------------


MAX_FAILURES = 5
FIRST_PROBE = 0.5
LONGEST_PROBE = 5.0


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
        self._backoff = Backoff(FIRST_PROBE, LONGEST_PROBE, 0.5, jitter)
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


# --- trying again, and asking another --------------------------------------------------------------------------------


logger = logging.getLogger(__name__)

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 8.0
LONGEST_WAIT = 30.0
"""Seconds a server may ask us to wait before another try; if it asks for more, the client is told instead."""


class WatchedSink(Struct, eq=False):
    """Passes everything on and knows whether anything was: from then on a turn cannot be tried again.

    It also knows what the sink itself raised, which is no failure of the model server.
    """

    _sink: TurnSink
    listener: Callable[[], None] | None = None
    """What is called when the turn begins."""
    begun: bool = False
    used: Usage | None = None
    """What the last turn says that it has used."""
    _error: BaseException | None = None
    _flush_sink: Callable[[], bool] | None = None

    def whole_turn(self, turn: WholeTurn) -> None:
        """Pass it on."""
        if not self.begun:
            self._begin()
        self.used = turn.usage
        try:
            self._sink.whole_turn(turn)
        except BaseException as error:
            self._error = error
            raise

    def text(self, delta: str, logprobs: list[JSON] | None = None) -> None:
        """Pass it on."""
        if not self.begun:
            self._begin()
        try:
            self._sink.text(delta, logprobs)
        except BaseException as error:
            self._error = error
            raise

    def text_burst(self, deltas: Sequence[str]) -> None:
        """Pass them on."""
        if not self.begun:
            self._begin()
        try:
            self._sink.text_burst(deltas)
        except BaseException as error:
            self._error = error
            raise

    def reasoning(self, delta: str) -> None:
        """Pass it on."""
        if not self.begun:
            self._begin()
        try:
            self._sink.reasoning(delta)
        except BaseException as error:
            self._error = error
            raise

    def summary(self, delta: str) -> None:
        """Pass it on."""
        if not self.begun:
            self._begin()
        try:
            self._sink.summary(delta)
        except BaseException as error:
            self._error = error
            raise

    def opaque(self, content: str) -> None:
        """Pass it on."""
        if not self.begun:
            self._begin()
        try:
            self._sink.opaque(content)
        except BaseException as error:
            self._error = error
            raise

    def refusal(self, delta: str) -> None:
        """Pass it on."""
        if not self.begun:
            self._begin()
        try:
            self._sink.refusal(delta)
        except BaseException as error:
            self._error = error
            raise

    def tool_call(
        self, index: int, *, call_id: str | None = None, name: str | None = None, arguments: str = ""
    ) -> None:
        """Pass it on."""
        if not self.begun:
            self._begin()
        try:
            self._sink.tool_call(index, call_id=call_id, name=name, arguments=arguments)
        except BaseException as error:
            self._error = error
            raise

    def usage(self, usage: Usage) -> None:
        """Pass it on."""
        if not self.begun:
            self._begin()
        self.used = usage
        try:
            self._sink.usage(usage)
        except BaseException as error:
            self._error = error
            raise

    def finish(self, reason: str) -> None:
        """Pass it on."""
        if not self.begun:
            self._begin()
        try:
            self._sink.finish(reason)
        except BaseException as error:
            self._error = error
            raise

    async def flush(self) -> None:
        """Have it pass on what it took."""
        try:
            await self._sink.flush()
        except BaseException as error:
            self._error = error
            raise

    @property
    def flush_now(self) -> Callable[[], bool] | None:
        """What has it pass that on at once, if it can."""
        self._flush_sink = quick_flush(self._sink)
        return None if self._flush_sink is None else self._flush_now

    def _flush_now(self) -> bool:
        try:
            return self._flush_sink is not None and self._flush_sink()
        except BaseException as error:
            self._error = error
            raise

    def raised(self, error: BaseException) -> bool:
        """Tell whether an error came out of the sink."""
        return error is self._error

    def _begin(self) -> None:
        self.begun = True
        listener = self.listener
        if listener is not None:
            listener()


def watched(sink: TurnSink, listener: Callable[[], None] | None = None) -> WatchedSink:
    """Watch a sink, once however many want to; the last listener is told."""
    if not isinstance(sink, WatchedSink):
        return WatchedSink(sink, listener)
    sink.listener, sink.used = listener, None
    return sink


class Retries:
    """When a turn is tried again, at most so often: after a pause of random length (exponential, full jitter).

    Only failures that may pass are worth it: 429, and 502 to 504 unless the server failed at the request itself. What
    the server says in `Retry-After` is the least pause. A pause beyond the request's deadline is not begun.
    """

    def __init__(
        self,
        most: int,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._most = most
        self.sleep = sleep
        self._clock = clock
        self._backoff = Backoff(FIRST_PAUSE, LONGEST_PAUSE, 1.0, jitter)

    def pause(self, attempt: int, error: APIError, request: ModelRequest) -> float | None:
        """Return the seconds until the next try; None if there should be none."""
        if attempt >= self._most or not worth_another_try(error):
            return None
        asked = error.asked_pause
        if asked > LONGEST_WAIT:
            return None
        pause = max(asked, self._backoff.pause(attempt))
        if request.deadline is not None and self._clock() + pause >= request.deadline:
            return None
        return pause


NO_RETRIES = Retries(0)


class PromptTokens(Struct):
    """Tokens of the prompts that a server has read, as far as it says."""

    cached: CounterSeries = field(default_factory=CounterSeries)
    """Those that it knew from an earlier prompt with the same beginning."""
    new: CounterSeries = field(default_factory=CounterSeries)

    def add(self, usage: Usage) -> None:
        """Count those of a turn."""
        cached = min(usage.input_tokens_details.cached_tokens, usage.input_tokens)
        self.cached.value += cached
        self.new.value += usage.input_tokens - cached


class GuardedBackend(BackendWrapper):
    """Tries again while the answer has not begun, and refuses requests to a server that is away.

    A turn that was tried again counts as one for the breaker. What the server said to one client is never told to
    another.
    """

    def __init__(
        self,
        backend: ModelBackend,
        breaker: CircuitBreaker,
        retries: Retries = NO_RETRIES,
        transport: Transport | None = None,
    ) -> None:
        super().__init__(backend)
        self.breaker = breaker
        self.transport = transport
        """The way to the server, if it is one."""
        self.prompts = PromptTokens()
        self._on_begin = breaker.note_success
        self._retries = retries

    @override
    async def run(self, request: ModelRequest, sink: TurnSink) -> None:
        breaker = self.breaker
        if breaker.is_open:
            raise ServiceUnavailableError(
                f"The backend '{self.name}' cannot be reached at the moment; it is being tried again.",
                code=UNAVAILABLE,
                headers={"retry-after": str(breaker.retry_after)},
            )
        watch = watched(sink, self._on_begin)
        attempt = 0
        while True:
            request.tried.append(self.name)
            try:
                await self.backend.run(request, watch)
            except APIError as error:
                own = watch.raised(error)
                pause = None if own or watch.begun else self._retries.pause(attempt, error, request)
                if pause is None:
                    watch.listener = None  # another backend may go on with it
                    if not own:
                        self._note(error, begun=watch.begun)
                    raise
                logger.warning("%s; trying again in %.1f s", error.message.rstrip("."), pause)
            else:
                if breaker.failures:
                    breaker.note_success()
                if watch.used is not None:
                    self.prompts.add(watch.used)
                return
            await self._retries.sleep(pause)
            attempt += 1

    @override
    async def count_tokens(self, request: ModelRequest) -> int | None:
        return None if self.breaker.is_open else await self.backend.count_tokens(request)

    @override
    async def close(self) -> None:
        await self.breaker.close()
        await super().close()

    def _note(self, error: APIError, *, begun: bool) -> None:
        if speaks_of_the_server(error):
            self.breaker.note_failure()
        elif error.code not in {DEADLINE, BUSY}:
            self.breaker.note_success()  # whatever it said, it is there
        if not begun and (error.code == UNAVAILABLE or isinstance(error, RateLimitError)):
            # The response that fails of it has no line: one that meets an open breaker looks the same.
            logger.warning("%s; not tried again", error.message.rstrip("."))


class Fallback(BackendWrapper):
    """Asks another backend when one fails before its answer began. If that fails too, the first failure counts.

    Of the fields beyond the API the other gets those that it takes, its `parameters`.
    """

    def __init__(
        self,
        backend: ModelBackend,
        other: ModelBackend,
        model: str | None = None,
        parameters: frozenset[str] = frozenset(),
    ) -> None:
        super().__init__(backend)
        self._other = other
        self._model = model
        self._parameters = parameters

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
        logger.warning("%s; asking the backend '%s' instead", first.message.rstrip("."), self._other.name)
        try:
            extra = {name: value for name, value in request.extra.items() if name in self._parameters}
            await self._other.run(replace(request, model=self._model or request.model, extra=extra), watch)
        except APIError as error:
            if watch.raised(error) or watch.begun:
                raise
            logger.warning("The fallback failed too: %s", error.message)
            raise first from error
