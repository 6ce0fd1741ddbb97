"""File search: vector stores of the operator's choice, OpenAI's management API, citations."""

from antwort.providers.file_search.provider import FileSearch
from antwort.providers.file_search.settings import FileSearchSettings

__all__ = ["FileSearch", "FileSearchSettings"]
