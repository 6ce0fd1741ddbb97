"""The statements of the PostgreSQL backend. Values are always parameters; only names and numbers of ours are not."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, LiteralString

from psycopg import pq, sql
from psycopg.adapt import Dumper
from psycopg.types.json import Jsonb
from typing_extensions import override

from antwort.extensions import (
    PREFIX,
    Chunk,
    Comparison,
    Compound,
    Filter,
    Hit,
    Query,
    Scalar,
    is_shared,
    storable,
    store_of,
    stored_attributes,
)
from antwort.providers.file_search.vectors.points import hit_of, point_id

SCHEMA = "antwort_vectors"
"""Where the tables are."""
Part = tuple[sql.Composed, list[Any]]
"""A piece of a statement and its parameters."""

_REAL, _REALS = 700, 1021
"""PostgreSQL's numbers for the types `real` and `real[]`, the same in every database."""
_INLINE = 1600
"""Dimensions of a vector that fits into a page, together with a row's other values."""
_INDEXED = 2000
_INDEXED_HALF = 4000
"""Dimensions that pgvector can index, with whole and with half precision."""

_COLUMNS: LiteralString = """
    id uuid NOT NULL,
    tenant text NOT NULL,
    vector_store_id text NOT NULL DEFAULT {store},
    file_id text NOT NULL,
    filename text NOT NULL DEFAULT '',
    chunk_index integer NOT NULL DEFAULT 0,
    text text NOT NULL,
    attributes jsonb NOT NULL DEFAULT '{{}}',
    embedding vector({dimensions}) NOT NULL,
    keywords tsvector GENERATED ALWAYS AS (to_tsvector('english', left(text, 200000))) STORED,
    PRIMARY KEY (tenant, vector_store_id, id)
"""
_UPSERT: LiteralString = """
    INSERT INTO {table} (id, tenant, vector_store_id, file_id, filename, chunk_index, text, attributes, embedding)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s, {vector})
    ON CONFLICT (tenant, vector_store_id, id) DO UPDATE SET file_id = excluded.file_id, filename = excluded.filename,
    chunk_index = excluded.chunk_index, text = excluded.text, attributes = excluded.attributes,
    embedding = excluded.embedding
"""
_GIVEN: LiteralString = "l2_normalize(%s::real[]::vector)"
"""A vector as a parameter. Of any other length than 1, it may be too large or too small for half precision, and its
square for whole precision; the cosine is the same."""
_ORDERS: dict[str, LiteralString] = {
    "gt": "$ ? (@ > $v)",
    "gte": "$ ? (@ >= $v)",
    "lt": "$ ? (@ < $v)",
    "lte": "$ ? (@ <= $v)",
}


@dataclass(frozen=True, slots=True)
class Vector:
    """A vector on its way to the database."""

    values: Sequence[float]


class VectorDumper(Dumper):
    """Writes a vector as an array of `real`, in binary: as text, its numbers would cost both sides far more."""

    oid = _REALS
    format = pq.Format.BINARY

    @override
    def dump(self, obj: Vector) -> bytes:
        size = len(obj.values)
        head = struct.pack(">5i", 1, 0, _REAL, size, 1)  # dimensions of the array, nulls, type, length, first index
        parts: list[float] = [4] * (2 * size)  # before each number its length
        parts[1::2] = obj.values
        return head + struct.pack(f">{'if' * size}", *parts)


def table(name: str) -> sql.Identifier:
    """Name the table of a collection."""
    return sql.Identifier(SCHEMA, name)


def creation(name: str, dimensions: int) -> list[sql.Composed]:
    """Return what creates a table and its indexes."""
    named = table(name)
    columns = sql.SQL(_COLUMNS).format(
        store=sql.Literal("" if is_shared(name) else store_of(name, "")), dimensions=sql.Literal(dimensions)
    )
    statements = [
        sql.SQL("CREATE TABLE {} ({})").format(named, columns),
        sql.SQL("CREATE INDEX {} ON {} (tenant, vector_store_id, file_id)").format(_index(name, "f"), named),
        sql.SQL("CREATE INDEX {} ON {} USING gin (keywords)").format(_index(name, "k"), named),
    ]
    if dimensions <= _INLINE:
        # Beside the row's other values, not apart from them: the planner does not see what fetching them costs.
        statements.append(sql.SQL("ALTER TABLE {} ALTER COLUMN embedding SET STORAGE PLAIN").format(named))
    if dimensions <= _INDEXED_HALF and not is_shared(name):
        # Stores that share a table are small: each is compared as a whole, which costs nothing for the rows of others.
        column, operators = _vector("embedding", name, dimensions), sql.SQL(_operators(dimensions))
        statements.append(
            sql.SQL("CREATE INDEX {} ON {} USING hnsw (({}) {})").format(_index(name, "v"), named, column, operators)
        )
    return statements


def upsert(name: str) -> sql.Composed:
    """Return what writes a row."""
    return sql.SQL(_UPSERT).format(table=table(name), vector=sql.SQL(_GIVEN))


def _index(name: str, kind: str) -> sql.Identifier:
    """Name an index: the table's name would do, but for its length, so what is in common is left out."""
    return sql.Identifier(f"{name.removeprefix(PREFIX)}_{kind}")


