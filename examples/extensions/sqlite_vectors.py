"""A vector database in one file: SQLite, and arithmetic. It is exact, and quick enough for some ten thousand chunks.

providers:
  file_search:
    enabled: true
    vector_backend: {use: examples/extensions/sqlite_vectors.py:SqliteVectors, path: vectors.db}
"""

import asyncio
import json
import math
import re
import sqlite3
import struct
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TypeVar

from typing_extensions import override

from antwort.extensions import (
    Attributes,
    Chunk,
    Count,
    Hit,
    NoCollection,
    Query,
    Settings,
    VectorDatabase,
    WrongDimensions,
    check_dimensions,
    checked_name,
    cosine_score,
    finish,
    fused,
    is_shared,
    matches,
    saturated,
    storable,
    store_of,
    stored_attributes,
)
from antwort.provider import Services

R = TypeVar("R")

TABLES = """
CREATE TABLE IF NOT EXISTS collections (name TEXT PRIMARY KEY, dimensions INTEGER);
CREATE TABLE IF NOT EXISTS chunks (
    collection TEXT, store TEXT, owner TEXT, id TEXT, tenant TEXT, file_id TEXT, filename TEXT, position INTEGER,
    text TEXT, attributes TEXT, vector BLOB, PRIMARY KEY (collection, store, owner, id)
);
"""
ROWS = "SELECT id, text, file_id, filename, position, attributes, vector FROM chunks"


class SqliteSettings(Settings):
    path: Path | None = None


