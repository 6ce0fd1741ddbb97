"""The queue of ingestion: jobs in the database, each lent to one worker for a while."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Literal

import msgspec
from msgspec import Struct

from antwort.provider import ConflictError, Kept, Records
from antwort.providers.file_search.ingestion.store_files import JOB, record_id

LEASE = 60.0
"""Seconds for which a job is lent; a worker that lives renews it."""
MOST_ATTEMPTS = 5
_LOOK = 2.0
"""Seconds between looks for jobs that other processes of the server have added."""
_PAGE = 50


class JobValue(Struct):
    """What is kept about a job."""

    state: Literal["waiting", "deleting"] = "waiting"
    until: float = 0.0
    """Until when nobody else may have it."""
    attempts: int = 0


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
    """Lends jobs, oldest first, to whoever asks. Several processes may do so on one database.

    Versions of records fence: whoever has lost a job cannot change it any more.
    """

    def __init__(self, records: Records, now: Callable[[], float]) -> None:
        self._records = records
        self._now = now
        self._added = asyncio.Event()

    async def add(self, tenant: str, store_id: str, file_id: str) -> None:
        """Add a job for a file; ConflictError if the file is just being detached.

        One that is there begins anew: whoever works on it has lost it.
        """
        await self._put(tenant, store_id, file_id, JobValue(), over_deletion=False)
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
        """Count the jobs of all tenants, as far as the first thousand."""
        return len(await self._records.scan(JOB, limit=1000))

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
        """Lend a job for longer; LostError if it is somebody else's."""
        await self._change(job, msgspec.structs.replace(job.value, until=self._now() + LEASE))

    async def release(self, job: LentJob, seconds: float = 0.0, *, is_attempt: bool = True) -> None:
        """Take a job back, to be lent again after some seconds."""
        attempts = job.value.attempts - (not is_attempt)
        await self._change(job, JobValue(until=self._now() + seconds, attempts=attempts))
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
        self._added.set()

    async def _take(self) -> LentJob | None:
        after = 0
        while found := await self._records.scan(JOB, after=after, limit=_PAGE):
            for position, kept in found:
                after = position
                value = msgspec.convert(kept.value, JobValue)
                if value.state != "waiting" or value.until > self._now():
                    continue
                lent = JobValue(until=self._now() + LEASE, attempts=value.attempts + 1)
                kept.value = msgspec.to_builtins(lent)
                if await self._records.update(kept):
                    return LentJob(kept, lent)
        return None

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
