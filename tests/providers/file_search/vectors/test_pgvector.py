"""The PostgreSQL backend on a real server."""

import asyncio
import random
import re
from collections.abc import AsyncIterator, Iterator

import pytest
from psycopg import sql
from tests.providers.file_search.vectors.conformance import STORE, TENANT, VectorBackendContract, chunk, ids, near
from tests.support.postgres import PostgresServer
from typing_extensions import override

from antwort.extensions import Query, VectorDatabase, VectorStoreUnavailable, shared_collection_name
from antwort.provider import ConfigError, SecretStr
from antwort.providers.file_search.settings import PgvectorSettings
from antwort.providers.file_search.vectors.pgvector import statements
from antwort.providers.file_search.vectors.pgvector.backend import Pgvector, PooledTransactions, VectorConnection


def at(url: str, **options: float) -> Pgvector:
    return Pgvector(PgvectorSettings.model_validate({"url": SecretStr(url), **options}))


@pytest.fixture(scope="module")
def vector_database(postgres_server: PostgresServer) -> Iterator[str]:
    """A database for all tests of the contract: to create one takes longer than most of them."""
    url = postgres_server.create()
    yield url
    postgres_server.drop(url)


class TestPgvector(VectorBackendContract):
    server: PostgresServer

    @pytest.fixture
    async def backend(self, postgres_server: PostgresServer, vector_database: str) -> AsyncIterator[VectorDatabase]:
        self.server = postgres_server
        backend = at(vector_database)
        yield backend
        await backend.close()
        postgres_server.execute("DROP SCHEMA IF EXISTS antwort_vectors CASCADE", vector_database)

    @override
    def crash(self, backend: VectorDatabase) -> None:
        self.server.stop("immediate")

    @override
    def restore(self) -> None:
        self.server.start()


@pytest.mark.parametrize("dimensions", [1536, 3072, 5000])
async def test_long_vectors_are_kept_and_found(postgres_url: str, dimensions: int) -> None:
    backend = at(postgres_url)
    await backend.create_collection(STORE, dimensions)
    assert await backend.dimensions(STORE) == dimensions

    def vector(number: int) -> list[float]:
        return [1.0 if place == number else 0.01 for place in range(dimensions)]

    await backend.upsert(STORE, [chunk(number, vector=vector(number)) for number in range(5)])
    (hit,) = await backend.search(STORE, Query(TENANT, vector(3), limit=1))
    assert ids([hit]) == [3]
    assert hit.score == pytest.approx(1.0, abs=1e-3)
    await backend.close()


@pytest.mark.parametrize("dimensions", [4, 3072])
@pytest.mark.parametrize("name", [STORE, shared_collection_name(9)])
async def test_vectors_of_any_length_in_space_are_compared(postgres_url: str, name: str, dimensions: int) -> None:
    """Half precision has no number above 65,504 and few below 0.00001; the cosine needs neither."""
    backend = at(postgres_url)
    await backend.create_collection(name, dimensions)

    def vector(number: int, scale: float) -> list[float]:
        return [scale if place == number else scale / 100 for place in range(dimensions)]

    scales = [1.0, 70_000.0, 1e30, 1e-12]
    chunks = [chunk(number, vector=vector(number, scale), store="vs_1") for number, scale in enumerate(scales)]
    await backend.upsert(name, [*chunks, chunk(9, vector=[0.0] * dimensions, store="vs_2")])
    for number in range(len(scales)):
        for scale in scales:
            wanted = Query(TENANT, vector(number, scale), limit=1, vector_store_id="vs_1")
            (hit,) = await backend.search(name, wanted)
            assert hit.index == number
            assert hit.score == pytest.approx(1.0, abs=1e-3)
    await backend.search(name, Query(TENANT, [0.0] * dimensions, vector_store_id="vs_2"))
    await backend.close()


