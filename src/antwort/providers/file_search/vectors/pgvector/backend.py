"""PostgreSQL with the extension `vector`: a table for each collection, in a schema of its own.

One table each, not one for all: a table's vectors have one length, its index has one store's vectors and no others,
and deleting a store is dropping a table.
"""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Self, TypeVar

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb
from psycopg_pool import AsyncConnectionPool
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
    VectorStoreUnavailable,
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
from antwort.provider import ConfigError, FunctionError, Services
from antwort.providers.file_search.settings import PgvectorSettings
from antwort.providers.file_search.vectors.pgvector import statements
from antwort.providers.file_search.vectors.pgvector.statements import Vector, VectorDumper
from antwort.providers.file_search.vectors.points import batches, by_chunk, unique

T = TypeVar("T")


logger = logging.getLogger(__name__)


_EXPECTED = re.compile(r"expected (\d+) dimensions, not (\d+)")
_DIFFERENT = re.compile(r"different \w+ dimensions (\d+) and (\d+)")
_GIVE_UP = 1.0
"""Seconds after which the pool stops trying to connect by itself; whoever comes next lets it try again."""


class VectorConnection(psycopg.AsyncConnection[tuple[Any, ...]]):
    """A connection that takes vectors. It is `fresh` until it has been used once."""

    fresh = True

    @classmethod
    @override
    async def connect(cls, conninfo: str = "", **options: Any) -> Self:
        """Connect, within the limits that the pool has for it."""
        limit, tell = options.pop("limit"), options.pop("tell")
        try:
            connection = await super().connect(conninfo, **options)
        except (psycopg.Error, OSError, UnicodeError) as error:  # the last for a host that no resolver takes
            tell(error)
            raise
        connection.adapters.register_dumper(Vector, VectorDumper)
        try:
            await connection.execute("SELECT set_config('statement_timeout', %s, false)", [limit])
        except BaseException as error:
            tell(error)
            await connection.close()
            raise
        return connection


class PooledTransactions:
    """Runs work in a transaction on one of a few connections."""

    def __init__(self, url: str, size: int, timeout: float) -> None:
        self._timeout = timeout
        self._server = _server(url)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._waiting: set[asyncio.Future[None]] = set()
        """Those who wait for a connection, each to be told if there is none."""
        self._opened = False
        self._pool = AsyncConnectionPool(
            url,
            connection_class=VectorConnection,
            kwargs={
                "autocommit": True,
                "connect_timeout": max(2, int(timeout)),
                "application_name": "antwort",
                "limit": str(int(timeout * 1000)),
                "tell": self._tell,
            },
            min_size=0,
            max_size=size,
            timeout=2 * timeout,
            reconnect_timeout=_GIVE_UP,
            open=False,
        )

    async def run(self, work: Callable[[VectorConnection], Awaitable[T]]) -> T:
        """Do work in a transaction, all of it or nothing.

        A connection that was idle may have died meanwhile: then the work is done again on another, so it must be such
        that twice is as good as once.
        """
        task = asyncio.create_task(self._run(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            done, _ = await asyncio.wait({task}, timeout=2 * self._timeout)
        except asyncio.CancelledError:
            task.cancel()
            raise
        if not done:
            # It ends when it can: to a server that stands still even the cancellation takes long.
            task.cancel()
            raise self._unavailable("did not answer in time.")
        try:
            return task.result()
        except (psycopg.Error, OSError, UnicodeError) as error:
            raise self._meant(error) from None

    async def _run(self, work: Callable[[VectorConnection], Awaitable[T]]) -> T:
        if not self._opened:
            self._opened = True
            await self._pool.open()
        while True:
            connection = await self._connection()
            is_fresh, connection.fresh = connection.fresh, False
            try:
                return await self._use(connection, work)
            except psycopg.OperationalError:
                if is_fresh or not connection.closed:
                    raise

    async def close(self) -> None:
        """Give up the connections, when the work on them has ended."""
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._pool.close()

    async def _connection(self) -> VectorConnection:
        """Wait for a connection; raise what is wrong if there is none to be had. The pool would just try again."""
        told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        getting = asyncio.create_task(self._pool.getconn())
        self._waiting.add(told)
        try:
            first: set[asyncio.Future[Any]] = {told, getting}
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
            if not getting.done():
                await told
            return await getting
        except BaseException:
            getting.cancel()
            await asyncio.wait({getting})
            if not getting.cancelled() and getting.exception() is None:
                await self._pool.putconn(getting.result())
            raise
        finally:
            self._waiting.discard(told)
            if not told.cancel():
                told.exception()  # seen, even if a connection came first

    def _tell(self, error: BaseException) -> None:
        """Tell those who wait why they get no connection."""
        for one in self._waiting:
            if not one.done():
                one.set_exception(error if isinstance(error, Exception) else psycopg.OperationalError(str(error)))

    async def _use(self, connection: VectorConnection, work: Callable[[VectorConnection], Awaitable[T]]) -> T:
        """Do work, and give the connection back: closed if somebody stopped the work in the middle."""
        try:
            async with connection.transaction():
                return await work(connection)
        except (psycopg.Error, FunctionError):
            raise
        except BaseException:
            with suppress(psycopg.Error):
                await connection.close()
            raise
        finally:
            await self._pool.putconn(connection)

    def _meant(self, error: psycopg.Error | OSError | UnicodeError) -> FunctionError:
        message = str(error)
        if isinstance(error, psycopg.errors.UndefinedTable | psycopg.errors.InvalidSchemaName):
            return NoCollection("There is no such vector store.")
        if found := _EXPECTED.search(message) or _DIFFERENT.search(message):
            return WrongDimensions(int(found[1]), int(found[2]))
        logger.warning("vector database at %s: %s", self._server, message.splitlines()[0] if message else type(error))
        if isinstance(error, psycopg.errors.QueryCanceled):
            return self._unavailable("did not answer in time.", away=True)
        if isinstance(error, psycopg.OperationalError | OSError | UnicodeError):
            return self._unavailable("cannot be reached.", away=True)
        return self._unavailable("failed; the log says why.")

    def _unavailable(self, what: str, *, away: bool = False) -> VectorStoreUnavailable:
        failure = VectorStoreUnavailable.at(self._server, "The vector database", what)
        failure.away = away
        return failure


def _server(url: str) -> str:
    """Return the host and the port that a URL names, to be shown; ConfigError if it cannot be read."""
    try:
        parts = psycopg.conninfo.conninfo_to_dict(url)
    except psycopg.Error:  # its message may have the password in it
        raise ConfigError("'pgvector.url' cannot be read; it must look like postgresql://user@host/database") from None
    host, port = str(parts.get("host") or "localhost"), parts.get("port")
    if host.startswith("/") or port is None:  # a folder with a socket, or the usual port
        return host
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


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
        await self._delete_where(name, *statements.scope(checked_name(name), tenant, vector_store_id, file_id))

    @override
    async def remove(self, name: str, ids: Sequence[str], *, tenant: str, vector_store_id: str = "") -> None:
        await self._delete_where(name, *statements.ids_scope(checked_name(name), ids, tenant, vector_store_id))

    async def _delete_where(self, name: str, where: sql.Composable, values: Sequence[object]) -> None:
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
