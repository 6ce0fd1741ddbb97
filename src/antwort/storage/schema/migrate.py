"""Running the migrations with Alembic. Imported only when there is something to migrate: it takes half a second."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from sqlalchemy import (
    ColumnElement,
    Connection,
    MetaData,
    NullPool,
    Table,
    create_engine,
    inspect,
    literal_column,
    select,
    text,
)
from sqlalchemy.exc import DBAPIError

from antwort.storage.schema.revisions import EARLY

_SETTLED = "0001"
_LAST = ("questions", "ix_questions_response")
"""What the first revision was given last, so who has this has all of it."""
_MISSING = {("conversations", "used_at"): "created_at", ("responses", "parked"): "false"}
"""What stands in a column that may not be empty and was not there, or was empty."""
_COPY = "before_0001_"


def alembic_config(folder: Path) -> Config:
    """Return what Alembic needs to find the revisions in a folder, in place of an `alembic.ini`."""
    config = Config()
    config.set_main_option("script_location", str(folder).replace("%", "%%"))
    return config


def migrate(database: Any, folder: Path, *, url: str = "sqlite://", begin: str = "BEGIN IMMEDIATE") -> None:
    """Bring a database to the newest revision in the folder, all at once or not at all; close the connection.

    `url` says what the connection leads to. `begin` makes whoever migrates at the same time wait, before it looks at
    what there is to do.
    """
    engine = create_engine(url, creator=lambda: database, poolclass=NullPool)
    try:
        with engine.connect() as connection:
            connection.exec_driver_sql(begin)
            run_revisions(connection, folder)
            connection.commit()
    except DBAPIError as error:
        raise error.orig or error from error


def run_revisions(connection: Connection, folder: Path, to: str = "head") -> None:
    """Run the revisions in the folder that a database does not have yet, in the transaction of the connection."""
    config = alembic_config(folder)
    config.attributes["connection"] = connection
    _settle(connection, config)
    command.upgrade(config, to)


# --- databases from before the revisions were settled -----------------------------------------------------------------
# The main branch had five revisions, 0001 to 0005, which were then written anew as one, again called 0001; that one
# grew for a day. So there are databases of revisions that no script is left of, and some whose 0001 is not that of the
# script. All of them have a part of what it makes, by the same names.


def _settle(connection: Connection, config: Config) -> None:
    """Bring a database to the first revision that was settled, with what it has; do nothing to any other.

    It is part of the transaction of the connection.
    """
    if not _is_early(connection):
        return
    names = _names(connection)
    for name in names:
        connection.execute(text(f"CREATE TABLE {_COPY}{name} AS SELECT * FROM {name}"))  # noqa: S608
    for name in reversed(names):
        connection.execute(text(f"DROP TABLE {name}"))
    connection.execute(text("DELETE FROM alembic_version"))
    command.upgrade(config, _SETTLED)
    for name in names:
        _fill(connection, name)
        connection.execute(text(f"DROP TABLE {_COPY}{name}"))


def _is_early(connection: Connection) -> bool:
    there = inspect(connection)
    if not there.has_table("alembic_version"):
        return False
    revision = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    if revision not in {_SETTLED, "0002", *EARLY}:
        return False
    table, last = _LAST
    return not there.has_table(table) or last not in {index["name"] for index in there.get_indexes(table)}


def _names(connection: Connection) -> Sequence[str]:
    """Return the tables of a database that the first revision makes, each after those it refers to."""
    ours = ["responses", "entries", "events", "conversations", "conversation_items", "records"]
    ours += ["blobs", "blob_chunks", "variable_versions", "questions"]
    there = inspect(connection)
    return [name for name in ours if there.has_table(name)]


def _fill(connection: Connection, name: str) -> None:
    """Copy the rows of a table to the new one of its name."""
    new = Table(name, MetaData(), autoload_with=connection, resolve_fks=False)
    old = Table(_COPY + name, MetaData(), autoload_with=connection)
    values: dict[str, ColumnElement[object]] = {}
    for column in new.c:
        missing = _MISSING.get((name, column.name))
        if column.name in old.c:
            kept = f'"{column.name}"'
            values[column.name] = literal_column(kept if missing is None else f"COALESCE({kept}, {missing})")
        elif missing is not None:
            values[column.name] = literal_column(missing)
    connection.execute(new.insert().from_select(list(values), select(*values.values()).select_from(old)))
    if "number" in new.c and connection.dialect.name == "postgresql":  # SQLite counts on from the largest by itself
        counter = f"pg_get_serial_sequence('{name}', 'number')"
        connection.execute(text(f"SELECT setval({counter}, max(number)) FROM {name}"))  # noqa: S608
