"""Running the migrations with Alembic. Imported only when there is something to migrate: it takes half a second."""

import sqlite3
from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import NullPool, create_engine
from sqlalchemy.exc import DBAPIError

__all__ = ["alembic_config", "migrate"]


def alembic_config(folder: Path) -> Config:
    """Return what Alembic needs to find the revisions in a folder, in place of an `alembic.ini`."""
    config = Config()
    config.set_main_option("script_location", str(folder).replace("%", "%%"))
    return config


def migrate(database: sqlite3.Connection, folder: Path) -> None:
    """Bring a SQLite database to the newest revision in the folder, all at once or not at all; close the connection."""
    engine = create_engine("sqlite://", creator=lambda: database, poolclass=NullPool)
    config = alembic_config(folder)
    try:
        with engine.connect() as connection:
            # The driver does not begin by itself; and whoever migrates at the same time has to wait here, before it
            # looks at what there is to do.
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
            connection.commit()
    except DBAPIError as error:
        raise error.orig or error from error
