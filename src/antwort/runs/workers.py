"""Which workers share a database, and which of them are dead: judged by what one of them sees, and by no clock's time.

Each worker raises a count in the database again and again, and looks at those of the others. One whose count has stood
still for a whole lease, while whoever looks could look all the time, is taken for dead. So nobody has to know what time
it is elsewhere, and after an outage of the database, in which all stood still, everybody has a lease to come back. Of
two leases, its own and that of whoever looks, the longer one counts: one that beats seldom is not dead.
"""

import asyncio
import contextlib
import logging
import secrets
import socket
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from hashlib import blake2b

import msgspec
from msgspec import Struct

import antwort
from antwort.concurrency.contained_tasks import end_tasks
from antwort.errors import ConfigError
from antwort.storage.base import StoreUnavailableError
from antwort.storage.identities import WorkerIdentities
from antwort.storage.sql.workers import WorkerRow, WorkerStore

logger = logging.getLogger(__name__)

BEATS = 5
"""Signs of life in one lease."""
_CLOSE_TIMEOUT = 2.0
"""Seconds that the watch has to end, and again to say so to others."""


class Sharing(Struct, frozen=True):
    """What stands against workers of several data folders on one database, by settings."""

    local: Mapping[str, str] = {}
    """What each keeps in its own folder: the reason, with the cure."""
    same: Mapping[str, str] = {}
    """What has to be the same for all: a digest of it."""

    def why_not(self, other: "Sharing") -> tuple[str, str] | None:
        """Return a setting, and why it keeps two workers from sharing a database; None if nothing does."""
        for key, reason in {**other.local, **self.local}.items():
            return key, reason
        for key in self.same.keys() | other.same.keys():
            if self.same.get(key) != other.same.get(key):
                return key, "has another one; all servers of a database need the same"
        return None


