"""What the tests of file search share."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.embeddings import EmbeddingServer
from tests.support.memory import memory_folder


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    """The same in memory: to make a collection of vectors waits for a disk dozens of times."""
    if (memory := memory_folder()) is None:
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="antwort-test-", dir=memory) as folder:
        inner = Path(folder) / "test"  # the folder around it is the test's own, too
        inner.mkdir()
        yield inner


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
