"""What search engines behind HTTP have in common: how they are asked, and how their answers are read."""

import logging
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from antwort.extensions import SearchError
from antwort.provider import (
    Context,
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
