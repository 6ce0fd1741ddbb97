"""Running the migrations with Alembic. Imported only when there is something to migrate: it takes half a second."""

from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, NullPool, create_engine
from sqlalchemy.exc import DBAPIError

from antwort.storage.schema.early import settle


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
    settle(connection, config)
    command.upgrade(config, to)
