"""Everything an extension imports, whichever kind it is of.

from antwort.extensions import Settings, VectorDatabase

Providers have `antwort.provider`, which an extension may import too.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from antwort.backends.base import UNFINISHED, ModelInfo, ModelRequest, TurnSink
    from antwort.backends.chat.request import ChatDialect, chat_messages
    from antwort.backends.errors import excerpt, reported_error
    from antwort.backends.http.remote import AnswerReader, EventReader, RemoteBackend
    from antwort.backends.http.transport import AnswerLimits
    from antwort.concurrency.slots import Queue
    from antwort.config import BackendConfig, Choice, ExtensionKind, Settings
    from antwort.errors import BadGatewayError
    from antwort.files.base import Blobs
    from antwort.sandbox import Sandbox, SandboxLimits, SandboxProcess
    from antwort.search.base import (
        EMBEDDINGS,
        RERANKERS,
        SEARCH_ENGINES,
        EmbeddingClient,
        EmbeddingUnavailable,
        Findings,
        NoCollection,
        Reranker,
        RerankUnavailable,
        SearchEngine,
        SearchError,
        SearchResult,
        Unavailable,
        VectorStoreUnavailable,
        WrongDimensions,
        queries_at_once,
    )
    from antwort.search.filters import FilterError, matches, parse_filter, storable, stored_attributes, whole
    from antwort.search.ranking import (
        FEWEST,
        balanced_scores,
        candidates,
        cosine_score,
        finish,
        fused,
        joint_scores,
        likenesses,
        saturated,
        word_shares,
    )
    from antwort.search.vectors import (
        PREFIX,
        SHARED_PREFIX,
        VECTOR_DATABASES,
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
        VectorPlace,
        check_dimensions,
        checked_name,
        collection_name,
        is_shared,
        shared_collection_name,
        store_of,
    )
    from antwort.wire.responses import Usage

__all__ = [
    "EMBEDDINGS",
    "FEWEST",
    "PREFIX",
    "RERANKERS",
    "SEARCH_ENGINES",
    "SHARED_PREFIX",
    "UNFINISHED",
    "VECTOR_DATABASES",
    "AnswerLimits",
    "AnswerReader",
    "Attributes",
    "BackendConfig",
    "BadGatewayError",
    "Blobs",
    "ChatDialect",
    "Choice",
    "Chunk",
    "CompareOp",
    "Comparison",
    "Compound",
    "CompoundOp",
    "Count",
    "EmbeddingClient",
    "EmbeddingUnavailable",
    "EventReader",
    "ExtensionKind",
    "Filter",
    "FilterError",
    "Findings",
    "Hit",
    "ModelInfo",
    "ModelRequest",
    "NoCollection",
    "Query",
    "Queue",
    "RemoteBackend",
    "RerankUnavailable",
    "Reranker",
    "Sandbox",
    "SandboxLimits",
    "SandboxProcess",
    "Scalar",
    "SearchEngine",
    "SearchError",
    "SearchResult",
    "Settings",
    "TurnSink",
    "Unavailable",
    "Usage",
    "VectorDatabase",
    "VectorPlace",
    "VectorStoreUnavailable",
    "WrongDimensions",
    "balanced_scores",
    "candidates",
    "chat_messages",
    "check_dimensions",
    "checked_name",
    "collection_name",
    "cosine_score",
    "excerpt",
    "finish",
    "fused",
    "is_shared",
    "joint_scores",
    "likenesses",
    "matches",
    "parse_filter",
    "queries_at_once",
    "reported_error",
    "saturated",
    "shared_collection_name",
    "storable",
    "store_of",
    "stored_attributes",
    "whole",
    "word_shares",
]

_HOME = {
    "antwort.backends.base": (
        "UNFINISHED",
        "ModelInfo",
        "ModelRequest",
        "TurnSink",
    ),
    "antwort.backends.chat.request": (
        "ChatDialect",
        "chat_messages",
    ),
    "antwort.backends.errors": (
        "excerpt",
        "reported_error",
    ),
    "antwort.backends.http.transport": ("AnswerLimits",),
    "antwort.backends.http.remote": (
        "AnswerReader",
        "EventReader",
        "RemoteBackend",
    ),
    "antwort.concurrency.slots": ("Queue",),
    "antwort.config": (
        "BackendConfig",
        "Choice",
        "ExtensionKind",
        "Settings",
    ),
    "antwort.errors": ("BadGatewayError",),
    "antwort.files.base": ("Blobs",),
    "antwort.sandbox": (
        "Sandbox",
        "SandboxLimits",
        "SandboxProcess",
    ),
    "antwort.search.base": (
        "EMBEDDINGS",
        "EmbeddingClient",
        "EmbeddingUnavailable",
        "Findings",
        "NoCollection",
        "RERANKERS",
        "RerankUnavailable",
        "Reranker",
        "SEARCH_ENGINES",
        "SearchEngine",
        "SearchError",
        "SearchResult",
        "Unavailable",
        "VectorStoreUnavailable",
        "WrongDimensions",
        "queries_at_once",
    ),
    "antwort.search.filters": (
        "FilterError",
        "matches",
        "parse_filter",
        "storable",
        "stored_attributes",
        "whole",
    ),
    "antwort.search.ranking": (
        "FEWEST",
        "balanced_scores",
        "candidates",
        "cosine_score",
        "finish",
        "fused",
        "joint_scores",
        "likenesses",
        "saturated",
        "word_shares",
    ),
    "antwort.search.vectors": (
        "PREFIX",
        "SHARED_PREFIX",
        "VECTOR_DATABASES",
        "Attributes",
        "Chunk",
        "CompareOp",
        "Comparison",
        "Compound",
        "CompoundOp",
        "Count",
        "Filter",
        "Hit",
        "Query",
        "Scalar",
        "VectorDatabase",
        "VectorPlace",
        "check_dimensions",
        "checked_name",
        "collection_name",
        "is_shared",
        "shared_collection_name",
        "store_of",
    ),
    "antwort.wire.responses": ("Usage",),
}
"""Where each name lives. They are imported on first use: a vector database needs nothing of model servers."""


def __getattr__(name: str) -> Any:
    for module, names in _HOME.items():
        if name in names:
            return getattr(importlib.import_module(module), name)
    raise AttributeError(f"module 'antwort.extensions' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
