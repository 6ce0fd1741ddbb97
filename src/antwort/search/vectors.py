"""What keeps and finds vectors: the protocol, what travels, and how it fails."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

from antwort.config import ExtensionKind
from antwort.search.base import NoCollection, WrongDimensions

PREFIX = "antwort_"
"""How the name of each of our collections begins."""
SHARED_PREFIX = f"{PREFIX}shared_"
"""How the name of a collection of several vector stores begins; the number of dimensions follows."""

_NAME = re.compile(rf"{PREFIX}[A-Za-z0-9_-]{{1,55}}")
"""What a collection may be called: it is also the name of a folder, or of a table, which has 63 characters at most."""

Scalar = str | float | bool
Attributes = Mapping[str, Scalar]

CompareOp = Literal["eq", "ne", "gt", "gte", "lt", "lte", "in", "nin"]
CompoundOp = Literal["and", "or"]


def collection_name(vector_store_id: str) -> str:
    """Name the collection of one vector store."""
    return f"{PREFIX}{vector_store_id}"


def shared_collection_name(dimensions: int) -> str:
    """Name the collection that all vector stores with vectors of this length share."""
    return f"{SHARED_PREFIX}{dimensions}"


def is_shared(name: str) -> bool:
    """Tell whether a collection has the chunks of several vector stores."""
    return name.startswith(SHARED_PREFIX)


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a file, to be found.

    Its id is a UUID. Writing an id again replaces the chunk; in a shared collection the id counts per tenant and store.
    """

    id: str
    vector: Sequence[float]
    text: str
    file_id: str
    filename: str
    index: int
    """Where it stands in its file, from 0."""
    attributes: Attributes
    tenant: str
    vector_store_id: str = ""
    """Needed in a shared collection only; elsewhere the collection's name says it."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A chunk that was found. The score is between 0 and 1, more is better."""

    id: str
    """The id of the point; in a shared collection it is not the chunk's."""
    score: float
    text: str
    file_id: str
    filename: str
    index: int
    attributes: Attributes
    likeness: float | None = None
    """What it would score by its vector alone, if both searches were joined: the score tells of ranks then."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One attribute against a value; against a sequence for `in` and `nin`.

    A missing attribute, and one of another type, equals nothing: `ne` and `nin` match it, all others do not. The
    orders (`gt` and so on) compare numbers only.
    """

    key: str
    op: CompareOp
    value: Scalar | tuple[Scalar, ...]


@dataclass(frozen=True, slots=True)
class Compound:
    """All of some filters, or any of them."""

    op: CompoundOp
    filters: tuple["Filter", ...]


Filter = Comparison | Compound


@dataclass(frozen=True, slots=True)
class Query:
    """What to look for: by vector, by keywords (a text without a vector), or by both, joined by their ranks."""

    tenant: str
    vector: Sequence[float] | None = None
    text: str | None = None
    limit: int = 10
    filter: Filter | None = None
    threshold: float | None = None
    """The least score of a hit."""
    least_likeness: float | None = None
    """The least likeness of a hit for which it is known."""
    weights: tuple[float, float] | None = None
    """How much the ranks of both searches count, vector first; the same if nobody says."""
    vector_store_id: str = ""
    """Needed in a shared collection only."""
    without: Sequence[str] = ()
    """Files of which no chunk is wanted; none takes the place of another's."""


@dataclass(frozen=True, slots=True)
class Count:
    """What a tenant has in a collection. Bytes are those of the texts, in UTF-8; chunks without text do not count."""

    chunks: int = 0
    files: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class VectorPlace:
    """Where the chunks of a vector store are."""

    collection: str
    tenant: str
    vector_store_id: str


def checked_name(name: str) -> str:
    """Return the name of a collection if it can be one of ours."""
    if _NAME.fullmatch(name) is None:
        raise NoCollection("There is no such vector store.")
    return name


def store_of(name: str, vector_store_id: str) -> str:
    """Return the vector store that is meant; a collection of one store says so itself."""
    if not is_shared(name):
        return name.removeprefix(PREFIX)
    if not vector_store_id:
        raise ValueError("a shared collection needs the vector store's id")
    return vector_store_id


def check_dimensions(wanted: int, vectors: Iterable[Sequence[float]]) -> None:
    """Raise WrongDimensions if a vector has another length."""
    for vector in vectors:
        if len(vector) != wanted:
            raise WrongDimensions(wanted, len(vector))


class VectorDatabase(Protocol):
    """Keeps chunks in collections and searches them. It is made from its settings and the provider's services.

    Every method may raise VectorStoreUnavailable. Methods that need a collection raise NoCollection if it is not there,
    those that take vectors WrongDimensions. Every search, count and deletion is of one tenant; in a shared collection
    (its name says so) also of one vector store, which must be named.
    """

    name: str
    one_process: ClassVar[str | None] = None
    """Why only one process at a time can have it, and the cure; None if several can."""

    @property
    def place(self) -> str:
        """Where the vectors are, if only one server can reach them; empty for a database that servers share."""
        return ""

    async def create_collection(self, name: str, dimensions: int) -> None:
        """Create a collection; nothing happens if it is there with these dimensions, else WrongDimensions."""

    async def delete_collection(self, name: str) -> None:
        """Delete a collection and all in it; nothing happens if it is not there."""

    async def collections(self) -> list[str]:
        """Return the names of our collections, sorted."""

    async def dimensions(self, name: str) -> int | None:
        """Return the length of a collection's vectors; None if there is no such collection."""

    async def upsert(self, name: str, chunks: Sequence[Chunk]) -> None:
        """Write chunks; those with an id that is there are replaced. They are found when this returns."""

    async def delete(self, name: str, *, tenant: str, file_id: str | None = None, vector_store_id: str = "") -> None:
        """Delete the chunks of a file, or all that the tenant has."""

    async def remove(self, name: str, ids: Sequence[str], *, tenant: str, vector_store_id: str = "") -> None:
        """Delete the tenant's chunks with these ids; those that are not there are passed over."""

    async def set_attributes(
        self, name: str, attributes: Attributes, *, tenant: str, file_id: str, vector_store_id: str = ""
    ) -> None:
        """Replace the attributes of the chunks of a file; filters see that when this returns."""

    async def fetch(self, name: str, ids: Sequence[str], *, tenant: str, vector_store_id: str = "") -> dict[str, Hit]:
        """Return the tenant's chunks with these ids, as far as they are there, by these ids; their score is 0."""

    async def search(self, name: str, query: Query) -> list[Hit]:
        """Return what is found, best first."""

    async def count(self, name: str, *, tenant: str, vector_store_id: str = "") -> Count:
        """Count what is there."""

    async def counts(self, places: Sequence[VectorPlace]) -> list[Count] | None:
        """Count what is in many places in one round trip; None if that cannot be done, and each is to be counted."""
        return None if places else []

    async def health(self) -> None:
        """Raise VectorStoreUnavailable if the database does not answer."""

    async def close(self) -> None:
        """Give up connections and files."""


VECTOR_DATABASES: ExtensionKind[VectorDatabase] = ExtensionKind(
    "antwort.vector_databases",
    "vector database",
    default="embedded",
    members=(
        "create_collection",
        "delete_collection",
        "collections",
        "dimensions",
        "upsert",
        "delete",
        "search",
        "count",
    ),
    has_around=True,
)
