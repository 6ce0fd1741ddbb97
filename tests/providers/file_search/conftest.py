"""What the tests of file search share."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.embeddings import EmbeddingServer


@pytest.fixture
def embeddings() -> Iterator[EmbeddingServer]:
    """A server that embeds."""
    with EmbeddingServer() as server:
        yield server


@pytest.fixture(params=["embedded", "qdrant", "pgvector"])
def every_backend(request: pytest.FixtureRequest, embeddings: EmbeddingServer) -> dict[str, Any]:
    """The settings of a provider, with each kind of database there is."""
    settings: dict[str, Any] = {
        "embedding_url": embeddings.url,
        "embedding_retries": 0,
        "vector_backend": request.param,
    }
    if request.param == "qdrant":
        settings["qdrant"] = {"url": request.getfixturevalue("qdrant_server").url}
    if request.param == "pgvector":
        settings["pgvector"] = {"url": request.getfixturevalue("postgres_url")}
    return settings