class SqliteVectors(VectorDatabase):
    """Each call has a connection of its own, on a thread; SQLite lets one of them write at a time."""

    def __init__(self, settings: SqliteSettings, services: Services) -> None:
        self.name = "sqlite"
        self._path = settings.path or services.folder / "vectors.db"

    @property
    @override
    def place(self) -> str:
        return str(self._path.resolve())

    async def _do(self, work: Callable[[sqlite3.Connection], R]) -> R:
        def run() -> R:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(self._path, timeout=30)) as database, database:
                database.executescript(TABLES)
                return work(database)

        return await asyncio.to_thread(run)

    @override
    async def create_collection(self, name: str, dimensions: int) -> None:
        def create(database: sqlite3.Connection) -> int:
            database.execute("INSERT OR IGNORE INTO collections VALUES (?, ?)", (checked_name(name), dimensions))
            return dimensions_of(database, name)

        found = await self._do(create)
        if found != dimensions:
            raise WrongDimensions(found, dimensions)

    @override
    async def delete_collection(self, name: str) -> None:
        def delete(database: sqlite3.Connection) -> None:
            database.execute("DELETE FROM collections WHERE name = ?", (name,))
            database.execute("DELETE FROM chunks WHERE collection = ?", (name,))

        await self._do(delete)

    @override
    async def collections(self) -> list[str]:
        found = await self._do(lambda database: database.execute("SELECT name FROM collections").fetchall())
        return sorted(name for (name,) in found)

    @override
    async def dimensions(self, name: str) -> int | None:
        try:
            return await self._do(lambda database: dimensions_of(database, name))
        except NoCollection:
            return None

    @override
    async def upsert(self, name: str, chunks: Sequence[Chunk]) -> None:
        rows = [row_of(name, chunk) for chunk in chunks]

        def write(database: sqlite3.Connection) -> None:
            check_dimensions(dimensions_of(database, name), (chunk.vector for chunk in chunks))
            database.executemany("INSERT OR REPLACE INTO chunks VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)

        await self._do(write)

    @override
    async def delete(self, name: str, *, tenant: str, file_id: str | None = None, vector_store_id: str = "") -> None:
        scope = "collection = ? AND store = ? AND tenant = ? AND (? IS NULL OR file_id = ?)"
        values = (name, store_of(name, vector_store_id), tenant, file_id, file_id)

        def delete(database: sqlite3.Connection) -> None:
            dimensions_of(database, name)
            database.execute(f"DELETE FROM chunks WHERE {scope}", values)  # noqa: S608 - nothing of it is foreign

        await self._do(delete)

    @override
    async def remove(self, name: str, ids: Sequence[str], *, tenant: str, vector_store_id: str = "") -> None:
        rows = [(name, store_of(name, vector_store_id), tenant, one) for one in ids]

        def delete(database: sqlite3.Connection) -> None:
            dimensions_of(database, name)
            database.executemany(
                "DELETE FROM chunks WHERE collection = ? AND store = ? AND tenant = ? AND id = ?", rows
            )

        await self._do(delete)

    @override
    async def set_attributes(
        self, name: str, attributes: Attributes, *, tenant: str, file_id: str, vector_store_id: str = ""
    ) -> None:
        written = json.dumps(stored_attributes(attributes))
        values = (written, name, store_of(name, vector_store_id), tenant, file_id)

        def update(database: sqlite3.Connection) -> None:
            dimensions_of(database, name)
            where = "collection = ? AND store = ? AND tenant = ? AND file_id = ?"
            database.execute(f"UPDATE chunks SET attributes = ? WHERE {where}", values)  # noqa: S608

        await self._do(update)

    @override
    async def fetch(self, name: str, ids: Sequence[str], *, tenant: str, vector_store_id: str = "") -> dict[str, Hit]:
        wanted = set(ids)
        return {hit.id: hit for hit, _ in await self._all(name, tenant, vector_store_id) if hit.id in wanted}

    @override
    async def search(self, name: str, query: Query) -> list[Hit]:
        rows = await self._all(name, query.tenant, query.vector_store_id, query.vector)
        rows = [(hit, vector) for hit, vector in rows if hit.file_id not in query.without]
        if query.filter is not None:
            rows = [(hit, vector) for hit, vector in rows if matches(query.filter, hit.attributes)]
        return await asyncio.to_thread(found, rows, query)

    async def _all(
        self, name: str, tenant: str, vector_store_id: str, vector: Sequence[float] | None = None
    ) -> list[tuple[Hit, Sequence[float]]]:
        """Return all that a tenant has in a vector store, with its vectors."""
        scope = (name, store_of(name, vector_store_id), tenant)

        def read(database: sqlite3.Connection) -> list[tuple[Hit, Sequence[float]]]:
            check_dimensions(dimensions_of(database, name), [] if vector is None else [vector])
            where = "collection = ? AND store = ? AND tenant = ?"
            return [hit_of(row) for row in database.execute(f"{ROWS} WHERE {where}", scope)]

        return await self._do(read)

    @override
    async def count(self, name: str, *, tenant: str, vector_store_id: str = "") -> Count:
        hits = [hit for hit, _ in await self._all(name, tenant, vector_store_id)]
        texts = [hit.text.encode() for hit in hits if hit.text]
        return Count(len(texts), len({hit.file_id for hit in hits}), sum(map(len, texts)))

    @override
    async def health(self) -> None:
        await self.collections()

    @override
    async def close(self) -> None:
        """Do nothing: no connection outlives its call."""


def dimensions_of(database: sqlite3.Connection, name: str) -> int:
    row = database.execute("SELECT dimensions FROM collections WHERE name = ?", (name,)).fetchone()
    if row is None:
        raise NoCollection("There is no such vector store.")
    return int(row[0])


def row_of(name: str, chunk: Chunk) -> tuple[object, ...]:
    store = store_of(name, chunk.vector_store_id)
    owner = chunk.tenant if is_shared(name) else ""
    about = (chunk.tenant, chunk.file_id, chunk.filename, chunk.index, storable(chunk.text))
    vector = struct.pack(f"{len(chunk.vector)}f", *chunk.vector)
    return (name, store, owner, chunk.id, *about, json.dumps(stored_attributes(chunk.attributes)), vector)


def hit_of(row: tuple[str, str, str, str, int, str, bytes]) -> tuple[Hit, Sequence[float]]:
    id_, text, file_id, filename, position, attributes, vector = row
    numbers = struct.unpack(f"{len(vector) // 4}f", vector)
    return Hit(id_, 0, text, file_id, filename, position, json.loads(attributes)), numbers


# --- searching -------------------------------------------------------------------------------------------------------


def found(rows: Sequence[tuple[Hit, Sequence[float]]], query: Query) -> list[Hit]:
    """Search by the vector, by words, or by both."""
    near = [] if query.vector is None else by_vector(rows, query.vector)
    if query.text is None:
        return finish(near, query)
    worded = by_words([hit for hit, _ in rows], query.text)
    return finish(worded if query.vector is None else fused(near, worded, query.weights, query.text), query)


def by_vector(rows: Sequence[tuple[Hit, Sequence[float]]], wanted: Sequence[float]) -> list[Hit]:
    return ranked([(cosine_score(cosine(wanted, vector)), hit) for hit, vector in rows])


def by_words(hits: Sequence[Hit], text: str) -> list[Hit]:
    """Rank texts by the words of a query that they have; one that few texts have counts more."""
    texts = [Counter(words(hit.text)) for hit in hits]
    rarity = {word: math.log(1 + len(texts) / (1 + sum(word in one for one in texts))) for word in set(words(text))}
    scores = [sum(rare * one[word] / (one[word] + 1 + len(one) / 50) for word, rare in rarity.items()) for one in texts]
    return ranked([(saturated(score, 1.0), hit) for score, hit in zip(scores, hits, strict=True) if score > 0])


def words(text: str) -> list[str]:
    return [re.sub(r"(es|s|ing|ed)$", "", word) if len(word) > 3 else word for word in re.findall(r"\w+", text.lower())]


def cosine(first: Sequence[float], second: Sequence[float]) -> float:
    length = math.hypot(*first) * math.hypot(*second)
    return sum(one * other for one, other in zip(first, second, strict=True)) / length if length else 0.0


def ranked(scored: list[tuple[float, Hit]]) -> list[Hit]:
    ordered = sorted(scored, key=lambda one: -one[0])
    return [
        Hit(hit.id, score, hit.text, hit.file_id, hit.filename, hit.index, hit.attributes) for score, hit in ordered
    ]
