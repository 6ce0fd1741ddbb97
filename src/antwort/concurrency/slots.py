"""Bounded concurrency that does not depend on one event loop: slots in turns between tenants, and queues for them."""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Protocol
from weakref import WeakSet

from antwort.concurrency.deadline import Deadline
from antwort.errors import FunctionUnavailableError

# --- queues: how many may wait for what there is not enough of, and who measures that --------------------------------


MOST_WAITING = 1000
"""Of one tenant in one queue, unless somebody says otherwise."""


class QueueFullError(FunctionUnavailableError):
    """A tenant has so many waiting in a queue that no further one is let in."""

    def __init__(self, queue: str, most: int) -> None:
        super().__init__(
            f"{most:,} requests of this tenant wait in the queue '{queue}' already, which is the limit "
            "(limits.per_tenant.max_waiting). Try again when some of them are done."
        )


class Waiting(Protocol):
    """Something that is waited for."""

    @property
    def waiting(self) -> int:
        """How many wait for it."""


class Queue:
    """Those who wait for things of one kind. `observe` is told the seconds that somebody has waited."""

    def __init__(self, name: str, queues: "Queues", most_waiting: int | None = None) -> None:
        self.name = name
        self.queues = queues
        self.most_waiting = most_waiting
        """How many of one tenant may wait; None for any number."""
        self.observe: Callable[[float], None] = _ignore
        self._awaited: WeakSet[Waiting] = WeakSet()

    def add(self, awaited: Waiting) -> None:
        """Count those who wait for something, too, as long as it is there."""
        self._awaited.add(awaited)

    @property
    def waiting(self) -> int:
        """How many wait."""
        return sum(one.waiting for one in self._awaited)


class Queues:
    """All queues of an app: whether tenants share them, and how many of one may wait in each."""

    def __init__(self, *, most_waiting: int = MOST_WAITING, several: bool = False) -> None:
        self.most_waiting = most_waiting
        self.several = several
        """Whether there is more than one tenant, as far as is known."""
        self.only: str | None = None
        """The tenant that was seen first."""
        self.by_name: dict[str, Queue] = {}
        self.on_new: Callable[[Queue], None] = _ignore
        """Called with each queue that is new."""

    def named(self, name: str, *, bounded: bool = True) -> Queue:
        """Return a queue, which is made if there is none of this name; if it is not bounded, any number may wait."""
        found = self.by_name.get(name)
        if found is None:
            found = self.by_name[name] = Queue(name, self, self.most_waiting if bounded else None)
            self.on_new(found)
        return found

    def note(self, tenant: str) -> None:
        """Take note of a tenant."""
        if tenant and tenant != self.only:
            self.several = self.several or self.only is not None
            self.only = self.only or tenant


def _ignore(_: object) -> None:
    """Do nothing with it."""


# --- slots -----------------------------------------------------------------------------------------------------------


_LEFT = 4
"""One in so many slots, and at least one, is left for others by a tenant that is not alone."""


