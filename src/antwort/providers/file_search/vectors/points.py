"""Chunks as points of Qdrant, served or embedded: ids, payload, conditions. The payload is a documented contract."""

import math
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast
from uuid import UUID, uuid5

from antwort.extensions import (
    Chunk,
    Comparison,
    Compound,
    Filter,
    Hit,
    Query,
    Scalar,
    WrongDimensions,
    is_shared,
    storable,
    store_of,
    stored_attributes,
    whole,
)
from antwort.provider import JSON

FIELDS = ["text", "file_id", "filename", "chunk_index", "attributes", "exact"]
"""What a hit needs of the payload."""
_LONGEST_NAME = 1024
"""Characters of a file's name or id: as many as our own route takes. A pipeline may have written any number."""
BM25_HALF = 3.0
"""The BM25 score that becomes 0.5."""
_SPACE = UUID("6f2ad4f0-3b8a-5f0e-9c51-6d2f9a2f4c7e")
_DIMENSIONS = re.compile(r"expected dim: (\d+), got (\d+)")
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ORDERS = frozenset({"gt", "gte", "lt", "lte"})
_UPWARDS = frozenset({"gt", "lte"})
_MOST_IN_RANGE = 10**15
"""The largest whole number that Qdrant reads right at the end of a range, where its client writes 1 as 1.0."""
_MOST_WHOLE = 2**53
"""The largest whole number up to which a float has every one."""
_DRIFT = 4
"""Steps between floats that a fraction may be away from what was written.

Qdrant keeps payloads as JSON, and its reader may be wrong by a step each time it reads more than 15 digits. With more
steps than these, fractions of 15 digits would not be told apart.
"""


def point_id(name: str, chunk_id: str, tenant: str, vector_store_id: str) -> str:
    """Return the id of a chunk's point. Where stores share a collection, nobody overwrites the chunks of others."""
    own = UUID(chunk_id)
    if not is_shared(name):
        return str(own)
    return str(uuid5(_SPACE, "\0".join((tenant, store_of(name, vector_store_id), str(own)))))


def unique(name: str, chunks: Iterable[Chunk]) -> dict[str, Chunk]:
    """Return chunks by the id of their point; of the same id, the last."""
    return {point_id(name, chunk.id, chunk.tenant, chunk.vector_store_id): chunk for chunk in chunks}


def ids_scope(name: str, ids: Sequence[str], tenant: str, vector_store_id: str) -> JSON:
    """Return the condition that a point is one of these chunks, and the tenant's."""
    own = scope(name, tenant, vector_store_id)
    own["must"].append({"has_id": [point_id(name, one, tenant, vector_store_id) for one in ids]})
    return own


def by_chunk(
    name: str, ids: Sequence[str], found: Mapping[str, Hit], tenant: str, vector_store_id: str
) -> dict[str, Hit]:
    """Return hits that are known by the ids of their points by those of their chunks."""
    points = {one: point_id(name, one, tenant, vector_store_id) for one in ids}
    return {one: found[point] for one, point in points.items() if point in found}


def batches(points: Mapping[str, Chunk], size: int) -> Iterable[list[tuple[str, Chunk]]]:
    """Divide points into parts."""
    every = list(points.items())
    return (every[start : start + size] for start in range(0, len(every), size))


def dimensions_error(message: str) -> WrongDimensions | None:
    """Return the error that a message of Qdrant means, if it is about the length of a vector."""
    found = _DIMENSIONS.search(message)
    return WrongDimensions(int(found[1]), int(found[2])) if found else None


def attributes_payload(attributes: Mapping[str, Scalar]) -> JSON:
    """Return what takes the place of the attributes in the payload of a point."""
    stored = stored_attributes(attributes)
    return {"exact": {}, **_exact(stored), "attributes": stored}


