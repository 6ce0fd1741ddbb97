"""Vector stores: what is known about each, and its life from creation to the end.

A record says what should be; the vector database follows. A store is written down before its collection is made, and
struck out after its collection is gone, so that whatever a crash leaves behind has a record that says how to go on.
"""

import contextlib
import dataclasses
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from enum import StrEnum
from typing import Any, Literal

from antwort.provider import ConflictError, FunctionError, Kept, NotFoundError, Records
from antwort.providers.file_search.vectors.base import (
    Count,
    NoCollection,
    VectorStoreBackend,
    collection_name,
    shared_collection_name,
)

__all__ = ["KIND", "TOMBSTONE", "State", "Store", "VectorStores", "not_found"]

KIND = "vector_store"
TOMBSTONE = "vector_store_tombstone"
"""Says that a collection was ours and may be removed."""
_DAY = 86_400
_ACTIVE_EVERY = 60
"""Seconds in which one search is enough to show that a store is in use."""
_MOST = 1000
"""Stores that a search without ids looks into at most."""


class State(StrEnum):
    """Where a store is in its life."""

    CREATING = "creating"
    READY = "ready"
    EXPIRED = "expired"
    DELETING = "deleting"


class Store:
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
    def state(self) -> State:
        """Where it is in its life."""
        return State(self.kept.value["state"])

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
    def is_shared(self) -> bool:
        """Tell whether the collection has other stores in it."""
        return self.collection != collection_name(self.id)

    @property
    def days(self) -> int | None:
        """Days without a search after which it expires; None if it does not."""
        days = self.kept.value["days"]
        return None if days is None else int(days)

    @property
    def last_active_at(self) -> int:
        """When it was searched or made, to the minute."""
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
        return self.state is State.EXPIRED or (self.expires_at is not None and now >= self.expires_at)


