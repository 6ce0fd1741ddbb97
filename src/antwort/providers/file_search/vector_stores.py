"""Vector stores: the life of each, from its creation to its end.

A record says what should be; the vector database follows. A store is written down before its collection is made, and
struck out after its collection is gone, so that whatever a crash leaves behind has a record that says how to go on.
"""

import contextlib
import logging
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from antwort.extensions import (
    Attributes,
    Chunk,
    NoCollection,
    VectorDatabase,
    VectorStoreUnavailable,
    WrongDimensions,
    collection_name,
    shared_collection_name,
)
from antwort.provider import BadRequestError, ConflictError, FunctionError, Kept, Records
from antwort.providers.file_search.chunks import surplus_ids
from antwort.providers.file_search.store_counts import StoreCounts
from antwort.providers.file_search.store_record import (
    ENDED,
    KIND,
    StoreState,
    VectorStoreRecord,
    expired,
    is_away,
    not_found,
    scanned,
)

logger = logging.getLogger(__name__)

TOMBSTONE = "vector_store_tombstone"
"""Says that a collection was ours and may be removed."""
_ACTIVE_EVERY = 60
"""Seconds in which one search is enough to show that a store is in use."""
_MOST = 1000
"""Stores that a search without ids looks into at most."""
_IDS = 5000
"""Windows that are deleted at once."""
_PAGE = 500
"""Records that are read at once."""


