"""Runs that belong to nobody yet: which of them a worker takes next, and how many it works on."""

from collections import Counter
from collections.abc import Iterable

from antwort.concurrency.slots import Queue, Queues, Slots
from antwort.storage.sql.responses import UnfinishedRun


class WaitingRuns:
    """Runs that are anybody's, as far as one worker knows, in turns between tenants and of one in the order of asking.

    A worker takes as many as it has room for, and leaves the others to others. Of one tenant it takes no more than may
    run on all workers of the database together, as far as it knows: who claims a run comes to know it for certain.
    """

    def __init__(self, limit: int, queues: Queues, most: int | None = None) -> None:
        self.limit = limit
        """How many runs a worker works on when it takes no further one."""
        self.most = most
        """How many runs of one tenant all workers work on; None for any number."""
        self._slots = Slots(limit, Queue("runs", queues))
        self._runs: dict[str, dict[str, UnfinishedRun]] = {}
        """By tenant and id."""
        self._heard: set[str] = set()
        """Those that are known since the last look."""
        self._taken: dict[str, str] = {}
        """Those that were taken here, with their tenants."""
        self._elsewhere: Counter[str] = Counter()
        """How many of a tenant others work on, as of the last look."""
        self._full: set[str] = set()
        """Tenants of which as many run as may."""

    def add(self, run: UnfinishedRun) -> None:
        """Take note of a run that is anybody's."""
        if run.id not in self._taken:
            self._runs.setdefault(run.tenant, {})[run.id] = run
            self._heard.add(run.id)

    def see(self, found: Iterable[UnfinishedRun], waiting: Iterable[UnfinishedRun]) -> None:
        """Take note of all runs that are not over, and of those among them that wait."""
        there = {run.id: run for run in found}
        known = [run for runs in self._runs.values() for run in runs.values()]
        self._runs = {}
        for run in [*waiting, *(one for one in known if one.id in self._heard or one == there.get(one.id))]:
            if run.id not in self._taken:
                self._runs.setdefault(run.tenant, {}).setdefault(run.id, run)
        self._heard.clear()
        self._elsewhere = Counter(run.tenant for run in there.values() if run.worker and run.id not in self._taken)
        self._full.clear()

    def take(self, active: int) -> UnfinishedRun | None:
        """Return the next run for a worker that works on some already; None if it has no room, or there is none."""
        tenant = None if active >= self.limit else self._slots.first_of(filter(self._has_room, self._runs))
        if tenant is None or not self._slots.take(tenant):
            return None
        runs = self._runs.pop(tenant)
        run = runs.pop(next(iter(runs)))
        if runs:
            self._runs[tenant] = runs  # at the end: it was its turn
        self._taken[run.id] = tenant
        return run

    def put_back(self, run: UnfinishedRun) -> None:
        """Let a run wait that was taken, since as many of its tenant run as may."""
        self._full.add(run.tenant)
        self._release(run.id)
        self._runs[run.tenant] = {run.id: run, **self._runs.get(run.tenant, {})}

    def end(self, run: UnfinishedRun) -> None:
        """Take note that a run that was taken is over, waits for somebody, or is somebody else's."""
        if self._release(run.id):
            self._full.discard(run.tenant)

    def free(self, tenant: str) -> None:
        """Take note that a run of a tenant has ended here that was not taken from those that wait."""
        self._elsewhere[tenant] = max(0, self._elsewhere[tenant] - 1)
        self._full.discard(tenant)

    def _release(self, response_id: str) -> bool:
        tenant = self._taken.pop(response_id, None)
        if tenant is not None:
            self._slots.give_back(tenant)
        return tenant is not None

    def _has_room(self, tenant: str) -> bool:
        if self.most is None:
            return True
        return tenant not in self._full and self._slots.held(tenant) + self._elsewhere[tenant] < self.most
