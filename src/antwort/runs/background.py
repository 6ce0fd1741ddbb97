"""A background response in this process: claimed, worked on, gone on with after an outage or an answer, and ended."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from msgspec import Struct
from typing_extensions import override

from antwort.concurrency.slots import Queue, Slots
from antwort.engine.engine import Engine
from antwort.engine.turns.loop import Loop
from antwort.errors import APIError
from antwort.runs.agents import AgentRuns
from antwort.runs.recovery import StoredRun
from antwort.runs.run import Lease, ResponseRun, RunEnd, patiently, pauses
from antwort.storage.base import CrowdedError, FencedError, ResponseRecord, StoreUnavailableError

T = TypeVar("T")
logger = logging.getLogger(__name__)


TAKEOVERS = "takeovers"
"""Under this key the extra of a record counts them."""


def takeovers_of(record: ResponseRecord) -> int:
    """Return how often a run was taken up since it last got further."""
    return int(record.extra.get(TAKEOVERS, 0))


class Takeover(Struct, frozen=True):
    """A run that was claimed to be taken up."""

    tenant: str
    response_id: str
    epoch: int
    before: int
    """How often it was taken up before, since it last got further."""


class TakeoverQueue:
    """Lets runs go on a few at a time, in turns between tenants, and of one tenant in the order of asking.

    One that was taken up before and got no further may be what ended the process. It goes on alone, when no other that
    was taken up is left that has not got further: if it ends the process again, it is the only one to be counted, and
    the others are done before it.
    """

    def __init__(self, limit: int, queue: Queue | None = None) -> None:
        self._limit = limit
        self._slots = Slots(limit, queue)
        self._alone = asyncio.Lock()
        self._others = 0
        self._no_others = asyncio.Event()
        self._no_others.set()

    @property
    def room(self) -> int:
        """How many more may come from workers that are gone: none has to wait here while another worker is free."""
        return max(0, self._limit - self._others)

    def slot(self, takeover: Takeover) -> "RecoverySlot":
        """Return what a run enters and leaves; a run that is not suspect counts at once."""
        slot = RecoverySlot(self, takeover.tenant, suspect=takeover.before > 0)
        slot.expect()
        return slot

    async def enter(self, tenant: str, *, suspect: bool) -> None:
        """Wait for a turn."""
        if not suspect:
            await self._slots.acquire(tenant)
            return
        await self._alone.acquire()
        try:
            await self._no_others.wait()
        except BaseException:
            self._alone.release()
            raise

    def leave(self, tenant: str, *, suspect: bool) -> None:
        """Give the turn to the next."""
        if suspect:
            self._alone.release()
        else:
            self._slots.release(tenant)

    def count(self, change: int) -> None:
        """Count the runs that are not suspect and have not got further yet."""
        self._others += change
        if self._others:
            self._no_others.clear()
        else:
            self._no_others.set()


class RecoverySlot:
    """The turn of one run in the queue. It is given away when the run got further, waits for something, or is over."""

    def __init__(self, queue: TakeoverQueue, tenant: str, *, suspect: bool) -> None:
        self._queue = queue
        self._tenant = tenant
        self._suspect = suspect
        self._expected = self._entered = False

    def expect(self) -> None:
        """Take note that the run will ask for its turn: those that must be alone wait for it."""
        if not (self._suspect or self._expected):
            self._expected = True
            self._queue.count(1)

    async def enter(self) -> None:
        """Wait for the turn."""
        self.expect()
        await self._queue.enter(self._tenant, suspect=self._suspect)
        self._entered = True

    def leave(self) -> None:
        """Give the turn away, if the run has it."""
        if self._entered:
            self._entered = False
            self._queue.leave(self._tenant, suspect=self._suspect)
        if self._expected:
            self._expected = False
            self._queue.count(-1)


_EARLY = 1_000
"""Runs of others, at most, of which is kept that they are read."""


class Readers:
    """The readers of all runs, by response id."""

    def __init__(self) -> None:
        self._news: dict[str, asyncio.Event] = {}
        self._reading: Counter[str] = Counter()
        self._elsewhere: Counter[str] = Counter()
        """Readers in other workers, of runs that are told."""
        self._told: dict[str, Callable[[bool], None]] = {}
        self._early: dict[str, None] = {}
        """Runs of which somebody elsewhere has said that they are read before anybody worked on them here."""

    @property
    def none(self) -> bool:
        """Tell whether nobody reads, and no run is told of it."""
        return not (self._news or self._reading or self._told)

    @contextmanager
    def reading(self, response_id: str) -> Iterator[None]:
        """Read a run, as long as the block lasts."""
        self._reading[response_id] += 1
        self._tell(response_id)
        try:
            yield
        finally:
            self._reading[response_id] -= 1
            if not self._reading[response_id]:
                del self._reading[response_id]
                self._news.pop(response_id, None)
                self._tell(response_id)

    @contextmanager
    def told(self, response_id: str, tell: Callable[[bool], None]) -> Iterator[None]:
        """Call something with whether a run has readers, now and whenever that changes, as long as the block lasts.

        A run that was taken over and came back may be told of twice for a moment: the later one hears.
        """
        self._told[response_id] = tell
        if response_id in self._early:
            del self._early[response_id]
            self._elsewhere[response_id] += 1
        self._tell(response_id)
        try:
            yield
        finally:
            if self._told.get(response_id) is tell:
                del self._told[response_id]
                self._elsewhere.pop(response_id, None)

    def come_elsewhere(self, response_id: str) -> None:
        """Take note that somebody reads a run in another worker; one who dies there is taken for a reader for ever."""
        if response_id in self._told:
            self._elsewhere[response_id] += 1
            self._tell(response_id)
            return
        self._early[response_id] = None
        if len(self._early) > _EARLY:
            del self._early[next(iter(self._early))]

    def leave_elsewhere(self, response_id: str) -> None:
        """Take note that such a reader has left."""
        self._early.pop(response_id, None)
        if response_id in self._elsewhere:
            self._elsewhere[response_id] -= 1
            if not self._elsewhere[response_id]:
                del self._elsewhere[response_id]
            self._tell(response_id)

    def news(self, response_id: str) -> asyncio.Event:
        """Return what is set when there is something new about a run after this."""
        return self._news.setdefault(response_id, asyncio.Event())

    def wake(self, response_id: str) -> None:
        """Tell the readers of a run that there is something new."""
        news = self._news.pop(response_id, None)
        if news is not None:
            news.set()

    def is_read_elsewhere(self, response_id: str) -> bool:
        """Tell whether another worker has said that somebody reads a run there."""
        return response_id in self._elsewhere

    def wake_all(self) -> None:
        """Tell all readers so."""
        for response_id in list(self._news):
            self.wake(response_id)

    def _tell(self, response_id: str) -> None:
        tell = self._told.get(response_id)
        if tell is not None:
            tell(response_id in self._reading or response_id in self._elsewhere)


class BackgroundParts(Struct, frozen=True):
    """What all background responses of a process share."""

    engine: Engine
    agents: AgentRuns
    readers: Readers
    wake: Callable[[str], None]
    """Lets readers know that there is something new about a response, wherever they are."""
    worker: Callable[[], str]
    """Tells which worker this is, where several share the database."""
    give_away: Callable[[str, str], Awaitable[None]]
    """Lets a response be anybody's, that goes on when there is room for it."""
    most: int | None = None
    """How many of one tenant all workers of the database work on; None for any number."""
    recovering: dict[str, Takeover] = {}
    """Runs that were taken up here and have not got further yet, by their responses."""

    async def claim(
        self, tenant: str, response_id: str, *, epoch: int | None = None, in_turn: bool = False
    ) -> ResponseRecord | None:
        """Take a response, so that nobody else writes to it any more; None if it is over.

        With an epoch it is also None if somebody else has taken it since. One that nobody works on is taken in its
        turn: a CrowdedError if too many of the tenant run already.
        """
        most = self.most if in_turn else None
        return await self.engine.store.claim(tenant, response_id, worker=self.worker(), epoch=epoch, most=most)


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
            if ended.state is not RunEnd.PARKED or not await self._takes_answer():
                return
            if self._slot is not None and self._id in self._parts.recovering:
                await self._slot.enter()
            loop = await self._resume_in_turn()

    async def go_on(self, before: "asyncio.Task[None] | None") -> None:
        """Go on with a run that was parked and has all that it waits for.

        Who has parked it may not be done yet, and would end what belongs to the run: its agents, and who is told of it.
        """
        if before is not None:
            try:
                await asyncio.wait({before})
            except asyncio.CancelledError:
                before.cancel()
                raise
        await self.to_end(await self._resume_in_turn())

    async def begin(self, epoch: int) -> None:
        """Take a run that is anybody's, unless somebody was faster, and bring it to its end.

        A CrowdedError if too many of the tenant run.
        """
        record = await patiently(lambda: self._parts.claim(self._tenant, self._id, epoch=epoch, in_turn=True))
        if record is not None:
            await self.to_end(await self._resume(record))

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

    async def _takes_answer(self) -> bool:
        """Tell whether an answer came in the moment in which it was parked, and nobody else goes on with it."""
        if not await self.has_answer():
            return False
        looks, unsure = pauses(), False
        while True:
            try:
                return await self._store.questions.unpark(self._tenant, self._id) or unsure
            except StoreUnavailableError as error:  # nobody knows whether it was done
                logger.warning("response %s waits for the store: %s", self._id, error.message)
                unsure = True
            await asyncio.sleep(next(looks))

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

    async def _resume_in_turn(self) -> Loop | None:
        """Return the loop that goes on with a run that was parked; None also if it has to wait for its turn."""
        try:
            record = await patiently(lambda: self._parts.claim(self._tenant, self._id, in_turn=True))
        except CrowdedError:
            await self._parts.give_away(self._tenant, self._id)
            return None
        return None if record is None else await self._resume(record)

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
