"""What keeps and finds vectors; it is part of what extensions import."""

from antwort.extensions import (
    PREFIX,
    SHARED_PREFIX,
    Attributes,
    Chunk,
    CompareOp,
    Comparison,
    Compound,
    CompoundOp,
    Count,
    Filter,
    Hit,
    Query,
    Scalar,
    VectorDatabase,
    checked_name,
    collection_name,
    is_shared,
    shared_collection_name,
)
from antwort.extensions import VectorPlace as Place

VectorStoreBackend = VectorDatabase

__all__ = [
    "PREFIX",
    "SHARED_PREFIX",
    "Attributes",
    "Chunk",
    "CompareOp",
    "Comparison",
    "Compound",
    "CompoundOp",
    "Count",
    "Filter",
    "Hit",
    "Place",
    "Query",
    "Scalar",
    "VectorStoreBackend",
    "checked_name",
    "collection_name",
    "is_shared",
    "shared_collection_name",
]
