"""The search itself: one embedding, every store at once, one ranking over all of them."""

import asyncio
import logging
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from itertools import accumulate

from antwort.extensions import (
    FEWEST,
    EmbeddingClient,
    EmbeddingUnavailable,
    Filter,
    Hit,
    NoCollection,
    Query,
    VectorDatabase,
    WrongDimensions,
    balanced_scores,
    joint_scores,
    likenesses,
    queries_at_once,
)
from antwort.provider import FunctionError, Slots
from antwort.providers.file_search.chunks import chunk_of
from antwort.providers.file_search.errors import FileSearchError
from antwort.providers.file_search.ingestion.store_files import ChunkPosition
from antwort.providers.file_search.store_record import VectorStoreRecord
from antwort.providers.file_search.together import together
from antwort.providers.file_search.wire import RankingOptions

logger = logging.getLogger(__name__)

_AT_ONCE = 8
"""Searches of the database that run at the same time for one call."""
_SPARE, _MOST_SPARE = 2, 10
"""How many times more is asked of each store than is wanted, as some are the same chunk again, and how many at most:
windows often are, others seldom."""
_MORE = 4
"""How many times more is asked the next time, if too many were."""
_MOST = 1000
"""Hits that are asked of a store at most, however many are the same chunk."""
_EQUAL = 1.0, 1.0
"""Weights of meaning and words: names and numbers are found by words, what is asked otherwise by meaning."""
_SURE, _ENOUGH = 10, 20_000
"""Results that there are in any case, and characters after which there are no further ones, if nobody says how many."""
_KNOWN = 500
"""Queries whose vectors are kept."""
_NOTHING = array("d")
_SLACK = 4
"""How many times more hits than are wanted are kept while others come in."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What to look for; a chunk that fits one of several queries is found."""

    queries: tuple[str, ...]
    limit: int
    filter: Filter | None = None
    threshold: float | None = None
    weights: tuple[float, float] | None = None
    """How much meaning and words count; None for meaning alone."""
    by_likeness: bool = False
    """Scores are likenesses of vectors, also where words count for the order; so is the threshold."""
    rerank: bool = True
    """Rank what is found a second time, if the server can."""
    until_enough: bool = False
    """There are as many results as have a certain length, since nobody says how many."""

    def enough_of(self, found: list["RankedChunk"]) -> list["RankedChunk"]:
        """Return the best results, as many as are wanted: short ones are more than long ones."""
        if not self.until_enough:
            return found
        ends = accumulate(len(one.hit.text) for one in found)
        return [
            one for number, (one, end) in enumerate(zip(found, ends, strict=True)) if number < _SURE or end <= _ENOUGH
        ]

    @classmethod
    def of(
        cls,
        queries: tuple[str, ...],
        limit: int,
        filter_: Filter | None,
        ranking: RankingOptions | None,
        *,
        hybrid: bool,
    ) -> "Wish":
        """Put together what a request said; `hybrid` says whether words count in one that does not say it.

        Who names no weights gets likenesses of vectors as scores, and means them with a threshold.
        """
        threshold = (ranking and ranking.score_threshold) or None
        asked = ranking and ranking.hybrid_search
        weights = (asked.embedding_weight, asked.text_weight) if asked else None
        if hybrid and asked is None:
            weights = _EQUAL
        rerank = ranking is None or ranking.ranker != "none"
        return cls(queries, limit, filter_, threshold, weights, asked is None, rerank)


@dataclass(frozen=True, slots=True)
class RankedChunk:
    """A chunk, or several that follow each other, and the store it is in."""

    store: VectorStoreRecord
    hit: Hit
    position: ChunkPosition | None = None
    """Where in its file it stands, if that is known."""
    last_index: int | None = None
    """The position of the last of several chunks, if it is these; that of the first is in the hit."""

    @property
    def key(self) -> tuple[str, str]:
        """What makes two chunks the same, wherever they are."""
        return self.hit.file_id, self.hit.text


