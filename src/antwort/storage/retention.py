"""Deleting what is too old: a few things at a time, so that whoever writes meanwhile never waits for long."""

import asyncio
import contextlib
import itertools
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from operator import itemgetter
from typing import TypeVar

from typing_extensions import override

from antwort.concurrency.contained_tasks import end_tasks
from antwort.config import KeepConfig
from antwort.errors import ConflictError
from antwort.observability import Metrics
from antwort.storage.base import OWN_RECORDS, OldResponse, StoreUnavailableError
from antwort.storage.batches import OldBatches
from antwort.storage.chat_completions import ChatCompletions
from antwort.storage.sql.store import Store

logger = logging.getLogger(__name__)

KINDS = ("responses", "events", "conversations", "traces", "batches", "chat_completions")
VALUES = "values"
"""What goes with a run or a conversation, and has no age of its own."""
SLICE = 200
"""Rows that are looked at in one go."""
GROUP = 20
"""Things that are deleted before others get their turn."""
EVENTS = 500
"""Events that one transaction deletes at most."""
PAUSE = 0.05
"""Seconds of the server's own requests between two groups."""
_CLOSE_TIMEOUT = 5.0
"""Seconds that a sweep has to end after it was cancelled: what it writes is written to its end."""
ABANDONED = 86_400
"""Seconds after which a response in the foreground that never ended is one that a crash has left."""
UNCLAIMED = 3600
"""Seconds for which values are kept though nothing that is stored has a claim to them: a run may be under way."""
_TURN = 30.0
"""Seconds, at most, between two looks whether it is this server that sweeps."""
UNSTORED = 60.0
"""Seconds, at most, between two looks for responses that are not to be stored."""

Pruned = dict[str, int]
"""How many were deleted of each kind."""
T = TypeVar("T")


def cutoffs(keep: KeepConfig, now: float) -> dict[str, int]:
    """Return, for each kind with a limit, the moment before which it is too old."""
    ages = {kind: getattr(keep, kind) for kind in KINDS}
    return {kind: int(now - age) for kind, age in ages.items() if age is not None}


