"""What travels: the bodies of requests, and the objects that answer them. All but points are OpenAI's."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BeforeValidator, ConfigDict, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from antwort.extensions import WrongDimensions
from antwort.provider import BadRequestError, BaseModel, Field
from antwort.providers.file_search.ingestion.store_files import AUTO, Chunking

MOST_POINTS = 1000
"""Points in one request."""
MOST_QUERIES = 16
"""Queries in one search."""
MOST_WHOLE = 2**53
"""The largest whole number in attributes: of larger ones, many clients and databases keep the first digits only."""


_EARLY = "Find what is written of a file before all of it is, page by page; antwort's own."


def _without_null(pairs: Any) -> Any:
    return {key: value for key, value in pairs.items() if value is not None} if isinstance(pairs, dict) else pairs


Key = Annotated[str, Field(max_length=64)]
Metadata = Annotated[
    dict[Key, Annotated[str, Field(max_length=512)]],
    BeforeValidator(_without_null),
    Field(
        max_length=16,
        description="Up to 16 pairs to find it by; keys of 64 and values of 512 characters. Null leaves one out.",
    ),
]


def _is_attribute(value: Any) -> Any:
    """Refuse what no attribute can be: of the types that it may have, none would be the right one to complain."""
    if not isinstance(value, str | int | float):
        raise PydanticCustomError("attribute_kind", "must be a text, a number or a boolean")
    if isinstance(value, int) and abs(value) > MOST_WHOLE:
        raise PydanticCustomError(
            "attribute_size", f"must be a whole number from -{MOST_WHOLE} to {MOST_WHOLE}; write a longer one as a text"
        )
    return value


Attribute = Annotated[
    bool | Annotated[int, Field(ge=-MOST_WHOLE, le=MOST_WHOLE)] | float | Annotated[str, Field(max_length=512)],
    BeforeValidator(_is_attribute),
]
Attributes = Annotated[
    dict[Key, Attribute],
    Field(max_length=16, description="Up to 16 pairs for filters: texts of 512 characters, numbers, booleans."),
]
Coordinate = Annotated[float, Field(ge=-1e30, le=1e30)]
FileId = Annotated[
    str,
    Field(min_length=1, max_length=256, pattern=r"^[^\x00-\x1f\x7f]*$", description="Without control characters."),
]
Name = Annotated[str, Field(max_length=256)]
QueryText = Annotated[str, Field(max_length=4096)]
Results = Annotated[int, Field(ge=1, le=50, description="How many results at most; 10 if not given.")]
Filters = Annotated[
    dict[str, Any],
    Field(
        description="A comparison (`type`: eq, ne, gt, gte, lt, lte, in or nin; `key`; `value`), or several of them "
        "(`type`: and, or; `filters`)."
    ),
]


class StoreBody(BaseModel):
    """A body, or a part of one, that has nothing that is not known."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, strict=True)


class StoreExpiry(StoreBody):
    """When a vector store expires."""

    anchor: Literal["last_active_at"] = Field(description="What the days are counted from.")
    days: int = Field(ge=1, le=365, description="Days without a search or a write.")


class StaticChunking(StoreBody):
    """Sizes of chunks, in tokens."""

    max_chunk_size_tokens: int = Field(ge=100, le=4096, description="Tokens of a chunk at most.")
    chunk_overlap_tokens: int = Field(ge=0, description="Tokens that a chunk repeats of the one before; half at most.")

    @model_validator(mode="after")
    def _overlaps_by_half_at_most(self) -> "StaticChunking":
        if 2 * self.chunk_overlap_tokens > self.max_chunk_size_tokens:
            raise PydanticCustomError(
                "overlap", "chunk_overlap_tokens must not be more than half of max_chunk_size_tokens"
            )
        return self