@dataclass(slots=True)
class SearchOutcome:
    """What was found, best first."""

    found: list[RankedChunk] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What the reader should know about how it was found."""
    by_keywords: bool = False
    """The query could not be embedded; words were searched for."""


class Searcher:
    """Searches vector stores."""

    def __init__(
        self,
        backend: VectorDatabase,
        embedding: EmbeddingClient,
        embedding_timer: Callable[[], AbstractContextManager[object]],
        slots: Slots | None = None,
    ) -> None:
        self._backend = backend
        self.slots = slots or Slots(queries_at_once(embedding))
        """Queries that are embedded at the same time."""
        self._vectors = QueryVectors(embedding, embedding_timer, self.slots)

    async def search(self, stores: Sequence[VectorStoreRecord], wish: Wish, *, embed_within: float) -> SearchOutcome:
        """Search stores of one tenant; FunctionError if that cannot be done.

        A store that disappears meanwhile has no results; the others have theirs. If there are no vectors after
        `embed_within` seconds, words are searched for, as if the queries could not be embedded.
        """
        findings = SearchOutcome()
        if not stores:
            return findings
        vectors: list[list[float]] | None = None
        try:
            vectors = await self._vectors.of(wish.queries, stores, embed_within)
        except EmbeddingUnavailable as error:
            logger.warning("file search: %s Keywords are searched for instead.", error)
            findings.by_keywords = True
            findings.notes.append(
                "The query could not be embedded, so that chunks were found by their words alone, not by their meaning."
            )
        else:
            stores = _fitting(stores, len(vectors[0]), findings)
        try:
            hits = await self._everywhere(stores, wish, vectors)
        except FunctionError as error:
            if not findings.by_keywords:
                raise
            raise FileSearchError(
                f"The query could not be embedded, and a search by keywords failed: {error}"
            ) from error
        best = _Best(wish.limit)
        for rank, group in enumerate(hits):
            best.take(group, rank)
        findings.found = [_with_likeness(one) for one in best.ranked()] if wish.by_likeness else best.ranked()
        return findings

    async def _everywhere(
        self, stores: Sequence[VectorStoreRecord], wish: Wish, vectors: list[list[float]] | None
    ) -> list[list[RankedChunk]]:
        """Return what each query finds in all stores, a few searches at a time; the first failure ends all."""
        slots = asyncio.Semaphore(_AT_ONCE)

        async def one(store: VectorStoreRecord, look: Query) -> list[RankedChunk]:
            async with slots:
                return await self._search(store, look, wish.limit)

        async def over_all(look: Query) -> list[RankedChunk]:
            best = _Best(look.limit)

            async def visit(rank: int, store: VectorStoreRecord) -> None:
                best.take(await one(store, look), rank)

            await together(visit(rank, store) for rank, store in enumerate(stores))
            return best.ranked()

        async def answer(number: int) -> list[RankedChunk]:
            looks = _looks(wish, number, vectors[number] if vectors else None, stores)
            near, *worded = await together(over_all(look) for look in looks)
            return _joined(near, worded[0], wish, wish.queries[number]) if worded else near

        return await together(answer(number) for number in range(len(wish.queries)))

    async def _search(self, store: VectorStoreRecord, look: Query, wanted: int) -> list[RankedChunk]:
        """Return what is found in a store, each chunk once: as many as are wanted, if they are there.

        Where the same chunk takes the places of others, more is asked for; there is an end to that.
        """
        hidden = frozenset[str]() if store.early_results else store.unfinished
        query = replace(look, tenant=store.tenant, vector_store_id=store.id, without=tuple(sorted(hidden)))
        while True:
            hits = await self._hits(store, query)
            got = len(hits)
            if store.windows:
                hits = await self._whole(store, hits)
            found: dict[tuple[str, str], RankedChunk] = {}
            for one in (RankedChunk(store, hit) for hit in hits if hit.file_id not in hidden):
                found.setdefault(one.key, one)
            if len(found) >= wanted or got < query.limit or query.limit >= _MOST:
                return list(found.values())
            query = replace(query, limit=min(_MORE * query.limit, _MOST))

    async def _whole(self, store: VectorStoreRecord, hits: list[Hit]) -> list[Hit]:
        """Put chunks in the place of their windows, with the windows' scores."""
        chunks = [chunk_of(hit) for hit in hits]
        wanted = list(dict.fromkeys(filter(None, chunks)))
        if not wanted:
            return hits
        try:
            whole = await self._backend.fetch(store.collection, wanted, tenant=store.tenant, vector_store_id=store.id)
        except NoCollection:  # deleted, or expired, since it was searched
            return []
        shown = [(hit, hit if chunk is None else whole.get(chunk)) for hit, chunk in zip(hits, chunks, strict=True)]
        return [replace(chunk, score=hit.score, likeness=hit.likeness) for hit, chunk in shown if chunk is not None]

    async def _hits(self, store: VectorStoreRecord, query: Query) -> list[Hit]:
        try:
            return await self._backend.search(store.collection, query)
        except NoCollection:  # deleted, or expired, since it was looked up
            logger.info("file search: vector store %s is gone", store.id)
            return []
        except WrongDimensions as error:
            raise FunctionError(_mismatch(store, error.wanted, error.got)) from None


