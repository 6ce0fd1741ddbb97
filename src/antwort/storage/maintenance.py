"""Maintenance of a database: which revision it has, how it gets the right one, and the space of what was deleted."""

import importlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Protocol

from antwort.errors import ConfigError
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


# --- copies -----------------------------------------------------------------------------------------------------------


class DatabaseSnapshot(Protocol):
    """A database as it was at a moment."""

    @property
    def kind(self) -> str:
        """What database it is of."""

    @property
    def revision(self) -> str | None:
        """The revision it had; None if it was empty."""

    @property
    def details(self) -> dict[str, object]:
        """What else is to be known to bring a copy back."""

    def write(self, folder: Path, tell: Callable[[int], None]) -> Path:
        """Write a copy into a folder, and tell how many bytes of it there are."""


@dataclass(frozen=True, slots=True)
class DatabaseCopy:
    """What is to be known of a copy to bring it back."""

    kind: str
    schema: str
    """Where the tables were, in PostgreSQL."""
    beside: list[str]
    """Other schemas whose tables are in it."""
    extensions: list[tuple[str, str]]
    """What has to be installed for these, and in which schema."""

    @property
    def is_postgres(self) -> bool:
        """Whether it is of PostgreSQL."""
        return self.kind == "postgresql"


def snapshot(url: str) -> AbstractContextManager[DatabaseSnapshot]:
    """Keep a database as it is at this moment, to be copied, while others go on writing."""
    if is_postgres(url):
        kept: AbstractContextManager[DatabaseSnapshot] = _dumps().snapshot(url)
        return kept
    path = sqlite_path(url)
    if not path.exists():
        raise ConfigError("There is no database yet, so there is nothing to keep a copy of.", where=str(path))
    return sqlite.snapshot(path)


def check_target(url: str, copy: DatabaseCopy) -> None:
    """Raise ConfigError if a database is not one to which a copy can be brought: it must be empty."""
    if is_postgres(url):
        _dumps().check_empty(url, copy.schema, copy.beside)


def restore(url: str, file: Path, copy: DatabaseCopy, tell: Callable[[], None]) -> None:
    """Bring a copy to an empty database, all or nothing. Of SQLite it is the database already, if it is sound."""
    if is_postgres(url):
        _dumps().load(url, file, copy.beside, copy.extensions, tell)
    else:
        sqlite.check(file)


def _dumps() -> ModuleType:
    postgres_module()  # which says what is missing
    return importlib.import_module("antwort.storage.postgres.dump")