class Pruner:
    """Deletes what is older than a moment, of all tenants.

    Responses and events are as old as the response, conversations as their last use, traces that clients have sent as
    what came of them first, batches as they are, chat completions as their keeping. A background response or a batch
    that is not over is left alone, however old. Those that continue a deleted response continue what came before it.
    """

    def __init__(self, store: Store, *, pause: float = 0.0, progress: Callable[[Pruned], None] | None = None) -> None:
        self._store = store
        self._retention = store.retention
        self._chats = ChatCompletions(store.records(OWN_RECORDS))
        self._pause = pause
        self._progress = progress
        self._dropped_until = 0
        """The number up to which no response has events any more: nobody has to look there again."""

    async def prune(self, before: Mapping[str, int], *, dry_run: bool = False) -> Pruned:
        """Delete, or only count, what is older than the moment given for its kind; return how many of each kind."""
        counts = dict.fromkeys((kind for kind in KINDS if kind in before), 0)
        if "responses" in before:
            await self._responses(before["responses"], counts, dry_run=dry_run)
        if "events" in before:
            await self._events(before["events"], counts, dry_run=dry_run)
        if "conversations" in before:
            await self._conversations(before["conversations"], counts, dry_run=dry_run)
        if "traces" in before:
            await self._traces(before["traces"], counts, dry_run=dry_run)
        if "batches" in before:
            await self._batches(before["batches"], counts, dry_run=dry_run)
        if "chat_completions" in before:
            await self._chat_completions(before["chat_completions"], counts, dry_run=dry_run)
        return counts

    async def forget_deleted(self) -> None:
        """Delete for good what providers deleted more than a day ago."""
        while True:
            if not await self._retention.forget_deleted(int(time.time())):
                return
            await asyncio.sleep(self._pause)

    async def forget_values(self) -> int:
        """Delete values of variables that have expired, or whose run or conversation is gone; return how many."""
        values, now, last, forgotten = self._store.values, int(time.time()), "", 0
        while found := await values.left_over(last, now, now - UNCLAIMED, SLICE):
            last = found[-1][0]
            for tenant, group in itertools.groupby(sorted(found, key=itemgetter(1)), itemgetter(1)):
                versions = [(name, blob_id) for name, _, blob_id in group]
                with contextlib.suppress(ConflictError):  # one of the blobs got another version; the next time, then
                    forgotten += await values.forget(tenant, last, versions)
                await asyncio.sleep(self._pause)
        last = ""
        while blobs := await values.left_over_blobs(last, now - UNCLAIMED, SLICE):
            last = blobs[-1][0]
            for blob_id, tenant in blobs:
                with contextlib.suppress(ConflictError):
                    await values.discard(tenant, blob_id)
            await asyncio.sleep(self._pause)
        return forgotten

    async def forget_unstored(self, before: int) -> int:
        """Delete responses that their clients want not stored and that were over before a moment; return how many."""
        forgotten = 0
        while found := await self._retention.unstored(before, GROUP):
            forgotten += sum(await asyncio.gather(*map(self._delete, found)))
            await asyncio.sleep(self._pause)
        return forgotten

    async def _responses(self, before: int, counts: Pruned, *, dry_run: bool) -> None:
        async for found in self._slices(before):
            old = [each for each in found if each.created_at < before and not _is_running(each)]
            if dry_run:
                counts["responses"] += len(old)
                continue
            async for group in self._groups(old, counts):
                counts["responses"] += sum(await asyncio.gather(*map(self._delete, group)))

    async def _events(self, before: int, counts: Pruned, *, dry_run: bool) -> None:
        done = True
        async for found in self._slices(before, self._dropped_until):
            old = [each for each in found if each.created_at < before and each.background and not _is_running(each)]
            if dry_run:
                counts["events"] += sum([await self._retention.count_events(each.tenant, each.id) for each in old])
                continue
            async for group in self._groups(old, counts):
                counts["events"] += sum(await asyncio.gather(*map(self._drop, group)))
            done = done and not any(each.created_at >= before or _is_running(each) for each in found)
            if done:
                self._dropped_until = found[-1].number

    async def _conversations(self, before: int, counts: Pruned, *, dry_run: bool) -> None:
        last = (0, "")
        while found := await self._retention.unused(before, last, SLICE):
            _, name, used_at = found[-1]
            last = (used_at, name)
            if dry_run:
                counts["conversations"] += len(found)
                continue
            async for group in self._groups(found, counts):
                deletions = (self._retention.delete_unused(tenant, name, before) for tenant, name, _ in group)
                counts["conversations"] += sum(await asyncio.gather(*deletions))

    async def _traces(self, before: int, counts: Pruned, *, dry_run: bool) -> None:
        traces, last = self._store.client_traces, 0
        while found := await traces.oldest(last, SLICE):
            last = found[-1][0]
            old = [(tenant, name) for _, tenant, name, created_at in found if created_at < before]
            if dry_run:
                counts["traces"] += len(old)
            else:
                async for group in self._groups(old, counts):
                    counts["traces"] += sum(await asyncio.gather(*(traces.delete(*each) for each in group)))
            if len(old) < len(found):
                return

    async def _batches(self, before: int, counts: Pruned, *, dry_run: bool) -> None:
        batches = OldBatches(self._store.records(OWN_RECORDS), self._store.files)
        async for found in batches.older(before):
            if dry_run:
                counts["batches"] += len(found)
                continue
            async for group in self._groups(found, counts):
                counts["batches"] += sum([await batches.delete(kept) for kept in group])
        if not dry_run:
            await batches.forget_keys(before)

    async def _chat_completions(self, before: int, counts: Pruned, *, dry_run: bool) -> None:
        chats, last = self._chats, 0
        while found := await chats.walk(last, SLICE):
            last = found[-1].number
            old = [each for each in found if each.created_at < before]
            if dry_run:
                counts["chat_completions"] += len(old)
                continue
            async for group in self._groups(old, counts):
                deletions = (chats.delete(each.tenant, each.id) for each in group)
                counts["chat_completions"] += sum(await asyncio.gather(*deletions))
            if len(old) < len(found):
                return

    async def _slices(self, before: int, after: int = 0) -> AsyncIterator[Sequence[OldResponse]]:
        """Yield responses in the order in which they were stored, until they are all too young."""
        while found := await self._retention.walk(after, SLICE):
            if all(each.created_at >= before for each in found):
                return
            yield found
            after = found[-1].number

    async def _groups(self, found: Sequence[T], counts: Pruned) -> AsyncIterator[Sequence[T]]:
        for start in range(0, len(found), GROUP):
            yield found[start : start + GROUP]
            if self._progress is not None:
                self._progress(counts)
            await asyncio.sleep(self._pause)

    async def _delete(self, old: OldResponse) -> bool:
        if old.background:
            await self._drop(old)
        return await self._store.delete(old.tenant, old.id)

    async def _drop(self, old: OldResponse) -> int:
        """Delete the events of a response, in parts: there may be very many."""
        dropped = 0
        while gone := await self._retention.drop_events(old.tenant, old.id, EVENTS):
            dropped += gone
            if gone < EVENTS:
                break
        return dropped