async def test_searches_use_the_index_of_vectors(postgres_server: PostgresServer, postgres_url: str) -> None:
    backend = at(postgres_url)
    await backend.create_collection(STORE, 4)
    await backend.close()
    rows = postgres_server.execute(
        "SELECT indexdef FROM pg_indexes WHERE schemaname = 'antwort_vectors' ORDER BY indexname", postgres_url
    )
    assert [str(row[0]).rpartition("USING ")[2] for row in rows] == [
        "btree (tenant, vector_store_id, id)",
        "btree (tenant, vector_store_id, file_id)",
        "gin (keywords)",
        "hnsw (embedding vector_cosine_ops)",
    ]


async def test_stores_that_share_a_table_have_no_index_of_vectors(
    postgres_server: PostgresServer, postgres_url: str
) -> None:
    """It would make each search dearer the more others write; without it, a search compares the store's own chunks."""
    backend = at(postgres_url)
    await backend.create_collection(shared_collection_name(4), 4)
    await backend.close()
    rows = postgres_server.execute("SELECT indexdef FROM pg_indexes WHERE schemaname = 'antwort_vectors'", postgres_url)
    assert len(rows) == 3
    assert not any("hnsw" in str(row[0]) for row in rows)


async def explained(url: str, name: str, query: Query) -> str:
    """Return how PostgreSQL searches a table for what is near."""
    statement, values = statements.by_vector(name, query.vector or (), 10, statements.query_scope(name, query))

    async def explain(connection: VectorConnection) -> str:
        await connection.execute(sql.SQL("ANALYZE {}").format(statements.table(name)))
        cursor = await connection.execute(sql.SQL("EXPLAIN {}").format(statement), values)
        return "\n".join(str(row[0]) for row in await cursor.fetchall())

    transactions = PooledTransactions(url, 1, 10.0)
    try:
        return await transactions.run(explain)
    finally:
        await transactions.close()


async def test_postgres_takes_the_index_that_is_meant(postgres_url: str) -> None:
    backend, shared, pick = at(postgres_url), shared_collection_name(4), random.Random(7)
    for name in (STORE, shared):
        await backend.create_collection(name, 4)
        chunks = [
            chunk(number, vector=[pick.gauss(0, 1) for _ in range(4)], store=f"vs_{number % 50}")
            for number in range(5000)
        ]
        await backend.upsert(name, chunks)
    await backend.close()
    assert "Index Scan using vs_test_v" in await explained(postgres_url, STORE, Query(TENANT, near(1)))
    plan = await explained(postgres_url, shared, Query(TENANT, near(1), vector_store_id="vs_7"))
    assert re.search(r"Index Scan (using|on) shared_4_(f|pkey)|antwort_shared_4_pkey", plan), plan
    assert "Seq Scan" not in plan


async def test_a_user_without_rights_learns_what_to_run(postgres_server: PostgresServer, postgres_url: str) -> None:
    postgres_server.execute("CREATE ROLE visitor LOGIN")
    try:
        backend = at(postgres_server.url(PostgresServer.name(postgres_url), user="visitor"))
        for call in (backend.health(), backend.create_collection(STORE, 4)):
            with pytest.raises(
                ConfigError, match="CREATE EXTENSION vector; CREATE SCHEMA antwort_vectors AUTHORIZATION"
            ):
                await call
        postgres_server.execute("CREATE EXTENSION vector", postgres_url)
        postgres_server.execute("CREATE SCHEMA antwort_vectors AUTHORIZATION visitor", postgres_url)
        await backend.health()
        await backend.create_collection(STORE, 4)
        await backend.upsert(STORE, [chunk(1)])
        await backend.close()
    finally:
        postgres_server.execute("DROP SCHEMA IF EXISTS antwort_vectors CASCADE", postgres_url)
        postgres_server.execute("DROP ROLE visitor")


async def test_a_server_that_stands_still_is_unavailable(postgres_server: PostgresServer, postgres_url: str) -> None:
    backend = at(postgres_url, timeout=2)
    await backend.create_collection(STORE, 4)
    postgres_server.freeze()
    try:
        with pytest.raises(VectorStoreUnavailable, match="did not answer in time"):
            await backend.search(STORE, Query(TENANT, text="x"))
    finally:
        postgres_server.thaw()
    assert await backend.search(STORE, Query(TENANT, text="x")) == []
    await backend.close()


