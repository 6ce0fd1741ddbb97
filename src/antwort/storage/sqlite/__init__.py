"""The store on SQLite."""

from antwort.storage.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
