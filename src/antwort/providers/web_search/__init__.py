"""Web search: its settings are read and checked; the function itself is not part of this release."""

from typing import ClassVar

from pydantic import PositiveInt

from antwort.provider import ConfigError, Provider, Settings


class WebSearchSettings(Settings):
    """Where to search."""

    backend: str = "searxng"
    url: str = "http://localhost:8888"
    max_results: PositiveInt = 5


class WebSearch(Provider[WebSearchSettings]):
    """Search the web."""

    aliases: ClassVar = {"search_engine_url": "url"}

    def __init__(self, settings: WebSearchSettings | None = None) -> None:
        super().__init__(settings)
        raise ConfigError("web search is not part of this release; set enabled: false, or remove the entry")
