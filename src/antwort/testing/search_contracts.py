"""What vector databases, embeddings, re-rankers and search engines must hold to, as tests an author inherits."""

import asyncio
import contextlib
import math
import random
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, TypeVar
from uuid import UUID

from antwort.context import Context
from antwort.extensions import (
    Chunk,
    CompareOp,
    Comparison,
    Compound,
    Count,
    EmbeddingClient,
    Filter,
    Hit,
    NoCollection,
    Query,
    Reranker,
    Scalar,
    SearchEngine,
    SearchError,
    Unavailable,
    VectorDatabase,
    WrongDimensions,
    collection_name,
    matches,
    shared_collection_name,
)
from antwort.outbound import Outbound

C = TypeVar("C")

_TENANT, _OTHER = "tenant-a", "tenant-b"
_KEYS = ("name", "size", "done", "a.b", "wörter [1]", "missing")
_VALUES: tuple[Scalar, ...] = ("", "red", "1", "true", "naïve 🦊", True, False, 0, 1, -2.5, 0.1, 1e6, 2**53 - 1)
_EQUALITIES: tuple[CompareOp, ...] = ("eq", "ne")
_ORDERS: tuple[CompareOp, ...] = ("gt", "gte", "lt", "lte")
_LISTS: tuple[CompareOp, ...] = ("in", "nin")
_ODD_TEXTS = ("", "nul \0 byte", "half \ud83d pair", "日本語 🦊 ünïcode", "x" * 50_000, "'; --")
_ODD_QUESTIONS = ("", "   ", "the", "?!", "& | ! ( ) :* <-> ''", '"', "a" * 3000, "\0", "fox " * 200)


def _alone(scenario: Callable[[C], Awaitable[None]]) -> Callable[[C], None]:
    """Make a test of what is to be done on an event loop, so that no plug-in of pytest is needed."""

    def test(self: C) -> None:
        async def run() -> None:
            await scenario(self)

        asyncio.run(run())

    test.__name__, test.__doc__ = scenario.__name__, scenario.__doc__
    return test


def _in_folder(
    scenario: Callable[["VectorDatabaseContract", VectorDatabase, str], Awaitable[None]],
) -> Callable[["VectorDatabaseContract", Path], None]:
    """Make a test of what is to be done with a database and the name of a new collection, of four dimensions."""

    def test(self: "VectorDatabaseContract", tmp_path: Path) -> None:
        async def run() -> None:
            database, name = self.make(tmp_path), collection_name(f"vs_{secrets.token_hex(16)}")
            try:
                await database.create_collection(name, 4)
                try:
                    await scenario(self, database, name)
                finally:
                    await database.delete_collection(name)
            finally:
                await database.close()

        asyncio.run(run())

    test.__name__, test.__doc__ = scenario.__name__, scenario.__doc__
    return test


def _near(angle: float) -> list[float]:
    """Return a vector at an angle, in degrees, to that of 0."""
    return [math.cos(math.radians(angle)), math.sin(math.radians(angle)), 0.0, 0.0]


def _chunk(
    number: int,
    text: str = "some text",
    *,
    file: str = "file-1",
    attributes: Mapping[str, Scalar] | None = None,
    tenant: str = _TENANT,
    store: str = "",
) -> Chunk:
    """Return a chunk; its number is its id and, in degrees, its angle."""
    return Chunk(
        id=str(UUID(int=number)),
        vector=_near(number),
        text=text,
        file_id=file,
        filename=f"{file}.txt",
        index=number,
        attributes=attributes or {},
        tenant=tenant,
        vector_store_id=store,
    )


def _numbers(hits: Sequence[Hit]) -> list[int]:
    return [hit.index for hit in hits]


