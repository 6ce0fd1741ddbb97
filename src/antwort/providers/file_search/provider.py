"""The provider: search documents that an ingestion process has indexed."""

import asyncio
import contextlib
import logging
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar

from typing_extensions import override

from antwort.extensions import (
    RERANKERS,
    VECTOR_DATABASES,
    Filter,
    Unavailable,
    VectorDatabase,
    VectorStoreUnavailable,
    parse_filter,
    queries_at_once,
)
from antwort.provider import (
    JSON,
    BadRequestError,
    ConfigError,
    Context,
    Counter,
    DocumentParser,
    Field,
    Files,
    FunctionError,
    Gauge,
    Histogram,
    HostedCall,
    HostedTool,
    NotFoundError,
    OcrOptions,
    ParsingLimits,
    Provider,
    ToolResult,
    Workplace,
    WorksApart,
    function,
)
from antwort.providers.file_search import report
from antwort.providers.file_search.embedding import EmbeddingClient, make_embedding
from antwort.providers.file_search.errors import FileSearchError
from antwort.providers.file_search.file_routes import StoreFileRoutes
from antwort.providers.file_search.ingestion.attached_files import AttachedFiles, no_files
from antwort.providers.file_search.ingestion.jobs import IngestionJobs
from antwort.providers.file_search.ingestion.listener import WorkerListener
from antwort.providers.file_search.ingestion.local_workers import LocalWorkers
from antwort.providers.file_search.ingestion.pipeline import IngestionLimits
from antwort.providers.file_search.ingestion.queue import IngestionQueue
from antwort.providers.file_search.ingestion.store_files import ChunkPosition, StoreFiles
from antwort.providers.file_search.ingestion.worker import IngestionWorker
from antwort.providers.file_search.ingestion.yielding import SharedWord, ShareTeller, WorkerPace
from antwort.providers.file_search.neighbours import with_neighbours_joined
from antwort.providers.file_search.reconcile import Reconciler
from antwort.providers.file_search.reranking import SecondRanking
from antwort.providers.file_search.resources import StoreFileResources
from antwort.providers.file_search.routes import READ, VectorStoreRoutes
from antwort.providers.file_search.search import RankedChunk, Searcher, SearchOutcome, Wish
from antwort.providers.file_search.settings import FileSearchSettings
from antwort.providers.file_search.store_counts import Recounter
from antwort.providers.file_search.store_record import VectorStoreRecord
from antwort.providers.file_search.vector_stores import VectorStores
from antwort.providers.file_search.vectors.guarded import GuardedVectors
from antwort.providers.file_search.wire import ToolOptions

logger = logging.getLogger(__name__)

SERVER_ADDRESS = "workers.json"
"""The file in the provider's folder that says where workers find the server."""
SHARE = "share"
"""The file beside it that says how much of the machine they may use."""
_WATCHED = 10.0
"""Seconds between looks at the queue."""
_LONGEST_QUERY = 4096
_TOLD_QUERY = 200
"""Characters that model servers with a grammar let a model write: a small one does not come to an end by itself."""
_LONGEST_QUESTION = 500
"""Characters of what the user says that is searched for as it is; what is longer is hardly a question."""
_QUERY = "What to look for, as a question or in a few words."
_WORD = re.compile(r"\w{3,}")
_ADVICE = "Go on without file search."
"""What a model can do if it is told that something failed."""
_EMBEDDING_SHARE = 0.5
"""The part of a search's time after which embedding is given up: the rest is for a search by keywords."""


def _searched_for(query: str, question: str) -> str:
    """Return what to search for: the user's question if the query only repeats what the argument is said to be.

    That is what very small models write that are made to search.
    """
    said = set(_WORD.findall(query.lower()))
    is_told = bool(said) and said <= set(_WORD.findall(_QUERY.lower()))
    return question if is_told and 0 < len(question) <= _LONGEST_QUESTION else query


def _read_tool(tool: Mapping[str, Any]) -> tuple[ToolOptions, Filter | None]:
    """Read the tool as the request named it; a wish that cannot be read is a BadRequestError, never dropped."""
    options = ToolOptions.read(tool)
    try:
        return options, None if options.filters is None else parse_filter(options.filters)
    except FunctionError as error:
        raise BadRequestError(str(error), param="filters") from None