def _depth(wish: Wish, stores: Sequence[VectorStoreRecord]) -> int:
    """Return how many hits to look for: several may be of one chunk where these are found by their windows."""
    most = _MOST if any(store.windows for store in stores) else _MOST_SPARE
    return min(wish.limit * _SPARE, wish.limit + most)


def _looks(wish: Wish, number: int, vector: list[float] | None, stores: Sequence[VectorStoreRecord]) -> list[Query]:
    """Return how every store is searched for one query.

    A database can join both kinds of search within one store. Over several it cannot: ranks in one say nothing about
    those in another, so each kind is ranked over all stores first. Nor can it where chunks are found by their windows.
    """
    text = wish.queries[number] if vector is None or wish.weights is not None else None
    ranked = vector is not None and text is not None and wish.by_likeness
    look = Query(
        "",
        vector,
        text,
        limit=_depth(wish, stores),
        filter=wish.filter,
        # Who names a threshold means the likeness of vectors; the scores of words are others.
        threshold=wish.threshold if vector is not None and not ranked else None,
        least_likeness=wish.threshold if ranked else None,
        weights=None if vector is None or ranked else wish.weights,
    )
    joins = len(stores) == 1 and not stores[0].windows
    if joins or vector is None or text is None:
        return [look]
    wide = replace(look, limit=max(FEWEST, look.limit), threshold=None, least_likeness=None, weights=None)
    return [replace(wide, text=None), replace(wide, vector=None)]


def _fitting(stores: Sequence[VectorStoreRecord], dimensions: int, findings: SearchOutcome) -> list[VectorStoreRecord]:
    """Return the stores whose vectors are as long as the query's; FunctionError if there is none."""
    problems = [_mismatch(store, store.dimensions, dimensions) for store in stores if store.dimensions != dimensions]
    if len(problems) == len(stores):
        raise FunctionError(problems[0])
    findings.notes += problems
    return [store for store in stores if store.dimensions == dimensions]


def _mismatch(store: VectorStoreRecord, wanted: int, got: int) -> str:
    return (
        f"Vector store {store.id} holds vectors of {wanted} dimensions and was not searched: the embedding model gives "
        f"{got}. Configure the model its documents were embedded with, or ingest them again into a new store."
    )