class VectorStores:
    """The vector stores of all tenants; every question is one tenant's."""

    def __init__(
        self, records: Records, backend: VectorStoreBackend, *, shared: bool, now: Callable[[], float]
    ) -> None:
        self._records = records
        self._backend = backend
        self._shared = shared
        self.now = now

    # --- reading -----------------------------------------------------------------------------------------------------

    async def get(self, tenant: str, store_id: str) -> Store:
        """Return a store; NotFoundError if there is none, or it is another tenant's, or being deleted."""
        store = await self._get(tenant, store_id)
        if store is None or store.state is State.DELETING:
            raise not_found(store_id)
        return store

    async def page(
        self,
        tenant: str,
        *,
        limit: int,
        after: str | None = None,
        before: str | None = None,
        order: Literal["asc", "desc"] = "desc",
    ) -> tuple[list[Store], bool]:
        """Return a part of a tenant's stores, and whether there are more; NotFoundError if the cursor is unknown."""
        found: list[Store] = []
        while True:
            page = await self._records.list(
                tenant, KIND, limit=limit - len(found), after=after, before=before, order=order
            )
            stores = [Store(kept) for kept in page.data]
            shown = [store for store in stores if store.state is not State.DELETING]
            if before is None:
                found += shown
                after = stores[-1].id if stores else None
            else:  # the pages before a cursor are read backwards
                found = shown + found
                before = stores[0].id if stores else None
            if len(found) >= limit or not page.has_more or not stores:
                return found, page.has_more

    async def usable(self, tenant: str) -> list[Store]:
        """Return the stores of a tenant that can be searched, the oldest first."""
        page = await self._records.list(tenant, KIND, limit=_MOST, order="asc")
        stores = [Store(kept) for kept in page.data]
        return [store for store in stores if store.state is State.READY and not self.is_expired(store)]

    async def scan(self) -> AsyncIterator[Store]:
        """Give the stores of all tenants, for housekeeping."""
        async for kept in self._scan(KIND):
            yield Store(kept)

    async def tombstones(self) -> dict[str, Kept]:
        """Return what is known to be gone, by collection."""
        return {str(kept.value["collection"]): kept async for kept in self._scan(TOMBSTONE)}

    def is_expired(self, store: Store) -> bool:
        """Tell whether a store's time is over."""
        return store.is_expired(self.now())

    async def count(self, store: Store) -> Count:
        """Count what is in a store."""
        if store.state is State.CREATING or self.is_expired(store):
            return Count()
        try:
            return await self._backend.count(store.collection, tenant=store.tenant, vector_store_id=store.id)
        except NoCollection:  # deleted since, or lost
            return Count()

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
    ) -> Store:
        """Create a store and its collection."""
        store_id = f"vs_{secrets.token_hex(16)}"
        now = int(self.now())
        value: dict[str, Any] = {
            "name": name,
            "description": description,
            "metadata": dict(metadata),
            "state": State.CREATING,
            "days": days,
            "last_active_at": now,
            "dimensions": dimensions,
            "collection": shared_collection_name(dimensions) if self._shared else collection_name(store_id),
        }
        store = Store(await self._records.create(tenant, KIND, store_id, value, created_at=now))
        try:
            made = await self.finish(store)
        except FunctionError:
            # The client learns of the failure and will try again: this store must not appear later.
            await self._change(store, {"state": State.DELETING})
            raise
        if made is None:
            raise not_found(store_id)
        return made

    async def finish(self, store: Store) -> Store | None:
        """Make the collection of a store that is being created; None if the store was deleted meanwhile."""
        await self._backend.create_collection(store.collection, store.dimensions)
        made = await self._change(store, {"state": State.READY}, when=lambda s: s.state is State.CREATING)
        if made is None or made.state is State.DELETING:
            await self._clear(store)
            return None
        return made

    async def update(self, tenant: str, store_id: str, changes: Mapping[str, Any]) -> Store:
        """Change what is known about a store."""
        store = await self.get(tenant, store_id)
        changed = await self._change(store, changes, when=lambda s: s.state is not State.DELETING)
        if changed is None or changed.state is State.DELETING:
            raise not_found(store_id)
        return changed

    async def touch(self, store: Store) -> None:
        """Note that a store is in use."""
        now = int(self.now())
        if now - store.last_active_at >= _ACTIVE_EVERY:
            await self._change(store, {"last_active_at": now}, when=lambda s: s.state is State.READY)

    async def delete(self, tenant: str, store_id: str) -> None:
        """Delete a store and its collection. If that cannot be done now, it is marked and done later."""
        store = await self._get(tenant, store_id)
        if store is None:
            raise not_found(store_id)
        marked = await self._change(store, {"state": State.DELETING})
        if marked is not None:
            await self.remove(marked)

    async def remove(self, store: Store) -> None:
        """Remove what is left of a store that is marked as deleted."""
        if not store.is_shared:
            value = {"collection": store.collection}
            with contextlib.suppress(ConflictError):  # a removal was begun before
                await self._records.create(store.tenant, TOMBSTONE, store.id, value, created_at=int(self.now()))
        await self._clear(store)
        await self._records.delete(store.tenant, KIND, store.id)

    async def expire(self, store: Store) -> None:
        """Remove the chunks of a store whose time is over; what is known about it stays."""
        marked = await self._change(store, {"state": State.EXPIRED}, when=self.is_expired)
        if marked is not None and marked.state is State.EXPIRED:
            await self._clear(marked)
            await self._change(marked, {"cleared": True}, when=lambda s: s.state is State.EXPIRED)

    async def forget(self, tombstone: Kept) -> None:
        """Forget that something is gone."""
        await self._records.delete(tombstone.tenant, TOMBSTONE, tombstone.id)

    # --- parts -------------------------------------------------------------------------------------------------------

    async def _get(self, tenant: str, store_id: str) -> Store | None:
        kept = await self._records.get(tenant, KIND, store_id)
        return None if kept is None else Store(kept)

    async def _change(
        self, store: Store, changes: Mapping[str, Any], *, when: Callable[[Store], bool] = lambda _store: True
    ) -> Store | None:
        """Change a record, whoever else does so too; return it as it is then, None if it is gone."""
        current = store
        while when(current):
            changed = Store(dataclasses.replace(current.kept, value={**current.kept.value, **changes}))
            if await self._records.update(changed.kept):
                return changed
            fresh = await self._get(store.tenant, store.id)
            if fresh is None:
                return None
            current = fresh
        return current

    async def _clear(self, store: Store) -> None:
        """Remove the chunks of a store, and its collection if it is its own."""
        if not store.is_shared:
            await self._backend.delete_collection(store.collection)
            return
        with contextlib.suppress(NoCollection):
            await self._backend.delete(store.collection, tenant=store.tenant, vector_store_id=store.id)

    async def _scan(self, kind: str) -> AsyncIterator[Kept]:
        after = 0
        while found := await self._records.scan(kind, after=after):
            for place, kept in found:
                after = place
                yield kept


def not_found(store_id: str) -> NotFoundError:
    """Return the error for an id that means nothing to the tenant, whoever else may own it."""
    return NotFoundError(f"Vector store with id '{store_id[:100]}' not found.", param="vector_store_id")
