"""What the tests of file search share."""

from collections.abc import Iterator

import pytest
from tests.support.embeddings import EmbeddingServer


@pytest.fixture
def embeddings() -> Iterator[EmbeddingServer]:
    """A server that embeds."""
    with EmbeddingServer() as server:
        yield server