async def test_connections_that_died_while_idle_are_replaced_without_a_word(
    postgres_server: PostgresServer, postgres_url: str
) -> None:
    backend = at(postgres_url, pool_size=1)
    await backend.create_collection(STORE, 4)
    postgres_server.leave(postgres_url)
    assert await backend.collections() == [STORE]
    await backend.close()


async def test_more_searches_than_connections_wait_their_turn(
    postgres_server: PostgresServer, postgres_url: str
) -> None:
    backend = at(postgres_url, pool_size=2)
    await backend.create_collection(STORE, 4)
    await backend.upsert(STORE, [chunk(number) for number in range(40)])
    found = await asyncio.gather(*(backend.search(STORE, Query(TENANT, near(n), limit=1)) for n in range(40)))
    assert [ids(hits) for hits in found] == [[number] for number in range(40)]
    [(connections,)] = postgres_server.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'antwort' AND datname = current_database()",
        postgres_url,
    )
    assert connections in {1, 2}  # the second is opened when somebody waits, and all may be done before
    await backend.close()


@pytest.mark.parametrize("url", ["postgresql://me:the-password@[::1/x", "postgresql://me:the-password@db/x?colour=red"])
def test_a_url_that_cannot_be_read_is_the_operators_to_mend(url: str) -> None:
    with pytest.raises(ConfigError, match=r"'pgvector\.url' cannot be read") as refused:
        at(url)
    assert "the-password" not in str(refused.value)


async def test_an_address_without_a_server_is_told_to_the_operator_without_its_password() -> None:
    backend = at("postgresql://me:the-password@127.0.0.1:9/x")
    with pytest.raises(VectorStoreUnavailable, match=r"^The vector database cannot be reached\.$") as failed:
        await backend.health()
    assert failed.value.for_operator == "The vector database at 127.0.0.1:9 cannot be reached."
    await backend.close()


async def test_a_server_that_is_away_fails_each_call_at_once_and_is_used_again_when_it_is_back(
    postgres_server: PostgresServer, postgres_url: str
) -> None:
    backend = at(postgres_url, pool_size=2, timeout=30)
    await backend.create_collection(STORE, 4)
    postgres_server.stop()
    try:
        for _ in range(3):
            with pytest.raises(VectorStoreUnavailable, match=r"cannot be reached\.$"):
                await backend.collections()
    finally:
        postgres_server.start()
    assert await backend.collections() == [STORE]
    await backend.close()


async def test_work_that_is_stopped_in_the_middle_leaves_nothing_behind(postgres_url: str) -> None:
    transactions, begun = PooledTransactions(postgres_url, 1, 10.0), asyncio.Event()

    async def half(connection: VectorConnection) -> None:
        await connection.execute("CREATE TABLE half (id int)")
        begun.set()
        await connection.execute("SELECT pg_sleep(60)")

    async def tables(connection: VectorConnection) -> int:
        row = await (await connection.execute("SELECT count(*) FROM pg_tables WHERE tablename = 'half'")).fetchone()
        return int(row[0]) if row else -1

    task = asyncio.create_task(transactions.run(half))
    await begun.wait()
    task.cancel()
    await asyncio.wait([task])
    assert await transactions.run(tables) == 0
    await transactions.close()


async def test_closing_waits_for_work_that_is_under_way_and_nothing_is_begun_after_it(postgres_url: str) -> None:
    transactions, begun, go = PooledTransactions(postgres_url, 1, 10.0), asyncio.Event(), asyncio.Event()

    async def slowly(connection: VectorConnection) -> str:
        begun.set()
        await go.wait()
        return str(await (await connection.execute("SELECT 'done'")).fetchone())

    task = asyncio.create_task(transactions.run(slowly))
    await begun.wait()
    closing = asyncio.create_task(transactions.close())
    await asyncio.sleep(0)
    go.set()
    assert "done" in await task
    await closing
    with pytest.raises(VectorStoreUnavailable):
        await transactions.run(slowly)
