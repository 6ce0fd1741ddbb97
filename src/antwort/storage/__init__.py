"""What is kept: responses, their journals, the events of background runs, and conversations."""

from antwort.storage.base import (
    ConversationRecord,
    CrowdedError,
    FencedError,
    FileRecord,
    JournalEntry,
    Kept,
    ListedResponse,
    Page,
    Question,
    Questions,
    Records,
    ResponseRecord,
    StoredEvent,
)
from antwort.storage.opening import open_store
from antwort.storage.sql.responses import ResponseStore
from antwort.storage.sql.store import Store
from antwort.storage.sqlite import SqliteStore
from antwort.storage.urls import database_url

__all__ = [
    "ConversationRecord",
    "CrowdedError",
    "FencedError",
    "FileRecord",
    "JournalEntry",
    "Kept",
    "ListedResponse",
    "Page",
    "Question",
    "Questions",
    "Records",
    "ResponseRecord",
    "ResponseStore",
    "SqliteStore",
    "Store",
    "StoredEvent",
    "database_url",
    "open_store",
]
