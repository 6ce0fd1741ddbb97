"""What the tests of file search share."""

from collections.abc import Iterator

import pytest
from tests.support.embeddings import EmbeddingServer
from tests.support.qdrant import QdrantServer


@pytest.fixture
def embeddings() -> Iterator[EmbeddingServer]:
    """A server that embeds."""
    with EmbeddingServer() as server:
        yield server


@pytest.fixture
def qdrant() -> Iterator[QdrantServer]:
    """A server of the test's own, which it may kill, and whose collections are the test's alone."""
    server = QdrantServer()
    try:
        server.start()
        yield server
    finally:
        server.remove()
