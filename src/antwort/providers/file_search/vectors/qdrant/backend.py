"""A Qdrant server, over REST or gRPC."""

import asyncio
import logging
import math
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec
from qdrant_client import AsyncQdrantClient, models
from typing_extensions import override

from antwort.provider import JSON, ConfigError
from antwort.providers.file_search.errors import WrongDimensions
from antwort.providers.file_search.settings import QdrantSettings
from antwort.providers.file_search.vectors.base import (
    PREFIX,
    Chunk,
    Count,
    Hit,
    Query,
    VectorStoreBackend,
    checked_name,
    is_shared,
)
from antwort.providers.file_search.vectors.filters import storable
from antwort.providers.file_search.vectors.points import (
    BM25_HALF,
    FIELDS,
    attribute_path,
    by_chunk,
    check_dimensions,
    chunk_scope,
    hit_of,
    ids_scope,
    payload_of,
    scope,
    unique,
)
from antwort.providers.file_search.vectors.qdrant.errors import KeyRefused, Translated
from antwort.providers.file_search.vectors.ranking import candidates, cosine_score, finish, fused, saturated

logger = logging.getLogger(__name__)


_SPARSE = "bm25"
_BM25 = "qdrant/bm25"
"""The server's own model: it needs nothing but the text."""
_BATCH, _BATCH_BYTES = 128, 8_000_000
"""Points in one request, and bytes, unless a point alone has more: Qdrant takes 32 MiB if nobody says otherwise."""
_NUMBER_BYTES = 24
"""Room for one number of a vector, spelled out."""
_OLDEST = (1, 16)
"""The oldest Qdrant that has all that is asked of it, such as `text_any`."""
_PORT = 6333
_SCANNED = 1000
"""Points without a sparse vector that are compared by the words they share with a query."""
_WORDS = 16
"""Words of a query that such points are compared by."""
_UNSPARSE_BEST = 0.5
"""The score of such a point that has every word of the query."""
_ALL = 1_000_000
"""As many values as there are."""
_WORD = re.compile(r"\w+")
_VERSION = re.compile(r"(\d+)\.(\d+)")


