"""Web search: an engine of the operator's choice, pages as text, citations."""

from antwort.extensions import Findings, SearchError, SearchResult
from antwort.extensions import SearchEngine as SearchAdapter
from antwort.providers.web_search.provider import WebSearch
from antwort.providers.web_search.settings import WebSearchSettings

__all__ = ["Findings", "SearchAdapter", "SearchError", "SearchResult", "WebSearch", "WebSearchSettings"]