def _vector(value: LiteralString, name: str, dimensions: int) -> sql.Composable:
    """Return a vector in the precision that the index has, if there is one."""
    if _INDEXED < dimensions <= _INDEXED_HALF and not is_shared(name):
        return sql.SQL("{}::halfvec({})").format(sql.SQL(value), sql.Literal(dimensions))
    return sql.SQL(value)


def _operators(dimensions: int) -> LiteralString:
    return "halfvec_cosine_ops" if dimensions > _INDEXED else "vector_cosine_ops"


def row(name: str, id_: str, chunk: Chunk) -> list[Any]:
    """Return a chunk's values."""
    store, attributes = store_of(name, chunk.vector_store_id), Jsonb(stored_attributes(chunk.attributes))
    columns = [id_, chunk.tenant, store, chunk.file_id, storable(chunk.filename), chunk.index]
    return [*columns, storable(chunk.text), attributes, Vector(chunk.vector)]


def found_hit(row: Sequence[Any], score: float) -> Hit:
    """Return what was found."""
    names = ("file_id", "filename", "chunk_index", "text", "attributes")
    return hit_of(str(row[0]), score, dict(zip(names, row[2:], strict=True)))


def ids_scope(name: str, ids: Sequence[str], tenant: str, vector_store_id: str) -> Part:
    """Return the condition that a row is one of these chunks, and the tenant's."""
    where, values = scope(name, tenant, vector_store_id)
    points = [point_id(name, one, tenant, vector_store_id) for one in ids]
    return sql.SQL("{} AND id = ANY(%s::uuid[])").format(where), [*values, points]


def by_ids(name: str, ids: Sequence[str], tenant: str, vector_store_id: str) -> Part:
    """Look for chunks by their ids."""
    where, values = ids_scope(name, ids, tenant, vector_store_id)
    statement = sql.SQL("SELECT id, 0, file_id, filename, chunk_index, text, attributes FROM {} WHERE {}")
    return statement.format(table(name), where), values


def by_vector(name: str, vector: Sequence[float], limit: int, where: Part) -> Part:
    """Look for what is near. The second column is the distance: the cosine is 1 less that."""
    dimensions = len(vector)
    # A query of its own, so that the vector is read once; in a prepared statement it would be for every row.
    wanted = sql.SQL("(SELECT {})").format(_vector(_GIVEN, name, dimensions))
    statement = sql.SQL(
        "SELECT id, {column} <=> {wanted} AS distance, file_id, filename, chunk_index, text, attributes FROM {table}"
        " WHERE {where} ORDER BY distance LIMIT %s"
    ).format(column=_vector("embedding", name, dimensions), wanted=wanted, table=table(name), where=where[0])
    return statement, [Vector(vector), *where[1], limit]


def by_keyword(name: str, text: str, limit: int, where: Part) -> Part:
    """Look for any of the words; what has more of them, and more often, comes first."""
    statement = sql.SQL(
        "WITH wanted AS (SELECT replace(plainto_tsquery('english', %s)::text, ' & ', ' | ')::tsquery AS words)"
        " SELECT id, ts_rank(keywords, words, 1) AS rank, file_id, filename, chunk_index, text, attributes"
        " FROM {table}, wanted WHERE keywords @@ words AND {where} ORDER BY rank DESC, id LIMIT %s"
    ).format(table=table(name), where=where[0])
    return statement, [storable(text), *where[1], limit]


def scope(name: str, tenant: str, vector_store_id: str, file_id: str | None = None) -> Part:
    """Return the condition that a chunk is one of the tenant's, of a store, perhaps of a file."""
    own = {"tenant": tenant, "vector_store_id": store_of(name, vector_store_id)}
    if file_id is not None:
        own["file_id"] = file_id
    return sql.SQL(" AND ").join(sql.SQL("{} = %s").format(sql.Identifier(key)) for key in own), list(own.values())


def query_scope(name: str, query: Query) -> Part:
    """Return the condition of a query."""
    own, values = scope(name, query.tenant, query.vector_store_id)
    if query.without:
        own, values = sql.SQL("{} AND file_id <> ALL(%s)").format(own), [*values, list(query.without)]
    if query.filter is None:
        return own, values
    part, more = _condition(query.filter)
    return sql.SQL("{} AND {}").format(own, part), [*values, *more]


def _condition(wanted: Filter) -> Part:
    if isinstance(wanted, Compound):
        parts = [_condition(part) for part in wanted.filters]
        joint = sql.SQL(" AND " if wanted.op == "and" else " OR ")
        return sql.SQL("({})").format(joint.join(part for part, _ in parts)), [one for _, more in parts for one in more]
    return _comparison(wanted)


def _comparison(wanted: Comparison) -> Part:
    value = wanted.value
    if not isinstance(value, tuple) and wanted.op in _ORDERS:
        statement = sql.SQL("coalesce(jsonb_path_exists(attributes -> %s::text, {}, %s), false)")
        return statement.format(sql.Literal(_ORDERS[wanted.op])), [wanted.key, Jsonb({"v": value})]
    values: tuple[Scalar, ...] = value if isinstance(value, tuple) else (value,)
    is_not = sql.SQL("" if wanted.op in {"eq", "in"} else "NOT ")
    objects = [Jsonb({wanted.key: one}) for one in values]
    return sql.SQL("{}attributes @> ANY (%s::jsonb[])").format(is_not), [objects]