class SearchTool(HostedTool):
    """How a search looks, and is read again."""

    types = ("file_search",)
    item = "file_search_call"
    phases = ("in_progress", "searching")
    includes: Mapping[str, str] = {"file_search_call.results": "results"}
    narrows = ("vector_store_ids",)
    tool_defaults: Mapping[str, Any] = {
        "vector_store_ids": [],
        "filters": None,
        "max_num_results": 20,
        "ranking_options": {"ranker": "auto", "score_threshold": 0.0},
    }

    @override
    def check(self, tool: Mapping[str, Any]) -> object:
        return _read_tool(tool)

    @override
    def begin(self, call: HostedCall) -> JSON:
        query = call.decoded.get("query")
        return {"queries": [query] if isinstance(query, str) else [], "results": None}

    @override
    def read_arguments(self, item: Mapping[str, Any]) -> JSON:
        return {"query": "; ".join(item.get("queries") or ())}

    @override
    def read_output(self, item: Mapping[str, Any]) -> str | None:
        return report.read_results(item)


class FileSearch(Provider[FileSearchSettings], WorksApart):
    """Search documents by meaning, and manage the vector stores they are in."""

    aliases: ClassVar = {"vector_db": "vector_backend", "embedding_endpoint": "embedding_url"}

    queries = Counter(
        documentation="Searches, by how they ended.",
        labelnames=["status"],
        full_name="antwort_filesearch_queries_total",
    )
    duration = Histogram(
        documentation="Seconds that a search took, embedding included.",
        full_name="antwort_filesearch_search_duration_seconds",
    )
    embedding_duration = Histogram(
        documentation="Seconds that embedding a query took.",
        full_name="antwort_filesearch_embedding_duration_seconds",
    )
    returned = Histogram(
        documentation="Results of a search.",
        full_name="antwort_filesearch_results_returned",
        buckets=(0, 1, 2, 3, 5, 10, 20, 50),
    )
    reranks = Counter(
        documentation="Second rankings of results, by how they ended.",
        labelnames=["status"],
        full_name="antwort_filesearch_reranks_total",
    )
    rerank_duration = Histogram(
        documentation="Seconds that a second ranking took.",
        full_name="antwort_filesearch_rerank_duration_seconds",
    )
    ingested = Counter(
        documentation="Files that were made searchable, or could not be, by how that ended.",
        labelnames=["status"],
        full_name="antwort_ingestion_files_total",
    )
    ingested_chunks = Counter(
        documentation="Chunks of files that were written into vector stores.",
        full_name="antwort_ingestion_chunks_total",
    )
    ingested_pages = Counter(
        documentation="Pages of files that were read.",
        full_name="antwort_ingestion_pages_total",
    )
    ingested_tokens = Counter(
        documentation="Tokens of the chunks that were embedded and written.",
        full_name="antwort_ingestion_tokens_total",
    )
    ingestion_duration = Histogram(
        documentation="Seconds from a worker's taking a file to its end.",
        full_name="antwort_ingestion_duration_seconds",
        buckets=(0.1, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800),
    )
    ingestion_queue = Gauge(
        documentation="Files that wait to be made searchable, or are being so, as far as the first thousand.",
        full_name="antwort_ingestion_queue_depth",
    )
    ingestion_share = Gauge(
        documentation="The part of the processors that workers may use, as far as this process goes.",
        full_name="antwort_ingestion_share",
    )
    ingestion_workers = Gauge(
        documentation="Ingestion workers that are connected.",
        full_name="antwort_ingestion_workers",
    )

    def __init__(
        self,
        settings: FileSearchSettings | None = None,
        *,
        backend: VectorDatabase | None = None,
        embedding: EmbeddingClient | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(settings)
        self._given = backend, embedding
        self._now = now
        self._attached: AttachedFiles | None = None
        self._store_routes = VectorStoreRoutes(self.settings)
        self._file_routes = StoreFileRoutes()
        self.parts = (self._store_routes, self._file_routes)
        self.resources = (StoreFileResources(self._file_routes),)

    @property
    @override
    def one_process(self) -> str | None:
        if self._given[0] is not None:
            return None
        reason: str | None = VECTOR_DATABASES.declared(self.settings.vector_backend, "one_process")
        return reason

    @override
    async def lifespan(self) -> AsyncIterator[None]:
        backend, embedding = self._given
        async with contextlib.AsyncExitStack() as closing:
            self._embedding = embedding or await make_embedding(self.settings, self.services.http)
            closing.push_async_callback(self._embedding.close)
            self._backend = GuardedVectors(backend or self._make_database())
            closing.push_async_callback(self._backend.close)
            try:
                await self._backend.health()  # what only the operator can mend stops the start
            except VectorStoreUnavailable as error:
                logger.warning("file search: %s It is asked again with every search.", error)
            self._stores = VectorStores(
                self.services.records,
                self._backend,
                shared=self.settings.shared_collection,
                most=self.settings.max_stores,
                now=self._now,
            )
            slots = self.slots(queries_at_once(self._embedding), "embedding")
            self._searcher = Searcher(self._backend, self._embedding, self.embedding_duration.time, slots)
            self._reranker = self._make_reranker(closing)
            housekeeping = asyncio.create_task(
                Reconciler(self._stores, self._backend).run(self.settings.reconcile), name="file search housekeeping"
            )
            closing.push_async_callback(_end, housekeeping)
            recounter = Recounter(self._stores.counts)
            closing.push_async_callback(_end, asyncio.create_task(recounter.run(), name="file search counts"))
            if self.services.files is not None:
                self._attached = await self._open_ingestion(self.services.files, closing)
            self._open_routes(recounter)
            yield

    @property
    def attached(self) -> AttachedFiles:
        """The files of vector stores; ServiceUnavailableError where the server keeps none."""
        if self._attached is None:
            raise no_files()
        return self._attached

    def _open_routes(self, recounter: Recounter) -> None:
        """Give the routes what they are about."""
        stores, files = self._store_routes, self._file_routes
        stores.stores = files.stores = self._stores
        stores.attached = files.attached = self._attached
        stores.embedding, stores.search, stores.on_look = self._embedding, self.search_measured, recounter.look
        files.records = self.services.records

    async def _open_ingestion(self, files: Files, closing: contextlib.AsyncExitStack) -> AttachedFiles:
        """Take files, and let workers in; start some, if nobody else does."""
        records = self.services.records
        queue = IngestionQueue(
            records, self._now, self.services.queues.named("ingestion"), most=self.settings.max_waiting_files
        )
        attached = AttachedFiles(files, StoreFiles(records), queue, self._stores, self._backend)
        jobs = IngestionJobs(
            attached,
            self._stores,
            self._backend,
            on_end=self._count_file,
            on_pages=self.ingested_pages.inc,
            on_chunks=self._count_chunks,
            dimensions=self._embedding.dimensions,
        )
        listener = WorkerListener(jobs, self.services.folder / SERVER_ADDRESS)
        await listener.open()
        closing.push_async_callback(listener.close)
        share = ShareTeller(self.services.load, self.services.folder / SHARE)
        closing.push_async_callback(share.close)
        self.ingestion_share.set_function(lambda: share.value)
        attached.on_work.append(share.need)
        command, count = self.services.command, self.settings.ingestion_workers
        if command is not None and count:
            await DocumentParser(
                self.services.sandbox
            ).prepare()  # what is missing is said now, not with the first file
            workers = LocalWorkers(command, count, listener)
            workers.start()
            closing.push_async_callback(workers.close)
            attached.on_work.append(workers.need)
        files.on_delete(attached.forget_file)
        watching = asyncio.create_task(self._watch_queue(attached, jobs, listener), name="file search queue")
        closing.push_async_callback(_end, watching)
        return attached

    def _make_database(self) -> VectorDatabase:
        own = self.settings
        return VECTOR_DATABASES.make(own.vector_backend, self.services, key="vector_backend", around=own.sections())

    def _make_reranker(self, closing: contextlib.AsyncExitStack) -> SecondRanking | None:
        own = self.settings
        if own.reranker is None and own.rerank_url is None:
            return None
        service = RERANKERS.make(own.reranker or "http", self.services.http, key="reranker", around=own.of("rerank_"))
        closing.push_async_callback(service.close)
        return SecondRanking(
            service, candidates=own.rerank_candidates, timeout=own.rerank_timeout, on_end=self._count_rerank
        )

    def _count_rerank(self, status: str, seconds: float) -> None:
        self.reranks.labels(status).inc()
        self.rerank_duration.observe(seconds)

    def _count_file(self, status: str, seconds: float) -> None:
        self.ingested.labels(status).inc()
        self.ingestion_duration.observe(seconds)

    def _count_chunks(self, chunks: int, tokens: int) -> None:
        self.ingested_chunks.inc(chunks)
        self.ingested_tokens.inc(tokens)

    async def _watch_queue(self, attached: AttachedFiles, jobs: IngestionJobs, listener: WorkerListener) -> None:
        """Take up what a crash or an outage has left, and show how much there is to do; what fails is tried again."""
        is_recovered = False
        while True:
            try:
                if not is_recovered:
                    await jobs.recover()
                    is_recovered = True
                await attached.complete_removals()
                self.ingestion_queue.set(depth := await jobs.queue.depth())
                self.ingestion_workers.set(listener.workers)
                if depth:  # also what another process of the server has been given
                    attached.tell_work()
                await listener.open()  # if another process did that, and is gone
            except Exception:
                logger.exception("file search: the queue of files cannot be looked at now")
            await asyncio.sleep(_WATCHED)

    @override
    async def work_apart(self, place: Workplace, *, idle: float | None = None) -> None:
        """Read and embed files for the server that has this configuration."""
        word = SharedWord(place.folder / SHARE)
        embedding = self._given[1] or await make_embedding(self.settings, place.http, pace=WorkerPace(word.heard))
        try:
            own = self.settings
            ocr = OcrOptions(own.ocr == "off", own.ocr_languages, own.max_ocr_time)
            parser = DocumentParser(place.sandbox, ParsingLimits(seconds=own.max_parsing_time), ocr)
            limits = IngestionLimits(own.files_at_once, own.max_chunks, own.max_ingestion_time)
            await IngestionWorker(place.folder / SERVER_ADDRESS, embedding, parser, limits, idle=idle).run()
        finally:
            await embedding.close()
            word.close()

    @override
    async def examine(self) -> Sequence[str]:
        asked: list[Awaitable[object]] = [self._backend.health(), self._embedding.embed(["antwort"])]
        if self._reranker is not None:
            asked.append(self._reranker.check())
        answers = await asyncio.gather(*map(_problem, asked))
        return [problem for problem in answers if problem is not None]

    @function(
        idempotent=True,
        needs=READ,
        spill=False,  # what was found is there to be read and cited
        hosted=SearchTool(),
    )
    async def file_search(
        self,
        ctx: Context,
        query: Annotated[
            str,
            Field(
                description=_QUERY,
                json_schema_extra={"maxLength": _TOLD_QUERY},
            ),
        ],
        vector_store_ids: Annotated[
            list[str] | None, Field(description="Only these vector stores; leave it out to search all of them.")
        ] = None,
    ) -> ToolResult:
        """Search the user's documents. Returns numbered chunks of text; cite them by number, as in [1]."""
        query, offset = report.read_query(" ".join(query.split())[:_LONGEST_QUERY])
        if not query:
            raise FunctionError("The query is empty. Say what to look for (empty query).")
        options, filters = _read_tool(ctx.options)
        limit = options.max_num_results or self.settings.max_results
        query = _searched_for(query, " ".join(ctx.question().split()))
        wish = Wish.of((query,), limit, filters, options.ranking_options, hybrid=self.settings.hybrid)
        wish = replace(wish, until_enough=options.max_num_results is None)
        try:
            stores, away = await self._chosen(ctx.tenant, options.vector_store_ids, vector_store_ids)
            room = await ctx.room()
            findings = await self.search_measured(stores, wish, room=room)
        except (FileSearchError, VectorStoreUnavailable) as error:
            raise FileSearchError(f"{error} {_ADVICE}") from error
        if not stores and not away:
            findings.notes.append("There are no documents here yet.")
        if away:
            findings.notes.append(f"Vector stores not searched, since this server does not keep their vectors: {away}.")
        item = {"queries": [query], "results": [_result(one) for one in findings.found]}
        return ToolResult(report.results(ctx, query, findings, room=room, offset=offset), item=item)

    async def _with_positions(self, found: Sequence[RankedChunk]) -> list[RankedChunk]:
        """Return chunks with where in their files they stand, as far as that is known."""
        if self._attached is None:
            return list(found)
        files = {(one.store.tenant, one.store.id, one.hit.file_id) for one in found}
        known = {file: await self._attached.store_files.places(*file) for file in files}
        return [_with_position(one, known[one.store.tenant, one.store.id, one.hit.file_id]) for one in found]

    async def search_measured(
        self, stores: Sequence[VectorStoreRecord], wish: Wish, *, room: int | None = None
    ) -> SearchOutcome:
        """Search stores of one tenant, rank what is found, and measure all of it."""
        reranker = self._reranker if wish.rerank else None
        findings = await self._search_in_time(stores, wish if reranker is None else reranker.widened(wish))
        if reranker is not None:
            await reranker.rank(findings, wish)
        findings.found = wish.enough_of(findings.found)
        findings.found = await self._with_positions(findings.found)
        fits = room is None or sum(len(one.hit.text) for one in findings.found) <= room
        if self.settings.join_neighbours and fits:  # else the best chunk might stand behind what there is room for
            findings.found = with_neighbours_joined(findings.found)
        self.returned.observe(len(findings.found))
        await asyncio.gather(*(self._stores.touch(store) for store in stores))
        return findings

    async def _search_in_time(self, stores: Sequence[VectorStoreRecord], wish: Wish) -> SearchOutcome:
        limit, status = self.settings.timeout, "error"
        try:
            with self.duration.time():
                async with asyncio.timeout(limit):
                    findings = await self._searcher.search(stores, wish, embed_within=_EMBEDDING_SHARE * limit)
            status = "keywords" if findings.by_keywords else "success"
        except TimeoutError:
            status = "timeout"
            raise FileSearchError(f"The search did not end within {round(limit, 3):g} s.") from None
        finally:
            self.queries.labels(status).inc()
        return findings

    async def _chosen(
        self, tenant: str, named: list[str] | None, narrowed: list[str] | None
    ) -> tuple[list[VectorStoreRecord], int]:
        """Return the stores to search: those the request names, or all; of these, those the model names, if any.

        Of all, those that are elsewhere are left out; their number is returned, too.
        """
        if named and narrowed:
            beyond = next((one for one in narrowed if one not in named), None)
            if beyond is not None:
                raise _unknown(beyond, by_request=False)
        wanted = narrowed or named
        if not wanted:
            return await self._stores.usable(tenant)
        stores = []
        for store_id in dict.fromkeys(wanted):
            try:
                store = await self._stores.get(tenant, store_id)
            except NotFoundError:
                raise _unknown(store_id, by_request=store_id in (named or ())) from None
            if self._stores.is_expired(store):
                raise FunctionError(f"Vector store '{store_id}' has expired and cannot be searched any more.")
            stores.append(store)
        return stores, 0


def _unknown(store_id: str, *, by_request: bool) -> FunctionError:
    """Return the error for an id that means nothing here, whoever else may own it, and whoever named it."""
    missing = f"There is no vector store '{store_id[:100]}' here"
    if by_request:  # a search without ids would look for it, too
        return FunctionError(
            f"{missing}, although the request names it; whoever sent it must correct its vector_store_ids. {_ADVICE}"
        )
    return FunctionError(f"{missing}; leave vector_store_ids out to search all.")


def _with_position(one: RankedChunk, positions: Sequence[ChunkPosition]) -> RankedChunk:
    """Return a chunk with its position; one of another length is that of what the file was before."""
    position = positions[one.hit.index] if 0 <= one.hit.index < len(positions) else None
    fits = position is not None and position.end - position.start == len(one.hit.text)
    return replace(one, position=position) if fits else one


def _result(one: RankedChunk) -> dict[str, Any]:
    hit = one.hit
    return {
        "file_id": hit.file_id,
        "filename": hit.filename,
        "text": hit.text,
        "attributes": dict(hit.attributes),
        "score": hit.score,
        "vector_store_id": one.store.id,
    }


async def _problem(asking: Awaitable[object]) -> str | None:
    try:
        await asking
    except Unavailable as error:
        return error.for_operator
    except ConfigError as error:
        return str(error)
    return None


async def _end(task: asyncio.Task[None]) -> None:
    """End a task that runs for ever."""
    task.cancel()
    await asyncio.wait([task])
