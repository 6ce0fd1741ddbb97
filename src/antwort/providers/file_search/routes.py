"""`/v1/vector_stores`: OpenAI's management API, and the route by which ingestion processes write."""

import contextlib
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, Literal

from antwort.extensions import parse_filter
from antwort.provider import (
    BadRequestError,
    ConflictError,
    Context,
    Field,
    FunctionError,
    NotFoundError,
    Provider,
    QueueFullError,
    ServiceUnavailableError,
    route,
)
from antwort.providers.file_search.embedding.base import EmbeddingClient
from antwort.providers.file_search.errors import (
    EmbeddingUnavailable,
    FileSearchError,
    NoCollection,
    VectorStoreUnavailable,
    WrongDimensions,
)
from antwort.providers.file_search.file_wire import counted
from antwort.providers.file_search.ingestion.store_files import StatusCounts
from antwort.providers.file_search.search import SearchOutcome, Wish
from antwort.providers.file_search.settings import FileSearchSettings
from antwort.providers.file_search.together import together
from antwort.providers.file_search.vector_stores import StoreState, VectorStoreRecord, VectorStores, expired
from antwort.providers.file_search.vectors.base import Chunk, VectorStoreBackend
from antwort.providers.file_search.windows import windows_of
from antwort.providers.file_search.wire import (
    AttachFile,
    CreateVectorStore,
    DeletedPoints,
    DeletedVectorStore,
    ExpiresAfter,
    FileCounts,
    NewPoint,
    NewPoints,
    SearchHit,
    SearchResults,
    SearchText,
    SearchVectorStore,
    UpdateVectorStore,
    VectorStore,
    VectorStoreList,
    WrittenPoints,
)

_ONE = "/v1/vector_stores/{vector_store_id}"
_RESULTS = 10
"""Results of a search that does not say how many."""
READ, WRITE = "vector_stores:read", "vector_stores:write"
_POINTS = uuid.UUID("b6a0a9ff-7f0c-5a5e-9c55-0f6c1e0ad3a4")
"""The namespace of the ids of points that came without one."""

Limit = Annotated[int, Field(ge=1, le=100, description="How many at most.")]
Cursor = Annotated[str | None, Field(description="The id of a vector store in the list.")]
Order = Annotated[Literal["asc", "desc"], Field(description="By time of creation.")]


