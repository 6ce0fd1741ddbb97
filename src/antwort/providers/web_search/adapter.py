"""What searches the web: the protocol, what it finds, and how it fails."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlsplit

from antwort.provider import (
    Context,
    FunctionError,
    HttpAnswer,
    OutboundError,
    OutboundTimeoutError,
    UnreachableError,
    call_again,
    retry_after,
)

logger = logging.getLogger(__name__)


_PASSING = frozenset({502, 503, 504})
"""Statuses of a failure that may pass."""
_FIRST_PAUSE = 0.1
_PATIENCE = 2.0
"""Seconds that a backend may ask us to wait: a search is answered while somebody watches."""


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


class SearchAdapter(Protocol):
    """Searches with one backend."""

    async def search(self, ctx: Context, query: str, max_results: int) -> list[SearchResult]:
        """Return what is found, best first; more than `max_results` is no error.

        What the request wishes for is in the context. Raise SearchError if the backend cannot say.
        """


async def ask(
    ctx: Context, url: str, params: Mapping[str, str], headers: Mapping[str, str], *, retries: int, time_limit: float
) -> HttpAnswer:
    """Ask a backend, again if the failure may pass; raise SearchError if there is no answer.

    Details are for the log: the model learns no address of the operator's network.
    """

    async def call() -> HttpAnswer:
        return await ctx.http.call("GET", url, params=params, headers=headers, time_limit=time_limit)

    try:
        return await call_again(
            call,
            retries=retries,
            patience=_PATIENCE,
            passing=_passing,
            first_pause=_FIRST_PAUSE,
            longest_pause=_PATIENCE,
        )
    except OutboundError as error:
        logger.warning("web search: %s: %s", _server(url), error)
        match error:
            case UnreachableError():
                raise SearchError("The search backend cannot be reached. Go on without web search.") from None
            case OutboundTimeoutError():
                raise SearchError("The search backend did not answer in time.", "timeout") from None
            case _:
                raise SearchError("The answer of the search backend cannot be used.") from None


def _server(url: str) -> str:
    """Return the host and port of a URL, for the log."""
    return urlsplit(url).netloc.rpartition("@")[2]


def _passing(answer: HttpAnswer) -> bool:
    """Tell whether to ask again: a backend that limits us and does not say for how long is left alone."""
    return answer.status in _PASSING or (answer.status == 429 and retry_after(answer.headers) is not None)


def texts(value: Any, *keys: str) -> str:
    """Return the first of some fields that is text with something in it."""
    fields = value if isinstance(value, dict) else {}
    found = (fields.get(key) for key in keys)
    return next((text for text in found if isinstance(text, str) and text.strip()), "")
