"""What is kept: responses, their journals and the events of background runs."""

from antwort.config import Config
from antwort.storage.base import (
    ACTIVE,
    FencedError,
    JournalEntry,
    Page,
    ResponseRecord,
    ResponseStore,
    StoredEvent,
)
from antwort.storage.locations import database_url, sqlite_path
from antwort.storage.sqlite import SqliteStore

__all__ = [
    "ACTIVE",
    "FencedError",
    "JournalEntry",
    "Page",
    "ResponseRecord",
    "ResponseStore",
    "SqliteStore",
    "StoredEvent",
    "database_url",
    "open_store",
]


def open_store(config: Config) -> SqliteStore:
    """Open the store that the configuration names; raise ConfigError if it cannot be used. This blocks."""
    return SqliteStore.open(sqlite_path(database_url(config)), synchronous=config.storage.synchronous)
