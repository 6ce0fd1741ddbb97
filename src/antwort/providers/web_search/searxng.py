"""SearXNG, by its JSON API."""

import logging
from typing import Any, Literal, Self

from pydantic import model_validator
from typing_extensions import override

from antwort.extensions import Findings, SearchEngine, SearchError, SearchResult
from antwort.provider import Context, Duration, Field, HttpAnswer, SecretStr, Settings
from antwort.providers.web_search.adapter import ask, texts
from antwort.providers.web_search.options import Options

logger = logging.getLogger(__name__)

_SAFE_SEARCH = {"off": "0", "moderate": "1", "strict": "2"}
_FACTS = 8
"""Facts of an infobox that are shown."""


class SearXNGSettings(Settings):
    """A SearXNG instance."""

    url: str | None = Field(default=None, pattern=r"^https?://", description="Its address.")
    api_key: SecretStr | None = Field(default=None, description="The key it wants, as a bearer token.")
    categories: list[str] = Field(default=["general"], description="The categories that are searched.")
    language: str | None = Field(default=None, description="Language of the results.")
    safe_search: Literal["off", "moderate", "strict"] = Field(
        default="moderate", description="How much adult content is left out."
    )
    timeout: Duration = Field(default=10.0, description="Time a search may take, retries included.")
    retries: int = Field(default=1, ge=0, le=5, description="Tries after a failure that may pass.")

    @model_validator(mode="after")
    def _has_an_address(self) -> Self:
        if self.url is None:
            raise ValueError("'url' is required: the address of the SearXNG instance, such as http://localhost:8888")
        return self


class SearXNG(SearchEngine):
    """Asks a SearXNG instance. It must have `json` among its `search.formats`."""

    def __init__(self, settings: SearXNGSettings) -> None:
        self._settings = settings
        base = str(settings.url).rstrip("/")
        self._url = base if base.endswith("/search") else f"{base}/search"

    @override
    async def search(self, ctx: Context, query: str, max_results: int) -> Findings:
        settings = self._settings
        params = {
            "q": query,
            "format": "json",
            "safesearch": _SAFE_SEARCH[settings.safe_search],
            "categories": ",".join(settings.categories),
        }
        language = Options.of(ctx).locale(settings.language)
        if language is not None:
            params["language"] = language
        headers = {"accept": "application/json"}
        if settings.api_key is not None:
            headers["authorization"] = f"Bearer {settings.api_key.get_secret_value()}"
        answer = await ask(ctx, self._url, params, headers, retries=settings.retries, time_limit=settings.timeout)
        return _findings(_body(answer))


def _body(answer: HttpAnswer) -> dict[str, Any]:
    """Return the JSON of an answer; raise SearchError, and tell the operator the cure, if it has none."""
    if answer.status == 403:
        logger.error("SearXNG at %s refuses JSON (403): add 'json' to 'search.formats' in its settings.yml", answer.url)
        raise SearchError(
            "The search backend refuses to answer in JSON. Its operator must add 'json' to 'search.formats' in "
            "SearXNG's settings.yml."
        )
    if answer.status == 429:
        logger.warning("SearXNG at %s limits us (429): allow this server in its limiter.toml", answer.url)
        raise SearchError("The search backend gets too many requests. Search later, or less often.", "rate_limited")
    if answer.status != 200:
        logger.warning("SearXNG at %s answered %d", answer.url, answer.status)
        raise SearchError(f"The search backend failed with status {answer.status}.")
    try:
        body = answer.json()
    except ValueError:
        body = None
    if not isinstance(body, dict) or not isinstance(body.get("results"), list):
        logger.warning("SearXNG at %s did not answer in its JSON; is this its address?", answer.url)
        raise SearchError("The answer of the search backend cannot be read.")
    return body


def _findings(body: dict[str, Any]) -> Findings:
    results = [
        SearchResult(texts(one, "title"), texts(one, "url"), texts(one, "content"), texts(one, "publishedDate") or None)
        for one in body["results"]
    ]
    answers = [one if isinstance(one, str) else texts(one, "answer") for one in _list(body, "answers")]
    answers += [_infobox(one) for one in _list(body, "infoboxes")]
    silent = [" ".join([str(one[0]), f"({one[1]})"]) for one in _list(body, "unresponsive_engines") if _is_pair(one)]
    suggestions = [one for one in [*_list(body, "corrections"), *_list(body, "suggestions")] if isinstance(one, str)]
    return Findings(results, answers=[one for one in answers if one], suggestions=suggestions, silent=silent)


def _infobox(box: Any) -> str:
    """Return an infobox as one line: what it is about, its text, its facts."""
    facts = [
        f"{texts(fact, 'label')}: {texts(fact, 'value')}"
        for fact in _list(box, "attributes")[:_FACTS]
        if texts(fact, "label") and texts(fact, "value")
    ]
    about, content = texts(box, "infobox"), texts(box, "content")
    told = "; ".join(part for part in (content, *facts) if part)
    return f"{about}: {told}" if about and told else ""


def _list(value: Any, key: str) -> list[Any]:
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, list) else []


def _is_pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2
