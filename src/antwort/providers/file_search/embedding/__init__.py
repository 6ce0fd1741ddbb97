"""Turning text into vectors: with a service that speaks OpenAI's API, or with a small model in this process."""

from antwort.provider import HttpClient
from antwort.providers.file_search.embedding.base import EmbeddingClient
from antwort.providers.file_search.embedding.http import HttpEmbedding
from antwort.providers.file_search.embedding.minilm import MiniLM
from antwort.providers.file_search.settings import FileSearchSettings

__all__ = ["EmbeddingClient", "HttpEmbedding", "MiniLM", "make_embedding"]


async def make_embedding(settings: FileSearchSettings, http: HttpClient) -> EmbeddingClient:
    """Make the client that the settings ask for; raise ConfigError if what it needs is not installed, or not right.

    Nothing is loaded, and nobody asked, before the first text is embedded.
    """
    if settings.embedding_url is None:
        model = MiniLM()
        try:
            await model.check()
        except BaseException:
            await model.close()
            raise
        return model
    key = settings.embedding_api_key
    return HttpEmbedding(
        http,
        settings.embedding_url,
        model=settings.embedding_model,
        api_key=None if key is None else key.get_secret_value(),
        dimensions=settings.embedding_dimensions,
        max_tokens=settings.embedding_max_tokens,
        timeout=settings.embedding_timeout,
        retries=settings.embedding_retries,
        batch=settings.embedding_batch,
    )
