"""What turns text into vectors: the protocol."""

from collections.abc import Sequence
from typing import Protocol

from antwort.config import ExtensionKind

_QUERIES_AT_ONCE = 8


class EmbeddingClient(Protocol):
    """Embeds text with one model: the one that the documents were embedded with.

    It is made from its settings and a client for HTTP.
    """

    async def check(self) -> None:
        """Raise ConfigError if what it needs is not installed, or not right. Nobody is asked, nor anything loaded."""
        return None  # noqa: RET501 - who needs nothing does not write it

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return a vector for each text, in order, all of the same length; raise EmbeddingUnavailable otherwise.

        A text may be empty. Of one that is too long for the model its beginning counts, if the model has a say.
        """

    async def embed_whole(self, texts: Sequence[str]) -> list[list[list[float]]]:
        """Return the vectors of each text: one, or several if it is longer than what the model reads at once.

        Then each is that of a window, in order, and windows overlap: nothing that the text says is left out. A client
        that does not say otherwise has one for each.
        """
        return [[vector] for vector in await self.embed(texts)]

    async def dimensions(self) -> int:
        """Return the length of the vectors. The first call may embed something to find out."""

    async def close(self) -> None:
        """Let go of what the client holds. It is not used afterwards; calling it twice does no harm."""


EMBEDDINGS: ExtensionKind[EmbeddingClient] = ExtensionKind(
    "antwort.embeddings", "embedding", members=("embed", "dimensions", "close"), has_around=True
)


def queries_at_once(embedding: EmbeddingClient) -> int:
    """Return how many searches have their queries embedded at the same time; others wait for their turn.

    A client that computes by itself says so with `at_once`; it is no part of the protocol, as most only ask a service.
    """
    return int(getattr(embedding, "at_once", _QUERIES_AT_ONCE))
