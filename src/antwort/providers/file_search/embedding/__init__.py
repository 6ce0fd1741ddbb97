"""Turning text into vectors: with a service that speaks OpenAI's API, a small model in this process, or another."""

from antwort.extensions import EMBEDDINGS, EmbeddingClient
from antwort.provider import HttpClient
from antwort.providers.file_search.embedding.http import HttpEmbedding
from antwort.providers.file_search.embedding.minilm import MiniLM
from antwort.providers.file_search.ingestion.yielding import WorkerPace
from antwort.providers.file_search.settings import FileSearchSettings

__all__ = ["EmbeddingClient", "HttpEmbedding", "MiniLM", "make_embedding"]


async def make_embedding(
    settings: FileSearchSettings, http: HttpClient, *, pace: WorkerPace | None = None
) -> EmbeddingClient:
    """Make the client that the settings ask for; raise ConfigError if what it needs is not installed, or not right.

    Nothing is loaded, and nobody asked, before the first text is embedded. In a process apart, which does nothing else
    and has a pace, the embedded model uses all cores.
    """
    chosen = settings.embedding or ("minilm" if settings.embedding_url is None else "http")
    client = EMBEDDINGS.make(chosen, http, key="embedding", around=settings.of("embedding_"))
    if pace is not None and isinstance(client, MiniLM):
        client.use_cores(max(1, settings.ingestion_workers), pace)
    try:
        await client.check()
    except BaseException:
        await client.close()
        raise
    return client