class Slots:
    """A number of slots, handed out in turns between tenants, and to one tenant in the order of asking.

    The next slot is for the tenant that has the fewest, and among equals for the one whose turn was longest ago. As
    soon as there are several tenants none has all slots: a quarter, at least one, is left for others. Order alone would
    let them wait as long as what runs takes, and that is up to whoever has started it.

    Unlike `asyncio.Semaphore` it is not bound to the first loop that had to wait, so a registry can serve one
    `asyncio.run` after another.
    """

    def __init__(self, limit: int, queue: Queue | None = None) -> None:
        self._limit = self._share = self._reserve = self._free = 0
        self._held: dict[str, int] = {}
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """By tenant, in the order of their turns: whoever got a slot, or gives one back, goes to the end."""
        self._returned: deque[str] = deque()
        """Slots that threads have given back and nobody has counted yet."""
        self.queue = queue or Queues().named("", bounded=False)
        self._queues = self.queue.queues
        self.queue.add(self)
        self.resize(limit)

    def resize(self, limit: int) -> None:
        """Have another number of slots from now on; whoever has one keeps it."""
        self._free += limit - self._limit
        self._limit = limit
        self._share = limit if limit <= 1 else limit - max(1, limit // _LEFT)
        self._reserve = limit - self._share
        """Slots that are left for others; while more than these are free, nobody has a whole share."""
        if self._waiting:
            self._hand_out()

    @property
    def taken(self) -> int:
        """How many are in use."""
        return self._limit - self._free - len(self._returned)

    @property
    def waiting(self) -> int:
        """How many wait for one."""
        return sum(map(len, list(self._waiting.values())))  # a thread may ask

    def held(self, tenant: str) -> int:
        """Return how many a tenant has."""
        return self._held.get(tenant, 0)

    def take(self, tenant: str = "") -> bool:
        """Take a slot for a tenant, if there is one for it."""
        if self._returned:
            self._count_returned()
        if tenant != self._queues.only:
            self._queues.note(tenant)
        free = self._free
        if free <= self._reserve and not self._is_for(tenant):
            return False
        self._free = free - 1
        self._held[tenant] = self._held.get(tenant, 0) + 1
        return True

    def _is_for(self, tenant: str) -> bool:
        """Tell whether there is a slot for a tenant."""
        return self._free > 0 and (self._held.get(tenant, 0) < self._share or not self._queues.several)

    async def acquire(self, tenant: str = "", seconds: float | None = None) -> None:
        """Take a slot, waiting for one if need be; TimeoutError if there was none in so many seconds.

        QueueFullError if too many of the tenant wait already.
        """
        if self.take(tenant):
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(tenant, deque())
        most = self.queue.most_waiting
        if most is not None and len(waiting) >= most:
            raise QueueFullError(self.queue.name, most)
        waiting.append(waiter)
        self._count_returned()  # by a thread that did not see yet that somebody waits
        began = time.monotonic()
        with Deadline(seconds):
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self.release(tenant)  # the slot was handed over in the moment of leaving
                else:
                    self._leave(tenant, waiter)
                raise
            finally:
                self.queue.observe(time.monotonic() - began)

    @contextlib.asynccontextmanager
    async def taken_by(self, tenant: str) -> AsyncIterator[None]:
        """Have a slot for a while."""
        await self.acquire(tenant)
        try:
            yield
        finally:
            self.release(tenant)

    def release(self, tenant: str = "") -> None:
        """Give a slot back, from any thread; the first of the tenant whose turn it is gets it."""
        if asyncio._get_running_loop() is None:
            self._return_from_thread(tenant)
        else:
            self.give_back(tenant)

    def give_back(self, tenant: str) -> None:
        """Give a slot back from within an event loop, for who knows to be in one: to ask asyncio is a system call."""
        self._free += 1
        left = self._held[tenant] - 1
        if left:
            self._held[tenant] = left
        else:
            del self._held[tenant]
        if self._waiting:
            if tenant in self._waiting:
                self._waiting[tenant] = self._waiting.pop(tenant)  # at the end: it has just had its turn
            self._hand_out()

    def first_of(self, waiting: Iterable[str]) -> str | None:
        """Return which of the tenants that wait, in the order of their turns, gets a slot; None if none does now."""
        found: str | None = None
        if self._free > 0:
            fewest = self._share if self._queues.several else self._limit
            for tenant in waiting:  # no more have any than there are slots, so this ends soon
                held = self._held.get(tenant, 0)
                if held < fewest:
                    found, fewest = tenant, held
                    if not held:
                        break
        return found

    def _leave(self, tenant: str, waiter: asyncio.Future[None]) -> None:
        waiting = self._waiting.get(tenant)
        if waiting is not None and waiter in waiting:
            waiting.remove(waiter)
            if not waiting:
                del self._waiting[tenant]

    def _hand_out(self) -> None:
        while (tenant := self.first_of(self._waiting)) is not None:
            waiting = self._waiting.pop(tenant)
            waiter = waiting.popleft()
            if waiting:
                self._waiting[tenant] = waiting  # at the end: it was its turn
            loop = waiter.get_loop()
            # A loop that was closed while somebody waited will never take the slot.
            if not waiter.done() and not loop.is_closed():
                self._free -= 1
                self._held[tenant] = self._held.get(tenant, 0) + 1
                loop.call_soon_threadsafe(self._grant, tenant, waiter)

    def _grant(self, tenant: str, waiter: asyncio.Future[None]) -> None:
        if waiter.done():
            self.release(tenant)
        else:
            waiter.set_result(None)

    def _return_from_thread(self, tenant: str) -> None:
        """Leave a slot to whoever wants one next, and tell those who wait: only loops count and hand out."""
        self._returned.append(tenant)
        waiting = list(self._waiting.values())
        for loop in {waiter.get_loop() for some in waiting for waiter in list(some)}:
            with contextlib.suppress(RuntimeError):  # it was closed meanwhile
                loop.call_soon_threadsafe(self._count_returned)

    def _count_returned(self) -> None:
        while self._returned:
            self.release(self._returned.popleft())
