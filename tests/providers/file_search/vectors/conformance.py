"""What every vector backend must do. A test class inherits it and says how to open, crash and restore its backend."""

import asyncio
import math
import os
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from antwort.extensions import (
    Attributes,
    Chunk,
    Comparison,
    Compound,
    Count,
    Filter,
    Hit,
    NoCollection,
    Query,
    Scalar,
    VectorDatabase,
    VectorPlace,
    VectorStoreUnavailable,
    WrongDimensions,
    collection_name,
    matches,
    shared_collection_name,
)

__all__ = ["ATTRIBUTES", "VectorBackendContract", "chunk", "ids", "near"]

FULL = bool(os.environ.get("ANTWORT_TEST_FULL"))
STORE = collection_name("vs_test")
OTHER = collection_name("vs_other")
SHARED = shared_collection_name(4)
TENANT = "tenant-a"
UNSTORABLE_KEY = "odd \0 key"

KEYS = ["name", "size", "done", "a.b", "wörter [1]", "missing"]
MICROSECONDS = 1904729410800015
"""Of a time, and with more digits than Qdrant reads right in a fraction."""
VALUES: list[Scalar] = [
    *("", "red", "blue", "1", "true", "naïve 🦊", True, False),
    *(0, 1, 1.0, -2.5, 3, 1e6, 0.1, 0.1 + 0.2, 1702754332.6375275, 3.4465492022390412e-30, 2.5e300),
    *(MICROSECONDS, MICROSECONDS + 1, float(MICROSECONDS + 2), 2**53 - 1, -(2**53)),
]
NUMBERS = [value for value in VALUES if isinstance(value, int | float) and not isinstance(value, bool)]


def attributes_of_many(count: int = 60) -> list[dict[str, Scalar]]:
    """Return attributes of every kind, the same each time."""
    pick = random.Random(20)
    return [{key: pick.choice(VALUES) for key in KEYS[:-1] if pick.random() < 0.7} for _ in range(count)]


ATTRIBUTES = attributes_of_many()


def different_numbers() -> list[float]:
    """Return whole numbers of every size with their neighbours, and fractions of 15 to 17 digits, in order."""
    pick = random.Random(53)
    whole = [number for size in range(4, 54) for number in range(2**size - 4, 2**size)]
    whole += list(range(MICROSECONDS - 20, MICROSECONDS + 20))
    fractions = [pick.uniform(1, 10) * 10.0 ** pick.randint(-20, 12) for _ in range(200)]
    fractions += [1702754332.6375275, 9.99999999999997, 9.99999999999998, 9.99999999999999]
    return sorted([*whole, *(-number for number in whole), *fractions])


def with_those_beside(some: Sequence[float], numbers: Sequence[float]) -> list[float]:
    """Return some numbers with the one before and the one after each, and the negatives of all these, in order."""
    found = {beside for one in some for place in [numbers.index(one)] for beside in numbers[place - 1 : place + 2]}
    return sorted(found | {-one for one in found})


comparisons: st.SearchStrategy[Filter] = st.one_of(
    st.builds(Comparison, st.sampled_from(KEYS), st.sampled_from(["eq", "ne"]), st.sampled_from(VALUES)),
    st.builds(Comparison, st.sampled_from(KEYS), st.sampled_from(["gt", "gte", "lt", "lte"]), st.sampled_from(NUMBERS)),
    st.builds(
        Comparison,
        st.sampled_from(KEYS),
        st.sampled_from(["in", "nin"]),
        st.lists(st.sampled_from(VALUES), max_size=4).map(tuple),
    ),
)
filters: st.SearchStrategy[Filter] = st.recursive(
    comparisons,
    lambda inner: st.builds(
        Compound, st.sampled_from(["and", "or"]), st.lists(inner, min_size=1, max_size=3).map(tuple)
    ),
    max_leaves=6,
)


def near(angle: float) -> list[float]:
    """Return a vector at an angle, in degrees, to that of 0."""
    return [math.cos(math.radians(angle)), math.sin(math.radians(angle)), 0.0, 0.0]


