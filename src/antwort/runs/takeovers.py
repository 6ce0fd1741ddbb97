"""Whose turn it is among the runs that a start takes up, and how often each was taken up in vain."""

import asyncio

from msgspec import Struct

from antwort.concurrency.queues import Queue
from antwort.concurrency.slots import Slots
from antwort.storage.base import ResponseRecord

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
        self._slots = Slots(limit, queue)
        self._alone = asyncio.Lock()
        self._others = 0
        self._no_others = asyncio.Event()
        self._no_others.set()

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
