"""Chunks as points of Qdrant, served or embedded: ids, payload, conditions. The payload is a documented contract."""

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID, uuid5

from antwort.providers.file_search.vectors.base import (
    PREFIX,
    Chunk,
    Comparison,
    Compound,
    Filter,
    Hit,
    Query,
    Scalar,
    WrongDimensions,
    is_shared,
)
from antwort.providers.file_search.vectors.filters import storable

__all__ = [
    "BM25_HALF",
    "FIELDS",
    "attribute_path",
    "batches",
    "check_dimensions",
    "chunk_scope",
    "dimensions_error",
    "hit_of",
    "payload_of",
    "point_id",
    "scope",
    "store_of",
    "stored_attributes",
    "unique",
    "where",
]

JSON = dict[str, Any]

FIELDS = ["text", "file_id", "filename", "chunk_index", "attributes"]
"""What a hit needs of the payload."""
BM25_HALF = 3.0
"""The BM25 score that becomes 0.5."""
_SPACE = UUID("6f2ad4f0-3b8a-5f0e-9c51-6d2f9a2f4c7e")
_DIMENSIONS = re.compile(r"expected dim: (\d+), got (\d+)")
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ORDERS = frozenset({"gt", "gte", "lt", "lte"})


def store_of(name: str, vector_store_id: str) -> str:
    """Return the vector store that is meant; a collection of one store says so itself."""
    if not is_shared(name):
        return name.removeprefix(PREFIX)
    if not vector_store_id:
        raise ValueError("a shared collection needs the vector store's id")
    return vector_store_id


def point_id(name: str, chunk: Chunk) -> str:
    """Return the id of a chunk's point. Where stores share a collection, nobody overwrites the chunks of others."""
    own = UUID(chunk.id)
    if not is_shared(name):
        return str(own)
    return str(uuid5(_SPACE, "\0".join((chunk.tenant, store_of(name, chunk.vector_store_id), str(own)))))


def unique(name: str, chunks: Iterable[Chunk]) -> dict[str, Chunk]:
    """Return chunks by the id of their point; of the same id, the last."""
    return {point_id(name, chunk): chunk for chunk in chunks}


def batches(points: Mapping[str, Chunk], size: int) -> Iterable[list[tuple[str, Chunk]]]:
    """Divide points into parts."""
    every = list(points.items())
    return (every[start : start + size] for start in range(0, len(every), size))


def check_dimensions(wanted: int, vectors: Iterable[Sequence[float]]) -> None:
    """Raise WrongDimensions if a vector has another length."""
    for vector in vectors:
        if len(vector) != wanted:
            raise WrongDimensions(wanted, len(vector))


def dimensions_error(message: str) -> WrongDimensions | None:
    """Return the error that a message of Qdrant means, if it is about the length of a vector."""
    found = _DIMENSIONS.search(message)
    return WrongDimensions(int(found[1]), int(found[2])) if found else None


def payload_of(name: str, chunk: Chunk) -> JSON:
    """Return the payload of a chunk's point."""
    text = storable(chunk.text)
    return {
        "text": text,
        "text_bytes": len(text.encode()),
        "file_id": chunk.file_id,
        "filename": storable(chunk.filename),
        "chunk_index": chunk.index,
        "tenant": chunk.tenant,
        "vector_store_id": store_of(name, chunk.vector_store_id),
        "attributes": stored_attributes(chunk.attributes),
    }


def stored_attributes(attributes: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """Return attributes as a database can keep them."""
    return {storable(key): storable(value) if isinstance(value, str) else value for key, value in attributes.items()}


def hit_of(point: str, score: float, payload: Mapping[str, Any] | None) -> Hit:
    """Return what was found; a pipeline may have left out what is not needed, or written what we cannot use."""
    fields = payload or {}
    index, attributes = fields.get("chunk_index"), fields.get("attributes")
    if not isinstance(attributes, dict):
        attributes = {}
    return Hit(
        id=point,
        score=score,
        text=_text(fields.get("text")),
        file_id=_text(fields.get("file_id")),
        filename=_text(fields.get("filename")),
        index=int(index) if isinstance(index, int | float) and _is_scalar(index) else 0,
        attributes={key: value for key, value in attributes.items() if _is_scalar(value)},
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _is_scalar(value: Any) -> bool:
    """Tell whether a value can be an attribute: a text, true, false, or a number that JSON has."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return -sys.float_info.max <= value <= sys.float_info.max
    return isinstance(value, str | bool)


# --- conditions, as Qdrant's REST API writes them --------------------------------------------------------------------


def scope(name: str, tenant: str, vector_store_id: str, file_id: str | None = None) -> JSON:
    """Return the condition that a point is one of the tenant's, of a store, perhaps of a file."""
    must = [_equals("tenant", tenant)]
    if is_shared(name):
        must.append(_equals("vector_store_id", store_of(name, vector_store_id)))
    if file_id is not None:
        must.append(_equals("file_id", file_id))
    return {"must": must}


def chunk_scope(name: str, query: Query) -> JSON:
    """Return the condition of a query."""
    found = scope(name, query.tenant, query.vector_store_id)
    if query.filter is not None:
        found["must"].append(where(query.filter))
    return found


def where(wanted: Filter) -> JSON:
    """Return a filter as a condition."""
    if isinstance(wanted, Compound):
        return {"must" if wanted.op == "and" else "should": [where(part) for part in wanted.filters]}
    return _comparison(wanted)


def attribute_path(key: str) -> str:
    """Return where an attribute is in the payload, as Qdrant writes it."""
    return f"attributes.{key}" if _PLAIN.fullmatch(key) else f'attributes."{key}"'


def _comparison(wanted: Comparison) -> JSON:
    path, op, value = attribute_path(wanted.key), wanted.op, wanted.value
    if isinstance(value, tuple):
        # Without a value nothing is equal; an empty `should` would match all.
        equal = [_equals(path, one) for one in value] or [{"has_id": []}]
        return {"should" if op == "in" else "must_not": equal}
    if op in _ORDERS:
        return {"key": path, "range": {op: value}}
    return {"must" if op == "eq" else "must_not": [_equals(path, value)]}


def _equals(key: str, value: Scalar) -> JSON:
    """Return a condition for equality; Qdrant matches no fractions, but ranges of one number."""
    if isinstance(value, str | bool):
        return {"key": key, "match": {"value": value}}
    return {"key": key, "range": {"gte": value, "lte": value}}
