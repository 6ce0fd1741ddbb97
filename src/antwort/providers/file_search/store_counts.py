"""What is in vector stores: counted when it changes, and kept in their records, so that nobody has to ask for it."""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict

import msgspec

from antwort.provider import FunctionError, Records
from antwort.providers.file_search.errors import NoCollection, VectorStoreUnavailable
from antwort.providers.file_search.ingestion.store_files import JOB
from antwort.providers.file_search.store_record import KIND, StoreState, VectorStoreRecord
from antwort.providers.file_search.together import together
from antwort.providers.file_search.vectors.base import Count, Place, VectorStoreBackend

logger = logging.getLogger(__name__)

_RECOUNTS = 3
"""How often a store is counted anew that others change meanwhile."""
_RECOUNTED = 10.0
"""Seconds for which a count is taken for right, though a pipeline may have written into the database itself."""


class StoreCounts:
    """How much is in the stores of all tenants: by their records, and by asking the database.

    Stores are counted that `is_counted` says are there to be asked about.
    """

    def __init__(
        self, records: Records, backend: VectorStoreBackend, is_counted: Callable[[VectorStoreRecord], bool]
    ) -> None:
        self._records = records
        self._backend = backend
        self._is_counted = is_counted

    def known(self, store: VectorStoreRecord) -> Count:
        """Return what is in a store, as its record has it; nothing is asked."""
        return store.known if self._is_counted(store) else Count()

    async def recount(self, stores: Sequence[VectorStoreRecord]) -> bool:
        """Count anew what is in stores; False if one of them was changed meanwhile, whose count stays as it was.

        So does that of one in which a file is being written or removed: what is in it is not what will be, and who does
        that counts it at its end.
        """
        asked = [store for store in stores if self._is_counted(store)]
        places = [Place(store.collection, store.tenant, store.id) for store in asked]
        found = await self._backend.counts(places)
        if found is None:
            found = await together(self.counted(store) for store in asked)
        changed = [(store, count) for store, count in zip(asked, found, strict=True) if store.known != count]
        return all(await together(self._recounted(store, count) for store, count in changed))

    async def _recounted(self, store: VectorStoreRecord, count: Count) -> bool:
        if await self._records.count(store.tenant, JOB, parent=store.id):
            return False
        return await self._keep(store, count)

    async def refresh(self, store: VectorStoreRecord) -> None:
        """Count anew what is in a store that was written to; if that cannot be done, a later look will do it."""
        try:
            for _ in range(_RECOUNTS):
                current = await self._current(store)
                if current is None or await self.recount([current]):
                    return
        except VectorStoreUnavailable as error:
            logger.warning("file search: vector store %s is counted later: %s", store.id, error)

    async def add(self, store: VectorStoreRecord, *, files: int, chunks: int, size: int) -> None:
        """Note that so much more is in a store, or less."""
        current: VectorStoreRecord | None = store
        while current is not None and current.state is not StoreState.DELETING:
            known = current.known
            count = Count(max(0, known.chunks + chunks), max(0, known.files + files), max(0, known.bytes + size))
            if await self._keep(current, count):
                return
            current = await self._current(store)

    async def counted(self, store: VectorStoreRecord) -> Count:
        """Ask the database what is in a store."""
        try:
            return await self._backend.count(store.collection, tenant=store.tenant, vector_store_id=store.id)
        except NoCollection:  # deleted since, or lost
            return Count()

    async def _keep(self, store: VectorStoreRecord, count: Count) -> bool:
        value = {**store.kept.value, "known": asdict(count)}
        return await self._records.update(msgspec.structs.replace(store.kept, value=value))

    async def _current(self, store: VectorStoreRecord) -> VectorStoreRecord | None:
        kept = await self._records.get(store.tenant, KIND, store.id)
        return None if kept is None else VectorStoreRecord(kept)


class Recounter:
    """Counts anew what is in stores that somebody has looked at, after they were shown: nobody waits for it."""

    def __init__(self, counts: StoreCounts, *, now: Callable[[], float] = time.monotonic) -> None:
        self._counts = counts
        self._now = now
        self._looked: dict[str, VectorStoreRecord] = {}
        self._counted: dict[str, float] = {}
        """When each of them was counted."""
        self._work = asyncio.Event()

    def look(self, store: VectorStoreRecord) -> None:
        """Take note that a store was shown."""
        if self._now() - self._counted.get(store.id, -math.inf) >= _RECOUNTED:
            self._looked[store.id] = store
            self._work.set()

    async def run(self) -> None:
        """Go on until cancelled."""
        while True:
            await self._work.wait()
            self._work.clear()
            looked, self._looked = self._looked, {}
            now = self._now()
            self._counted = {id_: then for id_, then in self._counted.items() if now - then < _RECOUNTED}
            self._counted |= dict.fromkeys(looked, now)
            try:
                await self._counts.recount(list(looked.values()))
            except FunctionError as error:
                logger.info("file search: vector stores are counted later: %s", error)
            except Exception:
                logger.exception("file search: vector stores could not be counted")
