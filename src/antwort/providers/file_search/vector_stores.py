"""Vector stores: what is known about each, and its life from creation to the end.

A record says what should be; the vector database follows. A store is written down before its collection is made, and
struck out after its collection is gone, so that whatever a crash leaves behind has a record that says how to go on.
What is in a store is counted when it changes, and kept in its record, so that nobody has to ask the vector database.
"""

import contextlib
import logging
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from dataclasses import asdict
from enum import StrEnum
from typing import Any, Literal

import msgspec

from antwort.provider import BadRequestError, ConflictError, FunctionError, Kept, NotFoundError, Records
from antwort.providers.file_search.errors import NoCollection, VectorStoreUnavailable, WrongDimensions
from antwort.providers.file_search.ingestion.store_files import JOB
from antwort.providers.file_search.together import together
from antwort.providers.file_search.vectors.base import (
    Attributes,
    Chunk,
    Count,
    Place,
    VectorStoreBackend,
    collection_name,
    shared_collection_name,
)
from antwort.providers.file_search.windows import surplus_ids

logger = logging.getLogger(__name__)

KIND = "vector_store"
TOMBSTONE = "vector_store_tombstone"
"""Says that a collection was ours and may be removed."""
_DAY = 86_400
_ACTIVE_EVERY = 60
"""Seconds in which one search is enough to show that a store is in use."""
_MOST = 1000
"""Stores that a search without ids looks into at most."""
_IDS = 5000
"""Windows that are deleted at once."""
_PAGE = 500
"""Records that are read at once."""
_RECOUNTS = 3
"""How often a store is counted anew that others change meanwhile."""


class StoreState(StrEnum):
    """Where a store is in its life."""

    CREATING = "creating"
    READY = "ready"
    EXPIRED = "expired"
    DELETING = "deleting"


class VectorStoreRecord:
    """A vector store, as its record has it."""

    def __init__(self, kept: Kept) -> None:
        self.kept = kept

    @property
    def id(self) -> str:
        """Its id, `vs_…`."""
        return self.kept.id

    @property
    def tenant(self) -> str:
        """Whose it is."""
        return self.kept.tenant

    @property
    def created_at(self) -> int:
        """When it was created."""
        return self.kept.created_at

    @property
    def name(self) -> str:
        """What it is called."""
        return str(self.kept.value["name"])

    @property
    def state(self) -> StoreState:
        """Where it is in its life."""
        return StoreState(self.kept.value["state"])

    @property
    def metadata(self) -> dict[str, str]:
        """What its owner notes about it."""
        return dict(self.kept.value["metadata"])

    @property
    def dimensions(self) -> int:
        """The length of its vectors."""
        return int(self.kept.value["dimensions"])

    @property
    def collection(self) -> str:
        """The collection that holds its chunks."""
        return str(self.kept.value["collection"])

    @property
    def place(self) -> str | None:
        """The place of its vectors, as the backend that made it has it; None if it was made before places had names."""
        place = self.kept.value.get("place")
        return None if place is None else str(place)

    @property
    def windows(self) -> int:
        """The most windows, beside the first, that a chunk written over the route has had."""
        return int(self.kept.value.get("windows", 0))

    @property
    def known(self) -> Count:
        """What is in it, as far as this server and its housekeeping have seen."""
        return Count(**self.kept.value.get("known", {}))

    @property
    def is_shared(self) -> bool:
        """Tell whether the collection has other stores in it."""
        return self.collection != collection_name(self.id)

    @property
    def days(self) -> int | None:
        """Days without a search or a write after which it expires; None if it does not."""
        days = self.kept.value["days"]
        return None if days is None else int(days)

    @property
    def last_active_at(self) -> int:
        """When it was searched or written to, to the minute; or made, or given its days."""
        return int(self.kept.value["last_active_at"])

    @property
    def expires_at(self) -> int | None:
        """When it expires."""
        return None if self.days is None else self.last_active_at + self.days * _DAY

    @property
    def is_cleared(self) -> bool:
        """Tell whether the chunks of an expired store are gone."""
        return bool(self.kept.value.get("cleared"))

    def is_expired(self, now: float) -> bool:
        """Tell whether its time is over."""
        return self.state is StoreState.EXPIRED or (self.expires_at is not None and now >= self.expires_at)


