"""What one tenant may take of the server: responses that are being made, and bytes that are stored."""

import asyncio
import contextlib
import secrets
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import msgspec
from msgspec import Struct, field

from antwort.concurrency.peers import Letters
from antwort.config import TenantLimitsConfig
from antwort.errors import RateLimitError
from antwort.storage.sql.retention import Retention

MOST_TENANTS = 10_000
"""Tenants whose stored bytes are remembered."""
REMEMBERED = 5.0
"""Seconds for which a count of stored bytes holds, as long as it is far from the limit."""
REMEMBERED_NEAR = 1.0
"""The same near the limit and above it, so that deleting helps soon."""
NEAR = 0.9
PATIENCE = 20
"""How many times as long as counting takes a count holds at least: large tenants must not keep the database busy."""

PAUSE = 0.5
"""Seconds for which a worker gathers what it tells others of responses that are being made."""
REPEATED = 5.0
"""Seconds after which it says so again: letters may be lost."""
FORGOTTEN = 15.0
"""Seconds after which nothing is made any more by a worker that was not heard of."""
_MAKING = "making"
"""What workers of a database tell each other: who it is, a tenant, how many responses of it are being made there."""

_FREE = contextlib.nullcontext()


class _Count(Struct):
    """How many bytes a tenant has stored."""

    bytes: int = 0
    until: float = 0.0
    """When to count again."""
    counting: asyncio.Lock = field(default_factory=asyncio.Lock)


class OtherWorkers:
    """How many responses of each tenant other workers of the database make, as far as they have told."""

    def __init__(self, letters: Letters, made: Counter[str], clock: Callable[[], float]) -> None:
        self._letters = letters
        self._made = made
        """Those that are made here."""
        self._clock = clock
        self._self = secrets.token_hex(6)
        self._untold: set[str] = set()
        self._repeats = False
        self._number = 0
        self._told: OrderedDict[str, dict[str, tuple[int, float]]] = OrderedDict()
        """By tenant what each worker has said, and when."""
        letters.hear(_MAKING, self._hear)

    def making(self, tenant: str) -> int:
        """Return how many responses of a tenant they make."""
        told = self._told.get(tenant)
        if not told:
            return 0
        now = self._clock()
        return sum(count for count, heard in told.values() if now - heard < FORGOTTEN)

    def note(self, tenant: str) -> None:
        """Tell others soon how many are made here, since there is one more or less."""
        loop = asyncio._get_running_loop()
        if loop is None:  # it has ended, and others come to know that by not hearing of it
            return
        if not self._untold:
            loop.call_later(PAUSE, self._tell)
        self._untold.add(tenant)
        if not self._repeats:
            self._repeats = True
            loop.call_later(REPEATED, self._repeat)

    def _tell(self) -> None:
        untold, self._untold = self._untold, set()
        for tenant in untold:
            self._number += 1  # of two letters that are the same one is sent
            letter = (self._self, self._number, tenant, self._made.get(tenant, 0))
            self._letters.tell(_MAKING, msgspec.json.encode(letter).decode())

    def _repeat(self) -> None:
        self._repeats = False
        for tenant in list(self._made):
            self.note(tenant)

    def _hear(self, letter: str) -> None:
        worker, _, tenant, count = msgspec.json.decode(letter, type=tuple[str, int, str, int])
        told = self._told.setdefault(tenant, {})
        if count > 0:
            told[worker] = (count, self._clock())
        else:
            told.pop(worker, None)
        self._told.move_to_end(tenant)
        if not told:
            del self._told[tenant]
        elif len(self._told) > MOST_TENANTS:
            self._told.popitem(last=False)


class TenantLimits:
    """Counts what tenants take, and refuses what is too much. Without limits it does nothing."""

    def __init__(
        self,
        config: TenantLimitsConfig | None = None,
        retention: Retention | None = None,
        *,
        others: Letters | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        config = config or TenantLimitsConfig()
        self.most_runs = config.max_runs
        """How many responses of one tenant are made at the same time; None for any number."""
        self._most_bytes = None if retention is None else config.max_stored_bytes
        self.counts_bytes = self._most_bytes is not None
        """Whether there is a limit of stored bytes."""
        self._retention = retention
        self._clock = clock
        self._runs: Counter[str] = Counter()
        self._others: OtherWorkers | None = None
        if others is not None and self.most_runs is not None:
            self._others = OtherWorkers(others, self._runs, clock)
        self._counts: OrderedDict[str, _Count] = OrderedDict()

    # --- responses that are being made -------------------------------------------------------------------------------

    def making(self, tenant: str) -> AbstractContextManager[None]:
        """Count a response for as long as it is being made; a RateLimitError if there are too many already."""
        return _FREE if self.most_runs is None else self._making(tenant)

    @contextlib.contextmanager
    def _making(self, tenant: str) -> Iterator[None]:
        leave = self.enter(tenant)
        try:
            yield
        finally:
            leave()

    def enter(self, tenant: str, *, always: bool = False) -> Callable[[], None]:
        """Count a response and return what ends it; a RateLimitError if there are too many, unless it has to be."""
        if self.most_runs is None:
            return _nothing
        others = self._others
        elsewhere = 0 if others is None else others.making(tenant)
        if not always and self._runs[tenant] + elsewhere >= self.most_runs:
            raise RateLimitError(
                f"Too many responses of this tenant are being made: at most {self.most_runs} at the same time, those "
                "in the background included (limits.per_tenant.max_runs). Try again when one is over.",
                retry_after=1,
                code="concurrent_responses_exceeded",
            )
        self._runs[tenant] += 1
        if others is not None:
            others.note(tenant)
        over = False

        def leave() -> None:
            nonlocal over
            if not over:
                over = True
                self._runs[tenant] -= 1
                if not self._runs[tenant]:
                    del self._runs[tenant]
                if others is not None:
                    others.note(tenant)

        return leave

    # --- bytes that are stored ---------------------------------------------------------------------------------------

    async def check_room(self, tenant: str, cure: str = "") -> None:
        """Raise RateLimitError if a tenant has stored as much as it may, as far as it was counted now and then.

        `cure` is what the request can do beside deleting.
        """
        most = self._most_bytes
        if most is None or self._retention is None:
            return
        known = self._counts.setdefault(tenant, _Count())
        self._counts.move_to_end(tenant)
        if len(self._counts) > MOST_TENANTS:
            self._counts.popitem(last=False)
        if self._clock() >= known.until:
            async with known.counting:
                if self._clock() >= known.until:  # nobody has counted meanwhile
                    await self._count(tenant, known, most)
        if known.bytes >= most:
            raise RateLimitError(
                f"This tenant has stored as much as it may: {known.bytes:,} of {most:,} bytes "
                "(limits.per_tenant.max_stored_bytes). Delete responses, conversations or other things of it"
                f"{cure and f', or {cure}'}.",
                retry_after=None,
                code="storage_quota_exceeded",
            )

    async def _count(self, tenant: str, known: _Count, most: int) -> None:
        assert self._retention is not None, "there is a limit, so there is a store"  # noqa: S101 - for the type checker
        started = self._clock()
        known.bytes = await self._retention.usage(tenant)
        ended = self._clock()
        holds = REMEMBERED_NEAR if known.bytes >= NEAR * most else REMEMBERED
        known.until = ended + max(holds, PATIENCE * (ended - started))


def _nothing() -> None:
    """End what is not counted."""