class Qdrant(VectorStoreBackend):
    """Keeps each collection on a Qdrant server. Keyword search is BM25, computed by the server."""

    def __init__(self, settings: QdrantSettings) -> None:
        self.name = "qdrant"
        self._settings = settings
        key = settings.api_key.get_secret_value() if settings.api_key is not None else None
        with warnings.catch_warnings():
            # A key over plain HTTP is the operator's decision, as a network of its own may be.
            warnings.simplefilter("ignore", UserWarning)
            self._client = AsyncQdrantClient(
                url=settings.url,
                api_key=key,
                prefer_grpc=settings.grpc,
                grpc_port=settings.grpc_port,
                timeout=math.ceil(settings.timeout),
                cloud_inference=True,  # the server's, not a model in this process
                check_compatibility=False,  # it would block; `health` looks
            )
        self._server = _server(settings)
        self._version: str | None = None

    @override
    async def create_collection(self, name: str, dimensions: int) -> None:
        found = await self.dimensions(name)
        if found is None:
            await self._create(name, dimensions)
            found = await self.dimensions(name)  # somebody may have been faster
        if found is not None and found != dimensions:
            raise WrongDimensions(found, dimensions)
        # Again if it is there: whoever created it may have been stopped before the last index.
        await self._index(name)

    async def _create(self, name: str, dimensions: int) -> None:
        settings = self._settings
        with self._translated(already=True):
            await self._client.create_collection(
                name,
                vectors_config=models.VectorParams(
                    size=dimensions, distance=models.Distance.COSINE, on_disk=settings.on_disk or None
                ),
                sparse_vectors_config={_SPARSE: models.SparseVectorParams(modifier=models.Modifier.IDF)},
                # Every search of a shared collection is one tenant's: a graph for each is all that is needed.
                hnsw_config=models.HnswConfigDiff(m=0, payload_m=16) if is_shared(name) else None,
                optimizers_config=models.OptimizersConfigDiff(
                    default_segment_number=settings.segments or (None if is_shared(name) else 1)
                ),
                shard_number=settings.shards,
                replication_factor=settings.replication,
                write_consistency_factor=settings.write_consistency,
            )

    async def _index(self, name: str) -> None:
        with self._translated():
            there = (await self._client.get_collection(name)).payload_schema
            wanted = _indexes(name, self._settings.indexed_attributes).items()
            missing = [(field, schema) for field, schema in wanted if field not in there]
            # All at once: the server waits for the disk with each.
            await asyncio.gather(*(self._client.create_payload_index(name, *one, wait=True) for one in missing))

    @override
    async def delete_collection(self, name: str) -> None:
        with self._translated():
            await self._client.delete_collection(checked_name(name))

    @override
    async def collections(self) -> list[str]:
        with self._translated():
            found = await self._client.get_collections()
        return sorted(one.name for one in found.collections if one.name.startswith(PREFIX))

    @override
    async def dimensions(self, name: str) -> int | None:
        with self._translated():
            if not await self._client.collection_exists(checked_name(name)):
                return None
            vectors = (await self._client.get_collection(name)).config.params.vectors
        return vectors.size if isinstance(vectors, models.VectorParams) else None

    @override
    async def upsert(self, name: str, chunks: Sequence[Chunk]) -> None:
        points = unique(checked_name(name), chunks)
        if points:
            first = next(iter(points.values()))
            check_dimensions(len(first.vector), (chunk.vector for chunk in points.values()))
        with self._translated():
            for batch in _batches(name, points):
                await self._client.upsert(name, batch, wait=True)

    @override
    async def delete(self, name: str, *, tenant: str, file_id: str | None = None, vector_store_id: str = "") -> None:
        condition = _filter(scope(checked_name(name), tenant, vector_store_id, file_id))
        with self._translated():
            await self._client.delete(name, models.FilterSelector(filter=condition), wait=True)

    @override
    async def remove(self, name: str, ids: Sequence[str], *, tenant: str, vector_store_id: str = "") -> None:
        condition = _filter(ids_scope(checked_name(name), ids, tenant, vector_store_id))
        with self._translated():
            await self._client.delete(name, models.FilterSelector(filter=condition), wait=True)

    @override
    async def fetch(self, name: str, ids: Sequence[str], *, tenant: str, vector_store_id: str = "") -> dict[str, Hit]:
        condition = _filter(ids_scope(checked_name(name), ids, tenant, vector_store_id))
        with self._translated():
            records, _ = await self._client.scroll(name, condition, limit=len(ids) or 1, with_payload=FIELDS)
        found = {str(record.id): hit_of(str(record.id), 0.0, record.payload) for record in records}
        return by_chunk(name, ids, found, tenant, vector_store_id)

    @override
    async def search(self, name: str, query: Query) -> list[Hit]:
        condition = _filter(chunk_scope(checked_name(name), query))
        hybrid = query.vector is not None and query.text is not None
        limit = candidates(query) if hybrid else query.limit
        requests: list[models.QueryRequest] = []
        if query.vector is not None:
            requests.append(_request(condition, limit, query=list(query.vector)))
        words: list[str] = []
        if query.text is not None:
            text = storable(query.text)
            words = list(dict.fromkeys(_WORD.findall(text.lower())))[:_WORDS]
            if words:
                requests.append(
                    _request(condition, limit, query=models.Document(text=text, model=_BM25), using=_SPARSE)
                )
                requests.append(_without_sparse(condition, limit, words))
        with self._translated():
            answers = await self._client.query_batch_points(name, requests) if requests else []
            if not requests:
                await self._client.get_collection(name)
        found = [answer.points for answer in answers]
        dense = [_hit(point, cosine_score(point.score)) for point in found.pop(0)] if query.vector is not None else []
        if query.text is None:
            return finish(dense, query)
        sparse = [_hit(point, saturated(point.score, BM25_HALF)) for point in found[0]] if words else []
        sparse += [_hit(point, _UNSPARSE_BEST * point.score / len(words)) for point in found[1]] if words else []
        sparse.sort(key=lambda hit: (-hit.score, hit.id))
        return finish(fused(dense, sparse[:limit], query.weights, query.text or "") if hybrid else sparse, query)

    @override
    async def count(self, name: str, *, tenant: str, vector_store_id: str = "") -> Count:
        own = scope(checked_name(name), tenant, vector_store_id)
        condition = _filter(own)
        with self._translated():
            # All at once: whoever lists many stores waits for one round trip.
            chunks, files, sizes = await asyncio.gather(
                self._client.count(name, count_filter=condition, exact=True),
                self._client.facet(name, "file_id", facet_filter=condition, limit=_ALL, exact=True),
                self._client.facet(name, "text_bytes", facet_filter=condition, limit=_ALL, exact=True),
            )
        counted = sum(hit.count for hit in sizes.hits)
        size = sum(int(hit.value) * hit.count for hit in sizes.hits)
        if counted < chunks.count:
            size += await self._unsaid_bytes(name, own)
        empty = sum(hit.count for hit in sizes.hits if int(hit.value) == 0)
        return Count(chunks.count - empty, len(files.hits), size)

    async def _unsaid_bytes(self, name: str, own: Mapping[str, Any]) -> int:
        """Add up the texts of points whose pipeline did not write `text_bytes`."""
        condition = _filter({"must": [*own["must"], {"is_empty": {"key": "text_bytes"}}]})
        size, offset = 0, None
        while True:
            with self._translated():
                records, offset = await self._client.scroll(
                    name, condition, limit=_SCANNED, offset=offset, with_payload=["text"]
                )
            size += sum(len(str((record.payload or {}).get("text") or "").encode()) for record in records)
            if offset is None:
                return size

    @override
    async def health(self) -> None:
        """Also raise ConfigError if the database refuses the key, or is too old."""
        try:
            with self._translated():
                self._see(str((await self._client.info()).version))
                await self._client.get_collections()  # the version is told to everybody, this needs the key
        except KeyRefused as error:
            raise ConfigError(error.for_operator) from None

    def _see(self, version: str) -> None:
        """Note the version of the server; ConfigError if it is too old."""
        if version == self._version:
            return
        found = _VERSION.match(version)
        if found is not None and (int(found[1]), int(found[2])) < _OLDEST:
            oldest = ".".join(map(str, _OLDEST))
            raise ConfigError(
                f"the vector database at {self._server} ('qdrant.url') is Qdrant {version}, which is too old; "
                f"file search needs {oldest} or later"
            )
        self._version = version
        logger.info("vector database: Qdrant %s at %s", version, self._server)

    @override
    async def close(self) -> None:
        await self._client.close()

    def _translated(self, *, already: bool = False) -> Translated:
        return Translated(self._server, already=already)


