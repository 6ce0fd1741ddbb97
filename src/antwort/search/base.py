"""What searches, as whoever writes one sees it: embeddings, re-rankers and search engines, and how they fail."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

from antwort.config import ExtensionKind
from antwort.context import Context
from antwort.errors import FunctionError

# --- failures --------------------------------------------------------------------------------------------------------


class Unavailable(FunctionError):  # noqa: N818 - it says a state
    """A server behind us cannot be used now. Models and clients read the message: no address is in it."""

    def __init__(self, message: str, *, for_operator: str | None = None) -> None:
        super().__init__(message)
        self.for_operator = for_operator or message
        """The same with host and port, for whoever configured them."""

    @classmethod
    def at(cls, server: str, subject: str, what: str) -> Self:
        """Say of a server, which is called `subject`, what is the case."""
        return cls(f"{subject} {what}", for_operator=f"{subject} at {server} {what}")


class EmbeddingUnavailable(Unavailable):
    """The text cannot be embedded now."""

    status = "unavailable"


class VectorStoreUnavailable(Unavailable):
    """The vector database cannot be reached, did not answer in time, or not as it should."""

    away = False
    """Nobody answers: it is not this request that it cannot do."""


class NoCollection(FunctionError):  # noqa: N818
    """There is no such collection."""


class WrongDimensions(FunctionError):  # noqa: N818
    """A vector has another length than those of the collection."""

    def __init__(self, wanted: int, got: int) -> None:
        super().__init__(f"The vector has {got} dimensions, those of the vector store have {wanted}.")
        self.wanted = wanted
        self.got = got


# --- what turns text into vectors ------------------------------------------------------------------------------------


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


# --- what ranks results a second time --------------------------------------------------------------------------------


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


# --- what searches the web -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SearchResult:
    """One result, as the backend gave it."""

    title: str
    url: str
    snippet: str
    published: str | None = None


class Findings(list[SearchResult]):
    """Results in the order of their rank, and what the backend says besides."""

    def __init__(
        self,
        results: Iterable[SearchResult] = (),
        *,
        answers: Iterable[str] = (),
        suggestions: Iterable[str] = (),
        silent: Iterable[str] = (),
    ) -> None:
        super().__init__(results)
        self.answers = list(answers)
        """Facts that need no result, such as a conversion."""
        self.suggestions = list(suggestions)
        """Other queries to try."""
        self.silent = list(silent)
        """Search engines behind the backend that did not answer, with the reason."""


class SearchError(FunctionError):
    """The search failed; `outcome` is the status it is counted under."""

    def __init__(self, message: str, outcome: str = "error") -> None:
        super().__init__(message)
        self.outcome = outcome


class SearchEngine(Protocol):
    """Searches the web, or something else whose results have addresses. It is made from its settings."""

    async def search(self, ctx: Context, query: str, max_results: int) -> list[SearchResult]:
        """Return what is found, best first; more than `max_results` is no error.

        What the request wishes for is in the context. Raise SearchError if the backend cannot say.
        """


SEARCH_ENGINES: ExtensionKind[SearchEngine] = ExtensionKind(
    "antwort.search_engines", "search engine", members=("search",), has_around=True
)