def _some_filters(count: int) -> list[Filter]:
    """Return filters of every kind, the same each time."""
    pick = random.Random(4)  # noqa: S311 - the same each time
    numbers = [value for value in _VALUES if isinstance(value, int | float) and not isinstance(value, bool)]

    def comparison() -> Filter:
        ops = pick.choice([_EQUALITIES, _ORDERS, _LISTS])
        value: Scalar | tuple[Scalar, ...] = pick.choice(_VALUES)
        if ops is _ORDERS:
            value = pick.choice(numbers)
        elif ops is _LISTS:
            value = tuple(pick.sample(_VALUES, pick.randrange(4)))
        return Comparison(pick.choice(_KEYS), pick.choice(ops), value)

    def compound() -> Filter:
        return Compound(pick.choice(["and", "or"]), tuple(comparison() for _ in range(pick.randint(1, 3))))

    return [pick.choice([comparison, compound])() for _ in range(count)]


class VectorDatabaseContract:
    """The tests every vector database passes.

    Subclass it in a test module and say how one is made:

        class TestOurs(VectorDatabaseContract):
            def make(self, folder: Path) -> VectorDatabase:
                return Ours(OursSettings(path=folder / "vectors"))

    Each test has a folder and a collection of its own, and makes the database anew.
    """

    is_lasting: ClassVar[bool] = True
    """Whether chunks are still there when it is made anew."""

    def make(self, folder: Path) -> VectorDatabase:
        """Return the database, which has what it keeps in this folder or elsewhere."""
        raise NotImplementedError(f"{type(self).__name__} does not say what to test: override make()")

    @_in_folder
    async def test_a_collection_is_created_once_and_deleted_once(self, database: VectorDatabase, name: str) -> None:
        """Both may be done again, and change nothing then."""
        await database.upsert(name, [_chunk(1)])
        await database.create_collection(name, 4)
        assert await database.dimensions(name) == 4
        assert name in await database.collections()
        assert _numbers(await database.search(name, Query(_TENANT, _near(0)))) == [1]
        for _ in range(2):
            await database.delete_collection(name)
        assert await database.dimensions(name) is None
        assert name not in await database.collections()
        await database.create_collection(name, 4)
        assert await database.count(name, tenant=_TENANT) == Count()

    @_in_folder
    async def test_what_does_not_fit_is_refused(self, database: VectorDatabase, name: str) -> None:
        """Vectors of another length are WrongDimensions, a collection that is not there is NoCollection."""
        for refused in (
            database.create_collection(name, 8),
            database.search(name, Query(_TENANT, [1.0] * 5)),
        ):
            await _raises(refused, WrongDimensions)
        for missing in (collection_name("vs_missing"), "antwort_", "other", "antwort_../x", f"antwort_{'x' * 80}"):
            for call in (
                database.upsert(missing, [_chunk(1)]),
                database.search(missing, Query(_TENANT, _near(0))),
                database.search(missing, Query(_TENANT, text="some")),
                database.delete(missing, tenant=_TENANT),
                database.count(missing, tenant=_TENANT),
            ):
                await _raises(call, NoCollection)

    @_in_folder
    async def test_the_nearest_comes_first_and_scores_are_cosines(self, database: VectorDatabase, name: str) -> None:
        """A score is between 0 and 1; limit and threshold bound what is found."""
        await database.upsert(name, [_chunk(number) for number in (60, 0, 120, 30)])
        hits = await database.search(name, Query(_TENANT, [10 * one for one in _near(0)]))
        assert _numbers(hits) == [0, 30, 60, 120]
        for hit, score in zip(hits, (1.0, math.cos(math.pi / 6), 0.5, 0.0), strict=True):
            assert math.isclose(hit.score, score, abs_tol=1e-5), f"{hit.index}° scores {hit.score}, not {score}"
        assert _numbers(await database.search(name, Query(_TENANT, _near(0), limit=2))) == [0, 30]
        assert _numbers(await database.search(name, Query(_TENANT, _near(0), threshold=0.6))) == [0, 30]

    @_in_folder
    async def test_words_find_texts_and_both_are_joined(self, database: VectorDatabase, name: str) -> None:
        """A text without a vector searches by keywords; with one, both orders are joined."""
        texts = ["Foxes live in dens.", "Bread needs flour and salt.", "The invoice is due.", "A fox crossed the road."]
        await database.upsert(name, [_chunk(number, text) for number, text in enumerate(texts)])
        hits = await database.search(name, Query(_TENANT, text="Where does the fox live?"))
        assert hits, "a search by words finds nothing"
        assert {3} <= set(_numbers(hits)) <= {0, 2, 3}, "only what has words of the query is found"
        assert all(0.0 < hit.score <= 1.0 for hit in hits)
        assert await database.search(name, Query(_TENANT, text="unheard")) == []
        both = await database.search(name, Query(_TENANT, _near(1), "fox"))
        assert set(_numbers(both)) == {0, 1, 2, 3}
        assert all(0.0 < hit.score <= 1.0 for hit in both)
        assert [hit.score for hit in both] == sorted((hit.score for hit in both), reverse=True)
        for question in _ODD_QUESTIONS:
            await database.search(name, Query(_TENANT, text=question))
            assert len(await database.search(name, Query(_TENANT, _near(1), question))) == 4, question

    @_in_folder
    async def test_filters_find_what_they_mean(self, database: VectorDatabase, name: str) -> None:
        """What a filter means, `antwort.extensions.matches` says."""
        pick = random.Random(20)  # noqa: S311 - the same each time
        attributes: list[dict[str, Scalar]] = [
            {key: pick.choice(_VALUES) for key in _KEYS[:-1] if pick.random() < 0.7} for _ in range(40)
        ]
        await database.upsert(name, [_chunk(number, attributes=one) for number, one in enumerate(attributes)])
        for wanted in _some_filters(100):
            hits = await database.search(name, Query(_TENANT, _near(0), limit=100, filter=wanted))
            expected = [number for number, one in enumerate(attributes) if matches(wanted, one)]
            assert sorted(_numbers(hits)) == expected, f"{wanted} found others"

    @_in_folder
    async def test_a_chunk_comes_back_as_it_was(self, database: VectorDatabase, name: str) -> None:
        """Any text is kept, and attributes have their types; an id that is written again replaces its chunk."""
        attributes: dict[str, Scalar] = {"kind": "report", "year": 2024, "share": 0.1, "public": True, 'a.b "c"': "x"}
        await database.upsert(name, [_chunk(7, "old words", file="file-2")])
        await database.upsert(name, [_chunk(7, "What it says.", attributes=attributes)])
        (hit,) = await database.search(name, Query(_TENANT, _near(7)))
        assert (hit.text, hit.file_id, hit.filename, hit.index) == ("What it says.", "file-1", "file-1.txt", 7)
        assert hit.attributes == attributes
        assert [type(value) for value in hit.attributes.values()] == [type(hit.attributes[key]) for key in attributes]
        assert await database.search(name, Query(_TENANT, text="old")) == []
        for text in _ODD_TEXTS:
            await database.upsert(name, [_chunk(7, text)])
            (hit,) = await database.search(name, Query(_TENANT, _near(7)))
            stored = text.replace("\0", "\ufffd").replace("\ud83d", "\ufffd")
            assert hit.text == stored
            assert await database.count(name, tenant=_TENANT) == Count(1 if text else 0, 1, len(stored.encode()))

    @_in_folder
    async def test_chunks_are_deleted_by_file_and_by_id(self, database: VectorDatabase, name: str) -> None:
        """What is not there is passed over; attributes of a file are replaced."""
        await database.upsert(name, [_chunk(number, file=f"file-{number % 3}") for number in range(9)])
        await database.set_attributes(name, {"new": 1}, tenant=_TENANT, file_id="file-2")
        found = await database.search(name, Query(_TENANT, _near(0), filter=Comparison("new", "eq", 1)))
        assert sorted(_numbers(found)) == [2, 5, 8]
        await database.delete(name, tenant=_TENANT, file_id="file-1")
        wanted = [str(UUID(int=number)) for number in (0, 1, 2)]
        fetched = await database.fetch(name, wanted, tenant=_TENANT)
        assert {one: (hit.index, hit.score) for one, hit in fetched.items()} == {wanted[0]: (0, 0), wanted[2]: (2, 0)}
        await database.remove(name, wanted, tenant=_TENANT)
        assert (await database.count(name, tenant=_TENANT)).chunks == 4
        await database.delete(name, tenant=_TENANT)
        assert await database.count(name, tenant=_TENANT) == Count()
        await database.upsert(name, [])
        assert await database.search(name, Query(_TENANT, _near(0))) == []

    @_in_folder
    async def test_tenants_see_their_own_only(self, database: VectorDatabase, name: str) -> None:
        """In one collection, whatever is asked."""
        await database.upsert(name, [_chunk(1, "our fox"), _chunk(2, "their fox", file="file-2", tenant=_OTHER)])
        for query in (Query(_TENANT, _near(2)), Query(_TENANT, text="fox"), Query(_TENANT, _near(2), "their fox")):
            assert _numbers(await database.search(name, query)) == [1]
        await database.delete(name, tenant=_OTHER, file_id="file-1")
        await database.remove(name, [str(UUID(int=1))], tenant=_OTHER)
        assert await database.fetch(name, [str(UUID(int=1))], tenant=_OTHER) == {}
        assert await database.count(name, tenant=_TENANT) == Count(1, 1, 7)
        assert await database.count(name, tenant="tenant-c") == Count()

    @_in_folder
    async def test_stores_in_a_shared_collection_are_apart(self, database: VectorDatabase, name: str) -> None:
        """There chunks of one id are several, and the vector store has to be named."""
        shared = shared_collection_name(4)
        assert shared != name
        await database.create_collection(shared, 4)
        try:
            for store in ("vs_1", "vs_2"):
                await database.upsert(shared, [_chunk(1, f"fox of {store}", store=store)])
            for vector, text in ((_near(1), None), (None, "fox"), (_near(1), "fox")):
                hits = await database.search(shared, Query(_TENANT, vector, text, vector_store_id="vs_2"))
                assert [hit.text for hit in hits] == ["fox of vs_2"]
            await database.delete(shared, tenant=_TENANT, vector_store_id="vs_1")
            assert (await database.count(shared, tenant=_TENANT, vector_store_id="vs_2")).chunks == 1
            fetched = await database.fetch(shared, [str(UUID(int=1))], tenant=_TENANT, vector_store_id="vs_2")
            assert [hit.text for hit in fetched.values()] == ["fox of vs_2"]
            await _raises(database.search(shared, Query(_TENANT, _near(1))), ValueError)
        finally:
            await database.delete_collection(shared)

    @_in_folder
    async def test_many_search_at_once(self, database: VectorDatabase, name: str) -> None:
        """What is written is found when the call returns, whatever else is going on."""
        await database.upsert(name, [_chunk(number, f"word{number}") for number in range(90)])

        async def one(number: int) -> None:
            await database.upsert(name, [_chunk(1000 + number, f"new{number}")])
            assert _numbers(await database.search(name, Query(_TENANT, text=f"new{number}"))) == [1000 + number]

        await asyncio.gather(*(one(number) for number in range(20)))
        assert (await database.count(name, tenant=_TENANT)).chunks == 110

    def test_chunks_last(self, tmp_path: Path) -> None:
        """They are there when the database is made anew; it is healthy, and closed twice without harm."""
        name = collection_name(f"vs_{secrets.token_hex(16)}")

        async def write() -> None:
            database = self.make(tmp_path)
            await database.health()
            await database.create_collection(name, 4)
            await database.upsert(name, [_chunk(1, "it lasts")])
            for _ in range(2):
                await database.close()

        async def read() -> None:
            database = self.make(tmp_path)
            try:
                if self.is_lasting:
                    assert _numbers(await database.search(name, Query(_TENANT, text="lasts"))) == [1]
                await database.delete_collection(name)
            finally:
                await database.close()

        asyncio.run(write())
        asyncio.run(read())