def _server(settings: QdrantSettings) -> str:
    """Return the host and the port that are asked, to be shown."""
    parts = urlsplit(settings.url)
    host = parts.hostname or "localhost"
    port = settings.grpc_port if settings.grpc else parts.port or _PORT
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _indexes(name: str, attributes: Mapping[str, str]) -> dict[str, Any]:
    """Return what is searched by: without an index a filter looks at every point."""
    english = models.Language.ENGLISH
    found: dict[str, Any] = {
        "tenant": models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, is_tenant=True),
        "file_id": models.PayloadSchemaType.KEYWORD,
        "text_bytes": models.IntegerIndexParams(type=models.IntegerIndexType.INTEGER, lookup=True, range=False),
        "text": models.TextIndexParams(
            type=models.TextIndexType.TEXT,
            tokenizer=models.TokenizerType.WORD,
            lowercase=True,
            stopwords=english,
            stemmer=models.SnowballParams(type=models.Snowball.SNOWBALL, language=models.SnowballLanguage.ENGLISH),
        ),
    }
    if is_shared(name):
        found["vector_store_id"] = models.PayloadSchemaType.KEYWORD
    kinds = {kind: models.PayloadSchemaType(kind) for kind in ("keyword", "float", "bool")}
    return found | {attribute_path(key): kinds[kind] for key, kind in attributes.items()}


def _filter(condition: Mapping[str, Any]) -> models.Filter:
    return models.Filter.model_validate(condition)


def _batches(name: str, chunks: Mapping[str, Chunk]) -> Iterator[list[models.PointStruct]]:
    """Return the points of chunks, divided into requests that are not too large."""
    batch: list[models.PointStruct] = []
    size = 0
    for id_, chunk in chunks.items():
        payload = payload_of(name, chunk)
        text = payload["text"]
        # The text goes twice: it is also what the server makes the sparse vector of.
        own = len(msgspec.json.encode([payload, text])) + _NUMBER_BYTES * len(chunk.vector)
        if batch and (len(batch) == _BATCH or size + own > _BATCH_BYTES):
            yield batch
            batch, size = [], 0
        vectors: JSON = {"": list(chunk.vector)}
        if text:
            vectors[_SPARSE] = models.Document(text=text, model=_BM25)
        batch.append(models.PointStruct(id=id_, vector=vectors, payload=payload))
        size += own
    if batch:
        yield batch


def _request(condition: models.Filter, limit: int, **options: Any) -> models.QueryRequest:
    return models.QueryRequest(filter=condition, limit=limit, with_payload=FIELDS, **options)


def _without_sparse(condition: models.Filter, limit: int, words: Sequence[str]) -> models.QueryRequest:
    """Look for points of pipelines that write no sparse vector, by how many of the words they have."""
    any_word = models.FieldCondition(key="text", match=models.MatchTextAny(text_any=" ".join(words)))
    lacking = models.Filter(must=[condition, any_word], must_not=[models.HasVectorCondition(has_vector=_SPARSE)])
    each = [models.FieldCondition(key="text", match=models.MatchText(text=word)) for word in words]
    return models.QueryRequest(
        prefetch=[models.Prefetch(filter=lacking, limit=_SCANNED)],
        query=models.FormulaQuery(formula=models.SumExpression(sum=list(each))),
        limit=limit,
        with_payload=FIELDS,
    )


def _hit(point: models.ScoredPoint, score: float) -> Hit:
    return hit_of(str(point.id), score, point.payload)
