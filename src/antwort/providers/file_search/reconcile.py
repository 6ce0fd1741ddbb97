"""Housekeeping: completes what a crash or an outage left unfinished, and ends what has expired."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Collection

from antwort.provider import FunctionError
from antwort.providers.file_search.errors import VectorStoreUnavailable
from antwort.providers.file_search.store_record import StoreState, VectorStoreRecord
from antwort.providers.file_search.vector_stores import VectorStores
from antwort.providers.file_search.vectors.base import SHARED_PREFIX, VectorStoreBackend

logger = logging.getLogger(__name__)

_REMEMBERED = 7 * 86_400
"""Seconds for which a deleted collection is known to have been ours, should it come back with a restored backup."""
_SOON = 5.0
"""Seconds after which a database that does not answer is tried again."""


class Reconciler:
    """Compares the records with the vector database, of all tenants, and mends what differs.

    It removes a collection only if a record says that it is to go, or a tombstone that it was ours; others are logged.
    Stores whose vectors are elsewhere are left to whoever has them. One that cannot be mended does not hinder others.
    Several processes may do this at the same time: each step can be done twice.
    """

    def __init__(self, stores: VectorStores, backend: VectorStoreBackend) -> None:
        self._stores = stores
        self._backend = backend
        self._reported: set[str] = set()

    async def run(self, every: float) -> None:
        """Do it now, and then every so many seconds, until cancelled."""
        while True:
            try:
                await self.once()
            except VectorStoreUnavailable as error:
                logger.warning("file search: %s What is unfinished is completed later.", error)
                await asyncio.sleep(min(every, _SOON) if error.away else every)
                continue
            except Exception:
                logger.exception("file search: housekeeping failed; it is tried again in %g seconds", every)
            await asyncio.sleep(every)

    async def once(self) -> None:
        """Do it once; VectorStoreUnavailable if the database is not there."""
        # The collections first: a record is older than its collection, so one without a record is nobody's.
        present = set(await self._backend.collections())
        known: set[str] = set()
        async for store in self._stores.scan():
            known.add(store.collection)
            if self._stores.is_elsewhere(store):
                self._leave(store)
                continue
            async with self._apart(f"vector store {store.id} of '{store.tenant}'"):
                await self._mend(store, present)
        await self._bury(present, known)

    @contextlib.asynccontextmanager
    async def _apart(self, what: str) -> AsyncIterator[None]:
        """Log what goes wrong with one thing, so that the others have their turn; VectorStoreUnavailable as `once`."""
        try:
            yield
        except FunctionError as error:
            if isinstance(error, VectorStoreUnavailable):
                await self._backend.health()  # a database says the same if only one collection is broken
            logger.warning("file search: %s: %s", what, error)

    async def _mend(self, store: VectorStoreRecord, present: Collection[str]) -> None:
        if store.state is StoreState.DELETING:
            await self._stores.remove(store)
            logger.info("file search: completed the deletion of vector store %s", store.id)
        elif store.state is StoreState.CREATING:
            await self._stores.finish(store)
            logger.info("file search: completed the creation of vector store %s", store.id)
        elif self._stores.is_expired(store):
            if not store.is_cleared:
                await self._stores.expire(store)
                logger.info("file search: vector store %s has expired", store.id)
        elif store.collection not in present and await self._is_lost(store):
            logger.error("file search: the collection %s was lost; it is made again, empty", store.collection)
            await self._backend.create_collection(store.collection, store.dimensions)

    async def _is_lost(self, store: VectorStoreRecord) -> bool:
        """Tell whether a collection is missing although its store has not ended: a store ends before its collection."""
        return await self._backend.dimensions(store.collection) is None and await self._stores.is_there(store)

    def _leave(self, store: VectorStoreRecord) -> None:
        if store.id not in self._reported:
            self._reported.add(store.id)
            logger.warning("file search: the vectors of %s are not kept by this server; it is left alone", store.id)

    async def _bury(self, present: Collection[str], known: Collection[str]) -> None:
        """Remove collections that are ours and in no record, and forget what is long gone."""
        tombstones = await self._stores.tombstones()
        for name in sorted(set(present) - set(known)):
            if name in tombstones:
                async with self._apart(f"collection {name}"):
                    await self._backend.delete_collection(name)
                    logger.info("file search: removed the collection %s, whose vector store is deleted", name)
            elif not name.startswith(SHARED_PREFIX) and name not in self._reported:
                self._reported.add(name)
                logger.warning("file search: no vector store has the collection %s; it is left alone", name)
        for name, tombstone in tombstones.items():
            if name not in present and self._stores.now() - tombstone.created_at > _REMEMBERED:
                await self._stores.forget(tombstone)
