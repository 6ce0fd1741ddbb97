"""Brave Search, by its web search API."""

from typing import Any, Literal, Self

from pydantic import model_validator
from typing_extensions import override

from antwort.extensions import Findings, SearchEngine, SearchError, SearchResult
from antwort.provider import Context, Duration, Field, SecretStr, Settings
from antwort.providers.web_search.adapter import ask, texts
from antwort.providers.web_search.options import Options

_API = "https://api.search.brave.com/res/v1/web/search"
_MOST = 20
"""Results of one answer."""


class BraveSettings(Settings):
    """Brave's API."""

    url: str = Field(default=_API, pattern=r"^https?://", description="Its address.")
    api_key: SecretStr | None = Field(default=None, description="The key it wants.")
    language: str | None = Field(default=None, description="Language of the results.")
    safe_search: Literal["off", "moderate", "strict"] = Field(
        default="moderate", description="How much adult content is left out."
    )
    timeout: Duration = Field(default=10.0, description="Time a search may take, retries included.")
    retries: int = Field(default=1, ge=0, le=5, description="Tries after a failure that may pass.")

    @model_validator(mode="after")
    def _has_a_key(self) -> Self:
        if self.api_key is None:
            raise ValueError("'api_key' or 'api_key_file' is required for Brave")
        return self


class Brave(SearchEngine):
    """Asks Brave's API with the operator's key."""

    def __init__(self, settings: BraveSettings) -> None:
        self._settings = settings
        self._url = settings.url

    @override
    async def search(self, ctx: Context, query: str, max_results: int) -> Findings:
        settings, options = self._settings, Options.of(ctx)
        params = {
            "q": query[:400],
            "count": str(min(max_results, _MOST)),
            "safesearch": settings.safe_search,
            "text_decorations": "false",
        }
        language, _, region = (settings.language or "").partition("-")
        if language:
            params["search_lang"] = language
        if country := options.country or region:
            params["country"] = country
        key = settings.api_key.get_secret_value() if settings.api_key is not None else ""
        headers = {"accept": "application/json", "x-subscription-token": key, **_location(options)}
        answer = await ask(ctx, self._url, params, headers, retries=settings.retries, time_limit=settings.timeout)
        if answer.status == 429:
            raise SearchError("The search backend gets too many requests. Search later, or less often.", "rate_limited")
        if answer.status in {401, 403, 422}:
            raise SearchError("The search backend refuses the key. Its operator must check 'api_key'.")
        if answer.status != 200:
            raise SearchError(f"The search backend failed with status {answer.status}.")
        try:
            return _findings(answer.json())
        except ValueError:
            raise SearchError("The answer of the search backend cannot be read.") from None


def _location(options: Options) -> dict[str, str]:
    """Tell where the user is, as far as the request did."""
    known = {"x-loc-city": options.city, "x-loc-state-name": options.region, "x-loc-timezone": options.timezone}
    return {name: value for name, value in known.items() if value and value.isascii() and value.isprintable()}


def _findings(body: Any) -> Findings:
    web = body.get("web") if isinstance(body, dict) else None
    results = web.get("results") if isinstance(web, dict) else []
    return Findings(
        SearchResult(texts(one, "title"), texts(one, "url"), texts(one, "description"), texts(one, "page_age") or None)
        for one in (results if isinstance(results, list) else [])
    )
