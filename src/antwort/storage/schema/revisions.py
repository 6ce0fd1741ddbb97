"""Which revisions there are of the tables, and what is to be done about a database that has another."""

from functools import cached_property
from pathlib import Path

from msgspec import Struct

from antwort.errors import ConfigError

EARLY = ("0003", "0004", "0005")
"""Revisions of the main branch from before they were written anew as 0001; `migrate` brings their databases there.

No other revision gets one of these names: the first after 0002 is 0006.
"""


class Migrations(Struct, frozen=True, dict=True):
    """A folder with Alembic's scripts, `versions/r0001_….py` and so on, and `schema.sql`, where they lead on SQLite."""

    folder: Path

    @cached_property
    def revisions(self) -> tuple[str, ...]:
        """The revisions there are, oldest first."""
        return tuple(sorted(path.name[1:5] for path in (self.folder / "versions").glob("r*.py")))

    @property
    def next(self) -> str:
        """The name of the revision to come."""
        return f"{int(max(*EARLY, *self.revisions)) + 1:04}" if self.revisions else "0001"


MIGRATIONS = Migrations(Path(__file__).with_name("migrations"))


def head(migrations: Migrations = MIGRATIONS) -> str:
    """Return the revision that this version of antwort needs."""
    return migrations.revisions[-1]


def is_known(revision: str | None, migrations: Migrations = MIGRATIONS) -> bool:
    """Tell whether this version can bring a database of some revision to its own."""
    return revision in migrations.revisions or revision in EARLY


def needs_upgrade(revision: str | None, *, embedded: bool, where: str, migrations: Migrations = MIGRATIONS) -> bool:
    """Tell whether a database is to be upgraded at start; raise ConfigError with the cure if it cannot be used.

    An embedded database has one user, so it can be upgraded without asking. Others may serve older versions too,
    unless they are empty.
    """
    needed = head(migrations)
    if revision == needed:
        return False
    if revision is None:
        return True
    if not is_known(revision, migrations):
        raise ConfigError(_unknown(revision, needed), where=where)
    if not embedded:
        raise ConfigError(
            f"The database is not up to date: it has the revision {revision}, older than {needed}, which this version "
            "of antwort needs. Run 'antwort db upgrade'.",
            where=where,
        )
    return True


def _unknown(revision: str, needed: str) -> str:
    """Tell what to do about a database of a revision that is not one of ours."""
    if len(revision) == len(needed) and revision.isdecimal() and revision > needed:
        return (
            f"The database has the revision '{revision}', newer than {needed}, the newest that this version of antwort "
            "knows. Install the newer version that wrote it, or restore a backup."
        )
    return (
        f"The database has the revision '{revision}', which no version of antwort up to this one, which needs {needed},"
        " has written. Use another database, or restore a backup."
    )
