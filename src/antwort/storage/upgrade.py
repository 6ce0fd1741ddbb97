"""The revision of a database: which it has, and how it gets the one it should have."""

from antwort.storage.schema.revisions import MIGRATIONS, Migrations
from antwort.storage.sqlite import upgrade as sqlite
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
