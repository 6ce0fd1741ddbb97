"""A Qdrant server, over its REST API."""

import asyncio
import contextlib
import logging
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import msgspec
from typing_extensions import override

from antwort.extensions import (
    PREFIX,
    Attributes,
    Chunk,
    Count,
    Hit,
    NoCollection,
    Query,
    VectorDatabase,
    WrongDimensions,
    candidates,
    check_dimensions,
    checked_name,
    cosine_score,
    finish,
    fused,
    is_shared,
    saturated,
    storable,
    store_of,
)
from antwort.provider import JSON, ConfigError, HttpClient, Services
from antwort.providers.file_search.settings import QdrantSettings
from antwort.providers.file_search.vectors.points import (
    BM25_HALF,
    FIELDS,
    attribute_path,
    attributes_payload,
    by_chunk,
    chunk_scope,
    hit_of,
    ids_scope,
    payload_of,
    scope,
    unique,
)
from antwort.providers.file_search.vectors.qdrant.rest import (
    MOST,
    Collection,
    Collections,
    Counted,
    Exists,
    Facet,
    KeyRefused,
    Point,
    Points,
    QdrantRest,
    Scrolled,
    params,
)

logger = logging.getLogger(__name__)


_SPARSE = "bm25"
_BM25 = "qdrant/bm25"
"""The server's own model: it needs nothing but the text."""
_BATCH, _BATCH_BYTES = 128, 8_000_000
"""Points in one request, and bytes, unless a point alone has more: Qdrant takes 32 MiB if nobody says otherwise."""
_NUMBER_BYTES = 24
"""Room for one number of a vector, spelled out."""
_POINT_BYTES = 640 * 1024
"""Room for one point in an answer: the longest text that our own route takes, with what it needs besides."""
_LONGEST = 32 << 20
"""Bytes of an answer with points, however many they are."""
_OLDEST = (1, 16)
"""The oldest Qdrant that has all that is asked of it, such as `text_any`."""
_SCANNED = 1000
"""Points without a sparse vector that are compared by the words they share with a query."""
_WORDS = 16
"""Words of a query that such points are compared by."""
_UNSPARSE_BEST = 0.5
"""The score of such a point that has every word of the query."""
_ALL = 1_000_000
"""As many values as there are."""
_OWNERS = ["tenant", "vector_store_id"]
"""What says whose a point is."""
_WORD = re.compile(r"\w+")
_VERSION = re.compile(r"(\d+)\.(\d+)")