class EmbeddingContract:
    """The tests every embedding passes; a subclass says how one is made."""

    async def make(self) -> EmbeddingClient:
        """Return a new client."""
        raise NotImplementedError(f"{type(self).__name__} does not say what to test: override make()")

    @_alone
    async def test_each_text_has_a_vector_in_order(self) -> None:
        """All have the same length, and a text has the same vector whatever is embedded beside it."""
        embedding = await self.make()
        try:
            await embedding.check()
            texts = ["How do foxes live?", "", "日本語 🦊", "The invoice is due."]
            vectors = await embedding.embed(texts)
            assert {len(vector) for vector in vectors} == {await embedding.dimensions()}
            assert all(map(math.isfinite, [number for vector in vectors for number in vector]))
            assert len(vectors) == len(texts)
            (alone,) = await embedding.embed([texts[3]])
            assert _cosine(alone, vectors[3]) > 0.999, "the vectors are not in the order of the texts"
            assert await embedding.embed([]) == []
        finally:
            for _ in range(2):
                await embedding.close()

    @_alone
    async def test_a_long_text_has_a_vector_for_each_window(self) -> None:
        """`embed_whole` has at least one vector for each text."""
        embedding = await self.make()
        try:
            windows = await embedding.embed_whole(["short", "many words " * 2000])
            assert len(windows) == 2
            assert all(windows)
            lengths = {len(vector) for one in windows for vector in one}
            assert lengths == {await embedding.dimensions()}
        finally:
            await embedding.close()