class ChunkingStrategy(StoreBody):
    """How files are cut: `auto` is 200 tokens, of which none repeat; `static` says how many."""

    type: Literal["auto", "static"] = Field(description="Which one.")
    static: StaticChunking | None = Field(default=None, description="The sizes, for `static`.")

    @model_validator(mode="after")
    def _says_sizes(self) -> "ChunkingStrategy":
        if (self.type == "static") != (self.static is not None):
            raise PydanticCustomError("chunking", "'static' is needed with type 'static', and only there")
        return self

    def sizes(self) -> Chunking:
        """Return the sizes."""
        if self.static is None:
            return AUTO
        return Chunking(self.static.max_chunk_size_tokens, self.static.chunk_overlap_tokens)


class AttachFile(StoreBody):
    """A file to attach to a vector store."""

    file_id: FileId
    attributes: Attributes | None = None
    chunking_strategy: ChunkingStrategy | None = None

    def sizes(self) -> Chunking:
        """Return how it is cut."""
        return AUTO if self.chunking_strategy is None else self.chunking_strategy.sizes()


class CreateVectorStore(StoreBody):
    """A request for a vector store."""

    name: Name | None = Field(default=None, description="What people call it.")
    description: Annotated[str, Field(max_length=512)] | None = Field(default=None, description="What is in it.")
    metadata: Metadata | None = None
    expires_after: StoreExpiry | None = None
    file_ids: Annotated[list[FileId], Field(max_length=500)] | None = Field(
        default=None, description="Files to attach to it."
    )
    chunking_strategy: ChunkingStrategy | None = Field(default=None, description="How these files are cut.")
    early_results: bool = Field(default=False, description=_EARLY)

    def attached(self) -> list[AttachFile]:
        """Return the files to attach, each once."""
        return [
            AttachFile(file_id=file_id, chunking_strategy=self.chunking_strategy)
            for file_id in dict.fromkeys(self.file_ids or ())
        ]


class UpdateVectorStore(StoreBody):
    """What to change; whatever is not named stays."""

    name: Name | None = Field(default=None, description="What people call it; null takes the name away.")
    metadata: Metadata | None = None
    expires_after: StoreExpiry | None = None
    early_results: bool | None = Field(default=None, description=_EARLY)


class HybridSearch(StoreBody):
    """How much the ranks of a search by meaning and of one by words count when they are joined."""

    embedding_weight: float = Field(ge=0, description="How much the search by meaning counts.")
    text_weight: float = Field(ge=0, description="How much the search by words counts; one of the two is above 0.")

    @model_validator(mode="after")
    def _one_counts(self) -> "HybridSearch":
        if self.embedding_weight == self.text_weight == 0:
            raise PydanticCustomError("no_weight", "embedding_weight, text_weight or both must be greater than 0")
        return self


class RankingOptions(StoreBody):
    """How results are ranked."""

    ranker: Literal["none", "auto", "default-2024-11-15"] | None = Field(
        default=None, description="`none`: results are not ranked a second time, although the server can."
    )
    score_threshold: float | None = Field(default=None, ge=0, le=1, description="The least score of a result.")
    hybrid_search: HybridSearch | None = None


class ToolOptions(StoreBody):
    """The tool `file_search` as a request names it."""

    type: Literal["file_search"] = "file_search"
    vector_store_ids: list[str] | None = Field(default=None, max_length=100)
    max_num_results: Results | None = None
    filters: Filters | None = None
    ranking_options: RankingOptions | None = None

    @classmethod
    def read(cls, tool: Mapping[str, Any]) -> "ToolOptions":
        """Read a tool; BadRequestError with the first option that does not fit.

        One that is named otherwise, as a function, has fields of its own beside these.
        """
        options = dict(tool)
        if options.get("type") != "file_search":
            options = {key: value for key, value in tool.items() if key in cls.model_fields and key != "type"}
        try:
            return cls.model_validate(options)
        except ValidationError as error:
            found = error.errors(include_url=False, include_context=False, include_input=False)[0]
        path = ".".join(str(part) for part in found["loc"])
        raise BadRequestError(f"Invalid value for '{path}': {found['msg']}.", param=path)


