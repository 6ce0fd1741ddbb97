"""The queue of ingestion: jobs in the database, each lent to one worker for a while."""

import asyncio
import contextlib
import math
import time
from collections.abc import Callable, Container, Iterator, Mapping
from typing import Literal

import msgspec
from msgspec import Struct

from antwort.provider import ConflictError, Kept, Queue, RateLimitError, Records, Slots
from antwort.providers.file_search.ingestion.store_files import JOB, record_id

LEASE = 60.0
"""Seconds for which a job is lent; a worker that lives renews it."""
MOST_ATTEMPTS = 5
_COUNTED = 1000
"""Jobs that are counted at most."""
_LOOK = 2.0
"""Seconds between looks for jobs that other processes of the server have added."""
_RENEWED = 15.0
"""Seconds after which the lease of a job is renewed in the database."""


class JobValue(Struct):
    """What is kept about a job."""

    state: Literal["waiting", "deleting"] = "waiting"
    until: float = 0.0
    """Until when nobody else may have it."""
    attempts: int = 0


class _Waiting(Struct, frozen=True):
    """A job that nobody has."""

    until: float
    """When it may be lent."""
    since: float


class LostError(Exception):
    """The job is not this worker's any more."""


class LentJob:
    """A job that a worker has."""

    def __init__(self, kept: Kept, value: JobValue) -> None:
        self.kept = kept
        self.value = value

    @property
    def tenant(self) -> str:
        """Whose it is."""
        return self.kept.tenant

    @property
    def store_id(self) -> str:
        """The store that the file is in."""
        return self.kept.parent

    @property
    def file_id(self) -> str:
        """The file."""
        return self.kept.id.partition(":")[2]