class RerankerContract:
    """The tests every re-ranker passes; a subclass says how one is made."""

    query: ClassVar[str] = "how are tea leaves dried"
    right: ClassVar[str] = "tea leaves are dried in the shade"
    """A text that answers the query."""
    wrong: ClassVar[str] = "the invoice is due within thirty days"
    """One that does not."""

    async def make(self) -> Reranker:
        """Return a new re-ranker."""
        raise NotImplementedError(f"{type(self).__name__} does not say what to test: override make()")

    @_alone
    async def test_texts_are_scored_in_their_order(self) -> None:
        """Scores are between 0 and 1, and the text that answers the query has the higher one."""
        reranker = await self.make()
        try:
            wrong, right = await reranker.scores(self.query, [self.wrong, self.right])
            assert 0.0 <= wrong < right <= 1.0
            assert len(await reranker.scores(self.query, [self.right])) == 1
            assert len(await reranker.scores(self.query, [self.right, "", "日本語 🦊"])) == 3
        finally:
            for _ in range(2):
                await reranker.close()


class SearchEngineContract:
    """The tests every search engine passes; a subclass says how one is made, and what it finds something for."""

    query: ClassVar[str] = "tea"

    def make(self) -> SearchEngine:
        """Return a new engine."""
        raise NotImplementedError(f"{type(self).__name__} does not say what to test: override make()")

    def context(self, http: Outbound) -> Context:
        """Return the context of a call, with a client for HTTP; the engine asks others by it."""
        return Context("test", http=http)

    @_alone
    async def test_results_have_a_title_and_an_address(self) -> None:
        """They are strings; an address is one of HTTP."""
        async with _client() as http:
            found = await self.make().search(self.context(http), self.query, 5)
        assert found, f"nothing is found for '{self.query}'; set `query` to something that is"
        for one in found:
            assert isinstance(one.title, str)
            assert isinstance(one.snippet, str)
            assert one.url.startswith(("http://", "https://")), f"'{one.url}' is no address of HTTP"

    @_alone
    async def test_any_question_is_answered(self) -> None:
        """With results, without, or with a SearchError that a model can read."""
        async with _client() as http:
            for question in _ODD_QUESTIONS:
                with contextlib.suppress(SearchError):
                    await self.make().search(self.context(http), question, 1)

    @_alone
    async def test_several_search_at_once(self) -> None:
        """One engine serves all calls."""
        async with _client() as http:
            engine = self.make()
            found = await asyncio.gather(*(engine.search(self.context(http), self.query, 5) for _ in range(5)))
        assert all(found)


@contextlib.asynccontextmanager
async def _client() -> AsyncIterator[Outbound]:
    """Have a client for HTTP that reaches servers on this machine."""
    client = Outbound()
    try:
        yield client
    finally:
        await client.close()


async def _raises(call: Awaitable[object], error: type[Exception]) -> None:
    try:
        await call
    except error:
        return
    except Unavailable as other:
        raise AssertionError(f"{error.__name__} is expected, not {other!r}") from other
    raise AssertionError(f"{error.__name__} is expected, and nothing was raised")


def _cosine(first: Sequence[float], second: Sequence[float]) -> float:
    length = math.hypot(*first) * math.hypot(*second)
    return sum(one * other for one, other in zip(first, second, strict=True)) / length if length else 0.0
