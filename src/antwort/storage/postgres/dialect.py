"""From the statements as they are written, for SQLite, to those PostgreSQL understands."""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from typing_extensions import override

from antwort.storage.postgres.connection import PostgresConnection
from antwort.storage.sql.database import LOCK, SNAPSHOT, Cursor, Database, Row, for_rows, insert_together

_OCTETS = re.compile(r"length\(CAST\((\w+) AS BLOB\)\)")
_LIST = re.compile(r"group_concat\((\w+)\)")
_PLACEHOLDER = re.compile(r"\?|:([a-z_]+)")


@lru_cache
def translated(sql: str) -> tuple[str, tuple[str, ...]]:
    """Return a statement for PostgreSQL, and the names of its parameters in order if they have names."""
    names: list[str] = []
    count = 0

    def number(match: re.Match[str]) -> str:
        nonlocal count
        name = match[1]
        if name is None:
            count += 1
            return f"${count}"
        if name not in names:
            names.append(name)
        return f"${names.index(name) + 1}"

    text = _PLACEHOLDER.sub(number, sql)
    text = _OCTETS.sub(r"octet_length(\1)", text)
    text = _LIST.sub(r"string_agg(\1, ',')", text)
    text = text.replace(LOCK, "FOR NO KEY UPDATE").replace(SNAPSHOT, "ISOLATION LEVEL REPEATABLE READ READ ONLY")
    return text, tuple(names)


@lru_cache
def joined(inserts: tuple[tuple[str, int], ...]) -> str:
    """Return one statement that does several inserts, each of a number of rows."""
    *first, last = (for_rows(statement, count) for statement, count in inserts)
    parts = ", ".join(f"part_{number} AS ({statement})" for number, statement in enumerate(first))
    return f"WITH {parts} {last}" if parts else last


class PostgresDatabase(Database):
    """A connection to PostgreSQL with the face of one to SQLite."""

    __slots__ = ("_connection",)

    def __init__(self, connection: PostgresConnection) -> None:
        self._connection = connection

    @override
    def execute(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = (), /) -> Cursor:
        """Execute a statement."""
        text, names = translated(sql)
        if isinstance(parameters, Mapping):
            parameters = [parameters[name] for name in names]
        return self._connection.execute(text, parameters or None)

    @override
    def insert(self, sql: str, rows: Sequence[Row], /) -> None:
        """Insert rows, several with one statement: it costs the driver more than a row in it."""
        insert_together(self, sql, rows)