def _is_running(old: OldResponse) -> bool:
    return old.active and (old.background or old.created_at > time.time() - ABANDONED)


class RegularSweep(ABC):
    """Deletes what is over at the start and then every so many seconds, in a task of its own. `what` is its name."""

    what: str

    def __init__(self, every: float) -> None:
        self._every = every
        self._task: asyncio.Task[None] | None = None

    @abstractmethod
    async def sweep(self) -> object:
        """Delete what is over, once."""

    def start(self, when: Callable[[], bool] = lambda: True) -> None:
        """Begin, as long as something is so: of several servers on one database one sweeps."""
        self._task = asyncio.get_running_loop().create_task(self._run(when), name=f"the sweep of {self.what}")

    async def close(self) -> None:
        """Stop; what is not deleted yet is deleted after the next start."""
        if self._task is not None:
            for name in await end_tasks([self._task], _CLOSE_TIMEOUT):
                logger.warning("%s does not end; it is left behind", name)

    async def _run(self, when: Callable[[], bool]) -> None:
        while True:
            if not when():
                await asyncio.sleep(min(self._every, _TURN))
                continue
            try:
                await self.sweep()
            except StoreUnavailableError as error:
                logger.warning("%s is not deleted now: %s", self.what, error.message)
            except Exception:  # it must not be the end of all sweeps
                logger.exception("%s could not be deleted", self.what)
            await asyncio.sleep(self._every)


class UnstoredSweeper(RegularSweep):
    """Deletes responses that their clients want not stored, about as long after their end as is configured."""

    what = "a response that is not to be stored"

    def __init__(self, store: Store, keep: KeepConfig) -> None:
        super().__init__(min(max(keep.unstored / 10, 1.0), UNSTORED))
        self._pruner = Pruner(store, pause=PAUSE)
        self._age = keep.unstored

    @override
    async def sweep(self) -> int:
        """Delete those that are over for long enough, once."""
        return await self._pruner.forget_unstored(int(time.time() - self._age))


class Sweeper(RegularSweep):
    """Deletes what is too old now and then, as long as the server runs."""

    what = "what is too old"

    def __init__(self, store: Store, keep: KeepConfig, every: float, metrics: Metrics) -> None:
        super().__init__(every)
        self._pruner = Pruner(store, pause=PAUSE)
        self._keep = keep
        self._deleted = metrics.counter("antwort_pruned_total", "Things deleted because they were too old.", ["kind"])
        for kind in (*KINDS, VALUES):
            self._deleted.labels(kind)  # so that each shows from the beginning

    @override
    async def sweep(self) -> Pruned:
        """Delete what is too old, once."""
        counts = await self._pruner.prune(cutoffs(self._keep, time.time()))
        await self._pruner.forget_deleted()
        if forgotten := await self._pruner.forget_values():
            counts[VALUES] = forgotten
        for kind, count in counts.items():
            self._deleted.labels(kind).inc(count)
        if any(counts.values()):
            summary = ", ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in counts.items() if count)
            logger.info("deleted what was too old (storage.keep): %s", summary)
        return counts