def _joined(near: Sequence[RankedChunk], worded: Sequence[RankedChunk], wish: Wish, query: str) -> list[RankedChunk]:
    """Join what was found by meaning and by words, each over all stores."""
    found = {one.key: one for one in (*worded, *near)}
    by_meaning, by_words = ({one.key: one.hit for one in ranked} for ranked in (near, worded))
    if wish.by_likeness:
        scores = balanced_scores(by_meaning, by_words, query)
    else:
        texts = [{key: hit.text for key, hit in hits.items()} for hits in (by_meaning, by_words)]
        scores = joint_scores(texts[0], texts[1], wish.weights, query)
    like = likenesses({one.key: one.hit.score for one in near}, found)
    least = wish.threshold or 0.0
    return [
        RankedChunk(found[key].store, replace(found[key].hit, score=score, likeness=like[key]))
        for key, score in scores.items()
        if (like[key] if wish.by_likeness else score) >= least
    ]


def _with_likeness(one: RankedChunk) -> RankedChunk:
    """Return a chunk with its likeness as its score, if that is known."""
    hit = one.hit
    if hit.likeness is None:
        return one
    # `replace` takes four times as long.
    alike = Hit(hit.id, hit.likeness, hit.text, hit.file_id, hit.filename, hit.index, hit.attributes, hit.likeness)
    return RankedChunk(one.store, alike, one.position, one.last_index)


class QueryVectors:
    """Embeds queries, and knows those of late: people ask again, and read on.

    Each tenant has its own, so that how long a search takes tells nobody what others have asked.
    """

    def __init__(
        self,
        embedding: EmbeddingClient,
        timer: Callable[[], AbstractContextManager[object]],
        slots: Slots,
        *,
        most: int = _KNOWN,
    ) -> None:
        self._embedding = embedding
        self._timer = timer
        self._most = most
        self._slots = slots
        self._known: OrderedDict[tuple[str, str], array[float]] = OrderedDict()

    async def of(self, queries: Sequence[str], stores: Sequence[VectorStoreRecord], within: float) -> list[list[float]]:
        """Return the vectors of queries; EmbeddingUnavailable if they are not there within so many seconds.

        One that is too long or too short for all stores is made anew: there may be another model behind an address.
        """
        tenant, lengths = stores[0].tenant, {store.dimensions for store in stores}
        found = {query: self._known.get((tenant, query), _NOTHING) for query in queries}
        if missing := [query for query, vector in found.items() if len(vector) not in lengths]:
            vectors = await self._embedded(tenant, missing, within)
            found |= {query: array("d", vector) for query, vector in zip(missing, vectors, strict=True)}
        for query, vector in found.items():
            self._known[tenant, query] = vector
            self._known.move_to_end((tenant, query))
        while len(self._known) > self._most:
            self._known.popitem(last=False)
        return [found[query].tolist() for query in queries]

    async def _embedded(self, tenant: str, queries: Sequence[str], within: float) -> list[list[float]]:
        try:
            with self._timer():
                async with asyncio.timeout(within), self._slots.taken_by(tenant):
                    return await self._embedding.embed(queries)
        except TimeoutError:
            raise EmbeddingUnavailable(
                f"Embedding did not end within {round(within, 3):g} s, its share of 'timeout'."
            ) from None


class _Best:
    """The best of what is found in several places, ranked as one, each chunk once; the rest is let go as it comes.

    Of what is equally good, that of the first rank comes first, in whatever order they are heard of.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._found: dict[tuple[str, str], tuple[float, int, RankedChunk]] = {}

    def take(self, group: Iterable[RankedChunk], rank: int) -> None:
        """Take what was found in one rank."""
        for one in group:
            worth = (-one.hit.score, rank, one)
            known = self._found.get(one.key)
            if known is None or worth[:2] < known[:2]:
                self._found[one.key] = worth
        if len(self._found) > _SLACK * self._limit:
            self._found = {worth[2].key: worth for worth in self._sorted()}

    def ranked(self) -> list[RankedChunk]:
        """Return them, best first."""
        return [one for _, _, one in self._sorted()]

    def _sorted(self) -> list[tuple[float, int, RankedChunk]]:
        return sorted(self._found.values(), key=lambda worth: (*worth[:2], worth[2].hit.id))[: self._limit]
