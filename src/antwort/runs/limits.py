"""What one tenant may take of the server: responses that are being made, and bytes that are stored."""

import asyncio
import contextlib
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from msgspec import Struct, field

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

_FREE = contextlib.nullcontext()


class _Count(Struct):
    """How many bytes a tenant has stored."""

    bytes: int = 0
    until: float = 0.0
    """When to count again."""
    counting: asyncio.Lock = field(default_factory=asyncio.Lock)


class TenantLimits:
    """Counts what tenants take, and refuses what is too much. Without limits it does nothing."""

    def __init__(
        self,
        config: TenantLimitsConfig | None = None,
        retention: Retention | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        config = config or TenantLimitsConfig()
        self._most_runs = config.max_runs
        self._most_bytes = None if retention is None else config.max_stored_bytes
        self.counts_bytes = self._most_bytes is not None
        """Whether there is a limit of stored bytes."""
        self._retention = retention
        self._clock = clock
        self._runs: Counter[str] = Counter()
        self._counts: OrderedDict[str, _Count] = OrderedDict()

    # --- responses that are being made -------------------------------------------------------------------------------

    def making(self, tenant: str) -> AbstractContextManager[None]:
        """Count a response for as long as it is being made; a RateLimitError if there are too many already."""
        return _FREE if self._most_runs is None else self._making(tenant)

    @contextlib.contextmanager
    def _making(self, tenant: str) -> Iterator[None]:
        leave = self.enter(tenant)
        try:
            yield
        finally:
            leave()

    def enter(self, tenant: str, *, always: bool = False) -> Callable[[], None]:
        """Count a response and return what ends it; a RateLimitError if there are too many, unless it has to be."""
        if self._most_runs is None:
            return _nothing
        if not always and self._runs[tenant] >= self._most_runs:
            raise RateLimitError(
                f"Too many responses of this tenant are being made: at most {self._most_runs} at the same time, those "
                "in the background included (limits.per_tenant.max_runs). Try again when one is over.",
                retry_after=1,
                code="concurrent_responses_exceeded",
            )
        self._runs[tenant] += 1
        over = False

        def leave() -> None:
            nonlocal over
            if not over:
                over = True
                self._runs[tenant] -= 1
                if not self._runs[tenant]:
                    del self._runs[tenant]

        return leave

    # --- bytes that are stored ---------------------------------------------------------------------------------------

    async def check_room(self, tenant: str) -> None:
        """Raise RateLimitError if a tenant has stored as much as it may, as far as it was counted now and then."""
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
                "(limits.per_tenant.max_stored_bytes). Delete responses, conversations or other things of it, or send "
                "'store': false.",
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
