"""PostgreSQL with the extension `vector`: a table for each collection, in a schema of its own.

One table each, not one for all: a table's vectors have one length, its index has one store's vectors and no others,
and deleting a store is dropping a table.
"""

from collections.abc import Sequence
from typing import Any, Self

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb
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
    VectorPlace,
    WrongDimensions,
    candidates,
    check_dimensions,
    checked_name,
    cosine_score,
    finish,
    fused,
    saturated,
    stored_attributes,
)
from antwort.provider import ConfigError, Services
from antwort.providers.file_search.settings import PgvectorSettings
from antwort.providers.file_search.vectors.pgvector import statements
from antwort.providers.file_search.vectors.pgvector.transactions import PooledTransactions, VectorConnection
from antwort.providers.file_search.vectors.points import batches, by_chunk, unique

_LOCK = 0x616E7477
"""The advisory lock of whoever changes tables."""
_COUNTED = sql.SQL("count(*) FILTER (WHERE text <> ''), count(DISTINCT file_id), coalesce(sum(octet_length(text)), 0)")
_BATCH = 200
"""Rows in one go."""
_ANALYZED = 1000
"""Rows written to a table after which PostgreSQL looks at it, the first time; then after twice as many, and so on."""
_RANK_HALF = 0.05
"""The rank of PostgreSQL that becomes the score 0.5."""
_SCANNED = 100_000
"""Chunks that a search with a filter looks at, at most."""
_TUNED = (
    "SELECT set_config('hnsw.ef_search', %s, true), set_config('hnsw.max_scan_tuples', %s, true),"
    " set_config('hnsw.iterative_scan', 'strict_order', true)"
)
"""How the index is searched: on and on until the filter has let enough pass."""

_FROM_ENVIRONMENT = "postgresql://"
"""A URL that leaves everything to PGHOST, PGDATABASE and their like, as PostgreSQL's own programs do."""


