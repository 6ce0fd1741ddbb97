"""Giving the space of what was deleted back, in PostgreSQL: for new rows, while others read and write."""

from contextlib import closing

from antwort.storage.postgres.connection import PostgresAddress, PostgresConnection, config_errors, connect

_TABLES = ("responses", "entries", "events", "conversations", "conversation_items", "records")
_SIZE = "SELECT " + " + ".join(f"pg_total_relation_size('{table}')" for table in _TABLES)


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