class WorkerWatch:
    """One of the workers of a database, who watches the others."""

    def __init__(
        self,
        store: WorkerStore,
        identities: WorkerIdentities,
        *,
        number: int = 0,
        lease: float,
        works: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._identities = identities
        self._number = number
        self._instance = secrets.token_hex(8)
        self._lease = lease
        self._works = works
        self._clock = clock
        self._sharing = Sharing()
        self._task: asyncio.Task[None] | None = None
        self._looked: float | None = None
        self._rows: dict[str, WorkerRow] = {}
        self._since: dict[str, tuple[int, float]] = {}
        """What was seen last of each worker, and since when it has been so; -1 of one that is not entered."""
        self._also: list[Callable[[], Awaitable[None]]] = []
        self._left: Collection[str] = ()
        """Who was in the same data folder and is so no longer."""
        self.own = ""
        """Which one this is."""

    @property
    def others(self) -> Collection[WorkerRow]:
        """Those that were alive at the last look."""
        return [row for row in self._rows.values() if row.id != self.own and not self.is_dead(row.id)]

    @property
    def leads(self) -> bool:
        """Tell whether this is the worker that does what one of all has to do; for a moment two may be."""
        return all(self.own <= row.id for row in self.others)

    def is_among_the_first(self, name: str, count: int) -> bool:
        """Tell whether this is one of so many that are the first to work on something, each on as much as others."""
        ids = sorted([self.own, *(row.id for row in self.others if row.about.get("works", True))])
        first = int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "big")
        return (ids.index(self.own) - first) % len(ids) < count

    async def join(self, sharing: Sharing) -> None:
        """Enter this worker; a ConfigError if one of another data folder is alive and they cannot share a database."""
        self._sharing = sharing
        self.own = await asyncio.to_thread(self._identities.take, self._number)
        await self._enter()
        await self.look()
        doubtful = {row.id: row.beats for row in self._rows.values() if self._why_not(row) is not None}
        if doubtful:
            longest = max(self._lease_of(worker) for worker in doubtful)
            await asyncio.sleep(2 * longest / BEATS)  # who is alive has shown it by then
            await self.look()
            for row in self._rows.values():
                why = self._why_not(row)
                if why is not None and doubtful.get(row.id) != row.beats:
                    await self.close()
                    host = row.about["host"]
                    message = f"another server, on '{host}', works on this database, and {why[1]}"
                    raise ConfigError(message, where=why[0])

    async def look(self, owners: Collection[str] = ()) -> None:
        """Say that this one lives, and see how the others are; `owners` are workers that may not be entered."""
        if await self._store.beat("", self.own, self._instance) != self._instance:
            await self._enter_again()
        rows = await self._store.all()
        now = self._clock()
        if self._looked is not None and now - self._looked > self._lease / 2:
            self._since.clear()  # who could not look does not know who stood still
        self._looked = now
        self._rows = {row.id: row for row in rows}
        self._left = await asyncio.to_thread(self._identities.left)
        for worker in {*self._rows, *owners}:
            beats = self._rows[worker].beats if worker in self._rows else -1
            if self._since.get(worker, (None, 0.0))[0] != beats:
                self._since[worker] = (beats, now)
        for worker in self._since.keys() - self._rows.keys() - set(owners):
            del self._since[worker]

    async def stay_alive(self) -> None:
        """Look, if it is time to: for whoever is busy with what may take longer than a lease."""
        if self._looked is not None and self._clock() - self._looked >= self._lease / BEATS:
            await self.look(set(self._since))

    def is_dead(self, worker: str) -> bool:
        """Tell whether nobody works by that id any more, as far as can be known."""
        if worker == self.own:
            return False
        if not worker:  # it is anybody's
            return True
        row = self._rows.get(worker)
        if worker in self._left or (row is not None and not row.instance):
            return True
        _, since = self._since.get(worker, (0, None))
        return since is not None and self._looked is not None and self._looked - since >= self._lease_of(worker)

    async def forget(self, busy: Collection[str]) -> None:
        """Take out those that are dead, but for the owners of runs that nobody has taken over yet."""
        for row in list(self._rows.values()):
            if row.id not in busy and self.is_dead(row.id):
                await self._store.forget(row)
                logger.info("worker %s is gone, and nothing of it is left", row.id)

    def start(self, look_after: Callable[[], Awaitable[None]]) -> None:
        """Watch in a task, which looks as often as it beats, each time by `look_after`."""
        self._task = asyncio.get_running_loop().create_task(self._watch(look_after), name="the watch over workers")

    def look_also(self, look: Callable[[], Awaitable[None]]) -> None:
        """Have something else looked at in the store as well, as often."""
        self._also.append(look)

    async def close(self) -> None:
        """End, and let others go on with what this one had."""
        task, self._task = self._task, None
        if task is not None:
            for name in await end_tasks([task], _CLOSE_TIMEOUT):
                logger.warning("%s does not end; it is left behind", name)
        with contextlib.suppress(StoreUnavailableError, TimeoutError):  # they will see it by themselves
            async with asyncio.timeout(_CLOSE_TIMEOUT):
                await self._store.leave("", self.own, self._instance)
        self._identities.release()

    async def _watch(self, look_after: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(self._lease / BEATS)
            try:
                await look_after()
            except StoreUnavailableError as error:
                logger.warning("workers that may be gone wait for the store: %s", error.message)
                continue
            except Exception:
                logger.exception("what workers that are gone have left could not be taken over")
            for look in self._also:
                try:
                    await look()
                except StoreUnavailableError as error:
                    logger.warning("what others have changed is looked up later: %s", error.message)
                except Exception:
                    logger.exception("what others have changed could not be looked up")

    def _lease_of(self, worker: str) -> float:
        """Return how long a worker may stand still: it beats as often as its own configuration has it."""
        row = self._rows.get(worker)
        return self._lease if row is None else max(self._lease, float(row.about.get("lease", 0.0)))

    def _why_not(self, row: WorkerRow) -> tuple[str, str] | None:
        """Return why this worker cannot work beside another one, as `Sharing.why_not`."""
        if row.folder == self._identities.folder or not row.instance:
            return None
        return self._sharing.why_not(msgspec.convert(row.about["sharing"], Sharing))

    async def _enter(self) -> None:
        sharing = msgspec.to_builtins(self._sharing)
        about = {
            "host": socket.gethostname(),
            "version": antwort.__version__,
            "sharing": sharing,
            "lease": float(self._lease),
            "works": self._works,
        }
        await self._store.join(self.own, self._instance, about)

    async def _enter_again(self) -> None:
        """Enter this worker once more: it was taken for dead, or somebody else has its id, which it leaves to that one.

        Its runs are other workers' by now, or are about to be.
        """
        there = {row.id: row for row in await self._store.all()}.get(self.own)
        if there is not None and there.instance not in {"", self._instance}:
            logger.error(
                "another worker has the identity of this one: is a copy of the folder 'workers' in the data folder in "
                "use? Delete the copy. This worker goes on by another one."
            )
            self.own = f"{secrets.token_hex(8)}-{self._number}"
        else:
            logger.warning("this worker was taken for dead by others; its background responses may be theirs now")
        await self._enter()