def payload_of(name: str, chunk: Chunk) -> JSON:
    """Return the payload of a chunk's point."""
    text, attributes = storable(chunk.text), stored_attributes(chunk.attributes)
    return {
        "text": text,
        "text_bytes": len(text.encode()),
        "file_id": chunk.file_id,
        "filename": storable(chunk.filename),
        "chunk_index": chunk.index,
        "tenant": chunk.tenant,
        "vector_store_id": store_of(name, chunk.vector_store_id),
        **_exact(attributes),
        "attributes": attributes,
    }


def _exact(attributes: Mapping[str, Scalar]) -> JSON:
    """Return fractions once more, as texts: as numbers they come back with another last digit."""
    fractions = {key: repr(value) for key, value in attributes.items() if isinstance(value, float)}
    return {"exact": fractions} if fractions else {}


def hit_of(point: str, score: float, payload: Mapping[str, Any] | None) -> Hit:
    """Return what was found; a pipeline may have left out what is not needed, or written what we cannot use."""
    fields = payload or {}
    index, attributes, exact = fields.get("chunk_index"), fields.get("attributes"), fields.get("exact")
    if not isinstance(attributes, dict):
        attributes = {}
    if not isinstance(exact, dict):
        exact = {}
    return Hit(
        id=point,
        score=score,
        text=_text(fields.get("text")),
        file_id=_text(fields.get("file_id"), _LONGEST_NAME),
        filename=_text(fields.get("filename"), _LONGEST_NAME),
        index=int(index) if isinstance(index, int | float) and _is_scalar(index) else 0,
        attributes={key: _restored(value, exact.get(key)) for key, value in attributes.items() if _is_scalar(value)},
    )


def _restored(value: Scalar, exact: Any) -> Scalar:
    """Return a fraction as it was written, if `exact` is that and not what is left of another value."""
    if not isinstance(value, float) or not isinstance(exact, str):
        return value
    try:
        written = float(exact)
    except ValueError:
        return value
    return written if math.isclose(value, written, rel_tol=1e-14, abs_tol=0.0) else value


def _text(value: Any, longest: int | None = None) -> str:
    return value[:longest] if isinstance(value, str) else ""


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
    if query.without:
        found["must_not"] = [_equals("file_id", file_id) for file_id in query.without]
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
        return _ordered(path, op, whole(cast("float", value)))
    return {"must" if op == "eq" else "must_not": [_equals(path, value)]}


def _equals(key: str, value: Scalar) -> JSON:
    """Return a condition for equality. A match tells 1 from 1.0, so numbers are matched only where a range is wrong."""
    if isinstance(value, str | bool):
        return {"key": key, "match": {"value": value}}
    number = whole(value)
    if isinstance(number, int) and _MOST_IN_RANGE < abs(number) < 2**63:
        return {"key": key, "match": {"value": number}}
    return {"key": key, "range": {"gte": _edge("gte", number), "lte": _edge("lte", number)}}


def _ordered(key: str, op: str, number: float) -> JSON:
    """Return a condition for an order.

    Where whole numbers have too many digits for the end of a range, which may then be read as one more or one less, the
    nearest are matched one by one, and the range begins among them.
    """
    if not isinstance(number, int) or not _MOST_IN_RANGE < abs(number) <= _MOST_WHOLE:
        return {"key": key, "range": {op: _edge(op, number)}}
    beyond, step = ("gt", 1) if op in {"gt", "gte"} else ("lt", -1)
    nearest = [number] if op in {"gte", "lte"} else []
    nearest += [number + step, number + 2 * step, number + 3 * step]
    matched = [{"key": key, "match": {"value": one}} for one in nearest]
    return {"should": [*matched, {"key": key, "range": {beyond: float(number + 2 * step)}}]}


def _edge(op: str, number: float) -> float:
    """Return the end of a range: a whole number itself, a fraction with room for what it has become meanwhile."""
    if isinstance(number, int) and abs(number) <= _MOST_IN_RANGE:
        return float(number)
    room = _DRIFT * math.ulp(number)
    moved = number + room if op in _UPWARDS else number - room
    return max(-sys.float_info.max, min(sys.float_info.max, moved))
