"""What turns text into vectors; it is part of what extensions import."""

from antwort.extensions import EmbeddingClient, queries_at_once

__all__ = ["EmbeddingClient", "queries_at_once"]
