"""Maintenance of a PostgreSQL database: its revision, and the space of what was deleted.

Its tables are always made by the migrations, new ones too.
"""

import importlib
from contextlib import closing

from antwort.errors import ConfigError
from antwort.storage.postgres.connection import OLDEST, PostgresAddress, PostgresConnection, config_errors, connect
from antwort.storage.schema.revisions import MIGRATIONS, Migrations, needs_upgrade

_KEY = 0x616E74776F7274
"""Whoever changes the tables holds the advisory lock of this number; the letters are ours."""
_TABLES_THERE = "SELECT to_regclass('alembic_version') IS NOT NULL, to_regclass('responses') IS NOT NULL"
_TABLES = ("responses", "entries", "events", "conversations", "conversation_items", "records")
_SIZE = "SELECT " + " + ".join(f"pg_total_relation_size('{table}')" for table in _TABLES)


def location(url: str) -> str:
    """Return where a database is, without its password."""
    return str(PostgresAddress.of(url))


def current(url: str) -> str | None:
    """Return the revision of a database; None if it is new."""
    address = PostgresAddress.of(url)
    with config_errors(address), closing(connect(address)) as connection:
        return revision_of(connection, address)


def prepare(url: str, *, migrations: Migrations = MIGRATIONS) -> None:
    """Make a database fit for use at start; raise ConfigError if that cannot be."""
    if needs_upgrade(current(url), embedded=False, where=location(url), migrations=migrations):
        upgrade(url, migrations=migrations)


def upgrade(url: str, *, migrations: Migrations = MIGRATIONS) -> None:
    """Create the tables, or bring older ones to the newest revision."""
    address = PostgresAddress.of(url)
    with config_errors(address), closing(connect(address)) as connection:
        if needs_upgrade(revision_of(connection, address), embedded=True, where=str(address), migrations=migrations):
            connection.autocommit = False
            revisions = importlib.import_module("antwort.storage.schema.migrate")
            # Whoever migrates at the same time has to wait there, before it looks at what there is to do.
            lock = f"SELECT pg_advisory_xact_lock({_KEY})"
            revisions.migrate(connection, migrations.folder, url="postgresql+psycopg://", begin=lock)


def revision_of(connection: PostgresConnection, address: PostgresAddress) -> str | None:
    """Return the revision of a database; None if it has no tables, ConfigError if they are of another program."""
    if connection.info.server_version < OLDEST:
        raise ConfigError(
            f"PostgreSQL {OLDEST // 10000} or newer is needed, and this is {connection.info.server_version // 10000}.",
            where=str(address),
        )
    versioned, ours = connection.execute(_TABLES_THERE).fetchone() or (False, False)
    if versioned:
        row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        if row is not None:
            return str(row[0])
    if ours:
        raise ConfigError(
            "The database belongs to another program: it has a table 'responses', but no revision of antwort. "
            "Use another database or schema.",
            where=str(address),
        )
    return None


def vacuum(url: str) -> tuple[int, int]:
    """Vacuum the tables of antwort and return the bytes they take, before and after."""
    address = PostgresAddress.of(url)
    with config_errors(address), closing(connect(address)) as connection:
        connection.execute("SET statement_timeout = 0")
        before = _size(connection)
        for table in _TABLES:
            connection.execute(f"VACUUM (ANALYZE) {table}")
        return before, _size(connection)


def _size(connection: PostgresConnection) -> int:
    row = connection.execute(_SIZE).fetchone()
    return 0 if row is None else int(row[0])