class Qdrant(VectorDatabase):
    """Keeps each collection on a Qdrant server. Keyword search is BM25, computed by the server."""

    def __init__(self, settings: QdrantSettings, http: HttpClient) -> None:
        self.name = "qdrant"
        self._settings = settings
        self._rest = QdrantRest(http, settings)
        self._version: str | None = None

    @classmethod
    def of(cls, settings: QdrantSettings, services: Services) -> Self:
        """Make it as the settings say."""
        return cls(settings, services.http)

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
        made: JSON = {
            "vectors": {"size": dimensions, "distance": "Cosine", **params(on_disk=settings.on_disk or None)},
            "sparse_vectors": {_SPARSE: {"modifier": "idf"}},
            **params(
                # Every search of a shared collection is one tenant's: a graph for each is all that is needed.
                hnsw_config={"m": 0, "payload_m": 16} if is_shared(name) else None,
                optimizers_config=params(default_segment_number=settings.segments or (None if is_shared(name) else 1)),
                shard_number=settings.shards,
                replication_factor=settings.replication,
                write_consistency_factor=settings.write_consistency,
            ),
        }
        await self._rest.create(_path(name), made)

    async def _index(self, name: str) -> None:
        there = (await self._rest.ask("GET", _path(name), Collection)).payload_schema
        wanted = _indexes(name, self._settings.indexed_attributes).items()
        missing = [{"field_name": field, "field_schema": schema} for field, schema in wanted if field not in there]
        # All at once: the server waits for the disk with each.
        await asyncio.gather(
            *(self._rest.ask("PUT", _path(name, "/index"), msgspec.Raw, one, wait=True) for one in missing)
        )

    @override
    async def delete_collection(self, name: str) -> None:
        with contextlib.suppress(NoCollection):
            await self._rest.ask("DELETE", _path(name), msgspec.Raw)

    @override
    async def collections(self) -> list[str]:
        found = await self._rest.ask("GET", "/collections", Collections)
        return sorted(one.name for one in found.collections if one.name.startswith(PREFIX))

    @override
    async def dimensions(self, name: str) -> int | None:
        if not (await self._rest.ask("GET", _path(name, "/exists"), Exists)).exists:
            return None
        try:
            return (await self._rest.ask("GET", _path(name), Collection)).config.params.vectors.size
        except NoCollection:  # deleted in between
            return None

    @override
    async def upsert(self, name: str, chunks: Sequence[Chunk]) -> None:
        points = unique(checked_name(name), chunks)
        if points:
            first = next(iter(points.values()))
            check_dimensions(len(first.vector), (chunk.vector for chunk in points.values()))
        for batch in _batches(name, points):
            await self._rest.ask("PUT", _path(name, "/points"), msgspec.Raw, {"points": batch}, wait=True)

    @override
    async def delete(self, name: str, *, tenant: str, file_id: str | None = None, vector_store_id: str = "") -> None:
        await self._delete(name, scope(checked_name(name), tenant, vector_store_id, file_id))

    @override
    async def remove(self, name: str, ids: Sequence[str], *, tenant: str, vector_store_id: str = "") -> None:
        await self._delete(name, ids_scope(checked_name(name), ids, tenant, vector_store_id))

    async def _delete(self, name: str, condition: JSON) -> None:
        await self._rest.ask("POST", _path(name, "/points/delete"), msgspec.Raw, {"filter": condition}, wait=True)

    @override
    async def set_attributes(
        self, name: str, attributes: Attributes, *, tenant: str, file_id: str, vector_store_id: str = ""
    ) -> None:
        condition = scope(checked_name(name), tenant, vector_store_id, file_id)
        body = {"payload": attributes_payload(attributes), "filter": condition}
        await self._rest.ask("POST", _path(name, "/points/payload"), msgspec.Raw, body, wait=True)

    @override
    async def fetch(self, name: str, ids: Sequence[str], *, tenant: str, vector_store_id: str = "") -> dict[str, Hit]:
        condition = ids_scope(checked_name(name), ids, tenant, vector_store_id)
        most = len(ids) or 1
        body = {"filter": condition, "limit": most, "with_payload": FIELDS + _OWNERS}
        scrolled = await self._rest.ask("POST", _path(name, "/points/scroll"), Scrolled, body, most=_room(most))
        hits = self._hits(name, scrolled.points, most, tenant, vector_store_id)
        return by_chunk(name, ids, {hit.id: hit for hit in hits}, tenant, vector_store_id)

    @override
    async def search(self, name: str, query: Query) -> list[Hit]:
        condition = chunk_scope(checked_name(name), query)
        hybrid = query.vector is not None and query.text is not None
        limit = candidates(query) if hybrid else query.limit
        requests: list[JSON] = []
        if query.vector is not None:
            requests.append(_request(condition, limit, query=list(query.vector)))
        words: list[str] = []
        if query.text is not None:
            text = storable(query.text)
            words = list(dict.fromkeys(_WORD.findall(text.lower())))[:_WORDS]
            if words:
                requests.append(_request(condition, limit, query={"text": text, "model": _BM25}, using=_SPARSE))
                requests.append(_without_sparse(condition, limit, words))
        found = await self._found(name, requests, limit, query)
        dense = [_scored(hit, cosine_score(hit.score)) for hit in found.pop(0)] if query.vector is not None else []
        if query.text is None:
            return finish(dense, query)
        sparse = [_scored(hit, saturated(hit.score, BM25_HALF)) for hit in found[0]] if words else []
        sparse += [_scored(hit, _UNSPARSE_BEST * hit.score / len(words)) for hit in found[1]] if words else []
        sparse.sort(key=lambda hit: (-hit.score, hit.id))
        return finish(fused(dense, sparse[:limit], query.weights, query.text or "") if hybrid else sparse, query)

    async def _found(self, name: str, requests: Sequence[JSON], limit: int, query: Query) -> list[list[Hit]]:
        """Return what each of some requests finds, with the server's own scores."""
        if not requests:
            await self._rest.ask("GET", _path(name), Collection)
            return []
        path, body = _path(name, "/points/query/batch"), {"searches": list(requests)}
        answers = await self._rest.ask("POST", path, list[Points], body, most=_room(len(requests) * limit))
        if len(answers) != len(requests):
            raise self._rest.lie(f"{len(answers)} answers to {len(requests)} searches")
        return [self._hits(name, one.points, limit, query.tenant, query.vector_store_id) for one in answers]

    def _hits(self, name: str, points: Sequence[Point], most: int, tenant: str, vector_store_id: str) -> list[Hit]:
        """Return points as hits; VectorStoreUnavailable if there are too many, or one is not whose it should be."""
        if len(points) > most:
            raise self._rest.lie(f"{len(points)} points where {most} were asked for")
        hits: list[Hit] = []
        for point in points:
            try:
                fields = {} if point.payload is None else point.payload.fields()
            except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
                raise self._rest.lie(f"a payload that cannot be read: {error}") from None
            is_stores = not is_shared(name) or fields.get("vector_store_id") == store_of(name, vector_store_id)
            if fields.get("tenant") != tenant or not is_stores:
                raise self._rest.lie(f"a point of somebody else was given, {point.id!s:.100}")
            if not math.isfinite(point.score):
                raise self._rest.lie(f"the score {point.score}")
            hits.append(hit_of(str(point.id), point.score, fields))
        return hits

    @override
    async def count(self, name: str, *, tenant: str, vector_store_id: str = "") -> Count:
        own = scope(checked_name(name), tenant, vector_store_id)
        # All at once: whoever lists many stores waits for one round trip.
        chunks, files, sizes = await asyncio.gather(
            self._rest.ask("POST", _path(name, "/points/count"), Counted, {"filter": own, "exact": True}),
            self._facet(name, "file_id", own),
            self._facet(name, "text_bytes", own),
        )
        by_size: dict[int, int] = {}
        for hit in sizes.hits:
            if not isinstance(hit.value, int) or hit.value < 0 or hit.count < 0:
                raise self._rest.lie(f"{hit.count} points of {hit.value!s:.100} bytes")
            by_size[hit.value] = hit.count
        unsaid = chunks.count - sum(by_size.values())
        size = sum(value * count for value, count in by_size.items())
        if unsaid > 0:
            size += await self._unsaid_bytes(name, own, unsaid)
        return Count(max(0, chunks.count - by_size.get(0, 0)), len(files.hits), size)

    async def _facet(self, name: str, key: str, own: JSON) -> Facet:
        body = {"key": key, "filter": own, "limit": _ALL, "exact": True}
        return await self._rest.ask("POST", _path(name, "/facet"), Facet, body, most=_LONGEST)

    async def _unsaid_bytes(self, name: str, own: JSON, most: int) -> int:
        """Add up the texts of points whose pipeline did not write `text_bytes`: there are about so many."""
        condition = {"must": [*own["must"], {"is_empty": {"key": "text_bytes"}}]}
        body: JSON = {"filter": condition, "limit": _SCANNED, "with_payload": ["text"]}
        size, seen = 0, 0
        while seen <= 2 * most + _SCANNED:  # some may be written meanwhile
            page = await self._rest.ask("POST", _path(name, "/points/scroll"), Scrolled, body, most=_LONGEST)
            for point in page.points:
                text = None if point.payload is None else point.payload.fields().get("text")
                size += len(text.encode()) if isinstance(text, str) else 0
            if page.next_page_offset is None:
                return size
            if not page.points or page.next_page_offset == body.get("offset"):
                raise self._rest.lie("a list of points that does not go on")
            seen += len(page.points)
            body["offset"] = page.next_page_offset
        raise self._rest.lie(f"a list of points that goes on after {seen:,} of about {most:,}")

    @override
    async def health(self) -> None:
        """Also raise ConfigError if the database refuses the key, or is too old."""
        try:
            self._see((await self._rest.root()).version)
            await self._rest.ask("GET", "/collections", Collections)  # the version is told to everybody, not this
        except KeyRefused as error:
            raise ConfigError(error.for_operator) from None

    def _see(self, version: str) -> None:
        """Note the version of the server; ConfigError if it is too old."""
        if version == self._version:
            return
        found = _VERSION.match(version[:100])
        if found is not None and (int(found[1]), int(found[2])) < _OLDEST:
            oldest = ".".join(map(str, _OLDEST))
            raise ConfigError(
                f"the vector database at {self._rest.server} ('qdrant.url') is Qdrant {version}, which is too old; "
                f"file search needs {oldest} or later"
            )
        self._version = version
        logger.info("vector database: Qdrant %s at %s", version[:100], self._rest.server)

    @override
    async def close(self) -> None:
        """Nothing is open: the HTTP client is the owner's."""


