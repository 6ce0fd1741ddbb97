"""Web search: a backend of the operator's choice, pages as text, citations."""

from antwort.providers.web_search.adapter import Findings, SearchAdapter, SearchError, SearchResult
from antwort.providers.web_search.provider import WebSearch
from antwort.providers.web_search.settings import WebSearchSettings

__all__ = ["Findings", "SearchAdapter", "SearchError", "SearchResult", "WebSearch", "WebSearchSettings"]