_ENDED = (StoreState.EXPIRED, StoreState.DELETING)


class VectorStores:
    """The vector stores of all tenants; every question is one tenant's."""

    def __init__(
        self, records: Records, backend: VectorStoreBackend, *, shared: bool, most: int, now: Callable[[], float]
    ) -> None:
        self._records = records
        self._backend = backend
        self._shared = shared
        self._most = most
        self._place = backend.place
        self.now = now

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
        async for kept in self._scan(KIND):
            yield VectorStoreRecord(kept)

    async def tombstones(self) -> dict[str, Kept]:
        """Return what is known to be gone, by collection."""
        return {str(kept.value["collection"]): kept async for kept in self._scan(TOMBSTONE)}

    def is_expired(self, store: VectorStoreRecord) -> bool:
        """Tell whether a store's time is over."""
        return store.is_expired(self.now())

    def is_elsewhere(self, store: VectorStoreRecord) -> bool:
        """Tell whether the vectors of a store are where this server cannot reach them."""
        return store.place is not None and store.place != self._place

    async def is_there(self, store: VectorStoreRecord) -> bool:
        """Tell whether a store that was read before has not ended since."""
        current = await self._get(store.tenant, store.id)
        return current is not None and current.state not in _ENDED

    def count(self, store: VectorStoreRecord) -> Count:
        """Return what is in a store, as its record has it; nothing is asked."""
        return store.known if self._is_counted(store) else Count()

    def _is_counted(self, store: VectorStoreRecord) -> bool:
        return not (store.state is StoreState.CREATING or self.is_expired(store) or self.is_elsewhere(store))

    async def recount(self, stores: Sequence[VectorStoreRecord]) -> bool:
        """Count anew what is in stores; False if one of them was changed meanwhile, whose count stays as it was.

        So does that of one in which a file is being written or removed: what is in it is not what will be, and who does
        that counts it at its end.
        """
        asked = [store for store in stores if self._is_counted(store)]
        places = [Place(store.collection, store.tenant, store.id) for store in asked]
        found = await self._backend.counts(places)
        if found is None:
            found = await together(self._counted(store) for store in asked)
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
                current = await self._get(store.tenant, store.id)
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
            current = await self._get(store.tenant, store.id)

    async def _counted(self, store: VectorStoreRecord) -> Count:
        try:
            return await self._backend.count(store.collection, tenant=store.tenant, vector_store_id=store.id)
        except NoCollection:  # deleted since, or lost
            return Count()

    async def _keep(self, store: VectorStoreRecord, count: Count) -> bool:
        value = {**store.kept.value, "known": asdict(count)}
        return await self._records.update(msgspec.structs.replace(store.kept, value=value))

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
        if store.known.chunks or (await self._counted(store)).chunks:
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
        if current is None or current.state in _ENDED:
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
                if store.state not in _ENDED and not self.is_expired(store):
                    yield store

    async def _scan(self, kind: str) -> AsyncIterator[Kept]:
        after = 0
        while found := await self._records.scan(kind, after=after):
            for position, kept in found:
                after = position
                yield kept


def is_away(error: FunctionError) -> bool:
    """Tell whether an error is that the vector database does not answer."""
    return isinstance(error, VectorStoreUnavailable) and error.away


def not_found(store_id: str) -> NotFoundError:
    """Return the error for an id that means nothing to the tenant, whoever else may own it."""
    return NotFoundError(f"Vector store with id '{store_id[:100]}' not found.", param="vector_store_id")


def expired(store_id: str) -> BadRequestError:
    """Return the error for a store whose time is over."""
    return BadRequestError(f"Vector store '{store_id}' has expired; create a new one.", code="vector_store_expired")
