"""Maintenance of a database: which revision it has, how it gets the right one, and the space of what was deleted."""

from dataclasses import dataclass

from antwort.storage.schema.revisions import MIGRATIONS, Migrations
from antwort.storage.sqlite import maintenance as sqlite
from antwort.storage.urls import is_postgres, postgres_module, sqlite_path


def location(url: str) -> str:
    """Return where a database is, for people to read: no password is in it."""
    return str(postgres_module().location(url)) if is_postgres(url) else str(sqlite_path(url))


def current(url: str) -> str | None:
    """Return the revision of a database; None if it is new."""
    if is_postgres(url):
        revision: str | None = postgres_module().current(url)
        return revision
    return sqlite.current(sqlite_path(url))


def upgrade(url: str, *, migrations: Migrations = MIGRATIONS) -> None:
    """Create a database, or bring an older one to the newest revision."""
    if is_postgres(url):
        postgres_module().upgrade(url, migrations=migrations)
    else:
        sqlite.upgrade(sqlite_path(url), migrations=migrations)


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
