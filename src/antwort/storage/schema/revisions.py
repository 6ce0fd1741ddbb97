"""Which revisions there are of the tables, and what is to be done about a database that has another."""

from functools import cached_property
from pathlib import Path

from msgspec import Struct

from antwort.errors import ConfigError


class Migrations(Struct, frozen=True, dict=True):
    """A folder with Alembic's scripts, `versions/r0001_….py` and so on, and `schema.sql`, where they lead on SQLite."""

    folder: Path

    @cached_property
    def revisions(self) -> tuple[str, ...]:
        """The revisions there are, oldest first."""
        return tuple(sorted(path.name[1:5] for path in (self.folder / "versions").glob("r*.py")))


MIGRATIONS = Migrations(Path(__file__).with_name("migrations"))


def head(migrations: Migrations = MIGRATIONS) -> str:
    """Return the revision that this version of antwort needs."""
    return migrations.revisions[-1]


def needs_upgrade(revision: str | None, *, embedded: bool, where: str, migrations: Migrations = MIGRATIONS) -> bool:
    """Tell whether a database is to be upgraded at start; raise ConfigError with the cure if it cannot be used.

    An embedded database has one user, so it can be upgraded without asking. Others may serve older versions too,
    unless they are empty.
    """
    if revision == head(migrations):
        return False
    if revision is not None and revision not in migrations.revisions:
        raise ConfigError(
            f"The database has the revision '{revision}', which this version of antwort does not know. "
            "Install the newer version that wrote it, or restore a backup.",
            where=where,
        )
    if not embedded and revision is not None:
        raise ConfigError("The database is not up to date. Run 'antwort db upgrade'.", where=where)
    return True