class SearchVectorStore(StoreBody):
    """A search of one vector store."""

    query: QueryText | Annotated[list[QueryText], Field(min_length=1, max_length=MOST_QUERIES)] = Field(
        description="What to look for; of several queries, the best results of all."
    )
    max_num_results: Results | None = None
    filters: Filters | None = None
    ranking_options: RankingOptions | None = None
    rewrite_query: bool | None = Field(default=None, description="Has no effect: queries are used as they are.")


class NewPoint(StoreBody):
    """A chunk of a document, with its vector or without."""

    id: UUID | None = Field(default=None, description="Its UUID; made of `file_id` and `chunk_index` if not given.")
    text: str = Field(min_length=1, max_length=100_000, description="What the model reads if it is found.")
    vector: Annotated[list[Coordinate], Field(min_length=1, max_length=65_536)] | None = Field(
        default=None, description="Its vector; the server embeds the text if not given."
    )
    file_id: FileId
    filename: str = Field(min_length=1, max_length=1024, description="The name of the document, for citations.")
    chunk_index: int = Field(default=0, ge=0, le=2**31 - 1, description="Where it stands in its file, from 0.")
    attributes: Attributes = Field(default_factory=dict)


class NewPoints(StoreBody):
    """Chunks to write into a vector store."""

    points: list[NewPoint] = Field(min_length=1, max_length=MOST_POINTS, description="The chunks.")

    def check_vectors(self, dimensions: int) -> None:
        """Raise BadRequestError for the first point that comes with a vector of another length."""
        for number, point in enumerate(self.points):
            if point.vector is not None and len(point.vector) != dimensions:
                param = f"points[{number}].vector"
                problem = WrongDimensions(dimensions, len(point.vector))
                raise BadRequestError(f"{param}: {problem}", param=param, code="invalid_value")


class FileCounts(BaseModel):
    """Files of a vector store, by how far they are."""

    in_progress: int = 0
    completed: int = 0
    cancelled: int = 0
    failed: int = 0
    total: int = 0


class VectorStore(BaseModel):
    """A vector store."""

    id: str
    object: Literal["vector_store"] = "vector_store"
    created_at: int
    name: str
    usage_bytes: int
    file_counts: FileCounts
    status: Literal["expired", "in_progress", "completed"]
    expires_after: StoreExpiry | None
    expires_at: int | None
    last_active_at: int | None
    metadata: dict[str, str]


class VectorStoreList(BaseModel):
    """A page of vector stores."""

    object: Literal["list"] = "list"
    data: list[VectorStore]
    first_id: str | None
    last_id: str | None
    has_more: bool


class DeletedVectorStore(BaseModel):
    """A vector store that is gone."""

    id: str
    object: Literal["vector_store.deleted"] = "vector_store.deleted"
    deleted: bool = True


class SearchText(BaseModel):
    """The text of a result."""

    type: Literal["text"] = "text"
    text: str


class SearchHit(BaseModel):
    """A result of a search."""

    file_id: str
    filename: str
    score: float
    attributes: dict[str, str | int | float | bool]
    content: list[SearchText]


class SearchResults(BaseModel):
    """What a search found."""

    object: Literal["vector_store.search_results.page"] = "vector_store.search_results.page"
    search_query: list[str]
    data: list[SearchHit]
    has_more: bool = False
    next_page: str | None = None


class WrittenPoints(BaseModel):
    """Chunks that were written."""

    object: Literal["vector_store.points"] = "vector_store.points"
    vector_store_id: str
    ids: list[str]
    windows: dict[str, int] = Field(
        default_factory=dict,
        description="Chunks that are longer than the embedding model reads at once, and in how many windows each was "
        "embedded. All others have one vector.",
    )


class DeletedPoints(BaseModel):
    """Chunks of a file that are gone."""

    object: Literal["vector_store.points.deleted"] = "vector_store.points.deleted"
    vector_store_id: str
    file_id: str
    deleted: bool = True
