"""File search: its settings are read and checked; the function itself is not part of this release."""

from typing import ClassVar

from pydantic import PositiveInt

from antwort.provider import ConfigError, Provider, Settings


class QdrantSettings(Settings):
    """A Qdrant server."""

    url: str = "http://localhost:6333"


class FileSearchSettings(Settings):
    """Where documents are, and how a query becomes a vector."""

    embedding_url: str | None = None
    vector_backend: str = "qdrant"
    max_results: PositiveInt = 10
    chunk_size: PositiveInt = 512
    qdrant: QdrantSettings = QdrantSettings()


class FileSearch(Provider[FileSearchSettings]):
    """Search indexed documents."""

    aliases: ClassVar = {"vector_db": "vector_backend", "embedding_endpoint": "embedding_url"}

    def __init__(self, settings: FileSearchSettings | None = None) -> None:
        super().__init__(settings)
        raise ConfigError("file search is not part of this release; set enabled: false, or remove the entry")
