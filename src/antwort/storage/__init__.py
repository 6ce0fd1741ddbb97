"""What is kept: responses, their journals, the events of background runs, and conversations."""

from antwort.config import Config
from antwort.storage.base import (
    ACTIVE,
    ConversationRecord,
    ConversationStore,
    FencedError,
    JournalEntry,
    Kept,
    ListedResponse,
    Page,
    Records,
    ResponseRecord,
    ResponseStore,
    Store,
    StoredEvent,
)
from antwort.storage.locations import database_url, is_postgres, postgres_module, sqlite_path
from antwort.storage.sqlite import SqliteStore

__all__ = [
    "ACTIVE",
    "ConversationRecord",
    "ConversationStore",
    "FencedError",
    "JournalEntry",
    "Kept",
    "ListedResponse",
    "Page",
    "Records",
    "ResponseRecord",
    "ResponseStore",
    "SqliteStore",
    "Store",
    "StoredEvent",
    "database_url",
    "open_store",
]


def open_store(config: Config) -> Store:
    """Open the store that the configuration names; raise ConfigError if it cannot be used. This blocks."""
    url, settings = database_url(config), config.storage
    if is_postgres(url):
        opened: Store = postgres_module().PostgresStore.open(
            url, pool_size=settings.pool_size, reconnect=settings.reconnect
        )
        return opened
    return SqliteStore.open(sqlite_path(url), synchronous=settings.synchronous, busy_timeout=settings.busy_timeout)