def chunk(
    number: int,
    text: str = "some text",
    *,
    file: str = "file-1",
    vector: Sequence[float] | None = None,
    attributes: Mapping[str, Scalar] | None = None,
    tenant: str = TENANT,
    store: str = "",
) -> Chunk:
    """Return a chunk; its number is its id and, in degrees, its angle."""
    return Chunk(
        id=str(UUID(int=number)),
        vector=near(number) if vector is None else vector,
        text=text,
        file_id=file,
        filename=f"{file}.txt",
        index=number,
        attributes=attributes or {},
        tenant=tenant,
        vector_store_id=store,
    )


def ids(hits: Sequence[Hit]) -> list[int]:
    return [UUID(hit.id).int for hit in hits]


class VectorBackendContract:
    """The tests. A subclass has a fixture `backend`."""

    stays_down = True
    """Whether it is unavailable after a crash, until it is restored."""

    def crash(self, backend: VectorDatabase) -> None:
        """Kill the database, as hard as can be."""
        raise NotImplementedError

    def restore(self) -> None:
        """Start it again."""

    @pytest.fixture
    async def store(self, backend: VectorDatabase) -> VectorDatabase:
        """The backend with an empty collection."""
        await backend.create_collection(STORE, 4)
        return backend

    # --- collections ---

    async def test_a_collection_is_created_once_and_deleted_once(self, backend: VectorDatabase) -> None:
        assert await backend.dimensions(STORE) is None
        for _ in range(2):
            await backend.create_collection(STORE, 4)
        assert await backend.dimensions(STORE) == 4
        assert await backend.collections() == [STORE]
        await backend.create_collection(OTHER, 8)
        assert await backend.dimensions(OTHER) == 8
        assert await backend.collections() == [OTHER, STORE]
        for _ in range(2):
            await backend.delete_collection(STORE)
        assert await backend.collections() == [OTHER]
        assert await backend.dimensions(STORE) is None

    async def test_creating_it_at_the_same_time_is_creating_it_once(self, backend: VectorDatabase) -> None:
        await asyncio.gather(*(backend.create_collection(STORE, 4) for _ in range(4)))
        assert await backend.collections() == [STORE]
        await backend.upsert(STORE, [chunk(1)])
        assert await backend.count(STORE, tenant=TENANT) == Count(1, 1, 9)

    async def test_a_collection_keeps_its_chunks_when_it_is_created_again(self, store: VectorDatabase) -> None:
        await store.upsert(STORE, [chunk(1)])
        await store.create_collection(STORE, 4)
        assert ids(await store.search(STORE, Query(TENANT, near(0)))) == [1]

    async def test_one_that_was_deleted_comes_back_empty(self, store: VectorDatabase) -> None:
        await store.upsert(STORE, [chunk(1)])
        await store.delete_collection(STORE)
        await store.create_collection(STORE, 8)
        assert await store.dimensions(STORE) == 8
        assert await store.count(STORE, tenant=TENANT) == Count(0, 0, 0)

    async def test_other_dimensions_are_refused(self, store: VectorDatabase) -> None:
        with pytest.raises(WrongDimensions, match="has 8 dimensions, those of the vector store have 4"):
            await store.create_collection(STORE, 8)
        with pytest.raises(WrongDimensions, match="has 3 dimensions, those of the vector store have 4"):
            await store.upsert(STORE, [chunk(1, vector=[1.0, 2.0, 3.0])])
        with pytest.raises(WrongDimensions, match="has 5 dimensions, those of the vector store have 4"):
            await store.search(STORE, Query(TENANT, [1.0] * 5))
        with pytest.raises(WrongDimensions):
            await store.upsert(STORE, [chunk(1), chunk(2, vector=[1.0])])
        assert await store.count(STORE, tenant=TENANT) == Count(0, 0, 0)

    async def test_an_unknown_collection_is_an_error(self, store: VectorDatabase) -> None:
        for name in (OTHER, "antwort_", "other", "antwort_../x", f"antwort_{'x' * 80}"):
            for call in (
                store.upsert(name, [chunk(1)]),
                store.search(name, Query(TENANT, near(0))),
                store.search(name, Query(TENANT, text="some")),
                store.search(name, Query(TENANT, near(0), "some")),
                store.search(name, Query(TENANT, text="?!")),
                store.delete(name, tenant=TENANT),
                store.count(name, tenant=TENANT),
            ):
                with pytest.raises(NoCollection):
                    await call

    # --- writing ---

    async def test_writing_an_id_again_replaces_the_chunk(self, store: VectorDatabase) -> None:
        await store.upsert(STORE, [chunk(1, "old words", attributes={"a": 1, "b": 2}), chunk(2)])
        await store.upsert(STORE, [chunk(1, "fresh", file="file-2", attributes={"a": 3}), chunk(1, "new words")])
        hits = await store.search(STORE, Query(TENANT, near(1), limit=1))
        assert [(hit.text, hit.file_id, hit.attributes) for hit in hits] == [("new words", "file-1", {})]
        assert await store.search(STORE, Query(TENANT, text="old fresh")) == []
        assert await store.count(STORE, tenant=TENANT) == Count(2, 1, len("new words" + "some text"))

    async def test_a_hit_is_the_whole_chunk(self, store: VectorDatabase) -> None:
        attributes: dict[str, Scalar] = {"kind": "report", "year": 2024, "share": 0.25, "public": True, 'a.b "c"': "x"}
        await store.upsert(STORE, [chunk(7, "What it says.", file="file-9", attributes=attributes)])
        (hit,) = await store.search(STORE, Query(TENANT, near(7)))
        assert hit.score == pytest.approx(1.0)
        assert hit == Hit(str(UUID(int=7)), hit.score, "What it says.", "file-9", "file-9.txt", 7, attributes)

    async def test_files_are_deleted_one_by_one_or_all(self, store: VectorDatabase) -> None:
        await store.upsert(STORE, [chunk(number, file=f"file-{number % 3}") for number in range(9)])
        assert await store.count(STORE, tenant=TENANT) == Count(9, 3, 81)
        await store.delete(STORE, tenant=TENANT, file_id="file-1")
        assert sorted(ids(await store.search(STORE, Query(TENANT, near(0))))) == [0, 2, 3, 5, 6, 8]
        assert await store.count(STORE, tenant=TENANT) == Count(6, 2, 54)
        await store.delete(STORE, tenant=TENANT, file_id="file-1")
        await store.delete(STORE, tenant=TENANT, file_id="nothing")
        assert await store.count(STORE, tenant=TENANT) == Count(6, 2, 54)
        await store.delete(STORE, tenant=TENANT)
        assert await store.count(STORE, tenant=TENANT) == Count(0, 0, 0)

    async def test_attributes_that_no_filter_can_name_are_kept(self, store: VectorDatabase) -> None:
        attributes: dict[str, Scalar] = {"\\": 1, "a\\b": "x", 'a"b': True, '\\"': 2.5, "plain": "y"}
        await store.upsert(STORE, [chunk(1, attributes=attributes)])
        (hit,) = await store.search(STORE, Query(TENANT, near(1), filter=Comparison("plain", "eq", "y")))
        assert hit.attributes == attributes

    async def test_writing_nothing_is_allowed(self, store: VectorDatabase) -> None:
        await store.upsert(STORE, [])
        assert await store.search(STORE, Query(TENANT, near(0))) == []
        assert await store.search(STORE, Query(TENANT, text="anything")) == []

    async def test_any_text_is_kept(self, store: VectorDatabase) -> None:
        for text in ("", "nul \0 byte", "half \ud83d pair", "日本語 🦊 ünïcode", "x" * 50_000, "'; --"):
            await store.upsert(STORE, [chunk(1, text, file="file-1", attributes={UNSTORABLE_KEY: text})])
            (hit,) = await store.search(STORE, Query(TENANT, near(1)))
            kept = text.replace("\0", "\ufffd").replace("\ud83d", "\ufffd")
            assert hit.text == kept
            assert hit.attributes == {UNSTORABLE_KEY.replace("\0", "\ufffd"): kept}
            assert await store.count(STORE, tenant=TENANT) == Count(1 if text else 0, 1, len(kept.encode()))
            await store.search(STORE, Query(TENANT, text=text))
            await store.delete(STORE, tenant=TENANT)

    async def test_a_thousand_chunks_are_searched_exactly(self, store: VectorDatabase) -> None:
        pick = random.Random(5)
        vectors = [[pick.gauss(0, 1) for _ in range(4)] for _ in range(1000)]
        chunks = [
            chunk(number, f"chunk {number}", file=f"file-{number % 10}", vector=vector, attributes={"n": number})
            for number, vector in enumerate(vectors)
        ]
        await store.upsert(STORE, chunks)
        assert (await store.count(STORE, tenant=TENANT)).chunks == 1000
        wanted = [0.3, -0.7, 0.2, 0.5]
        best = sorted(range(1000), key=lambda number: -cosine(wanted, vectors[number]))
        hits = await store.search(STORE, Query(TENANT, wanted, limit=50))
        assert ids(hits) == best[:50]
        assert [hit.score for hit in hits] == pytest.approx([cosine(wanted, vectors[n]) for n in best[:50]], abs=1e-5)
        rare = Comparison("n", "lt", 20)
        assert ids(await store.search(STORE, Query(TENANT, wanted, limit=50, filter=rare))) == [
            number for number in best if number < 20
        ]
        await store.delete(STORE, tenant=TENANT, file_id="file-3")
        assert await store.count(STORE, tenant=TENANT) == Count(
            900, 9, sum(len(one.text) for one in chunks if one.file_id != "file-3")
        )

    # --- searching ---

    async def test_the_nearest_comes_first_and_scores_are_cosines(self, store: VectorDatabase) -> None:
        await store.upsert(STORE, [chunk(number) for number in (60, 0, 120, 180, 30)])
        hits = await store.search(STORE, Query(TENANT, [10 * one for one in near(0)]))
        assert ids(hits)[:3] == [0, 30, 60]
        assert sorted(ids(hits)[3:]) == [120, 180]
        assert [hit.score for hit in hits] == pytest.approx([1.0, math.cos(math.pi / 6), 0.5, 0.0, 0.0], abs=1e-5)
        assert all(0.0 <= hit.score <= 1.0 for hit in hits)

    async def test_limit_and_threshold_bound_what_is_found(self, store: VectorDatabase) -> None:
        await store.upsert(STORE, [chunk(number) for number in (60, 0, 120, 30)])
        assert ids(await store.search(STORE, Query(TENANT, near(0), limit=2))) == [0, 30]
        assert ids(await store.search(STORE, Query(TENANT, near(0), threshold=0.6))) == [0, 30]
        assert ids(await store.search(STORE, Query(TENANT, near(0), threshold=0.9999))) == [0]
        assert len(await store.search(STORE, Query(TENANT, near(0), threshold=0.0))) == 4
        assert await store.search(STORE, Query(TENANT, near(240), threshold=0.9)) == []

    async def test_keywords_find_texts_without_a_vector(self, store: VectorDatabase) -> None:
        await store.upsert(STORE, TEXTS)
        hits = await store.search(STORE, Query(TENANT, text="Where do the foxes live?"))
        assert set(ids(hits)) == {1, 2, 5}
        assert ids(hits)[0] == 1, "two words of the query, in a short text"
        assert all(0.0 < hit.score < 1.0 for hit in hits)
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
        assert ids(await store.search(STORE, Query(TENANT, text="Where do the foxes live?", limit=1))) == [1]
        best = hits[0].score
        assert ids(await store.search(STORE, Query(TENANT, text="Where do the foxes live?", threshold=best))) == [1]
        assert await store.search(STORE, Query(TENANT, text="unheard")) == []
        red = Comparison("colour", "eq", "red")
        assert ids(await store.search(STORE, Query(TENANT, text="fox", filter=red))) == [2]

    async def test_any_question_is_answered(self, store: VectorDatabase) -> None:
        await store.upsert(STORE, TEXTS)
        for text in ("", "   ", "the", "?!", "& | ! ( ) :* <-> ''", "a" * 3000, "\0", "fox " * 200):
            hits = await store.search(STORE, Query(TENANT, text=text))
            assert set(ids(hits)) == ({1, 2, 5} if "fox" in text else set()), text
            both = await store.search(STORE, Query(TENANT, near(1), text))
            assert len(both) == len(TEXTS), text

    async def test_hybrid_search_joins_both_orders(self, store: VectorDatabase) -> None:
        await store.upsert(STORE, TEXTS)
        hits = await store.search(STORE, Query(TENANT, near(4), "live foxes"))
        assert set(ids(hits)) == {1, 2, 3, 4, 5}
        assert all(0.0 < hit.score <= 1.0 for hit in hits)
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
        by_vector = await store.search(STORE, Query(TENANT, near(4), "live foxes", weights=(1.0, 0.0)))
        assert ids(by_vector)[0] == 4
        assert by_vector[0].score == pytest.approx(1.0)
        by_keyword = await store.search(STORE, Query(TENANT, near(4), "live foxes", weights=(0.0, 1.0)))
        assert ids(by_keyword)[0] == 1
        assert set(ids(by_keyword)) == {1, 2, 5}
        led_by_both = await store.search(STORE, Query(TENANT, near(1), "live foxes", threshold=0.999))
        assert ids(led_by_both) == [1]
        red = Comparison("colour", "eq", "red")
        assert set(ids(await store.search(STORE, Query(TENANT, near(1), "live foxes", filter=red)))) == {2, 4}

    async def test_hybrid_search_tells_how_like_the_query_each_is(self, store: VectorDatabase) -> None:
        await store.upsert(STORE, TEXTS)
        alone = {hit.id: hit.score for hit in await store.search(STORE, Query(TENANT, near(4)))}
        hits = await store.search(STORE, Query(TENANT, near(4), "live foxes"))
        assert {hit.id: hit.likeness for hit in hits} == pytest.approx(alone)
        least = sorted(alone.values())[1]
        bound = await store.search(STORE, Query(TENANT, near(4), "live foxes", least_likeness=least - 1e-6))
        assert [hit.id for hit in bound] == [hit.id for hit in hits if alone[hit.id] >= least - 1e-6]

    async def test_chunks_of_files_that_are_not_wanted_take_no_places(self, store: VectorDatabase) -> None:
        chunks = [chunk(number, "foxes", file="file-2" if number == 4 else "file-1") for number in range(5)]
        await store.upsert(STORE, chunks)
        for query in (Query(TENANT, near(0)), Query(TENANT, text="foxes"), Query(TENANT, near(0), "foxes")):
            assert ids(await store.search(STORE, replace(query, limit=1, without=("file-0", "file-1")))) == [4]

    # --- attributes ---

    async def test_attributes_of_a_file_are_replaced_and_filters_see_it_at_once(self, store: VectorDatabase) -> None:
        old: Attributes = {"colour": "red", "year": 1, "open": True, "share": 0.1}
        await store.upsert(STORE, [chunk(0, attributes=old), chunk(1, attributes=old), chunk(2, file="file-2")])
        new: Attributes = {"colour": "blue", "weight": 0.3}
        await store.set_attributes(STORE, new, tenant=TENANT, file_id=chunk(0).file_id)
        await store.set_attributes(STORE, {"colour": "none"}, tenant="others", file_id=chunk(0).file_id)
        for key, value, found in (
            ("colour", "blue", [0, 1]),
            ("colour", "red", []),
            ("colour", "none", []),
            ("year", 1, []),
            ("open", True, []),
            ("weight", 0.3, [0, 1]),
        ):
            hits = await store.search(STORE, Query(TENANT, near(0), filter=Comparison(key, "eq", value)))
            assert sorted(ids(hits)) == found, key
            assert all(hit.attributes == new for hit in hits)
        assert len(await store.search(STORE, Query(TENANT, near(0)))) == 3
        await store.set_attributes(STORE, {}, tenant=TENANT, file_id=chunk(0).file_id)
        assert all(not hit.attributes for hit in await store.search(STORE, Query(TENANT, near(0))) if hit.index < 2)

    # --- filters ---

    @settings(
        max_examples=400 if FULL else 60,
        deadline=None,
        derandomize=True,
        suppress_health_check=[
            HealthCheck.differing_executors,  # the test is inherited; without a database of examples that is harmless
            HealthCheck.function_scoped_fixture,
            HealthCheck.too_slow,
        ],
    )
    @given(wanted=filters)
    async def test_filters_find_what_they_mean(self, filtered: VectorDatabase, wanted: Filter) -> None:
        hits = await filtered.search(STORE, Query(TENANT, near(0), limit=100, filter=wanted))
        assert sorted(ids(hits)) == [number for number, one in enumerate(ATTRIBUTES) if matches(wanted, one)]

    @pytest.fixture
    async def filtered(self, store: VectorDatabase) -> VectorDatabase:
        """A collection with many kinds of attributes."""
        await store.upsert(STORE, [chunk(number, attributes=one) for number, one in enumerate(ATTRIBUTES)])
        return store

    async def test_numbers_are_found_apart_and_come_back_as_they_were(self, store: VectorDatabase) -> None:
        numbers = different_numbers()
        looked_for = numbers[1 : -1 : 7 if FULL else 67]
        if not FULL:  # each search looks at each number
            numbers = with_those_beside(looked_for, numbers)
        await store.upsert(STORE, [chunk(place, attributes={"n": one}) for place, one in enumerate(numbers)])

        async def found(*wanted: Comparison) -> list[int]:
            return ids(await store.search(STORE, Query(TENANT, near(0), limit=3, filter=Compound("and", wanted))))

        for one in looked_for:
            place = numbers.index(one)
            low, high = numbers[place - 1], numbers[place + 1]
            for equal in (Comparison("n", "eq", one), Comparison("n", "in", (one,)), Comparison("n", "eq", float(one))):
                (hit,) = await store.search(STORE, Query(TENANT, near(0), limit=3, filter=equal))
                assert ids([hit]) == [place], one
                assert (hit.attributes["n"], type(hit.attributes["n"])) == (one, type(one))
            assert await found(Comparison("n", "gt", low), Comparison("n", "lt", high)) == [place], one
            assert await found(Comparison("n", "gte", one), Comparison("n", "lte", one)) == [place], one
            assert await found(Comparison("n", "gt", low), Comparison("n", "lte", one)) == [place], one
            assert await found(Comparison("n", "gte", one), Comparison("n", "lt", high)) == [place], one
            around = Comparison("n", "gte", low), Comparison("n", "lte", high)
            assert sorted(await found(*around, Comparison("n", "ne", one))) == [place - 1, place + 1], one

    async def test_a_whole_number_is_one_however_it_is_written(self, store: VectorDatabase) -> None:
        written: list[float] = [47, 47.0, 1e6, float(MICROSECONDS)]
        await store.upsert(STORE, [chunk(place, attributes={"n": one}) for place, one in enumerate(written)])
        hits = await store.search(STORE, Query(TENANT, near(0)))
        kept = {UUID(hit.id).int: hit.attributes["n"] for hit in hits}
        assert kept == dict(enumerate(written))
        assert {type(one) for one in kept.values()} == {int}

    async def test_a_filter_cannot_reach_beyond_itself(self, filtered: VectorDatabase) -> None:
        other = chunk(900, tenant="tenant-b", attributes={"name": "red"})
        await filtered.upsert(STORE, [other])
        anything = Compound("or", (Comparison("name", "ne", "zzz"), Comparison("x' OR '1'='1", "eq", "'; DROP--")))
        hits = await filtered.search(STORE, Query(TENANT, near(0), limit=100, filter=anything))
        assert sorted(ids(hits)) == list(range(len(ATTRIBUTES)))

    # --- tenants ---

    async def test_tenants_in_one_collection_see_their_own_only(self, store: VectorDatabase) -> None:
        await store.upsert(STORE, [chunk(1, "our fox"), chunk(2, "their fox", file="file-2", tenant="tenant-b")])
        for query in (Query(TENANT, near(2)), Query(TENANT, text="fox"), Query(TENANT, near(2), "their fox")):
            assert ids(await store.search(STORE, query)) == [1]
        assert await store.search(STORE, Query("tenant-c", near(1))) == []
        assert await store.count(STORE, tenant=TENANT) == Count(1, 1, 7)
        assert await store.count(STORE, tenant="tenant-b") == Count(1, 1, 9)
        assert await store.count(STORE, tenant="tenant-c") == Count(0, 0, 0)
        await store.delete(STORE, tenant="tenant-b", file_id="file-1")
        await store.delete(STORE, tenant="tenant-c")
        assert await store.count(STORE, tenant=TENANT) == Count(1, 1, 7)

    async def test_stores_in_a_shared_collection_are_apart(self, backend: VectorDatabase) -> None:
        await backend.create_collection(SHARED, 4)
        places = [(TENANT, "vs_1"), (TENANT, "vs_2"), ("tenant-b", "vs_3")]
        for tenant, store in places:
            await backend.upsert(SHARED, [chunk(1, f"fox of {store}", tenant=tenant, store=store)])
        for tenant, store in places:
            for vector, text in ((near(1), None), (None, "fox"), (near(1), "fox")):
                hits = await backend.search(SHARED, Query(tenant, vector, text, vector_store_id=store))
                assert [hit.text for hit in hits] == [f"fox of {store}"]
            assert await backend.count(SHARED, tenant=tenant, vector_store_id=store) == Count(1, 1, 11)
        assert await backend.search(SHARED, Query("tenant-b", near(1), vector_store_id="vs_1")) == []
        await backend.delete(SHARED, tenant="tenant-b", vector_store_id="vs_1")
        await backend.delete(SHARED, tenant=TENANT, vector_store_id="vs_2")
        kept = [await backend.count(SHARED, tenant=tenant, vector_store_id=store) for tenant, store in places]
        assert [one.chunks for one in kept] == [1, 0, 1]
        with pytest.raises(ValueError, match="needs the vector store's id"):
            await backend.search(SHARED, Query(TENANT, near(1)))

    async def test_chunks_are_fetched_and_removed_by_their_ids(self, store: VectorDatabase) -> None:
        one, two, three = (str(UUID(int=number)) for number in (1, 2, 3))
        await store.upsert(STORE, [chunk(1, "one", attributes={"a": 1}), chunk(2, "two"), chunk(3, tenant="tenant-b")])
        found = await store.fetch(STORE, [two, one, three, str(UUID(int=4))], tenant=TENANT)
        assert {id_: (hit.text, hit.score) for id_, hit in found.items()} == {one: ("one", 0), two: ("two", 0)}
        assert found[one].attributes == {"a": 1}
        assert await store.fetch(STORE, [], tenant=TENANT) == {}
        await store.remove(STORE, [one, three, str(UUID(int=4))], tenant=TENANT)
        await store.remove(STORE, [], tenant=TENANT)
        assert (await store.fetch(STORE, [one, two], tenant=TENANT)).keys() == {two}
        assert (await store.fetch(STORE, [three], tenant="tenant-b")).keys() == {three}

    async def test_chunks_in_a_shared_collection_are_fetched_and_removed_by_their_ids(
        self, backend: VectorDatabase
    ) -> None:
        await backend.create_collection(SHARED, 4)
        await backend.upsert(SHARED, [chunk(1, f"fox of {store}", store=store) for store in ("vs_1", "vs_2")])
        one = str(UUID(int=1))
        found = await backend.fetch(SHARED, [one], tenant=TENANT, vector_store_id="vs_2")
        assert [(id_, hit.text) for id_, hit in found.items()] == [(one, "fox of vs_2")]
        await backend.remove(SHARED, [one], tenant=TENANT, vector_store_id="vs_1")
        assert await backend.fetch(SHARED, [one], tenant=TENANT, vector_store_id="vs_1") == {}
        assert await backend.fetch(SHARED, [one], tenant=TENANT, vector_store_id="vs_2") == found

    async def test_a_chunk_without_text_is_found_by_its_vector_alone_and_not_counted(
        self, store: VectorDatabase
    ) -> None:
        await store.upsert(STORE, [chunk(1, "fox"), chunk(2, "")])
        hits = await store.search(STORE, Query(TENANT, near(2), limit=1))
        assert ids(hits) == [2]
        assert ids(await store.search(STORE, Query(TENANT, text="fox"))) == [1]
        assert await store.count(STORE, tenant=TENANT) == Count(1, 1, 3)

    async def test_many_places_are_counted_together_or_not_at_all(self, store: VectorDatabase) -> None:
        await store.upsert(STORE, [chunk(1, "fox"), chunk(2, "hen")])
        mine, theirs = VectorPlace(STORE, TENANT, ""), VectorPlace(STORE, "somebody-else", "")
        assert await store.counts([mine, theirs, mine]) in (None, [Count(2, 1, 6), Count(), Count(2, 1, 6)])
        assert await store.counts([]) == []
        missing = VectorPlace(collection_name("vs_" + "0" * 32), TENANT, "")
        assert await store.counts([mine, missing]) in (None, [Count(2, 1, 6), Count()])

    # --- operation ---

    async def test_many_search_at_once(self, store: VectorDatabase) -> None:
        await store.upsert(STORE, [chunk(number, f"word{number}") for number in range(90)])

        async def one(number: int) -> bool:
            vector = store.search(STORE, Query(TENANT, near(number), limit=1))
            words = store.search(STORE, Query(TENANT, text=f"word{number}", limit=1))
            write = store.upsert(STORE, [chunk(1000 + number, f"new{number}", vector=near(200))])
            found = await asyncio.gather(vector, words, write)
            return ids(found[0]) == [number] and ids(found[1]) == [number]

        assert all(await asyncio.gather(*(one(number) for number in range(30))))
        assert (await store.count(STORE, tenant=TENANT)).chunks == 120

    async def test_a_search_that_is_given_up_disturbs_no_other(self, store: VectorDatabase) -> None:
        await store.upsert(STORE, [chunk(1), chunk(2)])
        for _ in range(10):
            given_up = asyncio.create_task(store.search(STORE, Query(TENANT, near(1))))
            await asyncio.sleep(0)
            given_up.cancel()
            with pytest.raises(asyncio.CancelledError):
                await given_up
            assert ids(await store.search(STORE, Query(TENANT, near(2), limit=1))) == [2]

    async def test_a_collection_deleted_during_searches_ends_them_in_order(self, store: VectorDatabase) -> None:
        await store.upsert(STORE, [chunk(number) for number in range(50)])
        searches = [asyncio.create_task(store.search(STORE, Query(TENANT, near(1), "text"))) for _ in range(20)]
        await asyncio.sleep(0)
        await store.delete_collection(STORE)
        for found in await asyncio.gather(*searches, return_exceptions=True):
            assert isinstance(found, list | NoCollection), found

    async def test_it_is_healthy(self, backend: VectorDatabase) -> None:
        await backend.health()

    async def test_nothing_is_lost_in_a_crash(self, store: VectorDatabase) -> None:
        await store.upsert(STORE, [chunk(1, "before the crash"), chunk(2)])
        await store.delete(STORE, tenant=TENANT, file_id="nothing")
        await store.create_collection(OTHER, 8)
        self.crash(store)
        try:
            if self.stays_down:
                for call in (
                    store.health(),
                    store.search(STORE, Query(TENANT, near(1))),
                    store.upsert(STORE, [chunk(3)]),
                    store.count(STORE, tenant=TENANT),
                    store.collections(),
                    store.create_collection(STORE, 4),
                ):
                    with pytest.raises(VectorStoreUnavailable, match=r"vector database .*(reached|answer)"):
                        await call
        finally:
            self.restore()
        await recovered(store)
        assert await store.collections() == [OTHER, STORE]
        assert ids(await store.search(STORE, Query(TENANT, near(1), limit=1))) == [1]
        assert ids(await store.search(STORE, Query(TENANT, text="crash"))) == [1]
        await store.upsert(STORE, [chunk(3)])
        assert (await store.count(STORE, tenant=TENANT)).chunks == 3


async def recovered(backend: VectorDatabase) -> None:
    """Wait until a backend that was down answers; a channel to it may need a moment to be opened again."""
    async with asyncio.timeout(30):
        while True:
            try:
                await backend.health()
            except VectorStoreUnavailable:
                await asyncio.sleep(0.05)
            else:
                return


def cosine(first: Sequence[float], second: Sequence[float]) -> float:
    length = math.hypot(*first) * math.hypot(*second)
    return max(0.0, sum(one * other for one, other in zip(first, second, strict=True)) / length)


TEXTS = [
    chunk(1, "Foxes live in dens.", vector=near(1)),
    chunk(2, "A fox is a small animal with a bushy tail, found nearly everywhere.", attributes={"colour": "red"}),
    chunk(3, "Bread needs flour, water, salt and time."),
    chunk(4, "The invoice is due within thirty days.", attributes={"colour": "red"}),
    chunk(5, "Yesterday a fox crossed the road; nobody saw it but the cat of the neighbours, who told everyone."),
]