class Pgvector(VectorDatabase):
    """Keeps collections in PostgreSQL: vectors with an HNSW index, keywords by its full-text search."""

    def __init__(self, settings: PgvectorSettings) -> None:
        self.name = "pgvector"
        url = _FROM_ENVIRONMENT if settings.url is None else settings.url.get_secret_value()
        self._transactions = PooledTransactions(url, settings.pool_size, settings.timeout)
        self._prepared = False
        self._grown: dict[str, tuple[int, int]] = {}

    @classmethod
    def of(cls, settings: PgvectorSettings, services: Services) -> Self:  # noqa: ARG003 - of which it needs none
        """Make it as the settings say."""
        return cls(settings)

    @override
    async def create_collection(self, name: str, dimensions: int) -> None:
        checked_name(name)
        await self._prepare()

        async def create(connection: VectorConnection) -> None:
            await connection.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
            found = await _dimensions(connection, name)
            if found is not None and found != dimensions:
                raise WrongDimensions(found, dimensions)
            if found is None:
                for statement in statements.creation(name, dimensions):
                    await connection.execute(statement)

        await self._transactions.run(create)

    @override
    async def delete_collection(self, name: str) -> None:
        async def drop(connection: VectorConnection) -> None:
            # The lock first: whoever creates has it, too, and they would wait for each other.
            await connection.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
            await connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(statements.table(checked_name(name))))

        await self._transactions.run(drop)
        self._grown.pop(name, None)

    @override
    async def collections(self) -> list[str]:
        async def names(connection: VectorConnection) -> list[str]:
            cursor = await connection.execute(
                "SELECT tablename FROM pg_tables WHERE schemaname = %s", [statements.SCHEMA]
            )
            return sorted(row[0] for row in await cursor.fetchall() if row[0].startswith(PREFIX))

        return await self._transactions.run(names)

    @override
    async def dimensions(self, name: str) -> int | None:
        checked_name(name)
        return await self._transactions.run(lambda connection: _dimensions(connection, name))

    @override
    async def upsert(self, name: str, chunks: Sequence[Chunk]) -> None:
        points = unique(checked_name(name), chunks)
        statement = statements.upsert(name)

        async def write(connection: VectorConnection) -> None:
            cursor = connection.cursor()
            for batch in batches(points, _BATCH):
                await cursor.executemany(statement, [statements.row(name, id_, chunk) for id_, chunk in batch])

        await self._transactions.run(write)
        await self._tell_planner(name, len(points))

    @override
    async def delete(self, name: str, *, tenant: str, file_id: str | None = None, vector_store_id: str = "") -> None:
        where, values = statements.scope(checked_name(name), tenant, vector_store_id, file_id)
        statement = sql.SQL("DELETE FROM {} WHERE {}").format(statements.table(name), where)

        async def remove(connection: VectorConnection) -> None:
            await connection.execute(statement, values)

        await self._transactions.run(remove)

    @override
    async def remove(self, name: str, ids: Sequence[str], *, tenant: str, vector_store_id: str = "") -> None:
        where, values = statements.ids_scope(checked_name(name), ids, tenant, vector_store_id)
        statement = sql.SQL("DELETE FROM {} WHERE {}").format(statements.table(name), where)

        async def remove(connection: VectorConnection) -> None:
            await connection.execute(statement, values)

        await self._transactions.run(remove)

    @override
    async def set_attributes(
        self, name: str, attributes: Attributes, *, tenant: str, file_id: str, vector_store_id: str = ""
    ) -> None:
        where, values = statements.scope(checked_name(name), tenant, vector_store_id, file_id)
        statement = sql.SQL("UPDATE {} SET attributes = %s WHERE {}").format(statements.table(name), where)

        async def change(connection: VectorConnection) -> None:
            await connection.execute(statement, [Jsonb(stored_attributes(attributes)), *values])

        await self._transactions.run(change)

    @override
    async def fetch(self, name: str, ids: Sequence[str], *, tenant: str, vector_store_id: str = "") -> dict[str, Hit]:
        statement, values = statements.by_ids(checked_name(name), ids, tenant, vector_store_id)

        async def look(connection: VectorConnection) -> list[tuple[Any, ...]]:
            return await (await connection.execute(statement, values)).fetchall()

        found = {str(row[0]): statements.found_hit(row, 0.0) for row in await self._transactions.run(look)}
        return by_chunk(name, ids, found, tenant, vector_store_id)

    @override
    async def search(self, name: str, query: Query) -> list[Hit]:
        where = statements.query_scope(checked_name(name), query)
        hybrid = query.vector is not None and query.text is not None
        limit = candidates(query) if hybrid else query.limit
        wanted: list[statements.Part | None] = [None, None]
        if query.vector is not None:
            wanted[0] = statements.by_vector(name, query.vector, limit, where)
        if query.text is not None:
            wanted[1] = statements.by_keyword(name, query.text, limit, where)

        async def look(connection: VectorConnection) -> list[list[tuple[Any, ...]]]:
            await connection.execute(_TUNED, [str(min(1000, max(100, 2 * limit))), str(_SCANNED)])
            return [
                await (await connection.execute(part[0], part[1])).fetchall() if part is not None else []
                for part in wanted
            ]

        by_vector, by_keyword = await self._transactions.run(look)
        if query.vector is not None and not by_vector:
            # A table without rows compares nothing, so it does not complain either.
            check_dimensions(await self.dimensions(name) or len(query.vector), [query.vector])
        near = [statements.found_hit(row, cosine_score(1 - row[1])) for row in by_vector]
        worded = [statements.found_hit(row, saturated(row[1], _RANK_HALF)) for row in by_keyword]
        return finish(fused(near, worded, query.weights, query.text or "") if hybrid else near or worded, query)

    @override
    async def count(self, name: str, *, tenant: str, vector_store_id: str = "") -> Count:
        where, values = statements.scope(checked_name(name), tenant, vector_store_id)
        statement = sql.SQL("SELECT {} FROM {} WHERE {}").format(_COUNTED, statements.table(name), where)

        async def add(connection: VectorConnection) -> Count:
            row = await (await connection.execute(statement, values)).fetchone()
            return Count(*map(int, row)) if row is not None else Count()

        return await self._transactions.run(add)

    @override
    async def counts(self, places: Sequence[VectorPlace]) -> list[Count] | None:
        parts, values = [], []
        for number, one in enumerate(places):
            where, scope = statements.scope(checked_name(one.collection), one.tenant, one.vector_store_id)
            parts.append(
                sql.SQL("SELECT {} AS number, {} FROM {} WHERE {}").format(
                    sql.Literal(number), _COUNTED, statements.table(one.collection), where
                )
            )
            values += scope

        async def add(connection: VectorConnection) -> list[Count]:
            found = await connection.execute(sql.SQL(" UNION ALL ").join(parts) + sql.SQL(" ORDER BY number"), values)
            return [Count(*map(int, row[1:])) for row in await found.fetchall()]

        try:
            return await self._transactions.run(add) if parts else []
        except NoCollection:  # of which one, is not said
            return None

    @override
    async def health(self) -> None:
        """Also raise ConfigError if the database lacks what it needs and we may not create it."""
        if not self._prepared:
            await self._prepare()
            return

        async def ask(connection: VectorConnection) -> None:
            await connection.execute("SELECT 1")

        await self._transactions.run(ask)

    @override
    async def close(self) -> None:
        await self._transactions.close()

    async def _tell_planner(self, name: str, written: int) -> None:
        """Let PostgreSQL look at a table that has grown: until it does, it takes the table for empty and scans it."""
        count, wanted = self._grown.get(name, (0, _ANALYZED))
        if (count := count + written) < wanted:
            self._grown[name] = count, wanted
            return
        self._grown[name] = 0, 2 * wanted

        async def analyze(connection: VectorConnection) -> None:
            await connection.execute(sql.SQL("ANALYZE {}").format(statements.table(name)))

        await self._transactions.run(analyze)

    async def _prepare(self) -> None:
        """Create the extension and the schema, if they are not there."""
        if not self._prepared:
            await self._transactions.run(_prepare)
            self._prepared = True


async def _prepare(connection: VectorConnection) -> None:
    await connection.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
    cursor = await connection.execute(
        "SELECT EXISTS (SELECT FROM pg_extension WHERE extname = 'vector'),"
        " EXISTS (SELECT FROM pg_namespace WHERE nspname = %s)",
        [statements.SCHEMA],
    )
    extension, schema = await cursor.fetchone() or (False, False)
    try:
        if not extension:
            await connection.execute("CREATE EXTENSION vector")
        if not schema:
            await connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(statements.SCHEMA)))
    except psycopg.errors.InsufficientPrivilege:
        raise ConfigError(
            "the database user may not prepare the database for pgvector; run as its owner: "
            f"CREATE EXTENSION vector; CREATE SCHEMA {statements.SCHEMA} AUTHORIZATION <the user>;"
        ) from None
    except (psycopg.errors.FeatureNotSupported, psycopg.errors.UndefinedFile):
        raise ConfigError("the PostgreSQL server has no extension 'vector'; install pgvector 0.8 or later") from None


async def _dimensions(connection: VectorConnection, name: str) -> int | None:
    cursor = await connection.execute(
        "SELECT atttypmod FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid"
        " JOIN pg_namespace ON pg_namespace.oid = relnamespace"
        " WHERE nspname = %s AND relname = %s AND attname = 'embedding'",
        [statements.SCHEMA, name],
    )
    row = await cursor.fetchone()
    return None if row is None else int(row[0])