def _path(name: str, rest: str = "") -> str:
    return f"/collections/{checked_name(name)}{rest}"


def _room(points: int) -> int:
    """Return how large an answer with so many points may be."""
    return min(_LONGEST, MOST + points * _POINT_BYTES)


def _indexes(name: str, attributes: Mapping[str, str]) -> dict[str, Any]:
    """Return what is searched by: without an index a filter looks at every point."""
    found: dict[str, Any] = {
        "tenant": {"type": "keyword", "is_tenant": True},
        "file_id": "keyword",
        "text_bytes": {"type": "integer", "lookup": True, "range": False},
        "text": {
            "type": "text",
            "tokenizer": "word",
            "lowercase": True,
            "stopwords": "english",
            "stemmer": {"type": "snowball", "language": "english"},
        },
    }
    if is_shared(name):
        found["vector_store_id"] = "keyword"
    return found | {attribute_path(key): kind for key, kind in attributes.items()}


def _batches(name: str, chunks: Mapping[str, Chunk]) -> Iterator[list[JSON]]:
    """Return the points of chunks, divided into requests that are not too large."""
    batch: list[JSON] = []
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
            vectors[_SPARSE] = {"text": text, "model": _BM25}
        batch.append({"id": id_, "vector": vectors, "payload": payload})
        size += own
    if batch:
        yield batch


def _request(condition: JSON, limit: int, **options: Any) -> JSON:
    return {"filter": condition, "limit": limit, "with_payload": FIELDS + _OWNERS, **options}


def _without_sparse(condition: JSON, limit: int, words: Sequence[str]) -> JSON:
    """Look for points of pipelines that write no sparse vector, by how many of the words they have."""
    any_word = {"key": "text", "match": {"text_any": " ".join(words)}}
    lacking = {"must": [condition, any_word], "must_not": [{"has_vector": _SPARSE}]}
    each = [{"key": "text", "match": {"text": word}} for word in words]
    return {
        "prefetch": [{"filter": lacking, "limit": _SCANNED}],
        "query": {"formula": {"sum": each}},
        "limit": limit,
        "with_payload": FIELDS + _OWNERS,
    }


def _scored(hit: Hit, score: float) -> Hit:
    return replace(hit, score=score)