class VectorStores:
    """The vector stores of all tenants; every question is one tenant's."""

    def __init__(
        self, records: Records, backend: VectorDatabase, *, shared: bool, most: int, now: Callable[[], float]
    ) -> None:
        self._records = records
        self._backend = backend
        self._shared = shared
        self._most = most
        self._place = backend.place
        self.now = now
        self.counts = StoreCounts(records, backend, self._is_counted)

    # --- reading -----------------------------------------------------------------------------------------------------

    async def get(self, tenant: str, store_id: str) -> VectorStoreRecord:
        """Return a store; NotFoundError if there is none, or it is another tenant's, or being deleted.

        VectorStoreUnavailable if its vectors are elsewhere.
        """
        store = await self._get(tenant, store_id)
        if store is None or store.state is StoreState.DELETING:
            raise not_found(store_id)
        self._check_here(store)
        return store

    async def get_open(self, tenant: str, store_id: str) -> VectorStoreRecord:
        """Return a store as `get` does; BadRequestError if its time is over."""
        store = await self.get(tenant, store_id)
        self.check_open(store)
        return store

    def check_open(self, store: VectorStoreRecord) -> None:
        """Raise BadRequestError if the time of a store is over."""
        if self.is_expired(store):
            raise expired(store.id)

    async def page(
        self,
        tenant: str,
        *,
        limit: int,
        after: str | None = None,
        before: str | None = None,
        order: Literal["asc", "desc"] = "desc",
    ) -> tuple[list[VectorStoreRecord], bool]:
        """Return a part of a tenant's stores, and whether there are more; NotFoundError if the cursor is unknown."""
        found: list[VectorStoreRecord] = []
        while True:
            page = await self._records.list(
                tenant, KIND, limit=limit - len(found), after=after, before=before, order=order
            )
            stores = [VectorStoreRecord(kept) for kept in page.data]
            shown = [store for store in stores if store.state is not StoreState.DELETING]
            if after is not None or before is None:
                found += shown
                after = stores[-1].id if stores else None
            else:  # the pages before a cursor are read backwards, unless another one says where to begin
                found = shown + found
                before = stores[0].id if stores else None
            if len(found) >= limit or not page.has_more or not stores:
                return found, page.has_more

    async def usable(self, tenant: str) -> tuple[list[VectorStoreRecord], int]:
        """Return the stores of a tenant that can be searched, oldest first, and how many are left out as elsewhere.

        VectorStoreUnavailable, as with `get`, if all of them are.
        """
        found: list[VectorStoreRecord] = []
        away: list[VectorStoreRecord] = []
        async with contextlib.aclosing(self._living(tenant)) as living:
            async for store in living:
                if store.state is StoreState.READY:
                    (away if self.is_elsewhere(store) else found).append(store)
                if len(found) >= _MOST:
                    break
        if away and not found:
            self._check_here(away[0])
        return found, len(away)

    async def of(self, tenant: str) -> AsyncIterator[VectorStoreRecord]:
        """Give the stores of a tenant that this server can reach, and that have not ended."""
        async with contextlib.aclosing(self._living(tenant)) as living:
            async for store in living:
                if not self.is_elsewhere(store):
                    yield store

    async def scan(self) -> AsyncIterator[VectorStoreRecord]:
        """Give the stores of all tenants, for housekeeping."""
        async for kept in scanned(self._records, KIND):
            yield VectorStoreRecord(kept)

    async def tombstones(self) -> dict[str, Kept]:
        """Return what is known to be gone, by collection."""
        return {str(kept.value["collection"]): kept async for kept in scanned(self._records, TOMBSTONE)}

    def is_expired(self, store: VectorStoreRecord) -> bool:
        """Tell whether a store's time is over."""
        return store.is_expired(self.now())

    def is_elsewhere(self, store: VectorStoreRecord) -> bool:
        """Tell whether the vectors of a store are where this server cannot reach them."""
        return store.place is not None and store.place != self._place

    def _is_counted(self, store: VectorStoreRecord) -> bool:
        return not (store.state is StoreState.CREATING or self.is_expired(store) or self.is_elsewhere(store))

    async def is_there(self, store: VectorStoreRecord) -> bool:
        """Tell whether a store that was read before has not ended since."""
        current = await self._get(store.tenant, store.id)
        return current is not None and current.state not in ENDED

    # --- writing -----------------------------------------------------------------------------------------------------

    async def create(
        self,
        tenant: str,
        *,
        name: str,
        description: str,
        metadata: Mapping[str, str],
        days: int | None,
        dimensions: int,
        early_results: bool = False,
    ) -> VectorStoreRecord:
        """Create a store, with nothing in it, and its collection; BadRequestError if the tenant has as many as it may.

        While the vector database is away, its collection is made later, at the latest when something is written. A
        store that cannot be created for another reason does not appear later.
        """
        if await self._is_full(tenant):
            raise BadRequestError(
                f"There are {self._most} vector stores already, which is the most; delete one that is not needed.",
                code="too_many_vector_stores",
            )
        store_id = f"vs_{secrets.token_hex(16)}"
        now = int(self.now())
        value: dict[str, Any] = {
            "name": name,
            "description": description,
            "metadata": dict(metadata),
            "state": StoreState.CREATING,
            "days": days,
            "last_active_at": now,
            "dimensions": dimensions,
            "collection": shared_collection_name(dimensions) if self._shared else collection_name(store_id),
            "place": self._place,
            "early_results": early_results,
        }
        store = VectorStoreRecord(await self._records.create(tenant, KIND, store_id, value, created_at=now))
        try:
            made = await self.finish(store)
        except FunctionError as error:
            if is_away(error):
                logger.warning("file search: the collection of vector store %s is made later: %s", store_id, error)
                return store
            # The client learns of the failure and will try again.
            await self._change(store, {"state": StoreState.DELETING})
            raise
        if made is None:
            raise not_found(store_id)
        return made

    async def finish(self, store: VectorStoreRecord) -> VectorStoreRecord | None:
        """Make the collection of a store that is being created; None if the store was deleted meanwhile."""
        await self._backend.create_collection(store.collection, store.dimensions)
        made = await self._change(store, {"state": StoreState.READY}, when=lambda s: s.state is StoreState.CREATING)
        if made is None or made.state is StoreState.DELETING:
            await self._clear(store)
            return None
        return made

    async def update(self, tenant: str, store_id: str, changes: Mapping[str, Any]) -> VectorStoreRecord:
        """Change what is known about a store."""
        store = await self.get(tenant, store_id)
        changed = await self._change(store, changes)
        if changed is None or changed.state is StoreState.DELETING:
            raise not_found(store_id)
        return changed

    async def mark(self, store: VectorStoreRecord, file_id: str, *, unfinished: bool) -> None:
        """Note that a part of a file is written, or all of it, or nothing any more."""
        current: VectorStoreRecord | None = store
        while current is not None and current.state is not StoreState.DELETING:
            files = current.unfinished | {file_id} if unfinished else current.unfinished - {file_id}
            changed = {**current.kept.value, "unfinished": sorted(files)}
            if files == current.unfinished and current is not store:
                return
            if files != current.unfinished and await self._records.update(
                msgspec.structs.replace(current.kept, value=changed)
            ):
                return
            current = await self._get(store.tenant, store.id)

    async def touch(self, store: VectorStoreRecord) -> None:
        """Note that a store is in use."""
        now = int(self.now())
        if now - store.last_active_at >= _ACTIVE_EVERY:
            await self._change(store, {"last_active_at": now}, when=lambda s: s.state is StoreState.READY)

    async def write(
        self, store: VectorStoreRecord, chunks: Sequence[Chunk], windows: Mapping[str, int] | None = None
    ) -> None:
        """Write chunks into a store, among them so many windows by the ids of their chunks.

        If it ends meanwhile none of them stays, and it is as if it had ended before.
        """
        if store.state is StoreState.CREATING:
            store = await self.finish(store) or store
        try:
            await self._clear_windows(store, chunks, windows or {})
            await self._backend.upsert(store.collection, chunks)
        except FunctionError:  # perhaps just because of that
            await self._check_goes_on(store)
            raise
        await self._check_goes_on(store)

    async def fitted(self, store: VectorStoreRecord, dimensions: int) -> VectorStoreRecord:
        """Return a store with vectors of this length; one of another length is made anew as long as it is empty.

        The first answer of an embedding service, which gave it its length, may have been wrong. WrongDimensions if
        there is something in it.
        """
        if store.dimensions == dimensions:
            return store
        if store.known.chunks or (await self.counts.counted(store)).chunks:
            raise WrongDimensions(store.dimensions, dimensions)
        logger.warning("file search: vector store %s is empty, and gets %d dimensions", store.id, dimensions)
        await self._clear(store)
        changes = {
            "dimensions": dimensions,
            "collection": shared_collection_name(dimensions) if store.is_shared else store.collection,
            "state": StoreState.CREATING,
        }
        changed = await self._change(store, changes, when=lambda s: s.dimensions == store.dimensions)
        made = None if changed is None or changed.state is StoreState.DELETING else await self.finish(changed)
        if made is None:
            raise not_found(store.id)
        return made

    async def set_attributes(self, store: VectorStoreRecord, file_id: str, attributes: Attributes) -> None:
        """Replace the attributes of a file's chunks; if the store ends meanwhile, it is as if it had ended before."""
        try:
            await self._backend.set_attributes(
                store.collection, attributes, tenant=store.tenant, file_id=file_id, vector_store_id=store.id
            )
        except FunctionError:
            await self._check_goes_on(store)
            raise

    async def erase(self, store: VectorStoreRecord, file_id: str) -> None:
        """Delete the chunks of a file; if the store ends meanwhile, it is as if it had ended before.

        A collection that is not made yet has none.
        """
        try:
            await self._backend.delete(store.collection, tenant=store.tenant, file_id=file_id, vector_store_id=store.id)
        except FunctionError as error:
            await self._check_goes_on(store)
            if not isinstance(error, NoCollection):
                raise

    async def delete(self, tenant: str, store_id: str) -> None:
        """Delete a store and its collection. If that cannot be done now or here, it is marked and done later.

        A failure is raised, but not that the store is elsewhere, as whoever has its vectors removes them, nor that the
        vector database is away, as housekeeping completes it.
        """
        store = await self._get(tenant, store_id)
        if store is None:
            raise not_found(store_id)
        marked = await self._change(store, {"state": StoreState.DELETING})
        if marked is not None and not self.is_elsewhere(marked):
            try:
                await self.remove(marked)
            except VectorStoreUnavailable as error:
                if not error.away:
                    raise
                logger.warning("file search: vector store %s is removed later: %s", store_id, error)

    async def remove(self, store: VectorStoreRecord) -> None:
        """Remove what is left of a store that is marked as deleted; VectorStoreUnavailable if it is elsewhere."""
        self._check_here(store)
        if not store.is_shared:
            value = {"collection": store.collection}
            with contextlib.suppress(ConflictError):  # a removal was begun before
                await self._records.create(store.tenant, TOMBSTONE, store.id, value, created_at=int(self.now()))
        await self._clear(store)
        await self._records.delete(store.tenant, KIND, store.id)

    async def expire(self, store: VectorStoreRecord) -> None:
        """Remove the chunks of a store whose time is over; what is known about it stays."""
        marked = await self._change(store, {"state": StoreState.EXPIRED}, when=self.is_expired)
        if marked is not None and marked.state is StoreState.EXPIRED:
            await self._clear(marked)
            await self._change(marked, {"cleared": True}, when=lambda s: s.state is StoreState.EXPIRED)

    async def forget(self, tombstone: Kept) -> None:
        """Forget that something is gone."""
        await self._records.delete(tombstone.tenant, TOMBSTONE, tombstone.id)

    # --- parts -------------------------------------------------------------------------------------------------------

    async def _get(self, tenant: str, store_id: str) -> VectorStoreRecord | None:
        kept = await self._records.get(tenant, KIND, store_id)
        return None if kept is None else VectorStoreRecord(kept)

    async def _change(
        self,
        store: VectorStoreRecord,
        changes: Mapping[str, Any],
        *,
        when: Callable[[VectorStoreRecord], bool] = lambda _store: True,
    ) -> VectorStoreRecord | None:
        """Change a record, whoever else does so too; return it as it is then, None if it is gone.

        A store that is being deleted is changed no more: nothing brings it back.
        """
        current = store
        while current.state is not StoreState.DELETING and when(current):
            changed = VectorStoreRecord(msgspec.structs.replace(current.kept, value={**current.kept.value, **changes}))
            if await self._records.update(changed.kept):
                return changed
            fresh = await self._get(store.tenant, store.id)
            if fresh is None:
                return None
            current = fresh
        return current

    async def _is_full(self, tenant: str) -> bool:
        """Tell whether a tenant has as many stores as it may; those that have ended do not count."""
        if await self._records.count(tenant, KIND) < self._most:
            return False
        return len([store.id async for store in self._living(tenant)]) >= self._most

    def _check_here(self, store: VectorStoreRecord) -> None:
        if self.is_elsewhere(store):
            raise VectorStoreUnavailable(
                f"The vectors of vector store '{store.id}' are in the data folder of another server; use qdrant or "
                "pgvector to share them."
                if store.place
                else f"The vectors of vector store '{store.id}' are in a database that this server does not use; "
                "'vector_backend' says which it uses."
            )

    async def _check_goes_on(self, store: VectorStoreRecord) -> None:
        """Look again at a store; if it has ended meanwhile, remove what was written since, and say so."""
        current = await self._get(store.tenant, store.id)
        if current is None or current.state in ENDED:
            await self._clear(store)
            is_expired = current is not None and current.state is StoreState.EXPIRED
            raise expired(store.id) if is_expired else not_found(store.id)

    async def _clear_windows(
        self, store: VectorStoreRecord, chunks: Sequence[Chunk], windows: Mapping[str, int]
    ) -> None:
        """Delete the windows that chunks have had and will have no more; nothing is asked if there never were any."""
        if (most := max(windows.values(), default=0)) > store.windows:
            await self._change(store, {"windows": most}, when=lambda s: s.windows < most)
        shown = [chunk.id for chunk in chunks if chunk.index >= 0]
        surplus = [one for id_ in shown for one in surplus_ids(id_, windows.get(id_, 0), store.windows)]
        for start in range(0, len(surplus), _IDS):
            part = surplus[start : start + _IDS]
            await self._backend.remove(store.collection, part, tenant=store.tenant, vector_store_id=store.id)

    async def _clear(self, store: VectorStoreRecord) -> None:
        """Remove the chunks of a store, and its collection if it is its own."""
        if not store.is_shared:
            await self._backend.delete_collection(store.collection)
            return
        with contextlib.suppress(NoCollection):
            await self._backend.delete(store.collection, tenant=store.tenant, vector_store_id=store.id)

    async def _living(self, tenant: str) -> AsyncGenerator[VectorStoreRecord, None]:
        """Give the stores of a tenant that have not ended, oldest first."""
        after: str | None = None
        more = True
        while more:
            page = await self._records.list(tenant, KIND, limit=_PAGE, after=after, order="asc")
            more = page.has_more
            for store in map(VectorStoreRecord, page.data):
                after = store.id
                if store.state not in ENDED and not self.is_expired(store):
                    yield store