class VectorStoreRoutes(Provider[FileSearchSettings], ABC):
    """The management routes of file search."""

    _stores: VectorStores
    _backend: VectorStoreBackend
    _embedding: EmbeddingClient
    _on_look: Callable[[VectorStoreRecord], None]
    """Called for each store that somebody looks at."""

    @abstractmethod
    async def search_measured(self, stores: Sequence[VectorStoreRecord], wish: Wish) -> SearchOutcome:
        """Search, and measure it."""

    @abstractmethod
    async def check_files(self, ctx: Context, files: Sequence[AttachFile]) -> None:
        """Raise NotFoundError for the first of some files that is not there, or an error if they may not be read.

        RateLimitError if there is no room for all of them among those that wait to be made searchable.
        """

    @abstractmethod
    async def attach_files(self, store: VectorStoreRecord, files: Sequence[AttachFile]) -> None:
        """Attach files to a store."""

    @abstractmethod
    async def detach_all(self, tenant: str, store_id: str) -> None:
        """Forget the files of a store that is deleted."""

    @abstractmethod
    async def file_counts(self, store: VectorStoreRecord) -> StatusCounts:
        """Count the files that are attached to a store."""

    @route("POST", "/v1/vector_stores", scope=WRITE, errors=[ServiceUnavailableError])
    async def create_vector_store(self, ctx: Context, body: CreateVectorStore) -> VectorStore:
        """Create a vector store, and a collection for it in the vector database."""
        files = body.attached()
        await self.check_files(ctx, files)
        with as_api_errors():
            store = await self._stores.create(
                ctx.tenant,
                name=body.name or "",
                description=body.description or "",
                metadata=body.metadata or {},
                days=None if body.expires_after is None else body.expires_after.days,
                dimensions=await self._embedding.dimensions(),
            )
        await self.attach_files(store, files)
        # Nothing is in it yet, so nothing is asked that could fail.
        return self._shown(store, StatusCounts(in_progress=len(files)))

    @route("GET", "/v1/vector_stores", scope=READ, errors=[ServiceUnavailableError])
    async def list_vector_stores(
        self,
        ctx: Context,
        limit: Limit = 20,
        after: Cursor = None,
        before: Cursor = None,
        order: Order = "desc",
    ) -> VectorStoreList:
        """List the vector stores, the newest first."""
        try:
            stores, more = await self._stores.page(ctx.tenant, limit=limit, after=after, before=before, order=order)
        except NotFoundError as error:  # the list itself is there
            raise BadRequestError(error.message, param=error.param or "after", code="invalid_value") from None
        attached = await together(self.file_counts(store) for store in stores)
        for store in stores:
            self._on_look(store)
        data = [self._shown(*one) for one in zip(stores, attached, strict=True)]
        return VectorStoreList(
            data=data,
            first_id=data[0].id if data else None,
            last_id=data[-1].id if data else None,
            has_more=more,
        )

    @route("GET", _ONE, scope=READ, errors=[ServiceUnavailableError])
    async def retrieve_vector_store(self, ctx: Context, vector_store_id: str) -> VectorStore:
        """Return a vector store."""
        store = await self._store(ctx, vector_store_id)
        self._on_look(store)
        return self._shown(store, await self.file_counts(store))

    @route("POST", _ONE, scope=WRITE, errors=[ServiceUnavailableError])
    async def update_vector_store(self, ctx: Context, vector_store_id: str, body: UpdateVectorStore) -> VectorStore:
        """Change the name, the metadata or the expiry of a vector store. If the answer is an error, nothing changed."""
        store = await self._store(ctx, vector_store_id)
        changes: dict[str, Any] = {}
        if "name" in body.model_fields_set:
            changes["name"] = body.name or ""
        if "metadata" in body.model_fields_set:
            changes["metadata"] = body.metadata or {}
        if "expires_after" in body.model_fields_set:
            self._check_usable(store)
            changes["days"] = None
            if body.expires_after is not None:  # its days begin now, however long nobody has used it
                changes |= {"days": body.expires_after.days, "last_active_at": int(self._stores.now())}
        attached = await self.file_counts(store)  # first, as it can fail
        if changes:
            with as_api_errors():
                store = await self._stores.update(ctx.tenant, vector_store_id, changes)
        return self._shown(store, attached)

    @route("DELETE", _ONE, scope=WRITE, errors=[ServiceUnavailableError])
    async def delete_vector_store(self, ctx: Context, vector_store_id: str) -> DeletedVectorStore:
        """Delete a vector store, and its collection in the vector database: later, if that does not answer now."""
        with as_api_errors(" The vector store is marked as deleted; its chunks are removed when that is possible."):
            await self._stores.delete(ctx.tenant, vector_store_id)
        await self.detach_all(ctx.tenant, vector_store_id)
        return DeletedVectorStore(id=vector_store_id)

    @route("POST", f"{_ONE}/search", scope=READ, errors=[ServiceUnavailableError])
    async def search_vector_store(self, ctx: Context, vector_store_id: str, body: SearchVectorStore) -> SearchResults:
        """Search a vector store."""
        store = await self._store(ctx, vector_store_id)
        self._check_usable(store)
        queries = [body.query] if isinstance(body.query, str) else body.query
        if not all(query.strip() for query in queries):
            raise BadRequestError("query: is empty; say what to look for.", param="query", code="invalid_value")
        try:
            filters = None if body.filters is None else parse_filter(body.filters)
        except FunctionError as error:
            raise BadRequestError(str(error), param="filters", code="invalid_value") from None
        results, hybrid = body.max_num_results or _RESULTS, self.settings.hybrid
        wish = Wish.of(tuple(queries), results, filters, body.ranking_options, hybrid=hybrid)
        with as_api_errors():
            findings = await self.search_measured([store], wish)
        return SearchResults(
            search_query=queries,
            data=[
                SearchHit(
                    file_id=one.hit.file_id,
                    filename=one.hit.filename,
                    score=one.hit.score,
                    attributes=dict(one.hit.attributes),
                    content=[SearchText(text=one.hit.text)],
                )
                for one in findings.found
            ],
        )

    @route("POST", f"{_ONE}/points", scope="ingest", errors=[ConflictError, ServiceUnavailableError])
    async def write_points(self, ctx: Context, vector_store_id: str, body: NewPoints) -> WrittenPoints:
        """Write chunks of documents into a vector store; those that are there already are replaced.

        For ingestion processes. A chunk without a vector is embedded, in windows if it is longer than the model reads
        at once; `windows` of the answer says which were. This route is antwort's own, not OpenAI's.
        """
        store = await self._store(ctx, vector_store_id)
        self._check_usable(store)
        body.check_vectors(store.dimensions)
        with as_api_errors():
            made: dict[str, tuple[Chunk, Sequence[list[float]]]] = {}
            embedded = await self._vectors(body.points)
            if all(point.vector is None for point in body.points):
                store = await self._stores.fitted(store, len(embedded[0][0]))
            for point, vectors in zip(body.points, embedded, strict=True):
                for vector in vectors:
                    if len(vector) != store.dimensions:
                        raise WrongDimensions(store.dimensions, len(vector))
                chunk = _chunk(store, point, vectors[0])
                made[chunk.id] = chunk, vectors[1:]  # of two with one id, the last counts
            windows = {id_: len(more) for id_, (_, more) in made.items() if more}
            chunks = [one for chunk, more in made.values() for one in (chunk, *windows_of(chunk, more))]
            await self._stores.write(store, chunks, windows)
            await self._stores.refresh(store)
        await self._stores.touch(store)
        shown = {id_: count + 1 for id_, count in windows.items()}
        return WrittenPoints(
            vector_store_id=store.id, ids=[_id_of(store, point) for point in body.points], windows=shown
        )

    @route("DELETE", f"{_ONE}/points", scope="ingest", errors=[ConflictError, ServiceUnavailableError])
    async def delete_points(
        self,
        ctx: Context,
        vector_store_id: str,
        file_id: Annotated[str, Field(min_length=1, description="The file whose chunks go.")],
    ) -> DeletedPoints:
        """Delete the chunks of a file from a vector store. This route is antwort's own, not OpenAI's."""
        store = await self._store(ctx, vector_store_id)
        self._check_usable(store)
        with as_api_errors():
            await self._stores.erase(store, file_id)
            await self._stores.refresh(store)
        return DeletedPoints(vector_store_id=store.id, file_id=file_id)

    async def _store(self, ctx: Context, store_id: str) -> VectorStoreRecord:
        with as_api_errors():
            return await self._stores.get(ctx.tenant, store_id)

    async def _vectors(self, points: Sequence[NewPoint]) -> list[list[list[float]]]:
        """Return the vectors of points; the texts of those that came without are embedded, all in one go."""
        bare = [point.text for point in points if point.vector is None]
        embedded = iter(await self._embedding.embed_whole(bare)) if bare else iter(())
        return [next(embedded) if point.vector is None else [point.vector] for point in points]

    def _check_usable(self, store: VectorStoreRecord) -> None:
        if self._stores.is_expired(store):
            raise expired(store.id)

    def _shown(self, store: VectorStoreRecord, attached: StatusCounts) -> VectorStore:
        """Return a store as clients see it. Files that were written as points count where no others are attached."""
        count = self._stores.count(store)
        over = self._stores.is_expired(store)
        is_busy = store.state is StoreState.CREATING or attached.in_progress > 0
        return VectorStore(
            id=store.id,
            created_at=store.created_at,
            name=store.name,
            usage_bytes=count.bytes,
            file_counts=counted(attached) if attached.total else FileCounts(completed=count.files, total=count.files),
            status="expired" if over else "in_progress" if is_busy else "completed",
            expires_after=None if store.days is None else ExpiresAfter(anchor="last_active_at", days=store.days),
            expires_at=store.expires_at,
            last_active_at=store.last_active_at,
            metadata=store.metadata,
        )


def _id_of(store: VectorStoreRecord, point: NewPoint) -> str:
    return str(point.id or uuid.uuid5(_POINTS, f"{store.id}/{point.file_id}/{point.chunk_index}"))


def _chunk(store: VectorStoreRecord, point: NewPoint, vector: list[float]) -> Chunk:
    return Chunk(
        _id_of(store, point),
        vector,
        point.text,
        point.file_id,
        point.filename,
        point.chunk_index,
        point.attributes,
        store.tenant,
        store.id,
    )


@contextlib.contextmanager
def as_api_errors(more: str = "") -> Iterator[None]:
    """Turn what goes wrong behind us into what an API client understands."""
    try:
        yield
    except QueueFullError:  # that is a 429
        raise
    except (VectorStoreUnavailable, EmbeddingUnavailable, FileSearchError) as error:
        raise ServiceUnavailableError(f"{error}{more}") from error
    except NoCollection:
        raise ConflictError("The vector store is not ready; try again in a moment.") from None
    except FunctionError as error:
        raise BadRequestError(str(error), code="invalid_value") from None
