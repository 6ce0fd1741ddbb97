"""Giving the space of what was deleted back: to the file system, or to the database for new rows."""

from dataclasses import dataclass

from antwort.storage.sqlite import vacuum as sqlite
from antwort.storage.urls import is_postgres, postgres_module, sqlite_path


@dataclass(frozen=True, slots=True)
class Vacuumed:
    """What it came to, in bytes."""

    before: int
    after: int


def vacuum(url: str) -> Vacuumed:
    """Vacuum a database that is up to date; a ConfigError says what prevents it. This may take long.

    A SQLite file is written anew and becomes as small as it can be; whoever writes meanwhile waits. In PostgreSQL
    nobody waits, and the space is used again.
    """
    return Vacuumed(*(postgres_module().vacuum(url) if is_postgres(url) else sqlite.vacuum(sqlite_path(url))))
