"""The life of a provider: started and closed in one task of its own, in time, and never in silence."""

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable

from msgspec import Struct

from antwort.concurrency.contained_tasks import ContainedTask, end_tasks
from antwort.errors import ConfigError
from antwort.functions.output import described
from antwort.functions.provider import FunctionProvider
from antwort.functions.slow_watch import SlowWatch
from antwort.observability import Redactor

logger = logging.getLogger(__name__)


class Patience(Struct, frozen=True):
    """How long providers are waited for."""

    start: float | None
    """Seconds that one may take to start."""
    close: float | None
    """Seconds that one may take to close."""
    grace: float
    """Seconds that it has to end after it was cancelled."""

    def left(self, waited: float) -> float | None:
        """Return the seconds that one has to close that has waited for others: a moment at least."""
        if self.close is None:
            return None if waited < math.inf else self.grace
        return max(min(self.close, self.grace), self.close - waited)


class Lifetime:
    """One provider from its start to its close.

    Both happen in the same task, so that a `lifespan` may hold a task group, or whatever else belongs to a task. If it
    ends in between, because a task of that group has failed, `lost` is called.
    """

    def __init__(
        self,
        provider: FunctionProvider,
        redactor: Redactor,
        patience: Patience,
        watch: SlowWatch,
        lost: Callable[[], None],
    ) -> None:
        self._provider = provider
        self._redactor = redactor
        self._patience = patience
        self._watch = watch
        self._lost = lost
        self._life: ContainedTask[None] | None = None
        self._ready = asyncio.Event()
        self._stop = asyncio.Event()
        self._is_started = False

    async def start(self) -> None:
        """Start the provider; what it raises, or that it takes too long, becomes a ConfigError that names it."""
        name, limit = self._provider.name, self._patience.start
        self._life = life = ContainedTask(self._live, f"provider {name}")
        try:
            with self._watch.warn_if_slow(f"provider '{name}': to start it", limit), contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ready.wait(), limit)
        except asyncio.CancelledError:
            await self._end(life)
            raise
        if self._is_started:
            life.task.add_done_callback(self._note_end)
            return
        if not self._ready.is_set():
            await self._end(life)
            raise ConfigError(
                f"providers.{name} did not start within {limit:g} seconds; functions.start_timeout is the limit"
            )
        await life.wait(None)
        try:
            life.result()
        except ConfigError as error:
            raise ConfigError(f"providers.{name}: {error.message}", where=error.where) from error
        except BaseException as error:
            cause = described(error, self._redactor)
            raise ConfigError(f"providers.{name} could not be started: {cause}") from error

    async def close(self, waited: float = 0.0) -> None:
        """Close the provider. What goes wrong is logged; nothing is raised but the caller's own cancellation.

        Seconds that it has waited for others to close are taken from its time.
        """
        name, limit = self._provider.name, self._patience.left(waited)
        life = self._life
        if life is None or life.done:
            life = ContainedTask(self._provider.close, f"provider {name}")
        self._stop.set()
        self._life = None
        try:
            with self._watch.warn_if_slow(f"provider '{name}': to close it", limit):
                closed = await life.wait(limit)
        except asyncio.CancelledError:
            await self._end(life)
            raise
        if not closed:
            logger.error(
                "provider '%s' did not close within %.3g seconds; functions.close_timeout is the limit", name, limit
            )
            await self._end(life)
        elif life.error is not None:
            logger.error("provider '%s' did not close cleanly", name, exc_info=life.error)

    async def _live(self) -> None:
        start = getattr(self._provider, "start", None)
        try:
            if start is not None:
                await start()
            self._is_started = True
        finally:
            self._ready.set()
        try:
            await self._stop.wait()
        except asyncio.CancelledError:
            if self._life is not None:  # not by `close`, so by something that `start` has left open
                logger.error("provider '%s' is closed: a task of its lifespan has failed", self._provider.name)  # noqa: TRY400
        await self._provider.close()

    def _note_end(self, _task: object) -> None:
        if self._life is not None:
            logger.error("provider '%s' has ended before the server", self._provider.name, exc_info=self._life.error)
            self._lost()

    async def _end(self, life: ContainedTask[None]) -> None:
        self._life = None
        for name in await end_tasks([life.task], self._patience.grace):
            logger.error("%s does not end; it is left behind", name)