class IngestionQueue:
    """Lends jobs to whoever asks, in turns between tenants, and of one tenant the oldest first.

    One tenant of several leaves workers to others, as in every queue. What waits is kept in memory, as it
    would be too much to be looked through for each; several processes may lend from one database.

    Versions of records fence: whoever has lost a job cannot change it any more.
    """

    def __init__(self, records: Records, now: Callable[[], float], queue: Queue | None = None, *, most: int) -> None:
        self._records = records
        self._now = now
        self._most = most
        self._added = asyncio.Event()
        self.slots = Slots(0, queue)
        """One for each connection of a worker; they say whose file is next."""
        self.slots.queue.add(self)
        self._known: dict[str, dict[str, _Waiting]] = {}
        """Jobs that nobody has, by tenant, in the order of their turns, and by record."""
        self._position = 0
        """As far as the records were looked through."""
        self._looked = -math.inf
        self._taking = asyncio.Lock()

    @property
    def waiting(self) -> int:
        """How many jobs nobody has, as far as is known here."""
        return sum(map(len, list(self._known.values())))

    async def check_room(self, tenant: str, more: int = 1) -> None:
        """Raise RateLimitError if a tenant would have more jobs than it may."""
        if more and await self._records.count(tenant, JOB) + more > self._most:
            raise RateLimitError(
                f"{self._most:,} files of this tenant wait to be made searchable, which is the limit "
                "(max_waiting_files of file search). Try again when some of them are done.",
                retry_after=10,
                code="queue_full",
            )

    async def add(self, tenant: str, store_id: str, file_id: str) -> None:
        """Add a job for a file; ConflictError if the file is just being detached.

        One that is there begins anew: whoever works on it has lost it.
        """
        await self._put(tenant, store_id, file_id, JobValue(), over_deletion=False)
        self._note(tenant, record_id(store_id, file_id), 0.0)
        self._added.set()

    async def mark_deletion(self, tenant: str, store_id: str, file_id: str) -> None:
        """Turn the job of a file into one for its removal, which no worker gets."""
        await self._put(tenant, store_id, file_id, JobValue("deleting"), over_deletion=True)

    async def is_deleting(self, tenant: str, store_id: str, file_id: str) -> bool:
        """Tell whether a file is marked for its removal."""
        kept = await self._records.get(tenant, JOB, record_id(store_id, file_id))
        return kept is not None and kept.value["state"] == "deleting"

    async def check_stays(self, tenant: str, store_id: str, file_id: str) -> None:
        """Raise ConflictError if a file is just being detached."""
        if await self.is_deleting(tenant, store_id, file_id):
            raise _detaching()

    async def end(self, tenant: str, store_id: str, file_id: str) -> None:
        """Delete the job of a file."""
        await self._records.delete(tenant, JOB, record_id(store_id, file_id))

    async def depth(self) -> int:
        """Count the jobs of all tenants, as far as the first thousand, and forget those that are over.

        Workers may ask another process of the server for all of them: nobody takes them from what is known here then.
        """
        known = {tenant: dict(jobs) for tenant, jobs in self._known.items()}
        found = await self._records.scan(JOB, limit=_COUNTED)
        if len(found) < _COUNTED:
            there = {(kept.tenant, kept.id) for _, kept in found}
            async with self._taking:  # whoever takes a job of a tenant goes on with what is known of it
                for tenant, jobs in known.items():
                    self._forget(tenant, {name: job for name, job in jobs.items() if (tenant, name) not in there})
        return len(found)

    async def claim(self, wait: float) -> LentJob | None:
        """Lend a job, if there is one within so many seconds."""
        end = self._now() + wait
        while True:
            self._added.clear()
            job = await self._take()
            left = end - self._now()
            if job is not None or left <= 0:
                return job
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left, _LOOK)):
                    await self._added.wait()

    async def renew(self, job: LentJob) -> None:
        """Lend a job for longer, if it is time for that; LostError if it is somebody else's."""
        if job.value.until - self._now() > LEASE - _RENEWED:
            await self.check(job)
            return
        await self._change(job, msgspec.structs.replace(job.value, until=self._now() + LEASE))

    async def release(self, job: LentJob, seconds: float = 0.0, *, is_attempt: bool = True) -> None:
        """Take a job back, to be lent again after some seconds."""
        attempts = job.value.attempts - (not is_attempt)
        until = self._now() + seconds
        await self._change(job, JobValue(until=until, attempts=attempts))
        self._note(job.tenant, job.kept.id, until)
        self._added.set()

    def give_back(self, job: LentJob) -> None:
        """Take note that a worker is free again."""
        self.slots.release(job.tenant)
        self._added.set()

    async def is_current(self, job: LentJob) -> bool:
        """Tell whether a job is still lent to the one who has it."""
        kept = await self._records.get(job.tenant, JOB, job.kept.id)
        return kept is not None and kept.version == job.kept.version

    async def check(self, job: LentJob) -> None:
        """Raise LostError if a job is not lent any more."""
        if not await self.is_current(job):
            raise LostError

    async def free_all(self) -> None:
        """Let every job be lent at once: nobody can be at work where the server has just started, and is alone."""
        after = 0
        while found := await self._records.scan(JOB, after=after):
            for position, kept in found:
                after = position
                value = msgspec.convert(kept.value, JobValue)
                if value.state == "waiting" and value.until > self._now():
                    kept.value = msgspec.to_builtins(JobValue(attempts=value.attempts))
                    await self._records.update(kept)
        self._position = 0
        self._added.set()

    async def _take(self) -> LentJob | None:
        """Lend the job of the tenant whose turn it is."""
        async with self._taking:
            await self._look()
            passed: set[str] = set()
            while (tenant := self.slots.first_of(self._ready(passed))) is not None:
                job = await self._take_of(tenant)
                if job is not None:
                    return job
                passed.add(tenant)
        return None

    def _ready(self, passed: Container[str]) -> Iterator[str]:
        """Give the tenants that have a job to lend, in the order of their turns."""
        now = self._now()
        for tenant, jobs in self._known.items():
            if tenant not in passed and any(job.until <= now for job in jobs.values()):
                yield tenant

    async def _take_of(self, tenant: str) -> LentJob | None:
        now, jobs = self._now(), self._known[tenant]
        for name in [name for name, job in jobs.items() if job.until <= now]:
            waiting = jobs.pop(name, None)
            kept = await self._records.get(tenant, JOB, name)
            value = None if kept is None else msgspec.convert(kept.value, JobValue)
            if waiting is None or kept is None or value is None or value.state != "waiting":
                continue
            if value.until > now:
                jobs[name] = _Waiting(value.until, waiting.since)
                continue
            lent = JobValue(until=now + LEASE, attempts=value.attempts + 1)
            kept.value = msgspec.to_builtins(lent)
            if not self.slots.take(tenant):  # a worker has left meanwhile
                jobs[name] = waiting
                return None
            is_lent = False
            try:
                is_lent = await self._records.update(kept)
            finally:
                if not is_lent:
                    self.slots.release(tenant)
            if is_lent:
                self._known[tenant] = self._known.pop(tenant)  # at the end: it was its turn
                self.slots.queue.observe(time.monotonic() - waiting.since)
                return LentJob(kept, lent)
        if not jobs:
            self._known.pop(tenant, None)
        return None

    async def _look(self) -> None:
        """Find what was added since the last look; now and then all, since others may have changed what is known."""
        if time.monotonic() - self._looked > LEASE:
            self._looked, self._position = time.monotonic(), 0
        while found := await self._records.scan(JOB, after=self._position):
            for position, kept in found:
                self._position = position
                if kept.value["state"] == "waiting":
                    self._note(kept.tenant, kept.id, kept.value["until"])

    def _note(self, tenant: str, name: str, until: float) -> None:
        jobs = self._known.setdefault(tenant, {})
        before = jobs.get(name)
        jobs[name] = _Waiting(until, time.monotonic() if before is None else before.since)

    def _forget(self, tenant: str, over: Mapping[str, _Waiting]) -> None:
        """Forget jobs, but for those that were added again meanwhile."""
        jobs = self._known.get(tenant, {})
        for name, job in over.items():
            if jobs.get(name) is job:
                del jobs[name]
        if over and not jobs:
            self._known.pop(tenant, None)

    async def _change(self, job: LentJob, value: JobValue) -> None:
        kept = msgspec.structs.replace(job.kept, value=msgspec.to_builtins(value))
        if not await self._records.update(kept):
            raise LostError
        job.kept, job.value = kept, value

    async def _put(self, tenant: str, store_id: str, file_id: str, value: JobValue, *, over_deletion: bool) -> None:
        name, made = record_id(store_id, file_id), msgspec.to_builtins(value)
        while True:
            kept = await self._records.get(tenant, JOB, name)
            if kept is None:
                with contextlib.suppress(ConflictError):  # somebody else was faster
                    await self._records.create(tenant, JOB, name, made, parent=store_id)
                    return
                continue
            if kept.value["state"] == "deleting" and not over_deletion:
                raise _detaching()
            kept.value = made
            if await self._records.update(kept):
                return


def _detaching() -> ConflictError:
    return ConflictError("The file is just being removed from the vector store; try again in a moment.")
