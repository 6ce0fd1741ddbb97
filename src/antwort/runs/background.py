"""A background response in this process: claimed, worked on, gone on with after an outage or an answer, and ended."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from msgspec import Struct
from typing_extensions import override

from antwort.engine.engine import Engine
from antwort.engine.turns.loop import Loop
from antwort.errors import APIError
from antwort.runs.agents import AgentRuns
from antwort.runs.outage import patiently, pauses
from antwort.runs.readers import Readers
from antwort.runs.recovery import StoredRun
from antwort.runs.run import Lease, ResponseRun, RunEnd
from antwort.runs.takeovers import TAKEOVERS, RecoverySlot, Takeover, takeovers_of
from antwort.storage.base import FencedError, ResponseRecord, StoreUnavailableError

T = TypeVar("T")

logger = logging.getLogger(__name__)


class BackgroundParts(Struct, frozen=True):
    """What all background responses of a process share."""

    engine: Engine
    agents: AgentRuns
    readers: Readers
    wake: Callable[[str], None]
    """Lets readers know that there is something new about a response, wherever they are."""
    worker: int
    """The number of this worker."""
    recovering: dict[str, Takeover] = {}
    """Runs that were taken up here and have not got further yet, by their responses."""

    async def claim(self, tenant: str, response_id: str) -> ResponseRecord | None:
        """Take a response, so that nobody else writes to it any more; None if it is over."""
        return await self.engine.store.claim(tenant, response_id, worker=self.worker)


class BackgroundRun(Lease):
    """A background response that is worked on here. Whatever cannot go on has failed, and is stored so."""

    def __init__(self, parts: BackgroundParts, tenant: str, response_id: str, slot: RecoverySlot | None = None) -> None:
        self._parts = parts
        self._store = parts.engine.store
        self._tenant = tenant
        self._id = response_id
        self._slot = slot
        """Of a run that is taken up: it is left while the run waits, and once it got further."""
        self._loop: Loop | None = None
        """What makes the response at the moment."""

    async def to_end(self, loop: Loop | None) -> None:
        """Bring the response to its end, as often as it has its answers at the moment in which it is parked."""
        run = ResponseRun(self, self._parts.engine.settings)
        while loop is not None:
            ended = await run.to_end(loop)
            if ended.state is not RunEnd.PARKED or not await self.has_answer():
                return
            loop = await self.resume(loop)

    async def go_on(self) -> None:
        """Go on with a run that was parked and has all that it waits for."""
        await self.to_end(await self._resume())

    async def take_up(self, takeover: Takeover) -> None:
        """Go on with a run that was left unfinished, when it is its turn. Until then its record is not in memory."""
        recovering, slot = self._parts.recovering, self._slot
        assert slot is not None, "a run is taken up in its turn"  # noqa: S101 - for the type checker
        try:
            await slot.enter()
            # Its turn may come late. By then it, or what it continues, may have been deleted.
            record = await patiently(lambda: self._store.get(self._tenant, self._id))
            if record is None or record.epoch != takeover.epoch:
                return
            if takeover.before >= self._parts.engine.settings.max_takeovers:
                await self._give_up(record)
                return
            record.extra[TAKEOVERS] = takeover.before + 1
            noted = {TAKEOVERS: takeover.before + 1}  # before it runs: it may be what ends the process
            await patiently(lambda: self._store.note(self._tenant, self._id, takeover.epoch, noted))
            recovering[self._id] = takeover
            await self.to_end(await self._resume(record))
            recovering.pop(self._id, None)
        except FencedError:
            return
        finally:
            slot.leave()

    async def withdraw(self, error: APIError) -> None:
        """Wait until the store can be used again, then cancel a run that may be in it."""
        logger.warning("response %s is cancelled when the store is back, if it is there: %s", self._id, error.message)
        await self._end(StoredRun.cancel)

    async def has_answer(self) -> bool:
        """Tell whether a run that was parked can go on at once, because an answer came in that moment."""
        questions = self._store.questions
        return await patiently(lambda: questions.is_ready(self._tenant, self._id))

    # --- the run -----------------------------------------------------------------------------------------------------

    @override
    async def work(self, loop: Loop) -> None:
        self._loop = loop
        try:
            await self._parts.agents.adopt(loop.plan)
            with self._parts.readers.told(self._id, loop.note_readers):
                await loop.run()
        finally:
            self._loop = None
            if self._slot is not None:
                self._slot.leave()

    @override
    def progress(self) -> None:
        if self._slot is not None and self._loop is not None:
            self._loop.forget(TAKEOVERS)
            self._parts.recovering.pop(self._id, None)
            self._slot.leave()

    @override
    def has_time(self, seconds: float) -> bool:
        return True

    @override
    async def resume(self, loop: Loop) -> Loop | None:
        if self._slot is not None and self._id in self._parts.recovering:
            await self._slot.enter()
        return await self._resume()

    @override
    async def fail(self, loop: Loop, error: APIError) -> None:
        await self._fail(error)

    # --- what is stored of it ----------------------------------------------------------------------------------------

    async def _resume(self, record: ResponseRecord | None = None) -> Loop | None:
        """Return the loop that goes on with the run from what is stored; one that cannot go on has failed."""
        try:
            return await self._with_stored(StoredRun.loop, record)
        except APIError as error:
            logger.error("response %s cannot be taken up again: %s", self._id, error)  # noqa: TRY400 - no bug of ours
            reason = error
        except Exception:
            logger.exception("response %s cannot be taken up again", self._id)
            reason = APIError("The server had an error while taking up the response again.")
        await self._fail(reason)
        return None

    async def _give_up(self, record: ResponseRecord) -> None:
        """Let a run fail that was taken up too often."""
        times = takeovers_of(record)

        async def fail(stored: StoredRun) -> None:
            names = ", ".join(f"'{name}'" for name in stored.under_way())
            message = f"The server ended while it made this response, and again each of the {times} times it went on"
            message += f" with it, executing {names}." if names else " with it."
            logger.error("response %s is not taken up again: %s", record.id, message)
            await stored.fail(APIError(f"{message} It is not tried again."))

        await self._end(fail, record)

    async def _fail(self, error: APIError) -> None:
        await self._end(lambda stored: stored.fail(error))

    async def _end(self, end: Callable[[StoredRun], Awaitable[None]], record: ResponseRecord | None = None) -> None:
        """End the run from what is stored of it."""
        try:
            await self._with_stored(end, record)
        except Exception:
            logger.exception("response %s could not be ended; the next start tries again", self._id)

    async def _with_stored(
        self, use: Callable[[StoredRun], Awaitable[T]], record: ResponseRecord | None = None
    ) -> T | None:
        """Claim the run, unless its record is given, and do something with what is stored of it.

        While the store cannot be used this waits and tries again. None if the run is over, or somebody else's.
        """
        looks, parts = pauses(), self._parts
        while True:
            try:
                record = record or await parts.claim(self._tenant, self._id)
                return None if record is None else await use(await StoredRun.load(parts.engine, record, parts.wake))
            except FencedError:
                return None
            except StoreUnavailableError as error:
                logger.warning("response %s waits for the store: %s", self._id, error.message)
                record = None
            await asyncio.sleep(next(looks))
