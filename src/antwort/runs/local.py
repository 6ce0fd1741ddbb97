"""Background runs in this process: tasks, an event log, recovery at start."""

import asyncio
import contextlib
import itertools
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import msgspec

from antwort.engine.engine import Engine, not_found
from antwort.engine.events import Events
from antwort.engine.journal import Journal
from antwort.engine.loop import Loop
from antwort.engine.plan import Plan
from antwort.errors import APIError, BadRequestError, ServiceUnavailableError
from antwort.functions.slots import Slots
from antwort.runs.log import RunLog
from antwort.runs.remains import Remains
from antwort.storage.base import (
    ACTIVE,
    FencedError,
    ResponseRecord,
    StoredEvent,
    StoreUnavailableError,
)

__all__ = ["LocalRuns"]

JSON = dict[str, Any]
T = TypeVar("T")

logger = logging.getLogger(__name__)

PAUSES = (0.1, 0.5, 1.0, 2.0, 5.0)
"""Seconds between two looks whether the store can be used again; the last goes on for ever."""
LOOK = 0.5
"""Seconds between two looks at a run that somebody else executes."""
PARTING = 5.0
"""Seconds to wait for a run that was cancelled to leave its function. It writes nothing any more in any case."""


class LocalRuns:
    """Executes background runs as tasks. A run that is cut off by the end of the process goes on at the next start."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._news: dict[str, asyncio.Event] = {}
        self._closing = False
        self._recoveries = Slots(engine.settings.parallel_recoveries)

    @property
    def idle(self) -> bool:
        """Tell whether nothing is kept in memory: there is neither a run nor a reader."""
        return not (self._tasks or self._news)

    async def accept(self, plan: Plan) -> bytes:
        """Store a new run as queued, start it, and return it as JSON: it will happen, even if the process dies now."""
        plan.response.status = "queued"
        record = self.engine.record(plan)
        record.extra = {
            "scopes": sorted(plan.ctx.scopes),
            "show_calls": plan.show_calls,
            "profile": plan.profile,
            "compact_only": plan.compact_only,
        }
        log = RunLog(self.engine.store, record, self.wake)
        events = Events(log.put)
        events.emit("response.created", response=plan.response)
        events.emit("response.queued", response=plan.response)
        journal = Journal(self.engine.store, record, plan.input, pending=log)
        try:
            await journal.save()
        except StoreUnavailableError as error:
            # Nobody knows whether it was stored. Whoever asked is told that it failed, so it must not run.
            self._start(record.id, self._withdraw(record, error))
            raise
        accepted = msgspec.json.encode(plan.response)
        loop = self.engine.loop(plan, journal, log, sequence=events.sequence)
        self._start(record.id, self._run(loop))
        return accepted

    async def recover(self) -> int:
        """Take up every run that is not over; return how many there were.

        All are claimed at once, so that nobody else writes to them any more, and go on a few at a time: a start must
        not send a model server more than it takes. The oldest come first.
        """
        found = await self.engine.store.unfinished()
        for tenant, response_id in found:
            record = await self.engine.store.claim(tenant, response_id)
            if record is not None:
                self._start(response_id, self._take_up(tenant, response_id, record.epoch))
        return len(found)

    async def cancel(self, tenant: str, response_id: str) -> JSON:
        """Cancel a background run and return it; one that is over stays as it is."""
        store = self.engine.store
        record = await store.get(tenant, response_id)
        if record is None:
            raise not_found(response_id)
        if not record.background:
            raise BadRequestError("Cannot cancel a synchronous response.", param="response_id")
        while (claimed := await store.claim(tenant, response_id)) is not None:
            await self._stop(response_id)
            with contextlib.suppress(FencedError):  # somebody else cancels it too
                await (await Remains.load(self.engine, claimed, self.wake)).cancel()
                self.engine.metrics.response("cancelled")
                self.wake(response_id)
                break
        return await self.engine.retrieve(tenant, response_id)

    async def events(self, tenant: str, response_id: str, *, after: int = -1) -> AsyncGenerator[StoredEvent, None]:
        """Yield the events of a background run, those to come included, until it is over.

        When the server stops before that, a ServiceUnavailableError is raised: the reader is to come back.
        """
        store = self.engine.store
        over = False
        try:
            while True:
                news = self._news.setdefault(response_id, asyncio.Event())
                seen = after
                found = await patiently(lambda: store.events(tenant, response_id, after=seen))  # noqa: B023 - at once
                for event in found:
                    after = event.sequence
                    yield event
                if found:
                    continue
                if over:
                    return
                record = await patiently(lambda: store.get(tenant, response_id))
                over = record is None or record.status not in ACTIVE
                if not over:
                    await self._wait(response_id, news)
        finally:
            if response_id not in self._tasks:
                self._news.pop(response_id, None)

    def wake(self, response_id: str) -> None:
        """Tell readers that there is something new."""
        news = self._news.pop(response_id, None)
        if news is not None:
            news.set()

    def send_away(self) -> None:
        """Let the readers of runs that are not over go, because the server stops; the runs go on until `close`."""
        self._closing = True
        for response_id in list(self._news):
            self.wake(response_id)

    async def close(self) -> None:
        """Stop all runs where they are. They are unfinished in the store, and go on at the next start."""
        self.send_away()
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    # --- tasks -------------------------------------------------------------------------------------------------------

    def _start(self, response_id: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[response_id] = task

        def ended(_: "asyncio.Task[None]") -> None:
            if self._tasks.get(response_id) is task:
                del self._tasks[response_id]
            self.wake(response_id)

        task.add_done_callback(ended)

    async def _stop(self, response_id: str) -> None:
        task = self._tasks.get(response_id)
        if task is not None:
            task.cancel()
            await asyncio.wait({task}, timeout=PARTING)

    async def _wait(self, response_id: str, news: asyncio.Event) -> None:
        """Wait for something new about a run."""
        if self._closing:
            raise ServiceUnavailableError("The server is stopping. The response goes on at its next start.")
        mine = response_id in self._tasks
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if mine else LOOK):
                await news.wait()

    async def _run(self, loop: Loop) -> None:
        response_id = loop.response.id
        try:
            await loop.run()
        except FencedError:
            return  # somebody else has it
        except StoreUnavailableError as error:
            await self._again(loop.plan.ctx.tenant, response_id, error)
        except Exception:  # it is in the store as failed, or cannot be stored at all
            logger.exception("background response %s could not be brought to an end", response_id)

    async def _take_up(self, tenant: str, response_id: str, epoch: int) -> None:
        """Go on with a run that was left unfinished, when it is its turn. Until then its record is not in memory."""
        await self._recoveries.acquire()
        try:
            # Its turn may come late. By then it, or what it continues, may have been deleted.
            record = await patiently(lambda: self.engine.store.get(tenant, response_id))
            if record is not None and record.epoch == epoch:
                await self._resume(record)
        finally:
            self._recoveries.release()

    async def _resume(self, record: ResponseRecord) -> None:
        """Go on with a run that another process has begun; one that cannot go on has failed."""
        try:
            loop = await (await Remains.load(self.engine, record, self.wake)).loop()
        except FencedError:
            return
        except StoreUnavailableError as error:
            await self._again(record.tenant, record.id, error)
        except APIError as error:
            logger.error("response %s cannot be taken up again: %s", record.id, error)  # noqa: TRY400 - no bug of ours
            await self._fail(record, error)
        except Exception:
            logger.exception("response %s cannot be taken up again", record.id)
            await self._fail(record, APIError("The server had an error while taking up the response again."))
        else:
            await self._run(loop)

    async def _again(self, tenant: str, response_id: str, error: APIError) -> None:
        """Wait until the store can be used again, then go on with a run from what is there of it."""
        logger.warning("response %s waits for the store: %s", response_id, error.message)
        record = await patiently(lambda: self.engine.store.claim(tenant, response_id))
        if record is not None:
            await self._resume(record)

    async def _withdraw(self, unsure: ResponseRecord, error: APIError) -> None:
        """Wait until the store can be used again, then cancel a run that may be in it."""
        logger.warning("response %s may be stored, and is cancelled if so: %s", unsure.id, error.message)
        record = await patiently(lambda: self.engine.store.claim(unsure.tenant, unsure.id))
        if record is not None:
            await (await Remains.load(self.engine, record, self.wake)).cancel()

    async def _fail(self, record: ResponseRecord, error: APIError) -> None:
        try:
            await (await Remains.load(self.engine, record, self.wake)).fail(error)
        except FencedError:
            return
        except StoreUnavailableError as away:
            await self._again(record.tenant, record.id, away)
            return
        except Exception:
            logger.exception("response %s could not be ended; the next start tries again", record.id)
        else:
            self.engine.metrics.response("failed")


async def patiently(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask the store for something, again and again while it cannot be used."""
    pauses = itertools.chain(PAUSES, itertools.repeat(PAUSES[-1]))
    while True:
        try:
            return await ask()
        except StoreUnavailableError:
            await asyncio.sleep(next(pauses))
