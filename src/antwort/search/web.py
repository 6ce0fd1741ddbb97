"""What searches the web: the protocol, what it finds, and how it fails."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from antwort.config import ExtensionKind
from antwort.context import Context
from antwort.errors import FunctionError


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
