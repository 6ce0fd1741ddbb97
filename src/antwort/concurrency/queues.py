"""Queues, in which tenants wait for what there is not enough of: how many may, and who measures that."""

from collections.abc import Callable
from typing import Protocol
from weakref import WeakSet

from antwort.errors import FunctionUnavailableError

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
