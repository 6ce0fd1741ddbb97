"""File search: vector stores of the operator's choice, OpenAI's management API, citations."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from antwort.providers.file_search.provider import FileSearch
    from antwort.providers.file_search.settings import FileSearchSettings

__all__ = ["FileSearch", "FileSearchSettings"]

_HOME = {"FileSearch": "provider", "FileSearchSettings": "settings"}
"""Where each name lives. They are imported on first use: the embedded database's process needs neither."""


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
