"""What is known about a vector store: its record, where it is in its life, and the errors that say it is not there."""

from collections.abc import AsyncIterator
from enum import StrEnum

from antwort.extensions import Count, VectorStoreUnavailable, collection_name
from antwort.provider import BadRequestError, FunctionError, Kept, NotFoundError, Records

KIND = "vector_store"
_DAY = 86_400


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
    def unfinished(self) -> frozenset[str]:
        """Files of which a part is written: only a store that wants early results has results of them."""
        return frozenset(self.kept.value.get("unfinished", ()))

    @property
    def early_results(self) -> bool:
        """Tell whether what is written of a file is found before all of it is."""
        return bool(self.kept.value.get("early_results"))

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


ENDED = (StoreState.EXPIRED, StoreState.DELETING)


def is_away(error: FunctionError) -> bool:
    """Tell whether an error is that the vector database does not answer."""
    return isinstance(error, VectorStoreUnavailable) and error.away


def not_found(store_id: str) -> NotFoundError:
    """Return the error for an id that means nothing to the tenant, whoever else may own it."""
    return NotFoundError(f"Vector store with id '{store_id[:100]}' not found.", param="vector_store_id")


def expired(store_id: str) -> BadRequestError:
    """Return the error for a store whose time is over."""
    return BadRequestError(f"Vector store '{store_id}' has expired; create a new one.", code="vector_store_expired")


async def scanned(records: Records, kind: str) -> AsyncIterator[Kept]:
    """Give the records of one kind of all tenants, oldest first."""
    after = 0
    while found := await records.scan(kind, after=after):
        for position, kept in found:
            after = position
            yield kept
