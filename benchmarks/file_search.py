"""What a search costs: time and memory with many chunks, and whether the stores of others make it slower.

Every database is measured alone, one query after the other. The time is that of the database, with all the way there
and back; embedding the query is not in it.
"""

import asyncio
import statistics
import time
from collections.abc import Iterable
from dataclasses import dataclass

from antwort.extensions import Query, collection_name, shared_collection_name
from benchmarks.chunks import Store
from benchmarks.databases import DATABASES, MeasuredDatabase
from benchmarks.measure import BenchmarkError, Row

BAR = 1.5
"""How much longer a search may take with the stores of others: not at all, but machines are noisy."""
DIMENSIONS = 384
IDLE, CROWDED = 0.05, 0.15
"""The part of a core that a database without work may use, and one with a thousand collections to look after."""
PATIENCE = 1800
"""Seconds to wait for an index."""


@dataclass(frozen=True, slots=True)
class Scale:
    """How much of everything there is."""

    chunks: int = 100_000
    queries: int = 1000
    own: int = 5000
    """Chunks of the store that is searched beside those of others."""
    tenants: int = 1000
    """Others, each with a store."""
    theirs: int = 20
    """Chunks of each of them."""
    rounds: int = 5
    rest: float = 2.0
    """Seconds without work after which a database is taken to have built its indexes."""


def file_search_rows() -> list[Row]:
    """Measure every database, with the large counts: a small one says nothing."""
    return [row for name in DATABASES for row in database_rows(name, Scale())]


def database_rows(name: str, scale: Scale) -> list[Row]:
    """Measure one database."""
    return asyncio.run(_database_rows(name, scale))


async def _database_rows(name: str, scale: Scale) -> list[Row]:
    async with DATABASES[name]() as database:
        rows = await size_rows(database, scale)
    for shared in (False, True):
        async with DATABASES[name]() as database:
            rows += await tenant_rows(database, scale, shared=shared)
    return [Row(f"{name}: {row.what}", row.value, row.unit, row.bar) for row in rows]


async def size_rows(database: MeasuredDatabase, scale: Scale) -> list[Row]:
    """Measure one large store: how long it takes to fill and to search, what it needs, and whether it finds."""
    store = Store("own", scale.chunks, DIMENSIONS)
    name = collection_name(store.id)
    before, mapped = database.memory(), database.mapped()
    started = time.perf_counter()
    await fill(database, name, store)
    filled = time.perf_counter() - started
    await settled(database, scale.rest, IDLE)
    await times(database, name, store.queries(scale.queries // 10))  # warm up
    taken, found = await times(database, name, store.queries(scale.queries))
    hybrid, _ = await times(database, name, store.queries(scale.queries, hybrid=True))
    what = f"{scale.chunks:,} chunks"
    return [
        Row(f"{what}, written", filled, "s"),
        Row(f"{what}, memory", database.memory() - before, "MB"),
        Row(f"{what}, files in memory", database.mapped() - mapped, "MB"),
        Row(f"{what}, search by vector, p50", percentile(taken, 50), "ms"),
        Row(f"{what}, search by vector, p99", percentile(taken, 99), "ms"),
        Row(f"{what}, the nearest one is found", found / scale.queries * 100, "%"),
        Row(f"{what}, hybrid search, p50", percentile(hybrid, 50), "ms"),
        Row(f"{what}, hybrid search, p99", percentile(hybrid, 99), "ms"),
    ]


async def tenant_rows(database: MeasuredDatabase, scale: Scale, *, shared: bool) -> list[Row]:
    """Measure a search of one store, alone and beside those of others: in collections of their own, or in one."""
    own = Store("own", scale.own, DIMENSIONS, shared=shared)
    others = [Store(f"t{n}", scale.theirs, DIMENSIONS, seed=n, shared=shared) for n in range(1, scale.tenants + 1)]

    def name(store: Store) -> str:
        return shared_collection_name(DIMENSIONS) if shared else collection_name(store.id)

    async def median() -> float:
        await settled(database, scale.rest, CROWDED)
        rounds = [await times(database, name(own), own.queries(scale.queries // 5)) for _ in range(scale.rounds + 1)]
        return statistics.median(percentile(taken, 50) for taken, _ in rounds[1:])  # the first one warms up

    await fill(database, name(own), own)
    alone, before = await median(), database.memory()
    for store in others:
        await fill(database, name(store), store)
    beside = await median()
    taken = [one for store in others for one in (await times(database, name(store), store.queries(1)))[0]]
    what = f"{scale.own:,} chunks, {'shared collection' if shared else 'own collection'}"
    return [
        Row(f"{what}, alone, p50", alone, "ms"),
        Row(f"{what}, beside {scale.tenants:,} other tenants, p50", beside, "ms"),
        Row(f"{what}, beside {scale.tenants:,} other tenants", beside / alone, "\N{MULTIPLICATION SIGN} alone", BAR),
        Row(f"{what}, each of the {scale.tenants:,} others in turn, p50", percentile(taken, 50), "ms"),
        Row(f"{what}, each of the {scale.tenants:,} others in turn, p99", percentile(taken, 99), "ms"),
        Row(f"{what}, memory of {scale.tenants:,} other tenants", database.memory() - before, "MB"),
    ]


async def fill(database: MeasuredDatabase, name: str, store: Store) -> None:
    """Create a collection, and write all chunks of a store to it."""
    await database.backend.create_collection(name, store.dimensions)
    for batch in store.batches():
        await database.backend.upsert(name, batch)


async def times(database: MeasuredDatabase, name: str, queries: Iterable[tuple[str, Query]]) -> tuple[list[float], int]:
    """Return the milliseconds of each search, and how many found first what they should."""
    taken, right = [], 0
    for wanted, query in queries:
        started = time.perf_counter()
        hits = await database.backend.search(name, query)
        taken.append((time.perf_counter() - started) * 1e3)
        if not hits:
            raise BenchmarkError(f"{database.backend.name}: a search found nothing")
        right += hits[0].id == wanted
    return taken, right


async def settled(database: MeasuredDatabase, rest: float, idle: float) -> None:
    """Wait until the database has nothing to do: some go on building their indexes after a write."""
    deadline = time.monotonic() + PATIENCE
    spent = database.cpu_seconds()
    while time.monotonic() < deadline:
        await asyncio.sleep(rest)
        before, spent = spent, database.cpu_seconds()
        if spent - before < idle * rest:
            return
    raise BenchmarkError(f"{database.backend.name} is still busy after {PATIENCE} seconds")


def percentile(values: list[float], percent: int) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]
