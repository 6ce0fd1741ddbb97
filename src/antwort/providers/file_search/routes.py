"""`/v1/vector_stores`: OpenAI's management API, and the route by which ingestion processes write."""

import uuid
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, Protocol

from antwort.extensions import Chunk, EmbeddingClient, WrongDimensions, parse_filter
from antwort.provider import (
    BadRequestError,
    ConflictError,
    Context,
    Field,
    FunctionError,
    NotFoundError,
    ServiceUnavailableError,
    route,
)
from antwort.providers.file_search.chunks import windows_of
from antwort.providers.file_search.errors import as_api_errors
from antwort.providers.file_search.file_wire import counted
from antwort.providers.file_search.ingestion.attached_files import AttachedFiles, no_files
from antwort.providers.file_search.ingestion.store_files import StatusCounts
from antwort.providers.file_search.search import SearchOutcome, Wish
from antwort.providers.file_search.settings import FileSearchSettings
from antwort.providers.file_search.store_record import StoreState, VectorStoreRecord
from antwort.providers.file_search.together import together
from antwort.providers.file_search.vector_stores import VectorStores
from antwort.providers.file_search.wire import (
    CreateVectorStore,
    DeletedPoints,
    DeletedVectorStore,
    FileCounts,
    NewPoint,
    NewPoints,
    SearchHit,
    SearchResults,
    SearchText,
    SearchVectorStore,
    StoreExpiry,
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


class Search(Protocol):
    """Searches stores of one tenant, and measures it."""

    async def __call__(self, stores: Sequence[VectorStoreRecord], wish: Wish) -> SearchOutcome:
        """Return what is found."""


class VectorStoreRoutes:
    """The management routes of vector stores."""

    stores: VectorStores
    embedding: EmbeddingClient
    search: Search
    attached: AttachedFiles | None = None
    """The files of stores; None where the server keeps no files."""
    on_look: Callable[[VectorStoreRecord], None]
    """Called for each store that somebody looks at."""

    # All of these are given by the provider when it starts.

    def __init__(self, settings: FileSearchSettings) -> None:
        self._settings = settings

    @route("POST", "/v1/vector_stores", scope=WRITE, errors=[ServiceUnavailableError])
    async def create_vector_store(self, ctx: Context, body: CreateVectorStore) -> VectorStore:
        """Create a vector store, and a collection for it in the vector database."""
        files = body.attached()
        if files:
            await self._files.check(ctx, [file.file_id for file in files])
        with as_api_errors():
            store = await self.stores.create(
                ctx.tenant,
                name=body.name or "",
                description=body.description or "",
                metadata=body.metadata or {},
                early_results=body.early_results,
                days=None if body.expires_after is None else body.expires_after.days,
                dimensions=await self.embedding.dimensions(),
            )
        for file in files:
            await self._files.attach_named(store, file.file_id, file.attributes or {}, file.sizes())
        # Nothing is in it yet, so nothing is asked that could fail.
        return self._as_object(store, StatusCounts(in_progress=len(files)))

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
            stores, more = await self.stores.page(ctx.tenant, limit=limit, after=after, before=before, order=order)
        except NotFoundError as error:  # the list itself is there
            raise BadRequestError(error.message, param=error.param or "after", code="invalid_value") from None
        attached = await together(self._file_counts(store) for store in stores)
        for store in stores:
            self.on_look(store)
        data = [self._as_object(*one) for one in zip(stores, attached, strict=True)]
        return VectorStoreList(
            data=data,
            first_id=data[0].id if data else None,
            last_id=data[-1].id if data else None,
            has_more=more,
        )

    @route("GET", _ONE, scope=READ, errors=[ServiceUnavailableError])
    async def retrieve_vector_store(self, ctx: Context, vector_store_id: str) -> VectorStore:
        """Return a vector store."""
        store = await find_store(self.stores, ctx, vector_store_id)
        self.on_look(store)
        return self._as_object(store, await self._file_counts(store))

    @route("POST", _ONE, scope=WRITE, errors=[ServiceUnavailableError])
    async def update_vector_store(self, ctx: Context, vector_store_id: str, body: UpdateVectorStore) -> VectorStore:
        """Change the name, the metadata or the expiry of a vector store. If the answer is an error, nothing changed."""
        store = await find_store(self.stores, ctx, vector_store_id)
        changes: dict[str, Any] = {}
        if "name" in body.model_fields_set:
            changes["name"] = body.name or ""
        if "metadata" in body.model_fields_set:
            changes["metadata"] = body.metadata or {}
        if body.early_results is not None:
            changes["early_results"] = body.early_results
        if "expires_after" in body.model_fields_set:
            self.stores.check_open(store)
            changes["days"] = None
            if body.expires_after is not None:  # its days begin now, however long nobody has used it
                changes |= {"days": body.expires_after.days, "last_active_at": int(self.stores.now())}
        attached = await self._file_counts(store)  # first, as it can fail
        if changes:
            with as_api_errors():
                store = await self.stores.update(ctx.tenant, vector_store_id, changes)
        return self._as_object(store, attached)

    @route("DELETE", _ONE, scope=WRITE, errors=[ServiceUnavailableError])
    async def delete_vector_store(self, ctx: Context, vector_store_id: str) -> DeletedVectorStore:
        """Delete a vector store, and its collection in the vector database: later, if that does not answer now."""
        with as_api_errors(" The vector store is marked as deleted; its chunks are removed when that is possible."):
            await self.stores.delete(ctx.tenant, vector_store_id)
        if self.attached is not None:
            await self.attached.forget_store(ctx.tenant, vector_store_id)
        return DeletedVectorStore(id=vector_store_id)

    @route("POST", f"{_ONE}/search", scope=READ, errors=[ServiceUnavailableError])
    async def search_vector_store(self, ctx: Context, vector_store_id: str, body: SearchVectorStore) -> SearchResults:
        """Search a vector store."""
        store = await find_open_store(self.stores, ctx, vector_store_id)
        queries = [body.query] if isinstance(body.query, str) else body.query
        if not all(query.strip() for query in queries):
            raise BadRequestError("query: is empty; say what to look for.", param="query", code="invalid_value")
        try:
            filters = None if body.filters is None else parse_filter(body.filters)
        except FunctionError as error:
            raise BadRequestError(str(error), param="filters", code="invalid_value") from None
        results, hybrid = body.max_num_results or _RESULTS, self._settings.hybrid
        wish = Wish.of(tuple(queries), results, filters, body.ranking_options, hybrid=hybrid)
        with as_api_errors():
            findings = await self.search([store], wish)
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
        store = await find_open_store(self.stores, ctx, vector_store_id)
        body.check_vectors(store.dimensions)
        with as_api_errors():
            made: dict[str, tuple[Chunk, Sequence[list[float]]]] = {}
            embedded = await self._vectors(body.points)
            if all(point.vector is None for point in body.points):
                store = await self.stores.fitted(store, len(embedded[0][0]))
            for point, vectors in zip(body.points, embedded, strict=True):
                for vector in vectors:
                    if len(vector) != store.dimensions:
                        raise WrongDimensions(store.dimensions, len(vector))
                chunk = _chunk(store, point, vectors[0])
                made[chunk.id] = chunk, vectors[1:]  # of two with one id, the last counts
            windows = {id_: len(more) for id_, (_, more) in made.items() if more}
            chunks = [one for chunk, more in made.values() for one in (chunk, *windows_of(chunk, more))]
            await self.stores.write(store, chunks, windows)
            await self.stores.counts.refresh(store)
        await self.stores.touch(store)
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
        store = await find_open_store(self.stores, ctx, vector_store_id)
        with as_api_errors():
            await self.stores.erase(store, file_id)
            await self.stores.counts.refresh(store)
        return DeletedPoints(vector_store_id=store.id, file_id=file_id)

    @property
    def _files(self) -> AttachedFiles:
        if self.attached is None:
            raise no_files()
        return self.attached

    async def _file_counts(self, store: VectorStoreRecord) -> StatusCounts:
        """Count the files that are attached to a store."""
        return StatusCounts() if self.attached is None else await self.attached.counts(store)

    async def _vectors(self, points: Sequence[NewPoint]) -> list[list[list[float]]]:
        """Return the vectors of points; the texts of those that came without are embedded, all in one go."""
        bare = [point.text for point in points if point.vector is None]
        embedded = iter(await self.embedding.embed_whole(bare)) if bare else iter(())
        return [next(embedded) if point.vector is None else [point.vector] for point in points]

    def _as_object(self, store: VectorStoreRecord, attached: StatusCounts) -> VectorStore:
        """Return a store as clients see it. Files that were written as points count where no others are attached."""
        count = self.stores.counts.known(store)
        over = self.stores.is_expired(store)
        is_busy = store.state is StoreState.CREATING or attached.in_progress > 0
        return VectorStore(
            id=store.id,
            created_at=store.created_at,
            name=store.name,
            usage_bytes=count.bytes,
            file_counts=counted(attached) if attached.total else FileCounts(completed=count.files, total=count.files),
            status="expired" if over else "in_progress" if is_busy else "completed",
            expires_after=None if store.days is None else StoreExpiry(anchor="last_active_at", days=store.days),
            expires_at=store.expires_at,
            last_active_at=store.last_active_at,
            metadata=store.metadata,
        )


async def find_store(stores: VectorStores, ctx: Context, store_id: str) -> VectorStoreRecord:
    """Return the store that a request names."""
    with as_api_errors():
        return await stores.get(ctx.tenant, store_id)


async def find_open_store(stores: VectorStores, ctx: Context, store_id: str) -> VectorStoreRecord:
    """Return the store that a request names, whose time must not be over."""
    with as_api_errors():
        return await stores.get_open(ctx.tenant, store_id)


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
