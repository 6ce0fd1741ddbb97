"""What ranks results a second time: the protocol."""

from collections.abc import Sequence
from typing import Protocol

from antwort.config import ExtensionKind
from antwort.search.errors import Unavailable


class RerankUnavailable(Unavailable):
    """Results cannot be ranked a second time now."""


class Reranker(Protocol):
    """Reads a query and each text together. It is made from its settings and a client for HTTP."""

    async def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        """Return how well each text answers the query, from 0 to 1, in the order of the texts.

        Raise RerankUnavailable if that cannot be told: then results stay as the search has ranked them.
        """

    async def close(self) -> None:
        """Let go of what it holds; calling it twice does no harm."""


RERANKERS: ExtensionKind[Reranker] = ExtensionKind(
    "antwort.rerankers", "re-ranker", members=("scores", "close"), has_around=True
)
